"""Do chained tasks stay one conversation with one set of limits, and do parallel calls keep their order?"""

from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest

from agentload.agents.actions import NativeActions
from agentload.agents.loop import FINISH, NUDGE, SYSTEM_PARALLEL, Agent
from agentload.agents.outcome import AgentLimits, End, Part, Sampling
from agentload.errors import SandboxError
from tests.agents.loop_parts import FREE, Echo, Events, ManualClock, Model, Reply, S, Stage, fails, says, uses
from tests.processes import WAIT_S

pytestmark = pytest.mark.anyio
READ = ("read", '{"path": "a.rs"}')
FURTHER = (("second", "What next?\n"), ("third", "And then?"))


def chain(*replies: Reply, limits: AgentLimits = FREE, parallel: bool = False, tasks: int = 3) -> Stage:
    clock, events, history = ManualClock(), Events(), Events()
    model = Model(clock, replies)
    agent = Agent(
        "a0",
        "first",
        "What is it?",
        transport=model,
        actions=NativeActions(parallel=parallel),
        limits=limits,
        sampling=Sampling(),
        clock=clock,
        events=events,
        history=history,
        further=FURTHER[: tasks - 1],
    )
    return Stage(model, clock, events, history, agent)


# ---- chained tasks -------------------------------------------------------------------------------------------------


async def test_the_next_task_comes_after_the_final_answer_in_the_same_conversation() -> None:
    here = chain(uses(READ), says("one"), uses(READ), uses(READ), says("two"), says("three"))
    tool = Echo(detail={"path": "src/a.rs"})
    outcome = await here.agent.work([tool])
    sent = [call.messages for call in here.model.calls]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    said = [(one["role"], one["content"]) for one in sent[-1][1:] if one["role"] == "user" or one.get("content")]
    assert [text for role, text in said if role == "user"] == ["What is it?", "What next?", "And then?"]
    assert said.index(("assistant", "one")) + 1 == said.index(("user", "What next?"))
    assert [call.request for call in here.model.calls] == [f"a0-r{number}" for number in range(6)]
    assert (outcome.end, outcome.task, outcome.answer, outcome.answers) == (End.ANSWERED, "first", "three", 3)
    assert outcome.parts == [
        Part("first", 0, End.ANSWERED, "one", requests=2, tool_calls=1, paths_read=1),
        Part("second", 2, End.ANSWERED, "two", requests=3, tool_calls=2, paths_read=3),
        Part("third", 5, End.ANSWERED, "three", requests=1, tool_calls=0, paths_read=3),
    ]
    assert outcome.requests == outcome.tool_turns + outcome.answers


async def test_the_limits_are_the_conversations_and_a_task_that_they_leave_no_room_for_is_not_begun() -> None:
    limits = AgentLimits(tool_calls=3, min_tool_calls=0, min_growth_tokens=0)
    here = chain(uses(READ), says("one"), uses(READ), uses(READ), says("two"), limits=limits)
    outcome = await here.agent.work([Echo()])
    asked = [one["content"] for one in here.model.calls[-1].messages if one["role"] == "user"]
    assert asked == ["What is it?", "What next?", FINISH]
    assert (outcome.end, outcome.why) == (End.WRAPPED_UP, "its limits were reached after 2 of 3 tasks")
    assert [(part.task, part.end) for part in outcome.parts] == [("first", End.ANSWERED), ("second", End.WRAPPED_UP)]


async def test_a_task_is_not_begun_in_a_context_that_its_prompt_would_fill() -> None:
    limits = AgentLimits(
        context_tokens=1000, answer_tokens=100, final_tokens=100, min_tool_calls=0, min_growth_tokens=0
    )
    # 800 tokens and the answers' room would be full; the prompt's 11 bytes are 3 tokens by estimate.
    for used, begun in ((796, 2), (797, 1)):
        here = chain(says("one", usage=(used - 1, 1)), says("two"), limits=limits, tasks=2)
        outcome = await here.agent.work([Echo()])
        assert (len(outcome.parts), outcome.end) == (begun, End.ANSWERED if begun == 2 else End.CONTEXT)


async def test_each_task_is_to_bring_its_share_of_the_least_work() -> None:
    limits = AgentLimits(min_tool_calls=3, min_growth_tokens=0, nudges=5)
    here = chain(
        *(says("too early"), uses(READ), says("one")),
        *(uses(READ), says("two")),
        *(says("too early"), uses(READ), says("three")),
        limits=limits,
    )
    outcome = await here.agent.work([Echo()])
    asked = [one["content"] for one in here.model.calls[-1].messages if one["role"] == "user"]
    nudge = f"{NUDGE} Call read or bash."
    assert asked == ["What is it?", nudge, "What next?", "And then?", nudge]
    assert (outcome.tool_calls, outcome.nudges, here.agent.too_little) == (3, 2, False)


async def test_an_agent_that_stops_at_the_minimum_stops_at_each_tasks_share() -> None:
    limits = AgentLimits(min_tool_calls=3, min_growth_tokens=0, stop_at_minimum=True)
    once = (uses(READ), says("done"))
    here = chain(*once, *once, *once, limits=limits)
    outcome = await here.agent.work([Echo()])
    asked = [one["content"] for one in here.model.calls[-1].messages if one["role"] == "user"]
    assert asked == ["What is it?", FINISH, "What next?", FINISH, "And then?", FINISH]
    assert [part.end for part in outcome.parts] == [End.WRAPPED_UP] * 3
    assert (outcome.end, outcome.why) == (End.WRAPPED_UP, None)


async def test_a_task_that_fails_ends_the_conversation() -> None:
    here = chain(says("one"), uses(READ), *[fails("HTTP 503: busy")] * 3)
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.answer) == (End.FAILED, "one")
    assert outcome.parts[1] == Part("second", 1, End.FAILED, "", requests=4, tool_calls=1)
    assert len(outcome.parts) == 2


async def test_after_a_cancellation_the_task_at_hand_is_written_down_too() -> None:
    here = chain(says("one"), uses(READ))

    async def stop() -> None:
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        await here.agent.work([Echo(before=stop)])
    assert [(part.end, part.requests, part.tool_calls) for part in here.agent.outcome.parts] == [
        (End.ANSWERED, 1, 0),
        (End.CANCELLED, 1, 1),
    ]


# ---- parallel calls ------------------------------------------------------------------------------------------------


async def test_calls_of_one_answer_run_at_once_and_their_results_come_in_the_order_of_the_calls() -> None:
    third, running = anyio.Event(), list[str]()

    async def first_waits_for_the_third() -> None:
        running.append("read")
        await third.wait()

    async def go() -> None:
        running.append("bash")
        third.set()

    read, bash = Echo(before=first_waits_for_the_third), Echo("bash", before=go)
    here = chain(
        uses(("read", '{"n": 1}'), ("read", '{"n": 2}'), ("bash", '{"n": 3}')), says("done"), parallel=True, tasks=1
    )
    with anyio.fail_after(WAIT_S):
        outcome = await here.agent.work([read, bash])
    assert running == ["read", "read", "bash"]
    messages = here.model.calls[1].messages
    assert messages[0] == {"role": "system", "content": SYSTEM_PARALLEL}
    said, *results = messages[2:]
    assert [call["id"] for call in said["tool_calls"]] == ["c0-0", "c0-1", "c0-2"]
    assert [(one["tool_call_id"], one["content"]) for one in results] == [
        ("c0-0", "got [('n', 1)]"),
        ("c0-1", "got [('n', 2)]"),
        ("c0-2", "got [('n', 3)]"),
    ]
    assert (outcome.tool_calls, outcome.tool_turns, outcome.calls_not_run, outcome.requests) == (3, 1, 0, 2)
    assert [call.extra for call in here.model.calls] == [{"parallel_tool_calls": True}] * 2
    assert here.events.kinds().count("tool_done") == 3


async def test_of_one_answers_calls_no_more_are_run_than_the_limit_leaves() -> None:
    limits = AgentLimits(tool_calls=3, min_tool_calls=0, min_growth_tokens=0)
    four = uses(*[("read", f'{{"n": {n}}}') for n in range(4)])
    here = chain(uses(READ), four, says("done"), limits=limits, parallel=True, tasks=1)
    outcome = await here.agent.work([Echo()])
    assert (outcome.tool_calls, outcome.calls_not_run, outcome.end) == (3, 2, End.WRAPPED_UP)
    kept = [call["id"] for one in here.model.calls[-1].messages for call in one.get("tool_calls", ())]
    assert kept == ["c0-0", "c1-0", "c1-1"]


async def test_results_that_come_together_share_the_room_of_the_context() -> None:
    limits = AgentLimits(tool_calls=4, context_tokens=10_000, final_tokens=1000, min_tool_calls=0, min_growth_tokens=0)
    seen: list[int] = []
    here = chain(
        uses(READ, ("read", "{}"), ("read", '{"n": 1}'), usage=(90, 10)),
        says("done"),
        limits=limits,
        parallel=True,
        tasks=1,
    )

    async def ask() -> None:
        seen.append(here.agent.output_limit())

    await here.agent.work([Echo(before=ask)])
    # 10,000 - 100 used - 1,000 for the answer; three results now and one call more: min 3 shares of that, at 3 bytes.
    room = 10_000 - 100 - 1000 - 3 * 64
    assert seen == [int(room / 3 * 3.0)] * 3


async def test_two_calls_with_one_id_are_one() -> None:
    calls = uses(("read", '{"n": 1}'), ("read", '{"n": 2}'), ("read", '{"n": 3}'), ids=["x", "x", "y"])
    here = chain(calls, says("done"), parallel=True, tasks=1)
    tool = Echo()
    outcome = await here.agent.work([tool])
    assert tool.got == [{"n": 1}, {"n": 3}]
    assert outcome.calls_not_run == 1


async def test_a_call_that_repeats_one_of_the_same_answer_counts_as_repeated() -> None:
    here = chain(uses(READ, READ), says("done"), parallel=True, tasks=1)
    assert (await here.agent.work([Echo()])).repeated_calls == 1


async def test_at_the_end_of_the_time_the_calls_that_still_run_are_killed_and_the_others_results_kept() -> None:
    limits = AgentLimits(wall_s=10, min_tool_calls=0, min_growth_tokens=0)
    here = chain(uses(READ, ("bash", "{}")), limits=limits, parallel=True, tasks=1)
    outcome = await here.agent.work([Echo(), Echo("bash", before=anyio.sleep_forever)])
    assert (outcome.end, outcome.tool_calls, outcome.failed_calls) == (End.OUT_OF_TIME, 2, 1)
    assert "while bash ran" in (outcome.why or "")
    results = [one["message"]["content"] for one in here.history.of("message") if one["message"]["role"] == "tool"]
    assert results == ["got [('path', 'a.rs')]", "[killed: the agent's time was over]"]
    assert here.clock.at == 1_010 * S


async def test_an_error_of_the_sandbox_arrives_as_itself_and_ends_the_other_calls() -> None:
    async def break_it() -> None:
        raise SandboxError("broken")

    here = chain(uses(READ, ("bash", "{}")), parallel=True, tasks=1)
    with pytest.raises(SandboxError, match="broken"):
        await here.agent.work([Echo(before=anyio.sleep_forever), Echo("bash", before=break_it)])


async def test_one_call_an_answer_stays_the_default() -> None:
    here = chain(uses(READ, ("read", "{}")), says("done"), tasks=1)
    outcome = await here.agent.work([Echo()])
    assert (outcome.tool_calls, outcome.tool_turns, outcome.calls_not_run) == (1, 1, 1)
