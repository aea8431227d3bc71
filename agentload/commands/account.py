"""`agentload account RUN_OR_LOG`: raw evidence into tables, of a run or of any server log."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis import account as accounts
from agentload.analysis import logfile, tables
from agentload.analysis.source import is_run, read_log
from agentload.artifacts.newfiles import new_files
from agentload.errors import UsageError
from agentload.report import logfile_terminal, terminal


def account(
    path: Annotated[
        Path, typer.Argument(readable=False, help="A run directory, a server's log, or - for a log on stdin.")
    ],
    log_format: Annotated[str | None, typer.Option("--format", help="The log's format (default: detected).")] = None,
    out: Annotated[Path | None, typer.Option(help="Of a log: write its tables into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print account.json on stdout.")] = False,
) -> None:
    """Account for a run, or for any server log.

    A run: its derived/ is made anew from the raw files alone, the same bytes each time. A log: what of it was
    understood, the settings it proves, its requests and their sums; nothing is written unless --out names a folder.
    Exits with 1 when a log has neither requests nor statistics, or a run failed or was cut short.
    """
    if is_run(path):
        if log_format is not None or out is not None:
            raise UsageError(f"--format and --out are for a log; {path} is a run: its manifest names the format")
        _of_run(path, as_json=as_json)
    else:
        _of_log(path, log_format, out, as_json=as_json)


def _of_run(path: Path, *, as_json: bool) -> None:
    found = accounts.account(path)
    typer.echo(accounts.text(found) if as_json else terminal.render(found), nl=False)
    typer.echo(str(path / "derived"), err=as_json)
    if code := accounts.exit_code(found):
        raise typer.Exit(code)


def _of_log(path: Path, log_format: str | None, out: Path | None, *, as_json: bool) -> None:
    made = read_log(path, log_format, sys.stdin)
    if out is not None:
        _write(made, out)
    typer.echo(accounts.text(made.found) if as_json else logfile_terminal.render(made.found), nl=False)
    if out is not None:
        typer.echo(str(out), err=as_json)
    nothing = logfile_terminal.nothing_found(made.found)
    if nothing:
        typer.echo(f"agentload: {nothing}", err=True)
        raise typer.Exit(1)
    if out is None and not as_json:
        typer.echo(
            f"nothing was written; for the tables: agentload account {path} --out DIR, or agentload export", err=True
        )


def _write(made: logfile.LogAccount, out: Path) -> None:
    each = made.tables()
    with new_files(out, ["account.json", *(f"{name}.parquet" for name in each)]) as place:
        (place / "account.json").write_text(accounts.text(made.found), encoding="utf-8")
        for name, make in each.items():
            tables.write(place, name, make())
