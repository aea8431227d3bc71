"""Does an agent in this process get what a client of the server would see, at the times at which it would come?"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from agentload.core.records import CUT_OFF, TEXTLESS, ChatCall, Completion
from agentload.twin import truth
from agentload.twin.events import DecodeStep, Event, Progress, Request
from agentload.twin.face import Face
from agentload.twin.lengths import DEFAULT, Settings, always
from agentload.twin.transport import WAY_NS, TwinTransport
from agentload.twin.virtual_clock import VirtualClock
from tests.twin.worlds import MS, SECOND, only, server

pytestmark = pytest.mark.anyio

TOOLS: tuple[dict[str, Any], ...] = tuple(
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("read", "bash")
)
MESSAGES: tuple[dict[str, Any], ...] = (
    {"role": "system", "content": "You are a coding agent. You answer questions about code."},
    {"role": "user", "content": "How does src/parser.rs tell a name from a number, and where is it tested?"},
)
THINKING = replace(DEFAULT, lengths=replace(DEFAULT.lengths, thinking_share=1.0, thinking_tokens=always(60)))


@dataclass
class World:
    """A server with round costs, a clock, and the way between them."""

    settings: Settings = field(default_factory=lambda: THINKING)
    ctx: int = 262_144
    seed: int = 3
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(0)
        self.face = Face(server(ctx=self.ctx), self.settings, seed=self.seed, out=self.events.extend)
        self.transport = TwinTransport(self.face, self.clock, model="scripted", seed=self.seed)

    async def live(self, *lives: Callable[[], Awaitable[None]]) -> None:
        async def one(number: int) -> None:
            async with self.clock.taking_part(number, len(lives)):
                await lives[number]()

        async with anyio.create_task_group() as driving:
            driving.start_soon(self.clock.drive, self.face)
            async with anyio.create_task_group() as group:
                for number in range(len(lives)):
                    group.start_soon(one, number)
            driving.cancel_scope.cancel()

    async def complete(self, *calls: ChatCall) -> list[Completion]:
        found: list[Completion] = []

        async def life() -> None:
            found.extend([await self.transport.complete(one) for one in calls])

        await self.live(life)
        return found

    def log(self) -> bytes:
        return truth.log_bytes(self.events)

    def requests(self) -> dict[str, Request]:
        return {one.request: one for one in only(Request, self.events)}


def call(request: str = "a0-r0", messages: Sequence[dict[str, Any]] = MESSAGES, **fields: Any) -> ChatCall:
    agent, turn = request.split("-r")
    return ChatCall(request, agent, int(turn), tuple(messages), TOOLS, **fields)


def said(completion: Completion) -> dict[str, Any]:
    """The answer as the next request has it."""
    (made,) = completion.tool_calls
    function = {"name": made.name, "arguments": made.arguments}
    return {
        "role": "assistant",
        "content": completion.content or None,
        "reasoning_content": completion.reasoning,
        "tool_calls": [{"id": made.id, "type": "function", "function": function}],
    }


async def test_a_completion_is_stamped_with_what_the_server_did_and_a_way_of_50_us() -> None:
    world = World()
    (done,) = await world.complete(call())
    true = world.requests()["a0-r0"]
    steps = only(DecodeStep, world.events)
    assert (done.t_sent, true.arrival_ns) == (0, WAY_NS)
    # The role comes when the prompt is done, and so do the headers when there was no progress to tell before; then a
    # piece a token (60 of reasoning), then the end and the usage at once.
    assert true.prefill_end_ns is not None
    assert only(Progress, world.events) == []
    assert done.t_first_byte == done.chunk_ns[0] == true.prefill_end_ns + WAY_NS
    assert done.chunk_ns[1:61] == tuple(step.end_ns + WAY_NS for step in steps[:60])
    assert done.t_first_token == steps[0].end_ns + WAY_NS
    assert done.chunk_ns[-2:] == (done.t_done, done.t_done) == (true.end_ns + WAY_NS, true.end_ns + WAY_NS)
    assert done.token_ns == done.chunk_ns[1:-2]
    assert (done.status, done.error, done.model, done.comments) == (200, None, "scripted", 0)
    assert world.clock.now_ns() == done.t_done


async def test_what_it_says_is_the_scripted_answer_and_the_usage_is_the_servers() -> None:
    world = World()
    (done,) = await world.complete(call())
    true = world.requests()["a0-r0"]
    assert done.finish == "tool_calls"
    (made,) = done.tool_calls
    assert made.name in ("read", "bash")
    assert done.raw_usage == {
        "prompt_tokens": true.prompt_tokens,
        "completion_tokens": true.decoded_tokens,
        "total_tokens": true.prompt_tokens + true.decoded_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": true.prompt_tokens},
    }
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (true.prompt_tokens, true.decoded_tokens)
    assert (done.usage.cached_tokens, done.usage.reasoning_tokens) == (0, None)
    assert done.content
    assert len(done.reasoning) > 60


async def test_the_servers_log_knows_the_calls_id_and_not_what_the_agent_calls_its_request() -> None:
    world = World()
    (done,) = await world.complete(call("a0-r0"))
    (made,) = done.tool_calls
    assert f"ids=[{made.id}] names=[{made.name}]".encode() in world.log()
    assert b"a0-r0" not in world.log()
    assert made.id.startswith("call_")
    assert len(made.id) == len("call_") + 32


async def test_the_next_turn_goes_on_where_the_answer_ended() -> None:
    world = World()
    found: list[Completion] = []

    async def life() -> None:
        first = await world.transport.complete(call())
        result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "src/parser.rs\nsrc/lexer.rs\n"}
        found.extend((first, await world.transport.complete(call("a0-r1", [*MESSAGES, said(first), result]))))

    await world.live(life)
    first, second = found
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.prompt_tokens is not None
    assert first.usage.completion_tokens is not None
    assert second.usage.cached_tokens == first.usage.prompt_tokens + first.usage.completion_tokens
    true = world.requests()["a0-r1"]
    assert (true.cache_source, true.slot) == ("memory", 0)
    assert true.new_prefill_tokens is not None
    assert 0 < true.new_prefill_tokens < 40


async def test_agents_of_one_task_do_not_do_the_same_and_one_does_the_same_again() -> None:
    async def answers(seed: int, *agents: str) -> list[str]:
        world = World(seed=seed)
        return [one.content for one in await world.complete(*(call(f"{agent}-r0") for agent in agents))]

    first, second = await answers(3, "a0", "a1")
    assert first != second
    assert await answers(3, "a0", "a1") == [first, second]
    assert await answers(4, "a0") != [first]


async def test_at_its_time_limit_an_answer_is_cut_off_with_what_had_come() -> None:
    (whole,) = await World().complete(call())
    assert whole.t_first_token is not None
    until = whole.token_ns[79] + 1  # the 80th piece has just come: 60 of reasoning, 20 of text
    world = World()
    (cut,) = await world.complete(call(until_ns=until))
    assert cut.error == f"{CUT_OFF}: its time was over after 80 tokens of the answer"
    assert (cut.t_done, cut.finish, cut.usage, cut.tool_calls) == (until, None, None, ())
    assert cut.reasoning == whole.reasoning
    assert cut.content
    assert whole.content.startswith(cut.content)
    assert cut.token_ns == whole.token_ns[:80]
    # The server learns of it, and gives up at its next look.
    world.clock.advance(world.face, until + 5 * SECOND)
    assert world.requests()["a0-r0"].finish == "cancelled"
    assert world.requests()["a0-r0"].end_ns < until + SECOND


async def test_a_piece_that_is_on_its_way_when_the_time_is_over_has_not_come() -> None:
    (whole,) = await World().complete(call())
    (cut,) = await World().complete(call(until_ns=whole.token_ns[79] - 1))
    assert cut.token_ns == whole.token_ns[:79]


async def test_cut_off_before_anything_came_it_has_no_status_and_no_text() -> None:
    (cut,) = await World().complete(call(until_ns=10 * MS))
    assert (cut.status, cut.t_first_byte, cut.t_first_token, cut.content, cut.chunk_ns) == (None, None, None, "", ())
    assert cut.error == f"{CUT_OFF}: its time was over after 0 tokens of the answer"


async def test_an_agent_that_is_cancelled_goes_away_from_its_request() -> None:
    world, scope = World(), anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await world.transport.complete(call("a0-r0"))

    async def canceller() -> None:
        await world.clock.sleep_until(3 * SECOND)
        scope.cancel()
        await world.clock.sleep_until(10 * SECOND)

    await world.live(cancelled, canceller)
    true = world.requests()["a0-r0"]
    assert (true.finish, 3 * SECOND < true.end_ns < 4 * SECOND) == ("cancelled", True)


async def test_a_prompt_that_does_not_fit_is_refused_as_ds4_does_it() -> None:
    world = World(ctx=100)
    long = {"role": "user", "content": "word " * 500}
    (done,) = await world.complete(call(messages=[long]))
    assert done.status == 400
    assert done.error is not None
    assert done.error.startswith("context overflow: HTTP 400: Prompt has ")
    assert done.error.endswith("tokens, but the configured context size is 100 tokens (context_length_exceeded)")
    assert (done.t_first_byte, done.t_first_token, done.t_done) == (2 * WAY_NS, None, 2 * WAY_NS)
    assert world.requests() == {}
    assert b"ctx=" not in world.log().partition(b"listening")[2]


async def test_what_the_context_leaves_no_room_for_is_cut_at_its_length() -> None:
    (whole,) = await World().complete(call())
    assert whole.usage is not None
    assert whole.usage.prompt_tokens is not None
    (done,) = await World(ctx=whole.usage.prompt_tokens + 70).complete(call())
    assert done.usage is not None
    assert (done.finish, done.usage.completion_tokens, done.tool_calls, done.error) == ("length", 70, (), None)
    assert whole.content.startswith(done.content)


async def test_max_tokens_bounds_an_answer_and_a_call_that_is_torn_is_no_call() -> None:
    (whole,) = await World().complete(call())
    assert whole.usage is not None
    assert whole.usage.completion_tokens is not None
    (done,) = await World().complete(call(max_tokens=whole.usage.completion_tokens - 1))
    assert (done.finish, done.tool_calls) == ("length", ())
    assert (done.content, done.reasoning) == (whole.content, whole.reasoning)


async def test_an_only_token_that_is_a_mark_without_a_text_came_with_the_end() -> None:
    world = World(settings=replace(DEFAULT, lengths=replace(DEFAULT.lengths, thinking_share=0.0)))
    (done,) = await world.complete(call(max_tokens=1, extra={"ignore_eos": True}))
    # The prompt ends inside <think>: what is sampled first is its end.
    assert (done.usage is not None and done.usage.completion_tokens, done.content, done.reasoning) == (1, "", "")
    assert (done.t_first_token, done.token_ns, done.notes) == (done.t_done, (done.t_done,), (TEXTLESS,))
    assert len(done.chunk_ns) == 3
    (step,) = only(DecodeStep, world.events)
    true = world.requests()["a0-r0"]
    assert step.end_ns <= true.end_ns == done.t_done - WAY_NS


async def test_a_server_that_stops_ends_the_answer_with_an_error_and_refuses_the_next() -> None:
    world = World()
    found: list[Completion] = []

    async def asks() -> None:
        found.append(await world.transport.complete(call("a0-r0")))
        found.append(await world.transport.complete(call("a0-r1")))

    async def stops() -> None:
        await world.clock.sleep_until(3 * SECOND)
        world.face.shutdown(3 * SECOND)

    await world.live(asks, stops)
    first, second = found
    assert first.error == "server error: shutdown requested"
    assert (first.finish, first.usage) == ("error", None)
    assert (second.status, second.error) == (503, "HTTP 503: server is shutting down (server_error)")


async def test_it_can_be_seen_whether_an_answer_is_coming_in() -> None:
    world, seen = World(), list[tuple[int, bool]]()

    async def asks() -> None:
        await world.transport.complete(call("a0-r0"))

    async def looks() -> None:
        for at_ns in (1 * MS, 20 * SECOND, 900 * SECOND):
            await world.clock.sleep_until(at_ns)
            seen.append((at_ns, world.transport.decodes("a0-r0")))

    await world.live(asks, looks)
    true = world.requests()["a0-r0"]
    assert true.prefill_end_ns is not None
    assert 1 * MS < true.prefill_end_ns < 20 * SECOND < true.end_ns < 900 * SECOND
    assert seen == [(1 * MS, False), (20 * SECOND, True), (900 * SECOND, False)]


async def test_the_tokens_that_have_come_are_those_whose_way_is_over() -> None:
    world, seen = World(), list[tuple[int, int]]()

    async def asks() -> None:
        await world.transport.complete(call("a0-r0"))

    async def looks() -> None:
        for at_ns in (1 * MS, 20 * SECOND, 30 * SECOND, 900 * SECOND):
            await world.clock.sleep_until(at_ns)
            seen.append((at_ns, world.transport.tokens("a0-r0")))

    await world.live(asks, looks)
    came = world.requests()["a0-r0"]
    assert came.prefill_end_ns is not None
    assert came.prefill_end_ns < 20 * SECOND < 30 * SECOND < came.end_ns
    early, first, second, late = (tokens for _, tokens in seen)
    assert (early, late) == (0, 0)  # not begun; no longer open
    # A step of 0.1 s and 1 ms of the host for each token: 99 in ten seconds.
    assert abs(second - first - 10 / 0.101) <= 1


async def test_a_long_prefill_keeps_the_connection_alive_every_five_seconds() -> None:
    """30,000 tokens at 1 ms each in quanta of 1,000: progress each second, so a comment each five after the headers."""
    world, found, seen = World(), list[Completion](), list[bool]()
    text = {"role": "user", "content": "one two three four five six seven eight nine ten " * 1000}

    async def asks() -> None:
        found.append(await world.transport.complete(call(messages=[MESSAGES[0], text])))

    async def looks() -> None:
        await world.clock.sleep_until(8 * SECOND)
        seen.append(world.transport.decodes("a0-r0"))

    await world.live(asks, looks)
    (done,) = found
    assert seen == [False]  # the headers have come, and are no answer
    assert done.usage is not None
    assert done.usage.prompt_tokens is not None
    assert done.t_first_byte == only(Progress, world.events)[0].at_ns + WAY_NS
    prefill_s = (done.chunk_ns[0] - done.t_first_byte) / SECOND
    assert prefill_s > 9
    assert done.comments == int(prefill_s // 5)


async def test_without_thinking_nothing_is_thought_and_the_request_says_so() -> None:
    world = World()
    on, off = await world.complete(
        call("a0-r0"), call("a0-r1", extra={"thinking": {"type": "disabled"}, "parallel_tool_calls": False})
    )
    assert on.reasoning
    assert off.reasoning == ""
