"""What do a run's raw files say? Events to completions, markers, samples and agents' outcomes; the log to facts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agentload.artifacts import alive, jsonlines, schemas
from agentload.artifacts.events import (
    EVENT,
    MARKER,
    AgentDone,
    AgentStarted,
    Event,
    MarkerLine,
    MarkerWritten,
    MetricsSeen,
    ProbePrimed,
    ProbeSized,
    PromptThrown,
    RequestDone,
    RequestSent,
    Sampled,
    ToolDone,
    ToolStarted,
)
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.artifacts.strict import MAX_NS, validated
from agentload.core.markers import BEGIN
from agentload.core.records import REQUEST_DONE_FIELDS, Completion, Doubt, LogFacts, Marker, ToolCall
from agentload.errors import ArtifactError, InputError
from agentload.serverlogs import formats

_STAMP_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call that was run, with its times (Unix ns)."""

    agent: str
    turn: int
    tool: str
    started: int
    done: int | None  # None: the run was killed while it ran
    ok: bool | None


@dataclass(frozen=True, slots=True)
class ProbeEvents:
    """What only a probe's events tell. Times are Unix ns."""

    sized: dict[str, Any] | None = None  # as the event has it, without its time
    thrown: dict[str, tuple[int, int | None]] = field(default_factory=dict)  # segment -> (throw, all settled since)
    primed: dict[str, dict[str, int | None]] = field(default_factory=dict)  # segment -> agent -> prompt tokens


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run's raw files, read."""

    manifest: Manifest
    completions: tuple[Completion, ...]
    unanswered: tuple[str, ...]  # requests sent for which the events have no end
    tools: tuple[ToolUse, ...]
    samples: tuple[dict[str, Any], ...]  # as the events hold them
    agents_started: dict[str, tuple[int, int]]  # name -> (planned, started), Unix ns
    markers: tuple[Marker, ...]  # of markers.jsonl
    markers_in_log: tuple[Marker, ...]  # those of them that were written into the log
    doubts: tuple[Doubt, ...] = ()  # about the files themselves
    running: bool = False  # its writer is at work
    probe: ProbeEvents = field(default_factory=ProbeEvents)
    metrics: tuple[MetricsSeen, ...] = ()
    agents_done: tuple[int, ...] = ()  # when agents ended, Unix ns
    cut_off: str | None = None  # why its events are not all that there were, though the run came to an end of its own


class _Events:
    """What the events amount to, taken one after the other."""

    def __init__(self) -> None:
        self.sent: dict[str, RequestSent] = {}
        self.done: dict[str, Completion] = {}
        self.tools: list[ToolUse] = []
        self.samples: list[dict[str, Any]] = []
        self.started: dict[str, tuple[int, int]] = {}
        self.probe = ProbeEvents()
        self.metrics: list[MetricsSeen] = []
        self.agents_done: list[int] = []
        self.begun: list[str] = []  # segments of which a begin marker was written and no end marker
        self._open: dict[tuple[str, int, str], list[int]] = {}  # indices into `tools`; a model may use an id twice

    def take(self, event: Event) -> None:
        """Take the next event.

        Raises:
            ValueError: it does not follow from those before it.
        """
        if isinstance(event, RequestSent):
            if event.request in self.sent or event.request in self.done:
                raise ValueError(f"expected request {event.request} to be sent once, got it again")
            self.sent[event.request] = event
        elif isinstance(event, RequestDone):
            if event.request in self.done:
                raise ValueError(f"expected request {event.request} to end once, got a second end")
            self.done[event.request] = _completion(event)
            self.sent.pop(event.request, None)
        elif isinstance(event, ToolStarted):
            self._open.setdefault((event.agent, event.turn, event.call), []).append(len(self.tools))
            self.tools.append(ToolUse(event.agent, event.turn, event.tool, event.t, None, None))
        elif isinstance(event, ToolDone):
            self._tool_done(event)
        elif isinstance(event, Sampled):
            self.samples.append(event.model_dump(exclude={"event"}, exclude_unset=True))
        elif isinstance(event, MetricsSeen):
            self.metrics.append(event)
        else:
            self._of_course(event)
            self._of_probe(event)

    def _of_course(self, event: Event) -> None:
        if isinstance(event, AgentStarted):
            self.started[event.agent] = (event.planned, event.t)
        elif isinstance(event, AgentDone):
            self.agents_done.append(event.t)
        elif isinstance(event, MarkerWritten):
            self.begun = [one for one in self.begun if one != event.segment]
            self.begun += [event.segment] if event.action == BEGIN else []

    def _of_probe(self, event: Event) -> None:
        if isinstance(event, ProbeSized):
            if self.probe.sized is not None:
                raise ValueError("expected the prompt's length to be settled once (probe_sized), got it again")
            sized = {name: value for name, value in event if name not in ("event", "t")}
            self.probe = replace(self.probe, sized=sized)
        elif isinstance(event, ProbePrimed):
            tokens = None if event.usage is None else event.usage.prompt_tokens
            self.probe.primed.setdefault(event.segment, {})[event.agent] = tokens
        elif isinstance(event, PromptThrown):
            if event.segment in self.probe.thrown:
                raise ValueError(f"expected one throw in segment {event.segment} (prompt_thrown), got a second one")
            self.probe.thrown[event.segment] = (event.t, event.settled_from)

    def _tool_done(self, event: ToolDone) -> None:
        waiting = self._open.get((event.agent, event.turn, event.call))
        if not waiting:
            raise ValueError(
                f"expected tool call {event.call} of {event.agent} to start before it ends, got its end only"
            )
        index = waiting.pop(0)
        begun = self.tools[index]
        if event.t < begun.started:
            raise ValueError(
                f"expected tool call {event.call} to end after its start at {begun.started}, got {event.t}"
            )
        self.tools[index] = replace(begun, done=event.t, ok=event.ok)


def read(run: RunDir) -> Evidence:
    """Read manifest, events and markers; of a run that is still being written what there is so far.

    Raises:
        ArtifactError: a file is missing or does not follow its schema; the line is named.
    """
    held = alive.is_held(run.path)
    manifest = run.read_manifest()
    running = held and manifest.status == "started"
    taken = _Events()
    for number, line in jsonlines.lines(run.events_path, schemas.EVENTS):
        try:
            taken.take(validated(EVENT, line))
        except ValueError as error:
            raise ArtifactError(f"{run.events_path}:{number}: {error}") from error
    doubts: list[Doubt] = []
    torn = not running and jsonlines.is_torn(run.events_path)
    if torn:
        doubts.append(_torn("torn-events", "event"))
    cut_off = None if manifest.status == "started" else _cut_off(taken, manifest, torn=torn)
    if cut_off is not None and not torn:
        advice = "it was whole when the run ended: copy it again, else what came later is missing"
        doubts.append(Doubt("events-cut-off", f"events.jsonl breaks off: {cut_off}", advice))
    marks: list[MarkerLine] = []
    if run.markers_path.exists():
        marks = _markers(run.markers_path, manifest.run)
        if not running and jsonlines.is_torn(run.markers_path):
            doubts.append(_torn("torn-markers", "marker"))
    else:
        doubts.append(
            Doubt(
                "no-markers-file",
                "markers.jsonl is missing: only markers that stand in the server's log can tell what was measured",
                "the run directory is not whole: copy all of it",
            )
        )
    broken_off = [
        Completion(
            *(one.request, one.agent, one.turn, one.t, None, None, one.t, None),
            error="no answer yet" if running else "the run ended before its answer",
            ended=False,
        )
        for one in taken.sent.values()
    ]
    return Evidence(
        manifest=manifest,
        completions=(*taken.done.values(), *broken_off),
        unanswered=tuple(sorted(taken.sent)),
        tools=tuple(taken.tools),
        samples=tuple(taken.samples),
        agents_started=taken.started,
        markers=tuple(one.record() for one in marks),
        markers_in_log=tuple(one.record() for one in marks if one.where == "log"),
        doubts=tuple(doubts),
        running=running,
        probe=taken.probe,
        metrics=tuple(taken.metrics),
        agents_done=tuple(taken.agents_done),
        cut_off=cut_off,
    )


def _cut_off(taken: _Events, manifest: Manifest, *, torn: bool) -> str | None:
    """Why the events of a run that has ended are not whole, as far as they show it themselves."""
    if torn:
        return "its last event is cut off"
    if taken.begun:
        return f"segment {taken.begun[0]} begins in it and does not end"
    if not taken.sent and not taken.done and any(one.get("requests") for one in manifest.agents):
        return "it has none of the requests that the manifest counts"
    return None


def _torn(code: str, what: str) -> Doubt:
    return Doubt(code, f"the last {what} was cut off and is left out", "the run was killed, or its disk was full")


def _markers(path: Path, run: str) -> list[MarkerLine]:
    marks: dict[int, MarkerLine] = {}
    for number, line in jsonlines.lines(path, schemas.MARKERS):
        try:
            marks[number] = validated(MARKER, line)
        except ValueError as error:
            raise ArtifactError(f"{path}:{number}: {error}") from error
    others = [number for number, mark in marks.items() if mark.run != run]
    named = {mark.run for mark in marks.values()}
    if len(others) > 1 and len(named) == 1:  # all of them against the manifest: it is the one that was changed
        raise ArtifactError(
            f"{path.with_name('manifest.json')}: run: expected {named.pop()}, as {path.name} has it, got {run!r}"
        )
    if others:
        got = marks[others[0]].run
        raise ArtifactError(f"{path}:{others[0]}: run: expected {run}, as the manifest has it, got {got}")
    return list(marks.values())


def read_log(path: Path, times: Path | None, log_format: str | None) -> LogFacts:
    """Read a server's log, with its receive stamps where there are some; of no known format: all lines are unknown.

    Raises:
        InputError: the log cannot be read.
        ArtifactError: the stamps are none.
        UsageError: there is no format of the name `log_format`.
    """
    stamps = _stamps(times)
    try:
        with path.open("rb") as file:
            return formats.read(formats.blocks(file), log_format, stamps).facts
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def read_head(log: Path) -> bytes:
    """Read what tells a log's format.

    Raises:
        InputError: the log cannot be read.
    """
    try:
        with log.open("rb") as file:
            return file.read(formats.HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{log}: cannot be read: {error.strerror}") from error


def _stamps(path: Path | None) -> Sequence[int] | None:
    if path is None or not path.exists():
        return None
    try:
        # The last piece is empty, or a stamp torn by a kill: the reader takes fewer stamps than lines.
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    last = 0
    stamps = []
    for number, line in enumerate(lines, 1):
        # int() takes more than the pump writes: signs, spaces, underscores.
        if not line.isdigit() or len(line) > _STAMP_DIGITS or not last <= (stamp := int(line)) <= MAX_NS:
            raise ArtifactError(
                f"{path}:{number}: expected one integer (Unix ns), not before the {last} of the line above, "
                f"got {line[:40]!r}"
            )
        last = stamp
        stamps.append(stamp)
    return stamps


def _completion(event: RequestDone) -> Completion:
    without = set(event.chunks_without_token)
    chunks = event.chunk_ns
    if without and max(without) >= len(chunks):
        raise ValueError(f"chunks_without_token: expected indices below {len(chunks)}, got {max(without)}")
    return Completion(
        request=event.request,
        agent=event.agent,
        turn=event.turn,
        t_done=event.t,
        tool_calls=tuple(ToolCall(name, "", "") for name in event.tool_call_ids),
        usage=None if event.usage is None else event.usage.record(),
        timings=None if event.timings is None else event.timings.record(),
        chunk_ns=tuple(chunks),
        token_ns=tuple(stamp for index, stamp in enumerate(chunks) if index not in without),
        notes=tuple(event.notes),
        phases=None if event.phases is None else event.phases.record(),
        **{name: getattr(event, name) for name in REQUEST_DONE_FIELDS},
    )
