"""Do spans of vLLM become the phases of its requests?

The spans are of a real vLLM 0.32 with a tiny model. Expected values in otlp/three.json were worked out by hand:
prefill ends at start + time_to_first_token, lasts time_in_model_prefill, and time_in_model_decode follows it.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import logfile
from agentload.core.records import LogFacts, Timeline
from agentload.report import logfile_terminal
from agentload.serverlogs import formats, spans
from agentload.serverlogs.jsonrequests import in_order
from agentload.serverlogs.otlp import FORMAT

DATA = Path(__file__).parent / "otlp"
LINES = (DATA / "three.jsonl").read_bytes().splitlines()
TOLD = json.loads((DATA / "three.json").read_text())
NAMES = ("prompt_tokens", "decoded_tokens", "t_arrived", "prefill_start", "prefill_end", "decode_end", "t_end")


def read(data: bytes, piece: int = 1 << 20) -> LogFacts:
    reader = FORMAT.reader()
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    assert reader.open_requests() == 0
    return reader.close()


def whole(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def exported(line: bytes) -> bytes:
    """The span as OTLP's file exporter writes it: 64-bit numbers as text."""
    flat = json.loads(line)

    def value(one: Any) -> dict[str, Any]:
        if isinstance(one, int):
            return {"intValue": str(one)}
        return {"doubleValue": one} if isinstance(one, float) else {"stringValue": one}

    span = {
        "traceId": flat["trace_id"],
        "spanId": "0102030405060708",
        "name": flat["name"],
        "kind": flat["kind"],
        "startTimeUnixNano": str(flat["start"]),
        "endTimeUnixNano": str(flat["end"]),
        "attributes": [{"key": key, "value": value(one)} for key, one in flat["attrs"].items()],
    }
    about = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    scope = {"scope": {"name": flat["scope"]}, "spans": [span]}
    return json.dumps({"resourceSpans": [{"resource": about, "scopeSpans": [scope]}]}).encode()


@pytest.mark.parametrize("lines", [LINES, [exported(line) for line in LINES]], ids=["flat", "exported"])
@pytest.mark.parametrize("piece", [1 << 20, 7])
def test_each_request_has_its_prefill_on_the_wall_clock(lines: list[bytes], piece: int) -> None:
    data = whole(lines)
    facts = read(data, piece)
    count = facts.lines
    assert [count.understood, count.ignored, count.unknown] == TOLD["counts"]
    assert (facts.timeline, facts.resolution_ns) == (Timeline.UNIX, TOLD["resolution_ns"])
    assert len(facts.requests) == 3
    for one, expected in zip(facts.requests, TOLD["requests"], strict=True):
        assert (one.label, one.server_id) == (expected["label"], expected["label"])
        assert {name: getattr(one, name) for name in NAMES} == {name: expected[name] for name in NAMES}
        assert one.decode_start == one.prefill_end
        assert (one.cached_tokens, one.new_prefill_tokens) == (None, None)
        assert {proof.line for _, proof in one.proofs} == {expected["line"]}
    assert facts.doubts == ()


@pytest.mark.parametrize("lines", [LINES, [exported(line) for line in LINES]], ids=["flat", "exported"])
def test_a_file_of_spans_is_known_by_its_lines_and_no_other_format_claims_it(lines: list[bytes]) -> None:
    found = formats.look(whole(lines))
    assert found.scores == {name: len(lines) if name == "otlp" else 0 for name in formats.installed()}


def test_the_account_of_a_file_shows_when_each_request_was_prefilled() -> None:
    made = logfile.read_file(DATA / "three.jsonl")
    # 0.785755015 + 0.603758196 + 0.544625765 s, none at the same time
    whole = made.found["segments"][0]["whole"]
    assert whole["prefill_union_ns"] == 1_934_138_976
    # 24, 24 and 16 tokens in 1.507843816 + 1.016858995 + 0.748018073 s, each from its first one to its last one.
    assert (whole["decoded_tokens"], whole["decode_speed_tokens"]) == (64, 61)
    assert whole["decode_tok_s"] == pytest.approx(61 / 3.272720884)
    text = logfile_terminal.render(made.found)
    # 2026-11-29: day 20,786 since 1970, so 1,795,910,400 s; 51,796.3119 s later. Line 3 has the first span.
    rows = [line.split() for line in text.splitlines() if re.match(r"\d+ +\d\d:", line)]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("3", "14:23:16.312", "0.786"),
        ("4", "14:23:18.667", "0.604"),
        ("5", "14:23:20.668", "0.545"),
    ]


def test_a_batch_that_was_sent_twice_counts_once() -> None:
    facts = read(whole([*LINES, *LINES[-3:]]))
    assert len(facts.requests) == 3
    assert [one.code for one in facts.doubts] == ["told-twice"]
    assert facts.lines.understood == 6


def test_a_torn_line_is_counted_not_dropped() -> None:
    facts = read(whole(LINES)[:-40])
    assert len(facts.requests) == 2
    assert (facts.lines.understood, facts.lines.unknown) == (2, 1)


def test_without_a_time_to_first_token_prefill_is_laid_behind_the_queue_and_that_is_said() -> None:
    span = json.loads(LINES[2])
    del span["attrs"]["gen_ai.latency.time_to_first_token"]
    facts = read(json.dumps(span).encode() + b"\n")
    # 0.000121277 s of queue behind the arrival, then 0.785755015 s
    assert (facts.requests[0].prefill_start, facts.requests[0].prefill_end) == (
        1795962196225072384 + 121277,
        1795962196225072384 + 121277 + 785755015,
    )
    assert [one.code for one in facts.doubts] == ["placed-by-queue"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_in_model_prefill", -1.0),
        ("time_in_model_prefill", 1e300),
        ("time_in_model_prefill", "soon"),
        pytest.param("time_in_model_prefill", 10**400, id="an integer of 401 digits"),
        pytest.param("time_in_model_prefill", float("nan"), id="no number"),
    ],
)
def test_a_duration_that_cannot_be_true_is_not_known(name: str, value: object) -> None:
    span = json.loads(LINES[2])
    span["attrs"][f"gen_ai.latency.{name}"] = value
    found = spans.request_of(span)
    assert found is not None
    assert (found.prefill_start, found.prefill_end) == (None, 1795962197097654104)


# The span of line 3 lasts 2.386 s: its first token came after 0.873 s, its prefill took 0.786 s.
@pytest.mark.parametrize(
    "durations",
    [
        pytest.param({"time_in_model_prefill": 100.0}, id="a prefill that began before the arrival"),
        pytest.param({"time_in_model_decode": 1e6}, id="a decode beyond the end"),
        pytest.param({"time_to_first_token": 1000.0}, id="a first token beyond the end"),
        pytest.param({"e2e": 1e6}, id="an end to end time beyond the end"),
        pytest.param({"time_in_model_decode": 1e6, "e2e": 5.0}, id="decode and end to end"),
    ],
)
def test_durations_that_do_not_fit_into_their_span_give_no_times_and_that_is_said(durations: dict[str, float]) -> None:
    span = json.loads(LINES[2])
    span["attrs"] |= {f"gen_ai.latency.{name}": value for name, value in durations.items()}
    facts = read(whole([json.dumps(span).encode(), *LINES[3:]]))
    one, *others = facts.requests
    assert (one.prefill_start, one.prefill_end, one.decode_start, one.decode_end) == (None,) * 4
    expected = TOLD["requests"][0]
    assert {name: getattr(one, name) for name in ("prompt_tokens", "decoded_tokens", "t_arrived", "t_end")} == {
        name: expected[name] for name in ("prompt_tokens", "decoded_tokens", "t_arrived", "t_end")
    }
    assert [other.prefill_end for other in others] == [each["prefill_end"] for each in TOLD["requests"][1:]]
    assert [doubt.code for doubt in facts.doubts] == ["impossible-times"]
    assert facts.resolution_ns == TOLD["resolution_ns"]


def test_phases_may_leave_their_span_by_as_much_as_clocks_disagree() -> None:
    second = 10**9
    assert in_order(10 * second, 20 * second, 9 * second, 15 * second, 15 * second, 21 * second)
    assert not in_order(10 * second, 20 * second, 9 * second - 1, 15 * second)
    assert not in_order(10 * second, 20 * second, 15 * second, 21 * second + 1)
    assert not in_order(10 * second, 20 * second, 15 * second, None, 15 * second - 1)
    assert in_order(None, None, 5, 6)
    assert not in_order(None, None, 6, 5)
    assert in_order(10 * second, 20 * second, None)


@pytest.mark.parametrize(
    "line",
    [
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [{"scopeSpans": [7]}]}',
        b'{"name": "llm_request"}',
        b"{" * 5000,
        b"not JSON",
    ],
)
def test_a_line_that_is_no_span_is_unknown(line: bytes) -> None:
    assert read(line + b"\n").lines.unknown == 1


def test_half_an_emoji_as_id_is_kept_as_its_escape() -> None:
    span = json.loads(LINES[2])
    span["attrs"]["gen_ai.request.id"] = "\ud83d"
    facts = read(json.dumps(span).encode() + b"\n")
    assert [one.server_id for one in facts.requests] == [r"\ud83d"]
    assert facts.lines.understood == 1
