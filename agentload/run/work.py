"""How do the agents of a run get their places, and how do they work between the begin and the end marker?"""

import gc
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from agentload.agents import workspace
from agentload.agents.actions import Actions, JsonActions, NativeActions
from agentload.agents.chat import BROKEN, CONNECTION_FAILED
from agentload.agents.loop import Agent
from agentload.agents.outcome import Doing, End, Outcome, Sampling
from agentload.agents.sandbox import Place, Shell
from agentload.agents.tasks import Task
from agentload.agents.tools.bash import BashTool
from agentload.agents.tools.read import ReadTool
from agentload.artifacts import schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog
from agentload.core import markers
from agentload.core.ports import Tool
from agentload.core.records import Doubt
from agentload.errors import AgentloadError
from agentload.run import progress
from agentload.run.interrupt import Interruption
from agentload.run.plan import paths_of
from agentload.run.record import Record, agent_fields
from agentload.run.scenario import Scenario
from agentload.run.serving import Served, Session, must_run, time_to_die, wait_for_open_requests, while_it_runs
from agentload.run.waiting import said_if_slow
from agentload.run.world import Line, World
from agentload.servers.sampler import sampled


@dataclass(slots=True)
class _Work:
    """One agent with its task and its place."""

    agent: Agent
    task: Task
    place: Place
    tools: list[Tool]
    planned_ns: int = 0
    started_ns: int | None = None


class Work:
    """The agents of one run; a context manager that closes the files it writes."""

    def __init__(
        self,
        world: World,
        session: Session,
        scenario: Scenario,
        record: Record,
        given: tuple[Task, ...],
        interruption: Interruption,
        progress_s: float,
    ) -> None:
        self._world = world
        self._session = session
        self._scenario = scenario
        self._record = record
        self._given = given
        self._interruption = interruption
        self._progress_s = progress_s * world.progress_slower
        self._work: list[_Work] = []
        self._files = ExitStack()
        self._markers = self._files.enter_context(JsonLinesWriter(session.run.markers_path, schemas.MARKERS))

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    @property
    def agents(self) -> list[Agent]:
        """The agents, once they are prepared."""
        return [one.agent for one in self._work]

    def fields(self) -> list[dict[str, Any]]:
        """What the manifest says of each agent."""
        return [
            agent_fields(one.agent.outcome, one.task, planned_ns=one.planned_ns, started_ns=one.started_ns)
            for one in self._work
        ]

    async def prepare(self, shell: Shell, folder: Path, transport: Line) -> None:
        """Give each agent a checkout, a scratch folder, its tools and a file for its conversation."""
        scenario, session = self._scenario, self._session
        assert scenario.limits is not None
        limits = scenario.limits.for_agents()
        repository = self._record.repository

        def checkouts() -> list[Path]:
            return [
                workspace.checkout(repository.path, repository.commit, folder / f"a{index}" / "repo")
                for index in range(scenario.agents)
            ]

        for index, (checkout, task) in enumerate(zip(await to_thread.run_sync(checkouts), self._given, strict=True)):
            name = f"a{index}"
            path = session.run.messages_path(name)
            path.parent.mkdir()
            history = EventLog(path, schemas.MESSAGES)
            self._files.callback(history.close)
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
            self._work.append(_Work(agent, task, place, self._world.tools(name, tools)))

    def _say_plan(self) -> None:
        scenario, say = self._scenario, self._session.say
        assert scenario.limits is not None
        for index, one in enumerate(self._work):
            after = f"{index * scenario.stagger_s:g} s after the begin marker"
            say(f"agent {one.agent.name} starts {after}: {one.task.id}, {one.task.title}")
        last_s = (scenario.agents - 1) * scenario.stagger_s
        say(progress.bound(last_s, scenario.limits.wall_s, embedded=scenario.server.kind == "embedded"))

    async def measure(self, served: Served, transport: Line) -> None:
        """Let the agents work between the two markers."""
        scenario, session = self._scenario, self._session
        self._say_plan()
        # A full collection of what start-up allocated took 25-40 ms, which every stream's stamps would wait for.
        gc.collect()
        gc.freeze()
        begin_ns = self._mark(markers.BEGIN)
        pid = served.process.pid if served.process is not None else None
        for index, one in enumerate(self._work):
            one.planned_ns = begin_ns + int(index * scenario.stagger_s * 1e9)
        look = partial(self._look, transport)
        try:
            async with (
                sampled(pid, session.clock, session.events, scenario.sample_s),
                while_it_runs(served),
                anyio.create_task_group() as reporting,
            ):
                reporting.start_soon(progress.report, session.clock, session.say, look, begin_ns, self._progress_s)
                async with anyio.create_task_group() as group:
                    for index, one in enumerate(self._work):
                        group.start_soon(self._one, index, one, served)
                if any(_lost_the_server(agent.outcome) for agent in self.agents):
                    await time_to_die(served)
                reporting.cancel_scope.cancel()
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._wait_for_open_requests(served)
            finally:
                self._mark(markers.END)
                gc.unfreeze()

    def _look(self, transport: Line) -> list[progress.Look]:
        now_ns = self._session.clock.now_ns()
        found = []
        for one in self._work:
            agent, outcome = one.agent, one.agent.outcome
            state = agent.doing.value
            if agent.doing is Doing.REQUEST:
                state = (
                    "decode" if agent.request and transport.decodes(agent.request) else "waiting for the first token"
                )
            elif agent.doing is Doing.DONE:
                state = outcome.end.value
            left_s = None if one.started_ns is not None else max(0.0, (one.planned_ns - now_ns) / 1e9)
            found.append(
                progress.Look(agent.name, state, left_s, outcome.requests, outcome.tool_calls, agent.context_tokens)
            )
        return found

    async def _one(self, index: int, one: _Work, served: Served) -> None:
        async with self._world.turn(index, len(self._work)):
            await self._live(one, served)

    async def _live(self, one: _Work, served: Served) -> None:
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
        session, scenario, record = self._session, self._scenario, self._record
        assert record.served is not None
        at_ns = session.clock.now_ns()
        line = markers.render(action, "s1", session.run.name, scenario.condition, at_ns)
        try:
            where, inode, offset = record.served.write_marker(line)
        except AgentloadError as error:
            if action == markers.BEGIN:
                raise
            record.doubt(Doubt("end-marker", str(error), "the segment's end stands in markers.jsonl only"))
            where, inode, offset = "sidecar", None, None
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
        self._markers.append(fields)
        if action == markers.BEGIN:
            record.segments.append({"segment": "s1", "condition": scenario.condition, "begin": at_ns, "end": None})
        else:
            record.segments[-1]["end"] = at_ns
        session.events.emit("marker_written", at_ns, action=action, segment="s1", where=where)
        return at_ns

    async def _wait_for_open_requests(self, served: Served) -> None:
        session = self._session
        doubt: Doubt | None = Doubt(
            "open-requests",
            "open requests in the log were not waited for: a second signal asked to stop at once",
            "the last requests may stand in the log without an end",
        )
        with anyio.CancelScope() as hurry:
            self._interruption.on_hurry(hurry.cancel)
            line = "waiting for the server's open requests (at most 10 s)"
            async with said_if_slow(session.clock, session.say, line), self._world.turn(0):
                doubt = await wait_for_open_requests(served, session.clock)
        if doubt is not None:
            self._record.doubt(doubt)


def _lost_the_server(outcome: Outcome) -> bool:
    """Whether an agent ended since its connections broke."""
    lost = any(words in (outcome.why or "") for words in (CONNECTION_FAILED, BROKEN))
    return lost and outcome.end in (End.FAILED, End.NO_ANSWER)
