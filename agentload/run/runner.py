"""How does a run go, from the printed plan to the end marker?

Everything that can fail before the first request fails before it: corpus, tasks, sandbox, checkouts, server. Then the
begin marker, the agents `stagger_s` apart, the end marker once the log shows no open request, and the manifest. Raw
evidence only: what it amounts to is analysis.account's work.
"""

import gc
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
import psutil
import tomli_w
from anyio import to_thread

from agentload.agents import tasks, workspace
from agentload.agents.actions import Actions, JsonActions, NativeActions
from agentload.agents.chat import OpenAITransport
from agentload.agents.loop import Agent, End, Sampling
from agentload.agents.sandbox import Place, Shell
from agentload.agents.sandbox import choose as choose_sandbox
from agentload.agents.tasks import Task
from agentload.agents.tools.bash import BashTool
from agentload.agents.tools.read import ReadTool
from agentload.artifacts import rundir, schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, Manifest, RunDir, Status
from agentload.clock import SystemClock
from agentload.core import markers
from agentload.core.ports import Tool, Transport
from agentload.errors import AgentloadError, InputError
from agentload.run.interrupt import first_of_ours, interruptible
from agentload.run.plan import choose_tasks, obtain_corpus, paths_of
from agentload.run.scenario import Scenario, resolve
from agentload.run.serving import Served, Session, check, choose, must_run, serve
from agentload.servers.sampler import sampled

_END_WAIT_NS: Final = 10_000_000_000  # for open requests in the log, before the end marker (PROTOCOL 1.8)
_END_POLL_NS: Final = 100_000_000
_PACKAGES: Final = ("agentload", "openai", "httpx2", "httptools", "anyio", "pydantic", "numpy", "polars")


@dataclass(slots=True)
class _Work:
    """One agent with its task and its place."""

    agent: Agent
    task: Task
    place: Place
    tools: list[Tool]
    planned_ns: int = 0
    started_ns: int | None = None


async def run(
    scenario: Scenario,
    out: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
    scenario_text: bytes | None = None,
) -> RunDir:
    """Do one run and return its directory; its manifest says how it ended.

    Args:
        scenario: what to run; unresolved.
        out: the folder in which the run directory is made.
        env: the environment: OPENAI_BASE_URL, OPENAI_API_KEY, cache and index settings.
        say: takes one line for the person at the terminal.
        scenario_text: the user's own scenario file, kept verbatim; None: it is written from `scenario`.

    Raises:
        AgentloadError: something failed before the first request (no run directory then, unless the server had been
            started), or the run itself failed; the manifest has the reason.
    """
    server, why = choose(scenario.server, env)
    scenario = resolve(scenario.model_copy(update={"server": server}))
    check(server, env)
    say(f"server: {why}")
    sandbox = await to_thread.run_sync(lambda: choose_sandbox(allow_unsafe=scenario.unsafe_no_sandbox))
    say(f"sandbox: {sandbox.describe()}")
    with tempfile.TemporaryDirectory(prefix="agentload-") as folder:
        repository = await to_thread.run_sync(obtain_corpus, scenario, Path(folder), env, say)
        given = choose_tasks(scenario)
        say(
            f"corpus: {repository.name} at {repository.commit[:12]}"
            + (" (changes in its work tree that are not committed are left out)" if repository.dirty else "")
        )
        for index, task in enumerate(given):
            say(f"agent a{index} starts at {index * scenario.stagger_s:g} s: {task.id}, {task.title}")
        clock = SystemClock()
        stamp = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC).strftime("%Y-%m-%dT%H%M%SZ")
        target = rundir.create(out, scenario.name, stamp, uuid4().hex[:4])
        events = EventLog(target.events_path)
        session = Session(target, clock, events, env, say, clock.describe)
        work = _Run(session, scenario, sandbox.describe(), repository, given)
        try:
            text = scenario_text if scenario_text is not None else tomli_w.dumps(scenario.dump()).encode()
            rundir.write_atomically(target.scenario_path, text)
            work.write_manifest("started", None)
            await work.go(Shell(sandbox), Path(folder), why)
        finally:
            events.close()
    return target


class _Run:
    """The state of one run."""

    def __init__(
        self,
        session: Session,
        scenario: Scenario,
        sandbox: str,
        repository: workspace.Repository,
        given: tuple[Task, ...],
    ) -> None:
        self._session = session
        self._scenario = scenario
        self._sandbox = sandbox
        self._repository = repository
        self._given = given
        self._work: list[_Work] = []
        self._served: Served | None = None
        self._segments: list[dict[str, Any]] = []
        self._doubts: list[dict[str, str]] = []
        self._histories: list[EventLog] = []
        self.markers = JsonLinesWriter(session.run.markers_path, schemas.MARKERS)

    async def go(self, shell: Shell, folder: Path, why: str) -> None:
        """Start the server, let the agents work, and write down how it ended."""
        status: Status = "error"
        reason: str | None = "the run was broken off"
        session, scenario = self._session, self._scenario
        try:
            async with (
                interruptible() as interrupted,
                serve(scenario.server, why, scenario.agents, session) as served,
                OpenAITransport(served.base_url, served.model, session.clock, api_key=served.api_key) as transport,
            ):
                self._served = served
                session.say(f"endpoint: {served.base_url}, model {served.model}")
                if served.attached is not None and served.attached.refusal is not None:
                    self._doubt("sidecar-markers", served.attached.refusal, "markers are in markers.jsonl only")
                await self._prepare(shell, folder, transport)
                await self._measure(served)
            status, reason = self._verdict()
            if interrupted.is_set():
                status, reason = "cancelled", "interrupted by a signal"
        except AgentloadError as error:
            reason = str(error)
            raise
        except BaseExceptionGroup as group:
            ours = first_of_ours(group)
            if ours is None:
                raise
            reason = str(ours)
            raise ours from group
        finally:
            for history in self._histories:
                history.close()
            self.markers.close()
            self.write_manifest(status, reason)

    async def _prepare(self, shell: Shell, folder: Path, transport: Transport) -> None:
        scenario, session = self._scenario, self._session
        assert scenario.limits is not None
        limits = scenario.limits.for_agents()

        def checkouts() -> list[Path]:
            return [
                workspace.checkout(self._repository.path, self._repository.commit, folder / f"a{index}" / "repo")
                for index in range(scenario.agents)
            ]

        for index, (checkout, task) in enumerate(zip(await to_thread.run_sync(checkouts), self._given, strict=True)):
            name = f"a{index}"
            path = session.run.messages_path(name)
            path.parent.mkdir()
            history = EventLog(path, schemas.MESSAGES)
            self._histories.append(history)
            actions: Actions = NativeActions() if scenario.protocol == "native" else JsonActions()
            known = paths_of(checkout) if scenario.known_paths else None
            agent = Agent(
                name,
                task.id,
                task.prompt,
                transport=transport,
                actions=actions,
                limits=limits,
                sampling=Sampling(scenario.seed * 100 + index, scenario.temperature, scenario.request),
                clock=session.clock,
                events=session.events,
                history=history,
                known_paths=known or (),
            )
            scratch = folder / name / "scratch"
            scratch.mkdir()
            place = Place(checkout, scratch)
            tools: list[Tool] = [
                ReadTool(checkout, agent.output_limit, known_paths=known),
                BashTool(shell, place, agent.output_limit, hint_chars=scenario.command_chars),
            ]
            self._work.append(_Work(agent, task, place, tools))

    async def _measure(self, served: Served) -> None:
        scenario, session = self._scenario, self._session
        # A full collection of what start-up allocated took 25-40 ms, which every stream's stamps would wait for.
        gc.collect()
        gc.freeze()
        begin_ns = self._mark(markers.BEGIN)
        pid = served.process.pid if served.process is not None else None
        for index, one in enumerate(self._work):
            one.planned_ns = begin_ns + int(index * scenario.stagger_s * 1e9)
        try:
            async with (
                sampled(pid, session.clock, session.events, scenario.sample_s),
                anyio.create_task_group() as group,
            ):
                for one in self._work:
                    group.start_soon(self._one, one, served)
        finally:
            with anyio.CancelScope(shield=True):
                await self._wait_for_open_requests(served)
                self._mark(markers.END)
                gc.unfreeze()

    async def _one(self, one: _Work, served: Served) -> None:
        session = self._session
        await session.clock.sleep_until(one.planned_ns)
        one.started_ns = session.clock.now_ns()
        session.events.emit(
            "agent_started", one.started_ns, agent=one.agent.name, task=one.task.id, planned=one.planned_ns
        )
        session.say(f"{one.agent.name} started")
        try:
            outcome = await one.agent.work(one.tools)
            must_run(served)
            session.say(
                f"{one.agent.name} {outcome.end.value}: {outcome.requests} requests, {outcome.tool_calls} tool calls, "
                f"context {outcome.last_context_tokens or '?'} tokens" + (f" ({outcome.why})" if outcome.why else "")
            )
        finally:
            session.events.emit(
                "agent_done", session.clock.now_ns(), agent=one.agent.name, end=one.agent.outcome.end.value
            )

    def _mark(self, action: str) -> int:
        """Write a marker into the log, where it can go, and always into markers.jsonl."""
        session, scenario = self._session, self._scenario
        assert self._served is not None
        at_ns = session.clock.now_ns()
        line = markers.render(action, "s1", session.run.name, scenario.condition, at_ns)
        where, inode, offset = self._served.write_marker(line)
        fields = {
            "action": action,
            "segment": "s1",
            "run": session.run.name,
            "condition": scenario.condition,
            "t": at_ns,
            "where": where,
            "inode": inode,
            "offset": offset,
        }
        self.markers.append(fields)
        if action == markers.BEGIN:
            self._segments.append({"segment": "s1", "condition": scenario.condition, "begin": at_ns, "end": None})
        else:
            self._segments[-1]["end"] = at_ns
        session.events.emit("marker_written", at_ns, action=action, segment="s1", where=where)
        return at_ns

    async def _wait_for_open_requests(self, served: Served) -> None:
        if served.watch is None:
            return
        clock = self._session.clock
        give_up = clock.now_ns() + _END_WAIT_NS
        try:
            left = await to_thread.run_sync(served.watch.open_requests)
            while left and clock.now_ns() < give_up:
                await clock.sleep_until(clock.now_ns() + _END_POLL_NS)
                left = await to_thread.run_sync(served.watch.open_requests)
        except InputError as error:  # rotated away: what the agents did is worth more than the wait
            self._doubt("log-gone", str(error), "keep the server's log in place while a run lasts")
            return
        if left is None:
            self._doubt(
                "unknown-log",
                "the log's format is not known: open requests at the end were not waited for",
                "name it with --log-format",
            )
        elif left:
            self._doubt(
                "open-requests",
                f"the log still showed {left} open requests 10 s after the agents had ended",
                "look for other clients of this server, or cancelled requests that it goes on computing",
            )

    def _doubt(self, code: str, message: str, advice: str) -> None:
        self._doubts.append({"code": code, "message": message, "advice": advice})
        self._session.say(f"doubt: {message}; {advice}")

    def _verdict(self) -> tuple[Status, str | None]:
        bad = [one.agent.outcome for one in self._work if one.agent.outcome.end in (End.FAILED, End.CANCELLED)]
        if not bad:
            return "success", None
        return "partial", "; ".join(f"{one.agent} {one.end.value}: {one.why}" for one in bad)

    def write_manifest(self, status: Status, reason: str | None) -> None:
        """Replace the manifest with the present state."""
        session, scenario = self._session, self._scenario
        served = self._served
        server: dict[str, Any] = served.describe() if served else {"kind": scenario.server.kind}
        if served is not None and served.process is not None:
            server["pump_worst_pause_ns"] = served.process.pump.worst_pause_ns
            if served.process.pump.failure is not None:
                status = "partial" if status == "success" else status
                reason = reason or f"server.log could not be written: {served.process.pump.failure.strerror}"
        elif served is not None and served.attached is not None and status != "started":
            try:
                server["log_bytes"] = served.attached.copy_to(session.run.server_log)
            except InputError as error:  # the manifest must be written all the same
                status = "partial" if status == "success" else status
                reason = reason or str(error)
        session.run.write_manifest(
            Manifest(
                run=session.run.name,
                status=status,
                why=reason,
                scenario=scenario.dump(),
                server=server,
                sandbox=self._sandbox,
                corpus={
                    "name": self._repository.name,
                    "commit": self._repository.commit,
                    "tree": self._repository.tree,
                    "dirty": self._repository.dirty,
                },
                agents=[_agent_fields(one) for one in self._work],
                segments=self._segments,
                host=_host(),
                versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
                clock=session.clock_facts(),
                doubts=self._doubts,
            )
        )


def _agent_fields(one: _Work) -> dict[str, Any]:
    """What the manifest says of an agent: its plan, and what came of it."""
    outcome = one.agent.outcome
    fields = asdict(outcome)
    opened = tasks.opened(one.task, outcome.paths_read)
    fields |= {
        "growth_tokens": outcome.growth_tokens,
        "planned": one.planned_ns,
        "started": one.started_ns,
        "paths_read": sorted(set(outcome.paths_read)),
        "facts_found": list(tasks.score(one.task, outcome.answer)),
        "facts": [fact.id for fact in one.task.facts],
        "likely_opened": list(opened.opened),
        "likely_missed": list(opened.missed),
    }
    return fields


def _host() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1m": os.getloadavg()[0],
        "python": sys.version.split()[0],
    }
