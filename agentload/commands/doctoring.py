"""How is what the doctor found shown, and how does the program end after it?"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import anyio
import typer

from agentload.errors import InterruptionError
from agentload.run import runner
from agentload.run.doctor import visit
from agentload.run.doctor.finding import Level
from agentload.run.interrupt import interruptible
from agentload.run.scenario import Scenario

SCHEMA: Final = "agentload.doctor/1"  # first


def carry_out(chosen: Scenario, out: Path, env: Mapping[str, str], *, timeout_s: float, as_json: bool) -> None:
    """Look, and show what was found.

    Raises:
        AgentloadError: an option cannot be used.
        typer.Exit: 1 when a night would be wasted.
    """
    resolved, why = runner.settled(chosen, env)
    found = anyio.run(_visit, visit.Visit(resolved, why, out, env, timeout_s, _say))
    typer.echo(as_text(found) if not as_json else json.dumps(as_dict(found), indent=2, ensure_ascii=False))
    if found.wasted:
        raise typer.Exit(1)


async def _visit(asked: visit.Visit) -> visit.Report:
    found: visit.Report | None = None
    async with interruptible(_say):
        found = await visit.report(asked)
    if found is None:
        raise InterruptionError("interrupted before all was looked at")
    return found


def as_text(found: visit.Report) -> str:
    """One line for each finding, in two groups, and what it amounts to."""
    here = "this machine" + (f" (the server is at {found.elsewhere}: look there too)" if found.elsewhere else "")
    lines = ["the server", *(one.line for one in found.server), here, *(one.line for one in found.machine)]
    counts = {level: sum(one.level is level for one in (*found.server, *found.machine)) for level in Level}
    told = ", ".join(f"{count} {level.value}" for level, count in counts.items() if count)
    end = "a night would be wasted" if found.wasted else "nothing is in the way of a night"
    return "\n".join([*lines, f"{told}: {end}"])


def as_dict(found: visit.Report) -> dict[str, object]:
    """The same as JSON values."""
    return {
        "schema": SCHEMA,
        "wasted": found.wasted,
        "server": [asdict(one) for one in found.server],
        "machine": [asdict(one) for one in found.machine],
    }


def _say(line: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        typer.echo(line, err=True)
