"""What was measured in one step of an experiment: its segments and requests, out of a run's derived files?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from agentload.artifacts.design import Step
from agentload.artifacts.rundir import RunDir
from agentload.errors import ArtifactError


def segments_of(account: Mapping[str, Any], step: Step) -> list[dict[str, Any]]:
    """Return the segments of account.json that belong to the step, in their order."""
    return [one for one in account["segments"] if step.segment in (None, one["segment"])]


def request_rows(run: RunDir, step: Step | None = None) -> list[dict[str, Any]]:
    """Return the rows of requests.parquet inside segments; with `step` those of its segments.

    Raises:
        ArtifactError: the table cannot be read.
    """
    rows = [row for row in table(run, "requests").to_dicts() if row["segment"] is not None]
    return [row for row in rows if step is None or step.segment in (None, row["segment"])]


def table(run: RunDir, name: str) -> pl.DataFrame:
    """Return a table of the run's account.

    Raises:
        ArtifactError: it cannot be read.
    """
    path = run.derived / f"{name}.parquet"
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ArtifactError(
            f"{path}: cannot be read: {str(error).splitlines()[0]}; delete {path.parent} to have it made anew"
        ) from error


def messages_of(run: RunDir, step: Step) -> list[Path]:
    """Return the conversations of the step: those of its segment where a run has several, else all."""
    found = sorted((run.path / "agents").glob("*/messages.jsonl"))
    if step.segment is None:
        return found
    mine = [path for path in found if path.parent.name.startswith(f"{step.segment}-")]
    return mine or found
