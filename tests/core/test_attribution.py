"""Joining the log with the client's view: rows worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from agentload.core.attribution import Attribution, Group, attribute
from agentload.core.evidence import exact_pairs
from agentload.core.records import (
    Boot,
    Completion,
    LineCount,
    LogFacts,
    LoggedRequest,
    Match,
    Proof,
    Request,
    Segment,
    ServerTimings,
    Source,
    Timeline,
    ToolCall,
    Usage,
)

MS = 1_000_000
S = 1_000 * MS
T0 = 1_795_958_524 * S


def answer(name: str, sent: float, done: float, **fields: Any) -> Completion:
    """An answer sent and done at these seconds after T0, its first token halfway."""
    begin, end = T0 + round(sent * S), T0 + round(done * S)
    values: dict[str, Any] = {
        "request": name, "agent": name.partition("-")[0], "turn": 0, "t_sent": begin, "t_first_byte": begin + MS,
        "t_first_token": (begin + end) // 2, "t_done": end, "status": 200,
    }  # fmt: skip
    return Completion(**(values | fields))


def logged(label: str, start: float, end: float, **fields: Any) -> LoggedRequest:
    """A request of the log at work between these seconds after T0: half prefill, half decode."""
    begin, stop = T0 + round(start * S), T0 + round(end * S)
    middle = (begin + stop) // 2
    values: dict[str, Any] = {
        "boot": 0, "label": label, "slot": 0, "prompt_tokens": None, "cached_tokens": None, "new_prefill_tokens": None,
        "decoded_tokens": None, "t_slot": begin, "prefill_start": begin, "prefill_end": middle, "decode_start": middle,
        "decode_end": stop, "t_end": stop, "prefill_ms": None, "decode_ms": None, "finish": None,
    }  # fmt: skip
    return LoggedRequest(**(values | fields))


def counts(prompt: int, cached: int, decoded: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt, "cached_tokens": cached, "new_prefill_tokens": prompt - cached,
        "decoded_tokens": decoded,
    }  # fmt: skip


def facts_of(*requests: LoggedRequest, timeline: Timeline = Timeline.UNIX, error_ns: int | None = 0) -> LogFacts:
    return LogFacts("llamacpp", timeline, 1_000, error_ns, 0, LineCount(0, 0, 0), (Boot(0, 1, None),), (), requests, ())


def join(
    completions: list[Completion], *requests: LoggedRequest, segments: tuple[Segment, ...] = (), **facts: Any
) -> Attribution:
    return attribute("r1", completions, facts_of(*requests, **facts), segments)


def pairs(found: Attribution) -> dict[str, tuple[str | None, Match]]:
    return {row.request: (row.label, row.match) for row in found.requests}


def only(found: Attribution) -> Request:
    (row,) = found.requests
    return row


# ---- exact keys ----------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_answers_timings_are_an_exact_key_even_without_a_common_clock() -> None:
    found = join(
        [
            answer("a0-t0", 0, 9, timings=ServerTimings(795, 144, 10221.777, 33, 5291.354)),
            answer("a1-t0", 0, 9, timings=ServerTimings(795, 144, 10221.763, 33, 5291.354)),
        ],
        logged("task 38", 0, 1, **counts(939, 795, 33), prefill_ms=10221.78, decode_ms=5291.35),
        logged("task 40", 0, 1, **counts(939, 795, 33), prefill_ms=10221.76, decode_ms=5291.35),
        timeline=Timeline.PROCESS,
        error_ns=None,
    )
    assert pairs(found) == {"a0-t0": ("task 38", Match.EXACT), "a1-t0": ("task 40", Match.EXACT)}


@pytest.mark.parametrize("told", [100.125, 100.135, 100.1349999, 100.1250001])
def test_a_half_may_have_been_rounded_either_way(told: float) -> None:
    found = join(
        [answer("a0-t0", 0, 9, timings=ServerTimings(0, 10, told, 5, 50.0))],
        logged("task 1", 1, 2, **counts(10, 0, 5), prefill_ms=100.13, decode_ms=50.0),
    )
    assert only(found).match is Match.EXACT


def test_timings_that_differ_by_more_than_rounding_are_another_request() -> None:
    found = join(
        [answer("a0-t0", 0, 9, timings=ServerTimings(0, 10, 100.12, 5, 50.0))],
        logged("task 1", 1, 2, **counts(10, 0, 5), prefill_ms=100.13, decode_ms=50.0),
    )
    assert pairs(found) == {"a0-t0": (None, Match.CLIENT_ONLY), "log boot 0 task 1": ("task 1", Match.SERVER_ONLY)}


def test_a_key_that_fits_two_is_settled_by_time_and_then_called_unique() -> None:
    key: dict[str, Any] = {**counts(10, 0, 1), "prefill_ms": 20.0, "decode_ms": 0.0}
    timings = ServerTimings(0, 10, 20.0, 1, 0.0)
    found = join(
        [answer("a0-t0", 0, 9, timings=timings), answer("a1-t0", 20, 29, timings=timings)],
        logged("task 2", 21, 22, **key),
        logged("task 1", 1, 2, **key),
    )
    assert pairs(found) == {"a0-t0": ("task 1", Match.UNIQUE), "a1-t0": ("task 2", Match.UNIQUE)}


def test_a_key_that_fits_two_on_either_side_is_not_exact() -> None:
    key: dict[str, Any] = {**counts(10, 0, 1), "prefill_ms": 20.0, "decode_ms": 0.0}
    sent = [answer(name, 0, 9, timings=ServerTimings(0, 10, 20.0, 1, 0.0)) for name in ("a0-t0", "a1-t0")]
    log = [logged(name, 1, 2, **key) for name in ("n1", "n2")]
    assert exact_pairs(sent[:1], log[:1]) == ((0, 0),)
    assert exact_pairs(sent[:1], log) == ()
    assert exact_pairs(sent, log[:1]) == ()


def test_equal_tool_call_ids_are_an_exact_key() -> None:
    one, two = (ToolCall("call_1", "read", "{}"),), (ToolCall("call_2", "read", "{}"),)
    usage = Usage(100, 50, 10)
    found = join(
        [answer("a0-t0", 0, 9, tool_calls=two, usage=usage), answer("a1-t0", 0, 9, tool_calls=one, usage=usage)],
        logged("n1", 1, 8, **counts(100, 10, 50), tool_call_ids=("call_1",)),
        logged("n2", 1, 8, **counts(100, 10, 50), tool_call_ids=("call_2",)),
    )
    assert pairs(found) == {"a0-t0": ("n2", Match.EXACT), "a1-t0": ("n1", Match.EXACT)}


def test_a_whole_answer_without_tool_calls_is_not_one_whose_log_has_ids() -> None:
    found = join(
        [answer("a0-t0", 0, 9, usage=Usage(100, 50, 10))],
        logged("n1", 1, 8, **counts(100, 10, 50), tool_call_ids=("call_1",)),
    )
    assert found.counts[Match.UNIQUE] == 0
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.SERVER_ONLY]) == (1, 1)


# ---- counts and times ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [counts(101, 10, 50), counts(100, 11, 50), counts(100, 10, 51)])
def test_one_known_count_that_differs_keeps_two_requests_apart(theirs: dict[str, int]) -> None:
    sent = answer("a0-t0", 0, 9, usage=Usage(100, 50, 10))
    assert only(join([sent], logged("n1", 1, 8, **counts(100, 10, 50)))).match is Match.UNIQUE
    assert join([sent], logged("n1", 1, 8, **theirs)).counts[Match.SERVER_ONLY] == 1


def test_a_count_that_one_side_does_not_tell_speaks_neither_for_nor_against() -> None:
    sent = answer("a0-t0", 0, 9, usage=Usage(prompt_tokens=100, completion_tokens=50))
    row = only(join([sent], logged("n1", 1, 8, prompt_tokens=100, cached_tokens=10)))
    assert row.match is Match.UNIQUE


def test_work_begun_before_it_was_sent_or_ended_after_the_slack_is_another_request() -> None:
    sent = answer("a0-t0", 10, 20)
    for start, end, fits in ((10.0, 20.0, True), (9.9, 20.0, False), (10.0, 20.9, True), (10.0, 21.1, False)):
        found = join([sent], logged("n1", start, end))
        assert (found.counts[Match.UNIQUE] == 1) is fits, (start, end)


def test_the_error_of_the_clock_widens_the_window() -> None:
    assert only(join([answer("a0-t0", 10, 20)], logged("n1", 9.9, 20), error_ns=100 * MS)).match is Match.UNIQUE


def test_a_finish_logged_long_after_the_last_byte_does_not_part_them() -> None:
    late = replace(logged("n1", 11, 20), t_end=T0 + 60 * S)  # ds4-server rebuilds its checkpoint before it
    assert only(join([answer("a0-t0", 10, 20)], late)).match is Match.UNIQUE


def test_where_nothing_can_be_compared_nothing_is_joined() -> None:
    found = join([answer("a0-t0", 0, 9)], logged("n1", 1, 8), timeline=Timeline.PROCESS, error_ns=None)
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.SERVER_ONLY]) == (1, 1)


def test_a_forced_pair_frees_the_choice_of_the_next() -> None:
    # n1 fits both by its counts, n2 lies within a1's time only
    usage = Usage(100, 50, 10)
    found = join(
        [answer("a0-t0", 0, 9, usage=usage), answer("a1-t0", 1, 30, usage=usage)],
        logged("n1", 2, 8, **counts(100, 10, 50)),
        logged("n2", 12, 18, **counts(100, 10, 50)),
    )
    assert pairs(found) == {"a0-t0": ("n1", Match.UNIQUE), "a1-t0": ("n2", Match.UNIQUE)}


def test_equal_requests_side_by_side_are_a_group_joined_in_order_of_time() -> None:
    usage = Usage(59, 50, 0)
    found = join(
        [answer("a1-t0", 0.1, 9, usage=usage), answer("a0-t0", 0, 9, usage=usage)],
        logged("n2", 2, 8, **counts(59, 0, 50)),
        logged("n1", 1, 8, **counts(59, 0, 50)),
    )
    assert pairs(found) == {"a0-t0": ("n1", Match.AMBIGUOUS), "a1-t0": ("n2", Match.AMBIGUOUS)}
    assert [row.group for row in found.requests] == ["g1", "g1"]
    assert found.groups == (Group("g1", ("a0-t0", "a1-t0"), 2, 2),)
    assert [doubt.code for doubt in found.doubts] == ["ambiguous-requests"]


def test_a_strangers_equal_request_makes_ours_ambiguous_and_not_unique() -> None:
    found = join(
        [answer("a0-t0", 0, 9, usage=Usage(100, 50, 10))],
        logged("n1", 1, 7, **counts(100, 10, 50)),
        logged("n2", 2, 8, **counts(100, 10, 50)),
    )
    assert pairs(found) == {"a0-t0": ("n1", Match.AMBIGUOUS), "log boot 0 n2": ("n2", Match.AMBIGUOUS)}
    assert found.groups == (Group("g1", ("a0-t0", "log boot 0 n2"), 1, 2),)
    assert [row.request for row in found.foreign] == ["log boot 0 n2"]
    assert [doubt.code for doubt in found.doubts] == ["ambiguous-requests", "foreign-requests"]


def test_strangers_are_a_doubt_only_inside_a_segment() -> None:
    segments = (Segment("s1", "r1", "default", T0, T0 + 9 * S),)
    ours, theirs = answer("a0-t0", 0, 9, usage=Usage(100, 50, 10)), logged("n1", 1, 7, **counts(100, 10, 50))
    before, within = logged("n0", -9, -8, **counts(7, 0, 1)), logged("n2", 3, 4, **counts(7, 0, 1))
    assert join([ours], theirs, before, segments=segments).doubts == ()
    (doubt,) = join([ours], theirs, before, within, segments=segments).doubts
    assert doubt.code == "foreign-requests"
    assert doubt.message.startswith("1 request")


# ---- failed requests -----------------------------------------------------------------------------------------------


def test_a_failed_request_joins_the_only_cancelled_one_of_its_time() -> None:
    failed = answer("a0-t0", 0, 5, error="timed out after 5 s", t_first_token=None)
    cancelled = replace(logged("task 3", 1, 30), finish="cancelled", decode_start=None, decode_end=None)
    row = only(join([failed], cancelled))
    assert (row.match, row.label, row.error) == (Match.UNIQUE, "task 3", "timed out after 5 s")
    assert (row.prefill_start, row.prefill_source, row.decode_source) == (T0 + S, Source.LOG, None)


@pytest.mark.parametrize("finish", ["cancelled", "error"])
def test_a_whole_answer_never_joins_what_was_cut_short(finish: str) -> None:
    found = join([answer("a0-t0", 0, 9)], logged("task 3", 1, 8, finish=finish))
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.SERVER_ONLY]) == (1, 1)


def test_a_failed_request_never_joins_what_ended_well() -> None:
    found = join([answer("a0-t0", 0, 9, error="connection reset")], logged("task 3", 1, 8, finish="stop"))
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.SERVER_ONLY]) == (1, 1)


def test_two_failed_requests_and_one_cancelled_are_not_joined_because_one_may_never_have_arrived() -> None:
    failed = [answer(name, 0, 5, error="timed out") for name in ("a0-t0", "a1-t0")]
    found = join(failed, logged("task 3", 1, 4, finish="cancelled"))
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.SERVER_ONLY]) == (2, 1)


def test_an_open_request_of_a_whole_answer_is_not_left_to_a_failed_one() -> None:
    still_open = replace(logged("n1", 1, 8, **counts(100, 10, 50)), t_end=None)  # the log was cut there
    found = join([answer("a0-t0", 0, 9, usage=Usage(100, 50, 10)), answer("a1-t0", 0, 9, error="reset")], still_open)
    assert pairs(found) == {"a0-t0": ("n1", Match.UNIQUE), "a1-t0": (None, Match.CLIENT_ONLY)}


# ---- rows ----------------------------------------------------------------------------------------------------------


def test_times_and_counts_come_from_the_log_and_usage_stands_beside_them() -> None:
    sent = answer("a0-t0", 0, 9, usage=Usage(100, None, None, 7), finish="length", turn=4)
    one = replace(
        logged("n1", 1, 7, **counts(100, 10, 50)),
        slot=2, rebuild_tokens=30, finish="stop",
        proofs=(("prefill_end", Proof(11, 900)), ("decode_end", Proof(14, 1_200)), ("t_end", Proof(15, 1_300))),
    )  # fmt: skip
    row = only(join([sent], one))
    assert (row.prefill_start, row.prefill_end) == (T0 + S, T0 + 4 * S)
    assert (row.decode_start, row.decode_end) == (T0 + 4 * S, T0 + 7 * S)
    assert (row.prefill_source, row.decode_source) == (Source.LOG, Source.LOG)
    assert (row.prompt_tokens, row.cached_tokens, row.new_prefill_tokens, row.decoded_tokens) == (100, 10, 90, 50)
    assert (row.usage_prompt_tokens, row.usage_cached_tokens, row.usage_completion_tokens) == (100, None, None)
    assert (row.agent, row.turn, row.slot, row.boot, row.t_slot) == ("a0", 4, 2, 0, T0 + S)
    assert (row.reasoning_tokens, row.rebuild_tokens, row.context_start, row.finish) == (7, 30, 10, "stop")
    assert (row.prefill_proof, row.decode_proof) == (Proof(11, 900), Proof(14, 1_200))


def test_a_count_that_the_log_does_not_tell_stays_unknown_although_usage_tells_it() -> None:
    row = only(join([answer("a0-t0", 0, 9, usage=Usage(100, 50, 10))], logged("n1", 1, 7, prompt_tokens=100)))
    assert (row.prompt_tokens, row.cached_tokens, row.new_prefill_tokens, row.decoded_tokens) == (100, None, None, None)
    assert (row.usage_cached_tokens, row.usage_completion_tokens) == (10, 50)


def test_without_a_log_the_answers_timings_are_laid_backwards_from_the_last_byte() -> None:
    sent = answer("a0-t0", 0, 9, usage=Usage(110, 5, 10), timings=ServerTimings(10, 100, 2_000.5, 5, 3_000.25))
    row = only(attribute("r1", [sent], None, ()))
    assert (row.decode_start, row.decode_end) == (T0 + 9 * S - 3_000_250_000, T0 + 9 * S)
    assert (row.prefill_start, row.prefill_end) == (T0 + 9 * S - 5_000_750_000, T0 + 9 * S - 3_000_250_000)
    assert (row.prefill_source, row.decode_source) == (Source.USAGE, Source.USAGE)
    assert (row.prompt_tokens, row.cached_tokens, row.new_prefill_tokens, row.decoded_tokens) == (110, 10, 100, 5)
    assert row.match is Match.CLIENT_ONLY


def test_without_log_and_timings_a_window_on_the_clients_clock_is_all_there_is() -> None:
    found = attribute("r1", [answer("a0-t0", 0, 8, usage=Usage(110, 5))], None, ())
    row = only(found)
    assert (row.prefill_start, row.prefill_end) == (T0, T0 + 4 * S)
    assert (row.decode_start, row.decode_end) == (T0 + 4 * S, T0 + 8 * S)
    assert (row.prefill_source, row.decode_source) == (Source.CLIENT, Source.CLIENT)
    assert (row.prompt_tokens, row.cached_tokens, row.new_prefill_tokens, row.decoded_tokens) == (110, None, None, 5)
    assert [doubt.code for doubt in found.doubts] == ["no-log"]


@pytest.mark.parametrize("of_log", [0, 1, 49, None])
def test_which_tokens_are_of_a_decode_is_told_by_what_tells_its_times(of_log: int | None) -> None:
    sent = answer("a0-t0", 0, 9, usage=Usage(10, 5, 0), timings=ServerTimings(0, 10, 100.0, 5, 50.0))
    one = replace(logged("task 1", 1, 2, **counts(10, 0, 5)), prefill_ms=100.0, decode_ms=50.0)
    one = replace(one, decode_untimed_tokens=of_log)
    assert only(join([sent], one)).decode_untimed_tokens == of_log
    assert only(join([], one)).decode_untimed_tokens == of_log
    row = only(join([sent], one, timeline=Timeline.PROCESS, error_ns=None))  # the answer's durations
    assert (row.decode_source, row.decode_untimed_tokens) == (Source.USAGE, 1)
    stamps = (T0 + 4 * S, T0 + 6 * S)  # two pieces of an answer of 4: 2 of them in the first one
    row = only(attribute("r1", [replace(sent, usage=Usage(10, 4), timings=None, token_ns=stamps)], None, ()))
    assert (row.decode_source, row.decoded_tokens, row.decode_untimed_tokens) == (Source.CLIENT, 4, 2)


def test_a_request_that_never_got_a_token_has_no_phases() -> None:
    row = only(attribute("r1", [answer("a0-t0", 0, 8, t_first_token=None, error="refused")], None, ()))
    assert (row.prefill_start, row.decode_start, row.prefill_source, row.decode_source) == (None, None, None, None)
    assert row.decode_untimed_tokens is None


def test_times_of_a_log_on_another_clock_are_not_mixed_into_a_row() -> None:
    sent = answer("a0-t0", 0, 9, timings=ServerTimings(0, 10, 100.0, 5, 50.0))
    one = replace(logged("task 1", 1, 2, **counts(10, 0, 5)), prefill_ms=100.0, decode_ms=50.0)
    found = join([sent], one, timeline=Timeline.PROCESS, error_ns=None)
    row = only(found)
    assert (row.match, row.prefill_source, row.decode_end) == (Match.EXACT, Source.USAGE, T0 + 9 * S)
    assert row.t_slot is None
    assert [doubt.code for doubt in found.doubts] == ["log-not-aligned"]


def test_a_log_alone_keeps_its_own_times() -> None:
    row = only(join([], logged("task 1", 1, 3, **counts(10, 0, 5)), timeline=Timeline.PROCESS, error_ns=None))
    assert (row.match, row.prefill_start, row.decode_end) == (Match.SERVER_ONLY, T0 + S, T0 + 3 * S)
    assert (row.agent, row.t_sent, row.request) == (None, None, "log boot 0 task 1")


def test_a_request_belongs_to_the_segment_in_which_its_prefill_starts() -> None:
    segments = (
        Segment("s1", "r1", "default", T0, T0 + 10 * S),
        Segment("s2", "r1", "default", T0 + 10 * S, None),
        Segment("s9", "r2", "default", T0 + 3 * S, T0 + 99 * S),  # of another run
    )
    found = join(
        [answer("a0-t0", -2, 4), answer("a0-t1", 5, 10), answer("a0-t2", 9, 30), answer("a0-t3", 40, 50, error="no")],
        logged("n0", -1, 4),
        logged("n1", 5, 10),
        logged("n2", 10, 30),
        segments=segments,
    )
    by_name = {row.request: row.segment for row in found.requests}
    assert by_name == {"a0-t0": None, "a0-t1": "s1", "a0-t2": "s2", "a0-t3": "s2"}


def test_of_overlapping_segments_the_one_begun_last_counts() -> None:
    segments = (Segment("s1", "r1", "", T0, None), Segment("s2", "r1", "", T0 + 5 * S, T0 + 6 * S))
    found = join([], logged("n1", 4, 5), logged("n2", 5, 7), logged("n3", 6, 7), segments=segments)
    assert [row.segment for row in found.requests] == ["s1", "s2", "s1"]


def test_rows_come_in_order_of_prefill_start_whatever_the_order_of_the_input() -> None:
    sent = [answer("a0-t0", 0, 20), answer("a1-t0", 1, 9), answer("a2-t0", 30, 31, error="no", t_first_token=None)]
    log = [logged("n0", 12, 20), logged("n1", 2, 9)]
    forwards, backwards = join(sent, *log), join(sent[::-1], *log[::-1])
    assert [row.request for row in forwards.requests] == ["a1-t0", "a0-t0", "a2-t0"]
    assert forwards == backwards


def test_a_request_belongs_to_the_segment_it_was_sent_in_though_its_aligned_start_stands_before() -> None:
    segment = Segment("s1", "r1", "default", T0 + 10 * S, T0 + 90 * S)
    found = join(
        [answer("a0-r0", 10.001, 20, usage=Usage(100, 5, 0))],
        logged("slot 0 task 1", 9.998, 20, **counts(100, 0, 5)),
        segments=(segment,),
        error_ns=5_000_000,
    )
    row = only(found)
    assert (row.segment, row.match, row.prefill_start) == ("s1", Match.UNIQUE, T0 + 9_998 * MS)
