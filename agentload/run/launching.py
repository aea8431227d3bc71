"""What does a `--launch` command start, and at which address will it answer?"""

import re
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from agentload.errors import UsageError
from agentload.run.scenario import Server
from agentload.servers.process import free_port, split_command

_PORT: Final = re.compile(r"--port[= ](\d{1,5})(?!\S)")
# {word}; not ${WORD} of a shell, and not the braces of JSON or of a template: {"a": 1}, {{ x }}.
_PLACEHOLDER: Final = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}(?!\})")
_KNOWN: Final = "port"
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
        if found[1] != _KNOWN:
            raise UsageError(f"--launch: expected only the placeholder {{{_KNOWN}}}, got {found[0]}")
    if _KEY.search(server.launch) and not env.get("OPENAI_API_KEY"):
        raise UsageError("--launch: the command gives the server an --api-key: set OPENAI_API_KEY to the same")
    picked, port = "{port}" in server.launch, _given_port(server.launch)
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
        _must_be_free(server, port)


def command(server: Server) -> tuple[list[str], str]:
    """Return the command's words and the base URL at which it will answer; it has passed `check`."""
    assert server.launch is not None
    text, port = server.launch, _given_port(server.launch)
    if "{port}" in text:
        port = free_port()
        text = text.replace("{port}", str(port))
    else:
        _must_be_free(server, port)
    return split_command(text), server.base_url or f"http://127.0.0.1:{port}/v1"


def must_be_free(port: int) -> None:
    """Otherwise the agents would work against whatever answers there, while ours still loads its model.

    Raises:
        UsageError: something listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise UsageError(f"--launch: expected a free port, {port} cannot be used: {error}") from error


def _must_be_free(server: Server, port: int | None) -> None:
    parts = urlsplit(server.base_url or "")
    if port is None and parts.hostname in ("127.0.0.1", "localhost"):
        port = parts.port
    if port is not None:
        must_be_free(port)


def _given_port(text: str) -> int | None:
    found = _PORT.search(text)
    return int(found[1]) if found else None
