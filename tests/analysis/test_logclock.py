"""What is said of a log's clock, and what is known of a log whose lines have no times?

The lines of the log without times are those of a real llama-server's log of two requests, without their prefix.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agentload.analysis import logfile
from agentload.commands.logtables import write_tables
from agentload.report import logfile_terminal
from agentload.serverlogs.localtime import LocalClock

LOGS = Path(__file__).resolve().parents[1] / "serverlogs"
LLAMA = LOGS / "llamacpp" / "three_agents.log"
RATES = "(    8.32 ms per token,   120.14 tokens per second)"
BARE = f"""\
srv          init: initializing ...
srv          init: model loaded
slot launch_slot_: id  1 | task 0 | processing task, is_child = 0
slot launch_slot_: id  2 | task 1 | processing task, is_child = 0
slot print_timing: id  2 | task 1 | prompt eval time =    6350.75 ms /   763 tokens {RATES}
slot print_timing: id  2 | task 1 |        eval time =   10370.42 ms /    33 tokens {RATES}
slot print_timing: id  2 | task 1 |       total time =   16721.17 ms /   796 tokens
slot      release: id  2 | task 1 | stop processing: n_tokens = 795, truncated = 0
slot print_timing: id  1 | task 0 | prompt eval time =    6507.99 ms /   763 tokens {RATES}
slot print_timing: id  1 | task 0 |        eval time =    3912.81 ms /    33 tokens {RATES}
slot print_timing: id  1 | task 0 |       total time =   10420.80 ms /   796 tokens
slot      release: id  1 | task 0 | stop processing: n_tokens = 795, truncated = 0
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "bare.log"
    path.write_text(BARE, encoding="utf-8")
    return path


def doubts(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {one["code"]: one for one in found["doubts"]}


# ---- durations without times ---------------------------------------------------------------------------------------


def test_durations_that_stand_in_lines_are_those_of_the_requests(bare: Path, tmp_path: Path) -> None:
    write_tables(logfile.read_file(bare), tmp_path / "out", "csv")
    table = pl.read_csv(tmp_path / "out" / "requests.csv").sort("slot")
    assert table.select("prefill_time_ms", "decode_time_ms", "cached_tokens", "new_prefill_tokens").rows() == [
        (6507.99, 3912.81, 0, 763),
        (6350.75, 10370.42, 0, 763),
    ]
    assert table.select("prefill_start", "prefill_end", "decode_end", "prefill_source").null_count().row(0) == (2,) * 4


def test_their_sums_and_speeds_are_told_and_what_needs_times_is_not(bare: Path) -> None:
    (segment,) = logfile.read_file(bare).found["segments"]
    whole = segment["whole"]
    # 6,507.99 + 6,350.75 ms and 3,912.81 + 10,370.42 ms
    assert (whole["prefill_sum_ns"], whole["decode_sum_ns"]) == (12_858_740_000, 14_283_230_000)
    assert [whole[f"{phase}_{name}"] for phase in ("prefill", "decode") for name in ("union_ns", "tok_s", "share")] == [
        None
    ] * 6
    # (763 / 6.50799 s + 763 / 6.35075 s) / 2 = (117.2405 + 120.1433) / 2
    assert segment["buckets"][0]["median_tok_s"] == pytest.approx(118.6919, abs=5e-4)


def test_a_log_with_times_has_the_same_durations_in_its_columns_and_its_sums_are_of_times(tmp_path: Path) -> None:
    write_tables(logfile.read_file(LLAMA), tmp_path / "out", "csv")
    table = pl.read_csv(tmp_path / "out" / "requests.csv").drop_nulls("prefill_logged_ms")
    assert table.height > 0
    for row in table.rows(named=True):
        assert row["prefill_time_ms"] == pytest.approx(row["prefill_logged_ms"], abs=1e-6)
        assert row["decode_time_ms"] == pytest.approx(row["decode_logged_ms"], abs=1e-6)


# ---- what is said of the clock -------------------------------------------------------------------------------------


def test_a_log_without_times_has_no_clock_and_the_advice_is_its_servers(bare: Path) -> None:
    found = logfile.read_file(bare).found
    assert (found["clock"]["log_timeline"], found["clock"]["log_resolution_ns"]) == (None, None)
    said = logfile_terminal.render(found)
    assert "\nclock: none, no line tells when a request was at work\n" in said
    assert "step by" not in said
    advice = doubts(found)["log-without-times"]["advice"]
    assert "--no-log-prefix" in advice
    assert "--log-prefix --log-timestamps" in advice  # which older builds have off


def test_the_advice_for_sglang_is_sglangs(tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    lines = (LOGS / "sglang" / "ranks.log").read_bytes().splitlines(keepends=True)
    finished = [line[line.index(b"Finish: obj=") :] for line in lines if b"Finish: obj=" in line]
    path.write_bytes(b"".join(finished))
    found = logfile.read_file(path).found
    assert (found["log"]["format"], found["requests"]["total"]) == ("sglang", len(finished))
    advice = doubts(found)["log-without-times"]["advice"]
    assert "--enable-metrics" in advice
    assert "llama" not in advice


def test_times_since_the_servers_start_are_said_to_be_no_times_of_day() -> None:
    found = logfile.read_file(LLAMA).found
    assert found["clock"]["log_timeline"] == "process"
    said = re.sub(r"\s+", " ", logfile_terminal.render(found))
    assert (
        "clock: process (since the server's start: no time of day is in this log), the log's own times step by" in said
    )


def test_a_ds4_log_is_said_to_have_no_year_and_where_to_read_how_to_add_it() -> None:
    found = logfile.read_file(LOGS / "ds4" / "single.log").found
    said = doubts(found)["clock-without-year"]
    assert "since 1 January" in said["message"]
    assert "README" in said["advice"]
    assert "no time of day" not in logfile_terminal.render(found)


# ---- the year, as README says --------------------------------------------------------------------------------------


def dated(stamps: list[bytes], year: int) -> list[str]:
    """README's recipe: the time as if of 1970, and the years since."""
    clock = LocalClock()
    times = [clock.without_year(stamp) for stamp in stamps]
    table = pl.DataFrame({"t": times}, schema={"t": pl.Int64()})
    moved = table.select(pl.from_epoch("t", time_unit="ns").dt.offset_by(f"{year - 1970}y"))
    return [f"{at:%Y-%m-%d %H:%M:%S}" for at in moved["t"]]


@pytest.mark.parametrize("year", [2026, 2028])
def test_the_year_is_added_as_years_and_the_day_stays_also_in_a_leap_year(year: int) -> None:
    stamps = [b"01-01 00:00:00", b"02-28 23:59:59", b"03-01 10:00:00", b"12-31 23:59:59"]
    assert dated(stamps, year) == [f"{year}-{stamp.decode()}" for stamp in stamps]


def test_over_new_year_the_next_year_follows() -> None:
    assert dated([b"12-31 23:59:59", b"01-01 00:00:01"], 2026) == ["2026-12-31 23:59:59", "2027-01-01 00:00:01"]


def test_a_log_that_has_the_29th_of_february_is_counted_from_1_january_of_its_year(tmp_path: Path) -> None:
    once = (LOGS / "ds4" / "single.log").read_bytes()  # its first prefill starts on 0301 at 10:00:10
    path = tmp_path / "leap.log"
    path.write_bytes(once.replace(b"0301 ", b"0229 ") + once)
    began = datetime(2028, 1, 1, tzinfo=UTC)
    starts = [one.prefill_start for one in logfile.read_file(path).requests]
    days = [began + timedelta(seconds=start // 10**9) for start in starts if start is not None]
    assert [at for at in days if (at.hour, at.minute, at.second) == (10, 0, 10)] == [
        datetime(2028, 2, 29, 10, 0, 10, tzinfo=UTC),
        datetime(2028, 3, 1, 10, 0, 10, tzinfo=UTC),
    ]
