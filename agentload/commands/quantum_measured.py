"""Which gaps did a probe measure, at which prefill chunk? Read from a run's account or an experiment's comparison."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentload.artifacts import strict
from agentload.errors import InputError

# What servers call the tokens of one prefill chunk while others decode; the first that is known counts.
_CHUNKS: Final = ("mixed_prefill_quantum", "n_ubatch", "max_num_batched_tokens", "chunked_prefill_size")


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class _Setting(_Read):
    name: str
    applied: str | int | float | bool | None


class _Load(_Read):
    load: str
    decoders: int
    prompts: int
    gap_s: float | None
    gap_longest_s: float | None


class _Row(_Load):
    variant: str


class _Loads(_Read):
    loads: list[_Load]


class _Run(_Read):
    run: str
    simulated: bool
    settings: list[_Setting]
    probe: _Loads | None = None


class _Rows(_Read):
    rows: list[_Row]


class _Variant(_Read):
    name: str
    settings: list[_Setting]


class _Experiment(_Read):
    experiment: str
    simulated: bool
    variants: list[_Variant]
    probe_sweep: _Rows | None = None


_Shape = TypeVar("_Shape", _Run, _Experiment)


@dataclass(frozen=True, slots=True)
class Measured:
    """The decoders' gaps while a cold prompt was prefilled, in one run or variant."""

    of: str  # the run, or the experiment and its variant
    simulated: bool
    chunk_tokens: int | None  # by the setting that was proven; None: not known
    load: str
    decoders: int
    gap_s: float  # median
    longest_s: float | None


def read(path: Path) -> list[Measured]:
    """Return what a probe measured under its load with the most decoders, of a run or of each variant.

    Raises:
        InputError: it is no run or experiment that has been accounted for, or no probe with decoders was in it.
    """
    account, comparison = path / "derived" / "account.json", path / "derived" / "comparison.json"
    found: list[Measured | None]
    if account.is_file():
        run = _parsed(account, TypeAdapter(_Run))
        found = [_of(run.run, run.probe.loads if run.probe else (), run.settings, simulated=run.simulated)]
    elif comparison.is_file():
        whole = _parsed(comparison, TypeAdapter(_Experiment))
        rows = whole.probe_sweep.rows if whole.probe_sweep else []
        found = [
            _of(
                f"{whole.experiment} {one.name}",
                [row for row in rows if row.variant == one.name],
                one.settings,
                simulated=whole.simulated,
            )
            for one in whole.variants
        ]
    else:
        raise InputError(
            f"--from: expected a run or an experiment, {path} has no derived/account.json and no "
            "derived/comparison.json: agentload account and agentload ab make them"
        )
    told = [one for one in found if one is not None]
    if not told:
        raise InputError(f'--from: expected decoders\' gaps of a probe (workload = "probe"), {path} has none')
    return told


def _of(of: str, loads: Sequence[_Load], settings: Iterable[_Setting], *, simulated: bool) -> Measured | None:
    alone = [one for one in loads if one.prompts == 1 and one.decoders and one.gap_s is not None]
    if not alone:
        return None
    most = max(alone, key=lambda one: one.decoders)
    assert most.gap_s is not None
    return Measured(of, simulated, _chunk(settings), most.load, most.decoders, most.gap_s, most.gap_longest_s)


def _chunk(settings: Iterable[_Setting]) -> int | None:
    """The chunk in force; None where no setting tells it, or it changed between the runs of a variant."""
    applied: dict[str, set[int]] = {}
    for one in settings:
        value = one.applied
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            applied.setdefault(one.name, set()).add(value)
    for name in _CHUNKS:
        if name in applied:
            return applied[name].pop() if len(applied[name]) == 1 else None
    return None


def _parsed(path: Path, shape: TypeAdapter[_Shape]) -> _Shape:
    try:
        return shape.validate_python(strict.parse(path.read_bytes()))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"{path}: {strict.explain(error)}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
