"""Nights in processes of their own, which end in the middle: killed at a line that is said, or on a full disk.

python -m tests.run.night_driver kill DIR CACHE LINE... a night for each LINE, which is killed (-9) when LINE is said
python -m tests.run.night_driver full DIR CACHE OUT     the disk of DIR is full in the middle of 03-A; room is made; on
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from agentload.artifacts.design import Design, ExperimentDir, Step
from agentload.artifacts.rundir import RunDir
from agentload.clock import SystemClock
from agentload.core.records import Doubt
from agentload.run import experiment
from tests.run import nights
from tests.run.runs import environment

MIDDLE: Final = "03-A: a0 started"


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(path: Path, cache: Path, at: str) -> None:
    """Go on with the six runs of `nights.six`, and die at `at`: a part of a line, or `judging RUN`."""

    def say(line: str) -> None:
        if at and at in line:
            kill()

    def reasons(_account: dict[str, Any], run: RunDir, _design: Design, _step: Step) -> list[Doubt]:
        if at == f"judging {run.name}":
            kill()
        return []

    async def do() -> None:
        await experiment.carry_out(
            nights.six(), ExperimentDir(path), environment(cache), say, clock=SystemClock(), reasons=reasons
        )

    anyio.run(do)


def kills(path: Path, cache: Path, places: Sequence[str]) -> None:
    """One night after another, each in a fork of this process (which has no threads), and each killed."""
    for place in places:
        pid = os.fork()
        if pid == 0:
            try:
                killed(path, cache, place)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"expected a kill at {place!r}, the night ended with {os.waitstatus_to_exitcode(status)}")


def fill(path: Path) -> None:
    """Leave no byte."""
    with path.open("ab", buffering=0) as file:
        size = 65536
        while size:
            try:
                size = size if file.write(bytes(size)) else 0
            except OSError:
                size //= 2


def full(path: Path, cache: Path, out: Path) -> None:
    """Fill the disk below `path` in the middle of a run, make room, go on; what there is then is copied to `out`."""
    said: list[str] = []
    ballast = path / "ballast"

    def say(line: str) -> None:
        said.append(line)
        if line == MIDDLE and not ballast.exists():
            fill(ballast)

    async def do() -> list[experiment.Outcome]:
        folder, found = ExperimentDir(path), []
        for _ in range(2):
            env = environment(cache)
            found.append(
                await experiment.carry_out(nights.six(), folder, env, say, clock=SystemClock(), reasons=nights.counts)
            )
            ballast.write_bytes(b"")
        return found

    outcomes = anyio.run(do)
    shutil.copytree(path, out / "experiment")
    told = {"stopped": [one.stopped for one in outcomes], "done": [one.done for one in outcomes], "said": said}
    (out / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    how, *rest = sys.argv[1:]
    {"kill": lambda: kills(Path(rest[0]), Path(rest[1]), rest[2:]), "full": lambda: full(*map(Path, rest))}[how]()
