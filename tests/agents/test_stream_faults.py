"""What does an agent make of a stream that is not as it should be? A real socket, a real transport, a scripted server.

That each fault is told apart, and what is kept of such an answer, is in test_chat and test_chat_failures; here it is
what the work does next: which messages the server gets then, and what stands in the outcome.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agentload.agents.actions import NativeActions
from agentload.agents.chat import OpenAITransport
from agentload.agents.loop import Agent
from agentload.agents.outcome import AgentLimits, End, Outcome, Sampling
from tests.agents.loop_parts import FREE, Echo, Events, S
from tests.agents.scripted_server import (
    CLOSE,
    DONE,
    HANG,
    RESET,
    STREAM_HEAD,
    ScriptedServer,
    Step,
    answer,
    chunked,
    delta,
    event,
)

pytestmark = pytest.mark.anyio

Reply = list[Step]


def usage(prompt: int, completion: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


def calls(*fragments: dict[str, Any]) -> bytes:
    return delta(tool_calls=list(fragments))


def part(index: int, call_id: str | None = None, **function: str) -> dict[str, Any]:
    return {"index": index, **({} if call_id is None else {"id": call_id}), "function": function}


def whole(*events: bytes, finish: str = "tool_calls") -> Reply:
    return [answer(*events, delta(finish), usage(1000, 10), DONE), CLOSE]


def plain(status: str, body: bytes, kind: str) -> Reply:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return [head.encode() + body, CLOSE]


READ = whole(calls(part(0, "c1", name="read", arguments='{"path":"a"}')))
FINAL = whole(delta(content="The end."), finish="stop")


@dataclass
class Deadline:
    """Time stands still; a pause passes at once, and the end of an agent's time is there when the test says so."""

    at: int = 1_000 * S
    over: asyncio.Event = field(default_factory=asyncio.Event)
    look: Callable[[], object] = lambda: None  # called after whatever is stamped, such as bytes that came

    def now_ns(self) -> int:
        asyncio.get_running_loop().call_soon(self.look)
        return self.at

    async def sleep_until(self, t_ns: int) -> None:
        if t_ns - self.at > S:
            await self.over.wait()
        self.at = max(self.at, t_ns)


@dataclass
class Done:
    outcome: Outcome
    server: ScriptedServer
    events: Events
    tools: dict[str, Echo]

    def sent(self, request: int) -> list[dict[str, Any]]:
        """The messages of one request, as the server got them."""
        messages: list[dict[str, Any]] = self.server.seen[request].json()["messages"]
        return messages

    def notes(self, request: int) -> list[str]:
        notes: list[str] = self.events.of("request_done")[request]["notes"]
        return notes


async def work(
    *replies: Reply, limits: AgentLimits = FREE, clock: Deadline | None = None, over_in: str = "no request"
) -> Done:
    """Let an agent work; its time is over as soon as a token of the answer to `over_in` has come."""
    clock, events, tools = clock or Deadline(), Events(), {"read": Echo(), "bash": Echo("bash")}
    async with (
        ScriptedServer(replies) as server,
        OpenAITransport(server.url, "m", clock) as transport,
    ):

        def look() -> None:
            if transport.decodes(over_in):
                clock.over.set()

        clock.look = look
        agent = Agent(
            "a0",
            "some-task",
            "What does it do?",
            transport=transport,
            actions=NativeActions(),
            limits=limits,
            sampling=Sampling(),
            clock=clock,
            events=events,
            history=Events(),
        )
        outcome = await agent.work([tools["read"], tools["bash"]])
    return Done(outcome, server, events, tools)


async def test_a_stream_that_stalls_ends_with_the_agents_time_and_it_is_said_for_how_long_nothing_came() -> None:
    clock = Deadline()
    said = delta(role="assistant", content=None) + delta(content="I think")

    async def later() -> bytes:
        clock.at += 3 * S  # of its 20 s; nothing comes for the other 17
        return STREAM_HEAD + chunked(said, end=False)

    done = await work(READ, [later, HANG], limits=replace(FREE, wall_s=20.0), clock=clock, over_in="a0-r1")
    assert done.outcome.end is End.OUT_OF_TIME
    assert done.outcome.why == (
        f"cut off: its time was over after {len(said)} bytes of the answer's body, none for 17.0 s (wall time 20 s)"
    )
    assert (done.outcome.requests, done.outcome.cut_requests, done.outcome.failed_requests) == (2, 1, 0)


async def test_a_stream_that_ends_without_done_is_an_answer_that_was_taken_with_a_note() -> None:
    done = await work([answer(delta(content="The end."), delta("stop"), usage(1000, 10)), CLOSE])
    assert (done.outcome.end, done.outcome.answer, done.outcome.failed_requests) == (End.ANSWERED, "The end.", 0)
    assert done.notes(0) == ["the stream ended after its finish_reason, without [DONE]"]


SOME = STREAM_HEAD + chunked(delta(content="The"), end=False)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([SOME + chunked(), CLOSE], id="no finish_reason"),
        pytest.param([SOME, CLOSE], id="closed in the middle"),
        pytest.param([SOME, RESET], id="reset in the middle"),
        pytest.param([SOME + chunked(event(error={"message": "no memory"}), DONE), CLOSE], id="an error inside"),
        pytest.param([SOME + chunked(b"data: {oops\n\n", delta("stop"), DONE), CLOSE], id="an event that is no JSON"),
        pytest.param([answer(DONE), CLOSE], id="nothing but [DONE]"),
        pytest.param(plain("200 OK", b"<html>log in</html>", "text/html"), id="HTML"),
        pytest.param(plain("200 OK", b'{"choices": []}', "application/json"), id="no stream"),
        pytest.param(plain("404 Not Found", b'{"detail": "Not Found"}', "application/json"), id="404"),
        pytest.param(plain("500 Oops", b"", "text/plain"), id="500"),
    ],
)
async def test_a_broken_answer_leaves_nothing_in_the_history_and_the_agent_asks_again(broken: Reply) -> None:
    done = await work(READ, broken, FINAL)
    assert (done.outcome.end, done.outcome.answer) == (End.ANSWERED, "The end.")
    assert (done.outcome.requests, done.outcome.failed_requests, done.outcome.answers) == (3, 1, 1)
    assert done.sent(2) == done.sent(1)
    errors = [one["error"] for one in done.events.of("request_done")]
    assert errors[0] is errors[2] is None
    assert errors[1]


async def test_an_endpoint_that_refuses_three_times_ends_the_agent_with_what_it_said() -> None:
    refused = plain("401 Unauthorized", b'{"error": {"message": "Invalid API key"}}', "application/json")
    done = await work(refused, refused, refused)
    assert (done.outcome.end, done.outcome.why) == (End.FAILED, "HTTP 401: Invalid API key")
    assert (done.outcome.requests, done.outcome.failed_requests) == (3, 3)


async def test_of_a_usage_that_comes_again_and_again_the_last_one_is_the_context() -> None:
    grows = [usage(1, 1), delta("tool_calls"), usage(1000, 10), usage(1000, 10), DONE]
    done = await work([answer(calls(part(0, "c1", name="read", arguments="{}")), *grows), CLOSE], FINAL)
    assert (done.outcome.first_prompt_tokens, done.outcome.last_context_tokens) == (1000, 1010)
    assert done.notes(0) == ["usage came more than once: the last one counts"]


async def test_fragments_of_tool_calls_out_of_order_are_one_call_with_whole_arguments() -> None:
    mixed = whole(
        calls(part(1, "second", name="bash", arguments='{"comm')),
        calls(part(0, arguments='{"pa')),  # before its name and its id
        calls(part(1, arguments='and":"ls"}')),
        calls(part(0, "first", name="read")),
        calls(part(0, arguments='th":"a"}')),
    )
    done = await work(mixed, FINAL)
    assert done.tools["read"].got == [{"path": "a"}]
    assert (done.tools["bash"].got, done.outcome.calls_not_run) == ([], 1)  # one call a turn
    answered, result = done.sent(1)[-2:]
    assert [one["id"] for one in answered["tool_calls"]] == ["first"]
    assert result["tool_call_id"] == "first"


async def test_fragments_that_come_after_the_finish_reason_still_belong_to_the_call() -> None:
    late = [
        calls(part(0, "c1", name="read", arguments='{"path":')),
        delta("tool_calls"),
        calls(part(0, arguments='"a"}')),
    ]
    done = await work([answer(*late, DONE), CLOSE], FINAL)
    assert done.tools["read"].got == [{"path": "a"}]


async def test_broken_json_of_a_tool_call_is_told_to_the_model_and_sent_back_as_json_that_a_server_can_read() -> None:
    done = await work(whole(calls(part(0, "c1", name="read", arguments='{"path": "a'))), FINAL)
    assert (done.outcome.end, done.outcome.failed_calls, done.outcome.failed_requests) == (End.ANSWERED, 1, 0)
    answered, result = done.sent(1)[-2:]
    assert isinstance(json.loads(answered["tool_calls"][0]["function"]["arguments"]), dict)
    assert result == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": 'read: expected arguments as a JSON object, got \'{"path": "a\'',
    }


async def test_an_answer_that_was_cut_at_its_token_limit_inside_a_tool_call_goes_the_same_way() -> None:
    done = await work(whole(calls(part(0, "c1", name="read", arguments='{"pa')), finish="length"), FINAL)
    assert done.sent(1)[-1]["content"] == "read: expected arguments as a JSON object, got '{\"pa'"
    assert done.outcome.end is End.ANSWERED


@pytest.mark.parametrize("name", ["edit", ""])
async def test_a_tool_that_there_is_not_is_told_with_those_there_are(name: str) -> None:
    done = await work(whole(calls(part(0, "c1", name=name, arguments="{}"))), FINAL)
    assert done.sent(1)[-1]["content"] == f"there is no tool {name!r}: there are bash and read"
    assert (done.outcome.end, done.outcome.failed_calls) == (End.ANSWERED, 1)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}',  # llama.cpp
        b'{"message": "This model\'s maximum context length is 8192 tokens.", "code": 400}',  # vLLM
    ],
)
async def test_a_context_that_is_full_ends_the_agent_at_once(body: bytes) -> None:
    done = await work(READ, plain("400 Bad Request", body, "application/json"))
    assert (done.outcome.end, done.outcome.requests, done.outcome.tool_calls) == (End.CONTEXT, 2, 1)
    assert done.outcome.why is not None
    assert done.outcome.why.startswith("context overflow: HTTP 400: ")
