"""Is there a model for everything that a run writes, with exactly the fields that are written?"""

import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from agentload.agents.outcome import request_done_fields
from agentload.artifacts.events import (
    EVENT,
    MARKER,
    Event,
    PhasesFields,
    RequestDone,
    Sampled,
    TimingsFields,
    UsageFields,
)
from agentload.artifacts.strict import validated
from agentload.core.records import REQUEST_DONE_FIELDS, AnswerPhases, Completion, ServerTimings, Usage
from agentload.servers.devices import DeviceMemory
from agentload.servers.sampler import Sample

WHO = {"request": "a0-r0", "agent": "a0", "turn": 0}
DONE = Completion("a0-r0", "a0", 0, 5, 6, 7, 9, 200, finish="stop", usage=Usage(10, 2, 0, 1), chunk_ns=(6, 7, 9))


def event(kind: str, t_ns: int, **values: Any) -> Event:
    return validated(EVENT, json.dumps({"event": kind, "t": t_ns, **values}).encode())


def test_the_models_fields_are_those_of_the_records() -> None:
    assert set(UsageFields.model_fields) == {one.name for one in fields(Usage)}
    assert set(TimingsFields.model_fields) == {one.name for one in fields(ServerTimings)}
    assert set(PhasesFields.model_fields) == {one.name for one in fields(AnswerPhases)}
    written = {"event", "t", *WHO, *request_done_fields(replace(DONE, phases=AnswerPhases(0.1, 2.0, 3.0)))}
    assert set(RequestDone.model_fields) == written
    assert set(REQUEST_DONE_FIELDS) < {one.name for one in fields(Completion)}


def test_usage_and_timings_come_back_as_records() -> None:
    timings = ServerTimings(8, 2, 1.5, 3, 2.5)
    one = event("request_done", 9, **WHO, **{**request_done_fields(DONE), "timings": timings_of(timings)})
    assert isinstance(one, RequestDone)
    assert one.usage is not None
    assert one.usage.record() == DONE.usage
    assert one.timings is not None
    assert one.timings.record() == timings


def timings_of(timings: ServerTimings) -> dict[str, Any]:
    return {one.name: getattr(timings, one.name) for one in fields(ServerTimings)}


def test_a_sample_has_the_fields_that_the_sampler_writes() -> None:
    values = {one.name: 1 for one in fields(Sample)} | {"devices": [asdict(DeviceMemory(0, "card", 1, 2))]}
    assert event("sample", 1, where="begin", **values).t == 1


def test_a_sample_of_a_run_from_before_devices_were_sampled_is_read() -> None:
    old = {"cpu_s": 0.5, "rss_bytes": 1, "processes": 1, "host_busy_s": 2.0, "host_free_bytes": 9}
    found = event("sample", 1, where="end", **old)
    assert isinstance(found, Sampled)
    assert (found.host_total_bytes, found.devices) == (None, None)


@pytest.mark.parametrize("kind", ["", "request_sen", "REQUEST_SENT", "zzz", 5, None, ["request_sent"]])
def test_an_unknown_kind_is_refused_by_name(kind: Any) -> None:
    with pytest.raises(
        ValueError, match=r"event.*(expected one of 'request_sent', 'first_byte', .*, got|there is none)"
    ):
        validated(EVENT, json.dumps({"event": kind, "t": 1}).encode())


@pytest.mark.parametrize(
    "changed",
    [{"t_sent": 7}, {"t_first_byte": 8}, {"t_first_token": 10}, {"t_first_token": 5}, {"t_sent": 100}],
    ids=str,
)
def test_stamps_of_an_answer_that_are_out_of_order_are_refused(changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected t_sent <= t_first_byte <= t_first_token <= t, got"):
        event("request_done", 9, **WHO, **{**request_done_fields(DONE), **changed})


def test_stamps_that_are_missing_leave_the_others_in_order() -> None:
    kept = {**request_done_fields(DONE), "t_first_byte": None, "t_first_token": None}
    assert event("request_done", 9, **WHO, **kept).t == 9


def test_a_marker_line_becomes_a_marker() -> None:
    line = {"action": "end", "segment": "s1", "run": "r", "condition": "c", "t": 5, "where": "log", "inode": 2}
    marker = validated(MARKER, json.dumps({**line, "offset": 7}).encode()).record()
    assert (marker.action, marker.segment, marker.run, marker.condition) == ("end", "s1", "r", "c")
    assert (marker.at_ns, marker.log_offset, marker.inode, marker.proof) == (5, 7, 2, None)
    with pytest.raises(ValueError, match=r"^action: expected 'begin' or 'end', got 'middle'$"):
        validated(MARKER, json.dumps({**line, "action": "middle", "offset": None}).encode())
