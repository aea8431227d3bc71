"""What does `{NAME}` in a server's command or flags stand for, and what comes of it?"""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from agentload.artifacts.design import Value
from agentload.run.experiment_shape import RefusedError
from agentload.run.scenario import Scenario, Server
from agentload.run.toml_values import shown

RESERVED: Final = ("port", "kv_dir", "export_dir")  # that agentload fills in at each start
# {word}; not ${WORD} of a shell, and not the braces of JSON or of a template: {"a": 1}, {{ x }}.
_PLACEHOLDER: Final = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}(?!\})")


def found_in(text: str) -> list[str]:
    """Return the names of a text's placeholders."""
    return _PLACEHOLDER.findall(text)


def texts_of(server: Server) -> list[str]:
    """Return where a server may have placeholders that must all be filled in: its command, or its flags."""
    return [*([] if server.launch is None else [server.launch]), *server.args]


def refuse_stray(base: Scenario, names: Sequence[str], path: tuple[str, ...] | None = None) -> None:
    """Refuse placeholders other than `names` and agentload's own.

    Raises:
        RefusedError: there is one, at `path` or else in the scenario.
    """
    server = base.server
    for text in texts_of(server):
        for found in _PLACEHOLDER.findall(text):
            if found not in (*names, *RESERVED):
                there = ", ".join(f"{{{one}}}" for one in (*names, *RESERVED))
                where = path or ("scenario", "server", "args" if text in server.args else "launch")
                raise RefusedError(where, f"{{{found}}} has no values (--vary {found}=V1,V2): there are {there}")


def put(text: str, name: str, value: Value) -> str:
    """Return the text with the value in its place."""
    return _PLACEHOLDER.sub(lambda found: shown(value) if found[1] == name else found[0], text)


def words(word: str, name: str, value: Value, path: tuple[str, ...]) -> list[str]:
    """Return one of the server's arguments with the value in it.

    One that is the placeholder alone may become several, or none, as in a command that is split afterwards.

    Raises:
        RefusedError: the value has a quote that is not closed.
    """
    if word != f"{{{name}}}":
        return [put(word, name, value)]
    try:
        return shlex.split(shown(value))
    except ValueError as error:
        raise RefusedError(path, f"{error}: {shown(value)!r}") from error


def filled(text: str, name: str, value: Value) -> Value:
    """Return the same, as the value itself where the text is its placeholder alone."""
    return value if text == f"{{{name}}}" else put(text, name, value)


def setting_name(server: Server, name: str) -> str | None:
    """Return under which name a value's setting is looked for, where no server profile knows the flag.

    The flag before the placeholder; else the placeholder's own name. None: it stands in the program's path, and which
    program ran is recorded with its identity.
    """
    parts = server.launch.split() if server.launch is not None else list(server.args)
    mark = f"{{{name}}}"
    for index, word in enumerate(parts):
        if mark not in word:
            continue
        if index == 0 and server.launch is not None:
            return None
        flag, equals, _ = word.partition("=")
        before = parts[index - 1] if index else ""
        flag = flag if equals and flag.startswith("-") else before if word == mark and before.startswith("-") else ""
        return flag.lstrip("-").replace("-", "_") or name
    return name
