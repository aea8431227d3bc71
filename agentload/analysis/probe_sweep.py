"""How does each value of a sweep do under each load: beside the fastest one, beside time sharing alone, in memory?"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentload.analysis import probe
from agentload.analysis.stepvalues import StepFound
from agentload.artifacts.design import Design
from agentload.core.probe import spread


def sweep(design: Design, steps: Mapping[str, Sequence[StepFound]]) -> dict[str, Any] | None:
    """Return a row for each variant and load; None where the workload is no probe, or nothing counts yet.

    A row's numbers are medians over the valid runs, of which each is the median of its repeats. The ceiling is the
    fastest speed of one prompt in the whole sweep, whatever the load (report A: the fastest value, not an idle server).

    Args:
        design: the experiment's.
        steps: by variant.
    """
    if design.workload != "probe":
        return None
    rows = [
        {"variant": variant.name, "label": variant.label, **row}
        for variant in design.variants
        for row in _rows([one for one in steps.get(variant.name, ()) if one.valid])
    ]
    alone = [row for row in rows if row["prompts"] == 1 and row["prefill_tok_s"] is not None]
    if not rows:
        return None
    fastest = max(alone, key=lambda row: row["prefill_tok_s"], default=None)
    ceiling = None if fastest is None else fastest["prefill_tok_s"]
    return {
        "ceiling_tok_s": ceiling,
        "ceiling_of": None if fastest is None else {name: fastest[name] for name in ("variant", "label", "load")},
        "rows": [row | probe.shares(row, ceiling) for row in rows],
    }


def _rows(valid: Sequence[StepFound]) -> list[dict[str, Any]]:
    runs = [
        ({one["load"]: one for one in (probe.summary(_probes(step)) or {"loads": ()})["loads"]}, step) for step in valid
    ]
    names = dict.fromkeys(name for loads, _ in runs for name in loads)
    return [
        _row(
            [loads[name] for loads, _ in runs if name in loads],
            [part for _, step in runs for part in step.segments if (part.get("probe") or {}).get("load") == name],
        )
        for name in names
    ]


def _probes(step: StepFound) -> list[Mapping[str, Any] | None]:
    return [part.get("probe") for part in step.segments]


def _row(mine: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One load of one variant. `mine`: its summary in each valid run; `segments`: all its repeats."""
    speeds = [one["prefill_tok_s"] for one in mine if one["prefill_tok_s"] is not None]
    longest = [one["gap_longest_s"] for one in mine if one["gap_longest_s"] is not None]
    first = mine[0]
    return {
        **{key: first[key] for key in ("load", "decoders", "prompts", "nearly_finished", "asked_tokens")},
        "counted_tokens": first["counted_tokens"],
        "cached_tokens": first["cached_tokens"],
        "expected_cached_tokens": first["expected_cached_tokens"],
        "runs": len(mine),
        "repeats": sum(one["repeats"] for one in mine),
        **{key: probe.median_of(one[key] for one in mine) for key in probe.MEDIANS},
        "ends_s": probe.ranks(one["ends_s"] for one in mine),
        "low_tok_s": min(speeds, default=None),
        "high_tok_s": max(speeds, default=None),
        "spread_runs": spread(speeds),
        "spread_repeats": probe.median_of(one["spread"] for one in mine),
        "gaps": min((one["gaps"] for one in mine if one["gaps"] is not None), default=None),
        "gap_longest_s": max(longest, default=None),
        "cold": probe.all_of(one["cold"] for one in mine),
        "throughout": probe.all_of(one["throughout"] for one in mine) if first["decoders"] else None,
        "smallest_free": smallest_free(part.get("memory") for part in segments),
    }


def smallest_free(memories: Iterable[Mapping[str, Any] | None]) -> dict[str, int]:
    """Return the smallest free memory in bytes of the host and of each device; empty where nobody looked.

    Args:
        memories: `memory` of segments.
    """
    found: dict[str, int] = {}
    for memory in memories:
        if memory is None:
            continue
        told = {f"device {one['index']}": one["free_min_bytes"] for one in memory["devices"]}
        for place, free in {"host": memory["host_free_min_bytes"], **told}.items():
            if free is not None:
                found[place] = min(free, found.get(place, free))
    return found
