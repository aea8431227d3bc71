"""What may an experiment's file hold, key by key?

An experiment compares variants of one scenario that differ in one factor: `[vary]` names it with its values, or each
`[[variant]]` says how it differs. What the variants then run is `variants`; in which order, `designing`.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from agentload.errors import UsageError
from agentload.run import scenario
from agentload.run.kinds import LISTED, PLAIN_NAME, TABLE, Plain, Seconds, Text, Words, is_plain
from agentload.run.request_fields import RequestFields
from agentload.run.scenario import Scenario

# /1: first.
SCHEMA: Final = "agentload.experiment/1"

MOST_VARIANTS: Final = 26  # A to Z
RESTARTS: Final = 3  # of each variant, where nobody says; at two a side a claim needs 3.2 times the wider range
_DEEPEST: Final = 32  # parts of a request parameter's dotted name
_OURS: Final = ("name", "condition", "parts")  # of [scenario]: decided for each run


class RefusedError(UsageError):
    """Something in an experiment is not acceptable: what, and where it stands in its file."""

    def __init__(self, path: tuple[str, ...], said: str) -> None:
        super().__init__(f"{'.'.join(path)}: {said}")
        self.path = path
        self.said = said


class _Model(BaseModel):
    model_config = TABLE


class ProofTable(_Model):
    """A `[[proof]]`: where in the server's log the value in force of a setting stands, that no server profile knows."""

    setting: Text
    line: Text

    @field_validator("line")
    @classmethod
    def _has_one_group(cls, line: str) -> str:
        try:
            groups = re.compile(line).groups
        except re.error as error:
            raise ValueError(f"expected a regular expression: {error}, got {line!r:.80}") from error
        if groups != 1:
            raise ValueError(
                f"expected one group, the value in force, such as 'quantum=(\\d+)', got {groups} in {line!r}"
            )
        return line


class VariantTable(_Model):
    """A `[[variant]]`: what it has that the scenario has not, or another way."""

    name: Annotated[str, Field(pattern=PLAIN_NAME)] | None = None  # default: A, B, ...
    label: Text | None = None  # default: what it says of itself
    launch: Text | None = None  # instead of the scenario's command
    env: dict[Text, Plain] = {}
    args: Words = ()  # after the scenario's
    set: dict[str, Plain] = {}
    request: RequestFields = {}
    expected: dict[Text, Plain] = {}


class Experiment(_Model):
    """An experiment's file; for the short form the options make one."""

    schema_: Literal["agentload.experiment/1"] = Field(SCHEMA, alias="schema")
    name: Annotated[str, Field(pattern=PLAIN_NAME)] | None = None  # of its directory
    seed: Annotated[int, Field(ge=0, le=2**53)] = 0
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None  # restarts of each variant
    sets: Annotated[int, Field(ge=1, le=100)] = 3  # of request parameters: how often each comes in one boot
    workload: Literal["agents", "fixed", "probe"] = "agents"
    metric: Text | None = None  # that decides; default: the workload's
    cooldown_s: Seconds = 0.0  # between two starts
    scenario: Scenario = Field(default_factory=lambda: Scenario.model_validate({}))
    vary: dict[str, Annotated[tuple[Plain, ...], LISTED]] = {}  # one name
    variant: Annotated[tuple[VariantTable, ...], LISTED] = ()
    expected: dict[Text, Plain] = {}
    proof: Annotated[tuple[ProofTable, ...], LISTED] = ()

    @field_validator("scenario", mode="before")
    @classmethod
    def _of_this_workload(cls, given: Any, info: ValidationInfo) -> Any:
        """A scenario's keys depend on its workload, which stands at the top."""
        if not isinstance(given, dict):
            return given
        workload = info.data.get("workload", "agents")
        if given.get("workload", workload) != workload:
            raise ValueError(f"workload: expected it at the top of the experiment, there it is {workload!r}")
        return {**given, "workload": workload}

    @field_validator("scenario")
    @classmethod
    def _only_the_scenarios_own(cls, given: Scenario) -> Scenario:
        if "seed" in given.model_fields_set:
            raise ValueError("seed: expected it at the top of the experiment, where it holds for all runs")
        for name in _OURS:
            if name in given.model_fields_set:
                raise ValueError(f"{name}: must not be given: the experiment gives each of its runs one of its own")
        if given.server.boot is not None:
            raise ValueError("server.boot: must not be given: each run is a start of its own")
        return given

    @field_validator("vary", mode="before")
    @classmethod
    def _flat(cls, given: Any) -> Any:
        return _flattened(given, ()) if isinstance(given, dict) else given


def _flattened(given: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return dotted names with their lists: TOML reads `request.reasoning_effort = [...]` as a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        here = (*path, name)
        if len(here) > _DEEPEST:
            raise ValueError(f"expected a name of at most {_DEEPEST} parts, got {'.'.join(here)[:40]}...")
        if isinstance(value, dict):
            flat |= _flattened(value, here)
            continue
        dotted = ".".join(here)
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{dotted}: expected a list of values, got {value!r:.80}")  # noqa: TRY004 - pydantic's way
        for one in value:
            if not is_plain(one):
                raise ValueError(
                    f"{dotted}: expected texts, finite numbers, true or false, got {one!r:.80}; "
                    "lists and tables go into [[variant]] tables"
                )
        flat[dotted] = value
    return flat


def keys_of(path: Sequence[str]) -> list[str]:
    """Return the keys that the table at `path` has, from the experiment's own on."""
    if path and path[0] == "scenario":
        return scenario.keys_of(path[1:])
    parts: dict[str, type[BaseModel]] = {"variant": VariantTable, "proof": ProofTable}
    model = parts.get(path[0], Experiment) if path else Experiment
    return [field.alias or name for name, field in model.model_fields.items()]
