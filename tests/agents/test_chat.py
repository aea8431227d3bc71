"""Does a chat request bring back the answer, its stamps and its usage, or one line that says what went wrong?"""

import asyncio
import json
import math
import ssl
from pathlib import Path
from typing import Any

import pytest

from agentload.agents.chat import OpenAITransport, encode_body
from agentload.core.records import TEXTLESS, ChatCall, ServerTimings, ToolCall, Usage
from agentload.errors import UsageError
from tests.agents.asked import CALL, ROLE, STOP, ask
from tests.agents.scripted_server import (
    DONE,
    STREAM_HEAD,
    CountingClock,
    ScriptedServer,
    Step,
    answer,
    chunked,
    delta,
    event,
)

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}


# ---- a whole answer


async def test_a_plain_answer_is_whole() -> None:
    done = await ask(
        [answer(ROLE, delta(content="Hel"), delta(content="lo"), STOP, event(choices=[], usage=USAGE), DONE)]
    )
    assert (done.request, done.agent, done.turn, done.status, done.error) == ("a0-t1-r1", "a0", 1, 200, None)
    assert (done.content, done.reasoning, done.tool_calls, done.finish) == ("Hello", "", (), "stop")
    assert (done.server_id, done.model, done.notes) == ("chatcmpl-1", "served", ())
    assert done.usage == Usage(prompt_tokens=20, completion_tokens=2, cached_tokens=None, reasoning_tokens=None)
    assert done.raw_usage == USAGE


async def test_each_stamp_is_that_of_the_receive_that_brought_it() -> None:
    parts = (STREAM_HEAD, chunked(ROLE, end=False), chunked(delta(content="a"), delta(content="b"), end=False))
    gates = [asyncio.Event() for _ in parts]
    reply: list[Step] = [step for part, gate in zip(parts, gates, strict=True) for step in (part, gate)]
    reply.append(chunked(STOP, DONE))
    clock = GateOpeningClock(gates)
    async with ScriptedServer([reply]) as server, OpenAITransport(server.url, "m", clock) as transport:
        done = await transport.complete(CALL)
    # Question 1 is the start, 2 t_sent, and each receive asks once more.
    assert (done.t_sent, done.t_first_byte, done.t_first_token, done.t_done) == (2, 3, 5, 6)
    assert done.chunk_ns == (4, 5, 5, 6)
    assert done.token_ns == (5, 5)


async def test_an_only_token_without_a_text_came_with_the_finish_and_several_came_nobody_knows_when() -> None:
    parts = (STREAM_HEAD + chunked(ROLE, end=False), chunked(STOP, end=False))
    for tokens, known, notes in ((1, True, (TEXTLESS,)), (2, False, ()), (0, False, ())):
        gates = [asyncio.Event() for _ in parts]
        reply: list[Step] = [step for part, gate in zip(parts, gates, strict=True) for step in (part, gate)]
        reply.append(chunked(event(choices=[], usage=USAGE | {"completion_tokens": tokens}), DONE))
        clock = GateOpeningClock(gates)
        async with ScriptedServer([reply]) as server, OpenAITransport(server.url, "m", clock) as transport:
            done = await transport.complete(CALL)
        # Question 1 is the start, 2 t_sent, 3 the head and the role; then the finish, then the rest.
        finish = done.chunk_ns[1]
        assert done.t_sent < done.chunk_ns[0] < finish < done.chunk_ns[2]
        assert (done.error, done.t_first_token, done.notes) == (None, finish if known else None, notes)
        assert done.token_ns == ((finish,) if known else ())


class GateOpeningClock(CountingClock):
    """Lets the server's next part out when the one before was stamped."""

    def __init__(self, gates: list[asyncio.Event]) -> None:
        super().__init__(at=0)
        self.gates = gates

    def now_ns(self) -> int:
        now = super().now_ns()
        if 3 <= now < 3 + len(self.gates):
            self.gates[now - 3].set()
        return now


@pytest.mark.parametrize(
    "first",
    [
        delta(content="x"),
        delta(reasoning_content="x"),
        delta(reasoning="x"),
        delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "read", "arguments": ""}}]),
    ],
    ids=["content", "reasoning_content", "reasoning", "a tool call's name"],
)
async def test_the_first_token_is_the_first_delta_that_carries_one(first: bytes) -> None:
    no_tokens = (
        ROLE,
        delta(role="assistant", content=""),
        delta(reasoning_content=""),
        delta(tool_calls=[]),
        event(choices=[{"index": 0, "delta": {"role": "assistant", "content": None}}], prompt_progress={"total": 9}),
        event(choices=[], usage=USAGE),
    )
    parts = (STREAM_HEAD + chunked(*no_tokens, end=False), chunked(first, STOP, DONE))
    gate = asyncio.Event()
    clock = GateOpeningClock([gate])
    async with (
        ScriptedServer([[parts[0], gate, parts[1]]]) as server,
        OpenAITransport(server.url, "m", clock) as transport,
    ):
        done = await transport.complete(CALL)
    assert (done.t_first_byte, done.t_first_token, done.token_ns) == (3, 4, (4,))


async def test_reasoning_that_is_sent_under_both_names_is_taken_once() -> None:
    done = await ask([answer(delta(reasoning_content="hm", reasoning="hm"), delta(content="x"), STOP, DONE)])
    assert (done.reasoning, done.content) == ("hm", "x")


async def test_fragments_of_several_tool_calls_are_put_together_by_index_whatever_their_order() -> None:
    def part(index: int, **function: Any) -> dict[str, Any]:
        return {"index": index, "function": function}

    done = await ask(
        [
            answer(
                delta(tool_calls=[{"id": "b", "type": "function", **part(1, name="bash", arguments="{")}]),
                delta(tool_calls=[{"id": "a", **part(0, name="read", arguments="")}, part(1, arguments='"command"')]),
                delta(tool_calls=[part(0, arguments='{"path":"x"}')]),
                delta(tool_calls=[part(1, arguments=':"ls"}')]),
                delta("tool_calls"),
                DONE,
            )
        ]
    )
    assert done.tool_calls == (ToolCall("a", "read", '{"path":"x"}'), ToolCall("b", "bash", '{"command":"ls"}'))
    assert (done.finish, done.error, done.notes) == ("tool_calls", None, ())


@pytest.mark.parametrize(
    ("fragments", "calls", "note"),
    [
        pytest.param(
            [{"index": 0, "function": {"name": "read", "arguments": "{}"}}],
            (ToolCall("a0-t1-r1-call0", "read", "{}"),),
            "without an id",
            id="no id",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"}},
                {"index": 0, "id": "b", "function": {"name": "bash", "arguments": "{}"}},
            ],
            (ToolCall("a", "read", "{}"), ToolCall("b", "bash", "{}")),
            "share an index",
            id="one index for two ids",
        ),
        pytest.param(
            [
                {"id": "a", "function": {"name": "read", "arguments": "{"}},
                {"function": {"arguments": "}"}},
                {"id": "b", "function": {"name": "bash", "arguments": "{}"}},
            ],
            (ToolCall("a", "read", "{}"), ToolCall("b", "bash", "{}")),
            "without an index",
            id="no index",
        ),
        pytest.param(
            [{"index": 0, "id": "a", "function": {"name": "read", "arguments": {"path": "x"}}}],
            (ToolCall("a", "read", '{"path": "x"}'),),
            "came as JSON",
            id="arguments as an object",
        ),
    ],
)
async def test_an_odd_tool_call_is_understood_and_noted(
    fragments: list[dict[str, Any]], calls: tuple[ToolCall, ...], note: str
) -> None:
    done = await ask([answer(*(delta(tool_calls=[part]) for part in fragments), delta("tool_calls"), DONE)])
    assert done.tool_calls == calls
    assert len(done.notes) == 1
    assert note in done.notes[0]
    assert done.error is None


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None),
        ({"prompt_tokens_details": None}, None),
        ({}, None),
    ],
)
async def test_cached_tokens_that_are_not_reported_are_none_never_0(
    details: dict[str, Any], cached: int | None
) -> None:
    done = await ask([answer(delta(content="x"), STOP, event(choices=[], usage=USAGE | details), DONE)])
    assert done.usage is not None
    assert done.usage.cached_tokens == cached


async def test_no_usage_stays_none_and_a_null_usage_is_none() -> None:
    null = event(choices=[{"index": 0, "delta": {"content": "x"}}], usage=None)
    done = await ask([answer(null, STOP, DONE)])
    assert (done.usage, done.raw_usage, done.error) == (None, None, None)


async def test_the_last_of_several_usages_counts_and_is_noted() -> None:
    running = event(choices=[{"index": 0, "delta": {"content": "x"}}], usage={"completion_tokens": 1})
    done = await ask([answer(running, STOP, event(choices=[], usage={"completion_tokens": 2}), DONE)])
    assert done.usage == Usage(completion_tokens=2)
    assert done.notes == ("usage came more than once: the last one counts",)


async def test_llama_timings_and_unknown_fields_are_kept_as_received() -> None:
    timings = {"cache_n": 25, "prompt_n": 1, "prompt_ms": 26.949, "predicted_n": 4, "predicted_ms": 80.377, "new": 1}
    done = await ask(
        [
            answer(
                event(choices=[], prompt_progress={"processed": 128}, system_fingerprint="b1"),
                event(choices=[], prompt_progress={"processed": 256}, system_fingerprint="b1"),
                delta(content="x", annotations=[]),
                STOP,
                event(choices=[], timings=timings),
                DONE,
            )
        ]
    )
    assert done.timings == ServerTimings(25, 1, 26.949, 4, 80.377)
    assert done.raw_timings == timings
    assert {(name, json.dumps(value)) for _, name, value in done.raw_extra} == {
        ("prompt_progress", '{"processed": 128}'),
        ("prompt_progress", '{"processed": 256}'),
        ("system_fingerprint", '"b1"'),
        ("choices.delta.annotations", "[]"),
    }


async def test_keepalive_comments_are_counted_and_are_no_chunks() -> None:
    done = await ask([answer(b": prefill\n\n", b":\n\n", delta(content="x"), STOP, DONE)])
    assert (done.comments, len(done.chunk_ns)) == (2, 2)


async def test_the_raw_bytes_are_kept_when_asked_for() -> None:
    events = (delta(content="x"), STOP, DONE)
    done = await ask([answer(*events)], keep_raw=True)
    assert done.raw_answer == b"".join(events)
    assert done.raw_request == await encode_body("m", CALL)


async def test_a_real_https_endpoint_answers() -> None:
    certificate = Path(__file__).with_name("tls_localhost_for_tests.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with (
        ScriptedServer([[answer(delta(content="x"), STOP, DONE)]], tls=tls) as server,
        OpenAITransport(server.url, "m", CountingClock(), ssl_context=trusting) as transport,
    ):
        done = await transport.complete(CALL)
    assert (done.content, done.error) == ("x", None)


# ---- what is sent


async def test_the_request_carries_what_the_call_holds_and_nothing_it_does_not() -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    call = ChatCall(
        "r",
        "a",
        0,
        CALL.messages,
        (tool,),
        "auto",
        max_tokens=9,
        seed=42,
        temperature=0.0,
        extra={"cache_prompt": True},
    )
    async with (
        ScriptedServer([[answer(STOP, DONE)], [answer(STOP, DONE)]]) as server,
        OpenAITransport(server.url, "m", CountingClock(), api_key="secret") as transport,
    ):
        await transport.complete(call)
        await transport.complete(CALL)
    base = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Where is ä?"}],
    }
    full, bare = server.seen
    assert full.json() == base | {
        "tools": [tool],
        "tool_choice": "auto",
        "max_tokens": 9,
        "seed": 42,
        "temperature": 0.0,
        "cache_prompt": True,
    }
    assert bare.json() == base
    assert full.line == "POST /v1/chat/completions HTTP/1.1"
    assert full.headers["authorization"] == "Bearer secret"
    assert full.headers["content-type"] == "application/json"
    assert full.headers["accept"] == "text/event-stream"
    assert full.headers["accept-encoding"] == "identity"
    assert int(full.headers["content-length"]) == len(full.body)
    assert [seen.connection for seen in server.seen] == [0, 1]


async def test_a_long_history_is_encoded_as_one_json_document_while_other_tasks_run() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    messages = tuple({"role": "user", "content": "x" * 40_000} for _ in range(10))
    body = await encode_body("m", ChatCall("r", "a", 0, messages))
    task.cancel()
    assert json.loads(body)["messages"] == list(messages)
    assert turns == 5  # 80 kB are two messages: one pause after each two of ten


async def test_extra_parameters_cannot_replace_what_is_set_here() -> None:
    with pytest.raises(UsageError, match="must not hold messages, stream"):
        await encode_body("m", ChatCall("r", "a", 0, (), extra={"stream": False, "messages": [], "top_k": 1}))


def test_a_base_url_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a base URL such as"):
        OpenAITransport("localhost:8080", "m", CountingClock())


async def test_half_an_emoji_in_the_history_goes_out_as_jsons_own_escape() -> None:
    body = await encode_body("m", ChatCall("r", "a", 0, ({"role": "user", "content": "a\ud83d"},)))
    assert b'"content":"a\\ud83d"' in body
    assert json.loads(body)["messages"][0]["content"] == "a\ud83d"


# ---- numbers that cannot be


NAN, HUGE = float("nan"), 10**400


@pytest.mark.parametrize("count", [-5, 10**12 + 1, 10**30, NAN])
async def test_a_count_that_cannot_be_is_not_known(count: float) -> None:
    done = await ask(
        [answer(delta(content="x"), STOP, event(choices=[], usage={**USAGE, "prompt_tokens": count}), DONE)]
    )
    assert (done.error, done.usage) == (None, Usage(prompt_tokens=None, completion_tokens=2))
    told = f"prompt_tokens: expected 0 to 1e+12, got {count}: not known"
    assert done.notes == (() if math.isnan(count) else (told,))


@pytest.mark.parametrize("ms", ["NaN", "Infinity", "-Infinity", "1e400", str(HUGE), "-1"])
async def test_a_time_that_cannot_be_is_not_known_and_can_be_written(ms: str) -> None:
    timings = {"prompt_n": 1, "prompt_ms": "MS", "predicted_n": 1, "predicted_ms": 1.5}
    last = event(choices=[], timings=timings, odd=["MS"]).replace(b'"MS"', ms.encode())
    done = await ask([answer(delta(content="x"), STOP, last, DONE)])
    assert (done.error, done.timings) == (None, None)
    assert done.raw_timings is not None
    kept = int(ms) if ms.lstrip("-").isdigit() else None
    written = json.loads(json.dumps([done.raw_timings, done.raw_extra[0][2]], allow_nan=False))
    assert written == [{**timings, "prompt_ms": kept}, [kept]]


async def test_the_greatest_count_is_known() -> None:
    usage = {**USAGE, "prompt_tokens": 10**12, "completion_tokens": 0}
    done = await ask([answer(delta(content="x"), STOP, event(choices=[], usage=usage), DONE)])
    assert (done.usage, done.notes) == (Usage(prompt_tokens=10**12, completion_tokens=0), ())
