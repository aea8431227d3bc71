"""Are the values of two sides, one value a restart, far enough apart to name a winner?

The rule of PROTOCOL section 4 and nothing else: no order, no drift, no validity (`verdict` has those). The published
rule calls two configurations distinguished when their ranges over restarts are disjoint. Between equals that happens in
2 of binomial(a + b, a) cases, whatever the noise: 33 % at 2 against 2, 10 % at 3 against 3, 2.9 % at 4 against 4. So a
claim also needs gap >= c x the wider range, with c from a simulation that keeps false claims at 2 % (separation_table).
That many restarts are needed at all, because the setup moves a result by more than requests inside one boot show:
Mytkowicz et al. 2009 (measurement bias), Duplyakin et al. 2023 (order effects).

The 2 % hold for noise that is normal and equally wide on both sides. `FalseClaims` gives the others that were
simulated: with one side four times as wide it is about 4 % at 2, 3 and 4 a side, and more where the counts differ too
(7 % at 2 against 4). Give both sides the same number of restarts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentload.core.separation_table import DECIDED_AFTER_EACH, SEPARATION

LEAST_RESTARTS: Final = 2  # a side; one value has no range
RANK_TEST_FROM: Final = 6  # restarts on the smaller side (PROTOCOL section 4)
RANK_TEST_LEVEL: Final = 0.02
TARGET_FALSE_CLAIMS: Final = 0.02
# Values nearer than this part of their size are the same value: pooled speeds are quotients, and 0.1 + 0.2 is not 0.3.
SAME_VALUE: Final = 1e-9


class Outcome(StrEnum):
    """What may be said about two variants on one metric."""

    DISTINGUISHED = "distinguished"
    CONSISTENT_DIRECTION = "consistent direction"
    NOT_DISTINGUISHED = "not distinguished"
    NO_VERDICT = "no verdict"

    @property
    def claims(self) -> bool:
        """Whether it names a direction."""
        return self in {Outcome.DISTINGUISHED, Outcome.CONSISTENT_DIRECTION}


@dataclass(frozen=True, slots=True)
class FalseClaims:
    """How often the rule calls equals distinguished at these counts, as shares; None was not simulated.

    Half of them name either side. So where a true effect is small beside the spread, a claim of the wrong sign comes in
    up to half of these cases: at an effect of 5 % and a spread of 15 %, 0.6 % of experiments at 2 restarts a side.
    """

    normal: float
    heavy_tailed: float  # Student's t, 3 degrees of freedom
    slow_boots: float | None  # normal, and one restart of ten slow by 8 standard deviations
    unequal_spread: float | None  # normal, one side four times as wide
    published_rule: float  # of "disjoint ranges" alone; exact for any noise that is the same on both sides


@dataclass(frozen=True, slots=True)
class Decision:
    """The rule's answer on two lists of values."""

    outcome: Outcome
    published: Outcome  # of the published rule: distinguished when the ranges are disjoint, touching is overlapping
    direction: int  # 1: the first side is greater, -1: the second, 0: neither may be named
    gap: float | None  # between the ranges, in the metric's unit; negative: by how much they overlap
    wider_range: float | None
    separation: float | None  # gap / wider range; infinite when neither side spreads; None when ranges overlap
    needed: float | None  # c at these counts
    rank_p: float | None  # exact and two-sided; only where the rule asks for it


def _pair(first: int, second: int) -> tuple[int, int]:
    if min(first, second) < LEAST_RESTARTS:
        raise ValueError(f"expected {LEAST_RESTARTS} or more restarts a side, got {first} and {second}")
    return min(first, second), max(first, second)


def disjoint_chance(first: int, second: int) -> float:
    """Return the chance that equals give disjoint ranges: 2 / binomial(a + b, a), for any continuous noise.

    All orders of a + b exchangeable values are equally likely, and two of the choices of places are apart.
    """
    return 2 / math.comb(first + second, first)


def needed_separation(first: int, second: int) -> float:
    """Return c: gap / wider range that a claim needs at these counts of restarts (PROTOCOL section 4).

    3.2 / 0.55 / 0.07 at 2 / 3 / 4 a side; 0 wherever disjoint ranges alone are rarer than 2 % between equals.

    Raises:
        ValueError: fewer than 2 restarts on a side.
    """
    found = SEPARATION.get(_pair(first, second))
    return 0.0 if found is None else found[0]


def false_claims(first: int, second: int) -> FalseClaims:
    """Return the simulated rates of false claims at these counts; where c is 0 and none was simulated, the exact one.

    Raises:
        ValueError: fewer than 2 restarts on a side.
    """
    published = disjoint_chance(*_pair(first, second))
    found = SEPARATION.get(_pair(first, second))
    if found is None:  # c is 0: the two rules are one
        return FalseClaims(published, published, published, None, published)
    _, normal, heavy, slow, unequal = found
    return FalseClaims(normal, heavy, slow, unequal, published)


def false_claims_if_decided_after_each(restarts: int) -> float:
    """Return the share of equals called distinguished at least once when judged at 2 a side and after each further.

    It grows from 2 % to 5 % at 5 a side and stays there: c is 0 from then on, and ranges only grow.

    Raises:
        ValueError: fewer than 2 restarts.
    """
    _pair(restarts, restarts)
    return DECIDED_AFTER_EACH[min(restarts, max(DECIDED_AFTER_EACH))]


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the exact two-sided p of the rank sum (Wilcoxon, Mann and Whitney), ties at their mean rank.

    The share of the binomial(a + b, a) choices of places whose rank sum is at least as far from its mean. Counted, not
    approximated, so it also holds with ties.

    Raises:
        ValueError: a side is empty.
    """
    if not first or not second:
        raise ValueError(f"expected values on both sides, got {len(first)} and {len(second)}")
    everything = sorted([*first, *second])
    # Twice the mean rank is a whole number: first place + last place of the equal values, counted from 1.
    rank = {value: 2 * everything.index(value) + everything.count(value) + 1 for value in everything}
    doubled = [rank[value] for value in everything]
    ways: list[dict[int, int]] = [{0: 1}] + [{} for _ in first]
    for one in doubled:
        for chosen in range(len(first), 0, -1):
            for total, count in ways[chosen - 1].items():
                ways[chosen][total + one] = ways[chosen].get(total + one, 0) + count
    middle = len(first) * (len(everything) + 1)
    seen = abs(sum(rank[value] for value in first) - middle)
    far = sum(count for total, count in ways[-1].items() if abs(total - middle) >= seen)
    return far / math.comb(len(everything), len(first))


def _overlapping(first: Sequence[float], second: Sequence[float], gap: float, wider: float, needed: float) -> Decision:
    """Decide where ranges overlap or touch: from 6 a side on, ranks may still show a direction."""
    outcome, direction, rank_p = Outcome.NOT_DISTINGUISHED, 0, None
    if min(len(first), len(second)) >= RANK_TEST_FROM:
        rank_p = rank_test(first, second)
        if rank_p <= RANK_TEST_LEVEL:
            above = sum((one > other) - (one < other) for one in first for other in second)
            outcome, direction = Outcome.CONSISTENT_DIRECTION, 1 if above > 0 else -1
    return Decision(outcome, Outcome.NOT_DISTINGUISHED, direction, gap, wider, None, needed, rank_p)


def decide(first: Sequence[float], second: Sequence[float]) -> Decision:
    """Apply PROTOCOL section 4 to two sides' values, one value a restart (source: reports B and A; the module's text).

    Distinguished: ranges disjoint and gap >= c x the wider range. Consistent direction: disjoint without that, or an
    exact rank test at 2 % where they overlap at 6 restarts a side and more. Otherwise not distinguished. Fewer than 2
    values on a side: no verdict.

    Raises:
        ValueError: a value is not finite.
    """
    strange = [value for value in (*first, *second) if not math.isfinite(value)]
    if strange:
        raise ValueError(f"expected finite values, got {strange[0]}")
    if min(len(first), len(second)) < LEAST_RESTARTS:
        return Decision(Outcome.NO_VERDICT, Outcome.NO_VERDICT, 0, None, None, None, None, None)
    above, below = min(first) - max(second), min(second) - max(first)
    gap = max(above, below)
    wider = max(max(first) - min(first), max(second) - min(second))
    needed = needed_separation(len(first), len(second))
    size = max(abs(value) for value in (*first, *second))
    if gap <= SAME_VALUE * size:
        return _overlapping(first, second, gap, wider, needed)
    separation = gap / wider if wider > SAME_VALUE * size else math.inf
    enough = separation >= needed * (1 - SAME_VALUE)
    return Decision(
        outcome=Outcome.DISTINGUISHED if enough else Outcome.CONSISTENT_DIRECTION,
        published=Outcome.DISTINGUISHED,
        direction=1 if above > 0 else -1,
        gap=gap,
        wider_range=wider,
        separation=separation,
        needed=needed,
        rank_p=None,
    )
