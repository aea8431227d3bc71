"""Does the terminal answer what each request cost, within 80 columns, and with no number that was cut?"""

from pathlib import Path
from typing import Any

from agentload.analysis import logfile
from agentload.report import listed_lines, logfile_terminal
from agentload.report.page import Page

LOGS = Path(__file__).resolve().parents[1] / "serverlogs"
S = 1_000_000_000
DAY = 86_400 * S
WALL = {"log_timeline": "wall", "log_resolution_ns": S}
PROCESS = {"log_timeline": "process", "log_resolution_ns": 1000}
UNIX = {"log_timeline": "unix", "log_resolution_ns": 1_000_000}


def row(**known: Any) -> dict[str, Any]:
    told = {
        "request": "log boot 0 r",
        "boot": 0,
        "group": None,
        "start": 43_201 * S,
        "prompt_tokens": 6_000,
        "cached_tokens": 4_750,
        "new_prefill_tokens": 1_250,
        "decoded_tokens": 52,
        "prefill_ns": 52_076_400_000,
        "decode_ns": 43_235_000_000,
        "finish": "stop",
        "first_line": 5,
        "last_line": 83,
    }
    return told | known


def shown(rows: list[dict[str, Any]], clock: dict[str, Any], by: str = "time", left_out: int = 0) -> list[str]:
    page = Page()
    listed_lines.say(page, {"by": by, "rows": rows, "left_out": left_out}, clock)
    return page.text().splitlines()


def test_a_row_has_the_lines_the_start_the_tokens_the_times_and_the_finish() -> None:
    found = shown([row()], WALL)
    # 43,201 s after midnight of 1 January is 12:00:01.
    assert found[1] == "Requests, with the lines that prove them; start: the log's own clock on 01-01"
    assert found[2].split() == ["lines", "start", "cached", "new", "decoded", "prefill", "s", "decode", "s", "finish"]
    assert found[3].split() == ["5-83", "12:00:01", "4,750", "1,250", "52", "52.076", "43.235", "stop"]
    assert len(found) == 4


def test_starts_of_several_days_have_their_day() -> None:
    found = shown([row(), row(start=43_201 * S + DAY)], WALL)
    assert "start: the log's own clock" in found[1]
    assert [line.split()[1:3] for line in found[3:]] == [["01-01", "12:00:01"], ["01-02", "12:00:01"]]


def test_starts_of_a_clock_of_ms_have_ms_and_of_a_process_seconds() -> None:
    # 2026-11-29 14:23:16.312 UTC.
    found = shown([row(start=1_795_962_196_312_400_000)], UNIX)
    assert found[1].endswith("start: UTC on 2026-11-29")
    assert found[3].split()[1] == "14:23:16.312"
    found = shown([row(start=26_029_060_000)], PROCESS)
    assert found[1] == "Requests, with the lines that prove them; start: from that of the server"
    assert found[2].split()[:3] == ["lines", "start", "s"]
    assert found[3].split()[1] == "26.029"


def test_what_is_not_told_of_one_is_a_dash_and_what_of_none_is_no_column() -> None:
    found = shown([row(cached_tokens=None, decode_ns=None), row(decode_ns=None, first_line=9, last_line=9)], WALL)
    assert found[2].split() == ["lines", "start", "cached", "new", "decoded", "prefill", "s", "finish"]
    assert [line.split()[:3] for line in found[3:5]] == [["5-83", "12:00:01", "-"], ["9", "12:00:01", "4,750"]]
    assert found[5] == "the log tells of none of them: decode s"


def test_requests_that_are_not_told_apart_are_marked() -> None:
    found = shown([row(group="g1"), row()], WALL)
    assert [line.split()[0] for line in found[3:5]] == ["5-83*", "5-83"]
    assert found[5].startswith("* in an ambiguous group: ")


def test_how_many_are_left_out_by_what_and_where_all_are_is_said() -> None:
    text = " ".join(" ".join(shown([row()] * 20, WALL, left_out=1_234)).split())
    assert "the 20 of 1,254 that took longest, prefill and decode added up; in order of their starts" in text
    assert "left out: 1,234; all stand in the tables: agentload export LOG --to csv" in text
    assert "that have the most tokens" in " ".join(shown([row()] * 20, WALL, by="tokens", left_out=1))
    assert shown([], WALL) == []


def test_the_widest_row_of_a_large_log_fits_80_columns_with_all_its_digits() -> None:
    wide = row(
        start=1_795_962_196_312_400_000 + 40 * DAY,
        cached_tokens=1_048_576,
        new_prefill_tokens=1_048_576,
        decoded_tokens=131_072,
        prefill_ns=12_345_678 * 1_000_000,
        decode_ns=12_345_678 * 1_000_000,
        finish="tool_calls",
        first_line=10_123_456,
        last_line=10_123_999,
    )
    found = shown([wide, row(start=1_795_962_196_312_400_000)], UNIX)
    assert max(map(len, found)) <= 80
    text = " ".join(found)
    for whole in ("10123456-10123999", "1,048,576", "131,072", "12345.678", "tool_calls"):
        assert whole in text


def test_the_list_stands_in_the_report_of_logs_of_every_kind() -> None:
    for path in ("ds4/equal.log", "llamacpp/three_agents.log", "vllm/queue.log", "sglang/ranks.log"):
        text = logfile_terminal.render(logfile.read_file(LOGS / path).found)
        assert "Requests, with the lines that prove them" in " ".join(text.split()), path
        assert max(map(len, text.splitlines())) <= 80, path
    equal = logfile_terminal.render(logfile.read_file(LOGS / "ds4" / "equal.log").found)
    # Of the log itself: the request of line 10 was never finished, 700 tokens, none of them computed.
    (open_one,) = [line.split() for line in equal.splitlines() if line.startswith("10 ")]
    assert open_one == ["10", "20:06:30", "0", "-", "-", "-", "-", "-"]


def test_a_log_of_arrivals_alone_says_what_it_does_not_tell() -> None:
    text = logfile_terminal.render(logfile.read_file(LOGS / "vllm" / "queue.log").found)
    assert "the log tells of none of them: cached, new, decoded, prefill s, decode s" in text


def test_a_log_with_a_start_and_no_phase_says_so_instead_of_a_length(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(b"0712 13:01:30 ds4-server: chat ctx=0..17642:17642 prompt start\n")
    text = logfile_terminal.render(logfile.read_file(path).found)
    assert "segment log (no markers: all that the log has): no phase has both its times" in " ".join(text.split())
    assert "0.0 s from the first phase" not in text
