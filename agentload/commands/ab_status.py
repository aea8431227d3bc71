"""`agentload ab status DIR`: how far is an experiment, and how long will the rest take?"""

import json
import time
from dataclasses import asdict
from pathlib import Path

import typer

from agentload.artifacts.design import ExperimentDir
from agentload.run import night_status
from agentload.run.designing import values
from agentload.run.foretelling import duration
from agentload.run.night_status import Status


def show(path: Path, *, as_json: bool) -> None:
    """Print it.

    Raises:
        InputError: it is no experiment's directory.
        ArtifactError: its design or journal is damaged.
    """
    folder = ExperimentDir(path)
    planned = folder.read_design()
    now_ns = time.time_ns()
    found = night_status.status(folder, now_ns)
    if as_json:
        last = None if found.last is None else found.last.model_dump(mode="json")
        typer.echo(json.dumps(asdict(found) | {"last": last}, indent=2))
        return
    head = f"{'SIMULATED ' if planned.simulated else ''}{path}: {values(planned)}, {planned.metric}"
    for line in [head, *lines(found, now_ns)]:
        typer.echo(line)


def lines(found: Status, now_ns: int) -> list[str]:
    """Return what is said of each run, and of the whole."""
    width = max(len(one.run) for one in found.runs)
    told = []
    for one in found.runs:
        took = "" if one.seconds is None else f", {duration(one.seconds)}"
        again = f", attempt {one.attempts}" if one.attempts > 1 else ""
        why = "" if one.why is None else f": {one.why}"
        told.append(f"  {one.run:<{width}}  {one.status}{took}{again}{why}")
    at_work = "a process is at it" if found.at_work else "no process is at it"
    told.append(f"{found.done} of {found.total} runs done; {at_work}")
    if found.left_s and found.done < found.total:
        told.append(f"left: about {duration(found.left_s)}")
    if found.last is not None:
        ago = max(0, now_ns - found.last.t) / 1e9
        told.append(f"last event: {found.last.event}, {duration(ago)} ago")
    if found.torn:
        told.append(f"journal.jsonl: lines cut off by a kill, read over: {', '.join(map(str, found.torn))}")
    return told
