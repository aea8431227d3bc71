"""What do runs that somebody made by hand say, side by side?

The same numbers, verdict and report as of an experiment (analysis.compare), of a design that is made up afterwards: the
sides are the values of the settings in which the runs differ, as each run proves them, and the order is that in which
the runs began. Nobody planned it, so what rests on a plan is checked: whether the order was reversed, and whether each
run had a start of the server to itself. Nothing is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from agentload.analysis import account as accounts
from agentload.analysis import compare, stepvalues
from agentload.analysis.stepvalues import StepFound
from agentload.analysis.unlike import Compared, Unlike, unlike
from agentload.artifacts import rundir
from agentload.artifacts.design import Design, Step, Value, Variant
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.core.evidence_grade import Grade
from agentload.core.records import Doubt
from agentload.errors import InputError, UsageError

NAME: Final = "by-hand"
_STARTED: Final = ("launch", "embedded", "twin")  # agentload started the server for the run
_NO_SETTINGS: Final = compare.VOLATILE | {
    *("build", "build_info", "version", "model", "model_path", "device", "max_tokens"),
}  # who the server is, which has checks of its own
_NOT_GIVEN: Final = "not given"
_NAMES: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class ByHand:
    """One run that was given."""

    run: RunDir
    manifest: Manifest
    account: dict[str, Any]
    begin_ns: int | None  # of its first segment

    @property
    def compared(self) -> Compared:
        """As it is held against others."""
        return Compared(self.manifest.run, self.manifest, self.account)


def read(paths: Sequence[Path]) -> list[ByHand]:
    """Read runs, in the order in which they began; of those in virtual time, whose clocks start at one time, as given.

    A run against `agentload twin serve` is simulated as well, and has real time: its manifest does not say so.

    Raises:
        InputError: one is no run directory, or they are fewer than two; or one is given twice.
        ArtifactError: a file does not follow its schema.
    """
    if len(paths) < 2:
        raise InputError(f"expected two runs or more, got {len(paths)}")
    found: list[ByHand] = []
    for path in paths:
        run = rundir.find(path)
        account = accounts.load(path)
        manifest = run.read_manifest()
        if manifest.run in {one.manifest.run for one in found}:
            raise InputError(f"{path}: expected each run once, run {manifest.run} was given before")
        if manifest.scenario.get("parts"):
            raise InputError(
                f"{path}: expected a run of one part, it has several conditions: agentload report shows them"
            )
        begin = account["segments"][0]["begin_ns"] if account["segments"] else None
        found.append(ByHand(run, manifest, account, begin))
    if any(one.manifest.simulated for one in found):
        return found
    return sorted(found, key=lambda one: (one.begin_ns is None, one.begin_ns or 0))


def differences(runs: Sequence[ByHand]) -> list[Unlike]:
    """Return in what the runs differ beside the settings that they are compared on."""
    return unlike([one.compared for one in runs])


def compared(runs: Sequence[ByHand], metric: str | None = None, passed: Sequence[Unlike] = ()) -> dict[str, Any]:
    """Return what comparison.json says of an experiment, of these runs.

    Args:
        runs: of `read`, alike but for `passed`.
        metric: the one that decides; None: the workload's own.
        passed: harmless differences that were let pass: said with the result.

    Raises:
        InputError: nothing tells the runs apart, or a file of one cannot be read.
        UsageError: there is no such metric.
        ArtifactError: a file does not follow its schema.
    """
    design = design_of(runs, metric)
    try:
        metrics, decides = compare.metrics_for(design)
    except ValueError as error:
        raise UsageError(f"--metric: {error}") from error
    found = [
        stepvalues.step_found(step, design, metrics, one.account, one.run, one.manifest, ())
        for step, one in zip(design.steps, runs, strict=True)
    ]
    content = compare.content_of(design, metrics, decides, found)
    content["by_hand"] = True
    content["passed"] = [one.sentence for one in passed]
    content["doubts"] = [
        *(asdict(one) for one in _doubts(runs, found, passed)),
        *(one for one in content["doubts"] if one["code"] != "one-repeat"),
    ]
    if not _restarts_are_known(runs):
        _without_restarts(content)
    return content


# ---- the design that they amount to ----------------------------------------------------------------------------------


def design_of(runs: Sequence[ByHand], metric: str | None = None) -> Design:
    """Return the design that the runs amount to: a variant for each set of values of what they differ in.

    Raises:
        InputError: nothing tells them apart.
    """
    factor, values = _factor(runs)
    sides = list(dict.fromkeys(values))
    if len(sides) > len(_NAMES):
        raise InputError(f"expected at most {len(_NAMES)} sides, {factor} has {len(sides)}")
    names = dict(zip(sides, _NAMES, strict=False))
    variants = tuple(_variant(names[side], factor, side, runs[values.index(side)]) for side in sides)
    each = [names[side] for side in values]
    kinds = {str(one.manifest.server.get("kind")) for one in runs}
    workload = str(runs[0].manifest.scenario.get("workload") or "agents")
    if metric is None and workload == "agents" and kinds == {"embedded"}:
        metric = "prefill_tokens_per_cpu_s"  # the server shares its few cores with the agents' tools
    return Design(
        name=NAME,
        seed=0,
        repeats=max(each.count(name) for name in each),
        kind="restart",
        workload=workload,  # type: ignore[arg-type]  # a manifest's scenario was checked when the run was made
        factor=", ".join(factor),
        metric=metric or "",
        variants=variants,
        steps=_steps(runs, each),
        simulated=all(one.account["simulated"] for one in runs),
    )


def _steps(runs: Sequence[ByHand], variants: Sequence[str]) -> tuple[Step, ...]:
    """Runs in their order; a block holds each variant at most once, and ends where one would come again."""
    steps: list[Step] = []
    block, inside = 0, list[str]()
    for position, (one, variant) in enumerate(zip(runs, variants, strict=True)):
        if variant in inside:
            block, inside = block + 1, []
        step = {"position": position, "block": block, "place": len(inside), "boot": position}
        steps.append(Step(**step, variant=variant, run=one.manifest.run, segment=None))
        inside.append(variant)
    return tuple(steps)


Side = tuple[Value | None, ...]


def _factor(runs: Sequence[ByHand]) -> tuple[tuple[str, ...], list[Side]]:
    """Return what the runs differ in, and each run's values of it.

    First what was asked for, as it is in force; where nothing was asked for, what is in force; then request parameters;
    then the condition that each run was given; last the command that started the server.

    Raises:
        InputError: nothing of that.
    """
    stated = [{row["name"]: row for row in one.account["settings"] if row["name"] not in _NO_SETTINGS} for one in runs]
    names = sorted({name for each in stated for name in each})
    wanted = [name for name in names if any(each.get(name, {}).get("requested") is not None for each in stated)]
    for among in (wanted, names):
        found = _differing(among, [{name: _in_force(row) for name, row in each.items()} for each in stated])
        if found is not None:
            return found
    sent = [{f"request.{name}": _plain(v) for name, v in _request(one).items()} for one in runs]
    found = _differing(sorted({name for each in sent for name in each}), sent)
    for name, told in (("condition", _condition), ("command", _command)):
        if found is None:
            found = _differing([name], [{name: told(one)} for one in runs])
    if found is None:
        raise InputError(
            f"nothing tells {', '.join(one.manifest.run for one in runs)} apart: no setting that is proven, no request "
            f"parameter, no command and no condition (all are {_condition(runs[0])}); name what was changed with "
            "--condition when a run is made"
        )
    return found


def _differing(
    names: Sequence[str], values: Sequence[Mapping[str, Value | None]]
) -> tuple[tuple[str, ...], list[Side]] | None:
    factor = tuple(name for name in names if len({str(each.get(name)) for each in values}) > 1)
    if not factor:
        return None
    return factor, [tuple(each.get(name) for name in factor) for each in values]


def _in_force(row: Mapping[str, Any]) -> Value | None:
    value: Value | None = row["requested"] if row["applied"] is None else row["applied"]
    return value


def _request(one: ByHand) -> Mapping[str, Any]:
    return one.manifest.scenario.get("request") or {}


def _plain(value: Any) -> Value:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _condition(one: ByHand) -> str:
    return str(one.manifest.scenario.get("condition") or "default")


def _command(one: ByHand) -> str:
    """As the scenario has it: no port and no folder of this run stands in it."""
    server = one.manifest.scenario.get("server") or {}
    return str(server.get("launch") or "") + " ".join(map(str, server.get("args") or ()))


def _variant(name: str, factor: Sequence[str], side: Side, one: ByHand) -> Variant:
    label = ", ".join(f"{what}={_NOT_GIVEN if v is None else v}" for what, v in zip(factor, side, strict=True))
    known = {what: v for what, v in zip(factor, side, strict=True) if v is not None}
    sent = {
        what.removeprefix("request."): _request(one).get(what.removeprefix("request."))
        for what in known
        if what.startswith("request.")
    }
    expected = {
        what: v for what, v in known.items() if not what.startswith("request.") and what not in {"condition", "command"}
    }
    return Variant(name=name, label=label, scenario=one.manifest.scenario, expected=expected, request=sent)


# ---- what a reader should know ---------------------------------------------------------------------------------------


def _restarts_are_known(runs: Sequence[ByHand]) -> bool:
    return all(one.manifest.server.get("kind") in _STARTED for one in runs)


def _doubts(runs: Sequence[ByHand], found: Sequence[StepFound], passed: Sequence[Unlike]) -> list[Doubt]:
    doubts = [
        Doubt(
            "made-by-hand",
            "these runs were made by hand: how many there would be, and in which order, was not fixed before, so that "
            "a stop at a pleasing result is not ruled out",
            "let agentload ab make them: it fixes both before the first server starts",
        )
    ]
    doubts += [
        Doubt(
            "unlike-passed",
            f"let pass as harmless (--anyway): {one.sentence}",
            "make the runs alike where the difference is small",
        )
        for one in passed
    ]
    factors = {setting.name for one in found for setting in one.settings if setting.under_test}
    if len(factors) > 1:
        doubts.append(
            Doubt(
                "several-settings",
                f"the sides differ in {len(factors)} settings at once ({', '.join(sorted(factors))}): which of them "
                "made a difference is not told apart",
                "change one at a time",
            )
        )
    commands: dict[str, set[str]] = {}
    for one, step in zip(runs, found, strict=True):
        commands.setdefault(step.step.variant, set()).add(_command(one))
    mixed = sorted(name for name, texts in commands.items() if len(texts) > 1)
    if mixed:
        doubts.append(
            Doubt(
                "commands-differ",
                f"runs of {', '.join(mixed)} were started by different commands: flags that no source proves may "
                "differ",
                "start the runs of a side by one command",
            )
        )
    if any(one.manifest.simulated for one in runs):
        doubts.append(
            Doubt(
                "order-as-given",
                "the clock of each simulated run starts anew: the order of the runs is that of the command line",
                "name them in the order in which they were made",
            )
        )
    if not _restarts_are_known(runs):
        doubts.append(
            Doubt(
                "restarts-not-known",
                "agentload did not start the server of each run: runs may share a start, and what one start of the "
                "server has in common is no repetition",
                "let agentload start it (--launch), one start a run",
            )
        )
    return doubts


def _without_restarts(content: dict[str, Any]) -> None:
    """No number is confirmed whose repetitions may be one start of the server."""
    content["repeat_unit"]["sentence"] = (
        "the repeat is the run: agentload did not start the server of each of them, so that they may share a start"
    )
    for one in _graded(content):
        if one["grade"] == Grade.CONFIRMED.value:
            one["grade"] = Grade.ESTIMATE.value
            one["reason"] = f"{one['reason']}; taking it that each run had a start of the server to itself"


def _graded(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every grade with its reason, wherever it stands."""
    if isinstance(value, dict):
        if "grade" in value and "reason" in value:
            yield value
        yield from _graded(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from _graded(one)
