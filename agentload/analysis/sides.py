"""What does each variant amount to over its valid runs: pooled values, context buckets, equal work, settings?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from agentload.analysis import memory
from agentload.analysis.pairs import worded
from agentload.analysis.stepvalues import StepFound, totals
from agentload.artifacts.design import Design, Variant
from agentload.core.accounting import BUCKETS, bucket_of, ratio, speed_tok_s
from agentload.core.estimates import equal_work
from agentload.core.evidence_grade import QUANTITIES, Origin, Repetition, grade
from agentload.core.metrics import Metric
from agentload.core.verdict import pooled

_COUNTED: Final = ("requests", "new_prefill_tokens", "decoded_tokens")


def side(
    design: Design, variant: Variant, mine: Sequence[StepFound], metrics: Mapping[str, Metric], *, simulated: bool
) -> dict[str, Any]:
    """Return what comparison.json says of one variant. `mine`: its steps, in the order in which they ran."""
    valid = [one for one in mine if one.valid]
    sums = totals([part for one in valid for part in one.segments]) if valid else None
    work = None if sums is None else equal_work(sums["prefill_tok_s"], sums["decode_tok_s"])
    repetition = Repetition(len(valid), _reversed(design, valid))
    return {
        "name": variant.name,
        "label": variant.label,
        "valid": len(valid),
        "invalid": len(mine) - len(valid),
        "pooled": sums,
        "metrics": {
            metric.name: _metric(design, metric, valid, repetition, simulated=simulated) for metric in metrics.values()
        },
        "equal_work": None if work is None else asdict(work),
        "buckets": buckets(valid),
        "settings": settings(mine),
        "memory": memory.of_runs(
            [(one.step.run, part) for one in valid for part in one.segments], repetition, simulated=simulated
        ),
    }


def _reversed(design: Design, valid: Sequence[StepFound]) -> bool:
    """Whether this variant ran both first and not first in its block."""
    places = {one.step.place for one in valid}
    return len(places) > 1 and len(design.variants) > 1


def _metric(
    design: Design, metric: Metric, valid: Sequence[StepFound], repetition: Repetition, *, simulated: bool
) -> dict[str, Any]:
    runs = [one.value(metric.name) for one in valid]
    value, by = pooled(runs)
    values = [run.number for run in runs if run.number is not None]
    computed = QUANTITIES[metric.plain].origin is Origin.COMPUTED
    graded = grade(metric.plain, repetition=None if computed else repetition, simulated=simulated)
    return {
        "pooled": value,
        "pooled_by": by,
        "low": min(values, default=None),
        "high": max(values, default=None),
        "values": values,
        "grade": {"grade": graded.grade.value, "reason": worded(graded.reason, design)},
    }


def buckets(valid: Sequence[StepFound]) -> list[dict[str, Any]]:
    """Return, for each range of context, the median speed of the requests of all valid runs (report A, table 7)."""
    speeds: dict[str, list[float]] = defaultdict(list)
    for one in valid:
        for row in one.rows:
            times = (row["prefill_start"], row["prefill_end"])
            if row["context_start"] is None or None in times:
                continue
            speed = speed_tok_s(row["new_prefill_tokens"], times[1] - times[0])
            if speed:
                speeds[bucket_of(row["context_start"])].append(speed)
    return [
        {"name": name, "requests": len(speeds[name]), "median_tok_s": median(speeds[name]) if speeds[name] else None}
        for name in BUCKETS
    ]


def bucket_ratios(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each bucket's medians of two variants, and their ratio."""
    return [
        {
            "name": one["name"],
            "first": one["median_tok_s"],
            "second": other["median_tok_s"],
            "ratio": ratio(one["median_tok_s"], other["median_tok_s"]),
        }
        for one, other in zip(first["buckets"], second["buckets"], strict=True)
    ]


def equal_work_ratio(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the estimate for equal work of two variants; above 1: the second is done sooner."""
    one, other = first["equal_work"], second["equal_work"]
    if one is None or other is None:
        return None
    assumption = QUANTITIES["equal_work_ratio"].assumption
    return {
        "new_prefill_tokens": one["new_prefill_tokens"],
        "decoded_tokens": one["decoded_tokens"],
        "first_s": one["total_s"],
        "second_s": other["total_s"],
        "ratio": ratio(other["total_s"], one["total_s"]),
        "evidence": "estimate",
        "assumption": assumption,
    }


def settings(mine: Sequence[StepFound]) -> list[dict[str, Any]]:
    """Return each setting of a variant's runs, with its proof in each; one that changed has a line for each value."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    told: set[tuple[str, str]] = set()
    for one in mine:
        for setting in one.settings:
            if (one.step.run, setting.name) in told and one.step.segment is not None:
                continue  # segments of one start share its settings
            told.add((one.step.run, setting.name))
            key = (setting.name, str(setting.requested), str(setting.applied), setting.verdict)
            line = found.setdefault(
                key,
                {
                    "name": setting.name,
                    "requested": setting.requested,
                    "applied": setting.applied,
                    "verdict": setting.verdict.value,
                    "under_test": setting.under_test,
                    "proofs": [],
                },
            )
            line["proofs"].append({"run": one.step.run, "source": setting.source, "quote": setting.quote})
    return sorted(found.values(), key=lambda line: (not line["under_test"], line["name"]))
