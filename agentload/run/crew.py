"""How do the agents of one segment get their tasks, places and tools?"""

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from anyio import to_thread

from agentload.agents import workspace
from agentload.agents.actions import Actions, JsonActions, NativeActions
from agentload.agents.loop import Agent
from agentload.agents.outcome import End, Sampling
from agentload.agents.sandbox import Place, Shell
from agentload.agents.tasks import Task
from agentload.agents.tools.bash import BashTool
from agentload.agents.tools.read import ReadTool
from agentload.artifacts import schemas
from agentload.artifacts.rundir import EventLog
from agentload.core.ports import Tool
from agentload.run import progress
from agentload.run.parts import Stretch
from agentload.run.plan import paths_of
from agentload.run.scenario import Limits, Scenario
from agentload.run.serving import Session
from agentload.run.squad import Member, Squad
from agentload.run.world import Line, World


class Crews:
    """The workload of agents: fresh ones for each segment; its `prepare` is a `squad.Prepare`."""

    def __init__(
        self,
        world: World,
        session: Session,
        scenario: Scenario,
        repository: workspace.Repository,
        given: tuple[tuple[Task, ...], ...],
        shell: Shell,
        folder: Path,
    ) -> None:
        """`given` holds the tasks of each agent, in order; their checkouts are made in `folder`."""
        self._world = world
        self._session = session
        self._scenario = scenario
        self._repository = repository
        self._given = given
        self._shell = shell
        self._folder = folder
        self._first = True  # the plan is the same for each segment, and said once
        self._before: Path | None = None  # the folder of the segment before, which nobody needs any more

    async def prepare(self, stretch: Stretch, line: Line) -> Squad:
        """Give each agent a checkout, a scratch folder, its tools and a file for its conversation."""
        scenario = self._scenario
        assert scenario.limits is not None
        folder = self._folder / stretch.segment if stretch.prefix else self._folder
        checkouts = await to_thread.run_sync(self._checkouts, folder)
        with ExitStack() as files:
            members = [
                self._member(index, stretch, line, checkout, folder, files) for index, checkout in enumerate(checkouts)
            ]
            kept = files.pop_all()
        said = [
            f"agent {one.worker.name} starts {index * scenario.stagger_s:g} s after the begin marker: "
            + "; then ".join(f"{task.id}, {task.title}" for task in tasks)
            for index, (one, tasks) in enumerate(zip(members, self._given, strict=True))
        ]
        if (most := max(map(len, self._given))) > 1:
            limits = scenario.limits
            said.append(
                f"up to {most} tasks in one conversation, which has the limits of one: {limits.tool_calls} tool calls "
                f"(--tool-calls), {limits.context_tokens:,} tokens (--context), {limits.wall_s:g} s (--wall)"
            )
        last_s = (scenario.agents - 1) * scenario.stagger_s
        said.append(progress.bound(last_s, scenario.limits.wall_s, embedded=scenario.server.kind == "embedded"))
        first, self._first = self._first, False
        return Squad(stretch, members, said if first else (), files=kept)

    def _checkouts(self, folder: Path) -> list[Path]:
        if self._before is not None:
            shutil.rmtree(self._before)
        self._before = folder if folder != self._folder else None
        repository = self._repository
        return [
            workspace.checkout(repository.path, repository.commit, folder / f"a{index}" / "repo")
            for index in range(self._scenario.agents)
        ]

    def _member(
        self, index: int, stretch: Stretch, line: Line, checkout: Path, folder: Path, files: ExitStack
    ) -> Member:
        scenario, session = self._scenario, self._session
        task, *further = self._given[index]
        assert scenario.limits is not None
        name = f"a{index}"
        path = session.run.messages_path(stretch.prefix + name)
        path.parent.mkdir()
        history = EventLog(path, schemas.MESSAGES)
        files.callback(history.close)
        native = scenario.protocol == "native"
        actions: Actions = NativeActions(parallel=scenario.parallel_tool_calls) if native else JsonActions()
        known = paths_of(checkout) if scenario.known_paths else None
        agent = Agent(
            name,
            task.id,
            task.prompt,
            transport=line,
            actions=actions,
            limits=scenario.limits.for_agents(),
            sampling=Sampling(scenario.seed * 100 + index, scenario.temperature, stretch.request),
            clock=session.clock,
            events=session.events,
            history=history,
            known_paths=known or (),
            prefix=stretch.prefix,
            salt=stretch.salt,
            further=[(one.id, one.prompt) for one in further],
            together=self._world.together,
        )
        scratch = folder / name / "scratch"
        scratch.mkdir()
        tools: list[Tool] = [
            ReadTool(checkout, agent.output_limit, known_paths=known),
            BashTool(self._shell, Place(checkout, scratch), agent.output_limit, hint_chars=scenario.command_chars),
        ]
        return Member(
            agent,
            partial(agent.work, self._world.tools(name, tools)),
            task,
            partial(_flaw, agent, scenario.limits),
            start_ns=int(index * scenario.stagger_s * 1e9),
            further=tuple(further),
        )


def _flaw(agent: Agent, limits: Limits) -> str | None:
    """Why a run is not whole that had this agent; None when it is."""
    outcome = agent.outcome
    why = f": {outcome.why}" if outcome.why else ""
    if outcome.end in (End.FAILED, End.CANCELLED):
        return f"{agent.name} {outcome.end.value}{why}"
    if not agent.too_little:
        return None
    growth = "unknown" if outcome.growth_tokens is None else f"{outcome.growth_tokens:,}"
    return (
        f"{agent.name} did too little work: {outcome.tool_calls} tool calls (at least {limits.min_tool_calls}), "
        f"growth of context {growth} tokens (at least {limits.min_growth_tokens:,}); "
        f"it ended as {outcome.end.value}{why}"
    )
