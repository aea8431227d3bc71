"""What has an experiment done so far, as its journal tells it, also when a kill or a power cut ended the last line?

journal.jsonl is only appended to, and each line is on the disk before what it tells of goes on: whoever takes the
experiment up again knows exactly where it was. A last line that was cut off stays in the file, with a newline put
behind it by the next writer, and is read over; the `resumed` event names it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, TypeAdapter

from agentload import folders
from agentload.artifacts import schemas, strict
from agentload.artifacts.design import ExperimentDir
from agentload.artifacts.jsonlines import dumps
from agentload.artifacts.rundir import Status, digest
from agentload.artifacts.strict import Count, Ns, Ours
from agentload.errors import ArtifactError

_RESERVE: Final = ".reserve"
_SCHEMA_LINE: Final = dumps({"schema": schemas.JOURNAL})
_RESERVE_BYTES: Final = 64 * 1024  # a `stopped` line has 300 bytes; the rest is what file systems round up to


class Event(Ours):
    """What all events have."""

    t: Ns


class ExperimentStarted(Event):
    """The first line of the first night."""

    event: Literal["experiment_started"]
    pid: Count
    version: str  # of agentload
    design: str | None = None  # sha256 of design.json


class Resumed(Event):
    """The first line of each further night."""

    event: Literal["resumed"]
    pid: Count
    version: str
    torn: list[int] = Field(default_factory=list)  # numbers of lines before it that were cut off


class RunStarted(Event):
    """A run is about to begin; `machine` is run.machine_state's."""

    event: Literal["run_started"]
    run: str
    attempt: Count  # from 1
    machine: dict[str, Any] = Field(default_factory=dict)


class RunDone(Event):
    """A run came to an end by itself, whatever came of it."""

    event: Literal["run_done"]
    run: str
    attempt: Count
    status: Status  # the manifest's; error also where no run directory came to be
    why: str | None
    files: dict[str, str]  # sha256 of each raw file, by its path in the run directory
    account: str | None = None  # sha256 of derived/account.json; None: there is none
    invalid: list[str] = Field(default_factory=list)  # why it does not count, as it was seen that night
    machine: dict[str, Any] = Field(default_factory=dict)


class RunSetAside(Event):
    """An attempt that does not count is about to be renamed to `to`: nothing of it is lost."""

    event: Literal["run_set_aside"]
    run: str
    to: str
    why: str


class RunLeftOut(Event):
    """A run was not tried this night."""

    event: Literal["run_left_out"]
    run: str
    why: str


class Waiting(Event):
    """The next run waits for this, so long at most."""

    event: Literal["waiting"]
    seconds: Annotated[float, Field(ge=0)]
    why: str


class Stopped(Event):
    """The night ended before all runs were tried."""

    event: Literal["stopped"]
    why: str


class ExperimentDone(Event):
    """Each run was tried."""

    event: Literal["experiment_done"]


AnyEvent = (
    ExperimentStarted | Resumed | RunStarted | RunDone | RunSetAside | RunLeftOut | Waiting | Stopped | ExperimentDone
)
_EVENTS: Final[TypeAdapter[AnyEvent]] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="event")])


@dataclass(slots=True)
class RunHistory:
    """What the journal says of one run."""

    attempts: int = 0
    started_ns: int | None = None  # of the last attempt
    done: RunDone | None = None  # of the last attempt, unless that was set aside
    version: str | None = None  # of the agentload that did it
    left_out: str | None = None  # why the last night did not try it


@dataclass(slots=True)
class Told:
    """What a journal tells, line by line and summed up."""

    events: list[AnyEvent] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)  # numbers of the lines that were cut off
    runs: dict[str, RunHistory] = field(default_factory=dict)
    durations_ns: dict[str, int] = field(default_factory=dict)  # of each run that came to an end without an error

    def run(self, name: str) -> RunHistory:
        """Return what is known of a run: nothing, when it never started."""
        return self.runs.get(name, RunHistory())

    @property
    def version(self) -> str | None:
        """The version of agentload that wrote last."""
        return next(
            (one.version for one in reversed(self.events) if isinstance(one, ExperimentStarted | Resumed)), None
        )

    def add(self, event: AnyEvent) -> None:
        """Take in one more event."""
        self.events.append(event)
        match event:
            case RunStarted():
                one = self.runs.setdefault(event.run, RunHistory())
                one.attempts, one.started_ns = max(one.attempts + 1, event.attempt), event.t
                one.done = one.left_out = None
            case RunDone():
                one = self.runs.setdefault(event.run, RunHistory())
                one.done, one.version = event, self.version
                if one.started_ns is not None and event.status != "error":
                    self.durations_ns[event.run] = event.t - one.started_ns
            case RunSetAside():
                self.runs.setdefault(event.run, RunHistory()).done = None
                self.durations_ns.pop(event.run, None)
            case RunLeftOut():
                self.runs.setdefault(event.run, RunHistory()).left_out = event.why
            case _:
                pass


def read(path: Path) -> Told:
    """Read the journal at `path`; where there is none, nothing has happened.

    A line that is no JSON was cut off when it is the last, or when the next one is the first of another night.

    Raises:
        ArtifactError: it cannot be read, is of another schema, or is damaged elsewhere; the line is named.
    """
    told = Told()
    cut: tuple[int, str] | None = None
    for number, line in _lines(path):
        value, complaint = _parsed(line)
        if cut is not None and not (isinstance(value, dict) and value.get("event") in _FIRSTS):
            raise ArtifactError(f"{path}:{cut[0]}: {cut[1]}")
        cut = None
        if complaint is not None:
            told.torn.append(number)
            cut = (number, complaint)
            continue
        try:
            told.add(strict.validated(_EVENTS, line))
        except ValueError as error:
            raise ArtifactError(f"{path}:{number}: {error}") from error
    return told


_FIRSTS: Final = ("experiment_started", "resumed")


def _parsed(line: bytes) -> tuple[Any, str | None]:
    """Return (value, None), or (None, what is wrong) of a line that is no JSON."""
    try:
        return strict.parse(line), None
    except ValueError as error:
        return None, str(error)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) of each line behind the schema's; an object without its newline is whole too."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    first, *lines = data.split(b"\n")
    if not lines:
        return  # killed in its very first write
    if first.decode(errors="replace") != _SCHEMA_LINE:
        raise ArtifactError(f"{path}:1: expected {_SCHEMA_LINE}, got {first[:80]!r}")
    last = lines.pop()
    yield from enumerate(lines, 2)
    if last:
        yield len(lines) + 2, last


def check_design(folder: ExperimentDir, told: Told) -> None:
    """Refuse a design.json that is not the one which was written before the first start.

    Raises:
        ArtifactError: it was changed, or cannot be read.
    """
    first = told.events[0] if told.events else None
    if not isinstance(first, ExperimentStarted) or first.design is None:
        return
    found = digest(folder.design_path)
    if found != first.design:
        raise ArtifactError(
            f"{folder.design_path}: it was changed after the first start: expected sha256 {first.design} "
            f"(journal.jsonl), got {found}; put it back as it was"
        )


class Journal:
    """Appends events, each on the disk before `append` returns. Room is set aside for one more on a full disk."""

    def __init__(self, path: Path, told: Told) -> None:
        """Open the journal at `path`, or create it; `told` is what it holds, and takes in what is appended.

        Raises:
            ArtifactError: it cannot be written.
        """
        self._path = path
        self.told = told
        self._reserve = path.with_name(_RESERVE)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be opened: {error.strerror}") from error
        with suppress(OSError):  # without it a full disk costs the line that says so, and only that
            folders.set_room_aside(self._reserve, _RESERVE_BYTES)
        try:
            self._mend()
        except ArtifactError:
            self.close()
            raise

    def _mend(self) -> None:
        """Have the file begin with the schema and end with a whole line."""
        try:
            size = os.fstat(self._fd).st_size
            first = os.pread(self._fd, 200, 0)
            last = os.pread(self._fd, 1, max(0, size - 1))
            if b"\n" not in first:
                os.ftruncate(self._fd, 0)
        except OSError as error:
            raise ArtifactError(f"{self._path}: cannot be opened: {error.strerror}") from error
        if b"\n" not in first:
            self._write(f"{_SCHEMA_LINE}\n".encode())
        elif last != b"\n":
            self._write(b"\n")

    def append(self, kind: str, t_ns: int, **fields: Any) -> None:
        """Write one event.

        Raises:
            ArtifactError: the disk is full or the file cannot be written; nothing of the event stands in it then.
        """
        line = dumps({"event": kind, "t": t_ns, **fields}).encode("utf-8", "backslashreplace")
        event = _EVENTS.validate_json(json.dumps(strict.parse(line)))
        self._write(line + b"\n")
        self.told.add(event)

    def _write(self, data: bytes) -> None:
        size = -1
        try:
            size = os.fstat(self._fd).st_size
            left = data
            while left:
                left = left[os.write(self._fd, left) :]
            os.fsync(self._fd)
        except OSError as error:
            with suppress(OSError):
                if size >= 0:
                    os.ftruncate(self._fd, size)
            raise ArtifactError(f"{self._path}: cannot be written: {error.strerror}") from error

    def use_reserve(self) -> None:
        """Give the room that was set aside back to the disk, which is full."""
        with suppress(OSError):
            self._reserve.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.use_reserve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
