"""Accounting of a segment: worked by hand, in seconds; then against a counter that ticks through every second."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core import accounting
from agentload.core.accounting import (
    Totals,
    account_segment,
    account_segments,
    bucket_of,
    by_context,
    total,
)
from agentload.core.records import Match, Request, Segment

S = 1_000_000_000
T0 = 1_795_958_524_000_000_000
SEGMENT = Segment("s1", "r1", "default", T0, T0 + 200 * S)

Span = tuple[float, float]


def a_request(name: str = "q", prefill: Span | None = None, decode: Span | None = None, **columns: Any) -> Request:
    """A request of segment s1; spans are seconds after its begin, and what is not said is unknown."""
    values: dict[str, Any] = {field.name: None for field in dataclasses.fields(Request)}
    values |= {"decode_untimed_tokens": 0}
    values |= {"run": "r1", "segment": "s1", "request": name, "match": Match.UNIQUE, "agent": "a0"}
    for phase, span in (("prefill", prefill), ("decode", decode)):
        if span is not None:
            values |= {f"{phase}_start": T0 + int(span[0] * S), f"{phase}_end": T0 + int(span[1] * S)}
    return Request(**(values | columns))


def three_agents() -> list[Request]:
    """Three requests of three agents, so that every quantity can be worked out on paper.

    seconds  0    10   20   30   40   50   60   70   80
    a0       PPPPPPPPPPP DDDDDDDDDD                        prefill 0-20, decode 20-40
    a1            PPPPPPPPPPPPPPP    DDDDDDDDDDDD          prefill 10-40, decode 50-75
    a2                           PPPPPPPPPPP DD            prefill 50-70, decode 70-80
    """
    return [
        a_request("q0", (0, 20), (20, 40), agent="a0", match=Match.EXACT, prompt_tokens=5_000, cached_tokens=0,
                  new_prefill_tokens=5_000, decoded_tokens=400, context_start=0),
        a_request("q1", (10, 40), (50, 75), agent="a1", match=Match.UNIQUE, prompt_tokens=40_000, cached_tokens=34_000,
                  new_prefill_tokens=6_000, decoded_tokens=500, context_start=34_000),
        a_request("q2", (50, 70), (70, 80), agent="a2", match=Match.AMBIGUOUS, prompt_tokens=112_000,
                  cached_tokens=110_000, new_prefill_tokens=2_000, decoded_tokens=100, context_start=110_000),
    ]  # fmt: skip


# ---- whole segment, by hand ----------------------------------------------------------------------------------------


def test_busy_time_is_a_union_and_the_sum_beside_it_shows_the_double_counting() -> None:
    whole = total(three_agents(), SEGMENT)
    assert whole.prefill_union_ns == 60 * S  # 0-40 and 50-70
    assert whole.prefill_sum_ns == 70 * S  # 20 + 30 + 20
    assert whole.prefill_double_counting == pytest.approx(70 / 60)
    assert whole.decode_union_ns == 50 * S  # 20-40 and 50-80
    assert whole.decode_sum_ns == 55 * S  # 20 + 25 + 10
    assert whole.decode_double_counting == pytest.approx(55 / 50)


def test_speeds_divide_by_the_union_and_count_new_tokens_only() -> None:
    whole = total(three_agents(), SEGMENT)
    assert whole.prefill_tok_s == pytest.approx(13_000 / 60)
    assert whole.decode_tok_s == pytest.approx(1_000 / 50)
    assert (whole.prefill_speed_tokens, whole.prefill_speed_ns) == (13_000, 60 * S)
    assert (whole.decode_speed_tokens, whole.decode_speed_ns) == (1_000, 50 * S)


def test_tokens_are_summed_each_in_its_own_column() -> None:
    whole = total(three_agents(), SEGMENT)
    assert whole.prompt_tokens == 157_000
    assert whole.cached_tokens == 144_000
    assert whole.new_prefill_tokens == 13_000
    assert whole.decoded_tokens == 1_000


def test_shares_are_of_the_segments_wall_clock() -> None:
    whole = total(three_agents(), SEGMENT)
    assert whole.wall_ns == 200 * S
    assert whole.prefill_share == pytest.approx(60 / 200)
    assert whole.decode_share == pytest.approx(50 / 200)


def test_overlap_is_the_part_of_prefill_during_which_another_request_decodes() -> None:
    # q1 prefills while q0 decodes: 20-40. q2 prefills while q1 decodes: 50-70. Together 40 of 60 s.
    assert total(three_agents(), SEGMENT).overlap == pytest.approx(40 / 60)


def test_sampled_overlap_counts_cells_of_15_seconds() -> None:
    # Cells of prefill: 0-15, 15-30, 30-45 (q0, q1), 45-60, 60-75 (q2): 5. With a decode of another request:
    # 15-30 and 30-45 (q0 decodes, q1 prefills), 45-60 and 60-75 (q1 decodes, q2 prefills): 4.
    assert total(three_agents(), SEGMENT).sampled_overlap == pytest.approx(4 / 5)


def test_sampled_cells_start_at_the_segments_begin() -> None:
    later = dataclasses.replace(SEGMENT, begin_ns=T0 - 10 * S)
    requests = [a_request("q0", (0, 4)), a_request("q1", (6, 6.5), (7, 8))]
    # Cells from T0 - 10: [-10, 5) and [5, 20). q0 prefills in the first only, q1 is alone in the second.
    assert total(requests, later).sampled_overlap == 0
    # Cells from T0: [0, 15) holds all of it, so q0 prefills in a cell in which q1 decodes.
    assert total(requests, SEGMENT).sampled_overlap == 1


def test_a_prefill_that_ends_on_a_cells_edge_is_not_in_the_next_cell() -> None:
    requests = [a_request("q0", (0, 15)), a_request("q1", (30, 31), (15, 20))]
    # q0 fills [0, 15) only; q1 prefills in [30, 45): two cells, neither with a decode of another.
    assert total(requests, SEGMENT).sampled_overlap == 0


@pytest.mark.parametrize(("wall_s", "sampled"), [(45, None), (45.001, 1.0)])
def test_fewer_than_four_cells_of_15_seconds_say_nothing(wall_s: float, sampled: float | None) -> None:
    """A segment of 8.8 s, one cell, said 100 % where the true part was far less."""
    short = dataclasses.replace(SEGMENT, end_ns=T0 + int(wall_s * S))
    requests = [a_request("q0", (0, 4)), a_request("q1", None, (3, 8))]
    whole = total(requests, short)
    assert whole.overlap == pytest.approx(1 / 4)
    assert whole.sampled_overlap == sampled


@pytest.mark.parametrize(("last_s", "sampled"), [(45, None), (46, 1.0)])
def test_without_an_end_marker_the_cells_reach_to_the_last_phase(last_s: float, sampled: float | None) -> None:
    open_end = dataclasses.replace(SEGMENT, end_ns=None)
    requests = [a_request("q0", (0, 4)), a_request("q1", None, (3, last_s))]
    assert total(requests, open_end).sampled_overlap == sampled


# ---- a request never overlaps with itself --------------------------------------------------------------------------


def test_a_request_does_not_overlap_with_its_own_decode() -> None:
    alone = total([a_request("q0", (0, 20), (10, 30))], SEGMENT)
    assert alone.overlap == 0
    assert alone.sampled_overlap == 0


def test_a_lone_agents_requests_one_after_the_other_never_overlap() -> None:
    requests = [a_request("q0", (0, 2), (2, 20)), a_request("q1", (31, 33), (33, 44))]
    assert total(requests, SEGMENT).overlap == 0
    assert total(requests, SEGMENT).sampled_overlap == 0


def test_own_overlap_counts_again_where_a_second_request_decodes() -> None:
    # q0 prefills 0-20 and decodes 10-30 itself; q1 decodes 15-18. Only those 3 s are with another.
    requests = [a_request("q0", (0, 20), (10, 30)), a_request("q1", None, (15, 18))]
    assert total(requests, SEGMENT).overlap == pytest.approx(3 / 20)


def test_own_overlap_counts_again_where_a_second_request_prefills() -> None:
    # q1 prefills 12-16 while q0 decodes 10-30: those 4 s count, although q0's own phases meet there too.
    requests = [a_request("q0", (0, 20), (10, 30)), a_request("q1", (12, 16), (40, 41))]
    assert total(requests, SEGMENT).overlap == pytest.approx(4 / 20)


def test_an_agents_overlap_is_with_the_requests_of_all_others() -> None:
    account = account_segment(three_agents(), SEGMENT)
    assert account.agents["a0"].overlap == 0  # nobody decodes before second 20
    assert account.agents["a1"].overlap == pytest.approx(20 / 30)  # a0 decodes 20-40 of its 10-40
    assert account.agents["a2"].overlap == 1  # a1 decodes 50-75 over its 50-70


_spans = st.one_of(
    st.none(), st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair)))
)


@given(st.lists(st.tuples(_spans, _spans, st.sampled_from(["a0", "a1"])), max_size=6))
def test_overlap_is_what_a_counter_of_seconds_and_of_cells_says(
    phases: list[tuple[tuple[int, int] | None, tuple[int, int] | None, str]],
) -> None:
    requests = [a_request(f"q{i}", prefill, decode, agent=agent) for i, (prefill, decode, agent) in enumerate(phases)]
    account = account_segment(requests, SEGMENT)

    def shares(agents: set[str], width: int) -> float | None:
        """Walk through all cells of `width` seconds and ask who is at work in each."""
        prefilling = overlapping = 0
        for low in range(0, 45, width):
            seconds = range(low, low + width)
            at = [
                [i for i, request in enumerate(phases) if (span := request[phase]) and set(range(*span)) & set(seconds)]
                for phase in (0, 1)
            ]
            prefills = [i for i in at[0] if phases[i][2] in agents]
            prefilling += bool(prefills)
            overlapping += any(i != j for i in prefills for j in at[1])
        decode_known = any(decode is not None for _, decode, _ in phases)
        return overlapping / prefilling if prefilling and decode_known else None

    whole: list[tuple[Totals, set[str]]] = [(account.whole, {"a0", "a1"})]
    for totals, agents in whole + [(totals, {name}) for name, totals in account.agents.items()]:
        assert totals.overlap == (None if (share := shares(agents, 1)) is None else pytest.approx(share))
        assert totals.sampled_overlap == (None if (share := shares(agents, 15)) is None else pytest.approx(share))


# ---- what is not known ---------------------------------------------------------------------------------------------


def test_a_count_nobody_reported_is_none_and_not_zero() -> None:
    whole = total([a_request("q0", (0, 10), (10, 20), new_prefill_tokens=100, decoded_tokens=10)], SEGMENT)
    assert whole.cached_tokens is None
    assert whole.prompt_tokens is None
    assert (whole.unknown.cached_tokens, whole.unknown.prompt_tokens) == (1, 1)
    assert (whole.unknown.new_prefill_tokens, whole.unknown.decoded_tokens) == (0, 0)


def test_a_cached_count_of_zero_is_a_report() -> None:
    whole = total([a_request("q0", cached_tokens=0), a_request("q1")], SEGMENT)
    assert whole.cached_tokens == 0
    assert whole.unknown.cached_tokens == 1


def test_known_counts_are_summed_beside_the_number_of_unknown_ones() -> None:
    requests = [a_request("q0", cached_tokens=70), a_request("q1", cached_tokens=30), a_request("q2")]
    whole = total(requests, SEGMENT)
    assert (whole.cached_tokens, whole.unknown.cached_tokens) == (100, 1)


def test_new_tokens_are_not_made_up_from_prompt_and_cache() -> None:
    # A request cancelled in its prefill has a prompt and a cache hit, but has not computed the rest.
    whole = total([a_request("q0", (0, 10), prompt_tokens=10_000, cached_tokens=2_000)], SEGMENT)
    assert whole.new_prefill_tokens is None
    assert whole.prefill_tok_s is None


def test_a_client_only_request_counts_as_a_request_and_as_unknown_and_never_by_its_usage() -> None:
    silent = a_request(
        "q9", match=Match.CLIENT_ONLY, usage_prompt_tokens=9_000, usage_cached_tokens=1_000, usage_completion_tokens=70
    )
    whole = total([*three_agents(), silent], SEGMENT)
    assert whole.requests == 4
    assert dataclasses.astuple(whole.unknown) == (1, 1, 1, 1, 1, 1)
    assert (whole.new_prefill_tokens, whole.decoded_tokens) == (13_000, 1_000)
    assert whole.prefill_tok_s == pytest.approx(13_000 / 60)


def test_only_client_only_requests_give_no_times_speeds_or_shares() -> None:
    whole = total([a_request("q9", match=Match.CLIENT_ONLY)], SEGMENT)
    assert whole.prefill_union_ns is None
    assert whole.decode_sum_ns is None
    assert (whole.prefill_tok_s, whole.decode_tok_s) == (None, None)
    assert (whole.prefill_share, whole.decode_share) == (None, None)
    assert (whole.prefill_double_counting, whole.decode_double_counting) == (None, None)
    assert (whole.overlap, whole.sampled_overlap) == (None, None)


def test_a_request_with_half_of_what_a_speed_needs_is_counted_as_left_out_of_it() -> None:
    requests = [
        a_request("q0", (0, 10), (10, 20), new_prefill_tokens=1_000, decoded_tokens=100),
        a_request("q1", None, (20, 60), new_prefill_tokens=500),  # tokens without times, times without tokens
        a_request("q2", None, None, new_prefill_tokens=0),  # no tokens need no time
        a_request("q3"),  # nothing known: neither sum nor union has it
    ]
    whole = total(requests, SEGMENT)
    assert (whole.prefill_left_out, whole.decode_left_out) == (1, 1)
    assert (whole.decode_tok_s, whole.decode_speed_tokens, whole.decode_speed_ns) == (10.0, 100, 10 * S)
    assert (whole.decoded_tokens, whole.decode_union_ns) == (100, 50 * S)


def test_a_first_token_that_is_there_when_the_decode_begins_is_in_the_sum_and_in_no_speed() -> None:
    requests = [
        a_request("q0", None, (0, 10), decoded_tokens=101, decode_untimed_tokens=1),
        a_request("q1", None, (5, 20), decoded_tokens=51, decode_untimed_tokens=1),
        a_request("q2", None, (30, 30), decoded_tokens=1, decode_untimed_tokens=1),  # no other token: no time
        a_request("q3", None, None, decoded_tokens=1, decode_untimed_tokens=1),  # one whose times nobody knows
    ]
    whole = total(requests, SEGMENT)
    assert (whole.decoded_tokens, whole.decode_speed_tokens, whole.decode_speed_ns) == (154, 150, 20 * S)
    assert whole.decode_tok_s == 7.5
    assert (whole.decode_left_out, whole.unknown.decode_times) == (1, 1)


def test_a_request_of_whose_tokens_nobody_knows_which_are_of_its_decode_is_busy_and_in_no_speed() -> None:
    requests = [
        a_request("q0", None, (0, 10), decoded_tokens=100),
        a_request("q1", None, (10, 23), decoded_tokens=60, decode_untimed_tokens=None),
    ]
    whole = total(requests, SEGMENT)
    assert (whole.decoded_tokens, whole.decode_union_ns) == (160, 23 * S)
    assert (whole.decode_speed_tokens, whole.decode_speed_ns, whole.decode_tok_s) == (100, 10 * S, 10.0)
    assert whole.decode_left_out == 1


def test_tokens_without_times_and_times_without_tokens_stay_out_of_the_speed() -> None:
    requests = [
        a_request("q0", (0, 10), new_prefill_tokens=1_000),
        a_request("q1", None, new_prefill_tokens=7_777),
        a_request("q2", (20, 60)),
    ]
    whole = total(requests, SEGMENT)
    assert whole.prefill_tok_s == pytest.approx(100)
    assert (whole.new_prefill_tokens, whole.prefill_union_ns) == (8_777, 50 * S)
    assert (whole.unknown.new_prefill_tokens, whole.unknown.prefill_times) == (1, 1)


def test_a_phase_whose_end_the_log_does_not_tell_has_unknown_times() -> None:
    whole = total([a_request("q0", prefill_start=T0, new_prefill_tokens=100)], SEGMENT)
    assert whole.unknown.prefill_times == 1
    assert whole.prefill_union_ns is None


def test_a_phase_of_no_tokens_needs_no_times() -> None:
    whole = total([a_request("q0", (0, 10), new_prefill_tokens=500, decoded_tokens=0)], SEGMENT)
    assert whole.unknown.decode_times == 0
    assert (whole.decode_union_ns, whole.decode_share) == (0, 0)
    assert whole.decode_tok_s is None
    assert whole.overlap == 0


def test_a_phase_of_no_length_has_no_speed_rather_than_an_infinite_one() -> None:
    whole = total([a_request("q0", (5, 5), new_prefill_tokens=100)], SEGMENT)
    assert whole.prefill_tok_s is None
    assert whole.prefill_union_ns == 0
    assert whole.prefill_double_counting is None


def test_without_an_end_marker_there_is_no_wall_and_no_share() -> None:
    whole = total(three_agents(), dataclasses.replace(SEGMENT, end_ns=None))
    assert (whole.wall_ns, whole.prefill_share, whole.decode_share) == (None, None, None)
    assert whole.prefill_tok_s == pytest.approx(13_000 / 60)


def test_an_empty_segment_has_no_speeds_and_its_wall() -> None:
    account = account_segment([], SEGMENT)
    assert account.whole.requests == 0
    assert account.whole.wall_ns == 200 * S
    assert (account.whole.prefill_tok_s, account.whole.prefill_share, account.whole.overlap) == (None, None, None)
    assert (account.agents, account.no_agent) == ({}, None)


def test_a_phase_that_ends_before_it_starts_names_its_request() -> None:
    with pytest.raises(ValueError, match="prefill of request q7 to start before it ends"):
        total([a_request("q7", (9, 8))], SEGMENT)


def test_a_segment_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="segment s1 to begin before it ends"):
        total([], dataclasses.replace(SEGMENT, end_ns=T0 - 1))


# ---- who belongs where ---------------------------------------------------------------------------------------------


def test_only_requests_of_the_segment_and_the_run_are_accounted_for() -> None:
    strangers = [
        a_request("before", (0, 5), segment=None, new_prefill_tokens=99),
        a_request("next", (0, 5), segment="s2", new_prefill_tokens=99),
        a_request("other run", (0, 5), run="r2", new_prefill_tokens=99),
    ]
    account = account_segment([*strangers, *three_agents()], SEGMENT)
    assert account.whole.requests == 3
    assert account.whole.new_prefill_tokens == 13_000


def test_agents_are_told_apart_and_their_tokens_add_up() -> None:
    stray = a_request("x", (90, 91), agent=None, match=Match.SERVER_ONLY, new_prefill_tokens=10)
    account = account_segment([*three_agents(), stray], SEGMENT)
    assert list(account.agents) == ["a0", "a1", "a2"]
    assert account.agents["a1"].new_prefill_tokens == 6_000
    assert account.agents["a1"].prefill_tok_s == pytest.approx(6_000 / 30)
    assert account.no_agent is not None
    assert account.no_agent.new_prefill_tokens == 10
    parts = [*account.agents.values(), account.no_agent]
    assert sum(part.new_prefill_tokens or 0 for part in parts) == account.whole.new_prefill_tokens == 13_010


def test_every_way_of_matching_is_counted() -> None:
    kinds = [
        Match.EXACT,
        Match.EXACT,
        Match.UNIQUE,
        *[Match.AMBIGUOUS] * 4,
        *[Match.CLIENT_ONLY] * 5,
        Match.SERVER_ONLY,
    ]
    counts = account_segment([a_request(match=kind) for kind in kinds], SEGMENT).whole.matches
    assert (counts.matched, counts.ambiguous, counts.client_only, counts.server_only) == (3, 4, 5, 1)


def test_a_straddler_is_listed_and_its_whole_phases_count() -> None:
    short = dataclasses.replace(SEGMENT, end_ns=T0 + 60 * S)
    account = account_segment(three_agents(), short)
    assert account.straddles_end == ("q1", "q2")  # q1 decodes until 75, q2 prefills until 70
    assert account.whole.prefill_union_ns == 60 * S
    assert account.whole.prefill_share == 1


def test_work_that_ends_exactly_at_the_end_marker_does_not_straddle() -> None:
    account = account_segment(three_agents(), dataclasses.replace(SEGMENT, end_ns=T0 + 80 * S))
    assert account.straddles_end == ()


def test_a_request_already_at_work_when_the_segment_begins_is_listed_and_not_counted() -> None:
    early = a_request("early", (-5, 3), (3, 250), segment=None, new_prefill_tokens=1_000)
    done = a_request("done", (-9, -5), (-5, 0), segment=None)
    account = account_segment([early, done, *three_agents()], SEGMENT)
    assert account.straddles_begin == ("early",)
    assert account.straddles_end == ()  # no member, though it works past the end
    assert account.whole.requests == 3


# ---- context buckets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context_start", "name"),
    [
        (0, "0-30k"), (29_999, "0-30k"), (30_000, "30k-60k"), (59_999, "30k-60k"), (60_000, "60k-100k"),
        (99_999, "60k-100k"), (100_000, "100k+"), (1_000_000, "100k+"),
    ],
)  # fmt: skip
def test_a_bound_belongs_to_the_bucket_above_it(context_start: int, name: str) -> None:
    assert bucket_of(context_start) == name


def test_a_negative_context_position_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more tokens, got -1"):
        bucket_of(-1)


def test_a_bucket_has_the_median_of_its_requests_speeds_and_the_speed_over_the_union() -> None:
    requests = [
        a_request("q0", (0, 10), new_prefill_tokens=1_000, context_start=10),  # 100 tok/s
        a_request("q1", (5, 15), new_prefill_tokens=2_000, context_start=20),  # 200 tok/s
        a_request("q2", (20, 30), new_prefill_tokens=6_000, context_start=29_999),  # 600 tok/s
        a_request("q3", (40, 50), new_prefill_tokens=500, context_start=30_000),  # 50 tok/s, next bucket
    ]
    first, second, third, last = by_context(requests)
    assert (first.name, first.requests, first.new_prefill_tokens) == ("0-30k", 3, 9_000)
    assert first.median_tok_s == pytest.approx(200)
    assert first.prefill_union_ns == 25 * S
    assert first.union_tok_s == pytest.approx(9_000 / 25)
    assert second.requests == 1
    assert second.median_tok_s == pytest.approx(50)
    assert (third.requests, third.new_prefill_tokens, third.median_tok_s, third.union_tok_s) == (0, None, None, None)
    assert (last.from_tokens, last.to_tokens) == (100_000, None)


def test_a_request_without_new_tokens_or_without_length_has_no_speed_of_its_own() -> None:
    requests = [
        a_request("q0", (0, 10), new_prefill_tokens=1_000, context_start=0),
        a_request("q1", (20, 21), new_prefill_tokens=0, context_start=0),
        a_request("q2", (30, 30), new_prefill_tokens=5, context_start=0),
    ]
    assert by_context(requests)[0].median_tok_s == pytest.approx(100)


def test_a_request_without_a_context_position_is_in_no_bucket_and_is_counted() -> None:
    account = account_segment([*three_agents(), a_request("q9", (90, 91))], SEGMENT)
    assert account.unknown_context == 1
    assert [bucket.requests for bucket in account.buckets] == [1, 1, 0, 1]
    assert tuple(bucket.name for bucket in account.buckets) == accounting.BUCKETS


def test_several_segments_in_one_go_are_each_as_by_itself_whoever_straddles_them() -> None:
    second = Segment("s2", "r1", "default", T0 + 45 * S, T0 + 60 * S)
    other_run = Segment("s1", "r2", "default", T0, None)
    rows = [*three_agents(), a_request("q3", (46, 50), (50, 70), segment="s2", agent=None, match=Match.SERVER_ONLY)]
    rows += [a_request("q4", (1, 2), run="r2", agent=None), a_request("q5", (5, 50), segment=None)]
    segments = (SEGMENT, second, other_run)
    made = account_segments(iter(rows), segments)
    assert made == [account_segment(rows, one) for one in segments]
    assert made[1].straddles_begin == ("q1", "q5")  # 10-75 and 5-50 hold second 45; 46-70 begins after it
    assert made[1].straddles_end == ("q3",)
    assert [part.whole.requests for part in made] == [3, 1, 1]
    assert made[1].no_agent == made[1].whole
