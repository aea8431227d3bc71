"""Which experiment do a file and options make? Read from TOML, checked once; a mistake is told with its line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentload.core import metrics
from agentload.errors import UsageError
from agentload.run import explaining, toml_file, variants
from agentload.run.experiment_shape import SCHEMA, Experiment, RefusedError, keys_of
from agentload.run.workloads import Fixed, Probe

__all__ = ["Experiment", "dump", "from_fields", "from_options", "metric_of", "read"]


def read(path: Path) -> Experiment:
    """Read an experiment's file.

    Raises:
        InputError: it is missing or no TOML; the line is named.
        UsageError: a key is unknown or its value is not acceptable; the line is named.
    """
    held = toml_file.read(path)
    return from_fields(held.fields, str(path), text=held.text)


def from_options(
    given: Mapping[tuple[str, ...], tuple[str, Any]],
    fields: Mapping[str, Any],
    where: str = "",
    *,
    text: str = "",
) -> Experiment:
    """Return the experiment of a file's fields, or of none, with options over it.

    Args:
        given: of each key, such as ("scenario", "agents"), the option that gave it, and its value.
        fields: the file's, already with these values in their places.
        where: the file.
        text: its text.

    Raises:
        UsageError: as `from_fields`; what an option gave is named by the option.
    """
    options = {".".join(path): option for path, (option, _) in given.items()}
    return from_fields(fields, where, text=text, options=options)


def from_fields(
    fields: Mapping[str, Any], where: str = "", *, text: str = "", options: Mapping[str, str] | None = None
) -> Experiment:
    """Check `fields`, and that variants can be made of them.

    Args:
        fields: as a file or options give them.
        where: names their origin in an error, such as a file.
        text: the file's text, in which the line of a bad value is looked for.
        options: what an error names instead of the key, for those that options gave: {"scenario.agents": "--agents"}.

    Raises:
        UsageError: a key is unknown, its value is not acceptable, or what varies is not one factor with two values.
    """

    def told(path: list[str], said: str) -> str:
        return _told(path, said, where, text, options or {})

    try:
        experiment = Experiment.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"] if part != "schema_"]
        raise UsageError(told(path, explaining.explain(first, keys_of))) from error
    try:
        variants.make(experiment)
    except RefusedError as error:
        raise UsageError(told(list(error.path), error.said)) from error
    try:
        metric_of(experiment)
    except ValueError as error:
        raise UsageError(told(["metric"], str(error))) from error
    return experiment


def metric_of(experiment: Experiment) -> str:
    """Return the metric that decides.

    Where nobody says: the workload's own; of agents on the embedded server the prefill for each CPU-second of the
    server, since it shares its few cores with the agents' tools and whatever else runs there.

    Raises:
        ValueError: there is no metric of that name.
    """
    name, fixed, probe = experiment.metric, experiment.scenario.fixed or Fixed(), experiment.scenario.probe or Probe()
    if name is None and experiment.workload == "agents" and variants.server_kind(experiment) == "embedded":
        name = "prefill_tokens_per_cpu_s"
    return metrics.deciding(name, experiment.workload, fixed.concurrency, probe.loads)


def dump(experiment: Experiment) -> dict[str, Any]:
    """As TOML values, only what was given: reading them gives the same experiment."""
    fields = experiment.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    fields.get("scenario", {}).pop("workload", None)  # it stands at the top
    return {"schema": SCHEMA, **fields}


def _told(path: list[str], said: str, where: str, text: str, options: Mapping[str, str]) -> str:
    """Return an error's line: the option that gave the value, or the file, its line and the key."""
    for length in range(len(path), 0, -1):
        option = options.get(".".join(path[:length]))
        if option is not None:
            return f"{option}: {said}"
    line = explaining.toml_line(text, path)
    source = f"{where}:{line}: " if where and line else f"{where}: " if where else ""
    if not where and path == ["vary"]:
        return f"--vary: {said}"
    return f"{source}{'.'.join(path) or 'experiment'}: {said}"
