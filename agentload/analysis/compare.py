"""What does an experiment say? Its runs on disk into derived/comparison.json and comparison.parquet.

Only files are read, and the same files give the same bytes. Runs that do not count are left out of every number, and
counted with their reasons. Beside each verdict stand its rule, what was repeated, and the chance of a false claim.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, Final

from agentload.analysis import beside_published, pairs, probe_published, probe_sweep, sides, stepvalues, tables
from agentload.analysis.headline import headline
from agentload.analysis.stepvalues import StepFound
from agentload.artifacts import derived, journal, rundir, schemas
from agentload.artifacts.design import Design, ExperimentDir
from agentload.core.metrics import Metric, deciding, metrics_of
from agentload.core.probe import Load, loads_of
from agentload.core.records import Doubt
from agentload.core.separation import LEAST_RESTARTS, Outcome
from agentload.errors import ArtifactError

_MANY_PAIRS: Final = 3
VOLATILE: Final = frozenset(("kv_disk_dir", "trace", "port", "listening"))  # other in each run, on purpose


def compare(folder: ExperimentDir) -> dict[str, Any]:
    """Make derived/ of the experiment anew and return comparison.json's content.

    Raises:
        InputError: it is no experiment's directory, or a run of it cannot be read.
        ArtifactError: a file does not follow its schema, or derived/ cannot be written.
    """
    design = folder.read_design()
    journal.check_design(folder, journal.read(folder.journal_path))
    try:
        metrics, decides = metrics_for(design)
    except ValueError as error:
        raise ArtifactError(f"{folder.design_path}: metric: {error}") from error
    content = content_of(design, metrics, decides, stepvalues.read(folder, design, metrics))
    rows = [
        pairs.flat(
            *(design, metrics[row["metric"]], pair["first"], pair["second"], row),
            simulated=int(content["simulated"]),
            deciding=int(row["metric"] == decides),
        )
        for pair in content["pairs"]
        for row in pair["metrics"]
    ]
    with derived.replacing(folder.derived) as made:
        tables.write(made, "comparison", tables.comparison_table(rows))
        rundir.write_atomically(made / "comparison.json", text(content).encode())
    return content


def content_of(
    design: Design, metrics: Mapping[str, Metric], decides: str, found: Sequence[StepFound]
) -> dict[str, Any]:
    """Return what comparison.json says of the steps that were run; nothing is written.

    `metrics` and `decides`: of `metrics_for`.
    """
    simulated = design.simulated or any(one.simulated for one in found)
    steps = stepvalues.by_variant(found)
    variants = [
        sides.side(design, one, steps.get(one.name, []), metrics, simulated=simulated) for one in design.variants
    ]
    by_name = {one["name"]: one for one in variants}
    judged = [
        _pair(design, metrics, decides, found, by_name, first.name, second.name, simulated=simulated)
        for first, second in combinations(design.variants, 2)
    ]
    runs = [stepvalues.as_json(one) for one in sorted(found, key=lambda one: one.position)]
    swept = probe_sweep.sweep(design, steps)
    body: dict[str, Any] = {
        "simulated": simulated,
        "kind": design.kind,
        "workload": design.workload,
        "factor": design.factor,
        "seed": design.seed,
        "repeats": design.repeats,
        "sets": design.sets,
        "metric": decides,
        "metrics": [_about(one, decides) for one in metrics.values()],
        "repeat_unit": _unit(design),
        "steps": {"planned": len(design.steps), "done": len(found), "valid": sum(one.valid for one in found)},
        "variants": variants,
        "runs": runs,
        "pairs": judged,
        "probe_sweep": swept,
        "published": _published(design, by_name, runs, found, swept),
        "doubts": [asdict(one) for one in _doubts(design, found, variants, judged)],
    }
    answer = headline(design, metrics[decides], body)
    return {"schema": schemas.COMPARISON, "experiment": design.name, "headline": answer, **body}


def text(found: Mapping[str, Any]) -> str:
    """comparison.json as it stands on disk."""
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def exit_code(found: Mapping[str, Any]) -> int:
    """0: the deciding metric is distinguished, of a sweep in one pair or more; 1: anything less, or no valid pair."""
    return 0 if found["headline"]["outcome"] == Outcome.DISTINGUISHED.value else 1


def metrics_for(design: Design) -> tuple[dict[str, Metric], str]:
    """Return the metrics, the deciding one first, and its name.

    Raises:
        ValueError: there is no metric of the name that the design has.
    """
    numbers: list[int] = []
    loads: list[Load] = []
    for variant in design.variants:
        fixed, probe = variant.scenario.get("fixed") or {}, variant.scenario.get("probe") or {}
        numbers += [one for one in fixed.get("concurrency", (1, 4, 8)) if one not in numbers]
        loads += [one for one in loads_of(probe) if one not in loads]
    known = metrics_of(design.workload, numbers, loads)
    decides = deciding(design.metric or None, design.workload, numbers, loads)
    return {decides: known[decides], **known}, decides


def _about(metric: Metric, decides: str) -> dict[str, Any]:
    named = ("name", "unit", "shown", "meaning", "higher_is_better", "concurrency", "load")
    return {name: getattr(metric, name) for name in named} | {"deciding": metric.name == decides}


def _unit(design: Design) -> dict[str, Any]:
    if design.kind == "restart":
        said = "the repeat is the restart: every value comes from a start of its own (fresh process, empty state)"
        if design.workload == "fixed":
            said += "; of a start's rounds the median counts"
        if design.workload == "probe":
            said += "; of a start's repeats under a load the median counts"
    elif design.repeats == 1:
        said = (
            "the repeat is the set: the variants alternate inside one start of the server, each value is one segment; "
            "variation between restarts stays out of these numbers and was not measured"
        )
    else:
        said = (
            f"the repeat is the set: the variants alternate inside each of {design.repeats} starts of the server, each "
            "value is one segment; the ranges hold what differs between these starts as well"
        )
    return {"name": pairs.UNITS[design.kind], "sentence": said}


def _pair(
    design: Design,
    metrics: Mapping[str, Metric],
    decides: str,
    found: Sequence[StepFound],
    by_name: Mapping[str, Mapping[str, Any]],
    first: str,
    second: str,
    *,
    simulated: bool,
) -> dict[str, Any]:
    probes = design.workload == "probe"
    rows = [
        pairs.judged(
            *(design, one, found, first, second),
            simulated=simulated,
            barred=stepvalues.not_exercised(one, found),
        )
        for one in metrics.values()
    ]
    return {
        "first": first,
        "second": second,
        "against_first": first == design.variants[0].name,
        "valid": by_name[first]["valid"] > 0 and by_name[second]["valid"] > 0,
        "metrics": sorted(rows, key=lambda row: row["metric"] != decides),
        # A probe's prompts are of one kind, and beside them stand the decoders' short ones: no work of agents.
        "buckets": [] if probes else sides.bucket_ratios(by_name[first], by_name[second]),
        "equal_work": None if probes else sides.equal_work_ratio(by_name[first], by_name[second]),
    }


def _published(
    design: Design,
    by_name: Mapping[str, Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    found: Sequence[StepFound],
    swept: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    profile = (found[0].manifest.server.get("simulated") or {}).get("profile") if found else None
    if profile is None:  # nothing was run, or on a server of which it is not known what it simulates
        return None
    if swept is not None:
        return probe_published.of_sweep(design, swept, profile)
    quanta = beside_published.of_design(design)
    return None if quanta is None else beside_published.beside(quanta, by_name, runs, profile)


# ---- what a reader should know beside it -----------------------------------------------------------------------------


def _doubts(
    design: Design,
    found: Sequence[StepFound],
    variants: Sequence[Mapping[str, Any]],
    judged: Sequence[Mapping[str, Any]],
) -> list[Doubt]:
    doubts = []
    missing = len(design.steps) - len(found)
    if missing:
        doubts.append(
            Doubt(
                "not-complete",
                f"{missing} of {len(design.steps)} {pairs.UNITS[design.kind]}s of the plan were not run yet",
                "resume the experiment",
            )
        )
    if design.repeats * design.sets < LEAST_RESTARTS:
        doubts.append(
            Doubt(
                "one-repeat",
                "each variant is measured once: that cannot tell a difference from noise",
                "give --repeat 3, or more",
            )
        )
    if len(judged) > _MANY_PAIRS:
        doubts.append(
            Doubt(
                "many-pairs",
                f"{len(judged)} pairs are judged, each with its own chance of a false claim: among equals about one in "
                "fifty would be called distinguished",
                "take the pair that matters, and repeat it in an experiment of its own",
            )
        )
    moved = [one.step.run for one in found if one.position != one.step.position]
    if moved:
        doubts.append(
            Doubt(
                "order-changed",
                f"{', '.join(moved)} ran at another place than planned: order effect and drift follow the order in "
                "which they really ran",
                "see the journal for why",
            )
        )
    return [*doubts, *_other_settings(design, variants), *_unread(variants), *_unseen_state(found), *_of_runs(found)]


def _unseen_state(found: Sequence[StepFound]) -> list[Doubt]:
    """Runs whose first requests' cached tokens no source tells: a cache that was left over would not be seen."""
    blind = [
        one.step.run
        for one in found
        if any(row["turn"] == 0 for row in one.rows)
        and all(row["cached_tokens"] is None for row in one.rows if row["turn"] == 0)
    ]
    if not blind:
        return []
    return [
        Doubt(
            "first-turns-unseen",
            f"{_listed(blind)}: no source tells the cached tokens of first requests: state that was left over would "
            "not be seen",
            "see that the server's log or its answers' usage tell cached tokens",
        )
    ]


def _of_runs(found: Sequence[StepFound]) -> list[Doubt]:
    """What the accounts of valid runs doubt, once for each kind; settings are held against the design instead."""
    runs: dict[str, list[str]] = {}
    first: dict[str, Doubt] = {}
    for one in found:
        for doubt in one.doubts if one.valid else ():
            if not doubt.code.startswith("setting-"):
                runs.setdefault(doubt.code, []).append(one.step.run)
                first.setdefault(doubt.code, doubt)
    return [Doubt(code, f"{_listed(names)}: {first[code].message}", first[code].advice) for code, names in runs.items()]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _other_settings(design: Design, variants: Sequence[Mapping[str, Any]]) -> list[Doubt]:
    """Settings not under test that differ between the variants all the same: a second difference beside the first."""
    tested = {one["name"] for variant in variants for one in variant["settings"] if one["under_test"]}
    values: dict[str, dict[str, set[str]]] = {}
    for variant in variants:
        for one in variant["settings"]:
            if one["name"] not in tested | VOLATILE and one["applied"] is not None:
                values.setdefault(one["name"], {}).setdefault(variant["name"], set()).add(str(one["applied"]))
    differing = [
        f"{name} ({', '.join(f'{variant} {next(iter(told))}' for variant, told in by_variant.items())})"
        for name, by_variant in values.items()
        if all(len(told) == 1 for told in by_variant.values()) and len({next(iter(t)) for t in by_variant.values()}) > 1
    ]
    if not differing:
        return []
    return [
        Doubt(
            "other-setting-differs",
            f"besides {design.factor} the variants differ in {', '.join(differing)}",
            "give it the same value on both sides, or say that it follows from the setting under test",
        )
    ]


def _unread(variants: Sequence[Mapping[str, Any]]) -> list[Doubt]:
    names = sorted(
        {one["name"] for variant in variants for one in variant["settings"] if one["verdict"] == "unproven"}
        - {one["name"] for variant in variants for one in variant["settings"] if one["under_test"]}
    )
    if not names:
        return []
    return [
        Doubt(
            "settings-not-proven",
            f"asked for in every variant and stated nowhere: {', '.join(names)}",
            "name the line that states it with [[proof]], where it matters",
        )
    ]
