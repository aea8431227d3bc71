"""In which order does an experiment run what, and is it the one that a directory already holds?"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from agentload.artifacts.design import Design, Proof, Step, Variant
from agentload.artifacts.jsonlines import dumps
from agentload.core import crossover
from agentload.run import experiment_file, variants
from agentload.run.experiment_shape import RESTARTS, Experiment
from agentload.run.variants import Made

UNNAMED: Final = "ab"
_NOT_COMPARED: Final = frozenset({"name", "expected_s"})  # a directory may be renamed; a forecast is none of the design
_SHOWN: Final = 60


def design(experiment: Experiment, *, expected_s: float | None) -> Design:
    """Return what is done, in which order: a pure function of the experiment.

    Restarts: reversed blocks of two variants, rotated rounds of more, each step a start of its own. Request
    parameters: they alternate inside one start, `sets` times; each start is one run with a segment for each step.

    Raises:
        UsageError: no variants can be made of it.
    """
    made = variants.make(experiment)
    kind = variants.kind(experiment)
    names = [one.name for one in made]
    repeats = repeats_of(experiment)
    sets = experiment.sets if kind == "request" else 1
    if kind == "request":
        order = crossover.request_order(names, sets, experiment.seed, boots=repeats)
    else:
        order = crossover.restart_order(names, repeats, experiment.seed)
    return Design(
        name=experiment.name or UNNAMED,
        seed=experiment.seed,
        repeats=repeats,
        kind=kind,
        sets=sets,
        workload=experiment.workload,
        factor=variants.factor(experiment),
        metric=experiment_file.metric_of(experiment),
        variants=tuple(_variant(one) for one in made),
        steps=tuple(_step(step, kind, len(order), sets * len(made)) for step in order),
        cooldown_s=experiment.cooldown_s,
        proofs=tuple(Proof(setting=one.setting, line=one.line) for one in experiment.proof),
        expected_s=expected_s,
        simulated=variants.server_kind(experiment) == "twin",
    )


def repeats_of(experiment: Experiment) -> int:
    """Return how often each variant is started; request parameters share a start, and one is enough."""
    if experiment.repeats is not None:
        return experiment.repeats
    return 1 if variants.kind(experiment) == "request" else RESTARTS


def _variant(made: Made) -> Variant:
    return Variant(
        name=made.name,
        label=made.label,
        scenario=variants.dump(made.scenario),
        expected=made.expected,
        request=made.request,
    )


def _step(step: crossover.Step, kind: variants.Kind, steps: int, in_boot: int) -> Step:
    """Return a step with its run and segment; numbers of runs have two digits, or as many as the last one."""
    if kind == "restart":
        run, segment = f"{step.position + 1:0{max(2, len(str(steps)))}d}-{step.variant}", None
    else:
        boots = steps // in_boot
        run = f"{step.boot + 1:0{max(2, len(str(boots)))}d}"
        segment = f"s{step.position - step.boot * in_boot + 1}"
    return Step(
        position=step.position,
        block=step.block,
        place=step.place,
        boot=step.boot,
        variant=step.variant,
        run=run,
        segment=segment,
    )


def name_of(planned: Design, stamp: str, chance: str) -> str:
    """Return the name of an experiment that nobody named: time and chance; of a simulated one its design decides."""
    return f"ab-{digest(planned)}" if planned.simulated else f"{stamp}-ab-{chance}"


def digest(planned: Design) -> str:
    """Return eight hexadecimal digits that another design would not have; its name plays no part."""
    return blake2b(dumps(_compared(planned)).encode(), digest_size=4).hexdigest()


def differences(old: Design, new: Design) -> list[str]:
    """Return in words how another design differs, "there" and "here"; nothing when it is the same.

    The name and the foretold duration are not compared.
    """
    found = []
    if (there := values(old)) != (here := values(new)):
        found.append(f"{there} there, {here} here")
    found += [
        f"{name} {getattr(old, name)} there, {getattr(new, name)} here"
        for name in ("seed", "repeats", "kind", "sets", "workload", "metric", "cooldown_s")
        if getattr(old, name) != getattr(new, name)
    ]
    found += _of_scenarios(old, new, varying=not found or there == here)
    if not found and _compared(old) != _compared(new):
        names = [name for name, value in _compared(old).items() if _compared(new)[name] != value]
        found.append(f"{' and '.join(names)} there {'are' if len(names) > 1 else 'is'} not as here")
    return found


def values(planned: Design) -> str:
    """Return what is compared in short: q=2048,128, or the variants' labels."""
    labels = [one.label for one in planned.variants]
    name = planned.factor.rpartition(".")[2] + "="
    if all(label.startswith(name) for label in labels):
        return name + ",".join(label.removeprefix(name) for label in labels)
    return " / ".join(labels)


def _compared(planned: Design) -> dict[str, Any]:
    return {name: value for name, value in planned.dump().items() if name not in _NOT_COMPARED}


def _of_scenarios(old: Design, new: Design, *, varying: bool) -> Iterator[str]:
    """Yield the scenario's keys that differ; those that the variants of one design differ in only if `varying`."""
    there, here = ([_flat(one.scenario) for one in planned.variants] for planned in (old, new))
    told: set[str] = set()
    for first, second in zip(there, here, strict=False):
        for name in sorted({*first, *second} - told):
            alike = all(len({repr(one.get(name)) for one in side}) == 1 for side in (there, here))
            if first.get(name) != second.get(name) and (alike or varying) and name not in ("seed", "workload"):
                told.add(name)
                yield f"{name} {_shown(first.get(name))} there, {_shown(second.get(name))} here"


def _flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 2 :]}"
