"""Do a run's raw files say afterwards what was put into them?"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents.outcome import request_done_fields
from agentload.analysis import evidence
from agentload.artifacts import rundir, schemas
from agentload.artifacts.events import EVENT, RequestDone
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, Manifest, RunDir
from agentload.artifacts.strict import validated
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
    event = validated(EVENT, json.dumps({"event": "request_done", "t": t_ns, **fields}).encode())
    assert isinstance(event, RequestDone)
    assert evidence._completion(event) == stored(one)


def test_a_request_without_an_end_is_kept_as_broken_off(run: RunDir) -> None:
    who = {"request": "a0-r4", "agent": "a0", "turn": 4}
    events(run, ("request_sent", 90, {**who, "request": "a0-r3", "turn": 3}), done(WHOLE), ("request_sent", 200, who))
    found = evidence.read(run)
    assert found.unanswered == ("a0-r4",)
    assert found.completions == (
        stored(WHOLE),
        Completion("a0-r4", "a0", 4, 200, None, None, 200, None, error="the run ended before its answer", ended=False),
    )


SAMPLE = {
    "where": "periodic",
    "cpu_s": 1.5,
    "rss_bytes": 4096,
    "processes": 1,
    "host_busy_s": 9.0,
    "host_free_bytes": 1 << 33,
}


def test_tools_samples_and_starts_are_read(run: RunDir) -> None:
    tool = {"agent": "a0", "turn": 1, "call": "c1", "tool": "bash"}
    events(
        run,
        ("agent_started", 7, {"agent": "a0", "task": "t", "planned": 5}),
        ("tool_started", 10, tool),
        ("tool_done", 30, {**tool, "ok": False, "text_bytes": 1, "truncated": False, "detail": {}}),
        ("sample", 31, SAMPLE),
        ("tool_started", 40, {**tool, "turn": 2}),
    )
    found = evidence.read(run)
    assert found.agents_started == {"a0": (5, 7)}
    assert found.tools == (
        evidence.ToolUse("a0", 1, "bash", 10, 30, ok=False),
        evidence.ToolUse("a0", 2, "bash", 40, None, ok=None),
    )
    assert found.samples == ({"t": 31, **SAMPLE},)


def test_a_last_line_torn_by_a_kill_is_left_out(run: RunDir) -> None:
    events(run, done(FAILED))
    with run.events_path.open("ab") as file:
        file.write(b'{"event":"request_sent","t":77,"requ')
    assert evidence.read(run).completions == (FAILED,)


def test_an_event_that_lacks_a_field_is_named_by_its_line(run: RunDir) -> None:
    events(run, done(FAILED), ("request_sent", 5, {"request": "a0-r0"}))
    with pytest.raises(ArtifactError, match=r"events\.jsonl:3: expected a field request_sent\.agent, there is none$"):
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
    assert found.markers_in_log == found.markers[:1]


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


TOOL = {"agent": "a0", "turn": 1, "call": "c1", "tool": "bash"}
DONE = {**TOOL, "ok": True, "text_bytes": 1, "truncated": False, "detail": {}}
SENT = ("request_sent", 5, {"request": "a0-r3", "agent": "a0", "turn": 3})
LENGTH: dict[str, Any] = {
    "asked_tokens": 20_000,
    "tokens": 6_000,
    "counted_tokens": 6_001,
    "at_context_tokens": 500,
    "at_context_counted": None,
    "tries": 3,
    "text_bytes": 20_000,
    "words": 4,
    "context_tokens": 8_192,
    "why_capped": "small",
}
SIZED = ("probe_sized", 1, LENGTH)
THROW: dict[str, Any] = {"load": "d3", "prompts": ["p0"], "decoders": {"d0": 36}}
THROWN = ("prompt_thrown", 9, {**THROW, "segment": "d3-r1", "settled_from": 5})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((SENT, SENT), "3: expected request a0-r3 to be sent once, got it again"),
        ((done(WHOLE), SENT), "3: expected request a0-r3 to be sent once, got it again"),
        ((done(WHOLE), done(WHOLE)), "3: expected request a0-r3 to end once, got a second end"),
        ((("tool_done", 9, DONE),), "2: expected tool call c1 of a0 to start before it ends, got its end only"),
        (
            (("tool_started", 9, TOOL), ("tool_done", 8, DONE)),
            "3: expected tool call c1 to end after its start at 9, got 8",
        ),
        (
            (("tool_started", 9, TOOL), ("tool_done", 10, DONE), ("tool_done", 11, DONE)),
            "4: expected tool call c1 of a0 to start before it ends, got its end only",
        ),
        ((SIZED, SIZED), "3: expected the prompt's length to be settled once (probe_sized), got it again"),
        (
            (THROWN, THROWN),
            "3: expected one throw in segment d3-r1 (prompt_thrown), got a second one",
        ),
    ],
)
def test_an_event_that_does_not_follow_from_those_before_it_is_named(
    run: RunDir, given: tuple[tuple[str, int, dict[str, Any]], ...], said: str
) -> None:
    events(run, *given)
    with pytest.raises(ArtifactError) as caught:
        evidence.read(run)
    assert str(caught.value) == f"{run.events_path}:{said}"


def test_two_calls_with_one_id_in_one_turn_are_two(run: RunDir) -> None:
    """Models make ids up; one that used "call_1" twice lost a call."""
    events(
        run, *((kind, t, fields) for t, kind, fields in zip((1, 2, 3, 4), KINDS, (TOOL, DONE, TOOL, DONE), strict=True))
    )
    assert [(one.started, one.done) for one in evidence.read(run).tools] == [(1, 2), (3, 4)]


KINDS = ("tool_started", "tool_done", "tool_started", "tool_done")


def test_a_token_index_beyond_the_chunks_is_refused(run: RunDir) -> None:
    kind, t_ns, fields = done(WHOLE)
    events(run, (kind, t_ns, {**fields, "chunks_without_token": [0, 4]}))
    with pytest.raises(ArtifactError, match=r":2: chunks_without_token: expected indices below 4, got 4$"):
        evidence.read(run)


def test_chunks_that_are_not_in_the_order_of_time_are_refused(run: RunDir) -> None:
    """Gaps between them would be below 0, and were left out unsaid."""
    kind, t_ns, fields = done(WHOLE)
    events(run, (kind, t_ns, {**fields, "chunk_ns": fields["chunk_ns"][::-1]}))
    with pytest.raises(ArtifactError, match=r":2: request_done: expected chunk_ns in the order of time, got "):
        evidence.read(run)


@pytest.mark.parametrize("name", ["events.jsonl", "markers.jsonl"])
def test_a_torn_end_of_either_file_is_said(run: RunDir, name: str) -> None:
    events(run, done(FAILED))
    JsonLinesWriter(run.markers_path, schemas.MARKERS).close()
    with (run.path / name).open("ab") as file:
        file.write(b'{"event":"req')
    (doubt,) = evidence.read(run).doubts
    assert doubt.code == f"torn-{name.removesuffix('.jsonl')}"
    assert evidence.read(run).completions == (FAILED,)


def test_a_probes_events_say_how_it_was_sized_when_it_was_thrown_and_what_primers_left(run: RunDir) -> None:
    usage = {"prompt_tokens": 501, "completion_tokens": 1, "cached_tokens": None, "reasoning_tokens": None}
    primed = {"segment": "d3-r1", "t_sent": 1, "error": None}
    events(
        run,
        SIZED,
        ("probe_primed", 2, {**primed, "request": "d3-r1-h0-t0", "agent": "h0", "usage": usage}),
        ("probe_primed", 3, {**primed, "request": "d3-r1-d0-t0", "agent": "d0", "usage": None}),
        THROWN,
        ("prompt_thrown", 20, {**THROW, "segment": "d0-r1", "settled_from": None}),
    )
    assert evidence.read(run).probe == evidence.ProbeEvents(
        sized=LENGTH,
        thrown={"d3-r1": (9, 5), "d0-r1": (20, None)},
        primed={"d3-r1": {"h0": 501, "d0": None}},
    )
