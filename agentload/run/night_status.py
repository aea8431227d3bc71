"""How far is an experiment, what came of each run, how long will the rest take, and is somebody at it now?"""

from dataclasses import dataclass

import psutil

from agentload.artifacts import alive, journal
from agentload.artifacts.design import Design, ExperimentDir
from agentload.artifacts.journal import AnyEvent, RunHistory, Told
from agentload.artifacts.rundir import RunDir
from agentload.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class RunState:
    """One run of the design."""

    run: str  # name of its directory
    variants: tuple[str, ...]  # in the order of its steps
    status: str  # to do | running | broken off | left out | success | partial | invalid | error | cancelled
    why: str | None
    attempts: int
    seconds: float | None  # that its last finished attempt took


@dataclass(frozen=True, slots=True)
class Status:
    """An experiment as it stands."""

    total: int
    done: int  # runs whose outcome stands: `agentload ab DIR` would not run them again
    runs: tuple[RunState, ...]
    left_s: (
        float | None
    )  # that the others take, by the finished ones; None: nothing is finished, and nothing was foretold
    at_work: bool  # a process writes it now
    last: AnyEvent | None
    torn: tuple[int, ...]  # lines of the journal that a kill cut off


def status(folder: ExperimentDir, now_ns: int | None = None) -> Status:
    """Return how far the experiment in `folder` is; nothing is written.

    Args:
        folder: the experiment.
        now_ns: what time it is (Unix ns), so that the part of the present run that is over does not count as left.

    Raises:
        InputError: it is no experiment.
        ArtifactError: its design or journal is damaged.
    """
    design = folder.read_design()
    at_work = alive.is_held(folder.path)  # asked first: one that ends meanwhile says how in its journal
    told = journal.read(folder.journal_path)
    names = list(dict.fromkeys(step.run for step in design.steps))
    running = _running(told) if at_work and _is_its_writer(told) else None
    runs = tuple(_state(folder, design, told, name, running) for name in names)
    done = sum(one.status in ("success", "partial", "invalid") for one in runs)
    return Status(
        len(names),
        done,
        runs,
        _left_s(design, told, [one for one in runs if one.status in _TO_COME], running, now_ns),
        at_work,
        told.events[-1] if told.events else None,
        tuple(told.torn),
    )


_TO_COME = ("to do", "running", "broken off", "left out", "error", "cancelled")


def _is_its_writer(told: Told) -> bool:
    """Whether who wrote last still lives: another one may be at it, and verify what that one left."""
    nights = (journal.ExperimentStarted, journal.Resumed)
    pid = next((one.pid for one in reversed(told.events) if isinstance(one, nights)), None)
    return pid is not None and psutil.pid_exists(pid)


def _running(told: Told) -> str | None:
    """The run that was started last, unless something came of it."""
    for event in reversed(told.events):
        match event:
            case journal.RunStarted():
                return event.run
            case journal.RunDone() | journal.RunSetAside() | journal.Stopped() | journal.Resumed():
                return None
            case _:
                pass
    return None


def _state(folder: ExperimentDir, design: Design, told: Told, name: str, running: str | None) -> RunState:
    history = told.run(name)
    steps = tuple(step for step in design.steps if step.run == name)
    taken = told.durations_ns.get(name)
    said, why = _said(RunDir(folder.run_path(steps[0])), history, running=name == running)
    seconds = None if taken is None else taken / 1e9
    return RunState(name, tuple(step.variant for step in steps), said, why, history.attempts, seconds)


def _said(run: RunDir, history: RunHistory, *, running: bool) -> tuple[str, str | None]:
    done = history.done
    if running:
        return "running", None
    if done is not None:
        if done.status in ("success", "partial") and done.invalid:
            return "invalid", "; ".join(done.invalid)
        return done.status, done.why
    if history.left_out is not None:
        return "left out", history.left_out
    if history.started_ns is None or not run.path.exists():
        return "to do", None
    try:
        manifest = run.read_manifest()
    except ArtifactError as error:
        return "broken off", str(error)
    return ("cancelled", manifest.why) if manifest.status == "cancelled" else ("broken off", manifest.why)


def expected_ns(design: Design, told: Told, runs: int) -> int | None:
    """Return how long one of `runs` runs takes: the mean of those that are finished, else what was foretold."""
    taken = list(told.durations_ns.values())
    if taken:
        return sum(taken) // len(taken)
    if design.expected_s is None:
        return None
    cooldown_s = 0.0 if design.simulated else design.cooldown_s
    return max(0, int((design.expected_s / runs - cooldown_s) * 1e9))


def _left_s(
    design: Design, told: Told, to_come: list[RunState], running: str | None, now_ns: int | None
) -> float | None:
    each = expected_ns(design, told, len({step.run for step in design.steps}))
    if each is None:
        return 0.0 if not to_come else None
    left = each * len(to_come)
    started = told.run(running).started_ns if running is not None else None
    if started is not None and now_ns is not None:
        left -= min(each, max(0, now_ns - started))
    waits = len(to_come) - (running is not None)
    return left / 1e9 + (0.0 if design.simulated else max(0, waits) * design.cooldown_s)
