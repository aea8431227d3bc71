"""`agentload export RUN_OR_LOG --to FORMAT`: the tables for other programs, each with its JSON Schema beside it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from agentload.analysis import account as accounts
from agentload.analysis.source import STDIN, is_run, read_log
from agentload.artifacts import rundir
from agentload.artifacts.table_schemas import TABLES
from agentload.errors import ArtifactError, UsageError
from agentload.report import export as exports
from agentload.report import logfile_terminal


def export(
    path: Annotated[
        Path, typer.Argument(readable=False, help="A run directory, a server's log, or - for a log on stdin.")
    ],
    to: Annotated[str, typer.Option("--to", help="The format: csv, jsonl or parquet.")],
    out: Annotated[Path | None, typer.Option(help="The folder (default: exports/NAME-FORMAT).")] = None,
    log_format: Annotated[str | None, typer.Option("--format", help="A log's own format (default: detected).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files and their rows as JSON.")] = False,
) -> None:
    """Write a run's or a log's tables, each with its schema.

    requests, phases, segments and samples, each with a versioned JSON Schema, and account.json. Every phase names the
    lines and bytes of the log that prove it. Nothing is overwritten.
    """
    if to not in exports.names():
        raise UsageError(f"--to: expected one of {', '.join(exports.names())}, got {to!r}")
    chosen = exports.by_name(to)
    if is_run(path):
        if log_format is not None:
            raise UsageError(f"--format is for a log; {path} is a run: its manifest names the format")
        found, frames = _of_run(path)
        name = path.resolve().name
    else:
        made = read_log(path, log_format, sys.stdin)
        if nothing := logfile_terminal.nothing_found(made.found):
            typer.echo(f"agentload: {nothing}", err=True)
            raise typer.Exit(1)
        found, frames = accounts.text(made.found), made.frames()
        name = "stdin" if path == STDIN else path.name
    target = Path("exports") / f"{name}-{to}" if out is None else out
    files = exports.write(target, chosen, frames, found)
    if as_json:
        rows = {name: frame.height for name, frame in frames.items()}
        typer.echo(json.dumps({"folder": str(target), "files": [str(one) for one in files], "rows": rows}, indent=2))
        return
    for name, frame in frames.items():
        typer.echo(f"{name}: {frame.height:,} rows, {TABLES[name].id}")
    typer.echo(str(target))


def _of_run(path: Path) -> tuple[str, dict[str, pl.DataFrame]]:
    found = accounts.load(path)
    derived = rundir.find(path).derived
    frames = {}
    for name in TABLES:
        table = derived / f"{name}.parquet"
        try:
            frames[name] = pl.read_parquet(table)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ArtifactError(
                f"{table}: cannot be read: {error}; make it anew with `agentload account {path}`"
            ) from error
    return accounts.text(found), frames
