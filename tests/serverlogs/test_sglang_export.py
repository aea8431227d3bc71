"""Does the file that SGLang exports become the phases of its requests?

Lines are made after SGLang 0.5's exporter: `request_parameters`, then the answer's meta_info. No real file was at hand.
"""

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agentload.analysis import logfile
from agentload.core.records import LogFacts, Timeline
from agentload.serverlogs import formats
from agentload.serverlogs.sglang_export import FORMAT

T = 1_795_962_196
ONE: dict[str, Any] = {
    "request_parameters": json.dumps({"text": "a prompt\nof lines", "rid": "r1"}),
    "id": "r1",
    "finish_reason": {"type": "stop", "matched": 7},
    "prompt_tokens": 5061,
    "cached_tokens": 1000,
    "completion_tokens": 40,
    "queue_time": 0.25,
    "forward_entry_time": T + 0.5,
    "prefill_finished_time": T + 2.75,
    "request_received_ts": float(T),
    "request_finished_ts": T + 4.0,
    "e2e_latency": 4.0,
}


def read(*lines: dict[str, Any]) -> LogFacts:
    reader = FORMAT.reader()
    reader.feed(b"".join(json.dumps(one).encode() + b"\n" for one in lines))
    return reader.close()


def test_prefill_and_tokens_of_a_request_are_those_of_its_line() -> None:
    facts = read(ONE)
    (one,) = facts.requests
    assert facts.timeline is Timeline.UNIX
    assert (one.label, one.server_id, one.finish) == ("r1", "r1", "stop")
    assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (5061, 1000, 4061, 40)
    ns = T * 10**9
    assert (one.t_arrived, one.prefill_start, one.prefill_end) == (ns, ns + 500_000_000, ns + 2_750_000_000)
    assert (one.decode_start, one.decode_end, one.t_end) == (one.prefill_end, ns + 4_000_000_000, ns + 4_000_000_000)
    assert facts.doubts == ()


def test_the_file_is_known_by_its_lines_and_no_other_format_claims_it() -> None:
    found = formats.look(json.dumps(ONE).encode() + b"\n")
    assert found.scores == {name: int(name == "sglang-export") for name in formats.installed()}


@pytest.mark.parametrize(
    "times",
    [
        {"forward_entry_time": 12.5, "prefill_finished_time": 14.0},  # a monotonic clock
        {"forward_entry_time": T + 3.0, "prefill_finished_time": T + 2.0},
        {"forward_entry_time": T + 3.0, "prefill_finished_time": T + 9.0},
    ],
)
def test_a_prefill_outside_its_request_is_left_out_and_said(times: dict[str, float]) -> None:
    facts = read({**ONE, **times})
    (one,) = facts.requests
    assert (one.prefill_start, one.prefill_end, one.decode_start, one.decode_end) == (None,) * 4
    assert one.new_prefill_tokens == 4061
    assert [doubt.code for doubt in facts.doubts] == ["impossible-times"]


def test_without_metrics_there_are_tokens_and_no_times() -> None:
    without = {name: value for name, value in ONE.items() if not name.endswith("_time")}
    facts = read(without)
    assert facts.requests[0].prefill_start is None
    assert facts.doubts == ()


def test_more_cached_tokens_than_the_prompt_has_are_not_known() -> None:
    facts = read({**ONE, "prompt_tokens": 59_946, "cached_tokens": 122_884})
    (one,) = facts.requests
    assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens) == (59_946, None, None)
    assert [doubt.code for doubt in facts.doubts] == ["cached-above-prompt"]


def test_an_aborted_request_is_cancelled() -> None:
    assert read({**ONE, "finish_reason": {"type": "abort", "message": "m"}}).requests[0].finish == "cancelled"


def test_lines_of_something_else_are_unknown() -> None:
    facts = read({"request_parameters": "{}"}, {"id": "r1", "prompt_tokens": 3})
    assert (facts.lines.unknown, len(facts.requests)) == (2, 0)


def test_half_an_emoji_as_id_and_as_reason_is_kept_as_its_escape_and_fits_every_table(tmp_path: Path) -> None:
    line = json.dumps({**ONE, "id": "\ud83d", "finish_reason": {"type": "\udfff"}})
    assert r'"id": "\ud83d"' in line
    facts = read({**ONE, "id": "\ud83d", "finish_reason": {"type": "\udfff"}})
    assert [(one.server_id, one.prompt_tokens, one.finish) for one in facts.requests] == [(r"\ud83d", 5061, r"\udfff")]
    logfile.read_stream(io.BytesIO(line.encode() + b"\n"), "export.jsonl").write(tmp_path)
    assert pl.read_parquet(tmp_path / "requests.parquet")["finish"].to_list() == [r"\udfff"]


def test_a_duration_of_400_digits_is_not_known_and_costs_no_more() -> None:
    huge = {**ONE, "e2e_latency": 10**400}
    del huge["request_finished_ts"]
    facts = read(huge)
    assert facts.lines.understood == 1
    assert [(one.prompt_tokens, one.t_arrived, one.t_end) for one in facts.requests] == [(5061, T * 10**9, None)]
