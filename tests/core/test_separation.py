"""Is the rule on two lists of values the one that the protocol states, word by word?"""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.separation import (
    Outcome,
    decide,
    disjoint_chance,
    false_claims,
    false_claims_if_decided_after_each,
    needed_separation,
    rank_test,
)

# Values such as tok/s with two decimals: ties are common.
values = st.integers(1, 2_000).map(lambda hundredths: hundredths / 100)
sides = st.lists(values, min_size=1, max_size=8)


def test_the_protocol_fixes_c_for_equal_counts() -> None:
    assert [needed_separation(n, n) for n in (2, 3, 4, 5, 6, 30)] == [3.2, 0.55, 0.07, 0, 0, 0]


def test_c_for_unequal_counts_lies_between_and_does_not_care_about_sides() -> None:
    assert 0.55 < needed_separation(2, 3) < 3.2
    assert needed_separation(3, 2) == needed_separation(2, 3)
    assert needed_separation(2, 13) == 0  # 2 / binomial(15, 2) = 1.9 %


def test_disjoint_ranges_alone_claim_a_winner_as_often_as_published() -> None:
    assert [round(disjoint_chance(n, n), 3) for n in (2, 3, 4)] == [0.333, 0.1, 0.029]


def test_rates_of_false_claims_stay_at_two_percent() -> None:
    for one, other in itertools.combinations_with_replacement(range(2, 16), 2):
        rates = false_claims(one, other)
        assert rates.normal <= 0.021
        assert rates.heavy_tailed <= 0.021
        assert rates.published_rule == 2 / math.comb(one + other, one)
        if needed_separation(one, other) == 0:  # then the rules are one, and the simulation must find the exact rate
            assert rates.normal == pytest.approx(rates.published_rule, abs=0.001)


def test_deciding_after_each_restart_costs_false_claims() -> None:
    looks = [false_claims_if_decided_after_each(n) for n in (2, 3, 4, 5, 9)]
    assert looks == sorted(looks)
    assert looks[0] == pytest.approx(0.02, abs=0.001)
    assert looks[3] == looks[4] == pytest.approx(0.051, abs=0.001)


@pytest.mark.parametrize(
    ("first", "second", "outcome", "published"),
    [
        ([0, 5], [21, 26], Outcome.DISTINGUISHED, Outcome.DISTINGUISHED),  # gap 16 = 3.2 x 5
        ([0, 5], [20.9, 25.9], Outcome.CONSISTENT_DIRECTION, Outcome.DISTINGUISHED),
        ([0, 1], [2, 7], Outcome.CONSISTENT_DIRECTION, Outcome.DISTINGUISHED),  # the wider range counts: 1 / 5
        ([0, 1, 2], [3.1, 4, 5.1], Outcome.DISTINGUISHED, Outcome.DISTINGUISHED),  # gap 1.1 = 0.55 x 2
        ([0, 1, 2], [3.0, 4, 5.0], Outcome.CONSISTENT_DIRECTION, Outcome.DISTINGUISHED),
        ([0, 1, 2, 10], [10.7, 11, 12, 20.7], Outcome.DISTINGUISHED, Outcome.DISTINGUISHED),  # 0.7 = 0.07 x 10
        ([0, 1, 2, 10], [10.6, 11, 12, 20.6], Outcome.CONSISTENT_DIRECTION, Outcome.DISTINGUISHED),
        ([0, 1, 2, 3, 4], [4.01, 5, 6, 7, 8], Outcome.DISTINGUISHED, Outcome.DISTINGUISHED),  # c(5) = 0
        ([0, 1, 2, 3, 4], [4, 5, 6, 7, 8], Outcome.NOT_DISTINGUISHED, Outcome.NOT_DISTINGUISHED),  # touching
        ([0, 2], [1, 3], Outcome.NOT_DISTINGUISHED, Outcome.NOT_DISTINGUISHED),
        ([1], [9, 10], Outcome.NO_VERDICT, Outcome.NO_VERDICT),
        ([], [9, 10], Outcome.NO_VERDICT, Outcome.NO_VERDICT),
    ],
)
def test_the_rule_word_by_word(first: list[float], second: list[float], outcome: Outcome, published: Outcome) -> None:
    decision = decide(first, second)
    assert (decision.outcome, decision.published) == (outcome, published)
    assert decision.direction == (-1 if outcome.claims else 0)


def test_a_slight_overlap_at_six_a_side_is_a_consistent_direction() -> None:
    # ranks of the lower side 1 2 3 4 5 8: U = 2, and 1 + 1 + 2 choices are as far: 2 x 4 / 924
    decision = decide([1, 2, 3, 4, 5, 8], [6, 7, 9, 10, 11, 12])
    assert decision.outcome is Outcome.CONSISTENT_DIRECTION
    assert decision.direction == -1
    assert decision.rank_p == pytest.approx(8 / 924)
    assert decision.published is Outcome.NOT_DISTINGUISHED


def test_the_same_overlap_at_five_a_side_is_nothing() -> None:
    decision = decide([1, 2, 3, 4, 7], [6, 8, 9, 10, 11])
    assert (decision.outcome, decision.rank_p) == (Outcome.NOT_DISTINGUISHED, None)


def test_rank_tables_are_met() -> None:
    # Mann and Whitney's U at 6 against 6: 1, 1, 2, 3, 5 of 924 choices have U = 0, 1, 2, 3, 4
    at_3 = rank_test([1, 2, 3, 4, 5, 9], [6, 7, 8, 10, 11, 12])
    at_4 = rank_test([1, 2, 3, 4, 5, 10], [6, 7, 8, 9, 11, 12])
    assert [at_3, at_4] == pytest.approx([14 / 924, 24 / 924])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_the_rank_test_counts_every_choice_of_places_also_with_ties(first: list[int], second: list[int]) -> None:
    both = [*first, *second]

    def distance(chosen: tuple[int, ...]) -> int:  # wins minus losses of the chosen places against the others
        rest = [at for at in range(len(both)) if at not in chosen]
        return abs(sum((both[a] > both[b]) - (both[a] < both[b]) for a in chosen for b in rest))

    choices = list(itertools.combinations(range(len(both)), len(first)))
    seen = distance(tuple(range(len(first))))
    assert rank_test(first, second) == pytest.approx(sum(distance(one) >= seen for one in choices) / len(choices))


@given(sides, sides)
def test_the_rule_is_symmetric(first: list[float], second: list[float]) -> None:
    one, other = decide(first, second), decide(second, first)
    assert one.outcome is other.outcome
    assert one.published is other.published
    assert one.direction == -other.direction


@given(sides, sides, st.floats(1e-6, 1e6))
def test_the_rule_does_not_care_about_the_unit(first: list[float], second: list[float], unit: float) -> None:
    here, there = decide(first, second), decide([unit * one for one in first], [unit * one for one in second])
    assert (here.outcome, here.published, here.direction) == (there.outcome, there.published, there.direction)


@given(sides, sides, st.data())
def test_the_order_in_which_values_are_listed_plays_no_part(
    first: list[float], second: list[float], data: st.DataObject
) -> None:
    assert decide(data.draw(st.permutations(first)), data.draw(st.permutations(second))) == decide(first, second)


@given(sides, sides, values)
def test_a_tie_is_never_distinguished(first: list[float], second: list[float], shared: float) -> None:
    decision = decide([*first, shared], [*second, shared])
    assert decision.outcome is not Outcome.DISTINGUISHED
    assert decision.published is not Outcome.DISTINGUISHED


@given(sides, sides)
def test_ours_never_claims_where_the_published_rule_does_not(first: list[float], second: list[float]) -> None:
    decision = decide(first, second)
    assert decision.outcome is not Outcome.DISTINGUISHED or decision.published is Outcome.DISTINGUISHED


def test_a_tie_that_rounding_hides_is_still_a_tie() -> None:
    decision = decide([0.1 + 0.2, 0.4, 0.5, 0.6, 0.7], [0.3, 0.2, 0.1, 0.05, 0.01])  # 0.30000000000000004 > 0.3
    assert decision.outcome is Outcome.NOT_DISTINGUISHED


def test_no_spread_at_all_is_an_infinite_separation() -> None:
    assert decide([5, 5], [6, 6]).separation == math.inf


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(strange: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        decide([1, strange], [2, 3])


def test_rates_for_single_runs_do_not_exist() -> None:
    with pytest.raises(ValueError, match="2 or more restarts"):
        false_claims(1, 5)
    with pytest.raises(ValueError, match="both sides"):
        rank_test([], [1])
