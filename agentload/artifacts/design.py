"""What was an experiment to be, as it was written down before its first server started?

    EXPERIMENT/experiment.toml  design.json  journal.jsonl  runs/{01-A, 02-B, ...}  derived/{comparison.json, *.parquet}

design.json is written once and never changed: a resumed night holds it against what it was asked for. The order of the
runs comes from core.crossover; the runs themselves are run directories of their own. What was
done of it: artifacts.journal.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from agentload.artifacts import schemas, strict
from agentload.artifacts.rundir import write_atomically
from agentload.artifacts.strict import Count, Ours
from agentload.errors import ArtifactError, InputError

Value = bool | int | float | str
PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]  # it becomes part of a path
Seconds = Annotated[float, Field(ge=0)]


class Proof(Ours):
    """Where the value in force of a setting stands that no profile knows: a line of the server's log."""

    setting: str
    line: str  # a regular expression with one group, the value


class Variant(Ours):
    """One condition of the comparison."""

    name: PlainName  # A, B, ...: part of a run directory's name
    label: str  # what a reader sees: mixed_prefill_quantum=2048
    scenario: dict[str, Any]  # complete, unresolved: run.scenario.Scenario.dump()
    expected: dict[str, Value]  # settings that must be in force, by the names that server profiles use
    request: dict[str, Any] = Field(
        default_factory=dict
    )  # what it adds to each request, where variants are request parameters


class Step(Ours):
    """One run, or one segment of a run, in the order of the experiment. Counts start at 0."""

    position: Count
    block: Count
    place: Count
    boot: Count
    variant: str
    run: PlainName  # name of the directory below runs/
    segment: PlainName | None  # of that run; None: all of it


class Design(Ours):
    """design.json."""

    name: str
    seed: Count
    repeats: Count
    kind: Literal["restart", "request"]  # every step a start of its own, or variants alternating inside one start
    sets: Count = 1  # of a request experiment: how often each variant comes in one boot
    workload: Literal["agents", "fixed", "probe"]
    factor: str  # what varies, in words: mixed_prefill_quantum, or "variant" for commands that have nothing in common
    metric: str  # the metric that decides: core.metrics
    variants: Annotated[tuple[Variant, ...], Field(min_length=2)]
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    cooldown_s: Seconds = 0.0
    proofs: tuple[Proof, ...] = ()
    expected_s: Seconds | None = None  # the duration that was foretold
    simulated: bool = False

    @model_validator(mode="after")
    def _steps_have_variants(self) -> Self:
        names = [one.name for one in self.variants]
        strangers = [step.variant for step in self.steps if step.variant not in names]
        if len(set(names)) < len(names) or strangers:
            raise ValueError(f"expected steps of variants {', '.join(names)}, each once, got {strangers or names}")
        if [step.position for step in self.steps] != list(range(len(self.steps))):
            raise ValueError("expected the steps in their order, with positions from 0 on")
        return self

    def dump(self) -> dict[str, Any]:
        """As JSON values, `schema` first."""
        return {"schema": schemas.DESIGN, **self.model_dump(mode="json")}

    def variant(self, name: str) -> Variant:
        """Return the variant of that name."""
        return next(one for one in self.variants if one.name == name)


class ExperimentDir:
    """One experiment's directory on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.experiment_path = path / "experiment.toml"
        self.design_path = path / "design.json"
        self.journal_path = path / "journal.jsonl"
        self.runs = path / "runs"
        self.derived = path / "derived"

    def run_path(self, step: Step) -> Path:
        """Where the run of a step stands."""
        return self.runs / step.run

    def write_design(self, design: Design) -> None:
        """Write design.json.

        Raises:
            ArtifactError: it cannot be written.
        """
        write_atomically(self.design_path, (json.dumps(design.dump(), indent=2) + "\n").encode())

    def read_design(self) -> Design:
        """Read and check design.json.

        Raises:
            InputError: the directory is no experiment.
            ArtifactError: the file cannot be read, or does not follow its schema.
        """
        if not self.design_path.is_file():
            raise InputError(f"expected an experiment's directory (with design.json), {self.path} is none")
        try:
            data = self.design_path.read_bytes()
        except OSError as error:
            raise ArtifactError(f"{self.design_path}: cannot be read: {error.strerror}") from error
        try:
            fields = strict.parse(data)
            schema = fields.pop("schema", None) if isinstance(fields, dict) else None
            if schema != schemas.DESIGN:
                raise ValueError(f"expected schema {schemas.DESIGN}, got {str(schema)[:60]}")
            return Design.model_validate_json(json.dumps(fields))
        except ValidationError as error:
            raise ArtifactError(f"{self.design_path}: {strict.explain(error)}") from error
        except ValueError as error:
            raise ArtifactError(f"{self.design_path}: {error}") from error
