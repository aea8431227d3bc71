"""After the first restarts: how many more would a verdict need, or can more of them not change this?

The rule looks at ranges, and ranges only grow. So values that overlap (or touch) now can never be distinguished by
adding to them, whatever comes; from 6 a side on the rank test may still find a direction. Values that are apart but not
far enough can be, because the separation that a claim needs falls from 3.2 at 2 a side to 0 at 5. How likely that is
comes from a simulation at the means and the spread seen so far, which are themselves uncertain: four values say little
of a spread. Taking them as true promised 91 % and more, of which 20 to 65 % came true at small effects; letting them
vary promises 84 % and keeps it where the true effect is 4 spreads, 72 % at 2.5 (tests/bench/bench_verdict.py). Where
it is as small as one spread, less than half of the (few) promises come true: only lucky pairs are apart to begin with.

Deciding after each restart costs more than 2 % of false claims (5 % at 5 a side): the forecast carries that rate.
The repeat is the restart because of measurement bias between setups (Mytkowicz et al. 2009; Duplyakin et al. 2023).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.core import separation
from agentload.core.separation import LEAST_RESTARTS, RANK_TEST_FROM, SAME_VALUE, Outcome

WANTED_CHANCE: Final = 0.8
MOST_MORE: Final = 6  # restarts a side; each may take an hour
_DRAWS: Final = 4_000  # a chance of 80 % is good to 1.3 points (two standard errors)


class Prospect(StrEnum):
    """What more restarts can do."""

    DONE = "already distinguished"
    MORE = "more restarts are likely to give a verdict"
    UNCERTAIN = "more restarts may or may not give a verdict"
    CANNOT = "more repeats cannot change this"
    UNKNOWN = "too few restarts to tell"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What more restarts can do at the spread seen."""

    prospect: Prospect
    more: (
        int | None
    )  # restarts a side: with MORE those that reach the wanted chance, with UNKNOWN the least for a verdict
    chances: tuple[tuple[int, float], ...]  # (further restarts a side, chance of "distinguished" then)
    false_claims: float | None  # share of equals called distinguished if one judges after each restart up to there
    direction_from: int | None  # with CANNOT: further restarts a side from which a consistent direction is possible

    @property
    def sentence(self) -> str:
        """One line for a report."""
        if self.prospect is Prospect.MORE and self.more is not None:
            chance = dict(self.chances)[self.more]
            give = "gives" if self.more == 1 else "give"
            return f"at the spread seen, {_more(self.more)} a side {give} a verdict with a chance of {chance:.0%}"
        if self.prospect is Prospect.UNCERTAIN:
            more, chance = max(self.chances, key=lambda one: one[1])
            return (
                f"at the spread seen, up to {max(at for at, _ in self.chances)} more restarts a side need not give a "
                f"verdict: the chance is {chance:.0%} at best, with {_more(more)}"
            )
        if self.prospect is Prospect.CANNOT:
            also = (
                f"; a consistent direction is possible from {self.direction_from} more on"
                if self.direction_from
                else ""
            )
            return f"more repeats cannot change this: the ranges overlap, and ranges only grow{also}"
        if self.prospect is Prospect.UNKNOWN and self.more is not None:
            are = "is" if self.more == 1 else "are"
            return f"at least {_more(self.more)} a side {are} needed before there is a spread to judge by"
        return "already distinguished"


def _more(restarts: int) -> str:
    return f"{restarts} more restart{'s' * (restarts != 1)}"


def _spread(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the standard deviation within the sides, pooled."""
    squares = sum(sum((value - sum(side) / len(side)) ** 2 for value in side) for side in (first, second))
    return math.sqrt(squares / (len(first) + len(second) - 2))


def _extremes(
    side: Sequence[float], spreads: npt.NDArray[np.float64], most: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (lowest, highest) after each of `most` further restarts; arrays of draws x further restarts."""
    means = sum(side) / len(side) + spreads / math.sqrt(len(side)) * rng.standard_normal((_DRAWS, 1))
    further = means + spreads * rng.standard_normal((_DRAWS, most))
    low = np.minimum(np.minimum.accumulate(further, axis=1), min(side))
    high = np.maximum(np.maximum.accumulate(further, axis=1), max(side))
    return low, high


def restarts_needed(
    first: Sequence[float],
    second: Sequence[float],
    rng: np.random.Generator,
    *,
    wanted: float = WANTED_CHANCE,
    most: int = MOST_MORE,
) -> Forecast:
    """Return what further restarts, the same number on both sides, can do for two sides' values.

    The values so far stay. Further ones are drawn from the predictive distribution of normal noise: the spread, pooled
    within the sides, from its scaled inverse chi-square, then each side's mean given the spread, then the values.
    The same generator state gives the same forecast.

    Raises:
        ValueError: a value is not finite, `wanted` is not between 0 and 1, or `most` is below 1.
    """
    if not 0 < wanted < 1 or most < 1:
        raise ValueError(f"expected a chance between 0 and 1 and 1 or more restarts, got {wanted} and {most}")
    now = separation.decide(first, second)
    fewest = min(len(first), len(second))
    if now.outcome is Outcome.NO_VERDICT:
        return Forecast(Prospect.UNKNOWN, LEAST_RESTARTS - fewest, (), None, None)
    if now.outcome is Outcome.DISTINGUISHED:
        return Forecast(Prospect.DONE, 0, (), None, None)
    if now.separation is None:
        return Forecast(Prospect.CANNOT, None, (), None, max(1, RANK_TEST_FROM - fewest))
    freedom = len(first) + len(second) - 2
    spreads = _spread(first, second) * np.sqrt(freedom / rng.chisquare(freedom, (_DRAWS, 1)))
    upper, lower = (first, second) if now.direction > 0 else (second, first)
    upper_low, upper_high = _extremes(upper, spreads, most, rng)
    lower_low, lower_high = _extremes(lower, spreads, most, rng)
    gaps = upper_low - lower_high
    wider = np.maximum(upper_high - upper_low, lower_high - lower_low)
    apart = gaps > SAME_VALUE * max(abs(value) for value in (*first, *second))
    chances = []
    for more in range(1, most + 1):
        needed = separation.needed_separation(len(first) + more, len(second) + more)
        claims = apart[:, more - 1] & (gaps[:, more - 1] >= needed * wider[:, more - 1])
        chances.append((more, float(claims.mean())))
    reached = next((more for more, chance in chances if chance >= wanted), None)
    until = fewest + (most if reached is None else reached)
    return Forecast(
        prospect=Prospect.UNCERTAIN if reached is None else Prospect.MORE,
        more=reached,
        chances=tuple(chances),
        false_claims=separation.false_claims_if_decided_after_each(until),
        direction_from=None,
    )
