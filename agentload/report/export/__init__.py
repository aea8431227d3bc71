"""How do tables leave agentload? With their JSON Schemas, in a format that is one file and one entry point."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

from agentload import plugins
from agentload.artifacts.newfiles import new_files
from agentload.artifacts.table_schemas import TABLES, Table
from agentload.errors import ArtifactError

ACCOUNT: Final = "account.json"


class Export(Protocol):
    """A format; each module here offers one as an entry point of the group `agentload.exports`."""

    @property
    def suffix(self) -> str:
        """What its files' names end with, the dot included."""
        ...

    def write(self, path: Path, rows: pl.DataFrame, table: Table) -> None:
        """Write the new file `path`: `rows` with the columns of `table`, in its order.

        Raises:
            OSError: the disk is full or the folder cannot be written.
        """
        ...


def names() -> list[str]:
    """Names of the installed formats."""
    return plugins.names(plugins.EXPORTS)


def by_name(name: str) -> Export:
    """Return the format `name`.

    Raises:
        UsageError: there is none of that name.
    """
    found: Export = plugins.load(plugins.EXPORTS, name)
    return found


def complete(table: Table, stored: pl.DataFrame) -> pl.DataFrame:
    """Return all columns of `table` from those that an account stores: the others are computed by their formulas.

    Raises:
        ArtifactError: a column is missing.
    """
    missing = [column.name for column in table.stored if column.name not in stored.columns]
    if missing:
        raise ArtifactError(
            f"{table.name}: expected the columns of {table.id}, {', '.join(missing)} is not there: "
            "make the account anew with `agentload account`"
        )
    if table.name == "requests":
        stored = stored.with_columns(**_requests_computed())
    return stored.select(column.name for column in table.columns)


def _requests_computed() -> dict[str, pl.Expr]:
    """The columns of requests that have a formula in its schema."""
    source = pl.col("prefill_source")

    def ms(end: str, start: str) -> pl.Expr:
        return (pl.col(end) - pl.col(start)) / 1e6

    return {
        # What the client's clock calls the start of a prefill is the sending: there is no wait to be seen in it.
        # Nor is there one below 0: the log's clock is known that badly, and how long it waited is not known.
        "prefill_wait_time_ms": pl.when((source == "log") & (pl.col("prefill_start") >= pl.col("t_sent"))).then(
            ms("prefill_start", "t_sent")
        ),
        "prefill_time_ms": pl.when(source.is_in(["log", "usage"])).then(ms("prefill_end", "prefill_start")),
        "ttft_ms": ms("t_first_token", "t_sent"),
        "total_time_ms": ms("t_done", "t_sent"),
    }


def write(folder: Path, export: Export, frames: Mapping[str, pl.DataFrame], account: str) -> tuple[Path, ...]:
    """Write every table with its schema, and `account` (account.json: on which clock the times stand) into `folder`.

    Returns:
        The files, in order. All are written, or none.

    Raises:
        ArtifactError: one is there already, the folder cannot be written, or a table lacks a column.
    """
    whole = {name: complete(TABLES[name], frame) for name, frame in frames.items()}
    files = [ACCOUNT, *(f"{name}{ending}" for name in whole for ending in (export.suffix, ".schema.json"))]
    with new_files(folder, files) as place:
        (place / ACCOUNT).write_text(account, encoding="utf-8")
        for name, frame in whole.items():
            export.write(place / f"{name}{export.suffix}", frame, TABLES[name])
            (place / f"{name}.schema.json").write_text(_text(TABLES[name].json_schema()), encoding="utf-8")
    return tuple(folder / name for name in files)


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
