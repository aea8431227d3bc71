"""`agentload account RUN_OR_LOG`: raw evidence into tables, of a run or of any server log."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis import account as accounts
from agentload.analysis.source import is_run, read_log, single
from agentload.commands.logtables import LogFormat, RunOrLog, check_tells, write_tables
from agentload.errors import InterruptionError, UsageError
from agentload.report import logfile_terminal, terminal
from agentload.shown import in_shell, shown


def account(
    paths: RunOrLog,
    log_format: LogFormat = None,
    segment: Annotated[
        str | None, typer.Option(metavar="ID", help="Of a log: show this segment alone (SEGMENT or RUN/SEGMENT).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Of a log: write what `export --to parquet` writes into this folder, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print account.json on stdout.")] = False,
) -> None:
    """Account for a run, or for any server log.

    A run: its derived/ is made anew from the raw files alone, the same bytes each time. A log: what of it was
    understood, the settings it proves, its requests, what the costliest of them cost, and their sums; nothing is
    written unless --out names a folder.

    A rotated log, the oldest part first: cat server.log.1 server.log | agentload account -

    A packed one: zcat server.log.gz | agentload account -

    One that does not end: ssh HOST tail -n +1 -f server.log | agentload account - (Ctrl-C ends it, and what came
    before is shown)

    Exit codes: 0; 1 when a log has neither requests nor statistics, or a run failed or was cut short; 2 for an error;
    130 after Ctrl-C.
    """
    path = single(paths, "agentload account -")
    if is_run(path):
        if log_format is not None or out is not None or segment is not None:
            raise UsageError(
                f"--format, --segment and --out are for a log; {path} is a run: its manifest names the format"
            )
        _of_run(path, as_json=as_json)
    else:
        _of_log(path, log_format, segment, out, as_json=as_json)


def _of_run(path: Path, *, as_json: bool) -> None:
    found = accounts.account(path)
    typer.echo(accounts.text(found) if as_json else terminal.render(found), nl=False)
    typer.echo(str(path / "derived"), err=as_json)
    if code := accounts.exit_code(found):
        raise typer.Exit(code)


def _of_log(path: Path, log_format: str | None, segment: str | None, out: Path | None, *, as_json: bool) -> None:
    made = read_log(path, log_format, sys.stdin, segment, wait=True)
    if out is not None:
        write_tables(made, out, "parquet")
    if as_json:
        accounts.write(made.found, sys.stdout)
    else:
        typer.echo(logfile_terminal.render(made.found), nl=False)
    if out is not None:
        typer.echo(str(out), err=as_json)
    if made.found["interrupted"]:
        raise InterruptionError(f"interrupted: this is of the {made.found['log']['bytes']:,} bytes that came before")
    check_tells(made)
    if out is None and not as_json:
        log = "-" if str(path) == "-" else in_shell(path)
        typer.echo(
            f"nothing was written; for the tables: agentload account {shown(log)} --out DIR, or agentload export",
            err=True,
        )
