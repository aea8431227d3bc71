"""Do the counts of a request lead back to the bytes that prove them, and has a file that is no log its own source?"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import logfile
from agentload.commands.logtables import write_tables
from agentload.core.attribution import attribute
from agentload.core.records import Completion, LogFacts, ServerTimings, Source
from agentload.report import logfile_terminal
from agentload.serverlogs import formats
from tests.serverlogs.test_sglang_export import ONE as EXPORTED

LOGS = Path(__file__).resolve().parents[1] / "serverlogs"
Row = dict[str, Any]


def exported(path: Path, folder: Path, table: str) -> list[Row]:
    write_tables(logfile.read_file(path), folder, "jsonl")
    return [json.loads(line) for line in (folder / f"{table}.jsonl").read_text(encoding="utf-8").splitlines()]


def line_at(data: bytes, number: int, offset: int) -> bytes:
    """The line that begins at a byte; it must be the one with that number."""
    assert data.count(b"\n", 0, offset) == number - 1
    assert offset == 0 or data[offset - 1 : offset] == b"\n"
    return data[offset:].partition(b"\n")[0]


def by_ds4(row: Row, count: str, line: bytes) -> str:
    """Its lines name a request by its cached tokens, its prompt, and what is new of that."""
    found = re.fullmatch(rb".* ds4-server: chat ctx=(\d+)\.\.(\d+):(\d+) (?:TOOLS )?prompt (start|done.*)", line)
    assert found is not None, line
    assert row[count] == int(found[1 if count == "cached_tokens" else 2])
    return "prompt"


def by_llamacpp(row: Row, count: str, line: bytes) -> str:
    """At its end a slot holds cached, new and decoded tokens, but the last one; at -lv 4 both counts stand there."""
    if held := re.fullmatch(rb".* stop processing: n_tokens = (\d+), truncated = [01]", line):
        cached = int(held[1]) - (row["decoded_tokens"] - 1) - row["new_prefill_tokens"]
        assert row[count] == (cached if count == "cached_tokens" else cached + row["new_prefill_tokens"])
        return "release"
    if first := re.fullmatch(rb".* cached n_tokens = (\d+), memory_seq_rm \[\d+, end\)", line):
        assert (count, row[count]) == ("cached_tokens", int(first[1]))
        return "cached"
    whole = re.fullmatch(rb".* new prompt, n_ctx_slot = \d+, n_keep = 0, task\.n_tokens = (\d+)", line)
    assert whole is not None, line
    assert (count, row[count]) == ("prompt_tokens", int(whole[1]))
    return "new prompt"


def by_sglang(row: Row, count: str, line: bytes) -> str:
    found = re.search(rb"'%s': (\d+)" % count.encode(), line)
    assert found is not None, line
    assert row[count] == int(found[1])
    return "finish"


def by_otlp(row: Row, count: str, line: bytes) -> str:
    assert (count, row[count]) == ("prompt_tokens", json.loads(line)["attrs"]["gen_ai.usage.prompt_tokens"])
    return "span"


@pytest.mark.parametrize(
    ("path", "check", "kinds", "proven"),
    [
        (LOGS / "ds4" / "truth_batched6_q2048.log", by_ds4, {"prompt"}, 60),  # 30 requests, two counts each
        (LOGS / "llamacpp" / "three_agents.log", by_llamacpp, {"release"}, 20),  # 10 that came to their end
        (LOGS / "llamacpp" / "real_verbose.log", by_llamacpp, {"cached", "new prompt"}, None),
        (LOGS / "otlp" / "three.jsonl", by_otlp, {"span"}, 3),
        (LOGS / "sglang" / "ranks.log", by_sglang, {"finish"}, None),
    ],
    ids=["ds4", "llamacpp", "llamacpp -lv 4", "otlp", "sglang"],
)
def test_cached_and_prompt_tokens_lead_back_to_the_bytes_that_prove_them(
    path: Path, check: Callable[[Row, str, bytes], str], kinds: set[str], proven: int | None, tmp_path: Path
) -> None:
    data = path.read_bytes()
    seen = []
    for row in exported(path, tmp_path, "requests"):
        for count, proof in (("cached_tokens", "cached_proof"), ("prompt_tokens", "prompt_proof")):
            places = row[f"{proof}_line"], row[f"{proof}_offset"]
            assert (row[count] is None) == (places == (None, None))
            if row[count] is not None:
                seen.append(check(row, count, line_at(data, *places)))
    assert set(seen) == kinds
    assert proven is None or len(seen) == proven


def test_a_count_that_the_answer_tells_has_no_proof_in_the_log() -> None:
    """A context shift: the log cannot tell the cached tokens, the answer's timings do."""
    rates = "(   10.00 ms per token,   100.00 tokens per second)"
    lines = [
        "0.00.000.100 I srv          init: initializing ...",
        "0.01.000.000 I slot launch_slot_: id  0 | task 7 | processing task, is_child = 0",
        "0.02.000.000 I slot update_slots: id  0 | task 7 | slot context shift, n_keep = 0, n_left = 9, n_discard = 4",
        f"0.03.000.000 I slot print_timing: id  0 | task 7 | prompt eval time =     600.00 ms /    60 tokens {rates}",
        f"0.03.000.100 I slot print_timing: id  0 | task 7 |        eval time =     300.00 ms /    30 tokens {rates}",
        "0.03.000.200 I slot      release: id  0 | task 7 | stop processing: n_tokens = 85, truncated = 0",
    ]
    facts: LogFacts = formats.read([("\n".join(lines) + "\n").encode()]).facts
    answer = Completion("a0-r0", "a0", 0, 1, 2, 3, 4, 200, timings=ServerTimings(40, 60, 600.0, 30, 300.0))
    (row,) = attribute("r", [answer], facts, ()).requests
    assert (row.cached_tokens, row.cached_source, row.cached_proof) == (40, Source.USAGE, None)
    assert (row.prompt_tokens, row.prompt_proof) == (100, None)
    assert (row.prefill_logged_ms, row.decode_logged_ms) == (600.0, 300.0)


# ---- files that are no log -----------------------------------------------------------------------------------------


def test_spans_accounted_for_by_themselves_are_the_source_of_their_times(tmp_path: Path) -> None:
    path = LOGS / "otlp" / "three.jsonl"
    requests = exported(path, tmp_path / "a", "requests")
    assert [(one["prefill_source"], one["decode_source"], one["cached_source"]) for one in requests] == [
        ("spans", "spans", None)
    ] * 3
    phases = exported(path, tmp_path / "b", "phases")
    assert {one["source"] for one in phases} == {"spans"}
    # The lines are those of the file: the request that came first stands in the third one.
    assert [one["end_line"] for one in phases[:2]] == [3, 3]
    # By its attributes: time_in_model_prefill 0.785755015 s, time_in_model_decode 1.507843816 s.
    assert (requests[0]["prefill_time_ms"], requests[0]["decode_time_ms"]) == pytest.approx((785.755015, 1507.843816))
    said = logfile_terminal.render(logfile.read_file(path).found)
    assert "times of prefill and decode are from: OTLP spans" in said


def test_an_export_file_accounted_for_by_itself_is_the_source_of_its_times_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "sglang-request-metrics-20261130_04.log"
    path.write_text(json.dumps(EXPORTED) + "\n", encoding="utf-8")
    (row,) = exported(path, tmp_path / "out", "requests")
    assert (row["prefill_source"], row["decode_source"], row["cached_source"]) == ("export", "export", "export")


def test_a_logs_own_times_are_the_logs(tmp_path: Path) -> None:
    path = LOGS / "llamacpp" / "three_agents.log"
    sources = {one["prefill_source"] for one in exported(path, tmp_path, "requests")}
    assert sources == {"log", None}
    assert logfile.read_file(path).found["segments"][0]["phases"] is None
