"""`agentload report RUN`: what an account says, for a person."""

from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis import account as accounts
from agentload.report import terminal


def report(
    run: Annotated[Path, typer.Argument(readable=False, help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same content as JSON.")] = False,
) -> None:
    """Show a run's account in the terminal; it is made first where it is missing.

    Exits with 1 when the run failed, was cut short or has not ended.
    """
    found = accounts.load(run)
    typer.echo(accounts.text(found) if as_json else terminal.render(found), nl=False)
    if code := accounts.exit_code(found):
        raise typer.Exit(code)
