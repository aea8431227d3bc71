"""How do tables leave agentload? With their JSON Schemas, in a format that is one file and one entry point."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

from agentload import plugins
from agentload.artifacts import rowgroups
from agentload.artifacts.newfiles import new_files
from agentload.artifacts.table_schemas import TABLES, Table
from agentload.core.records import Source
from agentload.errors import ArtifactError

ACCOUNT: Final = "account.json"
_ACCOUNT_SCHEMA: Final = "account.schema.json"
_BY_SERVER: Final = (Source.LOG, Source.SPANS, Source.EXPORT, Source.USAGE)


class Export(Protocol):
    """A format; each module here offers one as an entry point of the group `agentload.exports`."""

    @property
    def suffix(self) -> str:
        """What its files' names end with, the dot included."""
        ...

    def write(self, path: Path, parts: Iterable[pl.DataFrame], table: Table) -> None:
        """Write the new file `path`: the rows of one frame after the other, all with the columns of `table` in order.

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

    def took(phase: str) -> pl.Expr:
        by_server = pl.col(f"{phase}_source").is_in([one.value for one in _BY_SERVER])
        timed = pl.when(by_server).then(ms(f"{phase}_end", f"{phase}_start"))
        return pl.coalesce(timed, pl.col(f"{phase}_logged_ms"))  # of a log without times only durations are known

    return {
        # What the client's clock calls the start of a prefill is the sending: there is no wait to be seen in it.
        # Nor is there one below 0: the log's clock is known that badly, and how long it waited is not known.
        "prefill_wait_time_ms": pl.when((source == "log") & (pl.col("prefill_start") >= pl.col("t_sent"))).then(
            ms("prefill_start", "t_sent")
        ),
        "prefill_time_ms": took("prefill"),
        "decode_time_ms": took("decode"),
        "ttft_ms": ms("t_first_token", "t_sent"),
        "total_time_ms": ms("t_done", "t_sent"),
    }


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    files: tuple[Path, ...]  # in order
    rows: dict[str, int]  # of each table


def write(
    folder: Path,
    export: Export,
    stored: Path,
    account: str,
    tables: Sequence[str] = tuple(TABLES),
    schema: dict[str, Any] | None = None,
) -> Exported:
    """Write the tables that an account left in `stored`, a few thousand rows at a time, each with its schema.

    `account` (account.json: on which clock the times stand) is put beside them in `folder`, with its `schema` where it
    has one. All is written, or nothing.

    Raises:
        ArtifactError: a file is there already, the folder cannot be written, or a table cannot be read or lacks a
            column.
    """
    files = [ACCOUNT, *([_ACCOUNT_SCHEMA] if schema else [])]
    files += [f"{name}{ending}" for name in tables for ending in (export.suffix, ".schema.json")]
    rows = {}
    with new_files(folder, files) as place:
        (place / ACCOUNT).write_text(account, encoding="utf-8")
        if schema:
            (place / _ACCOUNT_SCHEMA).write_text(_text(schema), encoding="utf-8")
        for name in tables:
            table = TABLES[name]
            kept = stored / f"{name}.parquet"
            rows[name] = rowgroups.rows(kept)
            parts = map(partial(complete, table), rowgroups.read(kept))
            export.write(place / f"{name}{export.suffix}", parts, table)
            (place / f"{name}.schema.json").write_text(_text(table.json_schema()), encoding="utf-8")
    return Exported(tuple(folder / name for name in files), rows)


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
