"""Does the simulated server speak ds4-server's HTTP, to any OpenAI client, in real time, with the core's log?

Real sockets and the openai SDK; the machine is 400 times as fast as the profile. What is expected comes from the
server's ground truth and from the description of its API, never from another answer of the same code.
"""

import asyncio
import json
import re
from itertools import groupby, pairwise
from typing import Any

import httpx2
import openai
import pytest

from agentload.errors import ServerError
from agentload.twin.events import Finished, PrefillDone, Progress, Rejected
from agentload.twin.face import Ask, Face, Reply
from agentload.twin.http1 import Exchange, Open, Received
from agentload.twin.http_face import Answer, HttpFace
from agentload.twin.lengths import DEFAULT, Lengths, Quantiles, Settings, always
from agentload.twin.machine import faster
from agentload.twin.options import Options
from agentload.twin.server import Server
from agentload.twin.wire import parse_chat
from tests.twin.http_servers import SPEED, TOOLS, body, post, raw, running, status
from tests.twin.worlds import SECOND, round_profile

pytestmark = pytest.mark.anyio

SYSTEM = {"role": "system", "content": "You read code and answer questions about it."}
TASK = {"role": "user", "content": "How does src/lib.rs hold the lock while the module is imported?"}
ASKED: dict[str, Any] = {"model": "deepseek-v4-flash", "messages": [SYSTEM, TASK]}
# Thinks in each turn, and calls two tools before it answers.
THINKS = Settings(Lengths(calls=always(2), thinking_share=1.0, final_tokens=Quantiles(((0, 50), (1, 60)))))


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, http_client=httpx2.AsyncClient(trust_env=False)
    )


# ---- clients -------------------------------------------------------------------------------------------------------


async def test_the_openai_sdk_reads_a_stream_with_reasoning_a_call_and_usage_that_is_the_truth() -> None:
    async with running(settings=THINKS) as server, client(server.url) as sdk:
        reasoning, content, names, arguments, ids = "", "", [], "", []
        finish = usage = None
        stream = await sdk.chat.completions.create(
            **ASKED, tools=TOOLS, stream=True, stream_options={"include_usage": True}, seed=3
        )
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                reasoning += choice.delta.model_extra.get("reasoning_content", "") if choice.delta.model_extra else ""
                content += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    assert call.function is not None
                    ids += [call.id] if call.id else []
                    names += [call.function.name] if call.function.name else []
                    arguments += call.function.arguments or ""
        await server.until(server.requests)
        (truth,) = server.requests()
    assert (finish, names) == ("tool_calls", ["bash"])  # it has seen no file yet: a listing comes first
    assert "command" in json.loads(arguments)
    assert reasoning
    assert content
    assert ids == truth["tool_call_ids"]
    assert re.fullmatch(r"call_[0-9a-f]{32}", ids[0])
    assert server.lines("tool calls", f"ids=[{ids[0]}] names=[bash]")
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (truth["prompt_tokens"], truth["decoded_tokens"])
    assert usage.prompt_tokens_details.cached_tokens == truth["cached_tokens"] == 0


async def test_the_openai_sdk_reads_an_answer_in_one_piece() -> None:
    async with running() as server, client(server.url) as sdk:
        found = await sdk.chat.completions.create(**ASKED, max_tokens=40)
        await server.until(server.requests)
        (truth,) = server.requests()
        models = [one.id async for one in await sdk.models.list()]
    assert models == ["deepseek-v4-flash"]
    (choice,) = found.choices
    assert choice.finish_reason == "length"
    assert choice.message.content
    assert found.usage is not None
    assert (found.usage.completion_tokens, truth["decoded_tokens"]) == (40, 40)
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", found.id)


async def test_the_next_turn_goes_on_from_what_its_slot_holds() -> None:
    """A = prompt + answer of the turn before, with no miss line: the call is replayed as it was sampled."""
    async with running(settings=THINKS) as server, client(server.url) as sdk:
        first = await sdk.chat.completions.create(**ASKED, tools=TOOLS)
        message = first.choices[0].message
        assert message.tool_calls is not None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "src/lib.rs\nsrc/main.rs\n"}
        messages = [*ASKED["messages"], message.model_dump(exclude_none=True), result]
        second = await sdk.chat.completions.create(model="deepseek-v4-flash", messages=messages, tools=TOOLS)
        assert second.choices[0].finish_reason == "tool_calls"
        assert first.usage is not None
        assert second.usage is not None
        assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == first.usage.total_tokens
    assert server.lines("miss") == []


async def test_two_clients_that_ask_the_same_are_not_told_the_same() -> None:
    async with running() as server, client(server.url) as sdk:
        both = await asyncio.gather(*(sdk.chat.completions.create(**ASKED, max_tokens=30) for _ in range(2)))
    said = [one.choices[0].message.content for one in both]
    assert said[0] != said[1]


async def test_thirty_two_clients_on_six_slots_are_all_answered_and_who_finds_none_free_waits() -> None:
    queued: list[dict[str, Any]] = []
    for speed in (40, 4, 0.4):  # the slower ones where this machine is too busy for seven requests to meet
        if queued := await thirty_two_on_six_slots(speed):
            break
    assert queued


async def thirty_two_on_six_slots(speed: float) -> list[dict[str, Any]]:
    """Check the waiting of each; return those that had to wait."""
    async with running(speed=speed, batched_session=6) as server, client(server.url) as sdk:
        found = await asyncio.gather(
            *(
                sdk.chat.completions.create(
                    model="x", messages=[{"role": "user", "content": f"Question {number}"}], max_tokens=20 + number
                )
                for number in range(32)
            )
        )
        await server.until(lambda: len(server.requests()) == 32)
    assert [one.usage.completion_tokens for one in found if one.usage] == [20 + number for number in range(32)]
    requests = server.requests()
    queued = [one for one in requests if one["slot_ns"] > one["arrival_ns"]]
    for one in requests:
        others = (other for other in requests if other is not one)
        taken = sum(other["slot_ns"] <= one["arrival_ns"] < other["end_ns"] for other in others)
        assert (one in queued) == (taken == 6), one
    if queued:
        assert {one["slot"] for one in requests} == set(range(6))
    return queued


# ---- the stream, byte by byte --------------------------------------------------------------------------------------


async def test_headers_close_the_connection_and_the_stream_ends_with_done() -> None:
    async with running() as server:
        answer = await raw(server.port, post({**ASKED, "stream": True, "max_tokens": 3}))
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Connection: close" in head.splitlines()
    assert b"Content-Type: text/event-stream" in head.splitlines()
    assert rest.startswith(b'data: {"id":"chatcmpl-')
    assert rest.endswith(b"\n\ndata: [DONE]\n\n")


async def test_an_answer_without_words_still_ends_properly() -> None:
    async with running() as server:
        answer = await raw(server.port, post({**ASKED, "stream": True, "max_tokens": 1}))
    assert b'"finish_reason":"length"' in answer


class Tape:
    """What was written, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    @property
    def started(self) -> bool:
        return bool(self.said)

    def head(self, status: int, content_type: str | None, length: int | None = None) -> None:
        self.said.append(("head", status, content_type))

    def write(self, data: bytes) -> None:
        self.said.append(("write", data))

    def end(self) -> None:
        self.said.append(("end",))

    def answer(self, status: int, body: bytes = b"") -> None:
        self.said.append(("answer", status, json.loads(body)))


class Stopped:
    def now_ns(self) -> int:
        return 0

    async def sleep_until(self, t_ns: int) -> None:
        raise AssertionError(t_ns)


def answering(fields: dict[str, Any], **options: Any) -> tuple[Tape, Face, Reply, list[tuple[int, int]]]:
    """A face under virtual time with one request at 0, and how much was written at each event of it."""
    written: list[tuple[int, int]] = []
    tape, asked = Tape(), parse_chat(json.dumps({**ASKED, **fields}).encode())
    chosen = Options(**{"mixed_prefill_quantum": 100, "prefill_quantum": 1000, **options})
    answer = Answer(tape, asked, chosen.ctx, Stopped())
    server = Server(chosen, round_profile(), seed=1, start_ns=0, noise=False)
    face = Face(server, DEFAULT, seed=1, out=lambda _events: None)

    def tell(reply: Reply, event: Any) -> None:
        answer.tell(reply, event)
        written.append((event.at_ns, len(tape.said)))

    ask: Ask = asked.ask("r1", 1)
    return tape, face, face.ask(ask, 0, tell), written


def run(face: Face) -> None:
    while (due := face.next_ns()) is not None:
        face.advance(due)


def test_keepalives_come_from_progress_alone_and_at_most_every_five_seconds() -> None:
    """1 ms a token, quanta of 4,000: of this cold prompt the first progress is after 4 s, at the second quantum."""
    long = "word " * 19_000
    fields = {"messages": [{"role": "user", "content": long}], "stream": True, "max_tokens": 2}
    tape, face, reply, _ = answering(fields, prefill_quantum=4000)
    run(face)
    comments = [at for at, one in enumerate(tape.said) if one == ("write", b": prefill\n\n")]
    assert tape.said[0] == ("head", 200, "text/event-stream")
    assert len(comments) == len(reply.keepalive_ns) >= 2
    assert reply.headers_ns is not None
    stamps = [reply.headers_ns, *reply.keepalive_ns]
    assert all(after - before >= 5 * SECOND for before, after in pairwise(stamps))
    assert comments == list(range(1, 1 + len(comments)))  # between the head and the role, nowhere else


def test_the_role_is_written_at_the_end_of_prefill() -> None:
    tape, face, reply, written = answering({"stream": True, "max_tokens": 2})
    run(face)
    assert reply.role_ns is not None
    (pieces,) = {count for at_ns, count in written if at_ns == reply.role_ns}
    assert [one[0] for one in tape.said[:pieces]] == ["head", "write"]
    assert b'"delta":{"role":"assistant"}' in tape.said[pieces - 1][1]


def test_a_failure_before_the_headers_is_a_500_and_after_them_an_event() -> None:
    failed = Finished(5, "r1", "error", 10, 0, 10, 0, error="prefill failed")
    tape, _, reply, _ = answering({"stream": True})
    answer = Answer(tape, parse_chat(json.dumps({**ASKED, "stream": True}).encode()), 1000, Stopped())
    answer.tell(reply, failed)
    assert tape.said == [("answer", 500, {"error": {"message": "prefill failed", "type": "server_error"}})]
    tape.said.clear()
    answer.tell(reply, Progress(1, "r1", 5))
    answer.tell(reply, failed)
    event = b'event: error\ndata: {"error":{"message":"prefill failed","type":"server_error"}}\n\n'
    assert tape.said == [("head", 200, "text/event-stream"), ("write", event), ("end",)]


def test_a_failure_in_decode_is_a_finish_reason_with_status_200() -> None:
    tape, _, reply, _ = answering({"stream": True})
    answer = Answer(tape, parse_chat(json.dumps({**ASKED, "stream": True}).encode()), 1000, Stopped())
    answer.tell(reply, PrefillDone(1, "r1"))
    answer.tell(reply, Finished(5, "r1", "error", 10, 0, 10, 3, error="shutdown requested"))
    assert tape.said[0] == ("head", 200, "text/event-stream")
    assert b'"finish_reason":"error"' in tape.said[-2][1]
    assert tape.said[-1] == ("end",)


def test_a_server_that_is_shutting_down_refuses_with_503() -> None:
    tape, _, reply, _ = answering({})
    Answer(tape, parse_chat(json.dumps(ASKED).encode()), 1000, Stopped()).tell(
        reply, Rejected(1, "r1", "shutting_down", 10)
    )
    assert [one[:2] for one in tape.said] == [("answer", 503)]


# ---- refusals ------------------------------------------------------------------------------------------------------


async def test_a_prompt_that_is_too_long_is_refused_and_the_log_says_nothing_of_it() -> None:
    async with running(ctx=64) as server:
        before = server.log
        answer = await raw(server.port, post({"messages": [{"role": "user", "content": "word " * 100}]}))
        assert server.log == before
    error = body(answer)["error"]
    assert (status(answer), error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert error["n_ctx"] == 64
    assert error["n_prompt_tokens"] >= 100
    said = f"Prompt has {error['n_prompt_tokens']} tokens, but the configured context size is 64 tokens"
    assert error["message"] == said


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/models/unknown HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (post({}, path="/v1/embeddings"), 404),
        (b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 204),
        (b"GET /v1/models?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /v1/models/deepseek-chat HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (post(b"{"), 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
    ],
)
async def test_what_is_no_chat_request_has_the_status_that_the_server_gives(
    request_bytes: bytes, expected: int
) -> None:
    async with running() as server:
        answer = await raw(server.port, request_bytes)
    assert status(answer) == expected
    if expected == 404:
        assert body(answer) == {"error": {"message": "unknown endpoint", "type": "invalid_request_error"}}


async def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    async with running() as server:
        second = HttpFace(Options(port=server.port), round_profile(), seed=1, clock=Stopped(), log=lambda _data: None)
        with pytest.raises(ServerError, match=f"failed to listen on 127.0.0.1:{server.port}: .*in use"):
            await second.serve()


# ---- clients that go, servers that end ------------------------------------------------------------------------------


async def test_a_client_that_goes_away_frees_its_slot_and_leaves_no_finish_line() -> None:
    async with running(speed=20, batched_session=1) as server, client(server.url) as sdk:
        stream = await sdk.chat.completions.create(
            **ASKED, max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        await server.until(server.requests)
        (truth,) = server.requests()
        assert (truth["finish"], truth["decoded_tokens"] < 4000) == ("cancelled", True)
        assert server.lines("finish=") == []
        after = await sdk.chat.completions.create(**ASKED, max_tokens=5)
        assert after.usage is not None
        assert after.usage.completion_tokens == 5


async def test_a_client_that_closes_only_its_sending_side_is_gone_too() -> None:
    async with running(speed=20) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post({**ASKED, "stream": True, "max_tokens": 4000, "ignore_eos": True}))
        await server.until(lambda: server.lines("prompt done"))
        writer.write_eof()
        await server.until(server.requests)
        (truth,) = server.requests()
        writer.transport.abort()
    assert truth["finish"] == "cancelled"


async def test_a_shutdown_ends_what_runs_with_an_error_and_the_log_says_so() -> None:
    finish = None
    async with running(speed=20) as server, client(server.url) as sdk:
        stream = await sdk.chat.completions.create(
            **ASKED, max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
        )
        async for chunk in stream:
            finish = chunk.choices[0].finish_reason
            if chunk.choices[0].delta.content and not server.lines("shutdown requested, draining requests"):
                server.shutdown()
    assert finish == "error"
    assert len(server.lines('finish=error error="shutdown requested"')) == 1


async def test_the_log_is_three_writes_a_line_with_stamps_of_the_real_clock() -> None:
    async with running() as server, client(server.url) as sdk:
        await sdk.chat.completions.create(**ASKED, max_tokens=60)
    writes = [data for data in server.writes if not data.startswith(b"ds4: ")]
    assert len(writes) % 3 == 0
    for stamp, text, end in zip(writes[::3], writes[1::3], writes[2::3], strict=True):
        assert re.fullmatch(rb"\d{4} \d\d:\d\d:\d\d ", stamp)
        assert text.startswith(b"ds4-server: ")
        assert end == b"\n"
    assert server.log[0].startswith("ds4: simulated by agentload: profile m3-ultra x400, seed 7")
    kinds = [
        word for line in server.log for word in ("prompt start", "prompt done", "decoding", "finish=") if word in line
    ]
    assert [kind for kind, _ in groupby(kinds)] == ["prompt start", "prompt done", "decoding", "finish="]
    assert len(server.lines("decoding")) == 2  # 50 tokens, and the 10 that are left


# ---- sockets -------------------------------------------------------------------------------------------------------


class Floods:
    """A handler that writes more than a socket takes."""

    def __init__(self, count: int) -> None:
        self.count, self.went = count, asyncio.Event()

    def received(self, exchange: Exchange, request: Received) -> None:
        exchange.head(200, "text/event-stream")
        for _ in range(self.count):
            exchange.write(b"x" * 1_000_000)

    def refused(self, exchange: Exchange, status: int, why: str) -> None:
        exchange.answer(status, b"{}")

    def gone(self, exchange: Exchange) -> None:
        self.went.set()


async def listen(handler: Floods, **limits: Any) -> tuple[asyncio.Server, int]:
    server = await asyncio.get_running_loop().create_server(
        lambda: Exchange(handler, Open(), **limits),
        "127.0.0.1",
        0,
    )
    return server, int(server.sockets[0].getsockname()[1])


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    handler = Floods(60)
    server, port = await listen(handler, stall_s=0.05)
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(post({}))
    async with asyncio.timeout(120):
        await handler.went.wait()
    writer.transport.abort()
    server.close()
    assert handler.went.is_set()


async def test_half_a_request_is_not_waited_for_without_end() -> None:
    server, port = await listen(Floods(0), receive_s=0.05)
    answer = await raw(port, b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
    server.close()
    assert status(answer) == 408


# ---- the machine ---------------------------------------------------------------------------------------------------


def test_a_faster_machine_has_smaller_costs_and_says_so_in_its_name() -> None:
    plain = round_profile()
    fast = faster(plain, 20)
    assert fast.name == f"{plain.name} x20"
    assert fast.decode.idle_s.value == pytest.approx(0.1 / 20)
    assert fast.prefill.scale.value == pytest.approx(plain.prefill.scale.value / 20)
    assert fast.disk.save_mib_s.value == pytest.approx(plain.disk.save_mib_s.value * 20)
    assert faster(plain, 1) is plain
    assert SPEED > 1
