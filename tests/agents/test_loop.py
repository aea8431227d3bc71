"""Does an agent keep its history linear, its limits, and its count of requests?"""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import pytest

from agentload.agents.actions import JsonActions
from agentload.agents.loop import FINISH, FRESH, KILLED, NUDGE, REPEATED, SYSTEM
from agentload.agents.outcome import AgentLimits, Doing, End, Outcome, Part, Sampling
from agentload.core.records import ChatCall, Completion
from agentload.errors import SandboxError
from tests.agents.loop_parts import FREE, Echo, S, Stage, fails, says, stage, uses

pytestmark = pytest.mark.anyio
READ = ("read", '{"path": "a.rs"}')


def balance(outcome: Outcome) -> int:
    """Requests that are neither a tool call that ran, nor an answer, nor a failure, nor cut off."""
    return outcome.requests - outcome.tool_calls - outcome.answers - outcome.failed_requests - outcome.cut_requests


# ---- history -------------------------------------------------------------------------------------------------------


async def test_each_request_begins_with_all_messages_of_the_one_before() -> None:
    here = stage(
        uses(READ),
        uses(("read", '{"path": "b.rs"}'), ("read", '{"path": "c.rs"}')),
        fails("HTTP 503: busy"),
        says("too early"),
        uses(READ),
        says("done"),
        limits=AgentLimits(min_tool_calls=3, min_growth_tokens=0),
    )
    await here.agent.work([Echo()])
    sent = [call.messages for call in here.model.calls]
    assert [len(messages) for messages in sent] == [2, 4, 6, 6, 8, 10]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    assert sent[0] == (
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "What does it do?"},
    )
    # The saved conversation is the same one, message by message.
    saved = here.history.of("message")
    assert [one["message"] for one in saved[:10]] == list(sent[-1])
    assert [one["number"] for one in saved] == list(range(1, 12))
    assert saved[10]["message"] == {"role": "assistant", "content": "done"}


async def test_tools_and_parameters_are_those_of_the_first_request_in_every_request() -> None:
    sampling = Sampling(seed=301, temperature=0.8, extra={"top_k": 20})
    here = stage(uses(READ), uses(READ), says("done"), sampling=sampling)
    await here.agent.work([Echo(), Echo("bash")])
    calls = here.model.calls
    assert [tool["function"]["name"] for tool in calls[0].tools] == ["read", "bash"]
    assert all(call.tools == calls[0].tools for call in calls)
    extra = {"parallel_tool_calls": False, "top_k": 20}
    assert [(call.temperature, call.extra, call.tool_choice) for call in calls] == [(0.8, extra, None)] * 3
    assert [(call.request, call.turn, call.seed) for call in calls] == [
        ("a0-r0", 0, 301_000),
        ("a0-r1", 1, 301_001),
        ("a0-r2", 2, 301_002),
    ]


async def test_only_the_first_of_several_calls_is_run_and_kept_in_the_history() -> None:
    tool = Echo()
    here = stage(uses(("read", '{"n": 1}'), ("read", '{"n": 2}'), ("bash", "{}")), says("done"))
    outcome = await here.agent.work([tool])
    assert tool.got == [{"n": 1}]
    said, *results = here.model.calls[1].messages[2:]
    assert [(call["id"], call["function"]["arguments"]) for call in said["tool_calls"]] == [("c0-0", '{"n": 1}')]
    assert results == [{"role": "tool", "tool_call_id": "c0-0", "content": "got [('n', 1)]"}]
    # What the model said in full is in the answer event.
    assert [call["id"] for call in here.history.of("answer")[0]["tool_calls"]] == ["c0-0", "c0-1", "c0-2"]
    assert here.events.of("request_done")[0]["tool_call_ids"] == ["c0-0", "c0-1", "c0-2"]
    assert (outcome.tool_calls, outcome.calls_not_run, outcome.failed_calls) == (1, 2, 0)
    assert balance(outcome) == 0


async def test_broken_arguments_are_valid_json_in_the_history_and_as_written_in_the_answer_event() -> None:
    tool = Echo()
    here = stage(uses(("read", '{"path": "a.rs')), says("done"))
    outcome = await here.agent.work([tool])
    assert tool.got == []
    call, result = here.model.calls[1].messages[2:]
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"unparsed": '{"path": "a.rs'}
    assert result["content"] == """read: expected arguments as a JSON object, got '{"path": "a.rs'"""
    assert here.history.of("answer")[0]["tool_calls"] == [{"id": "c0-0", "name": "read", "arguments": '{"path": "a.rs'}]
    assert (outcome.tool_calls, outcome.failed_calls) == (1, 1)


async def test_an_unknown_tool_is_answered_with_the_names_there_are() -> None:
    here = stage(uses(("write", "{}")), says("done"))
    outcome = await here.agent.work([Echo("read"), Echo("bash")])
    assert here.model.calls[1].messages[-1]["content"] == "there is no tool 'write': there are bash and read"
    assert (outcome.tool_calls, outcome.failed_calls, outcome.end) == (1, 1, End.ANSWERED)


async def test_json_actions_run_the_same_loop_with_user_messages() -> None:
    here = stage(
        says('I look. {"tool": "read", "arguments": {"path": "a.rs"}}'), says("It is a clock."), actions=JsonActions()
    )
    tool = Echo(text="fn main() {}")
    outcome = await here.agent.work([tool])
    assert tool.got == [{"path": "a.rs"}]
    first, second = here.model.calls
    assert (first.tools, second.tools) == ((), ())
    assert "read something" in first.messages[0]["content"]
    assert second.messages[2:] == (
        {"role": "assistant", "content": 'I look. {"tool": "read", "arguments": {"path": "a.rs"}}'},
        {"role": "user", "content": "Result of read:\nfn main() {}"},
    )
    assert (outcome.answer, outcome.tool_calls, outcome.calls_not_run) == ("It is a clock.", 1, 0)


# ---- counting ------------------------------------------------------------------------------------------------------


async def test_requests_are_tool_calls_plus_answers_plus_failed_ones() -> None:
    here = stage(
        uses(READ, usage=(100, 10)),
        fails("stall: nothing for 1800 s"),
        uses(READ, READ, usage=(150, 10)),
        says("early", usage=(200, 5)),
        uses(("read", '{"path": "b.rs"}'), usage=(250, 10)),
        says("done", usage=(300, 40)),
        limits=AgentLimits(min_tool_calls=3, min_growth_tokens=0),
    )
    outcome = await here.agent.work([Echo(detail={"path": "src/a.rs"})])
    assert outcome == Outcome(
        agent="a0",
        task="some-task",
        end=End.ANSWERED,
        why=None,
        answer="done",
        requests=6,
        failed_requests=1,
        answers=2,  # the early one counts
        nudges=1,
        tool_calls=3,
        tool_turns=3,
        calls_not_run=1,
        failed_calls=0,
        repeated_calls=1,  # a.rs twice
        first_prompt_tokens=100,
        last_context_tokens=340,
        paths_read=["src/a.rs"] * 3,
        parts=[Part("some-task", 0, End.ANSWERED, "done", requests=6, tool_calls=3, paths_read=3)],
    )
    assert outcome.growth_tokens == 240
    assert outcome is here.agent.outcome
    assert balance(outcome) == 0


async def test_without_usage_the_growth_is_unknown_and_not_zero() -> None:
    here = stage(uses(READ), says("done"))
    outcome = await here.agent.work([Echo()])
    assert (outcome.first_prompt_tokens, outcome.last_context_tokens, outcome.growth_tokens) == (None, None, None)


async def test_a_failed_tool_is_counted_and_its_path_is_not_taken_as_read() -> None:
    here = stage(uses(READ), says("done"))
    outcome = await here.agent.work([Echo(ok=False, text="read: no such file", detail={"path": "a.rs"})])
    assert (outcome.tool_calls, outcome.failed_calls, outcome.paths_read) == (1, 1, [])


async def test_a_call_made_before_runs_again_with_a_note_that_names_files_not_read_yet() -> None:
    known = ["a.rs", "b.rs", "c.rs", "d.rs", "e.rs", "f.rs"]
    here = stage(uses(READ), uses(READ), says("done"), known_paths=known)
    tool = Echo(text="fn a", detail={"path": "a.rs"})
    outcome = await here.agent.work([tool])
    assert (len(tool.got), outcome.repeated_calls) == (2, 1)
    assert here.model.calls[1].messages[-1]["content"] == "fn a"
    note = f"{REPEATED} {FRESH} b.rs, c.rs, d.rs, e.rs, f.rs."
    assert here.model.calls[2].messages[-1]["content"] == f"fn a\n{note}"


async def test_a_failed_call_comes_back_with_the_files_there_are_those_of_the_task_first() -> None:
    here = stage(uses(READ), says("done"), known_paths=["a.rs", "b.rs"], prompt="Look at b.rs.")
    await here.agent.work([Echo(ok=False, text="no such file")])
    assert here.model.calls[1].messages[-1]["content"] == f"no such file\n{FRESH} b.rs, a.rs."


async def test_a_repeated_call_names_no_file_where_none_are_known() -> None:
    here = stage(uses(READ), uses(READ), says("done"))
    await here.agent.work([Echo(text="fn a")])
    assert here.model.calls[2].messages[-1]["content"] == f"fn a\n{REPEATED}"


async def test_notes_stay_within_the_cap_of_a_tool_result() -> None:
    # Nothing is left of the context: the least cap, 400 bytes. The second call is a repeated one.
    limits = replace(FREE, tool_calls=10, context_tokens=9000, answer_tokens=10)
    known = [f"src/module_{number}.rs" for number in range(9)]
    here = stage(uses(READ), uses(READ), says("done"), limits=limits, known_paths=known)
    await here.agent.work([Echo(text="é" * 200)])
    first, second = (call.messages[-1]["content"] for call in here.model.calls[1:])
    assert first == "é" * 200
    assert 300 < len(second.encode()) <= 400
    assert REPEATED in second
    assert "bytes cut here" in second
    assert here.events.of("tool_done")[1]["truncated"] is True


# ---- ends and limits -----------------------------------------------------------------------------------------------


async def test_an_early_answer_is_sent_back_twice_and_then_taken() -> None:
    here = stage(says("one"), says("two"), says("three"), limits=AgentLimits(min_tool_calls=1, nudges=2))
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.answer, outcome.answers, outcome.nudges) == (End.ANSWERED, "three", 3, 2)
    nudge = f"{NUDGE} Call read or bash."
    assert [message["content"] for message in here.model.calls[2].messages[2:]] == ["one", nudge, "two", nudge]


async def test_where_files_are_known_a_nudge_names_one_not_read_yet_and_first_one_of_the_task() -> None:
    # The prompt of the stage names "it" only: a file of that name comes first.
    here = stage(
        says("early"),
        uses(("read", '{"path": "it"}')),
        says("early again"),
        says("done"),
        limits=AgentLimits(min_tool_calls=2, nudges=2),
        known_paths=["a.rs", "it"],
    )
    await here.agent.work([Echo(detail={"path": "it"})])
    assert here.model.calls[1].messages[-1]["content"] == f"{NUDGE} Read it."
    assert here.model.calls[3].messages[-1]["content"] == f"{NUDGE} Read a.rs."


async def test_with_resample_an_early_answer_leaves_no_trace_in_the_history_and_the_seed_moves_on() -> None:
    limits = AgentLimits(min_tool_calls=1, min_growth_tokens=0, nudges=2, resample=True)
    here = stage(says("early"), uses(READ), says("done"), limits=limits)
    outcome = await here.agent.work([Echo()])
    first, second, third = here.model.calls
    assert second.messages == first.messages
    assert (first.seed, second.seed) == (0, 1)
    assert len(third.messages) == 4
    assert [one["content"] for one in here.history.of("answer")] == ["early", "", "done"]
    assert (outcome.answers, outcome.nudges, outcome.tool_calls, outcome.answer) == (2, 1, 1, "done")
    assert balance(outcome) == 0


async def test_too_little_growth_is_sent_back_although_the_calls_are_enough() -> None:
    limits = AgentLimits(min_tool_calls=1, min_growth_tokens=1000, nudges=1)
    here = stage(
        uses(READ, usage=(100, 10)), says("a", usage=(1000, 99)), says("b", usage=(1001, 99)), limits=limits
    )  # growth: 1099 - 100 = 999, then 1100 - 100 = 1000
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.nudges, outcome.answer, outcome.growth_tokens) == (End.ANSWERED, 1, "b", 1000)


@pytest.mark.parametrize(("without_tools", "choice"), [(False, None), (True, "none")])
async def test_stop_at_minimum_asks_for_the_final_answer_as_soon_as_both_minima_are_reached(
    *, without_tools: bool, choice: str | None
) -> None:
    # A tool choice of "none" takes the tools out of ds4's prompt and undoes its prefix cache: only where asked for.
    limits = AgentLimits(
        min_tool_calls=2,
        min_growth_tokens=500,
        stop_at_minimum=True,
        answer_tokens=70,
        final_tokens=90,
        final_without_tools=without_tools,
    )
    here = stage(
        uses(READ, usage=(100, 10)),
        uses(READ, usage=(300, 10)),  # 2 calls, growth 210
        uses(READ, usage=(590, 10)),  # growth 500
        says("final", usage=(700, 10)),
        limits=limits,
    )
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.answer, outcome.tool_calls, outcome.requests) == (End.WRAPPED_UP, "final", 3, 4)
    last = here.model.calls[-1]
    assert last.messages[-1] == {"role": "user", "content": FINISH}
    assert [(call.max_tokens, call.tool_choice) for call in here.model.calls] == [(70, None)] * 3 + [(90, choice)]
    assert last.tools == here.model.calls[0].tools  # leaving them out would undo the prefix cache


async def test_a_call_instead_of_the_final_answer_is_not_run_and_ends_the_agent() -> None:
    tool = Echo()
    here = stage(uses(READ), uses(READ, READ), limits=replace(FREE, tool_calls=1))
    outcome = await here.agent.work([tool])
    assert (outcome.end, outcome.calls_not_run, len(tool.got)) == (End.NO_ANSWER, 2, 1)  # both of the last answer
    assert outcome.why == "asked for its final answer, it called read"
    assert balance(outcome) == 1  # the one that ended in a call


async def test_one_asked_for_its_final_answer_in_a_full_context_says_so_where_it_gives_none() -> None:
    limits = replace(FREE, context_tokens=1000, answer_tokens=100, final_tokens=150)
    here = stage(uses(READ, usage=(700, 50)), uses(READ), limits=limits)
    outcome = await here.agent.work([Echo(text="")])
    assert outcome.end is End.NO_ANSWER
    assert outcome.why == "asked for its final answer because its context was nearly full, it called read"


async def test_the_last_turn_is_followed_by_one_request_for_the_final_answer() -> None:
    here = stage(uses(READ), uses(READ), says("final"), limits=replace(FREE, turns=2))
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.requests, outcome.answer) == (End.WRAPPED_UP, 3, "final")


async def test_turns_that_a_failure_used_up_are_followed_by_one_request_for_the_final_answer() -> None:
    here = stage(uses(READ), fails("stall: x"), says("final"), limits=replace(FREE, turns=2))
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.requests, outcome.failed_requests, outcome.answer) == (End.WRAPPED_UP, 3, 1, "final")
    assert here.model.calls[2].messages[-1] == {"role": "user", "content": FINISH}
    assert balance(outcome) == 0


async def test_a_final_request_that_fails_when_the_turns_are_used_up_ends_without_an_answer() -> None:
    here = stage(uses(READ), fails("stall: x"), fails("stall: y"), limits=replace(FREE, turns=2))
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.requests, outcome.failed_requests) == (End.NO_ANSWER, 3, 2)
    assert outcome.why == "2 turns were used up, and its final answer failed: stall: y"
    assert here.agent.first_error == (10, "stall: x")


@pytest.mark.parametrize("resample", [False, True])
async def test_an_early_answer_at_the_last_turn_is_followed_by_the_request_for_the_final_one(*, resample: bool) -> None:
    limits = AgentLimits(turns=2, min_tool_calls=5, min_growth_tokens=0, nudges=9, resample=resample)
    here = stage(uses(READ), says("early"), says("final"), limits=limits)
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.requests, outcome.answer, outcome.nudges) == (End.WRAPPED_UP, 3, "final", 1)
    last = here.model.calls[-1]
    assert last.tool_choice is None
    # No nudge to go on beside the request to stop.
    said = [message["content"] for message in last.messages[4:]]
    assert said == ([FINISH] if resample else ["early", FINISH])


@pytest.mark.parametrize(("prompt", "ends"), [(699, False), (700, True)])
async def test_the_context_is_full_when_an_answer_and_the_final_one_no_longer_fit(prompt: int, *, ends: bool) -> None:
    # 1000 tokens of context - 100 for an answer - 150 for the final one = 750; 50 were decoded, the tool gave nothing.
    limits = replace(FREE, context_tokens=1000, answer_tokens=100, final_tokens=150)
    here = stage(uses(READ, usage=(prompt, 50)), says("end"), limits=limits)
    outcome = await here.agent.work([Echo(text="")])
    assert outcome.end == (End.CONTEXT if ends else End.ANSWERED)
    assert (here.model.calls[1].messages[-1]["content"] == FINISH) is ends


async def test_a_tool_result_counts_as_a_third_of_its_bytes_until_the_next_usage() -> None:
    # 600 + 50 used, 303 bytes make 101 tokens: 751 are more than the 750 there are.
    limits = replace(FREE, context_tokens=1000, answer_tokens=100, final_tokens=150)
    here = stage(uses(READ, usage=(600, 50)), says("end"), limits=limits)
    assert (await here.agent.work([Echo(text="é" * 151 + "x")])).end is End.CONTEXT


async def test_at_the_end_of_the_wall_time_the_request_in_flight_is_cut_off_and_kept_as_that() -> None:
    # Each request takes 10 s: 25 s end in the middle of the third.
    here = stage(
        uses(READ, usage=(100, 10)),
        uses(READ, usage=(200, 10)),
        says("half an ans"),
        limits=replace(FREE, wall_s=25.0),
        takes_ns=10 * S,
    )
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.why) == (End.OUT_OF_TIME, "cut off: by the test (wall time 25 s)")
    assert (outcome.requests, outcome.cut_requests, outcome.failed_requests, outcome.answers) == (3, 1, 0, 0)
    assert (outcome.answered_requests, outcome.answer, balance(outcome)) == (2, "", 0)
    assert here.clock.at == 1_025 * S
    assert {call.until_ns for call in here.model.calls} == {1_025 * S}
    assert here.events.of("request_done")[-1]["error"] == "cut off: by the test"
    # What came of it is in the answer's record, and no message of the conversation.
    cut = here.history.of("answer")[-1]
    assert (cut["content"], cut["error"], cut["finish"]) == ("half an ans", "cut off: by the test", None)
    assert here.history.kinds()[-1] == "answer"
    assert (here.agent.doing, here.agent.request) == (Doing.DONE, None)


async def test_a_tool_that_runs_at_the_end_of_the_wall_time_is_killed_and_that_is_its_result() -> None:
    tool = Echo("bash", before=anyio.sleep_forever)
    here = stage(uses(("bash", "{}")), limits=replace(FREE, wall_s=30.0), takes_ns=10 * S)
    outcome = await here.agent.work([tool])
    assert (outcome.end, outcome.why) == (End.OUT_OF_TIME, "cut off: its time was over while bash ran (wall time 30 s)")
    assert (outcome.requests, outcome.tool_calls, outcome.failed_calls, balance(outcome)) == (1, 1, 1, 0)
    assert (tool.got, here.clock.at, here.clock.slept) == ([], 1_030 * S, [20 * S])
    done = here.events.of("tool_done")[0]
    assert (done["ok"], done["detail"]) == (False, {"ended": "out of time"})
    assert here.history.of("message")[-1]["message"] == {"role": "tool", "tool_call_id": "c0-0", "content": KILLED}


async def test_no_request_is_sent_when_the_wall_time_is_over_between_two() -> None:
    here = stage(uses(READ), uses(READ), limits=replace(FREE, wall_s=20.0), takes_ns=10 * S)
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.why) == (End.OUT_OF_TIME, "its time was over between two requests (wall time 20 s)")
    assert (outcome.requests, outcome.tool_calls, outcome.cut_requests, balance(outcome)) == (2, 2, 0, 0)


async def test_the_pause_before_a_retry_ends_with_the_wall_time() -> None:
    here = stage(fails("stall: x"), limits=replace(FREE, wall_s=1.5), takes_ns=S)
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.requests, here.clock.slept) == (End.OUT_OF_TIME, 1, [S // 2])


async def test_an_error_of_a_tool_that_is_no_result_arrives_as_itself() -> None:
    async def breaks() -> None:
        raise SandboxError("the sandbox broke")

    here = stage(uses(READ))
    with pytest.raises(SandboxError, match="the sandbox broke"):
        await here.agent.work([Echo(before=breaks)])


async def test_what_an_agent_is_at_can_be_looked_at_meanwhile() -> None:
    seen: list[tuple[Doing, str | None, int]] = []

    async def look() -> None:
        seen.append((here.agent.doing, here.agent.request, here.agent.context_tokens))

    def answering(call: ChatCall) -> Completion:
        seen.append((here.agent.doing, here.agent.request, here.agent.context_tokens))
        return uses(READ, usage=(100, 10))(call) if call.turn == 0 else says("done")(call)

    here = stage(answering, answering)
    seen.append((here.agent.doing, here.agent.request, here.agent.context_tokens))
    await here.agent.work([Echo(text="x" * 300, before=look)])
    seen.append((here.agent.doing, here.agent.request, here.agent.context_tokens))
    # 110 by usage; the result's 300 bytes are about 100 tokens more, which the server has not counted yet.
    assert seen == [
        (Doing.WAITING, None, 0),
        (Doing.REQUEST, "a0-r0", 0),
        (Doing.TOOL, None, 110),
        (Doing.REQUEST, "a0-r1", 110),
        (Doing.DONE, None, 110),
    ]


async def test_three_failures_in_a_row_end_the_agent_a_second_apart() -> None:
    here = stage(fails("stall: 1"), uses(READ), fails("stall: 2"), fails("stall: 3"), fails("stall: 4"))
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.why) == (End.FAILED, "stall: 4")
    assert (outcome.requests, outcome.failed_requests, outcome.tool_calls) == (5, 4, 1)
    assert here.clock.slept == [S, S, S]  # not after the last
    # A retry is a request of its own, with the same messages.
    assert here.model.calls[2].messages == here.model.calls[4].messages
    assert [call.request for call in here.model.calls] == [f"a0-r{turn}" for turn in range(5)]


async def test_a_context_overflow_is_not_tried_again() -> None:
    why = "context overflow: HTTP 400: the request exceeds the available context size (exceed_context_size_error)"
    here = stage(uses(READ), fails(why))
    outcome = await here.agent.work([Echo()])
    assert (outcome.end, outcome.why, outcome.failed_requests) == (End.CONTEXT, why, 1)
    assert here.clock.slept == []


async def test_a_cancellation_leaves_what_was_done_so_far() -> None:
    here: Stage

    async def never(_: ChatCall) -> Completion:
        scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    class Stuck:
        """Answers once, then never."""

        async def complete(self, call: ChatCall) -> Completion:
            return uses(READ, usage=(100, 10))(call) if call.turn == 0 else await never(call)

    here = stage()
    here.agent._transport = Stuck()
    with anyio.CancelScope() as scope:
        await here.agent.work([Echo(detail={"path": "a.rs"})])
    outcome = here.agent.outcome
    assert (outcome.end, outcome.requests, outcome.tool_calls, outcome.answers) == (End.CANCELLED, 2, 1, 0)
    assert (outcome.last_context_tokens, outcome.paths_read) == (110, ["a.rs"])
    assert here.events.kinds()[-1] == "request_sent"


# ---- how much a tool may print --------------------------------------------------------------------------------------


def test_the_output_limit_is_an_equal_share_of_what_is_left() -> None:
    # (180,000 - 8,192 - 34 * 64) / 34 = 4,989.2 tokens; 3 bytes each: 14,967 bytes.
    assert stage().agent.output_limit() == 14_967
    # With one call left, (100,000 - 8,192 - 64) * 3 = 275,232 bytes: the cap holds.
    assert stage(limits=AgentLimits(tool_calls=1, context_tokens=100_000)).agent.output_limit() == 50_000
    # Nothing left: the least.
    assert stage(limits=AgentLimits(tool_calls=10, context_tokens=8192)).agent.output_limit() == 400


async def test_the_output_limit_follows_what_was_used() -> None:
    limits = replace(FREE, tool_calls=4, context_tokens=10_000, answer_tokens=100, final_tokens=1000)
    limit_at: list[int] = []

    class Asking(Echo):
        """Notes the limit as a real tool would ask for it: in its call."""

        async def call(self, arguments: Any) -> Any:
            limit_at.append(here.agent.output_limit())
            return await super().call(arguments)

    here = stage(uses(READ, usage=(2000, 100)), uses(READ, usage=(3000, 180)), says("done"), limits=limits)
    await here.agent.work([Asking(text="")])
    # The call that runs is counted already: 3 and 2 are left after it.
    # (10,000 - 2,100 - 1,000 - 3 * 64) / 3 = 2,236 tokens; (10,000 - 3,180 - 1,000 - 2 * 64) / 2 = 2,846.
    assert limit_at == [6708, 8538]


# ---- events --------------------------------------------------------------------------------------------------------


async def test_events_come_in_order_with_the_times_of_what_they_tell() -> None:
    here = stage(uses(READ), says("done"))
    await here.agent.work([Echo(text="é", detail={"path": "a.rs"})])
    start = 1_000 * S
    who = {"request": "a0-r0", "agent": "a0", "turn": 0}
    tool = {"agent": "a0", "turn": 0, "call": "c0-0", "tool": "read"}
    assert here.events.all[:3] == [
        ("request_sent", start, who),
        ("first_byte", 8, who),
        ("first_token", 9, who),
    ]
    kind, at, fields = here.events.all[3]
    assert (kind, at, fields["t_sent"], fields["tool_call_ids"]) == ("request_done", 10, 7, ["c0-0"])
    assert here.events.all[4:6] == [
        ("tool_started", start + S, tool),
        (
            "tool_done",
            start + S,
            {**tool, "ok": True, "text_bytes": 2, "truncated": False, "detail": {"path": "a.rs"}},
        ),
    ]
    assert here.events.kinds()[6:] == ["request_sent", "first_byte", "first_token", "request_done"]
    assert here.history.kinds() == [
        *("tools", "message", "message", "request", "answer", "message", "message"),
        *("request", "answer", "message"),
    ]
    assert here.history.of("request")[1]["messages"] == 4


async def test_a_failure_before_the_first_byte_has_no_event_for_one() -> None:
    here = stage(fails("connection failed: refused"), says("done"))
    await here.agent.work([Echo()])
    assert here.events.kinds()[:3] == ["request_sent", "request_done", "request_sent"]
    assert here.events.of("request_done")[0]["error"] == "connection failed: refused"
