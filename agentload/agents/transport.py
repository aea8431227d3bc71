"""When did each byte of an answer arrive?

An HTTP/1.1 transport under httpx2 (http and https) that stamps every piece in the event loop's receive callback,
before anything is parsed, and keeps the pieces. The usual path wakes a task and runs four layers of generators for
each piece; with many streams on one core those delay the stamps of all others. Here a piece costs one parser call and
two list appends, and a task that only wants the whole answer sleeps until its end (`Exchange.wait_end`).

Choices:
* The clock is asked once for each receive; for https after decryption of the record.
* `Exchange.t_sent` is taken when the connection stands and the request's bytes are built, just before they are written.
* Each request opens its own connection (and says `Connection: close`), unless `keepalive_s` is set. It costs nothing
  that is measured, since `t_sent` comes after it, and reuse fails requests: llama-server (xllamacpp 2026.10) announces
  `Keep-Alive: timeout=5`, yet of 8 requests sent right after another one, 2 found the connection closed under them
  (both after a streamed answer, within 0.4 ms); without reuse, none of 6.
* With `keepalive_s` a connection is reused only if all says that it is alive: the last answer allowed it, it has been
  idle for less than `keepalive_s` and one second less than the server's own timeout, and nothing (not even an end of
  stream) waits on its socket. Once bytes are sent nothing is ever sent again, so the case above is a failed request.
* The socket is always read, whether or not anybody asks for the body: a server that cuts slow readers finds none.
  So the body lies in memory; more than `max_body_bytes` is an error, and that is the bound.
* The write timeout bounds the handing over of the whole request; the read timeout counts from the last byte received.
* There is no limit on connections, so the pool timeout is never used. No proxies, no HTTP/2, no HEAD, no CONNECT.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any, Final

import httpx2

from agentload.agents.connection import Connection, Exchange, Limits
from agentload.core.ports import Clock

EXTENSION: Final = "agentload.exchange"  # key of the Exchange in Response.extensions

_BODY_LIMIT_BYTES: Final = 256 * 1024 * 1024  # a 100,000-token answer at 300 bytes a chunk is 30 MB

# A caller that needs the stamps of a request that fails before it has a response puts its own exchange here.
EXCHANGE: ContextVar[Exchange | None] = ContextVar("agentload.agents.transport.EXCHANGE", default=None)


class _Body(httpx2.AsyncByteStream):
    """The answer's body as httpx2 wants it."""

    def __init__(self, owner: "StampingTransport", connection: Connection, exchange: Exchange) -> None:
        self._owner = owner
        self._connection: Connection | None = connection
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._exchange.body():
            yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._owner.give_back(connection)


class StampingTransport(httpx2.AsyncBaseTransport):
    """The transport; belongs to one asyncio event loop.

    Args:
        clock: gives the stamps.
        ssl_context: for https; None: https is refused with ConnectError.
        keepalive_s: a connection that idled for less may be used again; 0: every request opens its own.
        max_body_bytes: bound on the body of one answer.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ssl_context: ssl.SSLContext | None = None,
        keepalive_s: float = 0.0,
        max_body_bytes: int = _BODY_LIMIT_BYTES,
    ) -> None:
        self._clock = clock
        self._ssl_context = ssl_context
        self._keepalive_s = keepalive_s
        self._max_body_bytes = max_body_bytes
        self._idle: dict[tuple[str, str, int], list[Connection]] = {}
        self._open: dict[Connection, tuple[str, str, int]] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request` once.

        Raises:
            httpx2.TransportError: the subclass names the failure (ConnectError, ReadTimeout, ...).
        """
        exchange = EXCHANGE.get() or Exchange()
        limits = Limits.of(request)
        data = _request_bytes(request, await request.aread(), close=self._keepalive_s <= 0)
        connection = await self._connection(request.url, limits, exchange)
        try:
            connection.send(exchange, data, limits)
            await exchange.wait_head()
        except BaseException:
            self.give_back(connection)
            raise
        if exchange.status is None:
            self.give_back(connection)
            raise exchange.error or httpx2.ReadError("the exchange ended without an answer")
        extensions: dict[str, Any] = {
            "http_version": b"HTTP/1.1",
            "reason_phrase": exchange.reason,
            EXTENSION: exchange,
        }
        stream = _Body(self, connection, exchange)
        return httpx2.Response(exchange.status, headers=exchange.headers, stream=stream, extensions=extensions)

    def give_back(self, connection: Connection) -> None:
        """Take a connection whose exchange is over, or given up, back into the pool or close it."""
        key = self._open.get(connection)
        if connection.release() and key is not None and self._keepalive_s > 0:
            self._idle.setdefault(key, []).append(connection)
        else:
            connection.abort()
            self._open.pop(connection, None)

    async def aclose(self) -> None:
        """Close every connection and wait until the sockets are gone."""
        connections = list(self._open)
        self._open.clear()
        self._idle.clear()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.lost.wait()

    async def _connection(self, url: httpx2.URL, limits: Limits, exchange: Exchange) -> Connection:
        if url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(f"expected http or https, got {url.scheme!r}")
        secure = url.scheme == "https"
        host, port = url.raw_host.decode("ascii"), url.port or (443 if secure else 80)
        if secure and self._ssl_context is None:
            raise httpx2.ConnectError(f"https to {host}:{port} needs an SSL context, none was given")
        key = (url.scheme, host, port)
        idle = self._idle.get(key, [])
        while idle:
            connection = idle.pop()
            if connection.proven_alive(self._keepalive_s):
                exchange.reused = True
                return connection
            connection.abort()
            self._open.pop(connection, None)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.connect):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._clock, loop, self._max_body_bytes),
                    host,
                    port,
                    ssl=self._ssl_context if secure else None,
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection to {host}:{port} within {limits.connect} s") from error
        except OSError as error:
            raise httpx2.ConnectError(f"no connection to {host}:{port}: {error}") from error
        self._open[connection] = key
        return connection


def _request_bytes(request: httpx2.Request, body: bytes, *, close: bool) -> bytes:
    """The whole request in one buffer, so that it leaves in one write. Its length is always stated, never chunked."""
    if request.method in ("HEAD", "CONNECT"):
        raise httpx2.LocalProtocolError(f"{request.method} is not offered by this transport")
    lines = [request.method.encode("ascii") + b" " + request.url.raw_path + b" HTTP/1.1"]
    ours = {b"content-length", b"transfer-encoding"} | ({b"connection"} if close else set())
    for name, value in request.headers.raw:
        if b"\n" in name + value or b"\r" in name + value:
            raise httpx2.LocalProtocolError(f"a header must not hold a line end: {name!r}")
        if name.lower() not in ours:
            lines.append(name + b": " + value)
    if close:
        lines.append(b"Connection: close")
    if body or request.method not in ("GET", "DELETE", "OPTIONS"):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])
