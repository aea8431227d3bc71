"""Does the transport follow HTTP/1.1, stamp what it reads, and name each fault?"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from agentload.agents.connection import Exchange
from agentload.agents.transport import EXCHANGE, EXTENSION, StampingTransport
from tests.agents.scripted_server import CLOSE, DEAF, HANG, RESET, CountingClock, ScriptedServer, Step, chunked
from tests.ports import nobody

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
CERTIFICATE = Path(__file__).with_name("tls_localhost_for_tests.pem")  # self-signed, and worth nothing elsewhere
TWO = OK + b"Content-Length: 2\r\n\r\nhi"


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    transport = StampingTransport(CountingClock(), keepalive_s=300.0, max_body_bytes=1000)
    async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=120.0) as made:
        yield made


def exchange_of(response: httpx2.Response) -> Exchange:
    exchange = response.extensions[EXTENSION]
    assert isinstance(exchange, Exchange)
    return exchange


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([OK + b"Content-Length: 5\r\n\r\nhello"], id="content length"),
        pytest.param([OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"he", b"llo")], id="chunked"),
        pytest.param([OK + b"\r\nhel", b"lo", CLOSE], id="until the connection closes"),
        pytest.param([OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", CLOSE], id="connection close"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Go On\r\n\r\n" + OK + b"\r\nhello", CLOSE], id="1xx"),
        pytest.param(
            [OK + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n"],
            id="trailing headers",
        ),
        pytest.param([b"HTTP/1.0 200 OK\r\n\r\nhello", CLOSE], id="HTTP/1.0"),
    ],
)
async def test_a_body_is_read_whole_however_its_end_is_marked(client: httpx2.AsyncClient, reply: list[Step]) -> None:
    async with ScriptedServer([reply]) as server:
        response = await client.get(server.url)
    assert (response.status_code, response.content) == (200, b"hello")
    assert "x-sum" not in response.headers


async def test_every_byte_may_come_alone(client: httpx2.AsyncClient) -> None:
    whole = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hel", b"lo")
    async with ScriptedServer([[bytes([byte]) for byte in whole]]) as server:
        response = await client.get(server.url)
    assert response.content == b"hello"


async def test_the_request_states_its_length_and_is_sent_as_given(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO]]) as server:
        await client.post(server.url + "/chat?x=1", content=b"body", headers={"X-Mine": "yes"})
    (seen,) = server.seen
    assert (seen.line, seen.body) == ("POST /v1/chat?x=1 HTTP/1.1", b"body")
    assert seen.headers["host"] == f"127.0.0.1:{server.port}"
    assert seen.headers["content-length"] == "4"
    assert seen.headers["x-mine"] == "yes"


async def test_a_streamed_request_body_is_not_sent_chunked(client: httpx2.AsyncClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async with ScriptedServer([[TWO]]) as server:
        await client.post(server.url, content=parts())
    assert server.seen[0].body == b"onetwo"
    assert "transfer-encoding" not in server.seen[0].headers


async def test_pieces_of_one_receive_share_a_stamp_and_the_order_is_sent_first_byte_pieces_end(
    client: httpx2.AsyncClient,
) -> None:
    go = asyncio.Event()
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    reply: list[Step] = [head + chunked(b"a", b"b", end=False), go, chunked(b"c")]
    async with ScriptedServer([reply]) as server, client.stream("GET", server.url) as response:
        exchange = exchange_of(response)
        async for piece in response.aiter_raw():
            if piece == b"b":
                go.set()
    first, second, third = exchange.stamps
    assert exchange.pieces == [b"a", b"b", b"c"]
    assert exchange.t_sent is not None
    assert exchange.t_first_byte is not None
    assert exchange.t_sent < exchange.t_first_byte == first == second < third == exchange.t_end


class SignallingClock(CountingClock):
    """Sets `asked_twice` at its second question."""

    def __init__(self) -> None:
        super().__init__(at=0)
        self.asked_twice = asyncio.Event()

    def now_ns(self) -> int:
        if self.at == 1:
            self.asked_twice.set()
        return super().now_ns()


async def test_the_first_byte_is_that_of_the_final_response_not_of_a_1xx() -> None:
    go = asyncio.Event()
    clock = SignallingClock()
    exchange = Exchange()
    async with (
        ScriptedServer([[b"HTTP/1.1 100 Continue\r\n\r\n", go, TWO]]) as server,
        httpx2.AsyncClient(transport=StampingTransport(clock), trust_env=False) as mine,
    ):
        EXCHANGE.set(exchange)
        asking = asyncio.create_task(mine.get(server.url))
        EXCHANGE.set(None)
        await clock.asked_twice.wait()  # first for t_sent, then for the receive of the 100
        go.set()
        response = await asking
    assert response.content == b"hi"
    assert (exchange.t_sent, exchange.t_first_byte, exchange.stamps) == (1, 3, [3])


async def test_wait_end_needs_no_reader_and_the_body_can_still_be_read(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO]]) as server, client.stream("GET", server.url) as response:
        await exchange_of(response).wait_end()
        assert await response.aread() == b"hi"


# ---- reuse of connections


async def test_unless_told_otherwise_each_request_opens_its_own_connection_and_says_so() -> None:
    transport = StampingTransport(CountingClock())
    async with ScriptedServer([[TWO], [TWO]]) as server, httpx2.AsyncClient(transport=transport) as mine:
        await mine.get(server.url)
        await mine.get(server.url)
    assert [seen.connection for seen in server.seen] == [0, 1]
    assert [seen.headers["connection"] for seen in server.seen] == ["close", "close"]


async def test_a_connection_is_used_again_where_the_server_allows_it(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO], [TWO]]) as server:
        first = await client.get(server.url)
        second = await client.get(server.url)
    assert [seen.connection for seen in server.seen] == [0, 0]
    assert [exchange_of(r).reused for r in (first, second)] == [False, True]


@pytest.mark.parametrize(
    "headers",
    [b"Connection: close\r\n", b"Keep-Alive: timeout=1, max=5\r\n"],
    ids=["told to close", "the announced idle time is no longer than the margin"],
)
async def test_a_connection_is_not_used_again_when(client: httpx2.AsyncClient, headers: bytes) -> None:
    reply = OK + headers + b"Content-Length: 2\r\n\r\nhi"
    async with ScriptedServer([[reply], [reply]]) as server:
        await client.get(server.url)
        await client.get(server.url)
    assert [seen.connection for seen in server.seen] == [0, 1]


async def test_a_connection_that_the_server_closed_while_idle_fails_no_request(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO, CLOSE], [TWO]]) as server:
        await client.get(server.url)
        await server.closed.wait()
        response = await client.get(server.url)
    assert response.content == b"hi"
    assert [seen.connection for seen in server.seen] == [0, 1]


async def test_bytes_that_nobody_asked_for_end_a_connection(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO + TWO], [TWO]]) as server:
        await client.get(server.url)
        response = await client.get(server.url)
    assert response.content == b"hi"
    assert [seen.connection for seen in server.seen] == [0, 1]


async def test_a_reused_connection_that_dies_under_a_request_is_a_failure_never_a_second_request(
    client: httpx2.AsyncClient,
) -> None:
    async with ScriptedServer([[TWO], [CLOSE]]) as server:
        await client.get(server.url)
        with pytest.raises(httpx2.ReadError, match="closed the connection with no answer"):
            await client.post(server.url, content=b"x")
    assert len(server.seen) == 2


async def test_a_response_left_before_its_end_closes_its_connection(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[OK + b"Content-Length: 9\r\n\r\nhi", HANG], [TWO]]) as server:
        async with client.stream("GET", server.url):
            pass
        await server.gone.wait()
        await client.get(server.url)
    assert [seen.connection for seen in server.seen] == [0, 1]


async def test_cancelling_a_request_that_waits_closes_its_connection(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[HANG]]) as server:
        asking = asyncio.create_task(client.get(server.url))
        await server.arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.gone.wait()
    assert server.gone.is_set()


# ---- faults


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ([CLOSE], httpx2.ReadError, "closed the connection with no answer"),
        ([OK[:9], CLOSE], httpx2.ReadError, "inside the answer's head"),
        ([OK + b"Content-Length: 9\r\n\r\nhi", CLOSE], httpx2.RemoteProtocolError, "after 2 bytes, before the end"),
        (
            [OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hi", end=False), CLOSE],
            httpx2.RemoteProtocolError,
            "after 2 bytes, before the end",
        ),
        ([OK + b"\r\nhi", RESET], httpx2.ReadError, "reset"),
        ([b"SSH-2.0-OpenSSH_9\r\n"], httpx2.RemoteProtocolError, "expected an HTTP/1.1 answer .*SSH-2.0"),
        ([OK + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001], httpx2.ReadError, "at most 1000 bytes"),
        (
            [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
            httpx2.RemoteProtocolError,
            "switched protocols",
        ),
    ],
)
async def test_a_fault_of_the_server_has_its_own_exception(
    client: httpx2.AsyncClient, reply: list[Step], kind: type[Exception], words: str
) -> None:
    async with ScriptedServer([reply]) as server:
        with pytest.raises(kind, match=words):
            await client.get(server.url)


async def test_a_reset_before_any_answer_is_a_read_error(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[RESET]]) as server:
        with pytest.raises(httpx2.ReadError, match="reset by peer with no answer"):
            await client.get(server.url)


@pytest.mark.parametrize("reply", [[HANG], [OK + b"Content-Length: 9\r\n\r\nhi", HANG]], ids=["head", "body"])
async def test_silence_for_longer_than_the_read_timeout_is_one(client: httpx2.AsyncClient, reply: list[Step]) -> None:
    async with ScriptedServer([reply]) as server:
        with pytest.raises(httpx2.ReadTimeout, match=r"no byte for 0\.05 s"):
            await client.get(server.url, timeout=httpx2.Timeout(120.0, read=0.05))
        await server.gone.wait()


TOO_MUCH = b"x" * (64 * 1024 * 1024)  # more than the buffers of both sockets take


async def test_a_server_that_does_not_read_is_a_write_timeout(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[DEAF, asyncio.Event()]]) as server:
        with pytest.raises(httpx2.WriteTimeout, match=r"did not take the whole request within 0\.05 s"):
            await client.post(server.url, content=TOO_MUCH, timeout=httpx2.Timeout(120.0, write=0.05))


async def test_an_answer_that_comes_before_the_request_is_taken_is_an_answer(client: httpx2.AsyncClient) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    async with ScriptedServer([[DEAF, refusal, asyncio.Event()], [TWO]]) as server:
        response = await client.post(server.url, content=TOO_MUCH)
        assert (response.status_code, response.content) == (413, b"no")
        await client.get(server.url)
    assert [seen.connection for seen in server.seen] == [0, 1]


async def test_a_refused_connection_says_where(client: httpx2.AsyncClient) -> None:
    with nobody() as port, pytest.raises(httpx2.ConnectError, match=f"no connection to 127.0.0.1:{port}"):
        await client.get(f"http://127.0.0.1:{port}/")


async def test_a_handshake_that_never_ends_is_a_connect_timeout() -> None:
    transport = StampingTransport(CountingClock(), ssl_context=ssl.create_default_context())
    async with ScriptedServer([]) as server, httpx2.AsyncClient(transport=transport, trust_env=False) as mine:
        with pytest.raises(httpx2.ConnectTimeout, match=r"within 0\.05 s"):
            await mine.get(f"https://127.0.0.1:{server.port}/", timeout=httpx2.Timeout(120.0, connect=0.05))


@pytest.fixture
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


async def test_https_is_stamped_reused_and_verified(server_tls: ssl.SSLContext) -> None:
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    transport = StampingTransport(CountingClock(), ssl_context=trusting, keepalive_s=300.0)
    async with (
        ScriptedServer([[head + chunked(b"a", b"b")], [TWO]], tls=server_tls) as server,
        httpx2.AsyncClient(transport=transport, trust_env=False, timeout=120.0) as mine,
    ):
        first = await mine.post(server.url, content=b"x" * 1_000_000)
        second = await mine.get(server.url)
    assert (first.content, second.content) == (b"ab", b"hi")
    assert len(server.seen[0].body) == 1_000_000
    assert [seen.connection for seen in server.seen] == [0, 0]
    assert len(exchange_of(first).stamps) == 2


async def test_a_certificate_that_is_not_trusted_is_a_connect_error(server_tls: ssl.SSLContext) -> None:
    transport = StampingTransport(CountingClock(), ssl_context=ssl.create_default_context())
    async with (
        ScriptedServer([], tls=server_tls) as server,
        httpx2.AsyncClient(transport=transport, trust_env=False) as mine,
    ):
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await mine.get(server.url)


async def test_https_without_a_context_and_other_schemes_are_refused(client: httpx2.AsyncClient) -> None:
    with pytest.raises(httpx2.ConnectError, match="needs an SSL context"):
        await client.get("https://127.0.0.1:1/")
    with pytest.raises(httpx2.UnsupportedProtocol, match="expected http or https"):
        await client.get("ftp://127.0.0.1/")


async def test_methods_whose_answers_cannot_be_framed_are_refused(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO]]) as server:
        with pytest.raises(httpx2.LocalProtocolError, match="HEAD is not offered"):
            await client.head(server.url)
    assert server.connections == 0


async def test_a_header_cannot_smuggle_a_line(client: httpx2.AsyncClient) -> None:
    async with ScriptedServer([[TWO]]) as server:
        with pytest.raises(httpx2.LocalProtocolError, match="line end"):
            await client.get(server.url, headers={"X-A": "1\r\nX-B: 2"})
    assert server.connections == 0
