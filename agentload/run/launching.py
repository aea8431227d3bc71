"""What does a `--launch` command start, at which address will it answer, and where may it keep its KV cache?

The command may start the server itself, a script that wraps it, a container, or a server on another machine. It stands
for the server: when it ends, the server has ended, and a signal to it must end the server (`docker run --rm --init`
without -d, `ssh -tt`). `{port}` becomes a free port of this machine and `{kv_dir}` a fresh, empty folder of this
machine, which is gone after the run; for a server elsewhere both have to be mapped or named otherwise. `{export_dir}`
is a folder of the run, for what the server itself writes of its requests (SGLang's --export-metrics-to-file-dir).
Whatever the process table of this machine does not show is proven by the server's log and API alone (servers.settings).
"""

import re
import shlex
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agentload.errors import ArtifactError, UsageError
from agentload.run.scenario import Server
from agentload.servers.here import LOOPBACK, own_address
from agentload.servers.process import free_port, split_command

_PORT: Final = re.compile(r"--port[= ](\d{1,5})(?!\S)")
# {word}; not ${WORD} of a shell, and not the braces of JSON or of a template: {"a": 1}, {{ x }}.
_PLACEHOLDER: Final = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}(?!\})")
_KNOWN: Final = ("port", "kv_dir", "export_dir")
_PORT_WORD: Final = "{port}"
_KV_DIR_WORD: Final = "{kv_dir}"
_EXPORT_DIR_WORD: Final = "{export_dir}"
_KEY: Final = re.compile(r"(?<!\S)--api-key[= ]")


def check(server: Server, env: Mapping[str, str]) -> None:
    """Refuse a command that cannot work.

    Raises:
        UsageError: it is empty, has an unknown placeholder, gives no port that is free and no address or two
            addresses, or sets a key that `env` has not.
    """
    assert server.launch is not None
    split_command(server.launch)
    for found in _PLACEHOLDER.finditer(server.launch):
        if found[1] not in _KNOWN:
            known = ", ".join(f"{{{name}}}" for name in _KNOWN)
            raise UsageError(f"--launch: expected only the placeholders {known}, got {found[0]}")
    if _KEY.search(server.launch) and not env.get("OPENAI_API_KEY"):
        raise UsageError("--launch: the command gives the server an --api-key: set OPENAI_API_KEY to the same")
    picked, port = _holds(server, _PORT_WORD), _given_port(server.launch)
    if port == 0:
        raise UsageError(f"--launch: expected {{port}}, which becomes a free port, or --port N, got {server.launch!r}")
    if picked and server.base_url is not None:
        raise UsageError(
            f"--launch: {{port}} becomes a free port, which --base-url cannot know: expected one of them, "
            f"or --port N in the command, there is also {server.base_url}"
        )
    if not picked and port is None and server.base_url is None:
        raise UsageError(
            f"--launch: expected the server's address: put {{port}} or --port N into the command, or give --base-url; "
            f"there is only {server.launch!r}"
        )
    if not picked:
        _must_be_free(server)


def must_be_there(server: Server, env: Mapping[str, str]) -> None:
    """Refuse a command whose program is not there, before a night of starts that all fail of it.

    Raises:
        UsageError: no such program can be started.
    """
    if server.launch is None:
        return
    program = split_command(server.launch)[0]
    path = {**env, **server.env}.get("PATH")
    if "{" not in program and shutil.which(program, path=path) is None:
        where = "there" if "/" in program else "on the PATH"
        raise UsageError(f"--launch: expected a program that can be started, {program!r} is not {where}")


def command(server: Server, kv_dir: Path | None = None) -> tuple[list[str], str]:
    """Return the command's words and the base URL at which it will answer; it has passed `check`.

    Args:
        server: with its command.
        kv_dir: what stands for {kv_dir}; needed where `wants_kv_dir`.
    """
    assert server.launch is not None
    port = free_port() if _holds(server, _PORT_WORD) else _given_port(server.launch)
    _must_be_free(server)
    base_url = server.base_url or f"http://127.0.0.1:{port}/v1"
    return [_filled(word, base_url, kv_dir) for word in split_command(server.launch)], base_url


def environment(server: Server, base_url: str, kv_dir: Path | None = None) -> dict[str, str]:
    """Return the further variables of a launched server; they may hold the same placeholders as its command."""
    return {name: _filled(value, base_url, kv_dir) for name, value in server.env.items()}


def exporting(server: Server, folder: Path) -> Server:
    """Return the server with `folder`, which is made, for {export_dir}; as it is where it does not ask for one.

    Raises:
        ArtifactError: the folder cannot be made.
    """
    if not _holds(server, _EXPORT_DIR_WORD):
        return server
    try:
        folder.mkdir()
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot be made: {error.strerror}") from error
    where = str(folder.resolve())
    env = {name: value.replace(_EXPORT_DIR_WORD, where) for name, value in server.env.items()}
    launch = None if server.launch is None else server.launch.replace(_EXPORT_DIR_WORD, shlex.quote(where))
    return server.model_copy(update={"launch": launch, "env": env})


def wants_kv_dir(server: Server) -> bool:
    """Whether a launched server is to have a folder for its KV cache."""
    return server.launch is not None and _holds(server, _KV_DIR_WORD)


def _holds(server: Server, placeholder: str) -> bool:
    return any(placeholder in text for text in (server.launch or "", *server.env.values()))


def _filled(text: str, base_url: str, kv_dir: Path | None) -> str:
    if kv_dir is not None:
        text = text.replace(_KV_DIR_WORD, str(kv_dir))
    return text.replace(_PORT_WORD, str(urlsplit(base_url).port))


def must_be_free(port: int, address: str = LOOPBACK) -> None:
    """Otherwise the agents would work against whatever answers there, while ours still loads its model.

    Raises:
        UsageError: something listens there, at this address of this machine.
    """
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except (OSError, OverflowError) as error:
            raise UsageError(f"--launch: expected a free port, {port} cannot be used: {error}") from error


def fixed_address(server: Server) -> tuple[str, int] | None:
    """Return this machine's address and port at which a launched server will answer; None: any free port, or no such.

    It is looked for where the agents will look: at the address of --base-url, where that is this machine's.
    """
    if server.launch is None or _holds(server, _PORT_WORD):
        return None
    own = None if server.base_url is None else own_address(server.base_url)
    port = _given_port(server.launch)
    if port is None and own is not None:
        port = urlsplit(server.base_url or "").port
    return None if port is None else (own or LOOPBACK, port)


def _must_be_free(server: Server) -> None:
    found = fixed_address(server)
    if found is not None:
        address, port = found
        must_be_free(port, address)


def _given_port(text: str) -> int | None:
    found = _PORT.search(text)
    return int(found[1]) if found else None
