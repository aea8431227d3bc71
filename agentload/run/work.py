"""How do agents, or requests, work between the begin and the end marker, and how does one segment follow another?"""

import gc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from agentload.agents.chat import BROKEN, CONNECTION_FAILED
from agentload.agents.outcome import Doing, End, Outcome
from agentload.artifacts import schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.core import markers
from agentload.core.board import Board
from agentload.core.records import Doubt
from agentload.errors import AgentloadError, InputError
from agentload.run import parts, progress
from agentload.run.interrupt import Interruption
from agentload.run.parts import Stretch
from agentload.run.record import Record
from agentload.run.scenario import Scenario
from agentload.run.serving import (
    Served,
    Session,
    metrics_address,
    must_run,
    time_to_die,
    wait_for_open_requests,
    while_it_runs,
)
from agentload.run.so_far import SoFar, Watched
from agentload.run.squad import Member, Prepare, Squad
from agentload.run.waiting import said_if_slow
from agentload.run.warmup import warm_up
from agentload.run.world import Line, World
from agentload.servers.devices import Devices
from agentload.servers.here import is_here
from agentload.servers.metrics_sampling import MetricsSampler
from agentload.servers.sampler import memory_now, sampled


class Work:
    """All that is measured in one run; a context manager that closes the files it writes."""

    def __init__(
        self,
        world: World,
        session: Session,
        scenario: Scenario,
        record: Record,
        prepare: Prepare,
        interruption: Interruption,
        progress_s: float,
        show: Callable[[Board], None] | None = None,
        open_devices: Callable[[], Devices] = Devices,
    ) -> None:
        """`scenario` is resolved; `prepare` makes ready those that work in a segment.

        Every `progress_s` it is shown how it stands: to `show`, else a line is said. `open_devices` opens those of this
        machine, where their memory is to be looked at.
        """
        self._world = world
        self._session = session
        self._scenario = scenario
        self._record = record
        self._prepare = prepare
        self._interruption = interruption
        self._progress_s = progress_s * world.progress_slower
        self._show = show
        self._open_devices = open_devices
        self._so_far = SoFar()
        self._left_out: tuple[Stretch, ...] = ()
        self._files = ExitStack()
        self._markers = self._files.enter_context(JsonLinesWriter(session.run.markers_path, schemas.MARKERS))
        self._counters: MetricsSampler | None = None
        self.squads: list[Squad] = []  # of the segments so far

    def close(self) -> None:
        """Close the files, and let the devices' driver go."""
        self._files.close()

    def fields(self) -> list[dict[str, Any]]:
        """What the manifest says of each agent."""
        return [fields for squad in self.squads for fields in squad.fields()]

    def flaws(self) -> list[str]:
        """Why the run is not whole; empty when it is."""
        flaws = [flaw for squad in self.squads for flaw in squad.flaws()]
        if self._left_out:
            names = ", ".join(one.segment for one in self._left_out)
            flaws.append(f"no request of segment {self.squads[-1].stretch.segment} was answered: {names} not begun")
        return flaws

    async def do(self, served: Served, line: Line) -> None:
        """Measure one segment after the other; the first begins when the server is warm."""
        stretches = parts.plan(self._scenario)
        line = Watched(line, self._session.clock, self._so_far)
        sampling = await self._sampling(served)
        for number, stretch in enumerate(stretches):
            squad = await self._prepare(stretch, line)
            self.squads.append(squad)
            with squad.files:
                if number == 0 and self._scenario.warmup is not None:
                    await self._warm_up(served, line)
                if squad.before is not None:
                    async with while_it_runs(served):
                        await squad.before(served)
                    await self._wait_for_open_requests(served)
                if len(stretches) > 1:
                    where = f"segment {number + 1} of {len(stretches)}"
                    self._session.say(f"{where}: {stretch.segment}, condition {stretch.condition}")
                await self._measure(squad, served, line, sampling)
            for said in squad.said_after():
                self._session.say(said)
            for doubt in squad.doubts():
                self._record.doubt(doubt)
            if not squad.answered:
                self._left_out = stretches[number + 1 :]
                return

    async def _warm_up(self, served: Served, line: Line) -> None:
        scenario = self._scenario
        assert scenario.warmup is not None
        async with while_it_runs(served):
            doubts = await warm_up(scenario.warmup, scenario, self._world, self._session, line)
            for doubt in doubts:
                self._record.doubt(doubt)
            if doubts:
                await time_to_die(served)
        await self._wait_for_open_requests(served)

    async def _sampling(self, served: Served) -> Callable[[], AbstractAsyncContextManager[None]]:
        """Return what samples server and machine while a segment lasts.

        The devices' driver is opened here, once: that may take a second, which must be within no segment.
        """
        session, devices = self._session, None
        pid = served.process.pid if served.process is not None else None
        here = served.kind == "endpoint" and served.simulated is None and is_here(served.base_url)
        if pid is not None or here:
            devices = await to_thread.run_sync(self._open_devices)
            self._files.callback(devices.close)
        memory = partial(memory_now, devices)
        return partial(sampled, pid, session.clock, session.events, self._scenario.sample_s, memory, here=here)

    async def _measure(
        self,
        squad: Squad,
        served: Served,
        line: Watched,
        sampling: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """Let all work between the two markers."""
        scenario, session, stretch = self._scenario, self._session, squad.stretch
        for said in squad.plan:
            session.say(said)
        counters = self._counters_of(served)
        if counters is not None:
            await counters.begin(stretch.segment)
        # A full collection of what start-up allocated took 25-40 ms, which every stream's stamps would wait for.
        gc.collect()
        gc.freeze()
        begin_ns = self._mark(markers.BEGIN, stretch)
        for one in squad.members:
            one.planned_ns = begin_ns + one.start_ns
        look = partial(self._look, squad, served, line, begin_ns)
        try:
            async with (
                sampling(),
                while_it_runs(served),
                anyio.create_task_group() as reporting,
            ):
                reporting.start_soon(progress.report, session.clock, self._shown, look, begin_ns, self._progress_s)
                if counters is not None:
                    reporting.start_soon(counters.until_cancelled, stretch.segment, scenario.sample_s)
                async with anyio.create_task_group() as group:
                    for index, one in enumerate(squad.members):
                        group.start_soon(self._one, index, one, squad, served)
                if any(_lost_the_server(one.worker.outcome) for one in squad.members):
                    await time_to_die(served)
                reporting.cancel_scope.cancel()
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._wait_for_open_requests(served)
                    await self._count_up(served, stretch)
            finally:
                self._mark(markers.END, stretch)
                gc.unfreeze()

    def _shown(self, board: Board) -> None:
        if self._show is not None:
            self._show(board)
        else:
            self._session.say(progress.line(board.elapsed_s, board.agents, board.segment))

    async def _look(self, squad: Squad, served: Served, line: Watched, begin_ns: int) -> Board:
        """How it stands now. The server's log is read on only for somebody who looks on."""
        if served.attached is not None and (news := await to_thread.run_sync(served.attached.news)) is not None:
            self._session.say(news)
        prefilling = None
        if self._show is not None and served.watch is not None and served.simulated is None:
            with suppress(InputError):  # the log was rotated away: who waits for its open requests says so
                prefilling = line.prefilling(await to_thread.run_sync(served.watch.open_requests))
        now_ns, so_far, limits = self._session.clock.now_ns(), self._so_far, self._scenario.limits
        left_s = None
        if limits is not None and self._scenario.workload == "agents":
            starts = [one.started_ns or one.planned_ns for one in squad.members if one.worker.doing is not Doing.DONE]
            left_s = max((max(starts, default=now_ns) - now_ns) / 1e9 + limits.wall_s, 0.0) if starts else None
        return Board(
            (now_ns - begin_ns) / 1e9,
            [one.look(now_ns, line, prefilling) for one in squad.members],
            left_s,
            so_far.answered,
            so_far.failed,
            so_far.new_prefill_tokens,
            so_far.decode_tok_s,
            so_far.overlap,
            squad.stretch.segment if squad.stretch.prefix else "",
        )

    async def _one(self, index: int, one: Member, squad: Squad, served: Served) -> None:
        async with self._world.turn(index, len(squad.members)):
            await self._live(one, served, aloud=squad.each_said)

    async def _live(self, one: Member, served: Served, *, aloud: bool) -> None:
        session, name = self._session, one.worker.name
        await session.clock.sleep_until(one.planned_ns)
        one.started_ns = session.clock.now_ns()
        session.events.emit(
            "agent_started", one.started_ns, agent=name, task=one.worker.outcome.task, planned=one.planned_ns
        )
        if aloud:
            session.say(f"{name} started")
        try:
            outcome = await one.work()
            must_run(served)
            if aloud:
                session.say(
                    f"{name} {outcome.end.value}: {outcome.requests} requests, {outcome.tool_calls} tool calls, "
                    f"context {outcome.last_context_tokens or '?'} tokens"
                    + (f" ({outcome.why})" if outcome.why else "")
                )
        finally:
            session.events.emit("agent_done", session.clock.now_ns(), agent=name, end=one.worker.outcome.end.value)

    def _mark(self, action: str, stretch: Stretch) -> int:
        """Write a marker into the log, where it can go, and always into markers.jsonl."""
        session, record = self._session, self._record
        assert record.served is not None
        at_ns = session.clock.now_ns()
        line = markers.render(action, stretch.segment, session.run.name, stretch.condition, at_ns)
        try:
            where, inode, offset = record.served.write_marker(line)
        except AgentloadError as error:
            if action == markers.BEGIN:
                raise
            record.doubt(Doubt("end-marker", str(error), "the segment's end stands in markers.jsonl only"))
            where, inode, offset = "sidecar", None, None
        fields = {
            "action": action,
            "segment": stretch.segment,
            "run": session.run.name,
            "condition": stretch.condition,
            "t": at_ns,
            "where": where,
            "inode": inode,
            "offset": offset,
        }
        self._markers.append(fields)
        if action == markers.BEGIN:
            record.segments.append(
                {"segment": stretch.segment, "condition": stretch.condition, "begin": at_ns, "end": None}
            )
        else:
            record.segments[-1]["end"] = at_ns
        session.events.emit("marker_written", at_ns, action=action, segment=stretch.segment, where=where)
        return at_ns

    def _counters_of(self, served: Served) -> MetricsSampler | None:
        """Return what looks at the server's /metrics; None of a simulated one."""
        if self._counters is None and served.simulated is None:
            at, software = metrics_address(served), None if served.facts is None else served.facts.software
            self._counters = MetricsSampler(at, self._session.clock, self._session.events, software)
        return self._counters

    async def _count_up(self, served: Served, stretch: Stretch) -> None:
        """Look at the counters once more, unless the server is gone or there is no time."""
        counters = self._counters
        if counters is None:
            return
        gone = served.process is not None and served.process.exit_code() is not None
        if not gone and not self._interruption.hurried:
            with anyio.CancelScope() as hurry:
                self._interruption.on_hurry(hurry.cancel)
                await counters.end(stretch.segment)
        for doubt in counters.doubts():
            self._record.doubt(doubt)

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
