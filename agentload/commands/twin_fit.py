"""`agentload twin fit RUN`: a profile fitted to a real run, and how good it is."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from agentload.analysis import fit
from agentload.analysis.fit import Fit, Fitted
from agentload.artifacts.rundir import write_atomically
from agentload.twin.machine import machine

_WIDTH = 120


def carry_out(path: Path, base: str, name: str, out: Path | None, *, as_json: bool) -> None:
    """Fit, show and write.

    Raises:
        AgentloadError: as analysis.fit.fit, or the file cannot be written.
    """
    found = fit.fit(path, machine(base), name)
    if out is not None:
        write_atomically(out, found.toml().encode("utf-8"))
    if as_json:
        whole = {one: value for one, value in asdict(found).items() if one != "profile"}
        typer.echo(json.dumps(whole | {"profile": found.profile.model_dump(mode="json", by_alias=True)}, indent=2))
    else:
        show(found, base, Console(width=_WIDTH, highlight=False))
    if out is not None:
        typer.echo(str(out), err=as_json)
    elif not as_json:
        typer.echo("nothing was written; for the profile: --out FILE.toml", err=True)


def show(found: Fit, base: str, console: Console) -> None:
    """Print what was fitted, its residuals, and what was not."""
    table = Table(title=f"Fitted: profile {found.profile.name}, {found.profile.about}", title_justify="left")
    for name in ("value", "fitted", "standard error", f"in {base}", "points"):
        table.add_column(name, justify="left" if name == "value" else "right")
    for one in found.fitted:
        table.add_row(*_cells(one))
    console.print(table)
    table = Table(title="Residuals of single points, relative to what was measured", title_justify="left")
    for name in ("points of", "points", "rms", "half within", "95 % within", "bias"):
        table.add_column(name, justify="left" if name == "points of" else "right")
    for rest in found.residuals:
        shares = (f"{share:.2%}" for share in (rest.rms, rest.p50, rest.p95))
        table.add_row(rest.name, f"{rest.points}", *shares, f"{rest.bias:+.2%}")
    console.print(table)
    _list("Not fitted, and why", found.kept, console.print)
    _list("Lines that tell nothing", [f"{count} {why}" for why, count in found.left_out], console.print)


def _cells(one: Fitted) -> tuple[str, ...]:
    base = "" if one.base is None else f"{one.base:.4g}"
    return one.name, f"{one.value:.4g}", f"{one.error:.2g}", base, f"{one.points}"


def _list(title: str, lines: Sequence[str], say: Callable[[str], None]) -> None:
    if lines:
        say(f"{title}:")
        for line in lines:
            say(f"  {line}")
