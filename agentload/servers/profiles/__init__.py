"""Which kind of server is this, and what is known of that kind?"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from agentload.servers.profiles import ds4, llamacpp, sglang, twin, vllm
from agentload.servers.profiles.shape import UNKNOWN, Endpoint, Option, Profile, ProofKind, Value, Warmup

__all__ = [
    "PROFILES",
    "UNKNOWN",
    "Endpoint",
    "Option",
    "Profile",
    "ProofKind",
    "Value",
    "Warmup",
    "first_known",
    "profile_for",
    "server_words",
    "words_of",
]

PROFILES: Final[Mapping[str, Profile]] = {one.PROFILE.name: one.PROFILE for one in (ds4, llamacpp, vllm, sglang, twin)}

# The last part of a word of a command: a program, a module behind `-m`, or the name of a container image.
_WORDS: Final = (
    ("ds4", re.compile(r"ds4[-_]server(?:\.\w+)?")),
    ("llamacpp", re.compile(r"llama-server(?:\.exe)?|agentload\.servers\.llama_launcher|llama\.cpp:\S*server\S*")),
    ("vllm", re.compile(r"vllm\.entrypoints\.\S+|vllm(?:-openai|-cpu)?(?:[:@]\S+)?")),
    ("sglang", re.compile(r"sglang\.(?:launch_server|srt\.\S+)|sglang(?:[:@]\S+)?")),
)
_TWIN: Final = ("twin", "serve")
# What these are given to do is one word, with blanks in it.
_TOLD_IN_ONE_WORD: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish", "ssh"))


def profile_for(software: str | None, argv: Sequence[str], log_format: str | None) -> Profile:
    """Return the profile of a server; `UNKNOWN`, which knows no setting, when nothing tells what it is.

    The command counts before the log's format, as long as that server may write such a log: a server in a container or
    behind ssh is known by the words of the command that reaches it, one behind a script by its log alone, or by what
    the process table shows of it (pass that command line).

    Args:
        software: the profile's name, where the user or the manifest says it.
        argv: its command line.
        log_format: the format of its log, where that is known.
    """
    if software is not None and software in PROFILES:
        return PROFILES[software]
    found, _ = _program(words_of(argv))
    by_log = next((one for one in PROFILES.values() if log_format is not None and one.log_format == log_format), None)
    if found is not None and (by_log is None or found.log_format == log_format):
        return found
    return by_log or UNKNOWN


def first_known(software: str | None, command_lines: Sequence[Sequence[str]], log_format: str | None) -> Profile:
    """Return the profile by the first command line that tells; by the log where none does."""
    if software is None:
        for argv in command_lines:
            found, _ = _program(words_of(argv))
            if found is not None and profile_for(None, argv, log_format) is found:
                return found
    return profile_for(software, (), log_format)


def words_of(argv: Sequence[str]) -> list[str]:
    """Return a command's words; of a shell or ssh, which are told in one word what to do, also those in it."""
    if not argv or PurePosixPath(argv[0]).name not in _TOLD_IN_ONE_WORD:
        return list(argv)
    return [part for word in argv for part in _split(word)]


def names_a_server(argv: Sequence[str]) -> bool:
    """Tell whether a word of a command is known as a server's program."""
    return _program(words_of(argv))[0] is not None


def server_words(argv: Sequence[str]) -> list[str]:
    """Return the words behind the server's program: what stands before is for a container, ssh, taskset, a shell.

    All of them where no word is known as a server's program: a script may hand on what it is given.
    """
    words = words_of(argv)
    return words[_program(words)[1] :]


def _program(words: Sequence[str]) -> tuple[Profile | None, int]:
    """Return whose program the first word is that tells, and the index behind it; what comes later may be a path."""
    for index, word in enumerate(words):
        if tuple(words[index : index + 2]) == _TWIN:
            return twin.PROFILE, index + 2
        name = PurePosixPath(word).name
        for software, pattern in _WORDS:
            if pattern.fullmatch(name):
                return PROFILES[software], index + 1
    return None, 0


def _split(word: str) -> list[str]:
    try:
        return shlex.split(word) or [word]
    except ValueError:  # a quote that is not closed: no shell takes it either
        return word.split()
