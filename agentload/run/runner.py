"""How does a run go, from the printed plan to the end marker?

Everything that can fail before the first request fails before it: corpus, tasks, sandbox, checkouts, server. Then the
begin marker, the agents `stagger_s` apart, the end marker once the log shows no open request, and the manifest; where
a run has several segments, one after the other. Raw evidence only: what it amounts to is analysis.account's work.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import tomli_w
from anyio import to_thread

from agentload import folders
from agentload.agents import workspace
from agentload.agents.sandbox import Sandbox, Shell
from agentload.agents.sandbox import choose as choose_sandbox
from agentload.agents.tasks import Task
from agentload.artifacts import rundir
from agentload.artifacts.rundir import EventLog, RunDir, Status
from agentload.core.board import Board
from agentload.core.records import Doubt
from agentload.errors import AgentloadError, ArtifactError, InputError, InterruptionError
from agentload.run import probe_text, progress, slots
from agentload.run.crew import Crews
from agentload.run.fixed import Batches
from agentload.run.interrupt import Interruption, first_leaf, first_of_ours, interruptible
from agentload.run.plan import choose_tracks, load_corpus, obtain_corpus
from agentload.run.probe import Probes
from agentload.run.record import Record
from agentload.run.scenario import Scenario, resolve
from agentload.run.serving import Session, check, choose
from agentload.run.squad import Prepare
from agentload.run.twinned import TwinWorld
from agentload.run.waiting import abandonable
from agentload.run.work import Work
from agentload.run.world import RealWorld, RunClock, World
from agentload.servers.devices import Devices
from agentload.servers.family import Family
from agentload.servers.watchdog import Watchdog

_CANCELLED: Final = "interrupted by a signal"
_NO_TOOLS: Final = "none: no tool is called"


class _Events:
    """The run's events; it also remembers which server process they tell of, to end it at a second signal."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._server: Family | None = None

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        """Append one event."""
        if kind == "server_started":
            self._server = Family(fields["pid"])
        elif kind == "server_stopped":
            self._server = None
        self._log.emit(kind, t_ns, **fields)

    def kill_server(self) -> None:
        """End it now, whatever it is at; whoever waits for its end goes on."""
        for process in self._server.running() if self._server is not None else ():
            process.kill()


async def run(
    scenario: Scenario,
    out: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
    scenario_text: bytes | None = None,
    *,
    opened: Callable[[RunDir], None] = lambda _: None,
    progress_s: float = progress.PERIOD_S,
    show: Callable[[Board], None] | None = None,
    clock: RunClock | None = None,
    directory: Path | None = None,
    signalled: Callable[[], object] = lambda: None,
    open_devices: Callable[[], Devices] = Devices,
) -> RunDir:
    """Do one run and return its directory; its manifest says how it ended, also when a signal ended it.

    Args:
        scenario: what to run; unresolved.
        out: the folder in which the run directory is made.
        env: the environment: OPENAI_BASE_URL, OPENAI_API_KEY, cache and index settings.
        say: takes one line for the person at the terminal.
        scenario_text: the user's own scenario file, kept verbatim; None: it is written from `scenario`.
        opened: takes the run directory as soon as there is one: it stays when the run fails.
        progress_s: how often it is shown, or else a line is said, how it stands.
        show: takes how it stands; None: a line is said.
        clock: the clock of a run with a real server; None: this machine's.
        directory: the run directory itself, of which there may be none yet; None: a new one in `out`.
        signalled: called when a signal asked for an end, also where that came too late to cut anything off.
        open_devices: opens the devices of this machine, for a run that looks at their memory.

    Raises:
        AgentloadError: something failed before the first request, or the run itself failed; the manifest has the
            reason where there is a run directory already. InterruptionError: a signal came before there was one.
    """
    target: RunDir | None = None

    def keep(made: RunDir) -> None:
        nonlocal target
        target = made
        opened(made)

    try:
        async with interruptible(say) as interruption:
            try:
                await _run(
                    *(scenario, out, env, say, scenario_text, keep, progress_s, show, interruption),
                    *(clock, directory, open_devices),
                )
            finally:
                if interruption.asked:
                    signalled()
    except BaseExceptionGroup as group:
        ours = first_of_ours(group)
        if ours is None:
            raise
        raise ours from group
    if target is None:
        raise InterruptionError("interrupted before anything ran: there is no run directory")
    return target


def settled(scenario: Scenario, env: Mapping[str, str]) -> tuple[Scenario, str]:
    """Return the scenario with all that depends on the server filled in, and why it is this server.

    Raises:
        UsageError, InputError: see `serving.check` and `scenario.resolve`.
    """
    server, why = choose(scenario.server, env)
    resolved = resolve(scenario.model_copy(update={"server": server}))
    check(server, env)
    return resolved, why


def refuse(scenario: Scenario, env: Mapping[str, str]) -> None:
    """Refuse at once a scenario of which no run could begin, as far as that can be known without fetching anything.

    Raises:
        UsageError, InputError: something that it names is not there, or does not fit the rest.
    """
    resolved, _ = settled(scenario, env)
    slots.check(resolved, env)
    if resolved.server.kind == "twin":
        TwinWorld(resolved)
    if resolved.corpus is not None:
        load_corpus(resolved.corpus, env)
    elif resolved.corpus_path is not None and not Path(resolved.corpus_path).is_dir():
        raise InputError(f"--corpus: expected a git checkout, there is no folder {resolved.corpus_path}")
    if resolved.workload == "agents":
        choose_tracks(resolved)


async def _run(
    scenario: Scenario,
    out: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
    scenario_text: bytes | None,
    opened: Callable[[RunDir], None],
    progress_s: float,
    show: Callable[[Board], None] | None,
    interruption: Interruption,
    given_clock: RunClock | None,
    directory: Path | None,
    open_devices: Callable[[], Devices],
) -> None:
    scenario, why = settled(scenario, env)
    slots.check(scenario, env)
    server = scenario.server
    world: World = TwinWorld(scenario) if server.kind == "twin" else RealWorld(scenario, given_clock)
    say(f"server: {why}")
    sandbox: Sandbox | None = None
    if scenario.workload == "agents":
        sandbox = await to_thread.run_sync(lambda: choose_sandbox(allow_unsafe=scenario.unsafe_no_sandbox))
        say(f"sandbox: {sandbox.describe()}")
    # The watchdog is the outer one: a kill between its goodbye and the folder's removal would leave the folder.
    with Watchdog(env) as watchdog, folders.temporary("agentload-") as folder:
        watchdog.remove_on_death(folder)
        repository = None if scenario.workload == "fixed" else await _corpus(scenario, folder, env, say)
        given = choose_tracks(scenario) if scenario.workload == "agents" else ()
        clock = world.clock
        target = world.directory(out, directory)
        opened(target)
        say(f"run directory: {target.path}")
        shown = _NO_TOOLS if sandbox is None else sandbox.describe()
        record = Record(target, scenario, shown, repository, say, clock.describe)
        record.open()
        text = scenario_text if scenario_text is not None else tomli_w.dumps(scenario.dump()).encode()
        work: Work | None = None
        try:
            with ExitStack() as files:
                rundir.write_atomically(target.scenario_path, text)
                log = EventLog(target.events_path)
                files.callback(log.close)
                events = _Events(log)
                interruption.on_hurry(events.kill_server)
                session = Session(target, clock, events, env, say, clock.describe, watchdog)
                prepare = await _workload(world, session, scenario, repository, given, sandbox, folder)
                work = Work(world, session, scenario, record, prepare, interruption, progress_s, show, open_devices)
                files.callback(work.close)
                await _go(world, work, session, scenario, record, why)
        except BaseException as error:
            # A signal's own cancellation is no failure: one to write the manifest is then the first.
            quiet = isinstance(error, anyio.get_cancelled_exc_class())
            try:
                record.close(*_broken(error, interruption, work), work.fields() if work is not None else [])
            except ArtifactError as second:
                if quiet:
                    raise
                say(f"{second}; it still says that the run has started")
            raise
        record.close(*_verdict(work), work.fields())


async def _corpus(
    scenario: Scenario, folder: Path, env: Mapping[str, str], say: Callable[[str], None]
) -> workspace.Repository:
    obtain = partial(obtain_corpus, scenario, folder, env, say)
    if scenario.corpus_path is not None:  # it is written into the folder, which goes
        repository = await to_thread.run_sync(obtain)
    else:
        repository = await abandonable(obtain)
    say(
        f"corpus: {repository.name} at {repository.commit[:12]}"
        + (" (changes in its work tree that are not committed are left out)" if repository.dirty else "")
    )
    for note in repository.notes:
        say(f"corpus: {note}")
    return repository


async def _workload(
    world: World,
    session: Session,
    scenario: Scenario,
    repository: workspace.Repository | None,
    given: tuple[tuple[Task, ...], ...],
    sandbox: Sandbox | None,
    folder: Path,
) -> Prepare:
    """Return what makes ready those who work in a segment: agents have a sandbox, the fixed workload has no corpus."""
    if repository is None:
        return Batches(session, scenario).prepare
    if sandbox is None:
        checkout = partial(workspace.checkout, repository.path, repository.commit, folder / "source")
        source = await to_thread.run_sync(lambda: probe_text.source_of(checkout()))
        return Probes(world, session, scenario, source).prepare
    return Crews(world, session, scenario, repository, given, Shell(sandbox), folder).prepare


async def _go(world: World, work: Work, session: Session, scenario: Scenario, record: Record, why: str) -> None:
    async with world.connect(why, session) as (served, transport):
        record.served = served
        session.say(f"endpoint: {served.base_url}, model {served.model}")
        if served.attached is not None and served.attached.refusal is not None:
            advice = "markers are in markers.jsonl only"
            record.doubt(Doubt("sidecar-markers", served.attached.refusal, advice))
        await slots.check_served(scenario, served)
        await work.do(served, transport)


def _broken(error: BaseException, interruption: Interruption, work: Work | None) -> tuple[Status, str]:
    """How a run ended that `error` broke off."""
    if interruption.asked:
        return "cancelled", _CANCELLED
    ours = error if isinstance(error, AgentloadError) else None
    if isinstance(error, BaseExceptionGroup):
        ours = first_of_ours(error)
    if ours is not None:
        # What had been done when the disk was full is whole, and can be accounted for.
        worked = work is not None and any(squad.answered for squad in work.squads)
        return "partial" if worked and folders.says_full(str(ours)) else "error", str(ours)
    leaf = first_leaf(error)
    if isinstance(leaf, anyio.get_cancelled_exc_class()):
        return "cancelled", "cancelled by whoever had started it"
    return "error", f"internal error: {type(leaf).__name__}: {leaf}"


def _verdict(work: Work) -> tuple[Status, str | None]:
    """How a run ended in which everybody came to an end of their own."""
    if not any(squad.answered for squad in work.squads):
        workers = [one.worker for squad in work.squads for one in squad.members]
        errors = [one.first_error for one in workers if one.first_error is not None]
        return "error", f"no request of any agent was answered: {min(errors)[1] if errors else 'none was sent'}"
    bad = work.flaws()
    return ("partial", "; ".join(bad)) if bad else ("success", None)
