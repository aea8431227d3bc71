"""Are the spans of a run laid over what its log tells, and is each request's source said?"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentload.analysis import spans
from agentload.artifacts import schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.core.attribution import attribute
from agentload.core.records import Completion, LogFacts, Match, Request, Segment, Source, Timeline, Usage
from agentload.serverlogs.vllm import FORMAT

T = 1_795_962_196 * 10**9
MS = 1_000_000
SEGMENT = Segment("s", "run", "c", T - 1000 * MS, T + 60_000 * MS)


def span(rid: str, arrived_ms: int, prompt: int = 700, decoded: int = 24, whole_s: float = 1.5) -> dict[str, Any]:
    """Waits 100 ms, prefills 400 ms, decodes 1,000 ms."""
    return {
        "t": T,
        "scope": "vllm.tracing.otel",
        "name": "llm_request",
        "start": T + arrived_ms * MS,
        "end": T + (arrived_ms + 1500) * MS,
        "attrs": {
            "gen_ai.request.id": rid,
            "gen_ai.latency.time_to_first_token": 0.5,
            "gen_ai.latency.time_in_queue": 0.1,
            "gen_ai.latency.time_in_model_prefill": 0.4,
            "gen_ai.latency.time_in_model_decode": 1.0,
            "gen_ai.latency.e2e": whole_s,
            "gen_ai.usage.prompt_tokens": prompt,
            "gen_ai.usage.completion_tokens": decoded,
        },
    }


def written(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "spans.jsonl"
    with JsonLinesWriter(path, schemas.SPANS) as writer:
        for line in lines:
            writer.append(line)
    return path


def read(folder: Path, *lines: dict[str, Any], running: bool = False) -> spans.Spans:
    found = spans.read(written(folder, *lines), running=running)
    assert found is not None
    return found


def log(*ids: str, stamped: bool = True) -> LogFacts:
    """vLLM's log of these requests, received at T."""
    text = "".join(
        f"(APIServer pid=7) INFO 11-29 14:23:16 [logger.py:44] Received request {one}: params: SamplingParams(n=1), "
        "lora_request: None.\n"
        for one in ids
    )
    reader = FORMAT.reader([T] * len(ids) if stamped else None)
    reader.feed(text.encode())
    return reader.close()


def answered(rid: str | None, sent_ms: int, usage: Usage | None = None) -> Completion:
    return Completion(
        request=f"r-{sent_ms}",
        agent="a0",
        turn=0,
        t_sent=T + sent_ms * MS,
        t_first_byte=T + (sent_ms + 600) * MS,
        t_first_token=T + (sent_ms + 600) * MS,
        t_done=T + (sent_ms + 1600) * MS,
        status=200,
        finish="stop",
        usage=usage or Usage(700, 24, 96, None),
        server_id=rid,
    )


def joined(facts: LogFacts, found: spans.Spans, *completions: Completion) -> tuple[Request, ...]:
    timed = spans.laid_over(facts, found, completions)
    return spans.sourced(attribute("run", completions, timed, [SEGMENT]).requests, found)


def test_a_request_has_the_phases_of_its_span_and_the_tokens_of_its_answer(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10))
    (row,) = joined(log("c-1"), found, answered("c-1", 0))
    assert (row.match, row.prefill_source, row.decode_source) == (Match.EXACT, Source.SPANS, Source.SPANS)
    assert (row.prefill_start, row.prefill_end) == (T + 110 * MS, T + 510 * MS)
    assert (row.decode_start, row.decode_end) == (T + 510 * MS, T + 1510 * MS)
    assert row.decode_untimed_tokens == 1  # from the first token to the last one
    assert (row.prompt_tokens, row.cached_tokens, row.new_prefill_tokens, row.decoded_tokens) == (700, 96, 604, 24)
    assert (row.prefill_proof, row.decode_proof) == (None, None)  # no line of the log proves them
    assert spans.doubts([row], found) == ()


def test_a_strangers_request_has_the_tokens_of_its_span(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10), span("foreign", 5000, prompt=90, decoded=3))
    rows = joined(log("c-1", "foreign"), found, answered("c-1", 0))
    (stranger,) = [row for row in rows if row.match is Match.SERVER_ONLY]
    assert (stranger.label, stranger.prompt_tokens, stranger.decoded_tokens) == ("foreign", 90, 3)
    assert (stranger.segment, stranger.prefill_source) == ("s", Source.SPANS)


def test_a_log_that_tells_no_requests_gets_them_from_the_spans(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10), span("c-2", 20))
    rows = joined(log(), found, answered("c-1", 0), answered("c-2", 1))
    assert [(row.label, row.match) for row in rows] == [("c-1", Match.EXACT), ("c-2", Match.EXACT)]


def test_a_log_on_another_clock_gives_names_and_the_spans_the_times(tmp_path: Path) -> None:
    facts = log("c-1", "c-2", stamped=False)
    assert facts.timeline is Timeline.WALL
    rows = joined(facts, read(tmp_path, span("c-1", 10)), answered("c-1", 0), answered("c-2", 1))
    assert [row.prefill_source for row in rows] == [Source.CLIENT, Source.SPANS]
    assert rows[1].prefill_start == T + 110 * MS


def test_without_ids_counts_and_times_join(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10), span("c-2", 20, prompt=800))
    one, two = answered(None, 0), answered(None, 12, Usage(800, 24, None, None))
    rows = joined(log(), found, one, two)
    assert [(row.request, row.label, row.match) for row in rows] == [
        ("r-0", "c-1", Match.UNIQUE),
        ("r-12", "c-2", Match.UNIQUE),
    ]


def test_an_answer_without_a_span_is_said_and_keeps_the_clients_times(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10))
    rows = joined(log("c-1", "c-2"), found, answered("c-1", 0), answered("c-2", 3000))
    assert [row.prefill_source for row in rows] == [Source.SPANS, Source.CLIENT]
    assert [one.code for one in spans.doubts(rows, found)] == ["answers-without-span"]


def test_a_span_that_counts_another_prompt_than_the_answer_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10, prompt=701))
    rows = joined(log("c-1"), found, answered("c-1", 0))
    assert rows[0].prompt_tokens == 700
    assert [one.code for one in spans.doubts(rows, found)] == ["spans-differ"]


def test_a_server_that_sent_nothing_of_a_request_is_one_doubt_once_the_run_has_ended(tmp_path: Path) -> None:
    loading = {"t": T, "scope": "x", "name": "Load weights", "start": T, "end": T + 1, "attrs": {}}
    path = written(tmp_path, loading)
    ended, running = spans.read(path, running=False), spans.read(path, running=True)
    assert ended is not None
    assert running is not None
    assert [one.code for one in ended.doubts] == ["no-spans"]
    assert running.doubts == ()
    assert spans.read(tmp_path / "none.jsonl", running=False) is None


def test_spans_that_had_no_room_are_said(tmp_path: Path) -> None:
    found = read(tmp_path, span("c-1", 10), {"closed": {"received": 1, "dropped": 4, "refused": 2}})
    (doubt,) = found.doubts
    assert doubt.code == "spans-lost"
    assert "4 spans had no room, 2 exports could not be read" in doubt.message


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, span("c-1", 10))
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(span("c-2", 20))[:50])
    found = spans.read(path, running=True)
    assert found is not None
    assert [one.label for one in found.requests] == ["c-1"]


def test_how_far_the_spans_times_may_be_off_is_the_logs_resolution_then(tmp_path: Path) -> None:
    # first token + decode = 1.5 s, end to end 1.507 s
    found = read(tmp_path, span("c-1", 10, whole_s=1.507))
    timed = spans.laid_over(replace(log("c-1"), resolution_ns=MS), found, ())
    assert timed is not None
    assert timed.resolution_ns == 7 * MS


def export_line(rid: str, **changed: Any) -> bytes:
    line = {
        "request_parameters": "{}",
        "id": rid,
        "finish_reason": {"type": "stop"},
        "prompt_tokens": 700,
        "cached_tokens": 96,
        "completion_tokens": 24,
        "forward_entry_time": T / 1e9 + 0.125,
        "prefill_finished_time": T / 1e9 + 0.5,
        "request_received_ts": T / 1e9,
        "request_finished_ts": T / 1e9 + 1.5,
        **changed,
    }
    return json.dumps(line).encode() + b"\n"


def test_the_files_that_sglang_exports_tell_phases_and_all_counts(tmp_path: Path) -> None:
    # A new file begins with each hour.
    (tmp_path / "sglang-request-metrics-20261129_14.log").write_bytes(export_line("c-1"))
    (tmp_path / "sglang-request-metrics-20261129_15.log").write_bytes(
        export_line("foreign", prompt_tokens=800, forward_entry_time=T / 1e9 + 0.25)
    )
    found = spans.exported(tmp_path, running=False)
    assert found is not None
    ours, stranger = joined(log(), found, answered("c-1", 0, Usage(700, 24, None, None)))
    assert (ours.match, ours.prefill_source, ours.decode_source) == (Match.EXACT, Source.EXPORT, Source.EXPORT)
    assert (ours.prefill_start, ours.prefill_end) == (T + 125 * MS, T + 500 * MS)
    # the answer does not tell the cached tokens; the file does
    assert (ours.prompt_tokens, ours.cached_tokens, ours.new_prefill_tokens, ours.decoded_tokens) == (700, 96, 604, 24)
    assert (stranger.match, stranger.prompt_tokens) == (Match.SERVER_ONLY, 800)
    # SGLang's own `decode_throughput` is all tokens in this time.
    assert (ours.decode_untimed_tokens, stranger.decode_untimed_tokens) == (0, 0)


def test_an_export_without_times_leaves_the_clients(tmp_path: Path) -> None:
    line = export_line("c-1", forward_entry_time=None, prefill_finished_time=None)
    (tmp_path / "sglang-request-metrics-20261129_14.log").write_bytes(line)
    found = spans.exported(tmp_path, running=False)
    assert found is not None
    (row,) = joined(log(), found, answered("c-1", 0))
    assert (row.prefill_source, row.cached_tokens) == (Source.CLIENT, 96)


def test_a_server_that_was_to_export_and_did_not_is_one_doubt(tmp_path: Path) -> None:
    found = spans.exported(tmp_path, running=False)
    assert found is not None
    assert [one.code for one in found.doubts] == ["no-exports"]
    assert spans.exported(tmp_path / "none", running=False) is None
