"""`agentload account RUN`: raw evidence into derived tables."""

from pathlib import Path
from typing import Annotated

import typer

from agentload.analysis import account as accounts
from agentload.report import terminal


def account(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print account.json on stdout.")] = False,
) -> None:
    """Turn a run's raw evidence into its derived tables.

    derived/ is made anew from the raw files alone: the same bytes each time.
    """
    found = accounts.account(run)
    typer.echo(accounts.text(found) if as_json else terminal.render(found), nl=False)
    typer.echo(str(run / "derived"), err=as_json)
