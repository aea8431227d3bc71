"""Runs of two variants whose true effect, spread and drift are known, judged by the code under test.

Shared by tests/core/test_verdict_simulated.py (few draws) and tests/bench/bench_verdict.py (2,000 a cell).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentload.core.crossover import Step, restart_order
from agentload.core.separation import Outcome
from agentload.core.verdict import MetricVerdict, RunValue, judge

Values = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Values]

BASE_TOK_S = 100.0


def normal(rng: np.random.Generator, count: int) -> Values:
    """Standard normal noise."""
    return rng.standard_normal(count)


def heavy(rng: np.random.Generator, count: int) -> Values:
    """Student's t of 3 degrees of freedom, scaled to standard deviation 1."""
    return np.asarray(rng.standard_t(3, count) / np.sqrt(3))


def slow_boots(rng: np.random.Generator, count: int) -> Values:
    """Normal noise in which one restart of ten is slow by 8 standard deviations."""
    return np.asarray(rng.standard_normal(count) - 8 * (rng.random(count) < 0.1))


def blocked_order(repeats: int) -> tuple[Step, ...]:
    """A A B B: the order that a comparison must not have."""
    return tuple(Step(at, at, 0, at, "A" if at < repeats else "B") for at in range(2 * repeats))


def night(
    order: Sequence[Step], rng: np.random.Generator, *, effect: float, spread: float, drift: float = 0.0, noise: Noise
) -> list[RunValue]:
    """Return one experiment's runs: B is faster than A by `effect`, everything drifts by `drift` from first to last.

    `spread` is the standard deviation between restarts, as a share of the variant's own true value.
    """
    errors = noise(rng, len(order))
    last = max(step.position for step in order)
    runs = []
    for step, error in zip(order, errors, strict=True):
        true = BASE_TOK_S * (1 + effect if step.variant == "B" else 1) * (1 + drift * step.position / last)
        value = float(true * (1 + spread * error))
        runs.append(RunValue(step.variant, value, position=step.position, block=step.block))
    return runs


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of many simulated experiments."""

    draws: int
    rule: int  # called distinguished by the rule on the values alone
    final: int  # and not refused
    published: int  # called distinguished by the published rule
    wrong_rule: int  # the rule named A, although B is faster
    wrong_final: int
    outcomes: Counter[Outcome]

    def share(self, count: int) -> float:
        """Return a count as a share of the draws."""
        return count / self.draws


def tally(
    draws: int,
    restarts: int,
    seed: int,
    *,
    effect: float = 0.0,
    spread: float,
    drift: float = 0.0,
    noise: Noise = normal,
    order: Sequence[Step] | None = None,
) -> Tally:
    """Judge `draws` experiments of the same truth."""
    rng = np.random.default_rng(seed)
    plan = restart_order(["A", "B"], restarts, seed) if order is None else order
    verdicts: list[MetricVerdict] = [
        judge("prefill_tok_s", night(plan, rng, effect=effect, spread=spread, drift=drift, noise=noise), "A", "B")
        for _ in range(draws)
    ]
    by_rule = [one for one in verdicts if one.decision.outcome is Outcome.DISTINGUISHED]
    let_through = [one for one in by_rule if one.outcome is Outcome.DISTINGUISHED]
    return Tally(
        draws=draws,
        rule=len(by_rule),
        final=len(let_through),
        published=sum(one.decision.published is Outcome.DISTINGUISHED for one in verdicts),
        wrong_rule=sum(one.decision.direction > 0 for one in by_rule) if effect else 0,
        wrong_final=sum(one.greater == "A" for one in let_through) if effect else 0,
        outcomes=Counter(one.outcome for one in verdicts),
    )
