"""How does a test make a run, and read what is in it?"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.rundir import RunDir
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


async def make(out: Path, cache_dir: Path, fields: dict[str, Any], **options: Any) -> Made:
    said: list[str] = []
    chosen = scenario.from_fields(fields, "")
    return Made(await runner.run(chosen, out, environment(cache_dir), said.append, **options), said)


def only_run(out: Path) -> RunDir:
    """The run in a folder that has no other."""
    (folder,) = out.iterdir()
    return RunDir(folder)


def derived_bytes(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.derived.iterdir())}
