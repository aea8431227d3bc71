"""What does an account of a log that agentload did not make say, and what of one that is odd?"""

import gzip
import io
import json
import os
import re
import subprocess
from codecs import BOM_UTF32_BE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agentload.analysis import logfile
from agentload.analysis.source import is_run
from agentload.core.markers import render
from agentload.errors import InputError, UsageError
from agentload.report import logfile_terminal

LOGS = Path(__file__).resolve().parents[1] / "serverlogs"
DS4 = LOGS / "ds4"
TRUTH = DS4 / "truth_batched6_q128.log"
LLAMA = LOGS / "llamacpp" / "three_agents.log"
S = 1_000_000_000
T0 = 1_795_958_524 * S
START_LINE = re.compile(rb"\S+ \S+ ds4-server: chat ctx=(\d+)\.\.(\d+):(\d+) (?:TOOLS )?prompt start")


def truth() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(TRUTH.with_suffix(".json").read_bytes())
    return found


def with_markers(path: Path, target: Path, *markers: tuple[int, str, str, int]) -> Path:
    """Write `path`'s lines with (after which line, action, segment, second) between them."""
    lines = path.read_bytes().splitlines(keepends=True)
    for after, action, segment, second in sorted(markers, reverse=True):
        lines.insert(after, render(action, segment, "r1", "cond", T0 + second * S) + b"\n")
    target.write_bytes(b"".join(lines))
    return target


def codes(found: dict[str, Any]) -> set[str]:
    return {one["code"] for one in found["doubts"]}


def new_tokens_between(path: Path, after: int, before: int | None) -> list[int]:
    """New prefill tokens of the requests whose `prompt start` stands after one line and before another."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        started = START_LINE.fullmatch(line)
        if started and number > after and (before is None or number < before):
            found.append(int(started[3]))
    return found


# ---- a whole log ---------------------------------------------------------------------------------------------------


def test_sums_and_durations_of_a_concurrent_log_are_those_of_its_ground_truth() -> None:
    found = logfile.read_file(TRUTH).found
    (segment,) = found["segments"]
    whole = segment["whole"]
    requests = truth()
    assert (found["requests"]["total"], found["requests"]["matched"], found["requests"]["ambiguous"]) == (30, 30, 0)
    assert whole["prompt_tokens"] == sum(one["B"] for one in requests)
    assert whole["cached_tokens"] == sum(one["A"] for one in requests)
    assert whole["new_prefill_tokens"] == sum(one["B"] - one["A"] for one in requests)
    assert whole["decoded_tokens"] == sum(one["G"] for one in requests)
    prefill_s = sum(one["t1"] - one["t0"] for one in requests)
    assert whole["prefill_sum_ns"] / S == pytest.approx(prefill_s, abs=30 * 0.001)  # ms in the log, 30 of them
    lines = TRUTH.read_bytes().count(b"\n")
    counts = found["lines"]
    assert [counts[kind] for kind in ("total", "understood", "ignored", "markers", "unknown")] == [
        lines,
        lines,
        0,
        0,
        0,
    ]


def test_without_a_client_nobody_is_foreign() -> None:
    found = logfile.read_file(TRUTH).found
    assert "foreign-requests" not in codes(found)
    assert found["requests"]["client_view"] is False
    assert found["segments"][0]["no_agent"] is None
    text = logfile_terminal.render(found)
    assert "not ours" not in text
    assert "told apart by the log 30, ambiguous 0" in text


def test_each_setting_names_the_line_that_states_it() -> None:
    found = logfile.read_file(TRUTH).found
    lines = TRUTH.read_bytes().splitlines()
    stated = {one["name"]: one for one in found["settings"]}
    quantum = stated["mixed_prefill_quantum"]
    assert (quantum["applied"], quantum["requested"]) == (128, None)
    assert b"mixed_prefill_quantum=128" in lines[quantum["line"] - 1]
    assert quantum["source"] == f"{TRUTH.name}:{quantum['line']}"
    assert TRUTH.read_bytes()[quantum["offset"] :].startswith(lines[quantum["line"] - 1])
    assert f"mixed_prefill_quantum {128:>24}   line {quantum['line']}\n".split() in [
        line.split() for line in logfile_terminal.render(found).splitlines()
    ]


def test_requests_that_the_log_does_not_tell_apart_are_a_group_with_exact_sums() -> None:
    found = logfile.read_file(DS4 / "equal.log").found
    assert (found["requests"]["total"], found["requests"]["matched"], found["requests"]["ambiguous"]) == (4, 1, 3)
    (group,) = found["requests"]["groups"]
    assert (len(group["requests"]), group["logged"], group["sent"]) == (3, 3, 0)
    assert found["segments"][0]["whole"]["decoded_tokens"] == 40 + 30 + 25
    assert "ambiguous group" in logfile_terminal.render(found)


def test_decode_batches_and_cache_events_are_told() -> None:
    equal = logfile.read_file(DS4 / "equal.log").found
    # 3 steps: two of 3 rows, one alone; 12.5 + 10 + 5 ms.
    text = logfile_terminal.render(equal)
    assert "decode batches: 3 steps, 0.0 s of compute, 2.33 rows a step, alone in 33.3 %" in " ".join(text.split())
    disk = logfile.read_file(DS4 / "disk.log").found
    assert {(one["kind"], one["reason"]): one["events"] for one in disk["cache_events"]}["stored", "continued"] == 1
    assert "cache events: live-miss (token-mismatch) 1" in logfile_terminal.render(disk)


def test_server_starts_that_count_from_their_own_beginning_are_segments_of_their_own(tmp_path: Path) -> None:
    once = logfile.read_file(LLAMA).found
    twice = tmp_path / "twice.log"
    twice.write_bytes(LLAMA.read_bytes() * 2)
    found = logfile.read_file(twice).found
    assert [one["boot"] for one in found["starts"]] == [0, 1]
    assert [one["segment"] for one in found["segments"]] == ["log-start0", "log-start1"]
    assert found["requests"]["total"] == 2 * once["requests"]["total"]
    for part in found["segments"]:
        assert part["whole"] == once["segments"][0]["whole"]


def test_a_log_without_times_counts_tokens_and_says_that_it_has_none(tmp_path: Path) -> None:
    plain = tmp_path / "plain.log"
    plain.write_bytes(re.sub(rb"(?m)^\d+\.\d\d\.\d{3}\.\d{3} [IWED] ", b"", LLAMA.read_bytes()))
    found, timed = logfile.read_file(plain).found, logfile.read_file(LLAMA).found
    whole, same = found["segments"][0]["whole"], timed["segments"][0]["whole"]
    assert whole["decoded_tokens"] == same["decoded_tokens"]
    assert (whole["prefill_union_ns"], whole["wall_ns"]) == (None, None)
    assert "log-without-times" in codes(found)
    assert "without times" in logfile_terminal.render(found)


def test_a_server_that_does_not_say_why_a_request_ended_is_not_taken_for_one_that_did_not_end() -> None:
    found = logfile.read_file(LLAMA).found
    # By its client: 2 cancelled, 1 refused, the other 10 came to their end, and the log does not say which.
    assert found["requests"]["finish"] == {"cancelled": 2, "error": 1, "not told": 10}
    text = logfile_terminal.render(found)
    assert "  ended by: cancelled 2, error 1" in text
    assert "  the log does not tell how the rest ended: 10\n" in text
    assert found["requests"]["without_end"] == 0


# ---- markers -------------------------------------------------------------------------------------------------------


def test_a_request_belongs_to_the_segment_between_whose_marker_lines_it_starts(tmp_path: Path) -> None:
    marks = ((4, "begin", "s1", 0), (300, "end", "s1", 150), (310, "begin", "s2", 160), (660, "end", "s2", 345))
    path = with_markers(TRUTH, tmp_path / "marked.log", *marks)
    made = logfile.read_file(path)
    first, second = made.found["segments"]
    # In the file with markers each one before a line moves it by one.
    assert first["whole"]["new_prefill_tokens"] == sum(new_tokens_between(path, 5, 302))
    assert second["whole"]["new_prefill_tokens"] == sum(new_tokens_between(path, 313, 664))
    outside = new_tokens_between(path, 0, 5) + new_tokens_between(path, 302, 313) + new_tokens_between(path, 664, None)
    assert made.found["requests"]["outside_segments"] == len(outside)
    assert (first["whole"]["wall_ns"], second["whole"]["wall_ns"]) == (150 * S, 185 * S)
    assert (first["condition"], first["run"]) == ("cond", "r1")
    assert {row.run for row in made.requests if row.segment == "s1"} == {"r1"}


@pytest.mark.parametrize(
    ("marks", "segments", "doubt"),
    [
        (((4, "begin", "s1", 0),), ["s1"], "segment-without-end"),
        (((300, "end", "s1", 150),), ["log"], "segment-end-without-begin"),
        (
            ((4, "begin", "s1", 0), (50, "begin", "s2", 20), (300, "end", "s2", 150), (600, "end", "s1", 300)),
            ["s1", "s2"],
            "segments-overlap",
        ),
        (
            ((4, "begin", "s1", 0), (90, "end", "s1", 50), (95, "begin", "s1", 60), (600, "end", "s1", 300)),
            ["s1"],
            "duplicate-segment",
        ),
    ],
    ids=["never ends", "ends without begin", "nested", "duplicate id"],
)
def test_odd_markers_are_said_and_no_request_is_lost(
    marks: tuple[tuple[int, str, str, int], ...], segments: list[str], doubt: str, tmp_path: Path
) -> None:
    found = logfile.read_file(with_markers(TRUTH, tmp_path / "odd.log", *marks)).found
    assert [one["segment"] for one in found["segments"]] == segments
    assert doubt in codes(found)
    inside = sum(one["whole"]["requests"] for one in found["segments"])
    assert inside + found["requests"]["outside_segments"] == found["requests"]["total"] == 30
    assert f"doubt ({doubt})" in logfile_terminal.render(found)


def test_segments_of_a_log_without_times_go_by_their_marker_lines(tmp_path: Path) -> None:
    plain = tmp_path / "plain.log"
    plain.write_bytes(re.sub(rb"(?m)^\d+\.\d\d\.\d{3}\.\d{3} [IWED] ", b"", LLAMA.read_bytes()))
    path = with_markers(plain, tmp_path / "marked.log", (12, "begin", "s1", 0), (100, "end", "s1", 20))
    found = logfile.read_file(path).found
    (segment,) = found["segments"]
    assert segment["whole"]["requests"] + found["requests"]["outside_segments"] == 13
    assert segment["whole"]["wall_ns"] == 20 * S
    assert "segments-by-place" in codes(found)


# ---- what is no such log -------------------------------------------------------------------------------------------


def test_an_empty_log_has_no_request(tmp_path: Path) -> None:
    (tmp_path / "e.log").touch()
    found = logfile.read_file(tmp_path / "e.log").found
    assert (found["lines"]["total"], found["requests"]["total"], found["segments"]) == (0, 0, [])
    assert logfile_terminal.nothing_found(found) == "no request found: e.log is empty"


def test_another_programs_log_is_shown_by_its_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("Jul 29 10:00:00 host nginx: GET /\nJul 29 10:00:01 host nginx: GET /a\n", encoding="utf-8")
    found = logfile.read_file(path).found
    assert (found["log"]["format"], found["lines"]["unknown"]) == ("unknown", 2)
    assert [one["line"] for one in found["lines"]["examples"]] == [1, 2]
    assert "unknown, line 1: Jul 29 10:00:00 host nginx: GET /" in logfile_terminal.render(found)
    assert logfile_terminal.nothing_found(found).startswith(
        "no request found in access.log: none of its 2 lines is of a known format (ds4, llamacpp"
    )


def test_what_was_not_looked_at_for_a_format_is_said(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    line = "Jul 29 10:00:00 host nginx: GET /" + "x" * 4_000 + "\n"  # 4,034 bytes: 16 MiB hold 4,158 of them
    path.write_text(line * 5_000, encoding="utf-8")
    said = logfile_terminal.nothing_found(logfile.read_file(path).found)
    assert "none of its first 4,158 lines is of a known format" in said
    assert "the 842 behind them were not looked at: if they are of one, name it with --format" in said


def test_of_very_many_short_lines_it_is_said_how_many_were_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_bytes(b"x\n" * 262_200)
    said = logfile_terminal.nothing_found(logfile.read_file(path).found)
    assert "none of its first 262,144 lines is of a known format" in said
    assert "the 56 behind them were not looked at: if they are of one, name it with --format" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"x" * 100), r"it is packed \(gzip\): `zcat .* \| agentload account -`"),
        (b"\x28\xb5\x2f\xfd\x00", r"it is packed \(zstd\)"),
        ("0914 12:00:00 ds4-server: x\n".encode("utf-16"), r"it is UTF-16: `iconv "),
        ("0914 12:00:00 ds4-server: x\n".encode("utf-32"), r"UTF-8, it is UTF-32: `iconv -f UTF-32 -t UTF-8 /"),
        (BOM_UTF32_BE + "x".encode("utf-32-be"), r"it is UTF-32"),
        (bytes(range(256)) * 40, r"expected a server's log, it is binary"),
    ],
    ids=["gzip", "zstd", "utf-16", "utf-32", "utf-32, the great end first", "binary"],
)
def test_a_file_that_is_no_text_is_named_for_what_it_is(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        logfile.read_file(path)


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (b"\x1f\x8b\x08", "zcat 'my log;rm x'"),
        (b"\xff\xfex\0", "iconv -f UTF-16 -t UTF-8 'my log;rm x'"),
        (b"n".ljust(257, b"\0") + b"ustar\0", "tar -xOf 'my log;rm x' NAME"),
    ],
    ids=["gzip", "utf-16", "tar"],
)
def test_a_command_in_a_message_has_the_file_as_one_word(content: bytes, command: str, tmp_path: Path) -> None:
    path = tmp_path / "my log;rm x"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        logfile.read_file(path)
    assert f"`{command} | agentload account -`" in str(refused.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (b"\x1f\x8b\x08", "`... | zcat - | agentload account -`"),
        (b"\xff\xfe\0\0", "`... | iconv -f UTF-32 -t UTF-8 - | agentload account -`"),
        (b"n".ljust(257, b"\0") + b"ustar\0", "`... | tar -xOf - NAME | agentload account -`"),
    ],
    ids=["gzip", "utf-32", "tar"],
)
def test_what_is_packed_on_stdin_is_unpacked_before(content: bytes, command: str) -> None:
    with pytest.raises(InputError, match=r"^stdin: expected a log as ") as refused:
        logfile.read_stream(io.BytesIO(content), "stdin")
    assert command in str(refused.value)


@pytest.mark.parametrize("log", [TRUTH, LLAMA], ids=["ds4", "llamacpp"])
def test_a_log_of_carriage_returns_without_newlines_is_said_to_be_one_and_the_command_makes_it_readable(
    log: Path, tmp_path: Path
) -> None:
    path = tmp_path / "my log"
    path.write_bytes(log.read_bytes().replace(b"\n", b"\r"))
    said = logfile_terminal.nothing_found(logfile.read_file(path).found)
    assert said.startswith("no request found in my log: its lines end with a carriage return and no newline")
    command = said.partition("`")[2].rpartition("`")[0]
    assert command == rf"tr '\r' '\n' < '{path}' | agentload account -"
    made = subprocess.run(["sh", "-c", command.partition(" | ")[0]], stdout=subprocess.PIPE, check=True).stdout
    assert made == log.read_bytes()


def test_on_stdin_a_log_of_carriage_returns_is_made_readable_behind_what_wrote_it() -> None:
    found = logfile.read_stream(io.BytesIO(TRUTH.read_bytes().replace(b"\n", b"\r")), "stdin").found
    assert r"`... | tr '\r' '\n' | agentload account -`" in logfile_terminal.nothing_found(found)


def test_one_line_of_no_known_format_is_not_said_to_be_many() -> None:
    found = logfile.read_stream(io.BytesIO(b"10 %\r20 %\r30 %\r"), "stdin").found
    assert "carriage" not in logfile_terminal.nothing_found(found)


class Endless:
    """What is binary and has no end, as /dev/urandom; of it no more than 2 MiB may be wanted."""

    def __init__(self, again: bytes) -> None:
        self._again = again
        self.given = 0

    def read(self, size: int, /) -> bytes:
        self.given += size
        assert self.given <= 1 << 21
        return (self._again * (size // len(self._again) + 1))[:size]


BYTES = bytes(range(256))
TENSOR = b"\x18" + bytes(7) + b"blk.0.attn_q.weight" + b"\x02" + bytes(7)  # as a GGUF names one: lengths, NULs and text


@pytest.mark.parametrize("again", [BYTES, TENSOR], ids=["all bytes", "mostly text and NULs"])
def test_what_is_binary_is_refused_for_its_first_piece(again: bytes) -> None:
    with pytest.raises(InputError, match=r"^stdin: expected a server's log, it is binary \(no text, and no line of a "):
        logfile.read_stream(Endless(again), "stdin")


@pytest.mark.parametrize(
    "before",
    [
        bytes(3 << 20),
        b"what another program wrote first\n" + bytes(1 << 17),
        b"\x01\x02\x03\0\n" * 800,
        bytes(1 << 19) + BYTES * 8,
    ],
    ids=["a hole of three pieces", "a hole behind a line", "4,000 bytes of something", "2,048 behind a hole"],
)
def test_a_log_behind_a_hole_or_a_little_of_something_binary_is_read(before: bytes) -> None:
    found = logfile.read_stream(io.BytesIO(before + b"\n" + TRUTH.read_bytes()), "server.log").found
    assert (found["log"]["format"], found["requests"]["total"]) == ("ds4", 30)


def test_a_log_cut_in_mid_line_at_both_ends_counts_what_was_cut_as_unknown(tmp_path: Path) -> None:
    data = TRUTH.read_bytes()
    path = tmp_path / "cut.log"
    begin, end = data.index(b"prompt start", 5000) + 3, data.index(b"decoding", 30_000) + 2
    path.write_bytes(data[begin:end])
    found = logfile.read_file(path).found
    assert found["lines"]["unknown"] == 2
    assert found["lines"]["total"] == data[begin:end].count(b"\n") + 1
    assert found["requests"]["without_end"] > 0
    assert {"log-cut-at-front", "request-without-end"} <= codes(found)


def test_a_wrong_format_is_refused_and_the_right_one_named() -> None:
    with pytest.raises(UsageError, match=r"--format llamacpp: none of the first \d+ lines .* say --format ds4"):
        logfile.read_file(TRUTH, "llamacpp")


def test_a_format_that_fits_less_than_another_is_doubted(tmp_path: Path) -> None:
    path = tmp_path / "both.log"
    path.write_bytes(TRUTH.read_bytes() + LLAMA.read_bytes())
    assert "format-doubtful" in codes(logfile.read_file(path, "llamacpp").found)
    assert "format-doubtful" not in codes(logfile.read_file(path).found)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything; a test that is run by root becomes nobody for a moment."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_log_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(b"x\n")
    path.chmod(0)
    with as_nobody(), pytest.raises(InputError, match=r"s\.log: cannot be read: Permission denied"):
        logfile.read_file(path)


class Shrinking(io.BufferedReader):
    """A log that is truncated, as copytruncate does, when its first piece has been read."""

    def read(self, size: int | None = -1, /) -> bytes:
        is_first = self.tell() == 0  # and no look at where a piece should end
        piece = super().read(size)
        if is_first:
            os.truncate(self.fileno(), 0)
        return piece


def test_a_log_that_is_truncated_while_it_is_read_is_said_to_be(tmp_path: Path) -> None:
    whole = TRUTH.read_bytes() * 50
    (tmp_path / "s.log").write_bytes(whole)
    with Shrinking(io.FileIO(tmp_path / "s.log", "r+")) as file:
        found = logfile.read_stream(file, "s.log").found
    first = whole.rfind(b"\n", 0, 1 << 20) + 1  # bytes of the first piece: it ends where a line does
    assert (found["log"]["bytes"], len(whole) > 3 * first) == (first, True)
    assert found["doubts"][0]["code"] == "log-truncated"
    assert f"had {len(whole):,} bytes when it was opened, and ended after {first:,}:" in found["doubts"][0]["message"]


def test_a_log_whose_name_is_no_text_has_a_name_that_can_be_written(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"caf\xe9.log")
    log.write_bytes(TRUTH.read_bytes())
    made = logfile.read_file(log)
    assert made.found["log"]["name"] == "caf\\xe9.log"
    made.write(tmp_path)
    assert pl.read_parquet(tmp_path / "requests.parquet")["run"].unique().to_list() == ["caf\\xe9.log"]


def test_a_missing_log_is_answered_with_the_names_near_it(tmp_path: Path) -> None:
    (tmp_path / "server.log").touch()
    with pytest.raises(InputError, match=r"there is no .*serve\.log; near it: server\.log"):
        is_run(tmp_path / "serve.log")
    with pytest.raises(InputError, match=r"there is no folder"):
        is_run(tmp_path / "none" / "serve.log")


def test_a_directory_that_is_no_run_names_the_logs_in_it(tmp_path: Path) -> None:
    (tmp_path / "server.log").touch()
    with pytest.raises(InputError, match=r"is none; for a log in it name the file: server\.log"):
        is_run(tmp_path)


# ---- how it is read ------------------------------------------------------------------------------------------------


def test_a_pipe_gives_the_same_account_as_the_file() -> None:
    with subprocess.Popen(["cat", TRUTH], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        piped = logfile.read_stream(process.stdout, TRUTH.name)
    assert piped == logfile.read_file(TRUTH)


def test_a_fifo_is_read_like_a_file(tmp_path: Path) -> None:
    fifo = tmp_path / TRUTH.name
    os.mkfifo(fifo)
    with subprocess.Popen(f"cat '{TRUTH}' > '{fifo}'", shell=True):
        assert not is_run(fifo)
        assert logfile.read_file(fifo) == logfile.read_file(TRUTH)


def test_nothing_is_written_beside_the_log(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_bytes(TRUTH.read_bytes())
    before = path.stat()
    logfile.read_file(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mtime_ns == before.st_mtime_ns


# ---- numbers that cannot be, and what is no log ---------------------------------------------------------------------

REAL = LOGS / "llamacpp" / "real_default.log"
MANY = b"9" * 5000


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        (rb"(prompt eval time = +)[\d.]+( ms)", b"99999999999999999999.99"),
        (rb"(prompt eval time = +)[\d.]+( ms)", MANY),
        (rb"( \|        eval time = +)[\d.]+( ms)", MANY + b".00"),
        (rb"( ms / +)\d+( tokens)", MANY),
        (rb"(total time = +)[\d.]+( ms)", b"12345678901.00"),
        (rb"(stop processing: n_tokens = )\d+(,)", b"9223372036854775807"),
        (rb"(slot +\w+: id +)\d+( )", MANY),
        (rb"(\| task )\d+( \| processing task)", MANY),
        (rb"(n_slots = )\d+(, n_ctx_slot)", MANY),
    ],
)
@pytest.mark.parametrize("prefixed", [True, False])
def test_a_line_with_a_number_that_cannot_be_is_unknown(
    tmp_path: Path, pattern: bytes, damage: bytes, *, prefixed: bool
) -> None:
    data = REAL.read_bytes()
    if not prefixed:
        data = re.sub(rb"(?m)^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ", b"", data)
    found = re.search(pattern, data)
    assert found is not None
    begin, end = data.rindex(b"\n", 0, found.start()) + 1, data.index(b"\n", found.end())
    stamp = re.match(rb"(?:\d+\.\d\d\.\d{3}\.\d{3} [A-Z] )?", data[begin:end])
    assert stamp is not None
    other = tmp_path / "other.log"
    other.write_bytes(data[:begin] + stamp[0] + b"gibberish" + data[end:])
    path = tmp_path / "damaged.log"
    path.write_bytes(data[: found.start()] + found[1] + damage + found[2] + data[found.end() :])
    expected, got = (logfile.read_file(one, "llamacpp").found for one in (other, path))
    assert got["lines"]["unknown"] == expected["lines"]["unknown"] > 0
    assert got["lines"]["understood"] == expected["lines"]["understood"]
    assert got["requests"] == expected["requests"]


NGINX = b'127.0.0.1 - - [29/Nov/2026:13:12:04 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8.5.0"\n'


@pytest.mark.parametrize(
    ("data", "log_format", "said"),
    [
        (bytes(1 << 20), None, "it is binary"),
        (bytes(1 << 20), "llamacpp", "it is binary"),
        (bytes(range(256)) * 400, "llamacpp", "it is binary"),
        (b"server.log".ljust(257, b"\0") + b"ustar\x0000".ljust(255, b"\0") + NGINX, "llamacpp", "packed \\(tar\\)"),
        (NGINX * 50, "llamacpp", "none of the 50 lines of .* is of it, nor of another known format"),
        (NGINX * 50, "ds4", "none of the 50 lines of .* is of it, nor of another known format"),
    ],
)
def test_what_is_no_log_of_the_format_is_refused(
    tmp_path: Path, data: bytes, log_format: str | None, said: str
) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(data)
    with pytest.raises((InputError, UsageError), match=said) as caught:
        logfile.read_file(path, log_format)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
