"""Between equals, how often does the code name a winner, and how often does it see a true effect?

A reduced form of tests/bench/bench_verdict.py: the same simulations with fewer draws and fixed seeds. A bound is the
true rate (from the protocol, or exact) and three standard errors of so many draws.
"""

import math

import pytest

from agentload.core.separation import Outcome, disjoint_chance, false_claims
from tests.core.simulated_runs import Noise, blocked_order, heavy, normal, tally

NULL_DRAWS = 2_000
POWER_DRAWS = 400


def within(rate: float, draws: int) -> float:
    """Three standard errors of a share."""
    return 3 * math.sqrt(rate * (1 - rate) / draws)


@pytest.mark.parametrize("restarts", [2, 3, 4, 5])
@pytest.mark.parametrize("noise", [normal, heavy])
def test_equals_are_told_apart_in_two_percent_at_most(restarts: int, noise: Noise) -> None:
    # One spread is enough: the rule does not change when all values are stretched (test_separation has the property).
    got = tally(NULL_DRAWS, restarts, 11, spread=0.05, noise=noise)
    said = false_claims(restarts, restarts)
    printed = said.normal if noise is normal else said.heavy_tailed
    assert got.share(got.final) <= 0.026
    assert got.share(got.rule) == pytest.approx(printed, abs=0.01)
    published = disjoint_chance(restarts, restarts)
    assert got.share(got.published) == pytest.approx(published, abs=within(published, NULL_DRAWS))


@pytest.mark.parametrize(
    ("effect", "spread", "expected"),  # of 200,000 draws of the rule with numpy alone, at 2, 3, 4 and 5 restarts a side
    [
        (0.05, 0.02, (0.128, 0.385, 0.591, 0.561)),
        (0.20, 0.05, (0.244, 0.715, 0.910, 0.912)),
        (0.35, 0.05, (0.512, 0.978, 0.999, 1.000)),
        (1.00, 0.15, (0.348, 0.832, 0.972, 0.978)),
    ],
)
def test_power_is_as_computed_elsewhere_and_no_sign_is_wrong(
    effect: float, spread: float, expected: tuple[float, ...]
) -> None:
    found = [tally(POWER_DRAWS, restarts, 12, effect=effect, spread=spread) for restarts in (2, 3, 4, 5)]
    for one, share in zip(found, expected, strict=True):
        assert one.share(one.rule) == pytest.approx(share, abs=within(share, POWER_DRAWS) + 0.001)
        assert one.final >= 0.98 * one.rule  # the refusals cost next to nothing where the order is reversed
        assert one.wrong_rule == 0
    assert found[3].final >= found[1].final - 0.03 * POWER_DRAWS


@pytest.mark.parametrize("restarts", [2, 3, 4, 5])
def test_a_wrong_sign_is_never_likelier_than_half_a_false_claim(restarts: int) -> None:
    # An effect of a third of the spread, the hardest case. Zero is out of reach for a rule that claims at all.
    got = tally(1_000, restarts, 13, effect=0.05, spread=0.15)
    half = false_claims(restarts, restarts).normal / 2
    assert got.share(got.wrong_final) <= half + within(half, 1_000)


@pytest.mark.parametrize("restarts", [2, 3, 4, 5])
def test_a_drift_of_ten_percent_fools_the_blocked_order_and_not_the_reversed(restarts: int) -> None:
    draws = 200
    blocked = tally(draws, restarts, 14, spread=0.005, drift=0.1, order=blocked_order(restarts))
    turned = tally(draws, restarts, 14, spread=0.005, drift=0.1)
    assert blocked.published > 0.9 * draws  # the published rule names a winner
    if restarts >= 4:
        assert blocked.rule > 0.8 * draws  # and from four a side on, so does the separation
    assert blocked.final == 0  # unless the order is looked at
    assert sum(blocked.outcomes[one] for one in Outcome if one.claims) == 0
    assert (turned.published, turned.rule, turned.final) == (0, 0, 0)
