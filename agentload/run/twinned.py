"""How does a run go that has a simulated server, in virtual time, and leaves the files that a real one leaves?

Agents, tools, sandbox and corpus are the real ones, and so is the way from raw files to derived ones. The server, its
model and time are simulated, and decided by the scenario alone: the same scenario gives the same files, to the byte.
What no real run has is truth.jsonl, which tells what the server really did.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

import anyio

from agentload.agents.together import Job
from agentload.analysis.truth import TRUTH
from agentload.artifacts import rundir
from agentload.artifacts.jsonlines import dumps
from agentload.artifacts.rundir import RunDir
from agentload.core.ports import Clock, Tool
from agentload.errors import ArtifactError, UsageError
from agentload.run import twin_settings
from agentload.run.logwatch import LogWatch
from agentload.run.scenario import Scenario
from agentload.run.serving import Served, Session
from agentload.run.world import Line, RunClock, stamp
from agentload.twin import timed_tools, truth
from agentload.twin.events import Event, LogWrite
from agentload.twin.face import MODELS, Face, notice
from agentload.twin.machine import machine
from agentload.twin.server import Server
from agentload.twin.transport import TwinTransport
from agentload.twin.virtual_clock import VirtualClock

EPOCH_NS: Final = 1_767_225_600_000_000_000  # 2026-01-01: when every simulated server starts
READY_NS: Final = 1_000_000_000  # so long after it agents may come
# What an agent needs to come from the marker to its first request. The log tells durations to a millisecond: without it
# the first prefill would seem to begin before the segment.
_START_NS: Final = 5_000_000


class TwinLog:
    """server.log, server.log.times and truth.jsonl of a simulated server; a `serving.OwnedLog`."""

    def __init__(self, log: Path, times: Path, told: Path, first: str, clock: Clock) -> None:
        """`first` is the first line of the truth; a marker is stamped with the clock's time.

        Raises:
            ArtifactError: a file cannot be created.
        """
        self.log = log
        self.worst_pause_ns = 0  # no line waits for its stamp
        self.failure: OSError | None = None
        self._clock = clock
        self._size = 0
        self._line = b""
        self._stamp = 0
        self._files = ExitStack()
        self._paths: dict[int, Path] = {}
        self._log, self._times, self._truth = (self._create(path) for path in (log, times, told))
        self._write(self._truth, f"{first}\n".encode())

    def begin(self, line: bytes) -> None:
        """Write the log's first line."""
        self._append(line, self._clock.now_ns())

    def take(self, events: Sequence[Event]) -> None:
        """Write what came out. A full disk is kept as `failure`, and nothing is written after it."""
        told = "".join(f"{line}\n" for line in truth.lines(events))
        if told:
            self._write(self._truth, told.encode())
        for event in events:
            if isinstance(event, LogWrite):
                self._line += event.data
                if event.data.endswith(b"\n"):
                    self._append(self._line, event.at_ns)
                    self._line = b""

    def write_marker(self, line: bytes) -> int:
        """Append a marker (no newline); return its byte offset.

        Raises:
            ArtifactError: it cannot be written.
        """
        offset = self._size
        self._append(line + b"\n", self._clock.now_ns())
        if self.failure is not None:
            raise ArtifactError(f"{self.failure.filename}: marker cannot be written: {self.failure.strerror}")
        return offset

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _create(self, path: Path) -> int:
        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._files.close()
            raise ArtifactError(f"{path}: cannot be created: {error.strerror}") from error
        self._files.callback(os.close, made)
        self._paths[made] = path
        return made

    def _append(self, line: bytes, at_ns: int) -> None:
        self._stamp = max(self._stamp, at_ns)
        self._write(self._log, line)
        self._write(self._times, b"%d\n" % self._stamp)
        self._size += len(line)

    def _write(self, file: int, data: bytes) -> None:
        try:
            while data and self.failure is None:
                data = data[os.write(file, data) :]
        except OSError as error:
            error.filename = str(self._paths[file])
            self.failure = error


class TwinWorld:
    """Virtual time, and a simulated server; a `world.World`."""

    progress_slower = 15  # five minutes of virtual time, which pass in a second or two

    def __init__(self, scenario: Scenario) -> None:
        """`scenario` is resolved.

        Raises:
            UsageError: there is no such profile or model.
            InputError: the profile is a file that cannot be read, or holds none.
        """
        self._scenario = scenario
        profile, model = scenario.server.profile, scenario.server.model
        assert profile is not None
        assert model is not None
        if model not in MODELS:
            raise UsageError(f"--model: the simulated server has {', '.join(MODELS)}, got {model!r}")
        self._model = model
        self._profile = machine(profile)
        self._clock = VirtualClock(EPOCH_NS)

    @property
    def clock(self) -> RunClock:
        """Virtual time."""
        return self._clock

    def directory(self, out: Path, exactly: Path | None = None) -> RunDir:
        """See `World`: one scenario has one name, which is in its log too."""
        if exactly is not None:
            return rundir.create_at(exactly)
        decided_by = dumps(self._scenario.dump()) + self._profile.model_dump_json(by_alias=True)
        digest = blake2b(decided_by.encode(), digest_size=4).hexdigest()
        path = out / f"{stamp(EPOCH_NS)}-{self._scenario.name}-{digest}"
        if path.exists():
            raise ArtifactError(
                f"{path}: expected nothing there: this very scenario was run, and would give the same again; "
                "change --seed, --boot or --name, or name another folder with --out"
            )
        return rundir.create(out, self._scenario.name, stamp(EPOCH_NS), digest)

    @asynccontextmanager
    async def connect(self, why: str, session: Session) -> AsyncIterator[tuple[Served, Line]]:
        """See `World`."""
        scenario, run, clock = self._scenario, session.run, self._clock
        server = scenario.server
        given, boot = server.set or {}, server.boot or 0
        options = twin_settings.options(given)
        first = truth.header(options, self._profile.name, scenario.seed, boot)
        log = TwinLog(run.server_log, run.server_times, run.path / TRUTH, first, clock)
        try:
            simulated = Server(options, self._profile, seed=scenario.seed, boot=boot, start_ns=clock.now_ns())
            log.begin(notice(self._profile.name, scenario.seed))
            face = Face(simulated, MODELS[self._model], seed=scenario.seed, boot=boot, out=log.take)
            clock.advance(face, clock.now_ns() + READY_NS)
            served = Served(
                "twin",
                why,
                f"simulated:{self._profile.name}",
                self._model,
                "",
                argv=twin_settings.argv(given),
                owned=log,
                watch=LogWatch(run.server_log, "ds4"),
                simulated={"profile": self._profile.name, "options": options.model_dump(), "boot": boot},
            )
            async with _driven(clock, face):
                yield served, TwinTransport(face, clock, model=self._model, seed=scenario.seed)
            face.shutdown(clock.now_ns())
            while (due := face.next_ns()) is not None:
                face.advance(due)
        finally:
            log.close()

    @asynccontextmanager
    async def turn(self, number: int, of: int = 1) -> AsyncIterator[None]:
        """See `World`: one at a time."""
        async with self._clock.taking_part(number, of):
            await self._clock.sleep_until(self._clock.now_ns() + _START_NS)
            yield

    def tools(self, agent: str, tools: list[Tool]) -> list[Tool]:
        """See `World`: they really run, and take a time that is drawn."""
        return timed_tools.timed(tools, self._clock, self._scenario.seed, agent)

    async def together(self, jobs: Sequence[Job]) -> None:
        """See `World`: they really run one after the other, and take their virtual times beside each other."""
        await self._clock.together(jobs)


@asynccontextmanager
async def _driven(clock: VirtualClock, face: Face) -> AsyncIterator[None]:
    """Let time pass in the block, also while it is being cancelled: what it waits for then needs time too."""
    own = anyio.CancelScope(shield=True)

    async def drive() -> None:
        with own:
            await clock.drive(face)

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        try:
            yield
        finally:
            own.cancel()
