"""How does a test make a run, and read what is in it?"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.rundir import RunDir
from agentload.clock import SystemClock
from agentload.run import runner, scenario

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"min_tool_calls": 0, "min_growth_tokens": 0, "failures": 1, "context_tokens": 100_000}
TASKS = ["tiny-module-life", "tiny-owned-references"]
AGENTLOAD = (sys.executable, "-c", "from agentload.cli import main; main()")


def environment(cache_dir: Path) -> dict[str, str]:
    """That of a user, with the test session's cache and the tests importable by a server that is started."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return env | {"AGENTLOAD_CACHE": str(cache_dir), "PYTHONPATH": str(ROOT)}


def fields_of(base_url: str | None = None, **fields: Any) -> dict[str, Any]:
    """Scenario fields: two agents on the tiny corpus, 50 ms apart."""
    server = {} if base_url is None else {"server": {"kind": "endpoint", "base_url": base_url}}
    return {"agents": 2, "stagger_s": 0.05, "corpus": "tiny", "tasks": TASKS, "limits": LIMITS, **server, **fields}


class LeapingClock(SystemClock):
    """This machine's clock, which leaps ahead when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._leapt_ns = 0
        self._leaps = anyio.Event()

    def now_ns(self) -> int:
        return super().now_ns() + self._leapt_ns

    def leap(self, seconds: float) -> None:
        self._leapt_ns += int(seconds * 1e9)
        self._leaps.set()
        self._leaps = anyio.Event()

    async def sleep_until(self, t_ns: int) -> None:
        while (left := t_ns - self.now_ns()) > 0:
            with anyio.move_on_after(left / 1e9):
                await self._leaps.wait()


@dataclass
class Made:
    """A run that was made, and what was said meanwhile."""

    run: RunDir
    said: list[str] = field(default_factory=list)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [one for _, one in jsonlines.read(self.run.events_path, schemas.EVENTS) if one["event"] == kind]

    def markers(self) -> list[dict[str, Any]]:
        return [one for _, one in jsonlines.read(self.run.markers_path, schemas.MARKERS)]

    def history(self, agent: str) -> list[dict[str, Any]]:
        return [one for _, one in jsonlines.read(self.run.messages_path(agent), schemas.MESSAGES)]


async def make(
    out: Path, cache_dir: Path, fields: dict[str, Any], hear: Callable[[str], object] = lambda _: None, **options: Any
) -> Made:
    """Make a run; `hear` takes each line that is said, as it is said."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        hear(line)

    chosen = scenario.from_fields(fields, "")
    return Made(await runner.run(chosen, out, environment(cache_dir), say, **options), said)


def only_run(out: Path) -> RunDir:
    """The run in a folder that has no other."""
    (folder,) = out.iterdir()
    return RunDir(folder)


def derived_bytes(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.derived.iterdir())}
