"""What do `account` and `export` have in common? What they read, a log's tables, and what is said of an empty log."""

from pathlib import Path
from typing import Annotated

import typer

from agentload import folders, plugins
from agentload.analysis import account as accounts
from agentload.analysis.logfile import TABLES, LogAccount
from agentload.artifacts import log_account_schema
from agentload.report import export as exports
from agentload.report import logfile_terminal
from agentload.shown import shown

RunOrLog = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN_OR_LOG", readable=False, help="A run directory, a server's log, or - for a log on stdin."
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--format", help=f"A log's format: {', '.join(plugins.names(plugins.SERVERLOGS))} (default: detected)."
    ),
]


def check_tells(made: LogAccount) -> None:
    """Say on stderr why a log has neither requests nor statistics, and exit with 1; else do nothing."""
    if nothing := logfile_terminal.nothing_found(made.found):
        typer.echo(f"agentload: {shown(nothing)}", err=True)
        raise typer.Exit(1)


def write_tables(made: LogAccount, out: Path, to: str) -> exports.Exported:
    """Write a log's account and tables into `out`, each with its schema, in the format `to`.

    Raises:
        ArtifactError: a file is there already, or the folder cannot be written.
    """
    with folders.temporary("agentload-") as stored:
        made.write(stored)
        schema = log_account_schema.json_schema()
        return exports.write(out, exports.by_name(to), stored, accounts.text(made.found), TABLES, schema)
