"""A simulated server on a port of this machine, and clients for tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agentload.clock import SystemClock
from agentload.servers.process import free_port
from agentload.twin.http_face import HttpFace
from agentload.twin.lengths import DEFAULT, Settings
from agentload.twin.machine import machine
from agentload.twin.options import Options

SPEED = 400.0  # a decode step takes 0.1 ms, 2,048 tokens of a cold prompt 10 ms
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("read", "bash")
]


@dataclass
class Running:
    """A server that listens, and all that it has said."""

    port: int
    shutdown: Callable[[], None] = lambda: None
    writes: list[bytes] = field(default_factory=list)
    truths: list[dict[str, Any]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def log(self) -> list[str]:
        return b"".join(self.writes).decode().splitlines()

    def lines(self, *words: str) -> list[str]:
        return [line for line in self.log if all(word in line for word in words)]

    def requests(self) -> list[dict[str, Any]]:
        return [one for one in self.truths if one.get("kind") == "request"]

    def take_log(self, data: bytes) -> None:
        self.writes.append(data)
        self._news.set()

    def take_truth(self, line: str) -> None:
        self.truths.append(json.loads(line))
        self._news.set()

    async def until(self, true: Callable[[], object]) -> None:
        """Return as soon as it is true after something that the server said."""
        async with asyncio.timeout(120):
            while not true():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def running(
    speed: float = SPEED, settings: Settings = DEFAULT, *, seed: int = 7, **options: Any
) -> AsyncIterator[Running]:
    """A server that has begun to listen; on leaving it is drained and gone."""
    port = free_port()
    chosen = Options(port=port, **options)
    server = Running(port)
    face = HttpFace(
        chosen,
        machine("m3-ultra", speed),
        seed=seed,
        clock=SystemClock(),
        log=server.take_log,
        truth=server.take_truth,
        settings=settings,
    )
    server.shutdown = face.shutdown
    listening = asyncio.Event()
    serving = asyncio.create_task(face.serve(listening.set))
    await asyncio.wait([serving, asyncio.ensure_future(listening.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield server
    finally:
        face.shutdown()
        await serving


async def raw(port: int, request: bytes) -> bytes:
    """Send bytes on a connection of their own; return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def post(body: Any, path: str = "/v1/chat/completions", extra: str = "") -> bytes:
    """A request's bytes; `body` is JSON, or bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def status(answer: bytes) -> int:
    """Of an answer."""
    return int(answer.split(b" ", 2)[1])


def body(answer: bytes) -> Any:
    """Of an answer that is JSON."""
    return json.loads(answer.partition(b"\r\n\r\n")[2])
