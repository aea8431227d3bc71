"""What do a run's raw files say? Events to completions, markers, samples and agents' outcomes; the log to facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.core.records import Completion, Doubt, LogFacts, Marker, ServerTimings, ToolCall, Usage
from agentload.errors import ArtifactError, InputError
from agentload.serverlogs import formats

_BLOCK: Final = 1 << 20


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
class Evidence:
    """A run's raw files, read."""

    manifest: Manifest
    completions: tuple[Completion, ...]
    unanswered: tuple[str, ...]  # requests sent for which the events have no end
    tools: tuple[ToolUse, ...]
    samples: tuple[dict[str, Any], ...]  # as the events hold them
    agents_started: dict[str, tuple[int, int]]  # name -> (planned, started), Unix ns
    markers: tuple[Marker, ...]  # of markers.jsonl
    markers_in_log: int  # of these, how many were written into the log


def read(run: RunDir) -> Evidence:
    """Read manifest, events and markers.

    Raises:
        ArtifactError: a file is missing or does not follow its schema; the line is named.
    """
    manifest = run.read_manifest()
    completions: list[Completion] = []
    sent: dict[str, tuple[str, int, int]] = {}
    tools: dict[tuple[str, int, str], ToolUse] = {}
    samples: list[dict[str, Any]] = []
    started: dict[str, tuple[int, int]] = {}
    for number, event in jsonlines.read(run.events_path, schemas.EVENTS):
        try:
            kind = event["event"]
            if kind == "request_sent":
                sent[event["request"]] = (event["agent"], event["turn"], event["t"])
            elif kind == "request_done":
                completions.append(_completion(event))
                sent.pop(event["request"], None)
            elif kind == "tool_started":
                key = (event["agent"], event["turn"], event["call"])
                tools[key] = ToolUse(event["agent"], event["turn"], event["tool"], event["t"], None, None)
            elif kind == "tool_done":
                key = (event["agent"], event["turn"], event["call"])
                tools[key] = ToolUse(*key[:2], event["tool"], tools[key].started, event["t"], event["ok"])
            elif kind == "sample":
                samples.append({name: value for name, value in event.items() if name != "event"})
            elif kind == "agent_started":
                started[event["agent"]] = (event["planned"], event["t"])
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"{run.events_path}:{number}: not a whole event: {error!r}") from error
    for request, (agent, turn, t_sent) in sent.items():
        completions.append(
            Completion(request, agent, turn, t_sent, None, None, t_sent, None, error="the run ended before its answer")
        )
    marks = (
        [(value["where"], _marker(value)) for _, value in jsonlines.read(run.markers_path, schemas.MARKERS)]
        if run.markers_path.exists()
        else []
    )
    return Evidence(
        manifest=manifest,
        completions=tuple(completions),
        unanswered=tuple(sorted(sent)),
        tools=tuple(tools.values()),
        samples=tuple(samples),
        agents_started=started,
        markers=tuple(marker for _, marker in marks),
        markers_in_log=sum(where == "log" for where, _ in marks),
    )


def read_log(path: Path, times: Path | None, log_format: str | None) -> LogFacts | None:
    """Read a server's log, with its receive stamps where there are some; None when it is of no known format.

    Raises:
        InputError: the log cannot be read.
        UsageError: there is no format of the name `log_format`.
    """
    try:
        with path.open("rb") as file:
            head = file.read(formats.HEAD_BYTES)
            name = log_format or formats.detect(head)
            if name is None:
                return None
            reader = formats.by_name(name).reader(_stamps(times))
            reader.feed(head)
            while block := file.read(_BLOCK):
                reader.feed(block)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return reader.close()


def _stamps(path: Path | None) -> Sequence[int] | None:
    if path is None or not path.exists():
        return None
    lines = path.read_bytes().split(b"\n")
    try:
        # The last piece is empty, or a stamp torn by a kill: the reader takes fewer stamps than lines.
        stamps: list[int] = np.array(lines[:-1], dtype="S20").astype(np.int64).tolist()
    except ValueError as error:
        raise ArtifactError(f"{path}: expected one integer (ns) a line: {error}") from error
    return stamps


def check_markers(evidence: Evidence, facts: LogFacts) -> list[Doubt]:
    """Hold the markers that were written into the log against those found there."""
    found = {(one.action, one.segment, one.run, one.at_ns) for one in facts.markers}
    ours = {(one.action, one.segment, one.run, one.at_ns) for one in evidence.markers}
    lost = len(ours - found) if evidence.markers_in_log else 0
    if lost == 0:
        return []
    return [
        Doubt(
            "markers-lost",
            f"{lost} of {evidence.markers_in_log} markers that were written into the server's log are not in it",
            "another process writes this log without O_APPEND; markers.jsonl was used instead",
        )
    ]


def _completion(event: dict[str, Any]) -> Completion:
    usage, timings = event["usage"], event["timings"]
    without = set(event["chunks_without_token"])
    chunks = event["chunk_ns"]
    return Completion(
        request=event["request"],
        agent=event["agent"],
        turn=event["turn"],
        t_sent=event["t_sent"],
        t_first_byte=event["t_first_byte"],
        t_first_token=event["t_first_token"],
        t_done=event["t"],
        status=event["status"],
        tool_calls=tuple(ToolCall(name, "", "") for name in event["tool_call_ids"]),
        finish=event["finish"],
        usage=None if usage is None else Usage(**usage),
        timings=None if timings is None else ServerTimings(**timings),
        server_id=event["server_id"],
        model=event["model"],
        chunk_ns=tuple(chunks),
        token_ns=tuple(stamp for index, stamp in enumerate(chunks) if index not in without),
        error=event["error"],
        comments=event["comments"],
        notes=tuple(event["notes"]),
    )


def _marker(value: dict[str, Any]) -> Marker:
    return Marker(
        value["action"],
        value["segment"],
        value["run"],
        value["condition"],
        value["t"],
        None,
        value["offset"],
        value["inode"],
    )
