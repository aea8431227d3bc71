"""What does a run's manifest say, and how is it written even when there is no room left on the disk?"""

import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psutil

from agentload import folders
from agentload.agents import tasks, workspace
from agentload.agents.outcome import Outcome
from agentload.agents.tasks import Task
from agentload.artifacts.alive import Hold
from agentload.artifacts.rundir import Manifest, RunDir, Status
from agentload.core.records import Doubt
from agentload.errors import AgentloadError, ArtifactError
from agentload.run import parts
from agentload.run.scenario import Scenario
from agentload.run.serving import Served
from agentload.servers import commandline
from agentload.servers.attach import Copied

_PACKAGES: Final = ("agentload", "openai", "httpx2", "httptools", "anyio", "pydantic", "numpy", "polars")
_ROOM_BYTES: Final = 256 * 1024  # for the manifest of a run of any size
_AGENT_ROOM_BYTES: Final = 40 * 1024  # for each agent in it: an answer of 8,192 tokens is about 32 kB


class Record:
    """What is known of a run so far, and its manifest."""

    def __init__(
        self,
        run: RunDir,
        scenario: Scenario,
        sandbox: str,
        repository: workspace.Repository | None,
        say: Callable[[str], None],
        clock_facts: Callable[[], dict[str, Any]],
    ) -> None:
        """`scenario` is resolved; `clock_facts` gives what the manifest says of the clock.

        `repository` is what agents work on; requests of the fixed workload on none.
        """
        self.run = run
        self._repository = repository
        self._scenario = scenario
        self._sandbox = sandbox
        self._say = say
        self._clock_facts = clock_facts
        self._reserve = run.reserve
        self._hold: Hold | None = None  # from the first manifest to the last one
        self.served: Served | None = None
        self.segments: list[dict[str, Any]] = []
        self.doubts: list[Doubt] = []

    def doubt(self, doubt: Doubt) -> None:
        """Keep a doubt for the manifest, and say it; one that is there already, of another segment, is not repeated."""
        if doubt in self.doubts:
            return
        self.doubts.append(doubt)
        self._say(f"doubt: {doubt.message}; {doubt.advice}")

    def open(self) -> None:
        """Set room aside for the last manifest, and write the first one.

        Raises:
            ArtifactError: the run directory cannot be written, or there is no such room.
        """
        room = _ROOM_BYTES + _AGENT_ROOM_BYTES * sum(one.at_once for one in parts.plan(self._scenario))
        try:
            folders.set_room_aside(self._reserve, room)
        except OSError as error:  # another one: then a full disk costs the last manifest, and only that
            if folders.is_full(error):
                with suppress(OSError):
                    self._reserve.unlink(missing_ok=True)
                raise ArtifactError(
                    f"{self.run.path}: expected room for {room / 1e3:,.0f} kB at least, which a run sets aside: "
                    f"{error.strerror}"
                ) from error
        self._hold = Hold(self.run.path)
        self._write("started", None, (), {"kind": self._scenario.server.kind})

    def close(self, status: Status, reason: str | None, agents: Sequence[Mapping[str, Any]]) -> None:
        """Write the last manifest.

        Raises:
            ArtifactError: it cannot be written; the one before stands.
        """
        served = self.served
        server: dict[str, Any] = served.describe() if served else {"kind": self._scenario.server.kind}
        flaw: str | None = None
        if served is not None and served.owned is not None:
            server["pump_worst_pause_ns"] = served.owned.worst_pause_ns
            if served.owned.failure is not None:
                failure = served.owned.failure
                flaw = f"{Path(failure.filename).name} could not be written: {failure.strerror}"
        elif served is not None and served.attached is not None:
            try:
                copied = served.attached.copy_to(self.run.server_log)
                server["log_bytes"] = copied.own + copied.followed
                flaw = self._rotated(served.attached.path, copied)
            except AgentloadError as error:  # the manifest must be written all the same
                flaw = str(error)
            served.attached.close()
        if flaw is not None and status == "success":
            status, reason = "partial", flaw
        with suppress(OSError):
            self._reserve.unlink(missing_ok=True)
        self._write(status, reason, agents, server)
        if self._hold is not None:
            self._hold.release()

    def _rotated(self, log: Path, copied: Copied) -> str | None:
        """Say what of a log that was rotated the copy has; return that when some of it may be missing there."""
        if copied.rotated is None:
            return None
        parts = [f"server.log has the {copied.own:,} bytes of the file that it was at the start"]
        if copied.followed:
            parts.append(f", then the {copied.followed:,} that its server has written under the old name since then")
        advice = "nothing is lost; markers since then stand in markers.jsonl only"
        if copied.missing:
            parts.append(f", not the {copied.missing:,} of the new one, which may be of its server too")
            new, ours, run = (shlex.quote(str(path)) for path in (log, self.run.server_log, self.run.path))
            advice = f"if they are: cat {new} >> {ours} && agentload account {run}"
        message = f"{copied.rotated}: {''.join(parts)}"
        self.doubt(Doubt("log-rotated", message, advice))
        return message if copied.missing else None

    def _write(
        self, status: Status, reason: str | None, agents: Sequence[Mapping[str, Any]], server: dict[str, Any]
    ) -> None:
        self.run.write_manifest(
            Manifest(
                run=self.run.name,
                status=status,
                why=reason,
                simulated=self._scenario.server.kind == "twin",
                scenario=_without_keys(self._scenario.dump()),
                server=server,
                sandbox=self._sandbox,
                corpus=_corpus(self._repository),
                agents=[dict(one) for one in agents],
                segments=self.segments,
                host=_host(),
                versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
                clock=self._clock_facts(),
                doubts=[asdict(one) for one in self.doubts],
            )
        )


def _without_keys(scenario: dict[str, Any]) -> dict[str, Any]:
    """A scenario for people and for the account: scenario.toml stays as it was given, a manifest travels farther."""
    server = dict(scenario["server"])
    if "launch" in server:
        server["launch"] = commandline.text_without_keys(server["launch"])
    if "env" in server:
        server["env"] = commandline.environment_without_keys(server["env"])
    return scenario | {"server": server}


def _corpus(repository: workspace.Repository | None) -> dict[str, Any]:
    if repository is None:
        return {"name": "none", "commit": "", "tree": "", "dirty": False}
    return {
        "name": repository.name,
        "commit": repository.commit,
        "tree": repository.tree,
        "dirty": repository.dirty,
    }


def agent_fields(outcome: Outcome, given: Sequence[Task], *, planned_ns: int, started_ns: int | None) -> dict[str, Any]:
    """What the manifest says of an agent: its plan, and what came of it. Without a task it looks for no facts.

    Of several tasks each has its own entry under `tasks`, also one that was not begun, and the agent's facts are named
    TASK/FACT. A file counts as opened for each task from then on: what was read once stands in the conversation.
    """
    parts = [_part_fields(outcome, index, task) for index, task in enumerate(given)]
    several = len(parts) > 1
    opened = list(dict.fromkeys(path for part in parts for path in part["likely_opened"]))
    missed = dict.fromkeys(path for part in parts for path in part["likely_missed"] if path not in opened)
    fields = asdict(outcome) | {
        "growth_tokens": outcome.growth_tokens,
        "planned": planned_ns,
        "started": started_ns,
        "paths_read": sorted(set(outcome.paths_read)),
        "paths_shown": sorted(set(outcome.paths_shown)),
        **{
            name: [f"{part['task']}/{fact}" if several else fact for part in parts for fact in part[name]]
            for name in ("facts_found", "facts")
        },
        "likely_opened": opened,
        "likely_missed": list(missed),
    }
    del fields["parts"]
    return fields | ({"tasks": parts} if several else {})


def _part_fields(outcome: Outcome, index: int, task: Task) -> dict[str, Any]:
    """What came of one of an agent's tasks; `end` is null of one that was not begun, or whose run was killed."""
    part = outcome.parts[index] if index < len(outcome.parts) else None
    answer, read = "", tasks.opened(task, ())
    if part is not None:
        answer = part.answer
        read = tasks.opened(task, [*outcome.paths_read[: part.paths_read], *outcome.paths_shown[: part.paths_shown]])
    return {
        "task": task.id,
        "end": None if part is None or part.end is None else part.end.value,
        "first_turn": None if part is None else part.first_turn,
        "requests": 0 if part is None else part.requests,
        "tool_calls": 0 if part is None else part.tool_calls,
        "answer": answer,
        "facts_found": list(tasks.score(task, answer)),
        "facts": [fact.id for fact in task.facts],
        "likely_opened": list(read.opened),
        "likely_missed": list(read.missed),
    }


def _host() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1m": os.getloadavg()[0],
        "python": sys.version.split()[0],
    }
