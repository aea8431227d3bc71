"""Which program really serves, with which command line, on which model file?

Asked of the process table once the server is ready: a script, a wrapper or an alias says nothing of what it starts. So
a later run can be told from an earlier one whose binary or model was another, and a flag that a script gives twice is
seen. Of a server in a container, behind ssh or on another machine the table shows only the program that reaches it:
then nothing is said of binary and model, and its settings rest on its log and API.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import psutil

from agentload.servers.commandline import without_keys
from agentload.servers.profiles import server_words

HEADER_BYTES: Final = 64 * 1024
_MOST_COMMANDS: Final = 32  # of a family: an engine of many devices has a process for each
_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*")
_ELSEWHERE: Final = frozenset(("ssh", "docker", "podman", "nerdctl", "kubectl", "oc", "srun", "docker-compose"))
_MODEL_FLAGS: Final = ("-m", "--model", "--model-path")
_SERVE: Final = "serve"
_CONFIG: Final = "config.json"  # of a model that is a folder
_WITH_A_VALUE: Final = frozenset(("-W", "-X", "--check-hash-based-pycs"))  # of the interpreter's own options


@dataclass(frozen=True, slots=True)
class Found:
    """What the process table tells of a server, as the manifest has it."""

    identity: dict[str, Any]  # {"binary": {...} | None, "script": {...} | None, "model": {...} | None}
    commands: list[dict[str, Any]]  # {"pid", "argv", "serves"}, the serving process first; keys are hidden


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    argv: list[str]
    exe: str
    cwd: str
    listens: frozenset[int]  # TCP ports


NOBODY: Final = Found({"binary": None, "script": None, "model": None}, [])


def look(processes: Sequence[psutil.Process], port: int | None, keys: Sequence[str] = ()) -> Found:
    """Return what the process table tells of a server; what may not be seen is left out. Blocks.

    Args:
        processes: the server's family (servers.family).
        port: at which it answers; who listens there serves. None: it is not known, or not of this machine.
        keys: what must not be written down, beside what flags and variables name.
    """
    seen = [made for one in sorted(processes, key=lambda one: one.pid) if (made := _process(one)) is not None]
    serving = _serving(seen, port)
    ordered = [one for one in seen if one is serving] + [one for one in seen if one is not serving and one.argv]
    commands: list[dict[str, Any]] = []
    for one in ordered:
        argv = without_keys(one.argv, keys)
        if argv not in [each["argv"] for each in commands]:  # forks of one process
            commands.append({"pid": one.pid, "argv": argv, "serves": one is serving})
    return Found(_identity(serving), commands[:_MOST_COMMANDS])


def _serving(seen: Sequence[_Process], port: int | None) -> _Process | None:
    """Who listens; of several, which were forked with the socket, the first. Nobody visible: the only one there is."""
    listening = [one for one in seen if port in one.listens]
    return listening[0] if listening else seen[0] if len(seen) == 1 else None


def _process(process: psutil.Process) -> _Process | None:
    argv, exe, cwd, ports = [], "", "", frozenset[int]()
    try:
        argv = process.cmdline()
    except psutil.Error:  # it has ended, or is another user's
        return None
    with suppress(psutil.Error, OSError):
        exe = process.exe()
    with suppress(psutil.Error, OSError):
        cwd = process.cwd()
    with suppress(psutil.Error, OSError):
        connections = process.net_connections(kind="tcp")
        ports = frozenset(one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN)
    return _Process(process.pid, argv, exe, cwd, ports)


def _identity(process: _Process | None) -> dict[str, Any]:
    if process is None or out_of_sight(process.argv):
        return dict(NOBODY.identity)
    return {
        "binary": _file(Path(process.exe)) if process.exe else None,
        "script": _at(process, _script(process)),
        "model": _at(process, model_path(process.argv)),
    }


def out_of_sight(argv: Sequence[str]) -> bool:
    """Whether a command only reaches a server that runs in a container or on another machine."""
    return bool(argv) and PurePosixPath(argv[0]).name in _ELSEWHERE


def model_path(argv: Sequence[str]) -> str | None:
    """Return the path, or the name, of the model that a server's command line gives; None when it gives none.

    The last one wins, as in the servers.
    """
    words = server_words(argv)
    found = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        flag, equals, attached = word.partition("=")
        if flag in _MODEL_FLAGS:
            found = attached if equals else following
    if found is None and words[:1] == [_SERVE] and len(words) > 1 and not words[1].startswith("-"):
        found = words[1]  # vllm serve MODEL
    return found or None


def _script(process: _Process) -> str | None:
    """The file that an interpreter was given to run; None when it is none, or was given a module or a text."""
    if _PYTHON.fullmatch(Path(process.exe).name) is None:
        return None
    words = iter(process.argv[1:])
    for word in words:
        if word in ("-m", "-c"):
            return None
        if not word.startswith("-"):
            return word
        if word in _WITH_A_VALUE:
            next(words, None)
    return None


def _at(process: _Process, path: str | None) -> dict[str, Any] | None:
    """Of a path as the process sees it."""
    if path is None or (not process.cwd and not PurePosixPath(path).is_absolute()):
        return None
    where = Path(process.cwd or "/", path)
    try:
        return _folder(where) if where.is_dir() else _file(where)
    except (OSError, ValueError):
        return None


def _file(path: Path) -> dict[str, Any] | None:
    """What tells one file from another, at the cost of its first 64 KiB; None when it cannot be read."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            header = file.read(HEADER_BYTES)
    except (OSError, ValueError):
        return None
    return _described(path, status.st_size, status.st_mtime_ns, header)


def _folder(path: Path) -> dict[str, Any]:
    """A model that is a folder: the files in it by name and size, and its configuration."""
    files = sorted((one.name, one.stat()) for one in path.iterdir() if one.is_file())
    header = "".join(f"{name} {status.st_size}\n" for name, status in files).encode()
    with suppress(OSError), (path / _CONFIG).open("rb") as file:
        header += file.read(HEADER_BYTES)
    newest = max((status.st_mtime_ns for _, status in files), default=0)
    return _described(path, sum(status.st_size for _, status in files), newest, header)


def _described(path: Path, size: int, mtime_ns: int, header: bytes) -> dict[str, Any]:
    return {
        "path": str(path),
        "size": size,
        "mtime_ns": mtime_ns,
        "header_sha256": hashlib.sha256(header).hexdigest(),
    }
