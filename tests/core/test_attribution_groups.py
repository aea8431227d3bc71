"""Requests that the log does not tell apart: sums are exact, they are named as a group, and none is called sure."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core.attribution import attribute
from agentload.core.evidence import exact_pairs
from agentload.core.records import Completion, LoggedRequest, Match, ServerTimings, Source, Timeline, ToolCall, Usage
from agentload.serverlogs.ds4 import Reader
from tests.core.test_attribution import S, answer, counts, join, logged
from tests.serverlogs.test_ds4_properties import START_S, Planned, _read, _stamp, _written

MS = 1_000_000


def alike(label: str, start: float, end: float, **fields: Any) -> LoggedRequest:
    return logged(label, start, end, **{**counts(59, 0, 50), "group": "boot 0 group 1", **fields})


USAGE = Usage(59, 50, 0)


def test_of_a_log_alone_what_it_does_not_tell_apart_is_a_group_and_the_rest_is_not() -> None:
    found = join([], alike("n1", 1, 8), alike("n2", 1, 8), logged("n3", 2, 9, **counts(70, 0, 5)))
    assert found.counts == {
        Match.EXACT: 0, Match.UNIQUE: 0, Match.AMBIGUOUS: 2, Match.CLIENT_ONLY: 0, Match.SERVER_ONLY: 1
    }  # fmt: skip
    (group,) = found.groups
    assert (group.name, group.requests, group.sent, group.logged) == (
        "g1", ("log boot 0 n1", "log boot 0 n2"), 0, 2
    )  # fmt: skip
    assert [row.group for row in found.requests] == ["g1", "g1", None]
    assert sum(row.decoded_tokens or 0 for row in found.requests) == 105


def test_two_groups_of_a_log_stay_two() -> None:
    other = {"group": "boot 0 group 3"}
    found = join([], alike("n1", 1, 8), alike("n2", 1, 8), alike("n3", 11, 18, **other), alike("n4", 11, 18, **other))
    assert [group.requests for group in found.groups] == [
        ("log boot 0 n1", "log boot 0 n2"),
        ("log boot 0 n3", "log boot 0 n4"),
    ]


def test_times_that_would_part_its_members_do_not_because_the_lines_may_have_been_mixed() -> None:
    # n1 ended before a1 was done by 3 s, n2 after a0 was done by 3 s: each would fit one answer only.
    found = join(
        [answer("a0-t0", 0, 5, usage=USAGE), answer("a1-t0", 0.5, 9, usage=USAGE)],
        alike("n1", 0.1, 4),
        alike("n2", 0.6, 8),
    )
    assert [(row.match, row.group) for row in found.requests] == [(Match.AMBIGUOUS, "g1")] * 2
    # The likely partners are kept side by side all the same.
    assert {row.request: row.label for row in found.requests} == {"a0-t0": "n1", "a1-t0": "n2"}


def test_mixed_counts_of_its_members_do_not_keep_an_answer_out() -> None:
    # The log gave 7 decoded tokens to one and 50 to the other; a0's 7 stand with the finish of the other.
    found = join(
        [answer("a0-t0", 0, 9, usage=Usage(59, 7, 0)), answer("a1-t0", 0, 9, usage=Usage(59, 50, 0))],
        alike("n1", 1, 8, decoded_tokens=50, tool_call_ids=("call_1",), finish="tool_calls"),
        alike("n2", 1, 8, decoded_tokens=7, finish="stop"),
    )
    assert (found.counts[Match.AMBIGUOUS], found.counts[Match.CLIENT_ONLY]) == (2, 0)
    assert [group.sent for group in found.groups] == [2]


def test_a_count_that_no_member_has_keeps_an_answer_out() -> None:
    found = join([answer("a0-t0", 0, 9, usage=Usage(59, 8, 0))], alike("n1", 1, 8), alike("n2", 1, 8))
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.AMBIGUOUS]) == (1, 2)


def test_tool_call_ids_say_who_was_who_and_still_prove_nothing_of_the_times() -> None:
    one, two = (ToolCall("call_1", "read", "{}"),), (ToolCall("call_2", "read", "{}"),)
    sent = [
        answer("a0-t0", 0, 9, usage=USAGE, tool_calls=two),
        answer("a1-t0", 0, 9, usage=USAGE, tool_calls=one),
    ]
    log = [alike("n1", 1, 8, tool_call_ids=("call_1",)), alike("n2", 1, 8, tool_call_ids=("call_2",))]
    assert exact_pairs(sent, log) == ()
    found = join(sent, *log)
    assert {row.request: (row.label, row.match) for row in found.requests} == {
        "a0-t0": ("n2", Match.AMBIGUOUS),
        "a1-t0": ("n1", Match.AMBIGUOUS),
    }


def test_one_of_ours_among_a_strangers_equal_ones_leaves_the_rest_foreign() -> None:
    found = join([answer("a0-t0", 0, 9, usage=USAGE)], alike("n1", 1, 8), alike("n2", 1, 8))
    (group,) = found.groups
    assert (group.sent, group.logged, len(found.foreign)) == (1, 2, 1)


def test_a_group_that_none_of_ours_fits_is_foreign_and_ambiguous() -> None:
    found = join([answer("a0-t0", 20, 29, usage=USAGE)], alike("n1", 1, 8), alike("n2", 1, 8))
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.AMBIGUOUS], len(found.foreign)) == (1, 2, 2)
    assert [(group.sent, group.logged) for group in found.groups] == [(0, 2)]


def test_of_three_equal_ones_the_one_that_broke_off_is_of_the_group_and_no_stranger() -> None:
    sent = [
        answer("a0-t0", 0, 9, usage=USAGE),
        answer("a1-t0", 0, 9, usage=USAGE),
        answer("a2-t0", 0, 4, error="timed out after 4 s"),
    ]
    log = [alike("n1", 1, 8), alike("n2", 1, 8), alike("n3", 1, 8, finish=None, t_end=None, decoded_tokens=None)]
    found = join(sent, *log)
    assert (found.counts[Match.AMBIGUOUS], found.foreign) == (3, ())
    assert {row.request: row.label for row in found.requests}["a2-t0"] == "n3"
    assert found.groups[0].requests == ("a0-t0", "a1-t0", "a2-t0")


def test_more_broken_off_than_the_group_has_left_may_never_have_arrived() -> None:
    sent = [answer("a0-t0", 0, 9, usage=USAGE)] + [answer(f"a{n}-t0", 0, 4, error="reset") for n in (1, 2)]
    found = join(sent, alike("n1", 1, 8), alike("n2", 1, 8, finish="cancelled"))
    assert (found.counts[Match.AMBIGUOUS], found.counts[Match.CLIENT_ONLY], len(found.foreign)) == (2, 2, 1)


def test_a_request_of_the_same_counts_outside_the_group_is_joined_by_its_time() -> None:
    found = join(
        [answer("a0-t0", 0, 9, usage=USAGE), answer("a1-t0", 0, 9, usage=USAGE), answer("a2-t0", 20, 29, usage=USAGE)],
        alike("n1", 1, 8),
        alike("n2", 1, 8),
        alike("n3", 21, 28, group=None),
    )
    assert {row.request: row.match for row in found.requests}["a2-t0"] is Match.UNIQUE
    assert found.counts[Match.AMBIGUOUS] == 2


# ---- cached tokens that only the answer tells ----------------------------------------------------------------------


TIMINGS = ServerTimings(50, 90, 600.0, 11, 300.0)


def test_cached_tokens_that_the_log_does_not_tell_are_taken_from_the_answers_timings() -> None:
    shifted = logged("n1", 1, 8, new_prefill_tokens=90, decoded_tokens=11, prefill_ms=600.0, decode_ms=300.0)
    (row,) = join([answer("a0-t0", 0, 9, timings=TIMINGS)], shifted).requests
    assert (row.match, row.cached_tokens, row.prompt_tokens, row.cached_source) == (Match.EXACT, 50, 140, Source.USAGE)


def test_cached_tokens_that_the_log_tells_are_the_logs() -> None:
    (row,) = join(
        [answer("a0-t0", 0, 9, timings=TIMINGS)],
        logged("n1", 1, 8, **counts(140, 50, 11), prefill_ms=600.0, decode_ms=300.0),
    ).requests
    assert (row.cached_tokens, row.cached_source, row.match) == (50, Source.LOG, Match.EXACT)


def test_without_an_answer_that_repeats_the_logs_numbers_cached_tokens_stay_unknown() -> None:
    (row,) = join([answer("a0-t0", 0, 9, timings=TIMINGS)], logged("n1", 1, 8, decoded_tokens=11)).requests
    assert (row.cached_tokens, row.prompt_tokens, row.cached_source) == (None, None, None)


# ---- read from lines -----------------------------------------------------------------------------------------------


def _client(name: int, one: Planned, *, delay_ms: int) -> Completion:
    begin = (START_S * 1000 + one.start_ms) * MS
    end = begin + (one.prefill_ms + one.decode_ms) * MS
    return Completion(
        request=f"a{name}-r0",
        agent=f"a{name}",
        turn=0,
        t_sent=begin - delay_ms * MS,
        t_first_byte=None,
        t_first_token=begin + one.prefill_ms * MS,
        t_done=end + delay_ms * MS,
        status=200,
        tool_calls=(ToolCall(f"call_{name:032x}", "bash", "{}"),) if one.finish == "tool_calls" else (),
        usage=Usage(one.prompt, one.gen, one.cached),
    )


TWINS = st.builds(
    Planned,
    start_ms=st.just(7_000),
    cached=st.sampled_from([0, 40]),
    new=st.integers(1, 5_000),
    prefill_ms=st.integers(1, 9_000),
    gen=st.integers(1, 180),
    decode_ms=st.integers(1, 90_000),
    close_ms=st.integers(0, 900),
    finish=st.sampled_from(["stop", "tool_calls"]),
)


@settings(max_examples=40)
@given(TWINS, st.integers(2, 6), st.integers(0, 30))
def test_equal_requests_sent_at_once_are_one_group_with_exact_sums(twin: Planned, count: int, delay_ms: int) -> None:
    plan = [twin] * count
    written = _written(plan)
    lines = [f"{_stamp(at)} {text}" for at, _, text in written]
    stamps = [(START_S * 1000 + at) * MS for at, _, _ in written]
    stamped, bare = _read(lines, stamps), _read(lines)
    sent = [_client(name, one, delay_ms=delay_ms) for name, one in enumerate(plan)]
    # With receive stamps and the client's view, and the log alone.
    for joined, ours in ((attribute("r", sent, stamped, ()), count), (attribute("r", (), bare, ()), 0)):
        assert joined.counts[Match.AMBIGUOUS] == len(joined.requests) == count
        assert (joined.counts[Match.EXACT], joined.counts[Match.UNIQUE]) == (0, 0)
        (group,) = joined.groups
        assert (group.sent, group.logged, set(group.requests)) == (ours, count, {r.request for r in joined.requests})
        assert {row.group for row in joined.requests} == {group.name}
        assert sum(row.prompt_tokens or 0 for row in joined.requests) == count * twin.prompt
        assert sum(row.cached_tokens or 0 for row in joined.requests) == count * twin.cached
        assert sum(row.new_prefill_tokens or 0 for row in joined.requests) == count * twin.new
        assert sum(row.decoded_tokens or 0 for row in joined.requests) == count * twin.gen
    assert Counter(row.prefill_source for row in attribute("r", sent, stamped, ()).requests) == {Source.LOG: count}


CROWDED = st.lists(
    st.builds(
        Planned,
        start_ms=st.integers(0, 4_000),
        cached=st.sampled_from([0, 1]),
        new=st.sampled_from([59, 60]),
        prefill_ms=st.integers(0, 9_000),
        gen=st.integers(0, 180),
        decode_ms=st.integers(1, 40_000),
        close_ms=st.integers(0, 900),
        finish=st.sampled_from(["stop", "tool_calls"]),
    ),
    min_size=2,
    max_size=7,
)


@settings(max_examples=80)
@given(CROWDED, st.booleans())
def test_in_a_crowd_of_nearly_equal_requests_nothing_that_is_called_sure_is_wrong(
    plan: list[Planned], stamped: bool
) -> None:
    written = _written(plan)
    reader = Reader([(START_S * 1000 + at) * MS for at, _, _ in written] if stamped else None, year=2026)
    reader.feed("".join(f"{_stamp(at)} {text}\n" for at, _, text in written).encode())
    facts = reader.close()
    if not stamped:  # as if the server's zone were UTC, to the second
        facts = replace(facts, timeline=Timeline.UNIX, clock_error_ns=S)
    joined = attribute("r", [_client(name, one, delay_ms=0) for name, one in enumerate(plan)], facts, ())
    assert joined.counts[Match.CLIENT_ONLY] == joined.counts[Match.SERVER_ONLY] == 0
    for row in joined.requests:
        one = plan[int(row.request[1 : row.request.index("-")])]
        if row.match is not Match.AMBIGUOUS:
            assert (row.cached_tokens, row.new_prefill_tokens, row.decoded_tokens) == (one.cached, one.new, one.gen)
            start = (START_S * 1000 + one.start_ms) * MS
            assert row.prefill_start is not None
            assert abs(row.prefill_start - start) <= (MS if stamped else S)
    for field, true in (("new_prefill_tokens", "new"), ("decoded_tokens", "gen"), ("cached_tokens", "cached")):
        assert sum(getattr(row, field) or 0 for row in joined.requests) == sum(getattr(one, true) for one in plan)
