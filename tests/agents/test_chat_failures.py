"""What does a failed chat request say, and what of it is kept?"""

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentload.agents.chat import OpenAITransport, list_models
from agentload.errors import EndpointError
from tests.agents.asked import CALL, ROLE, STOP, ask
from tests.agents.scripted_server import (
    CLOSE,
    DONE,
    HANG,
    HEAD,
    RESET,
    STREAM_HEAD,
    CountingClock,
    ScriptedServer,
    Step,
    answer,
    chunked,
    delta,
    event,
)
from tests.skipping_loop import SkippingLoop, skip

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


async def test_a_refused_connection_is_one_line_and_has_its_stamps() -> None:
    async with ScriptedServer([]) as server:
        url = server.url
    async with OpenAITransport(url, "m", CountingClock(at=0)) as transport:
        done = await transport.complete(CALL)
    assert done.error is not None
    assert done.error.startswith(f"connection failed: no connection to 127.0.0.1:{url.split(':')[2][:-3]}: ")
    assert "\n" not in done.error
    assert (done.t_sent, done.t_first_byte, done.t_first_token, done.t_done, done.status) == (1, None, None, 2, None)


def refusal(status: str, body: bytes, kind: bytes = b"application/json") -> list[Step]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nContent-Type: ".encode()
    return [head + kind + b"\r\n\r\n" + body]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (
            refusal("503 Unavailable", b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'),
            "HTTP 503: Loading model (503)",
        ),
        (refusal("404 Not Found", b"<h1>no\nsuch page</h1>", b"text/html"), "HTTP 404: <h1>no such page</h1>"),
        (refusal("500 Oops", b""), "HTTP 500: Oops"),
        (refusal("429 Slow", b'{"error":"slow down"}'), "HTTP 429: slow down"),
        (refusal("400 Bad", b'{"object":"error","message":"bad tool","code":400}'), "HTTP 400: bad tool (400)"),
        (
            refusal(
                "400 Bad",
                b'{"error":{"code":400,"message":"request (9 tokens) exceeds","type":"exceed_context_size_error"}}',
            ),
            "context overflow: HTTP 400: request (9 tokens) exceeds (400)",
        ),
        (
            refusal(
                "400 Bad", b'{"error":{"message":"Prompt has 9 tokens","code":"context_length_exceeded","n_ctx":8}}'
            ),
            "context overflow: HTTP 400: Prompt has 9 tokens (context_length_exceeded)",
        ),
        (
            refusal("400 Bad", b'{"error":{"message":"This model\'s maximum context length is 8 tokens.","code":400}}'),
            "context overflow: HTTP 400: This model's maximum context length is 8 tokens. (400)",
        ),
        pytest.param(
            refusal("500 Oops", b"no gzip", b"text/plain\r\nContent-Encoding: gzip"),
            "HTTP 500: (its body cannot be decoded)",
            id="no gzip",
        ),
        pytest.param(
            refusal("500 Oops", b"\xc3\xa4 \xff", b"text/plain; charset=rot13"),
            "HTTP 500: \u00e4 \ufffd",
            id="a charset that is none for text",
        ),
        pytest.param(
            refusal("500 Oops", b'{"error":{"message":"\\u001b[2J\\u009b1mred\\u0007\\ud83d"}}'),
            r"HTTP 500: \x1b[2J\x9b1mred\x07\ud83d",
            id="terminal escapes",
        ),
        pytest.param(
            refusal("500 Oops", b'{"error":{"message":"deep","code":%b}}' % (b"[" * 900 + b"]" * 900)),
            "HTTP 500: deep",
            id="deep",
        ),
    ],
)
async def test_a_refusal_carries_the_servers_message(reply: list[Step], error: str) -> None:
    done = await ask(reply)
    assert done.error is not None
    assert done.error.startswith(error)
    assert done.error == error or error.endswith("deep")  # what is said of a deep code depends on the caller's depth
    assert done.status == int(error.partition("HTTP ")[2][:3])
    assert done.t_first_token is None


async def test_a_redirect_is_not_followed() -> None:
    done = await ask([b"HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"])
    assert done.error is not None
    assert done.error.startswith("HTTP 307: ")


SOME = STREAM_HEAD + chunked(ROLE, delta(content="par"), end=False)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param([CLOSE], "broken answer: the server closed the connection with no answer", id="closed at once"),
        pytest.param([SOME, CLOSE], "broken answer: the server closed the connection after ", id="torn stream"),
        pytest.param([SOME, RESET], "broken answer: ", id="reset"),
        pytest.param([b"220 mail ready\r\n"], "broken answer: expected an HTTP/1.1 answer", id="not HTTP"),
        pytest.param(
            [SOME + chunked(STOP, end=False), CLOSE], "broken answer: ", id="torn between finish_reason and [DONE]"
        ),
        pytest.param(
            [SOME + chunked(b'event: error\ndata: {"error":{"message":"no memory","type":"server_error"}}\n\n')],
            "server error: no memory (server_error)",
            id="an error event",
        ),
        pytest.param(
            [SOME + chunked(event(error={"message": "boom", "code": 500}), DONE)],
            "server error: boom (500)",
            id="an error in a data event",
        ),
        pytest.param([SOME + chunked(b"event: error\ndata: gone\n\n")], "server error: gone", id="an error as text"),
        pytest.param(
            [SOME + chunked(b"data: {'x': 1}\n\n", STOP, DONE)],
            "bad event: event 3: expected JSON (Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)), got {'x': 1}",
            id="an event that is not JSON",
        ),
        pytest.param(
            [SOME + chunked(b"data: " + b"[" * 1000 + b"\n\n", STOP, DONE)],
            "bad event: event 3: expected JSON (nested at most 50 deep), got [[[",
            id="an event nested without an end",
        ),
        pytest.param(
            [SOME + chunked(event(choices=[], odd=[{}]).replace(b"{}", b"[" * 49 + b"]" * 49), STOP, DONE)],
            "bad event: event 3: expected JSON (nested at most 50 deep), got {",
            id="an event of 51 levels",
        ),
        pytest.param([SOME + chunked(b"data: [1]\n\n")], "bad event: event 3: expected a chat comp", id="a list"),
        pytest.param(
            [SOME + chunked(event(choices=3))], "bad event: event 3: expected a list of choices, got 3", id="n"
        ),
        pytest.param(
            [SOME + chunked(DONE)],
            "unfinished answer: expected a finish_reason, the stream ended with [DONE] after 2 events",
            id="[DONE] without a finish_reason",
        ),
        pytest.param(
            [SOME + chunked()],
            "unfinished answer: expected a finish_reason, the stream ended without [DONE] after 2 events",
            id="no end at all",
        ),
        pytest.param([SOME + chunked(delta("error"), DONE)], "server error: the answer ended with", id="finish error"),
    ],
)
async def test_an_answer_that_is_not_whole_is_an_error_and_keeps_what_came(reply: list[Step], error: str) -> None:
    done = await ask(reply)
    assert done.error is not None
    assert done.error.startswith(error)
    assert "\n" not in done.error
    began = isinstance(reply[0], bytes) and reply[0].startswith(SOME)
    assert done.content == ("par" if began else "")
    assert (done.t_first_token is not None) == began
    assert done.t_sent < done.t_done


class Looking(CountingClock):
    """`look` is called after whatever is stamped."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], object] = lambda: None

    def now_ns(self) -> int:
        asyncio.get_running_loop().call_soon(self.look)
        return super().now_ns()


async def test_silence_before_the_head_is_a_stall() -> None:
    async def never() -> bytes:
        skip(3600.0)
        return bytes(await asyncio.get_running_loop().create_future())

    done = await ask([never], read_timeout_s=3000.0)
    assert done.error is not None
    assert done.error.startswith("stall: no byte for 3000 s, 0 bytes")
    assert (done.content, done.t_first_token) == ("", None)
    assert done.t_sent < done.t_done


async def test_silence_inside_the_stream_is_a_stall_and_what_came_is_kept() -> None:
    clock = Looking()
    async with (
        ScriptedServer([[SOME, HANG]]) as server,
        OpenAITransport(server.url, "m", clock, read_timeout_s=3000.0) as transport,
    ):

        def look() -> None:
            if transport.decodes(CALL.request):
                clock.look = lambda: None
                skip(3600.0)

        clock.look = look
        done = await transport.complete(CALL)
        await server.gone.wait()
    assert done.error is not None
    assert done.error.startswith("stall: no byte for 3000 s, ")
    assert done.content == "par"
    assert done.t_first_token is not None
    assert done.t_sent < done.t_first_token < done.t_done


@pytest.mark.parametrize(
    ("kind", "body"),
    [(b"text/html", b"<html>Welcome\nto nginx</html>"), (b"application/json", b'{"choices": []}')],
)
async def test_a_success_that_is_no_event_stream_is_an_error(kind: bytes, body: bytes) -> None:
    done = await ask(refusal("200 OK", body, kind))
    shown = " ".join(body.decode().split())
    assert (
        done.error == f"not an event stream: expected text/event-stream, got {kind.decode()} (coding identity): {shown}"
    )


async def test_a_compressed_stream_is_refused_without_showing_its_bytes() -> None:
    packed = gzip.compress(delta(content="x") + STOP + DONE)
    done = await ask(refusal("200 OK", packed, b"text/event-stream\r\nContent-Encoding: gzip"))
    assert done.error == "not an event stream: expected text/event-stream, got text/event-stream (coding gzip)"


async def test_a_stream_that_ends_properly_after_its_finish_reason_is_whole_without_done_and_noted() -> None:
    done = await ask([answer(delta(content="x"), STOP)])
    assert (done.error, done.content) == (None, "x")
    assert done.notes == ("the stream ended after its finish_reason, without [DONE]",)


async def test_a_done_without_its_blank_line_is_one() -> None:
    done = await ask([answer(delta(content="x"), STOP, b"data: [DONE]\n")])
    assert (done.error, done.notes) == (None, ())


async def test_a_connection_that_breaks_after_done_leaves_the_answer_whole() -> None:
    done = await ask([STREAM_HEAD + chunked(delta(content="x"), STOP, DONE, end=False), RESET])
    assert (done.error, done.content, len(done.notes)) == (None, "x", 1)
    assert done.notes[0].startswith("after [DONE]: ")


async def test_a_server_that_closes_each_connection_ends_its_stream_so() -> None:
    closing = HEAD + b"Connection: close\r\n\r\n" + delta(content="x") + STOP + DONE
    done = await ask([closing, CLOSE])
    assert (done.error, done.content, done.notes) == (None, "x", ())


async def test_a_stream_that_is_left_open_after_done_is_waited_for_a_quarter_second_not_the_read_timeout() -> None:
    body = delta(content="x") + STOP + DONE
    done = await ask([STREAM_HEAD + chunked(body, end=False), HANG], read_timeout_s=1e6)
    assert (done.error, done.content) == (None, "x")
    assert done.notes == (f"after [DONE]: no byte for 0.25 s, {len(body)} bytes of the answer's body before",)


async def test_cancelling_passes_through_and_closes_the_connection() -> None:
    async with (
        ScriptedServer([[SOME, HANG]]) as server,
        OpenAITransport(server.url, "m", CountingClock()) as transport,
    ):
        asking = asyncio.create_task(transport.complete(CALL))
        await server.arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.gone.wait()
    assert len(server.seen) == 1


async def test_a_failed_request_is_sent_once() -> None:
    async with (
        ScriptedServer([refusal("503 Busy", b""), [RESET]]) as server,
        OpenAITransport(server.url, "m", CountingClock()) as transport,
    ):
        first = await transport.complete(CALL)
        second = await transport.complete(CALL)
    assert first.error == "HTTP 503: Busy"
    assert second.error is not None
    assert len(server.seen) == 2


# ---- the list of models


async def test_models_are_listed_in_the_servers_order() -> None:
    listing = b'{"object":"list","data":[{"id":"deepseek-v4-flash","object":"model"},{"id":"b"}]}'
    async with ScriptedServer([refusal("200 OK", listing)]) as server:
        assert await list_models(server.url, CountingClock(), api_key="k") == ["deepseek-v4-flash", "b"]
    assert server.seen[0].line == "GET /v1/models HTTP/1.1"
    assert server.seen[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal("200 OK", b"<html>"), "/v1/models: expected a list of models, got <html>"),
        (refusal("200 OK", b'{"data":[]}'), "expected at least one model, the list is empty"),
        (refusal("200 OK", b"[" * 1000), "expected a list of models, got [[["),
        (refusal("200 OK", b'{"data":[{"id":null}]}'), 'expected a list of models with an id each, got {"data"'),
        (refusal("200 OK", b'{"data":[{"id":""}]}'), "expected a list of models with an id each"),
        (
            refusal("200 OK", b"no gzip", b"application/json\r\nContent-Encoding: gzip"),
            "expected a list of models: HTTP 200: (its body cannot be decoded)",
        ),
        (refusal("401 No", b'{"error":{"message":"Bad key"}}'), "expected a list of models: HTTP 401: Bad key"),
        ([CLOSE], "expected a list of models: broken answer: the server closed"),
        (
            [b"HTTP/1.1 301 Moved\r\nLocation: https://x.example/v1\r\nContent-Length: 0\r\n\r\n"],
            "HTTP 301: Moved (it points to https://x.example/v1: no redirect is followed, give the address itself)",
        ),
    ],
)
async def test_an_endpoint_without_models_is_an_error(reply: list[Step], words: str) -> None:
    async with ScriptedServer([reply]) as server:
        with pytest.raises(EndpointError) as caught:
            await list_models(server.url, CountingClock())
    assert words in str(caught.value)


# ---- cut off at a time of the call's own


class Until(Looking):
    """The call's time is over when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def sleep_until(self, t_ns: int) -> None:
        assert t_ns == 10**9
        await self.over.wait()


TIMED = replace(CALL, until_ns=10**9)


async def test_an_answer_is_cut_off_at_its_time_with_what_came_so_far_and_its_connection_closed() -> None:
    clock = Until()
    event = delta(content="half ")
    steps: list[Step] = [STREAM_HEAD + chunked(ROLE, event, end=False), HANG]
    async with ScriptedServer([steps]) as server, OpenAITransport(server.url, "m", clock) as transport:

        def look() -> None:
            if transport.decodes(CALL.request):
                clock.over.set()

        clock.look = look
        done = await transport.complete(TIMED)
        await server.gone.wait()
        assert not transport.decodes(CALL.request)
    came = len(ROLE) + len(event)
    assert done.error == f"cut off: its time was over after {came} bytes of the answer's body, none for 0.0 s"
    assert (done.content, done.finish, done.status, len(done.token_ns)) == ("half ", None, 200, 1)
    assert done.t_first_byte is not None
    assert done.t_first_token is not None
    assert done.t_sent < done.t_first_byte <= done.t_first_token < done.t_done


async def test_a_request_that_nobody_answered_is_cut_off_too_and_was_not_decoding() -> None:
    clock = Until()
    async with ScriptedServer([[HANG]]) as server, OpenAITransport(server.url, "m", clock) as transport:

        async def look() -> None:
            await server.arrived.wait()
            assert not transport.decodes(CALL.request)
            clock.over.set()

        looking = asyncio.create_task(look())
        done = await transport.complete(TIMED)
        await looking
        await server.gone.wait()
    assert done.error == "cut off: its time was over after 0 bytes of the answer's body, none for 0.0 s"
    assert (done.content, done.t_first_byte, done.t_first_token, done.status) == ("", None, None, None)


async def test_an_answer_that_ends_before_its_time_is_whole() -> None:
    clock = Until()
    async with (
        ScriptedServer([[answer(delta(content="x"), STOP, DONE)]]) as server,
        OpenAITransport(server.url, "m", clock) as transport,
    ):
        done = await transport.complete(TIMED)
    assert (done.content, done.error) == ("x", None)


async def test_a_stream_with_a_role_only_does_not_decode_yet() -> None:
    clock = Until()
    seen: list[bool] = []
    asked = asyncio.Event()
    first, second = STREAM_HEAD + chunked(b": wait\n\n", ROLE, end=False), chunked(delta(content="x"), STOP, DONE)

    async with ScriptedServer([[first, asked, second]]) as server, OpenAITransport(server.url, "m", clock) as transport:

        def look() -> None:
            if server.arrived.is_set() and transport._open[CALL.request].pieces:
                seen.append(transport.decodes(CALL.request))
                clock.look = lambda: None
                asked.set()

        clock.look = look
        done = await transport.complete(CALL)
    assert (seen, done.content) == ([False], "x")


async def test_the_tokens_that_have_come_are_its_events_without_the_first_however_they_were_cut() -> None:
    clock = Until()
    seen: list[int] = []
    wait = [asyncio.Event(), asyncio.Event()]
    x = delta(content="x")
    first, second = STREAM_HEAD + chunked(ROLE, x, x, end=False), chunked(x + x, b": keepalive\n\n", x, end=False)
    steps: list[Step] = [first, wait[0], second, wait[1], chunked(STOP, DONE)]

    async with ScriptedServer([steps]) as server, OpenAITransport(server.url, "m", clock) as transport:

        def look() -> None:
            if not server.arrived.is_set():
                return
            come = transport.tokens(CALL.request)
            if come in (2, 5) and come not in seen:
                seen.extend((come, transport.tokens(CALL.request)))
                wait[come == 5].set()

        clock.look = look
        assert transport.tokens(CALL.request) == 0
        done = await transport.complete(CALL)
        assert transport.tokens(CALL.request) == 0
    assert (seen, done.content) == ([2, 2, 5, 5], "xxxxx")
