"""Do a run's raw files say afterwards what was put into them?"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents.loop import request_done_fields
from agentload.analysis import evidence
from agentload.artifacts import rundir, schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, Manifest, RunDir
from agentload.core.records import Completion, ServerTimings, ToolCall, Usage
from agentload.errors import ArtifactError, InputError

MANIFEST = Manifest(
    run="r",
    status="started",
    scenario={},
    server={"kind": "endpoint"},
    sandbox="none",
    corpus={"name": "tiny", "commit": "c" * 40},
    agents=[],
    segments=[],
    host={},
    versions={},
    clock={},
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = rundir.create(tmp_path, "x", "2026-01-01T000000Z", "0000")
    made.write_manifest(MANIFEST)
    return made


def events(run: RunDir, *given: tuple[str, int, dict[str, Any]]) -> None:
    log = EventLog(run.events_path)
    for kind, t_ns, fields in given:
        log.emit(kind, t_ns, **fields)
    log.close()


def done(one: Completion) -> tuple[str, int, dict[str, Any]]:
    who = {"request": one.request, "agent": one.agent, "turn": one.turn}
    return "request_done", one.t_done, {**who, **request_done_fields(one)}


def stored(one: Completion) -> Completion:
    """What of a completion the events keep: no text (messages.jsonl has it), of calls the ids."""
    return replace(
        one,
        content="",
        reasoning="",
        tool_calls=tuple(ToolCall(call.id, "", "") for call in one.tool_calls),
        raw_usage=None,
        raw_timings=None,
        raw_extra=(),
    )


WHOLE = Completion(
    request="a0-r3",
    agent="a0",
    turn=3,
    t_sent=100,
    t_first_byte=110,
    t_first_token=120,
    t_done=190,
    status=200,
    content="text",
    reasoning="thought",
    tool_calls=(ToolCall("call-1", "read", "{}"), ToolCall("call-2", "bash", "{}")),
    finish="tool_calls",
    usage=Usage(1000, 50, 900, None),
    timings=ServerTimings(900, 100, 12.345, 50, 678.9),
    server_id="chatcmpl-1",
    model="m",
    chunk_ns=(110, 120, 130, 190),
    token_ns=(120, 130),
    raw_usage={"prompt_tokens": 1000},
    raw_timings={"prompt_n": 100},
    comments=2,
    notes=("a tool call came without an id: one was made up",),
    raw_extra=((110, "system_fingerprint", "b1"),),
)
FAILED = Completion("a1-r0", "a1", 0, 50, None, None, 60, None, error="connection failed: refused")


def test_a_completion_comes_back_from_its_event_as_far_as_it_is_stored(run: RunDir) -> None:
    events(run, done(WHOLE), done(FAILED))
    assert evidence.read(run).completions == (stored(WHOLE), FAILED)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_token_stamps_come_back_also_when_events_share_a_stamp(events_of: list[tuple[int, bool]]) -> None:
    # Events that came in one piece of the stream have one stamp: a role and the first token, the last and its usage.
    chunks = sorted(events_of, key=lambda one: one[0])
    one = replace(
        WHOLE,
        chunk_ns=tuple(stamp for stamp, _ in chunks),
        token_ns=tuple(stamp for stamp, token in chunks if token),
    )
    _, t_ns, fields = done(one)
    event = json.loads(json.dumps({"event": "request_done", "t": t_ns, **fields}))
    assert evidence._completion(event) == stored(one)


def test_a_request_without_an_end_is_kept_as_broken_off(run: RunDir) -> None:
    who = {"request": "a0-r4", "agent": "a0", "turn": 4}
    events(run, ("request_sent", 90, {**who, "request": "a0-r3", "turn": 3}), done(WHOLE), ("request_sent", 200, who))
    found = evidence.read(run)
    assert found.unanswered == ("a0-r4",)
    assert found.completions == (
        stored(WHOLE),
        Completion("a0-r4", "a0", 4, 200, None, None, 200, None, error="the run ended before its answer"),
    )


def test_tools_samples_and_starts_are_read(run: RunDir) -> None:
    tool = {"agent": "a0", "turn": 1, "call": "c1", "tool": "bash"}
    events(
        run,
        ("agent_started", 7, {"agent": "a0", "task": "t", "planned": 5}),
        ("tool_started", 10, tool),
        ("tool_done", 30, {**tool, "ok": False, "text_bytes": 1, "truncated": False, "detail": {}}),
        ("sample", 31, {"where": "periodic", "cpu_s": 1.5}),
        ("tool_started", 40, {**tool, "turn": 2}),
    )
    found = evidence.read(run)
    assert found.agents_started == {"a0": (5, 7)}
    assert found.tools == (
        evidence.ToolUse("a0", 1, "bash", 10, 30, ok=False),
        evidence.ToolUse("a0", 2, "bash", 40, None, ok=None),
    )
    assert found.samples == ({"t": 31, "where": "periodic", "cpu_s": 1.5},)


def test_a_last_line_torn_by_a_kill_is_left_out(run: RunDir) -> None:
    events(run, done(FAILED))
    with run.events_path.open("ab") as file:
        file.write(b'{"event":"request_sent","t":77,"requ')
    assert evidence.read(run).completions == (FAILED,)


def test_an_event_that_lacks_a_field_is_named_by_its_line(run: RunDir) -> None:
    events(run, done(FAILED), ("request_sent", 5, {"request": "a0-r0"}))
    with pytest.raises(ArtifactError, match=r"events\.jsonl:3: not a whole event: KeyError\('agent'\)"):
        evidence.read(run)


def test_markers_are_read_with_their_place_in_the_log(run: RunDir) -> None:
    events(run)
    marks = JsonLinesWriter(run.markers_path, schemas.MARKERS)
    for action, where in (("begin", "log"), ("end", "sidecar")):
        marks.append(
            {"action": action, "segment": "s1", "run": "r", "condition": "c", "t": 5}
            | {"where": where, "inode": 9, "offset": 100}
        )
    marks.close()
    found = evidence.read(run)
    assert [(one.action, one.at_ns, one.log_offset, one.inode, one.proof) for one in found.markers] == [
        ("begin", 5, 100, 9, None),
        ("end", 5, 100, 9, None),
    ]
    assert found.markers_in_log == 1


def test_receive_stamps_torn_by_a_kill_lose_the_torn_one_only(tmp_path: Path) -> None:
    path = tmp_path / "server.log.times"
    path.write_bytes(b"1795958524123456789\n1795958524123456790\n17959")
    assert evidence._stamps(path) == [1795958524123456789, 1795958524123456790]
    path.write_bytes(b"12\nx\n")
    with pytest.raises(ArtifactError, match="expected one integer"):
        evidence._stamps(path)


def test_a_log_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        evidence.read_log(tmp_path / "none.log", None, None)
