"""How does one HTTP/1.1 request come in over a socket, and how does its answer go out, as ds4-server does both?

One request a connection (`Connection: close` always), no chunked request bodies, at most 64 MiB, 10 s of silence while
the request comes. A client that closes its side is gone, and so is one that takes nothing for 2 s. Bytes are parsed by
httptools and written at once: no task stands between the one who has a token and the socket.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

import httptools

MOST_BODY_BYTES: Final = 64 * 1024 * 1024
RECEIVE_S: Final = 10.0
STALL_S: Final = 2.0
_MOST_HEAD_BYTES: Final = 64 * 1024
_REASONS: Final = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    404: "Not Found",
    408: "Request Timeout",
    413: "Content Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
JSON_TYPE: Final = "application/json"
EVENTS_TYPE: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Received:
    """A whole request."""

    method: str
    path: str  # without the query
    body: bytes


class Handler(Protocol):
    """Who answers."""

    def received(self, exchange: "Exchange", request: Received) -> None:
        """A request is here: write to `exchange`, now or later, and end it."""
        ...

    def refused(self, exchange: "Exchange", status: int, why: str) -> None:
        """What came is no request to be had: say so, and end it."""
        ...

    def gone(self, exchange: "Exchange") -> None:
        """The client went away before the answer's end."""
        ...


class Open:
    """The connections that are open."""

    def __init__(self) -> None:
        self._all: set[Exchange] = set()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, exchange: "Exchange") -> None:
        """It was opened."""
        self._all.add(exchange)
        self._none.clear()

    def discard(self, exchange: "Exchange") -> None:
        """It is closed."""
        self._all.discard(exchange)
        if not self._all:
            self._none.set()

    async def close(self, within_s: float) -> None:
        """Close all: one whose answer is not all taken within that time is cut."""
        for exchange in tuple(self._all):
            exchange.end()
        try:
            async with asyncio.timeout(within_s):
                await self._none.wait()
        except TimeoutError:
            for exchange in tuple(self._all):
                exchange.cut()


class Exchange(asyncio.Protocol):
    """One connection, with one request and its answer."""

    def __init__(
        self,
        handler: Handler,
        open_now: "Open",
        *,
        most_body_bytes: int = MOST_BODY_BYTES,
        receive_s: float = RECEIVE_S,
        stall_s: float = STALL_S,
    ) -> None:
        """`open_now` holds it from its beginning to its end."""
        self._handler, self._open_now = handler, open_now
        self._most_body_bytes, self._receive_s, self._stall_s = most_body_bytes, receive_s, stall_s
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._path = b""
        self._length: int | None = None
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._refusal: tuple[int, str] | None = None
        self._waiting = 0  # bytes that the client has not taken when it was last looked at
        self.complete = False  # the request is here, or was refused
        self.started = False  # some of the answer was written
        self.over = False  # the answer's end was written, or the client is gone

    # ---- the answer ------------------------------------------------------------------------------------------------

    def head(self, status: int, content_type: str | None, length: int | None = None) -> None:
        """Write the answer's head; without a length the body ends with the connection."""
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}", "Connection: close", "Access-Control-Allow-Origin: *"]
        if content_type is not None:
            lines.append(f"Content-Type: {content_type}")
        if content_type == EVENTS_TYPE:
            lines.append("Cache-Control: no-cache")
        if length is not None:
            lines.append(f"Content-Length: {length}")
        self.write("\r\n".join((*lines, "", "")).encode("ascii"))

    def write(self, data: bytes) -> None:
        """Write a piece of the answer; to a client that is gone, nothing."""
        if not self.over and self._transport is not None:
            self.started = True
            self._transport.write(data)

    def end(self) -> None:
        """The answer is whole: close when all of it is written."""
        if not self.over and self._transport is not None:
            self.over = True
            self._transport.close()

    def answer(self, status: int, body: bytes = b"") -> None:
        """Write a whole answer, of JSON."""
        self.head(status, JSON_TYPE if body else None, len(body))
        self.write(body)
        self.end()

    def cut(self) -> None:
        """Close at once; what is not written is lost."""
        if self._transport is not None:
            self._transport.abort()

    # ---- the socket ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: it is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # so that pause_writing tells at once who takes nothing
        self._open_now.add(self)
        self._watch(self._receive_s, self._timed_out)

    def data_received(self, data: bytes) -> None:
        """asyncio: a piece came."""
        if self.complete:
            return  # no pipelining: one request a connection
        self._watch(self._receive_s, self._timed_out)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "upgrades are not offered")
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refuse(400, f"bad HTTP: {error}")
        if self._refusal is not None and not self.complete:
            self.complete = True
            self._unwatch()
            self._handler.refused(self, *self._refusal)

    def eof_received(self) -> bool:
        """asyncio: the client closed its side, which for this server means that it is gone."""
        self._went()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """asyncio: it is closed."""
        self._unwatch()
        self._went()
        self._transport = None
        self._open_now.discard(self)

    def pause_writing(self) -> None:
        """asyncio: the client does not take what is written."""
        if self._transport is not None:
            self._waiting = self._transport.get_write_buffer_size()
            self._watch(self._stall_s, self._stalled)

    def resume_writing(self) -> None:
        """asyncio: it has taken all."""
        self._unwatch()

    def _stalled(self) -> None:
        transport = self._transport
        if transport is None:
            return
        waiting = transport.get_write_buffer_size()
        if waiting >= self._waiting:
            transport.abort()
        else:
            self._waiting = waiting
            self._watch(self._stall_s, self._stalled)

    def _timed_out(self) -> None:
        if not self.complete:
            self.complete = True
            self._handler.refused(self, 408, f"no whole request within {self._receive_s:g} s of silence")

    def _went(self) -> None:
        if not self.over:
            self.over = True
            if self.complete:
                self._handler.gone(self)

    def _watch(self, seconds: float, then: Callable[[], None]) -> None:
        self._unwatch()
        self._timer = self._loop.call_later(seconds, then)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, why: str) -> None:
        self._refusal = self._refusal or (status, why)

    # ---- what httptools calls --------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._path += url
        if len(self._path) > _MOST_HEAD_BYTES:
            self._refuse(400, "the request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self._refuse(400, "the request's head is too long")
        lower = name.lower()
        if lower == b"content-length" and value.isdigit():
            self._length = int(value)
            if self._length > self._most_body_bytes:
                self._refuse(413, f"a body may have {self._most_body_bytes} bytes, this one has {self._length}")
        elif lower == b"transfer-encoding":
            self._refuse(400, "expected Content-Length: chunked bodies are not taken")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._refusal is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        if self._refusal is not None or self.complete:
            return
        self.complete = True
        self._unwatch()
        method = self._parser.get_method().decode("ascii")
        path = self._path.decode("latin-1").partition("?")[0]
        self._handler.received(self, Received(method, path, b"".join(self._body)))
