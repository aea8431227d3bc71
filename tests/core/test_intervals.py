"""Interval algebra against a counter that ticks through every integer, and against identities of set algebra."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.intervals import Intervals

LOW, HIGH = -20, 40
Pairs = list[tuple[int, int]]

_ticks = st.integers(LOW, HIGH)
_pairs = st.lists(st.tuples(_ticks, _ticks).map(lambda pair: (min(pair), max(pair))), max_size=12)


def coverage(pairs: Pairs) -> list[int]:
    """The oracle: how many of the pairs hold each tick of [LOW, HIGH)."""
    return [sum(start <= tick < end for start, end in pairs) for tick in range(LOW, HIGH)]


def ticks_of(intervals: Intervals) -> set[int]:
    return {tick for start, end in intervals.pairs() for tick in range(start, end)}


def is_normal(intervals: Intervals) -> bool:
    """Sorted, not empty, disjoint, not touching."""
    pairs = intervals.pairs()
    apart = all(end < start for (_, end), (start, _) in itertools.pairwise(pairs))
    return apart and all(start < end for start, end in pairs)


# ---- by hand -------------------------------------------------------------------------------------------------------


def test_overlapped_time_counts_once_in_the_measure_and_twice_in_the_sum() -> None:
    both = Intervals.of([(5, 15), (0, 10)])
    assert both.union().pairs() == [(0, 15)]
    assert both.measure_ns() == 15
    assert both.summed_ns() == 20


def test_touching_intervals_become_one_and_a_gap_of_one_tick_stays() -> None:
    assert Intervals.of([(5, 9), (0, 5)]).union().pairs() == [(0, 9)]
    assert Intervals.of([(6, 9), (0, 5)]).union().pairs() == [(0, 5), (6, 9)]


def test_an_interval_inside_another_does_not_cut_it_short() -> None:
    assert Intervals.of([(0, 100), (10, 20), (150, 160)]).union().pairs() == [(0, 100), (150, 160)]


def test_intervals_of_no_length_count_for_nothing_and_bridge_nothing() -> None:
    assert Intervals.of([(3, 3)]).union().pairs() == []
    assert Intervals.of([(0, 2), (3, 3), (4, 6)]).union().pairs() == [(0, 2), (4, 6)]
    assert Intervals.of([(0, 10), (5, 5)]).union().pairs() == [(0, 10)]


def test_no_intervals_at_all_measure_zero_everywhere() -> None:
    nothing, something = Intervals.of([]), Intervals.of([(1, 4)])
    assert (len(nothing), nothing.measure_ns(), nothing.summed_ns()) == (0, 0, 0)
    assert nothing.intersection(something).pairs() == []
    assert nothing.difference(something).pairs() == []
    assert something.difference(nothing).pairs() == [(1, 4)]
    assert nothing.clip(0, 10).pairs() == []
    assert nothing.at_least(3).pairs() == []


def test_intersection_and_difference_of_a_known_pair_of_sets() -> None:
    left, right = Intervals.of([(0, 10), (20, 30)]), Intervals.of([(5, 22), (25, 26), (30, 40)])
    assert left.intersection(right).pairs() == [(5, 10), (20, 22), (25, 26)]
    assert left.difference(right).pairs() == [(0, 5), (22, 25), (26, 30)]


def test_time_covered_at_least_twice_is_found_among_many() -> None:
    three = Intervals.of([(0, 10), (5, 15), (8, 20)])
    assert three.at_least(2).pairs() == [(5, 15)]
    assert three.at_least(3).pairs() == [(8, 10)]
    assert three.at_least(4).pairs() == []


def test_clipping_cuts_at_the_window_and_keeps_order_and_overlaps() -> None:
    assert Intervals.of([(30, 50), (0, 12), (8, 20), (90, 99)]).clip(10, 40).pairs() == [(30, 40), (10, 12), (10, 20)]


def test_unix_nanoseconds_keep_their_last_digit() -> None:
    begin = 1_795_958_524_123_456_789
    assert Intervals.of([(begin, begin + 1), (begin + 2, begin + 5)]).measure_ns() == 4


def test_sums_beyond_64_bits_are_exact() -> None:
    assert Intervals.of([(0, 2**62)] * 3).summed_ns() == 3 * 2**62
    assert Intervals.of([(-(2**63), 2**63 - 1)] * 2).summed_ns() == 2 * (2**64 - 1)


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_an_interval_that_ends_before_it_starts_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"expected start <= end, got \[9, 7\) at index 1"):
        Intervals.of([(0, 5), (9, 7)])


def test_floats_are_refused_because_they_cannot_hold_nanoseconds() -> None:
    with pytest.raises(ValueError, match="int64 array, got float64"):
        Intervals(np.array([0.0]), np.array([1.0]))


def test_arrays_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 starts and 1 ends"):
        Intervals(np.array([0, 1], dtype=np.int64), np.array([2], dtype=np.int64))


def test_a_window_turned_round_and_a_coverage_of_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="begin <= end"):
        Intervals.of([(0, 1)]).clip(5, 4)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Intervals.of([(0, 1)]).at_least(0)


def test_the_callers_arrays_are_left_as_they_were() -> None:
    starts, ends = np.array([7, 3, 0], dtype=np.int64), np.array([9, 8, 1], dtype=np.int64)
    assert Intervals(starts, ends).union().pairs() == [(0, 1), (3, 9)]
    assert (starts.tolist(), ends.tolist()) == ([7, 3, 0], [9, 8, 1])
    starts[0] = 8  # still theirs to write


def test_results_cannot_be_written_into() -> None:
    union = Intervals.of([(0, 5)]).union()
    with pytest.raises(ValueError, match="read-only"):
        union.starts[0] = 1


# ---- against the counter -------------------------------------------------------------------------------------------


@given(_pairs, st.integers(1, 4))
def test_time_covered_k_times_is_what_the_counter_counts(pairs: Pairs, times: int) -> None:
    found = Intervals.of(pairs).at_least(times)
    expected = {tick for tick, count in zip(range(LOW, HIGH), coverage(pairs), strict=True) if count >= times}
    assert ticks_of(found) == expected
    assert is_normal(found)


@given(_pairs)
def test_measure_and_sum_are_what_the_counter_counts(pairs: Pairs) -> None:
    counts = coverage(pairs)
    assert Intervals.of(pairs).measure_ns() == sum(count > 0 for count in counts)
    assert Intervals.of(pairs).summed_ns() == sum(counts)


@given(_pairs, _pairs)
def test_intersection_and_difference_are_what_the_counter_counts(left: Pairs, right: Pairs) -> None:
    a, b = Intervals.of(left), Intervals.of(right)
    in_a = {tick for tick, count in zip(range(LOW, HIGH), coverage(left), strict=True) if count}
    in_b = {tick for tick, count in zip(range(LOW, HIGH), coverage(right), strict=True) if count}
    assert ticks_of(a.intersection(b)) == in_a & in_b
    assert ticks_of(a.difference(b)) == in_a - in_b
    assert is_normal(a.intersection(b))
    assert is_normal(a.difference(b))


@given(_pairs, _ticks, _ticks)
def test_clipping_keeps_what_the_counter_sees_in_the_window(pairs: Pairs, one: int, two: int) -> None:
    begin, end = min(one, two), max(one, two)
    seen = coverage(pairs)[begin - LOW : end - LOW]
    clipped = Intervals.of(pairs).clip(begin, end)
    assert clipped.summed_ns() == sum(seen)
    assert clipped.measure_ns() == sum(count > 0 for count in seen)


@pytest.mark.parametrize("longest", [3, 20, 400])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_set_longer_than_one_block_is_what_a_tally_of_its_edges_says(longest: int, times: int) -> None:
    # 200,000 intervals are four blocks; pieces cross from one into the next, and empty intervals lie between.
    count, span = 200_000, 1_000_000
    rng = np.random.default_rng(longest)
    starts = rng.integers(0, span, count)
    ends = starts + rng.integers(0, longest, count)
    opened = np.bincount(starts, minlength=span + longest)
    closed = np.bincount(ends, minlength=span + longest)
    covered = np.cumsum(opened - closed) >= times
    edges = np.flatnonzero(np.diff(np.concatenate(([False], covered, [False])).astype(np.int8)))
    assert Intervals(starts, ends).at_least(times).pairs() == list(
        zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    )


def test_pieces_that_touch_across_a_blocks_edge_become_one() -> None:
    # Blocks hold 2**16 intervals. All are apart but the last of the first block, which touches the one after it.
    at = np.arange(0, 300_000, 2, dtype=np.int64)
    ends = at + 1
    ends[2**16 - 1] += 1
    joined = Intervals(at, ends).union()
    assert len(joined) == 149_999
    assert joined.pairs()[2**16 - 1] == (2**17 - 2, 2**17 + 1)


def test_a_short_union_does_not_keep_the_long_arrays_alive() -> None:
    at = np.arange(0, 100_000, dtype=np.int64)
    union = Intervals(at, at + 1).union()
    assert union.pairs() == [(0, 100_000)]
    assert isinstance(union.starts.base, np.ndarray)
    assert union.starts.base.size == 1


# ---- identities ----------------------------------------------------------------------------------------------------


@given(_pairs)
def test_the_union_of_a_union_is_itself(pairs: Pairs) -> None:
    once = Intervals.of(pairs).union()
    assert once.union().pairs() == once.pairs()


@given(st.data(), _pairs)
def test_order_does_not_matter(data: st.DataObject, pairs: Pairs) -> None:
    shuffled = data.draw(st.permutations(pairs))
    assert Intervals.of(shuffled).union().pairs() == Intervals.of(pairs).union().pairs()


@given(_pairs, _pairs)
def test_inclusion_and_exclusion_balance(left: Pairs, right: Pairs) -> None:
    a, b = Intervals.of(left), Intervals.of(right)
    assert a.together(b).measure_ns() == a.measure_ns() + b.measure_ns() - a.intersection(b).measure_ns()
    assert a.measure_ns() == a.intersection(b).measure_ns() + a.difference(b).measure_ns()


@given(_pairs)
def test_the_measure_never_exceeds_the_sum_and_layers_add_up_to_it(pairs: Pairs) -> None:
    intervals = Intervals.of(pairs)
    assert intervals.measure_ns() <= intervals.summed_ns()
    assert sum(intervals.at_least(k).summed_ns() for k in range(1, len(pairs) + 1)) == intervals.summed_ns()


@given(_pairs, st.integers(-(10**18), 10**18))
def test_shifting_everything_shifts_the_union(pairs: Pairs, by: int) -> None:
    shifted = Intervals.of([(start + by, end + by) for start, end in pairs]).union().pairs()
    assert shifted == [(start + by, end + by) for start, end in Intervals.of(pairs).union().pairs()]
