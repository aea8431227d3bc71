"""Is one variant really different from the other on this metric, and what speaks against saying so?

`judge` takes one value a restart, applies the rule of `separation`, and then looks for what would make the same numbers
without any difference between the variants: the order and the drift (`order_effects`). Where either is as large as the
effect, or the order was never reversed, the claim is refused. Invalid runs never enter; they are counted. The unit of
repetition is the restart, not the request (PROTOCOL section 4): requests of one boot agree with each other far better
than boots do, the bias that Mytkowicz et al. 2009 warn of; the order is a factor of its own (Duplyakin et al. 2023).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from agentload.core import order_effects, separation
from agentload.core.order_effects import BlockPermutation, Drift, OrderEffect, Placed
from agentload.core.records import Doubt
from agentload.core.separation import Decision, FalseClaims, Outcome


@dataclass(frozen=True, slots=True)
class RunValue:
    """One metric of one run (one restart). A speed is given as amount and base, so that runs can be pooled."""

    variant: str
    value: float | None = None  # None: see amount and base; if those are None too, it was not measured
    amount: float | None = None  # such as tokens
    base: float | None = None  # such as seconds of the union of the intervals; positive
    position: int | None = None  # in the whole order, from 0; None: not known
    block: int | None = None  # see `crossover.Step`
    invalid: str | None = None  # why the run does not count; None: it is valid

    def __post_init__(self) -> None:
        if (self.amount is None) != (self.base is None) or (self.value is not None and self.amount is not None):
            raise ValueError(f"expected a value, or an amount with its base, or nothing; got {self}")
        if self.base is not None and not self.base > 0:
            raise ValueError(f"expected a positive base, got {self.base}")

    @property
    def number(self) -> float | None:
        """The value, or amount / base."""
        if self.amount is None or self.base is None:
            return self.value
        return self.amount / self.base


@dataclass(frozen=True, slots=True)
class Side:
    """One variant's valid values and what was left out."""

    variant: str
    values: tuple[float, ...]  # one a restart, in the order of positions
    low: float | None
    high: float | None
    pooled: float | None  # sum of amounts / sum of bases where all runs have them, else the median of the values
    pooled_by: str  # sums | median
    invalid: tuple[str, ...]  # one reason a run
    unmeasured: int  # valid runs without this metric


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """Everything a report may say about two variants on one metric."""

    metric: str
    first: Side
    second: Side
    outcome: Outcome  # the answer: the rule's, unless it is refused
    refusals: tuple[Doubt, ...]  # why there is no verdict although the rule gave one
    decision: Decision  # the rule on the values alone, and the published rule beside it
    ratio: float | None  # pooled first / pooled second; None where one is missing or not positive
    greater: str | None  # the variant with the greater values, where the outcome claims a direction
    better: str | None  # the same in the reader's sense
    lead: float | None  # 0.35: the greater pooled value is 35 % above the other; only with disjoint ranges and a claim
    false_claims: FalseClaims | None  # of the rule at these counts; None without a verdict
    order: OrderEffect | None  # None: no block with both sides is known
    drift: Drift | None  # None: the positions are not known
    permutation: BlockPermutation | None  # second to the ranges, and labelled so; None: too few blocks
    doubts: tuple[Doubt, ...]

    @property
    def published_agrees(self) -> bool:
        """Whether the published rule (ranges overlap or not) gives the same outcome."""
        return self.decision.published is self.outcome


def pooled(runs: Sequence[RunValue]) -> tuple[float | None, str]:
    """Return (the condition's value over its runs, how): sum of amounts / sum of bases, else the median of the values.

    PROTOCOL section 1: a pooled speed is a quotient of sums, not a mean of speeds. Report B prints medians of restarts.
    """
    measured = [run for run in runs if run.number is not None]
    amounts = [run.amount for run in measured if run.amount is not None]
    bases = [run.base for run in measured if run.base is not None]
    if measured and len(amounts) == len(measured):
        return sum(amounts) / sum(bases), "sums"
    values = [run.number for run in measured if run.number is not None]
    return (statistics.median(values) if values else None), "median"


def _side(variant: str, runs: Sequence[RunValue]) -> tuple[Side, list[RunValue]]:
    mine = [run for run in runs if run.variant == variant]
    valid = [run for run in mine if run.invalid is None]
    counted = [run for run in valid if run.number is not None]
    if all(run.position is not None for run in counted):
        counted.sort(key=lambda run: run.position or 0)
    values = tuple(run.number for run in counted if run.number is not None)
    value, pooled_by = pooled(counted)
    side = Side(
        variant=variant,
        values=values,
        low=min(values, default=None),
        high=max(values, default=None),
        pooled=value,
        pooled_by=pooled_by,
        invalid=tuple(run.invalid for run in mine if run.invalid is not None),
        unmeasured=len(valid) - len(counted),
    )
    return side, counted


def _placed(first: Sequence[RunValue], second: Sequence[RunValue]) -> list[Placed] | None:
    """Return the runs with their places, in order; None where one is not known."""
    placed: list[Placed] = []
    for is_first, side in ((True, first), (False, second)):
        for run in side:
            if run.position is None or run.number is None:
                return None
            placed.append(Placed(is_first, run.number, run.position, run.block))
    if len({one.position for one in placed}) != len(placed):
        raise ValueError("expected every run at a position of its own, got two at one")
    return sorted(placed, key=lambda one: one.position)


def _refusals(placed: Sequence[Placed], order: OrderEffect | None, drift: Drift | None) -> list[Doubt]:
    """Return what the order could have done instead of the variant."""
    effect = abs(order_effects.difference(placed))
    found = []
    never_reversed = order is not None and order.first_minus_second is None
    if never_reversed or order_effects.one_after_the_other(placed):
        found.append(
            Doubt(
                "order-not-reversed",
                "one variant always ran before the other, so the order and the variant cannot be told apart",
                "repeat with the order reversed (A B, then B A)",
            )
        )
    if order is not None and order.first_minus_second is not None and abs(order.first_minus_second) >= effect:
        found.append(
            Doubt(
                "order-effect",
                f"running first in a block is worth {order.first_minus_second:+.4g}, the variant {effect:.4g}",
                "find out what the first run leaves behind (cache, heat, files), then repeat",
            )
        )
    if drift is not None and abs(drift.over_all) >= effect:
        found.append(
            Doubt(
                "drift",
                f"values drift by {drift.over_all:+.4g} from first run to last, the variant is worth {effect:.4g}",
                "find out what changed in the meantime (heat, other load, a growing disk cache), then repeat",
            )
        )
    return found


def _doubts(decision: Decision, sides: tuple[Side, Side], placed: Sequence[Placed] | None) -> list[Doubt]:
    """Return what a reader should know beside the outcome."""
    found = []
    left_out = sum(len(side.invalid) for side in sides)
    if left_out:
        found.append(
            Doubt("invalid-runs", f"{left_out} invalid runs are left out", "see their reasons; run them again")
        )
    missing = sum(side.unmeasured for side in sides)
    if missing:
        found.append(
            Doubt("unmeasured-runs", f"{missing} valid runs do not have this metric", "see why in their accounts")
        )
    if decision.outcome is Outcome.NO_VERDICT:
        counts = " and ".join(str(len(side.values)) for side in sides)
        found.append(
            Doubt(
                "too-few-restarts", f"a verdict needs 2 valid restarts a side, there are {counts}", "repeat, reversed"
            )
        )
    elif placed is None:
        found.append(
            Doubt(
                "order-unknown", "the order of the runs is not known, so it was not checked", "give each run's position"
            )
        )
    if decision.separation == float("inf"):
        found.append(
            Doubt(
                "no-spread",
                "the values of each side are all equal, so nothing is known of the spread between restarts",
                "look for rounding, or for a simulated run",
            )
        )
    return found


def _ratio(first: float | None, second: float | None) -> float | None:
    if first is None or second is None or first <= 0 or second <= 0:
        return None
    return first / second


def judge(
    metric: str,
    runs: Sequence[RunValue],
    first: str,
    second: str,
    *,
    higher_is_better: bool | None = None,
    barred: Sequence[Doubt] = (),
) -> MetricVerdict:
    """Compare two variants on one metric: the rule of PROTOCOL section 4, then what speaks against a claim.

    A claim (distinguished, consistent direction) becomes "no verdict" when the order effect or the drift over all runs
    is as large as the difference of the sides' means, or when one variant always ran first. Sources: Mytkowicz et al.
    2009 (measurement bias from order and setup), Duplyakin et al. 2023 (order effects). Runs of other variants may be
    among `runs` and play no part. With `higher_is_better` None, `better` stays None. `barred` are reasons of the
    caller's own for which there is no verdict at all, such as a flag that was not exercised (exposure under 5 %,
    PROTOCOL section 1).

    Raises:
        ValueError: both names are one, a value is not finite, two runs at one position, or a side twice in a block.
    """
    if first == second:
        raise ValueError(f"expected two variants, got {first!r} twice")
    (one, one_runs), (other, other_runs) = _side(first, runs), _side(second, runs)
    decision = separation.decide(one.values, other.values)
    placed = _placed(one_runs, other_runs)
    known = placed is not None and bool(one.values) and bool(other.values)
    order = order_effects.order_effect(placed) if placed and known else None
    drift = order_effects.drift(placed) if placed and known else None
    refusals = [*barred, *(_refusals(placed, order, drift) if placed and decision.outcome.claims else ())]
    outcome = Outcome.NO_VERDICT if refusals else decision.outcome
    ratio = _ratio(one.pooled, other.pooled)
    greater = better = lead = None
    if outcome.claims:
        greater, lesser = (first, second) if decision.direction > 0 else (second, first)
        if higher_is_better is not None:
            better = greater if higher_is_better else lesser
        above_below = (one.pooled, other.pooled) if decision.direction > 0 else (other.pooled, one.pooled)
        over = _ratio(*above_below)
        lead = None if over is None or decision.separation is None else over - 1
    return MetricVerdict(
        metric=metric,
        first=one,
        second=other,
        outcome=outcome,
        refusals=tuple(refusals),
        decision=decision,
        ratio=ratio,
        greater=greater,
        better=better,
        lead=lead,
        false_claims=(
            None
            if decision.outcome is Outcome.NO_VERDICT
            else separation.false_claims(len(one.values), len(other.values))
        ),
        order=order,
        drift=drift,
        permutation=order_effects.block_permutation(placed) if placed and known else None,
        doubts=tuple(_doubts(decision, (one, other), placed)),
    )
