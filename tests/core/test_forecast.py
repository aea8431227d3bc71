"""Does the forecast tell what further restarts can do, and what they cannot?"""

import numpy as np
import pytest

from agentload.core.forecast import Prospect, restarts_needed
from agentload.core.separation import Outcome, decide

FAST, SLOW = [316.0, 237.0], [123.5, 124.6]  # apart, gap 1.4 of the wider range: a consistent direction


def test_overlapping_ranges_can_never_be_told_apart_by_more_repeats() -> None:
    found = restarts_needed([1, 3], [2, 4], np.random.default_rng(1))
    assert (found.prospect, found.more, found.chances) == (Prospect.CANNOT, None, ())
    assert found.direction_from == 4  # at 6 a side
    assert found.sentence.startswith("more repeats cannot change this")


def test_touching_ranges_are_overlapping() -> None:
    assert restarts_needed([1, 2], [2, 3], np.random.default_rng(1)).prospect is Prospect.CANNOT


def test_after_a_single_pair_there_is_no_spread_to_judge_by() -> None:
    found = restarts_needed([1], [2], np.random.default_rng(1))
    assert (found.prospect, found.more) == (Prospect.UNKNOWN, 1)
    assert found.sentence == "at least 1 more restart a side is needed before there is a spread to judge by"


def test_what_is_distinguished_needs_nothing() -> None:
    found = restarts_needed([1, 1.1], [2, 2.1], np.random.default_rng(1))
    assert (found.prospect, found.more, found.sentence) == (Prospect.DONE, 0, "already distinguished")


def test_the_chance_is_that_of_drawing_further_restarts_at_an_uncertain_spread() -> None:
    found = restarts_needed(FAST, SLOW, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    squares = 2 * 39.5**2 + 2 * 0.55**2  # within the sides, 4 - 2 degrees of freedom
    hits = 0
    for _ in range(4_000):
        spread = (squares / (rng.standard_normal(2) ** 2).sum()) ** 0.5
        fast_mean, slow_mean = np.array([276.5, 124.05]) + spread / 2**0.5 * rng.standard_normal(2)
        fast = [*FAST, *(fast_mean + spread * rng.standard_normal(2)).tolist()]
        slow = [*SLOW, *(slow_mean + spread * rng.standard_normal(2)).tolist()]
        hits += decide(fast, slow).outcome is Outcome.DISTINGUISHED
    assert dict(found.chances)[2] == pytest.approx(hits / 4_000, abs=0.03)  # three standard errors of the difference


def test_the_least_number_that_reaches_the_wanted_chance_is_named() -> None:
    found = restarts_needed([100, 104], [114, 119], np.random.default_rng(1), wanted=0.7)  # gap 10 of 16 wanted
    assert found.prospect is Prospect.MORE
    assert found.more is not None
    chances = dict(found.chances)
    assert chances[found.more] >= 0.7
    assert all(chances[fewer] < 0.7 for fewer in range(1, found.more))
    assert f"{found.more} more restart{'s' * (found.more > 1)} a side" in found.sentence
    assert found.false_claims is not None
    assert found.false_claims > 0.03  # judged twice or more


def test_no_chance_rises_with_restarts_once_the_separation_has_no_further_to_fall() -> None:
    chances = [chance for more, chance in restarts_needed(FAST, SLOW, np.random.default_rng(1)).chances if more >= 3]
    assert chances == sorted(chances, reverse=True)  # from 5 a side on, ranges only grow


def test_a_hair_between_wide_ranges_is_not_likely_to_last() -> None:
    found = restarts_needed([0, 10], [10.1, 20.1], np.random.default_rng(1))
    assert (found.prospect, found.more) == (Prospect.UNCERTAIN, None)
    assert len(found.chances) == 6
    assert max(chance for _, chance in found.chances) < 0.8
    more, chance = max(found.chances, key=lambda one: one[1])
    assert found.sentence == (
        "at the spread seen, up to 6 more restarts a side need not give a verdict: the chance is "
        f"{chance:.0%} at best, with {more} more restart{'s' * (more > 1)}"
    )


def test_the_same_seed_gives_the_same_forecast_and_sides_may_be_swapped() -> None:
    one = restarts_needed(FAST, SLOW, np.random.default_rng(5))
    assert one == restarts_needed(FAST, SLOW, np.random.default_rng(5))
    assert one == restarts_needed(SLOW, FAST, np.random.default_rng(5))


@pytest.mark.parametrize(("wanted", "most"), [(0, 3), (1, 3), (0.5, 0)])
def test_a_forecast_of_nothing_is_refused(wanted: float, most: int) -> None:
    with pytest.raises(ValueError, match="expected a chance"):
        restarts_needed(FAST, SLOW, np.random.default_rng(1), wanted=wanted, most=most)
