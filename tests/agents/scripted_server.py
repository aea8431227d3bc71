"""What does a server answer whose every byte and fault the test decides?

A small HTTP server on 127.0.0.1. Each connection's requests are answered by the script's replies in order; a reply is
a sequence of steps: bytes are written as they are, an `asyncio.Event` is awaited, `CLOSE` ends the connection in order,
`RESET` tears it (RST), `HANG` waits until the client has gone, `DEAF` (first) leaves the request's body unread.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self


class Act(Enum):
    """What a step does beside writing bytes."""

    CLOSE = auto()
    RESET = auto()
    HANG = auto()
    DEAF = auto()


CLOSE, RESET, HANG, DEAF = Act.CLOSE, Act.RESET, Act.HANG, Act.DEAF
Step = bytes | asyncio.Event | Act | Callable[[], Awaitable[bytes]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
STREAM_HEAD = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """HTTP chunks of `pieces`, and the closing one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")


def event(**fields: Any) -> bytes:
    """One data event."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """One chat completion chunk with this delta."""
    return event(
        id="chatcmpl-1", model="served", choices=[{"index": 0, "delta": fields, "finish_reason": finish}], created=1
    )


DONE = b"data: [DONE]\n\n"


def answer(*events: bytes) -> bytes:
    """A whole, proper streamed answer of these events in one piece."""
    return STREAM_HEAD + chunked(*events)


@dataclass
class Seen:
    """One request as it came."""

    connection: int
    line: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body decoded."""
        return json.loads(self.body)


@dataclass
class ScriptedServer:
    """Use as an async context manager; `seen` holds the requests, `gone` is set when a client dropped a HANG.

    `play`, where it is given, takes the place of `replies`: it makes the steps of each request from what came. A step
    may be a coroutine function too: what it returns is written.
    """

    replies: Sequence[Sequence[Step]] = ()
    tls: ssl.SSLContext | None = None
    play: Callable[[Seen], Sequence[Step]] | None = None
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)  # a request was read whole
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # the server has closed a connection's socket
    port: int = 0
    hangs_up_on_tls: bool = False  # as servers do that speak plain HTTP; otherwise it waits for the rest of a head
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The base URL for an OpenAI client."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = self.connections
        self.connections += 1
        try:
            while await self._one(number, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.closed.set()

    async def _one(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first = await reader.readexactly(1)
        if self.hangs_up_on_tls and first == b"\x16":
            return False
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        steps = () if self.play is not None else self.replies[len(self.seen)]
        length = 0 if DEAF in steps else int(headers.get("content-length", "0"))
        body = await reader.readexactly(length)
        self.seen.append(Seen(number, head[0], headers, body))
        if self.play is not None:
            steps = self.play(self.seen[-1])
        self.arrived.set()
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif not isinstance(step, Act):
                writer.write(await step())
                await writer.drain()
            elif step is RESET:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            elif step is DEAF:
                continue
            elif step is HANG:
                with suppress(ConnectionError):  # a client that closes with bytes unread resets the connection
                    await reader.read()
                self.gone.set()
                return False
            else:
                return False
        return True


@dataclass
class CountingClock:
    """Every question gets the next number: two stamps are equal only if they were taken by one question."""

    at: int = 1_000

    def now_ns(self) -> int:
        """Return the next number."""
        self.at += 1
        return self.at

    async def sleep_until(self, t_ns: int) -> None:
        """Never asked by a transport."""
        raise AssertionError(t_ns)
