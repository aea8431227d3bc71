"""What may be said about each pair of variants on each metric? The verdicts of core, as comparison.json holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from agentload.analysis.stepvalues import StepFound
from agentload.artifacts.design import Design
from agentload.core.evidence_grade import QUANTITIES, Origin, grade
from agentload.core.forecast import Forecast, Prospect, restarts_needed
from agentload.core.metrics import Metric
from agentload.core.records import Doubt
from agentload.core.separation import Decision
from agentload.core.verdict import MetricVerdict, Side, judge

UNITS: Final[Mapping[str, str]] = {"restart": "restart", "request": "set"}
"""What is repeated, by the design's kind."""


WORTH_NAMING: Final = 0.01

_BARRED: Final = (
    "no more of the same restarts: the values are apart by enough, but a doubt bars the verdict; do what it advises"
)


def worded(text: str, design: Design) -> str:
    """Say "set" where core says "restart", in an experiment whose variants alternate inside one start."""
    unit = UNITS[design.kind]
    return text if unit == "restart" else text.replace("restart", unit)


def judged(
    design: Design,
    metric: Metric,
    found: Sequence[StepFound],
    first: str,
    second: str,
    *,
    simulated: bool,
    barred: Sequence[Doubt] = (),
) -> dict[str, Any]:
    """Return the verdict on one pair and one metric, its forecast and its grade, as JSON values.

    `barred`: why there is none on this metric, whatever the numbers are.
    """
    verdict = judge(
        metric.name,
        [one.value(metric.name) for one in found],
        first,
        second,
        higher_is_better=metric.higher_is_better,
        barred=barred,
    )
    forecast = restarts_needed(verdict.first.values, verdict.second.values, _rng(design, metric.name, first, second))
    estimated = QUANTITIES[metric.plain].origin is Origin.COMPUTED
    graded = grade(metric.plain if estimated else "ratio", verdict=verdict, simulated=simulated)
    return {
        "metric": metric.name,
        "outcome": verdict.outcome.value,
        "ratio": verdict.ratio,
        "lead": verdict.lead,
        "greater": verdict.greater,
        "better": verdict.better,
        "first": _side(verdict.first),
        "second": _side(verdict.second),
        "rule": _rule(verdict.decision),
        "published_rule": {"outcome": verdict.decision.published.value, "agrees": verdict.published_agrees},
        "false_claims": None if verdict.false_claims is None else asdict(verdict.false_claims),
        "order": None if verdict.order is None else asdict(verdict.order),
        "drift": None if verdict.drift is None else asdict(verdict.drift),
        "permutation": None if verdict.permutation is None else asdict(verdict.permutation),
        "forecast": _forecast(forecast, design, claimed=verdict.outcome.claims),
        "grade": {"grade": graded.grade.value, "reason": worded(graded.reason, design)},
        "refusals": [_doubt(one, design) for one in verdict.refusals],
        "doubts": [_doubt(one, design) for one in (*verdict.doubts, *_tiny(verdict))],
    }


def _tiny(verdict: MetricVerdict) -> list[Doubt]:
    """A difference may be sure and of no use to anybody; simulated runs repeat each other nearly to the bit."""
    if not verdict.outcome.claims or verdict.ratio is None or abs(verdict.ratio - 1) >= WORTH_NAMING:
        return []
    return [
        Doubt(
            "tiny-difference",
            f"the difference is {abs(verdict.ratio - 1):.2%}: the runs agree so well that even that is told apart",
            "take it for no difference in practice",
        )
    ]


def _rng(design: Design, *names: str) -> np.random.Generator:
    """A generator of its own for each verdict: the same whatever else is compared."""
    digest = blake2b("/".join((str(design.seed), *names)).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def _side(side: Side) -> dict[str, Any]:
    return asdict(side) | {"values": list(side.values), "invalid": list(side.invalid)}


def _rule(decision: Decision) -> dict[str, Any]:
    infinite = decision.separation == float("inf")
    return {
        "outcome": decision.outcome.value,
        "gap": decision.gap,
        "wider_range": decision.wider_range,
        "separation": None if infinite else decision.separation,
        "no_spread": infinite,
        "needed": decision.needed,
        "rank_p": decision.rank_p,
    }


def _forecast(found: Forecast, design: Design, *, claimed: bool) -> dict[str, Any]:
    # The forecast sees the values alone: values that are apart may be barred from a verdict all the same.
    barred = found.prospect is Prospect.DONE and not claimed
    return {
        "prospect": worded(found.prospect.value, design),
        "sentence": worded(_BARRED if barred else found.sentence, design),
        "more": found.more,
        "chances": [list(one) for one in found.chances],
        "false_claims": found.false_claims,
    }


def _doubt(one: Doubt, design: Design) -> dict[str, str]:
    return {name: worded(text, design) if name != "code" else text for name, text in asdict(one).items()}


def flat(
    design: Design, metric: Metric, first: str, second: str, row: Mapping[str, Any], **known: int
) -> dict[str, Any]:
    """One row of comparison.parquet."""
    rule, order, drift, permutation = row["rule"], row["order"], row["drift"], row["permutation"]
    return {
        "experiment": design.name,
        "metric": metric.name,
        "unit": metric.unit,
        "first": first,
        "first_label": design.variant(first).label,
        "second": second,
        "second_label": design.variant(second).label,
        **known,
        **{f"{side}_valid": len(row[side]["values"]) for side in ("first", "second")},
        **{f"{side}_invalid": len(row[side]["invalid"]) for side in ("first", "second")},
        **{f"{side}_{name}": row[side][name] for side in ("first", "second") for name in ("pooled", "low", "high")},
        **{name: row[name] for name in ("outcome", "ratio", "lead", "greater", "better")},
        "published_outcome": row["published_rule"]["outcome"],
        **{name: rule[name] for name in ("gap", "wider_range", "separation", "rank_p")},
        "needed_separation": rule["needed"],
        "false_claims": None if row["false_claims"] is None else row["false_claims"]["normal"],
        "order_effect": None if order is None else order["first_minus_second"],
        "drift": None if drift is None else drift["over_all"],
        "permutation_p": None if permutation is None else permutation["p"],
        "grade": row["grade"]["grade"],
        "prospect": row["forecast"]["prospect"],
        "more_restarts": row["forecast"]["more"],
    }
