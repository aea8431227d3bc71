"""Do the probe's formulas give what can be worked out by hand, and what report A's tables have from the same inputs?"""

from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core import probe
from agentload.core.probe import Gaps, Load, Turn
from agentload.twin import published

S = 1_000_000_000


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segment", "load", "repeat"),
    [
        ("d0-r1", Load(0), 1),
        ("d3-r2", Load(3), 2),
        ("d3k3-r10", Load(3, 3), 10),
        ("n16-r3", Load(1, 1, 16), 3),
    ],
)
def test_a_segments_name_says_its_load_and_its_repeat(segment: str, load: Load, repeat: int) -> None:
    assert probe.load_of(segment) == (load, repeat)
    assert f"{load.name}-r{repeat}" == segment


@pytest.mark.parametrize("segment", ["s1", "c4-r1", "d3", "d3k-r1", "dx-r1", "d3-r1-r2"])
def test_a_segment_of_another_workload_has_no_load(segment: str) -> None:
    assert probe.load_of(segment) is None


def test_each_number_of_decoders_comes_with_each_number_of_prompts_and_the_nearly_finished_one_last() -> None:
    found = probe.loads_of({"decoders": [0, 3], "prompts": [1, 3], "nearly_finished": 16})
    assert [one.name for one in found] == ["d0", "d0k3", "d3", "d3k3", "n16"]


def test_a_scenario_that_does_not_say_has_no_load_and_three_decoders() -> None:
    assert [one.name for one in probe.loads_of({})] == ["d0", "d3"]


def test_loads_are_ranked_by_decoders_then_prompts_and_nearly_finished_ones_come_last() -> None:
    loads = [Load(1, 1, 16), Load(3, 3), Load(10), Load(3), Load(0)]
    assert [one.name for one in sorted(loads, key=lambda one: one.rank)] == ["d0", "d3", "d3k3", "d10", "n16"]


def test_a_load_is_said_in_words() -> None:
    assert [one.shown for one in (Load(0), Load(1), Load(3), Load(3, 3), Load(0, 2), Load(1, 1, 16))] == [
        "no load",
        "1 decoder",
        "3 decoders",
        "3 prompts at once, 3 decoders",
        "2 prompts at once, no load",
        "one decoder with 16 tokens left",
    ]


# ---- gaps ------------------------------------------------------------------------------------------------------------


def turn(*stamps: int, tokens: int | None = None) -> Turn:
    return Turn(stamps, tokens)


def test_gaps_are_those_between_tokens_of_one_answer_in_the_window() -> None:
    """Two sessions: gaps 10, 10, 40 and 20, 30; sorted 10 10 20 30 40: median 20, 99 % of 5 is the 5th."""
    found = probe.gaps([turn(100, 110, 120, 160), turn(100, 120, 150)], (90, 200))
    assert found == Gaps(count=5, median_ns=20, p99_ns=40, longest_ns=40, straddling=0)


def test_a_gap_over_the_edge_counts_whole_and_is_said() -> None:
    """The window [100, 200) cuts 90..130 and 170..220, most of both lie in it: 40, 40 and 50 long, two reach out."""
    found = probe.gaps([turn(70, 90, 130, 170, 220, 240)], (100, 200))
    assert found == Gaps(count=3, median_ns=40, p99_ns=50, longest_ns=50, straddling=2)


@pytest.mark.parametrize(("inside", "count"), [(19, 1), (20, 2)])
def test_a_gap_of_which_less_than_half_lies_in_the_window_is_none_of_it(inside: int, count: int) -> None:
    """40 long, 19 or 20 of it inside; the other one lies inside whole."""
    first = 100 + inside - 40
    found = probe.gaps([turn(first, 100 + inside, 160)], (100, 200))
    assert found is not None
    assert found.count == count


def test_ordinary_gaps_that_the_clocks_push_over_the_edge_do_not_hide_a_stall() -> None:
    """As it was on a real llama.cpp, in us: a prefill of 49,547,890, and 300 us at each edge."""
    found = probe.gaps([turn(-212_800, -128_100, 300, 49_547_600, 49_619_900)], (0, 49_547_890))
    assert found == Gaps(1, 49_547_300, 49_547_300, 49_547_300, 0)


def test_a_server_that_stalls_everybody_for_the_whole_prefill_has_one_gap_over_both_edges() -> None:
    assert probe.gaps([turn(10, 20, 500, 510)], (30, 490)) == Gaps(1, 480, 480, 480, 1)


def test_a_gap_that_only_touches_the_window_is_none_of_it() -> None:
    """Half-open: the one that ends where it begins, and the one that begins where it ends, share no time with it."""
    assert probe.gaps([turn(90, 100), turn(200, 210)], (100, 200)) is None


def test_tokens_that_came_together_have_a_gap_of_nothing() -> None:
    found = probe.gaps([turn(110, 110, 150)], (100, 200))
    assert found == Gaps(count=2, median_ns=20, p99_ns=40, longest_ns=40, straddling=0)


def test_between_two_turns_there_is_no_gap() -> None:
    assert probe.gaps([turn(110, 120), turn(180, 190)], (100, 200)) == Gaps(2, 10, 10, 10, 0)


@pytest.mark.parametrize(
    ("count", "share", "rank"), [(1, 0.99, 1), (100, 0.99, 99), (101, 0.99, 100), (200, 0.99, 198), (10, 0.5, 5)]
)
def test_nearest_rank_is_the_ceiling_of_share_times_count(count: int, share: float, rank: int) -> None:
    assert probe.nearest_rank(range(1, count + 1), share) == rank


@pytest.mark.parametrize("share", [0, 1.01])
def test_a_rank_needs_values_and_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="expected values and a share above 0 and at most 1, got 1 and"):
        probe.nearest_rank([1], share)
    with pytest.raises(ValueError, match="got 0 and"):
        probe.nearest_rank([], 0.5)


stamps = st.lists(st.integers(0, 60), max_size=12).map(sorted)
windows = st.tuples(st.integers(0, 60), st.integers(0, 60)).filter(lambda one: one[0] < one[1])


@given(st.lists(stamps, max_size=4), windows)
def test_gaps_are_those_that_an_oracle_finds_by_counting_moments(
    each: list[list[int]], window: tuple[int, int]
) -> None:
    """Of whole ns a gap [a, b) holds the moments a, ..., b - 1; one of nothing lies where its stamp does."""
    moments = set(range(*window))

    def belongs(before: int, after: int) -> bool:
        shared = len(moments & set(range(before, after)))
        shorter = min(after - before, len(moments))
        return before in moments if before == after else shared > 0 and shared >= shorter / 2

    found = [one for stamped in each for one in pairwise(stamped) if belongs(*one)]
    lengths = [after - before for before, after in found]
    told = probe.gaps([turn(*one) for one in each], window)
    if not found:
        assert told is None
        return
    assert told is not None
    assert (told.count, told.median_ns, told.longest_ns) == (len(found), median(lengths), max(lengths))
    below = sum(length <= told.p99_ns for length in lengths)
    assert below >= 0.99 * len(lengths) > sum(length < told.p99_ns for length in lengths)
    assert told.straddling == sum(not set(range(*one)) <= moments for one in found)


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_belongs_to_the_window_that_it_comes_in_and_the_end_is_none_of_it() -> None:
    assert probe.tokens_in([turn(99, 100, 199, 200)], (100, 200)) == 2


def test_a_piece_stands_for_its_answers_tokens_a_piece() -> None:
    """8 tokens in 4 pieces: each stands for 2; three of them lie inside. An answer without a count: 1 each."""
    assert probe.tokens_in([turn(90, 110, 120, 130, tokens=8), turn(110, 120)], (100, 200)) == 8.0


@given(st.lists(stamps, max_size=4), windows, windows)
def test_tokens_of_two_windows_that_touch_add_up(
    each: list[list[int]], first: tuple[int, int], second: tuple[int, int]
) -> None:
    begin, middle, end = first[0], first[1], first[1] + second[1]
    turns = [turn(*one) for one in each]
    both = probe.tokens_in(turns, (begin, middle)) + probe.tokens_in(turns, (middle, end))
    assert probe.tokens_in(turns, (begin, end)) == both == sum(begin <= stamp < end for one in each for stamp in one)


def test_the_speed_alone_is_of_the_tokens_after_the_first_one() -> None:
    """Three that write a token each 0.1 s: 10 tok/s each, wherever between two tokens the window is cut."""
    each = [[turn(*range(0, 5 * S, S // 10))] for _ in range(3)]
    for begin, end in ((0, 4 * S), (S // 20, 4 * S + S // 30), (S + 1, 3 * S)):
        assert probe.speed_alone(each, (begin, end)) == pytest.approx(30.0)


def test_a_decoder_of_one_token_has_no_speed_alone_and_so_all_have_none() -> None:
    assert probe.speed_alone([[turn(0, S, 2 * S)], [turn(S)]], (0, 3 * S)) is None
    assert probe.speed_alone([], (0, 3 * S)) is None


def test_the_speed_alone_goes_on_over_a_change_of_turns() -> None:
    """4 tokens after the first in 5 s: the second turn's way and prefill is time of theirs too."""
    assert probe.speed_alone([[turn(0, S, 2 * S), turn(4 * S, 5 * S)]], (0, 6 * S)) == pytest.approx(0.8)


def test_coverage_is_the_part_of_the_window_in_which_a_decode_was_open() -> None:
    """[100, 200): open until 130 and from 150: 80 of 100."""
    assert probe.coverage([(0, 130), (150, 400)], (100, 200)) == 0.8
    assert probe.coverage([], (100, 200)) == 0
    assert probe.coverage([(0, 1)], (100, 100)) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=4), windows)
def test_coverage_is_what_an_oracle_finds_by_counting(spans: list[list[int]], window: tuple[int, int]) -> None:
    moments = [any(begin <= at < end for begin, end in spans) for at in range(*window)]
    assert probe.coverage([(begin, end) for begin, end in spans], window) == pytest.approx(sum(moments) / len(moments))


# ---- the prompt ------------------------------------------------------------------------------------------------------


def test_exposure_is_the_part_of_the_prefill_in_which_somebody_decodes() -> None:
    assert probe.exposed([(0, 100)], [(0, 20), (10, 25)]) == 0.25
    assert probe.exposed([(0, 100)], []) == 0
    assert probe.exposed([], [(0, 100)]) is None


def test_report_as_utilisation_is_the_quotient_of_two_speeds() -> None:
    """Table 8: 1.77 and 1.08 of 11.64 tok/s are 15.2 and 9.3 %."""
    of = published.load().time_sharing
    for quantum, meanwhile in of.decode_tok_s.items():
        assert probe.utilisation(meanwhile, 11.64) == pytest.approx(of.utilisation[quantum], abs=0.0005)


def test_nobody_is_used_more_than_wholly() -> None:
    assert (probe.utilisation(12.0, 11.0), probe.utilisation(None, 11.0), probe.utilisation(1.0, None)) == (
        1,
        None,
        None,
    )


def test_a_tokens_cost_leaves_out_what_the_decode_steps_took() -> None:
    """50 s, in it 12 steps of 86 ms: 48.968 s over 24,676 tokens are 1.98444 ms."""
    assert probe.cost_per_token_s(50, 24_676, 12, 0.086) == pytest.approx(0.00198444, rel=1e-5)


def test_without_decoders_the_cost_is_that_of_all_the_time() -> None:
    assert probe.cost_per_token_s(50, 25_000, 0, None) == 0.002


def test_the_cost_is_not_known_where_a_steps_time_is_not() -> None:
    assert probe.cost_per_token_s(50, 25_000, 12, None) is None
    assert probe.cost_per_token_s(50, 0, 0, None) is None


def test_a_cost_below_nothing_is_no_cost() -> None:
    """5 steps of 86 ms are 0.43 s: no prefill of 0.4 s has time left for them."""
    assert probe.cost_per_token_s(0.4, 500, 5, 0.086) is None
    assert probe.cost_per_token_s(0.5, 500, 5, 0.086) == pytest.approx(0.07 / 500)


def test_the_spread_of_repeats_is_their_range_over_their_median() -> None:
    assert probe.spread([100.0, 104.0, 101.0]) == pytest.approx(4 / 101)
    assert probe.spread([100.0]) is None


def test_report_as_three_prompts_end_within_half_a_second() -> None:
    for took in published.load().fairness.took_s.values():
        spread = probe.fairness_spread_ns([round(one * S) for one in took])
        assert spread is not None
        assert 0.4 * S <= spread <= 0.5 * S + 1
    assert probe.fairness_spread_ns([5]) is None
