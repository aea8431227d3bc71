"""A simulated ds4-server: is it like the real one?"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agentload import plugins
from agentload.commands.twin_serve import serve
from agentload.twin import tables as twin_tables
from agentload.twin.rows import Row, Shown

app = typer.Typer(help="A simulated ds4-server, held against published measurements.", no_args_is_help=True)

app.command()(serve)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

_WIDTH = 150


@app.callback()
def root() -> None:
    """A simulated ds4-server, held against published measurements."""


# check and fit read tables: importing polars takes a second, which no other command of the twin pays.


@app.command()
def check(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    truth: Annotated[
        Path | None, typer.Option(help="Its ground truth.", show_default="RUN/truth.jsonl", dir_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the accounting of a simulated run with what the simulated server knows to be true.

    Both the run's own account, from log and client, and one from the log's bytes alone. Exit code 1: tokens, an
    attribution, a boundary or a busy time is wrong.
    """
    plugins.load(plugins.STAGES, "twin-check")(run, truth, as_json=as_json)


@app.command()
def fit(
    run: Annotated[Path, typer.Argument(help="The run directory of a real ds4-server in batched mode.")],
    base: Annotated[
        str, typer.Option(help="The profile, by name or path, of which what cannot be fitted is kept.")
    ] = "m3-ultra",
    name: Annotated[str, typer.Option(help="The new profile's name.")] = "fitted",
    out: Annotated[
        Path | None, typer.Option(help="Write the profile here: FILE.toml, for --profile.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a profile to a real run: what its engine calls and decode steps cost, with residuals.

    DS4_SERVER_BATCH_LOG=1 in the server's environment gives the best fit; a run that agentload started has the receive
    stamps that it wants.
    """
    plugins.load(plugins.STAGES, "twin-fit")(run, base, name, out, as_json=as_json)


@app.command()
def tables(*, as_json: Json = False) -> int:
    """Print published beside simulated numbers, and those that do not fit.

    Everything in the column "simulated" is simulated. Where the profile was fitted to a number, that it comes out again
    is no evidence. Exit code 1: a limit does not hold.
    """
    found = twin_tables.compare()
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        show(found, Console(width=_WIDTH, highlight=False))
    raise typer.Exit(0 if found.holds else 1)


def show(found: twin_tables.Tables, console: Console) -> None:
    """Print all rows, all misfits, and how many limits hold."""
    for section in found.sections:
        table = Table(title=f"SIMULATED, profile {section.profile}: {section.about}", title_justify="left")
        for name in ("table", "quantity"):
            table.add_column(name)
        for name in ("published", "simulated", "off", "limit"):
            table.add_column(name, justify="right")
        table.add_column("holds")
        table.add_column("evidence")
        for row in section.rows:
            table.add_row(*_cells(row))
        console.print(table)
        misfits = Table(title="What does not fit, and why", title_justify="left", show_lines=True)
        for name in ("table", "quantity", "published", "simulated", "why"):
            misfits.add_column(name)
        for one in section.misfits:
            misfits.add_row(one.table, one.quantity, one.published, one.simulated, one.why)
        console.print(misfits)
    limits = [row for section in found.sections for row in section.rows if row.holds is not None]
    kept = sum(row.holds is True for row in limits)
    console.print(f"published: {twin_tables.SOURCE}")
    console.print(f"{kept} of {len(limits)} limits hold")


def _cells(row: Row) -> tuple[str, ...]:
    holds = {None: "", True: "yes", False: "NO"}[row.holds]
    off = "" if row.off is None else f"{row.off:+.1%}"
    published = "" if row.published is None else _shown(row.published)
    return row.table, row.quantity, published, _shown(row.simulated), off, row.limit, holds, row.evidence.value


def _shown(value: Shown) -> str:
    if isinstance(value, tuple):
        return " ".join(_shown(one) for one in value)
    if isinstance(value, int):
        return f"{value}"
    size = abs(value)
    return f"{value:.1f}" if size >= 10 else f"{value:.3f}"
