"""Are the phases that vLLM sends with an answer kept, through the run's events, up to the request's times?"""

import json
from typing import Any

import pytest

from agentload.agents.answer import Answer
from agentload.agents.outcome import request_done_fields
from agentload.agents.sse import Event
from agentload.artifacts.events import EVENT, RequestDone
from agentload.artifacts.strict import validated
from agentload.core.attribution import attribute
from agentload.core.records import AnswerPhases, Completion, Segment, Source

MS = 1_000_000
# Of a real vLLM 0.32 with --enable-per-request-metrics.
METRICS = {
    "time_to_first_token_ms": 98.7,
    "generation_time_ms": 687.9,
    "queue_time_ms": 0.07,
    "mean_itl_ms": 29.9,
    "tokens_per_second": 30.5,
}


def answer_with(metrics: Any) -> Answer:
    found = Answer()
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    found.add(Event(10, "message", json.dumps({"id": "c", "choices": [choice]}).encode()))
    last = {"id": "c", "choices": [], "usage": {"prompt_tokens": 5}, "metrics": metrics}
    found.add(Event(20, "message", json.dumps(last).encode()))
    return found


def test_the_metrics_of_the_last_chunk_are_the_phases() -> None:
    assert answer_with(METRICS).phases() == AnswerPhases(0.07, 98.7, 687.9)


@pytest.mark.parametrize(
    "metrics",
    [None, {}, [], "soon", METRICS | {"generation_time_ms": None}, METRICS | {"time_to_first_token_ms": -1}],
)
def test_metrics_without_both_phases_are_none(metrics: Any) -> None:
    assert answer_with(metrics).phases() is None


def done(phases: AnswerPhases | None) -> Completion:
    return Completion("r", "a", 0, 0, 900 * MS, 950 * MS, 2000 * MS, 200, finish="stop", phases=phases)


def test_an_event_holds_them_and_one_of_before_has_none() -> None:
    sent = done(AnswerPhases(0.07, 98.7, 687.9))
    fields = {"event": "request_done", "t": sent.t_done, "request": "r", "agent": "a", "turn": 0}
    event = validated(EVENT, json.dumps(fields | request_done_fields(sent)).encode())
    assert isinstance(event, RequestDone)
    assert event.phases is not None
    assert event.phases.record() == sent.phases
    assert "phases" not in request_done_fields(done(None))


def test_they_are_laid_backwards_from_the_last_byte() -> None:
    (row,) = attribute(
        "run", [done(AnswerPhases(None, 100.0, 700.0))], None, [Segment("s", "run", "c", 0, None)]
    ).requests
    assert (row.prefill_start, row.prefill_end) == (1200 * MS, 1300 * MS)
    assert (row.decode_start, row.decode_end) == (1300 * MS, 2000 * MS)
    assert (row.prefill_source, row.decode_source) == (Source.USAGE, Source.USAGE)
