"""`agentload twin check RUN`: the accounting of a simulated run against its ground truth."""

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from agentload.analysis import truth
from agentload.analysis.truth import Check, Sum, View

_WIDTH = 120
_SHOWN = 10  # errors of each kind
_MS_NS = 1e6


def carry_out(path: Path, truth_file: Path | None, *, as_json: bool) -> None:
    """Compare and show.

    Raises:
        AgentloadError: as analysis.truth.check.
        typer.Exit: 1 when something does not hold.
    """
    found = truth.check(path, truth_file)
    if as_json:
        views = [asdict(view) | {"holds": view.holds} for view in found.views]
        whole = asdict(found) | {"simulated": True, "holds": found.holds, "views": views}
        typer.echo(json.dumps(whole, indent=2))
    else:
        show(found, Console(width=_WIDTH, highlight=False))
    if not found.holds:
        raise typer.Exit(1)


def show(found: Check, console: Console) -> None:
    """Print both comparisons, and the verdict."""
    console.print(
        f"SIMULATED {found.run}: profile {found.profile}, seed {found.seed}, {found.requests} requests in truth"
    )
    for view in found.views:
        _show_view(view, console)
    console.print("holds" if found.holds else "DOES NOT HOLD")


def _show_view(view: View, console: Console) -> None:
    console.print(
        f"\n{view.name} (resolution {view.resolution_ns / _MS_NS:g} ms): {view.requests} requests, {view.compared} "
        f"compared, {view.ambiguous} not told apart, {view.broken_off} broken off; attribution errors "
        f"{len(view.attribution_errors)}, token errors {len(view.token_errors)}"
    )
    for error in (*view.attribution_errors[:_SHOWN], *view.token_errors[:_SHOWN]):
        console.print(f"  {error}")
    table = Table()
    for name in ("boundary", "compared", "worst off", "over 1 % but within the resolution", "wrong", "missing"):
        table.add_column(name, justify="left" if name == "boundary" else "right")
    for one in view.boundaries.values():
        worst = f"{one.worst_ns / _MS_NS:.3f} ms"
        table.add_row(one.name, f"{one.compared}", worst, f"{one.over_share}", f"{one.wrong}", f"{one.missing}")
    console.print(table)
    table = Table()
    for name in ("segment", "quantity", "in truth", "found", "off", "holds"):
        table.add_column(name, justify="right" if name in ("in truth", "found", "off") else "left")
    for total in view.sums:
        table.add_row(*_cells(total))
    console.print(table)


def _cells(total: Sum) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        if value is None:
            return "unknown"
        if total.name.endswith("_ns"):
            return f"{value / 1e9:.3f} s"
        return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"

    off = "" if not total.truth or total.found is None else f"{total.found / total.truth - 1:+.3%}"
    name = total.name.removesuffix("_ns")
    return total.segment, name, shown(total.truth), shown(total.found), off, "yes" if total.holds else "NO"
