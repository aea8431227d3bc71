"""What came over one socket, and when?

The asyncio side of `transport`: `Connection` stamps each receive in the event loop's callback, before anything is
parsed, and files the pieces in an `Exchange`. A piece costs one parser call and two list appends; no task is woken for
it unless one asked. One timer per request watches for silence.
"""

import asyncio
import select
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import httptools
import httpx2

from agentload.core.ports import Clock

_SERVER_MARGIN_S: Final = 1.0  # stay this far inside the idle time that the server announced


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its answer as the socket saw them; times are stamps of the transport's clock (ns).

    `pieces[i]` was received at `stamps[i]`; pieces are body bytes with the HTTP framing removed, and pieces of one
    receive share its stamp. Set `end_marks` to byte strings that can only stand at the very end of a body: when a
    piece ends with one, the end of the HTTP message is awaited for `linger_s` instead of the read timeout.
    """

    end_marks: tuple[bytes, ...] = ()
    linger_s: float = 0.25
    t_sent: int | None = None  # None: the request never reached a socket
    t_first_byte: int | None = None  # of the final response, not of a 1xx
    t_end: int | None = None  # the last byte of the answer, or the failure
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    reason: bytes = b""
    stamps: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    reused: bool = False  # sent on a connection that an earlier request had opened
    error: httpx2.TransportError | None = None  # why it ended, when it did not end as HTTP demands
    _counted: tuple[int, int] = (0, 0)  # pieces that were looked through, and events of a stream that began in them
    _head: asyncio.Event = field(default_factory=asyncio.Event)
    _end: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.t_end is not None

    @property
    def events(self) -> int:
        """How many events with data have begun so far, in a stream of them; each piece is looked through once.

        One whose first word is torn between two pieces is missed.
        """
        seen, events = self._counted
        for piece in self.pieces[seen:]:
            events += piece.count(b"data:")
        self._counted = len(self.pieces), events
        return events

    async def wait_head(self) -> None:
        """Return when the final response's head is complete, or the exchange has ended. Raises nothing of its own."""
        await self._head.wait()

    async def wait_end(self) -> None:
        """Return when the exchange has ended, well or not (see `error`). Raises nothing of its own."""
        await self._end.wait()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they come.

        Raises:
            httpx2.TransportError: the answer did not end as HTTP demands.
        """
        at = 0
        while True:
            while at < len(self.pieces):
                yield self.pieces[at]
                at += 1
            if self.ended:
                break
            self._news.clear()
            await self._news.wait()
        if self.error is not None:
            raise self.error

    def took_head(self) -> None:
        """Let `wait_head` return."""
        self._head.set()

    def took_piece(self) -> None:
        """Let `body` look again."""
        self._news.set()

    def finish(self, t_ns: int, error: httpx2.TransportError | None) -> None:
        """End the exchange at `t_ns`; only the first call counts."""
        if self.t_end is None:
            self.t_end = t_ns
            self.error = error
            self._head.set()
            self._news.set()
            self._end.set()


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts of one request, in seconds; None: wait for ever."""

    connect: float | None = None
    read: float | None = None
    write: float | None = None

    @classmethod
    def of(cls, request: httpx2.Request) -> "Limits":
        """The timeouts that httpx2 put into the request's extensions."""
        given: Mapping[str, float | None] = request.extensions.get("timeout", {})
        return cls(given.get("connect"), given.get("read"), given.get("write"))


class Connection(asyncio.Protocol):
    """One socket: at most one exchange at a time, and a watchdog over it."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, max_body_bytes: int) -> None:
        self._clock = clock
        self._loop = loop
        self._max_body_bytes = max_body_bytes
        self._exchange: Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._limits = Limits()
        self._stamp = 0  # of the receive that is being parsed
        self._active_s = 0.0  # loop time of the last progress
        self._watchdog: asyncio.TimerHandle | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._body_bytes = 0
        self._reusable = False
        self.idle_since_s = 0.0
        self.idle_limit_s: float | None = None  # announced by the server
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    # ---- used by the transport

    def send(self, exchange: Exchange, data: bytes, limits: Limits) -> None:
        """Write one whole request and begin to read its answer into `exchange`."""
        assert self.transport is not None
        self._exchange = exchange
        self._limits = limits
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._reason, self._body_bytes, self._reusable = [], b"", 0, False
        self._active_s = self._loop.time()
        exchange.t_sent = self._clock.now_ns()
        self.transport.write(data)
        self._arm()

    def release(self) -> bool:
        """End the present exchange's hold on the socket; whether the connection may carry another request."""
        exchange, self._exchange, self._parser = self._exchange, None, None
        self._disarm()
        clean = exchange is not None and exchange.ended and exchange.error is None
        unsent = self.transport is None or self.transport.get_write_buffer_size() > 0
        if clean and self._reusable and not unsent and not self.lost.is_set():
            self.idle_since_s = self._loop.time()
            return True
        if exchange is not None:
            exchange.finish(self._clock.now_ns(), httpx2.ReadError("closed by this client before the answer's end"))
        self.abort()
        return False

    def abort(self) -> None:
        """Drop the socket at once."""
        self._disarm()
        if self.transport is not None:
            self.transport.abort()

    def proven_alive(self, keepalive_s: float) -> bool:
        """Whether an idle connection can carry a request: recent, open, and nothing unread on its socket."""
        assert self.transport is not None
        limit_s = keepalive_s if self.idle_limit_s is None else min(keepalive_s, self.idle_limit_s - _SERVER_MARGIN_S)
        if self.lost.is_set() or self.transport.is_closing() or self._loop.time() - self.idle_since_s >= limit_s:
            return False
        # The loop may not have been told yet of an end of stream that lies in the socket's buffer.
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket stands."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)  # so that resume_writing says when everything is with the kernel

    def data_received(self, data: bytes) -> None:
        """Stamp, then parse."""
        stamp = self._clock.now_ns()
        exchange = self._exchange
        if exchange is None or exchange.t_end is not None or self._parser is None:
            self._reusable = False  # bytes that nobody asked for: this connection can no longer be trusted
            self.abort()
            return
        self._stamp = stamp
        self._active_s = self._loop.time()
        if exchange.t_first_byte is None:
            exchange.t_first_byte = stamp
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(httpx2.RemoteProtocolError("expected an HTTP/1.1 answer, the server switched protocols"))
        except httptools.HttpParserError as error:
            what = f"expected an HTTP/1.1 answer ({error}), got {data[:60]!r}"
            self._fail(httpx2.RemoteProtocolError(what))  # has no effect when the answer was complete before
        exchange.took_piece()

    def resume_writing(self) -> None:
        """The whole request is with the kernel: from here on the read timeout counts."""
        self._active_s = self._loop.time()
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: the end of a body without a stated length, else a failure."""
        self.lost.set()
        exchange = self._exchange
        if exchange is None or exchange.ended:
            return
        came = sum(map(len, exchange.pieces))
        why = str(exc) if exc is not None else "the server closed the connection"
        if exchange.status is None:
            had = "with no answer" if exchange.t_first_byte is None else "inside the answer's head"
            self._fail(httpx2.ReadError(f"{why} {had}"))
        elif exc is not None:
            self._fail(httpx2.ReadError(f"{why} after {came} bytes of the answer's body"))
        elif self._says_its_length():
            self._fail(httpx2.RemoteProtocolError(f"{why} after {came} bytes, before the end of the answer's body"))
        else:
            self._end(self._clock.now_ns(), None)  # a body without a stated length ends with the connection

    # ---- callbacks of the parser; an exception in one would be swallowed into a parser error, so none raises

    def on_message_begin(self) -> None:
        """The first byte of a response has come."""
        assert self._exchange is not None
        if self._exchange.t_end is not None:  # a second answer to one request: never reuse this connection
            self._reusable = False
            return
        self._exchange.t_first_byte = self._stamp  # again after each 1xx
        self._headers, self._reason = [], b""

    def on_status(self, status: bytes) -> None:
        """A part of the reason phrase."""
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        assert self._exchange is not None
        if self._exchange.status is None:  # afterwards: a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        assert self._exchange is not None
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200 or self._exchange.t_end is not None:
            return
        self._exchange.status, self._exchange.headers, self._exchange.reason = status, self._headers, self._reason
        self._exchange.took_head()

    def on_body(self, body: bytes) -> None:
        """A part of the body, framing removed."""
        exchange = self._exchange
        if exchange is None or exchange.t_end is not None:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body_bytes:
            self._fail(httpx2.ReadError(f"expected an answer of at most {self._max_body_bytes} bytes, more came"))
            return
        exchange.stamps.append(self._stamp)
        exchange.pieces.append(body)
        if exchange.end_marks and body.endswith(exchange.end_marks):
            read = self._limits.read
            linger_s = exchange.linger_s if read is None else min(read, exchange.linger_s)
            self._limits = Limits(self._limits.connect, linger_s, self._limits.write)
            self._arm()

    def on_message_complete(self) -> None:
        """A response is whole."""
        assert self._exchange is not None
        assert self._parser is not None
        if self._exchange.status is None or self._exchange.t_end is not None:  # a 1xx: the final response follows
            return
        self._reusable = self._parser.should_keep_alive()
        self.idle_limit_s = _announced_idle_s(self._exchange.headers)
        self._end(self._stamp, None)

    # ---- inside

    def _says_its_length(self) -> bool:
        names = {name.lower() for name, _ in self._headers}
        return b"content-length" in names or b"transfer-encoding" in names

    def _end(self, t_ns: int, error: httpx2.TransportError | None) -> None:
        self._disarm()
        if self._exchange is not None:
            self._exchange.finish(t_ns, error)

    def _fail(self, error: httpx2.TransportError) -> None:
        self._reusable = False
        self._end(self._clock.now_ns(), error)
        self.abort()

    def _disarm(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    def _arm(self) -> None:
        self._disarm()
        limit_s, _ = self._present_limit()
        if limit_s is not None and self._exchange is not None and not self._exchange.ended:
            self._watchdog = self._loop.call_at(self._active_s + limit_s, self._look)

    def _present_limit(self) -> tuple[float | None, bool]:
        writing = self.transport is not None and self.transport.get_write_buffer_size() > 0
        return (self._limits.write if writing else self._limits.read), writing

    def _look(self) -> None:
        """Has nothing happened for too long? A timer that is re-armed only here costs nothing for each piece."""
        limit_s, writing = self._present_limit()
        if limit_s is None:
            return
        if self._loop.time() < self._active_s + limit_s:
            self._arm()
        elif writing:
            self._fail(httpx2.WriteTimeout(f"the server did not take the whole request within {limit_s:g} s"))
        else:
            came = sum(map(len, self._exchange.pieces)) if self._exchange is not None else 0
            self._fail(httpx2.ReadTimeout(f"no byte for {limit_s:g} s, {came} bytes of the answer's body before"))


def _announced_idle_s(headers: list[tuple[bytes, bytes]]) -> float | None:
    """The server's `Keep-Alive: timeout=N` in seconds; None when it announces none."""
    for name, value in headers:
        if name.lower() == b"keep-alive":
            for part in value.split(b","):
                word, _, number = part.strip().partition(b"=")
                if word.lower() == b"timeout" and number.isdigit():
                    return float(number)
    return None
