"""What did each step of an experiment measure, does it count, and what does its line in the table of runs say?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final

from agentload.analysis import account as accounts
from agentload.analysis import memory, proofs, validity
from agentload.analysis.proofs import Proven
from agentload.analysis.steps import request_rows, segments_of, table
from agentload.artifacts.design import Design, ExperimentDir, Step
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.core.accounting import NS_PER_S, ratio, speed_tok_s
from agentload.core.metrics import Measured, Metric
from agentload.core.records import Doubt
from agentload.core.verdict import RunValue

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepFound:
    """One step that was run."""

    step: Step
    position: int  # in the order in which the steps really ran
    manifest: Manifest
    segments: Sequence[dict[str, Any]]  # its own, of account.json
    rows: Sequence[Row]  # its requests
    settings: tuple[Proven, ...]
    values: Mapping[str, Measured]  # by metric
    reasons: tuple[Doubt, ...]
    tool_calls: int
    status: str
    simulated: bool  # by its manifest, or by what the server's own log says
    acts_beside_decode: tuple[str, ...]  # settings under test that do nothing unless another request decodes
    doubts: tuple[Doubt, ...]  # of the run's account: what a reader of its numbers should know

    @property
    def valid(self) -> bool:
        """Whether it counts."""
        return not self.reasons

    def value(self, metric: str) -> RunValue:
        """Return one metric of it, as the verdict takes it."""
        measured = self.values[metric]
        return RunValue(
            variant=self.step.variant,
            value=measured.value,
            amount=measured.amount,
            base=measured.base,
            position=self.position,
            block=self.step.block,
            invalid="; ".join(one.message for one in self.reasons) or None,
        )


def not_exercised(metric: Metric, found: Sequence[StepFound]) -> list[Doubt]:
    """Return why a metric of one concurrency or load has no verdict: what is under test hardly ever acted there."""
    if metric.concurrency is None and metric.load is None:
        return []
    concerned = [one for one in found if one.valid and one.acts_beside_decode]
    each = [_exposure([part for part in one.segments if _is_of(metric, part)]) for one in concerned]
    shares = [share for share in each if share is not None]
    if not shares or min(shares) >= validity.LEAST_EXPOSURE:
        return []
    names = ", ".join(sorted({name for one in concerned for name in one.acts_beside_decode}))
    where = f"at concurrency {metric.concurrency}" if metric.load is None else f"under load {metric.load}"
    return [
        Doubt(
            "flag-not-exercised",
            f"{names} only works while one request prefills and another decodes: {where} that was "
            f"{min(shares):.1%} of the prefill time, under {validity.LEAST_EXPOSURE:.0%}",
            "look at a higher concurrency, or let agents work"
            if metric.load is None
            else "look at a load that decodes",
        )
    ]


def _exposure(segments: Sequence[Mapping[str, Any]]) -> float | None:
    """Of a probe the decoders' alone: cold prompts at once decode their last token beside each other, under no load."""
    probes = [one["probe"] for one in segments if one.get("probe") is not None]
    if not probes:
        return validity.exposure(segments)
    known = [(one["exposure"], one["prefill_s"]) for one in probes if one["exposure"] is not None and one["prefill_s"]]
    return ratio(sum(share * length_s for share, length_s in known), sum(length_s for _, length_s in known))


def _is_of(metric: Metric, segment: Mapping[str, Any]) -> bool:
    if metric.load is not None:
        return (segment.get("probe") or {}).get("load") == metric.load
    return concurrency_of(segment) == metric.concurrency


def read(folder: ExperimentDir, design: Design, metrics: Mapping[str, Metric]) -> list[StepFound]:
    """Return the steps that were run, in the order of the design; accounts that are missing are made.

    Raises:
        InputError, ArtifactError: a run cannot be read.
    """
    accounted: dict[str, tuple[dict[str, Any], RunDir, Manifest]] = {}
    for step in design.steps:
        run = RunDir(folder.run_path(step))
        if step.run not in accounted and run.manifest_path.is_file():
            accounted[step.run] = (accounts.load(run.path), run, run.read_manifest())
    between = validity.across(
        [
            validity.Seen(
                name,
                tuple(sorted({one.variant for one in design.steps if one.run == name})),
                manifest,
                simulated=account["simulated"],
            )
            for name, (account, _, manifest) in accounted.items()
            if manifest.status in ("success", "partial")  # what never ran is of no world, and must not outvote others
        ]
    )
    found = [
        step_found(step, design, metrics, *accounted[step.run], between.get(step.run, ()))
        for step in design.steps
        if step.run in accounted
    ]
    return _as_they_ran(found)


def step_found(
    step: Step,
    design: Design,
    metrics: Mapping[str, Metric],
    account: dict[str, Any],
    run: RunDir,
    manifest: Manifest,
    between: Iterable[Doubt],
) -> StepFound:
    """Return what a step measured. `between`: why it cannot be compared with others.

    Raises:
        InputError, ArtifactError: a file of the run cannot be read.
    """
    segments = segments_of(account, step)
    names = {one["segment"] for one in segments}
    phases = table(run, "phases").to_dicts() if names else []
    return StepFound(
        step=step,
        position=step.position,
        manifest=manifest,
        segments=segments,
        rows=request_rows(run, step),
        settings=proofs.settings_of(account, run, design, step),
        values={name: measured(metric, segments) for name, metric in metrics.items()},
        reasons=(*validity.reasons(account, run, design, step), *between),
        tool_calls=sum(one["phase"] == "tool" and one["segment"] in names for one in phases),
        status=account["status"],
        simulated=account["simulated"],
        acts_beside_decode=tuple(
            validity.acts_beside_decode(design, step.variant, proofs.profile_of(account, manifest))
        ),
        doubts=tuple(Doubt(**one) for one in account["doubts"]),
    )


def _as_they_ran(found: list[StepFound]) -> list[StepFound]:
    """Give each step the position at which it really ran: a run that was done again later ran later.

    The simulated server's clock starts anew in each run: there the design's order is the order.
    """
    if any(one.manifest.simulated for one in found):
        return found
    begins: list[int] = []
    for one in found:  # of a run without a begin it is not known: it stays behind the one before
        last = begins[-1] if begins else 0
        begins.append(int(one.segments[0]["begin_ns"]) if one.segments else last)
    order = sorted(range(len(found)), key=lambda index: begins[index])
    positions = sorted(one.position for one in found)
    moved = list(found)
    for position, index in zip(positions, order, strict=True):
        moved[index] = replace(found[index], position=position)
    return moved


def measured(metric: Metric, segments: Sequence[Mapping[str, Any]]) -> Measured:
    """Return a metric of a step: of the fixed workload the median of the rounds at its concurrency, of a probe that of
    the repeats under its load.

    Several segments of agents are added up, amounts and bases each.
    """
    if metric.concurrency is not None or metric.load is not None:
        rounds = [metric.measure(one).number for one in segments if _is_of(metric, one)]
        known = [value for value in rounds if value is not None]
        return Measured(value=median(known)) if known else Measured()
    each = [metric.measure(one) for one in segments]
    if len(each) == 1:
        return each[0]
    amounts = [one.amount for one in each if one.amount is not None]
    bases = [one.base for one in each if one.base is not None]
    if each and len(amounts) == len(each):
        return Measured(amount=sum(amounts), base=sum(bases))
    values = [one.value for one in each if one.value is not None]
    return Measured(value=median(values)) if values else Measured()


def concurrency_of(segment: Mapping[str, Any]) -> int | None:
    """Return how many requests the fixed workload has at once in a segment: c4-r1 has 4; None: it is another one's."""
    head = str(segment["segment"]).partition("-r")[0]
    return int(head[1:]) if head[:1] == "c" and head[1:].isdigit() else None


_HELD: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
_SUMMED: Final = ("requests", "new_prefill_tokens", "decoded_tokens", "wall_ns")
_PHASES: Final = ("prefill", "decode")


def totals(segments: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of segments; speeds, shares and overlap over them are sum / sum, null where a part is unknown."""
    wholes = [one["whole"] for one in segments]
    sums: dict[str, Any] = {name: _sum(one[name] for one in wholes) for name in _SUMMED}
    for phase in _PHASES:
        union = _sum(one[f"{phase}_union_ns"] for one in wholes)
        sums[f"{phase}_busy_s"] = None if union is None else union / NS_PER_S
        timed = any(one[f"{phase}_tok_s"] is not None for one in wholes)
        tokens, busy = (_sum(one[f"{phase}_speed_{what}"] for one in wholes) for what in ("tokens", "ns"))
        sums[f"{phase}_tok_s"] = speed_tok_s(tokens, busy) if timed else None
        sums[f"{phase}_share"] = ratio(union, sums["wall_ns"])
    sums["overlap"] = validity.exposure([{"whole": one} for one in wholes])
    union, summed = (_sum(one[f"prefill_{what}_ns"] for one in wholes) for what in ("union", "sum"))
    sums["double_counting"] = ratio(summed, union)
    wall = sums.pop("wall_ns")
    return sums | {"wall_s": None if wall is None else wall / NS_PER_S}


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known or there is none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def as_json(one: StepFound) -> dict[str, Any]:
    """One line of the table of runs."""
    cpu = [part["server_cpu_s"] for part in one.segments]
    contexts = [
        filled
        for row in one.rows
        if (filled := memory.filled_tokens(*(row[name] for name in _HELD), failed=row["error"] is not None)) is not None
    ]
    return {
        "position": one.position,
        "block": one.step.block,
        "run": one.step.run,
        "segment": one.step.segment,
        "variant": one.step.variant,
        "status": one.status,
        "valid": one.valid,
        "reasons": [asdict(reason) for reason in one.reasons],
        "tool_calls": one.tool_calls,
        **totals(one.segments),
        "server_cpu_s": sum(cpu) if cpu and None not in cpu else None,
        "longest_context_tokens": max(contexts, default=None),
        "values": {name: value.number for name, value in one.values.items()},
    }


def by_variant(found: Iterable[StepFound]) -> dict[str, list[StepFound]]:
    """Group steps by variant, in the order in which they ran."""
    groups: dict[str, list[StepFound]] = defaultdict(list)
    for one in sorted(found, key=lambda one: one.position):
        groups[one.step.variant].append(one)
    return groups
