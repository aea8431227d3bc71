"""How does an experiment go through its nights: run after run, and on from where it was after whatever ended it?

A run that ended by itself, well or not, is an outcome and stays. One that something broke off (a signal, a kill, a full
disk) or that ended in an error is set aside under another name when the experiment goes on, and run again. So the
result does not hang on what happened at night: attempts stand in the journal, and nowhere else.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio import to_thread

from agentload.analysis import validity
from agentload.artifacts import journal
from agentload.artifacts.alive import Hold
from agentload.artifacts.design import Design, ExperimentDir, Step
from agentload.artifacts.journal import Journal, Told
from agentload.artifacts.rundir import RunDir, digest
from agentload.core.board import clock_time
from agentload.core.ports import Clock
from agentload.errors import AgentloadError, ArtifactError, InterruptionError, UsageError
from agentload.run import exclusive, launching, machine_state, run_outcome, runner, standing
from agentload.run import scenario as scenarios
from agentload.run.interrupt import interruptible
from agentload.run.keep_awake import kept_awake
from agentload.run.night_status import RunState, Status, expected_ns, status
from agentload.run.run_outcome import Reasons
from agentload.run.scenario import Scenario
from agentload.run.washout import Washout
from agentload.shown import in_shell

__all__ = ["Outcome", "RunState", "Status", "carry_out", "planned_runs", "scenario_of", "status"]

_TURNS: Final = 5
_SIGNAL: Final = "a signal asked for it"
_FULL: Final = "no space is left on the disk (or in the quota)"
_MOST_FAILED_STARTS: Final = 2  # of a variant that never started this night: then it is asked no more


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a night ended."""

    total: int  # runs of the design
    done: int  # whose outcome stands
    stopped: str | None  # why it ended before each run was tried; None: each was
    failed: tuple[str, ...]  # that ended in an error or were left out: they are run again the next time
    ran: int  # tried this night; 0: there was nothing to do


@dataclass(frozen=True, slots=True)
class _Ended:
    """What came of one attempt."""

    stop: str | None = None  # why the night ends
    full: bool = False


async def carry_out(
    design: Design,
    folder: ExperimentDir,
    env: Mapping[str, str],
    say: Callable[[str], None],
    *,
    until_ns: int | None = None,
    retry: bool = False,
    clock: Clock,
    reasons: Reasons = validity.reasons,
    hold: Hold | None = None,
) -> Outcome:
    """Do the runs of `design` that are not done yet, in its order, and return how the night ended.

    Args:
        design: what to do; design.json is written when there is none.
        folder: where; its directory is there, or is made.
        env: the environment, as runner.run has it.
        say: takes one line for the person at the terminal.
        until_ns: a run that is not expected to end by then (Unix ns) is not begun.
        retry: do those again that came to an end of their own but do not count.
        clock: this machine's.
        reasons: why a run does not count.
        hold: the caller's, on the directory.

    Raises:
        UsageError: the directory holds another experiment, another agentload has a server at the same address, or
            the program of a launch command is not there.
        ArtifactError: another agentload writes the directory, it cannot be written, or a finished run was changed.
        AgentloadError: no run could even begin.
    """
    with ExitStack() as held:
        try:
            folder.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(f"{folder.runs}: cannot be made: {error.strerror}") from error
        runs = planned_runs(design)
        of_runs = {name: scenario_of(design, steps) for name, steps in runs.items()}
        held.enter_context(exclusive.alone(folder.path, [one.server for one in of_runs.values()], env, hold))
        _same_design(design, folder)
        told = journal.read(folder.journal_path)
        journal.check_design(folder, told)
        async with interruptible(say) as interruption:
            done = await _verified(folder, runs, told, say, retry=retry)
        if interruption.asked:
            kept = sum(standing.stands(told.run(name).done, retry=False) for name in runs)
            return Outcome(len(runs), kept, _SIGNAL, (), 0)
        if len(done) == len(runs):
            return Outcome(len(runs), len(runs), None, (), 0)
        for one in of_runs.values():
            launching.must_be_there(one.server, env)
        book = held.enter_context(Journal(folder.journal_path, told))
        night = _Night(design, folder, env, say, clock, book, until_ns=until_ns, retry=retry, reasons=reasons)
        if not design.simulated:
            held.enter_context(kept_awake(say))
        return await night.go(runs, of_runs, done)


def planned_runs(design: Design) -> dict[str, tuple[Step, ...]]:
    """Return the steps of each run, by the run's name, in the order of the design."""
    names = dict.fromkeys(step.run for step in design.steps)
    return {name: tuple(step for step in design.steps if step.run == name) for name in names}


def scenario_of(design: Design, steps: Sequence[Step]) -> Scenario:
    """Return the scenario of the run that has these steps: of the experiment's seed, and in the twin of its own boot.

    Raises:
        UsageError: a variant's scenario is none.
    """
    variant = design.variant(steps[0].variant)
    fields = dict(variant.scenario) | {"seed": design.seed}
    server = dict(fields.get("server", {}))
    if server.get("kind") == "twin":
        fields["server"] = server | {"boot": steps[0].boot}
    if design.kind == "restart":
        fields["condition"] = variant.name
    else:
        fields["parts"] = [
            {"segment": step.segment, "condition": step.variant, "request": design.variant(step.variant).request}
            for step in steps
        ]
    return scenarios.from_fields(fields, f"design.json: variant {variant.name}")


def _same_design(design: Design, folder: ExperimentDir) -> None:
    if not folder.design_path.exists():
        folder.write_design(design)
        return
    there = folder.read_design()
    # What was foretold is no part of what is done.
    if there.dump() | {"expected_s": None} != design.dump() | {"expected_s": None}:
        raise UsageError(f"{folder.path}: expected the experiment that is to go on, it holds another one: {there.name}")


async def _verified(
    folder: ExperimentDir, runs: Mapping[str, tuple[Step, ...]], told: Told, say: Callable[[str], None], *, retry: bool
) -> set[str]:
    """Return the names of the runs that stand, once each has been held against what the journal says of it."""
    found: set[str] = set()
    for name in runs:
        done = told.run(name).done
        if done is None or not standing.stands(done, retry=retry):
            continue
        run = RunDir(folder.runs / name)
        if not run.path.exists():
            say(f"{run.path} is gone, though it was finished: it is run again")
            continue
        same_version = told.run(name).version == version("agentload")
        note = await to_thread.run_sync(partial(standing.verify, run, done, same_version=same_version))
        if note is not None:
            say(note)
        found.add(name)
    return found


class _Night:
    """One process' work on an experiment."""

    def __init__(
        self,
        design: Design,
        folder: ExperimentDir,
        env: Mapping[str, str],
        say: Callable[[str], None],
        clock: Clock,
        book: Journal,
        *,
        until_ns: int | None,
        retry: bool,
        reasons: Reasons,
    ) -> None:
        self._design = design
        self._folder = folder
        self._env = env
        self._say = say
        self._clock = clock
        self._book = book
        self._until_ns = until_ns
        self._retry = retry
        self._reasons = reasons
        self._washout = Washout(clock, say, lambda seconds, why: self._tell("waiting", seconds=seconds, why=why))
        self._starts: dict[tuple[str, ...], list[str | None]] = {}  # by variants of a run: why none started, each time
        self._no_directory: AgentloadError | None = None  # the first error of a run that never had one
        self._any_directory = False
        self._tried = 0
        self._heard = False  # a signal, which came when a run's server was being stopped: the run is whole

    def _tell(self, kind: str, **fields: Any) -> None:
        self._book.append(kind, self._clock.now_ns(), **fields)

    async def go(
        self, runs: Mapping[str, tuple[Step, ...]], scenarios_of: Mapping[str, Scenario], done: set[str]
    ) -> Outcome:
        """Do all runs but those that are `done`."""
        try:
            self._begin()
            end = await self._see_off({name: one for name, one in scenarios_of.items() if name not in done})
            for number, (name, steps) in enumerate(runs.items(), 1):
                if name not in done and end.stop is None:
                    end = await self._step(f"run {number} of {len(runs)}", name, steps, scenarios_of[name])
        except AgentloadError as error:  # what is no outcome of a run: above all a disk without room for the journal
            if not run_outcome.is_full(error):
                self._stop(str(error))
                raise
            end = _Ended(str(error), full=True)
        if end.stop is None and self._no_directory is not None and not self._any_directory:
            self._stop(str(self._no_directory))
            raise self._no_directory
        if end.stop is not None:
            self._stop(end.stop, full=end.full)
        else:
            self._tell("experiment_done")
        return self._outcome(runs, end)

    def _outcome(self, runs: Mapping[str, tuple[Step, ...]], end: _Ended) -> Outcome:
        told = {name: self._book.told.run(name) for name in runs}
        kept = [name for name, one in told.items() if standing.stands(one.done, retry=False)]
        failed = [name for name, one in told.items() if name not in kept and (one.done or one.left_out)]
        if failed:
            self._say(
                f"{', '.join(failed)} failed: `agentload ab {in_shell(self._folder.path)}` runs what failed again"
            )
        return Outcome(len(runs), len(kept), end.stop, tuple(failed), self._tried)

    def _begin(self) -> None:
        told = self._book.told
        facts = {"pid": os.getpid(), "version": version("agentload")}
        if not told.events:
            self._tell("experiment_started", **facts, design=digest(self._folder.design_path))
            return
        if told.torn:
            lines = ", ".join(map(str, told.torn))
            self._say(f"{self._folder.journal_path}: line {lines} was cut off by a kill, and is read over")
        self._tell("resumed", **facts, torn=told.torn)

    async def _see_off(self, left: Mapping[str, Scenario]) -> _Ended:
        """End what still runs of the servers of runs that were broken off, each of them before the first run."""
        async with interruptible(self._say) as interruption:
            for name, scenario in left.items():
                if not self._design.simulated:
                    await self._washout.old_process(self._folder.runs / name, scenario.server.stop_s)
        return _Ended(_SIGNAL if interruption.asked else None)

    def _stop(self, why: str, *, full: bool = False) -> None:
        """Write down why the night ends, and say how it goes on."""
        if full:
            self._book.use_reserve()
        try:
            self._tell("stopped", why=why)
        except ArtifactError as error:
            self._say(str(error))
        then = "once there is room, " if full else ""
        self._say(f"stopped: {why}; {then}`agentload ab {in_shell(self._folder.path)}` goes on where it was")

    # ---- one run ------------------------------------------------------------------------------------------------

    async def _step(self, number: str, name: str, steps: Sequence[Step], scenario: Scenario) -> _Ended:
        """Do one run, with what must be before and after it."""
        starts = self._starts.setdefault(tuple(sorted({step.variant for step in steps})), [])
        if len(starts) >= _MOST_FAILED_STARTS and None not in starts:
            count = len(starts)
            never = f"{self._named(steps)} never started: {count} of {count} attempts failed, the last: {starts[-1]}"
            self._say(f"{number}, {name}, is left out: {never}")
            self._tell("run_left_out", run=name, why=never)
            return _Ended()
        late = self._too_late(name)
        if late is not None:
            return _Ended(late)
        run = RunDir(self._folder.runs / name)
        trouble = None
        async with interruptible(self._say) as interruption:
            trouble = await self._before(run, scenario)
        if interruption.asked or trouble is not None:
            return _Ended(trouble or _SIGNAL)
        self._say(f"{number}: {name}, {self._named(steps)}")
        attempt = self._book.told.run(name).attempts + 1
        self._tell("run_started", run=name, attempt=attempt, machine=machine_state.sample())
        try:
            failure = await self._run(run, scenario, name)
        except InterruptionError:
            return _Ended(_SIGNAL)
        status, why = run_outcome.how_it_ended(run, failure)
        if status == "cancelled":
            return _Ended(_SIGNAL)
        if run_outcome.disk_is_full(self._folder.path, status, why, failure):
            return _Ended(f"{name}: {why or _FULL}", full=True)
        async with interruptible(self._say) as interruption:
            with anyio.CancelScope(shield=True):  # what is done now is not begun again by the next night
                facts = await to_thread.run_sync(
                    partial(run_outcome.facts, run, self._design, steps, status, self._reasons)
                )
            for _ in range(_TURNS):  # of the event loop, for a signal that came in the last moment
                await anyio.lowlevel.checkpoint()
        self._tried += 1
        self._tell("run_done", run=name, attempt=attempt, status=status, why=why, **facts)
        starts.append(None if status != "error" or run_outcome.began(run) else why)
        self._say(f"{name}: {status}" + (f": {why}" if why else ""))
        for one in facts["invalid"]:
            self._say(f"{name} does not count: {one}")
        return _Ended(_SIGNAL if interruption.asked or self._heard else None)

    def _hear(self) -> None:
        self._heard = True

    def _named(self, steps: Sequence[Step]) -> str:
        return " ".join(dict.fromkeys(self._design.variant(step.variant).label for step in steps))

    def _too_late(self, name: str) -> str | None:
        """Why the run is not begun any more; None: there is time, or nothing is known of how long it takes."""
        if self._until_ns is None:
            return None
        now_ns = self._clock.now_ns()
        takes = expected_ns(self._design, self._book.told, len({step.run for step in self._design.steps})) or 0
        wait = max(0, self._cooled_ns() - now_ns)
        over = now_ns + wait + takes - self._until_ns
        if over <= 0:
            return None
        return (
            f"{name} is not begun: it takes about {clock_time(takes / 1e9)} and would end {clock_time(over / 1e9)} "
            "after the deadline (--until)"
        )

    def _cooled_ns(self) -> int:
        """When the cooldown after the last run is over; now, when there was none."""
        if self._design.simulated:
            return 0
        ends = (journal.RunStarted, journal.RunDone)
        last = next((one.t for one in reversed(self._book.told.events) if isinstance(one, ends)), 0)
        # A clock that was set back since: nobody waits longer than the cooldown itself.
        return min(last, self._clock.now_ns()) + int(self._design.cooldown_s * 1e9) if last else 0

    async def _before(self, run: RunDir, scenario: Scenario) -> str | None:
        """Set aside what an earlier attempt left, and have the machine as it was; return why it cannot be."""
        if run.path.exists():
            other = standing.set_aside_path(run.path)
            why = standing.why_not(run, self._book.told.run(run.name), retry=self._retry)
            self._tell("run_set_aside", run=run.name, to=other.name, why=why)
            try:
                run.path.rename(other)
            except OSError as error:
                raise ArtifactError(f"{run.path}: cannot be renamed to {other.name}: {error.strerror}") from error
            self._say(f"{run.name} was not finished ({why}): set aside as {other.name}, and run again")
        if self._design.simulated:
            return None
        await self._washout.cooldown(self._cooled_ns())
        fixed = launching.fixed_address(scenario.server)
        if fixed is not None and (trouble := await self._washout.port(fixed[1], fixed[0])) is not None:
            return trouble
        await self._washout.memory()
        return None

    async def _run(self, run: RunDir, scenario: Scenario, name: str) -> AgentloadError | None:
        """Do the run; return the error that it ended in: a server that crashes is an outcome of the experiment."""
        try:
            await runner.run(
                *(scenario, self._folder.runs, self._env, lambda line: self._say(f"{name}: {line}")),
                directory=run.path,
                signalled=self._hear,
            )
        except InterruptionError:
            raise
        except AgentloadError as error:
            if not run.path.exists() and self._no_directory is None:
                self._no_directory = error
            return error
        finally:
            self._any_directory |= run.path.exists()
        return None
