"""When does a server that was just started take requests, and why does it not?

Ready: 200 from GET /v1/models or from GET /health, and "not yet" (5xx) from neither. One alone would mislead:
llama-server may list its model while it still loads it (then /health has 503), and ds4-server has no /health. /health
is asked last, and only where it decides, since SGLang generates a token for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2

from agentload.errors import ServerError
from agentload.servers.process import ServerProcess

SAY_EVERY_S: Final = 15.0
_POLL_S: Final = 0.1
_TIMEOUT_S: Final = 5.0  # of one question


@dataclass(frozen=True, slots=True)
class _Said:
    """What came of one GET."""

    path: str
    status: int | None
    failure: str = ""  # why there is no status

    def __str__(self) -> str:
        return f"GET {self.path} " + (f"failed: {self.failure}" if self.status is None else f"answered {self.status}")

    @property
    def ok(self) -> bool:
        return self.status == httpx2.codes.OK

    @property
    def not_yet(self) -> bool:
        return self.status is not None and self.status >= 500 and self.status != httpx2.codes.NOT_IMPLEMENTED

    @property
    def no_entry(self) -> bool:
        return self.status in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN)


async def wait_ready(
    process: ServerProcess,
    base_url: str,
    timeout_s: float,
    *,
    api_key: str | None = None,
    health: str | None = "/health",
    say: Callable[[str], None] = lambda _line: None,
    say_every_s: float = SAY_EVERY_S,
) -> None:
    """Return when the server behind `base_url` (up to and with /v1) takes requests.

    Args:
        process: the server.
        base_url: its address.
        timeout_s: how long to wait.
        api_key: the bearer token, where there is one.
        health: what else is asked; None: the server is known to have nothing of the kind.
        say: takes a line for the person who waits, every `say_every_s`.
        say_every_s: see there.

    Raises:
        ServerError: it exits before, is not ready in time, wants another key, or speaks plain http where https was
            named; the last lines of its log stand in the message.
    """
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    said: list[_Said] = []
    due_ns = process.clock.now_ns() + int(say_every_s * 1e9)
    async with httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT_S, headers=headers) as client:
        with anyio.move_on_after(timeout_s):
            while True:
                if process.exit_code() is not None:
                    raise ServerError(f"not ready: {await process.wait_exit()}")
                said = await _ask(client, base_url, health)
                if any(one.ok for one in said) and not any(one.not_yet for one in said):
                    return
                for one in said:
                    if one.no_entry:
                        raise ServerError(_no_entry(one, api_key, process))
                if base_url.startswith("https:") and said[0].status is None and await answers_plain_http(base_url):
                    raise ServerError(f"{base_url}: the server answers plain http: use {_with(base_url, 'http')}")
                if process.clock.now_ns() >= due_ns:
                    due_ns += int(say_every_s * 1e9)
                    say(_still(process))
                await anyio.sleep(_POLL_S)
    raise ServerError(
        f"the server (pid {process.pid}) was not ready within {timeout_s:g} s: "
        f"{', '.join(map(str, said)) or 'there was no time to ask it'}; expected 200 from one of them and 5xx from "
        f"none, at {_root(base_url)}; {process.last_lines()}"
    )


async def answers_plain_http(base_url: str) -> bool:
    """Whether a server of which an https URL was given answers plain http there."""
    async with httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client:
        try:
            async with client.stream("GET", _with(base_url, "http") + "/models"):
                return True
        except httpx2.TransportError:
            return False


async def _ask(client: httpx2.AsyncClient, base_url: str, health: str | None) -> list[_Said]:
    """Ask for the models, then for the health where that decides."""
    models = await _get(client, f"{base_url}/models")
    if health is None or models.status is None or models.not_yet or models.no_entry:
        return [models]
    return [models, await _get(client, f"{_root(base_url)}{health}")]


async def _get(client: httpx2.AsyncClient, url: str) -> _Said:
    path = urlsplit(url).path
    try:
        async with client.stream("GET", url) as answer:  # its body is nobody's: it may be no gzip, or never end
            return _Said(path, answer.status_code)
    except httpx2.TransportError as error:
        return _Said(path, None, " ".join(str(error).split()) or type(error).__name__)


def _no_entry(one: _Said, api_key: str | None, process: ServerProcess) -> str:
    what = (
        "set OPENAI_API_KEY to the key that the server was started with"
        if api_key is None
        else "the key in OPENAI_API_KEY is not the one that the server was started with"
    )
    return f"the server (pid {process.pid}) wants a key ({one}): {what}"


def _still(process: ServerProcess) -> str:
    seconds = (process.clock.now_ns() - process.t_started) / 1e9
    return f"still loading: {seconds:.0f} s, last line of its log: {process.last_line() or 'none yet'}"


def _root(base_url: str) -> str:
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def _with(url: str, scheme: str) -> str:
    return urlunsplit(urlsplit(url)._replace(scheme=scheme))
