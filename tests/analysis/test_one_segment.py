"""Does `--segment` account for that one alone, and say which there are where there is no such?"""

import re
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import logfile
from agentload.core.markers import render
from agentload.errors import UsageError
from agentload.report import logfile_terminal
from tests.analysis.test_logfile import T0, TRUTH, S, new_tokens_between, with_markers

LOGS = Path(__file__).resolve().parents[1] / "serverlogs"
NGRAM = LOGS / "vllm" / "ngram.log"
MARKS = ((4, "begin", "s1", 0), (300, "end", "s1", 150), (310, "begin", "s2", 160), (660, "end", "s2", 345))


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    return with_markers(TRUTH, tmp_path / "marked.log", *MARKS)


def whole_of(found: dict[str, Any]) -> dict[str, Any]:
    (segment,) = found["segments"]
    whole: dict[str, Any] = segment["whole"]
    return whole


def test_sums_list_and_tables_are_of_that_segment_alone(marked: Path) -> None:
    made = logfile.read_file(marked, only="s2")
    tokens = new_tokens_between(marked, 313, 664)  # by the log's own `prompt start` lines between its markers
    assert whole_of(made.found)["new_prefill_tokens"] == sum(tokens)
    assert made.found["only"] == {"segment": "s2", "of": 2}
    rows = made.found["listed"]["rows"]
    assert sorted(row["new_prefill_tokens"] for row in rows) == sorted(tokens)
    assert made.found["listed"]["left_out"] == 0
    assert sorted(row.new_prefill_tokens or 0 for row in made.requests) == sorted(tokens)
    assert {row.segment for row in made.requests} == {"s2"}
    assert made.found["requests"]["total"] == 30  # of the log: what is said of all of it stays


def test_the_report_says_that_one_is_shown(marked: Path) -> None:
    text = logfile_terminal.render(logfile.read_file(marked, only="s1").found)
    assert "shown of 2 segments: s1\n" in text
    assert "segment s1 of run r1" in text
    assert "segment s2 of run" not in text
    both = logfile_terminal.render(logfile.read_file(marked).found)
    assert "shown of" not in both


def test_a_segment_can_be_named_with_its_run(marked: Path, tmp_path: Path) -> None:
    again = re.sub(rb"run=r1\b", b"run=r2", marked.read_bytes())
    twice = tmp_path / "twice.log"
    twice.write_bytes(marked.read_bytes() + again)
    names = [
        [(one["run"], one["segment"]) for one in logfile.read_file(twice, only=only).found["segments"]]
        for only in ("s1", "r2/s1")
    ]
    assert names == [[("r1", "s1"), ("r2", "s1")], [("r2", "s1")]]


def test_an_unknown_segment_is_answered_with_those_there_are(marked: Path) -> None:
    with pytest.raises(UsageError, match=r"--segment: expected one that marked\.log has: r1/s1, r1/s2; got 's3'"):
        logfile.read_file(marked, only="s3")
    with pytest.raises(UsageError, match=r"expected one that truth_batched6_q128\.log has: log; got 'r1/log'"):
        logfile.read_file(TRUTH, only="r1/log")


def test_of_very_many_segments_the_first_twenty_are_named(tmp_path: Path) -> None:
    path = tmp_path / "many.log"
    lines = [
        render(action, f"s{number}", "r1", "c", T0 + (2 * number + end) * S) + b"\n"
        for number in range(25)
        for end, action in enumerate(("begin", "end"))
    ]
    path.write_bytes(b"".join(lines) + TRUTH.read_bytes())
    with pytest.raises(UsageError, match=r"r1/s18, r1/s19, \.\.\.; got 'x'"):
        logfile.read_file(path, only="x")


def test_one_server_start_of_a_log_without_markers_can_be_shown(tmp_path: Path) -> None:
    log = (LOGS / "llamacpp" / "three_agents.log").read_bytes()
    path = tmp_path / "twice.log"
    path.write_bytes(log * 2)
    found = logfile.read_file(path, only="log-start1").found
    assert [one["segment"] for one in found["segments"]] == ["log-start1"]
    assert {row["boot"] for row in found["listed"]["rows"]} == {1}
    assert len(found["listed"]["rows"]) == 13  # of one start, by its client


def test_statistics_are_of_that_segment(tmp_path: Path) -> None:
    lines = NGRAM.read_bytes().splitlines(keepends=True)
    path = tmp_path / "n.log"
    begin, end = (render(action, "s1", "r1", "c", T0) + b"\n" for action in ("begin", "end"))
    path.write_bytes(begin + end + render("begin", "s2", "r1", "c", T0 + S) + b"\n" + b"".join(lines))
    found = logfile.read_file(path, only="s1").found
    assert [(part["segment"], part["lines"]) for part in found["statistics"]["parts"]] == [("s1", 0)]
    other = logfile.read_file(path, only="s2").found
    # The log has 3 statistics lines, all of them behind the marker of s2.
    assert [(part["segment"], part["lines"]) for part in other["statistics"]["parts"]] == [("s2", 3)]
