"""`agentload export RUN_OR_LOG --to FORMAT`: the tables for other programs, each with its JSON Schema beside it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis import account as accounts
from agentload.analysis.source import STDIN, is_run, read_log, single
from agentload.artifacts import rundir
from agentload.artifacts.table_schemas import TABLES
from agentload.commands.logtables import LogFormat, RunOrLog, check_tells, write_tables
from agentload.errors import UsageError
from agentload.report import export as exports


def export(
    paths: RunOrLog,
    to: Annotated[str, typer.Option("--to", help="The format: csv, jsonl or parquet.")],
    out: Annotated[Path | None, typer.Option(help="The folder (default: exports/NAME-FORMAT).")] = None,
    log_format: LogFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files and their rows as JSON.")] = False,
) -> None:
    """Write a run's or a log's tables, each with its schema.

    requests, phases, segments and, of a run, samples, each with a versioned JSON Schema, and account.json. Every phase
    names the lines and bytes of the log that prove it. Nothing is overwritten. `agentload account LOG --out DIR` writes
    the same as --to parquet, and shows the account.

    A rotated log, the oldest part first: cat server.log.1 server.log | agentload export - --to csv

    A packed one: zcat server.log.gz | agentload export - --to csv

    One on another machine: ssh HOST cat server.log | agentload export - --to csv

    Exit codes: 0; 1 when a log has neither requests nor statistics; 2 for an error.
    """
    path = single(paths, f"agentload export - --to {to}")
    if to not in exports.names():
        raise UsageError(f"--to: expected one of {', '.join(exports.names())}, got {to!r}")
    chosen = exports.by_name(to)
    of_run = is_run(path)
    name = "stdin" if path == STDIN else path.resolve().name if of_run else path.name
    target = Path("exports") / f"{name}-{to}" if out is None else out
    if of_run:
        if log_format is not None:
            raise UsageError(f"--format is for a log; {path} is a run: its manifest names the format")
        found = accounts.load(path)
        exported = exports.write(target, chosen, rundir.find(path).derived, accounts.text(found))
    else:
        made = read_log(path, log_format, sys.stdin)
        check_tells(made)
        exported = write_tables(made, target, to)
    if as_json:
        files = [str(one) for one in exported.files]
        typer.echo(json.dumps({"folder": str(target), "files": files, "rows": exported.rows}, indent=2))
        return
    for name, rows in exported.rows.items():
        typer.echo(f"{name}: {rows:,} rows, {TABLES[name].id}")
    typer.echo(str(target))
