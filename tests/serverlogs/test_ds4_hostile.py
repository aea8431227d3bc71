"""What does the ds4 reader make of a log that is torn, coloured, cut, quotes a model, or has its clock changed?"""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from agentload.core import markers
from agentload.core.records import LogFacts, Timeline
from agentload.serverlogs.ds4 import Reader

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
SERVER = "ds4-server: "
CONTEXT = "context buffers 1.00 MiB (ctx=8192, backend=cpu, prefill_chunk=4096, raw_kv_rows=4352, compressed_kv_rows=2)"
BATCHED = (
    "batched mode enabled resident_sessions=4 prefill_quantum=2048 mixed_prefill_quantum=128 decode_coalesce_us=2000"
)
MARKER = markers.render("begin", "s1", "r1", "a", 1_790_000_000_000_000_000).decode()


def _read(lines: Sequence[str], year: int | None = None, end: str = "\n") -> LogFacts:
    reader = Reader(year=year)
    reader.feed("".join(line + end for line in lines).encode())
    return reader.close()


def _request(stamps: Sequence[str], *, span: str = "0..90:90", start_s: float = 0.0) -> list[str]:
    """One request's start, prompt done (5 s), last decode line (10 s later) and finish (20 s), each with its stamp."""
    base = int(span.split("..")[1].split(":", maxsplit=1)[0])
    texts = (
        f"chat ctx={span} TOOLS prompt start",
        f"chat ctx={span} TOOLS prompt done {start_s + 5:.3f}s",
        f"chat ctx={base}..{base + 7}:7 gen=7 TOOLS decoding chunk=0.70 t/s avg=0.70 t/s 10.000s",
        f"chat ctx={span} gen=7 TOOLS finish=stop {start_s + 20:.3f}s",
    )
    return [f"{stamp} {SERVER}{text}" for stamp, text in zip(stamps, texts, strict=True)]


CALM = _request(["0914 12:00:00", "0914 12:00:05", "0914 12:00:15", "0914 12:00:20"])


def _codes(facts: LogFacts) -> list[str]:
    return [one.code for one in facts.doubts]


def _stamp(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%m%d %H:%M:%S")


def _ns(*when: int) -> int:
    year, month, day, hour, minute, second = when
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * SECOND_NS


# ---- text ----------------------------------------------------------------------------------------------------------


def test_colours_and_carriage_returns_change_nothing() -> None:
    plain = _read(CALM)
    coloured = [line.replace(SERVER, f"\x1b[38;5;208m{SERVER}") + "\x1b[0m" for line in CALM]
    for other in (_read(coloured), _read(CALM, end="\r\n"), _read(["\0\0" + CALM[0], *CALM[1:]])):
        assert other.lines.understood == plain.lines.understood == 4
        facts = zip(other.requests, plain.requests, strict=True)
        assert all((a.prefill_start, a.t_end, a.decoded_tokens) == (b.prefill_start, b.t_end, 7) for a, b in facts)


def test_a_marker_inside_a_line_is_kept_and_so_is_the_line() -> None:
    stamp, text = CALM[1][:14], CALM[1][14:]
    after_stamp = _read([CALM[0], stamp + MARKER, text, *CALM[2:]])
    before_newline = _read([CALM[0], CALM[1] + MARKER, "", *CALM[2:]])
    for facts in (after_stamp, before_newline):
        assert [one.segment for one in facts.markers] == ["s1"]
        assert facts.lines.unknown == 0
        assert _codes(facts) == ["torn-lines"]
        assert [(one.prompt_tokens, one.prefill_ms, one.decoded_tokens) for one in facts.requests] == [(90, 5000.0, 7)]
    proof = after_stamp.markers[0].proof
    assert proof is not None
    assert proof.offset == len(CALM[0]) + 1 + 14


def test_several_lines_between_the_halves_of_one_are_not_in_the_way() -> None:
    facts = _read([*CALM[:3], CALM[3][:14] + "ds4: one", MARKER, "ds4: two", CALM[3][14:]])
    assert (facts.lines.unknown, facts.lines.markers, facts.lines.ignored) == (0, 1, 1)
    assert [one.finish for one in facts.requests] == ["stop"]


def test_a_torn_line_that_cannot_be_put_together_is_counted_and_its_request_doubted() -> None:
    facts = _read([f"0914 12:00:00 {SERVER}{CONTEXT}", CALM[0], CALM[1] + "foreign", CALM[2], CALM[3]])
    assert facts.lines.unknown == 1
    assert facts.lines.examples[0][0].line == 3
    assert _codes(facts) == ["request-lines-lost"]
    assert [(one.new_prefill_tokens, one.decoded_tokens, one.prefill_ms) for one in facts.requests] == [(90, 7, None)]


def test_text_without_a_stamp_before_it_is_no_line_of_the_server() -> None:
    facts = _read([CALM[0][14:], CALM[3][5:]])
    assert (facts.lines.unknown, facts.requests) == (2, ())


@pytest.mark.parametrize("data", [b"", b"\n", b"\x00\xff\xfe" * 50, b"0" * 100_000 + b"\n", b"0914 12:00:00 "])
def test_what_is_no_log_tells_nothing(data: bytes) -> None:
    reader = Reader()
    reader.feed(data)
    facts = reader.close()
    assert (facts.requests, facts.settings, facts.size) == ((), (), len(data))
    assert facts.lines.understood == 0


def test_numbers_that_no_server_writes_are_no_numbers() -> None:
    assert _read([CALM[0].replace("90", "9" * 5000)]).lines.unknown == 1
    assert _read([CALM[0].replace(":90 ", ":91 ")]).lines.unknown == 1


# ---- model output that imitates the log ----------------------------------------------------------------------------


def test_quoted_model_output_is_not_believed_and_the_lines_after_it_are() -> None:
    imitated = [
        f"0914 12:00:06 {SERVER}chat ctx=0..5000:5000 prompt start",
        f"0914 12:00:06 {SERVER}{CONTEXT}",
        MARKER[:40],
    ]
    quoted = "tail\n" + "\n".join(imitated)
    warning = (
        f"0914 12:00:20 {SERVER}invalid tool call returned as assistant text finish=stop "
        f"text_len={len(quoted)} saw_start=1 saw_end=0 text_snippet: {quoted}"
    )
    facts = _read([*CALM[:3], warning, CALM[3], *_request(["0914 12:01:00"] * 4, span="0..8:8")])
    assert [one.prompt_tokens for one in facts.requests] == [90, 8]
    assert [one.finish for one in facts.requests] == ["stop", "stop"]
    assert (facts.settings, facts.markers, facts.lines.unknown) == ((), (), 3)
    assert "model-text-in-log" in _codes(facts)


def test_without_its_length_quoted_output_may_reach_500_bytes_and_a_requests_own_lines_are_still_read() -> None:
    warning = f"0914 12:00:20 {SERVER}invalid tool call; continuing with model-visible tool error dsml_snippet: <x>"
    fake = f"0914 12:00:20 {SERVER}chat ctx=0..77:77 prompt start"
    facts = _read([*CALM[:3], warning, fake, CALM[3]])
    assert [(one.prompt_tokens, one.finish) for one in facts.requests] == [(90, "stop")]
    assert facts.lines.unknown == 1


def test_a_line_inside_a_line_is_no_line() -> None:
    facts = _read(
        [f"0914 12:00:00 {SERVER}repaired unterminated tool call (1 calls recovered) {line}" for line in CALM]
    )
    assert (facts.requests, facts.lines.ignored) == ((), 4)


# ---- requests ------------------------------------------------------------------------------------------------------


def test_a_cancelled_request_leaves_no_line_and_its_equal_retry_is_told_apart_by_time() -> None:
    first = _request(["0914 12:00:00"] * 4)[0]
    retry = _request(["0914 12:00:30", "0914 12:00:35", "0914 12:00:45", "0914 12:00:50"])
    facts = _read([f"0914 11:59:00 {SERVER}{text}" for text in (CONTEXT, BATCHED)] + [first, *retry])
    assert [(one.finish, one.decoded_tokens, one.group) for one in facts.requests] == [
        (None, None, None),
        ("stop", 7, None),
    ]
    assert _codes(facts) == ["request-without-end"]


def test_equal_requests_within_one_second_are_a_group() -> None:
    both = [line for pair in zip(CALM, CALM, strict=True) for line in pair]
    facts = _read([f"0914 11:59:00 {SERVER}{CONTEXT}", f"0914 11:59:00 {SERVER}{BATCHED}", *both])
    assert len({one.group for one in facts.requests}) == 1
    assert facts.requests[0].group is not None
    assert [(one.new_prefill_tokens, one.decoded_tokens) for one in facts.requests] == [(90, 7), (90, 7)]
    told = next(one for one in facts.doubts if one.code == "equal-requests")
    assert "lines 3, 4" in told.message


def test_members_of_a_group_get_the_lines_whose_durations_add_up() -> None:
    # 0.5 + 2.5 = 3.0, 1.0 + 1.5 = 2.5, 1.5 + 0.7 = 2.2: the first one to decode ends last.
    span, text = "0..90:90", "chat ctx={} TOOLS prompt done {}s"
    lines = [f"chat ctx={span} TOOLS prompt start"] * 3
    lines += [text.format(span, took) for took in ("0.500", "1.000", "1.500")]
    for decode, end in (("0.700", "2.200"), ("1.500", "2.500"), ("2.500", "3.000")):
        lines.append(f"chat ctx=90..97:7 gen=7 TOOLS decoding chunk=2.80 t/s avg=2.80 t/s {decode}s")
        lines.append(f"chat ctx={span} gen=7 TOOLS finish=stop {end}s")
    facts = _read([f"0914 12:00:0{2 if 'finish' in line or 'gen' in line else 0} {SERVER}{line}" for line in lines])
    assert {one.group for one in facts.requests} == {"boot 0 group 1"}
    assert [(one.prefill_ms, one.decode_ms) for one in facts.requests] == [
        (500.0, 2500.0),
        (1000.0, 1500.0),
        (1500.0, 700.0),
    ]
    proofs = [{name: proof.line for name, proof in one.proofs} for one in facts.requests]
    assert [(one["prefill_end"], one["decode_end"], one["t_end"]) for one in proofs] == [
        (4, 11, 12), (5, 9, 10), (6, 7, 8)
    ]  # fmt: skip


def test_receive_stamps_tell_apart_what_begins_in_one_second() -> None:
    # Begun 0.4 s apart, received within a millisecond.
    one, other = _request(["0914 12:00:00"] * 4), _request(["0914 12:00:00"] * 4)
    lines = [one[0], other[0], one[1], other[1], one[2], other[2], one[3], other[3]]
    at_s = [10.0, 10.4, 15.0, 15.4, 25.0, 25.4, 30.0, 30.4]
    reader = Reader([round(at * 1e9) for at in at_s])
    reader.feed("".join(line + "\n" for line in lines).encode())
    facts = reader.close()
    assert facts.timeline is Timeline.UNIX
    assert [(r.group, r.prefill_start, r.t_end) for r in facts.requests] == [
        (None, 10_000_000_000, 30_000_000_000),
        (None, 10_400_000_000, 30_400_000_000),
    ]


def test_a_server_with_one_session_has_one_request_open_at_a_time() -> None:
    reader = Reader()
    head = [f"0914 11:59:00 {SERVER}{CONTEXT}", f"0914 11:59:01 {SERVER}listening on http://127.0.0.1:8000"]
    reader.feed(
        "".join(line + "\n" for line in [*head, CALM[0], *_request(["0914 12:00:09"] * 4, span="0..8:8")[:1]]).encode()
    )
    assert reader.open_requests() == 1
    assert len(reader.close().requests) == 2


def test_a_request_that_began_inside_a_log_without_a_start_up_has_lost_a_line() -> None:
    first, later = CALM, _request(["0914 12:05:00", "0914 12:05:05", "0914 12:05:15", "0914 12:05:20"], span="0..8:8")
    facts = _read([*first[1:], *later])
    assert _codes(facts) == ["log-cut-at-front"]
    facts = _read([*first, *later[1:]])
    assert _codes(facts) == ["request-lines-lost"]
    assert [one.new_prefill_tokens for one in facts.requests] == [90, 8]


def test_lines_received_minutes_late_are_still_of_their_request() -> None:
    reader = Reader([100 * SECOND_NS, 300 * SECOND_NS, 300 * SECOND_NS, 300 * SECOND_NS])
    reader.feed("".join(line + "\n" for line in CALM).encode())
    (one,) = reader.close().requests
    assert (one.prefill_start, one.t_end, one.decoded_tokens) == (100 * SECOND_NS, 120 * SECOND_NS, 7)


def test_stamps_of_another_log_are_doubted() -> None:
    reader = Reader([SECOND_NS])
    reader.feed("".join(line + "\n" for line in CALM).encode())
    assert "stamps-do-not-fit" in _codes(reader.close())


# ---- clocks --------------------------------------------------------------------------------------------------------


def test_a_request_over_midnight_and_new_year_has_one_length() -> None:
    lines = _request(["1231 23:59:50", "1231 23:59:55", "0101 00:00:05", "0101 00:00:10"])
    facts = _read(lines, year=2027)
    (one,) = facts.requests
    assert one.prefill_start == _ns(2027, 12, 31, 23, 59, 50) + SECOND_NS // 2
    assert one.t_end == _ns(2028, 1, 1, 0, 0, 10) + SECOND_NS // 2
    unknown = _read(lines).requests[0]
    assert (unknown.t_end or 0) - (unknown.prefill_start or 0) == 20 * SECOND_NS
    assert unknown.prefill_start == (364 * 24 * 3600 + 24 * 3600 - 10) * SECOND_NS + SECOND_NS // 2


def test_29_february_is_a_day_in_a_year_that_is_not_known_and_in_a_leap_year_only() -> None:
    lines = _request(["0229 23:59:50", "0229 23:59:55", "0301 00:00:05", "0301 00:00:10"])
    for year in (None, 2028):
        (one,) = _read(lines, year=year).requests
        assert (one.t_end or 0) - (one.prefill_start or 0) == 20 * SECOND_NS
    assert _read(lines, year=2027).lines.unknown == 2


@pytest.mark.parametrize("small", [0, 1 << 14])
def test_a_year_that_is_gone_into_on_29_february_has_that_day(small: int) -> None:
    # What is read in bulk took it for a common year's, and its times were 34,000 years off.
    later = _request(["0229 12:00:00", "0229 12:00:05", "0229 12:00:15", "0229 12:00:20"], span="0..8:8")
    reader = Reader(small=small)
    reader.feed("".join(line + "\n" for line in [*CALM, *later]).encode())
    facts = reader.close()
    day_s = 24 * 3600
    assert facts.requests[1].prefill_start == ((365 + 59) * day_s + 12 * 3600) * SECOND_NS + SECOND_NS // 2
    (told,) = (one for one in facts.doubts if one.code == "new-year")
    assert told.message.startswith("line 5: a stamp of 0229")
    assert f"for {365 - 257 + 60} days" not in told.message  # 14 September is day 257 of a common year, 29 February 60
    assert f"for {365 - 257 + 60 - 1} days" in told.message  # less the 20 s until that noon


def test_a_day_behind_february_is_counted_by_its_own_year() -> None:
    lines = _request(["1231 12:00:00", "1231 12:00:05", "1231 12:00:15", "1231 12:00:20"])
    lines += _request(["0301 12:00:00", "0301 12:00:05", "0301 12:00:15", "0301 12:00:20"])
    one, other = _read(lines, year=2028).requests
    assert one.prefill_start == _ns(2028, 12, 31, 12, 0, 0) + SECOND_NS // 2
    assert other.prefill_start == _ns(2029, 3, 1, 12, 0, 0) + SECOND_NS // 2


def test_stamps_that_jump_about_for_ever_stay_within_64_bits() -> None:
    lines = [line for _ in range(150) for day in ("0918", "0101") for line in _request([f"{day} 12:00:00"] * 4)]
    facts = _read(lines)
    assert {"new-year", "stamps-go-back"} <= set(_codes(facts))
    last = max(one.t_end or 0 for one in facts.requests)
    assert 100 * 365 * 24 * 3600 * SECOND_NS < last < 102 * 366 * 24 * 3600 * SECOND_NS


def test_the_end_of_summer_time_inside_a_request_does_not_turn_time_back() -> None:
    facts = _read(_request(["1025 02:59:50", "1025 02:59:55", "1025 02:00:05", "1025 02:00:10"]), year=2026)
    (one,) = facts.requests
    assert (one.prefill_start, one.t_end) == (
        _ns(2026, 10, 25, 2, 59, 50) + SECOND_NS // 2,
        _ns(2026, 10, 25, 3, 0, 10) + SECOND_NS // 2,
    )
    assert "clock-set-back" in _codes(facts)


@pytest.mark.parametrize("back_s", [30, 61, 90, 1800, 3300, 5400])
def test_a_clock_set_back_inside_a_request_is_set_right_by_the_requests_own_durations(back_s: int) -> None:
    noon_s = _ns(2026, 9, 14, 12, 0, 0) // SECOND_NS
    set_back = [_stamp(noon_s + after_s - back_s) for after_s in (5, 15, 20)]
    # Begun between the step and the line that tells of it: its times are moved too.
    later = _request([_stamp(noon_s + after_s - back_s) for after_s in (3, 8, 18, 23)], span="0..8:8")
    lines = _request([_stamp(noon_s), *set_back])
    facts = _read([lines[0], later[0], lines[1], later[1], lines[2], later[2], lines[3], later[3]], year=2026)
    one, other = facts.requests
    assert (one.prompt_tokens, one.new_prefill_tokens, one.decoded_tokens) == (90, 90, 7)
    begun_ns = _ns(2026, 9, 14, 12, 0, 0) + SECOND_NS // 2
    assert (one.prefill_start, one.prefill_end, one.t_end) == (
        begun_ns, begun_ns + 5 * SECOND_NS, begun_ns + 20 * SECOND_NS
    )  # fmt: skip
    assert (other.prefill_start, other.t_end) == (begun_ns + 3 * SECOND_NS, begun_ns + 23 * SECOND_NS)
    assert [code for code in _codes(facts) if code.startswith("clock")] == ["clock-set-back", "clock-set-back-by"]
    (told,) = (doubt for doubt in facts.doubts if doubt.code == "clock-set-back-by")
    assert told.message == (
        "line 2: a request that was running says that the wall clock was set back by "
        f"{back_s} s: so much is added, not {back_s - 3 if back_s != 3300 else 3600} s"
    )


def test_a_clock_set_back_when_no_request_was_running_is_as_if_no_time_had_passed() -> None:
    later = _request(["0914 11:58:55", "0914 11:59:00", "0914 11:59:10", "0914 11:59:15"], span="0..8:8")
    one, other = _read([*CALM, *later], year=2026).requests  # 85 s back: at 12:00:20 again
    assert one.t_end == _ns(2026, 9, 14, 12, 0, 20) + SECOND_NS // 2
    assert other.prefill_start == _ns(2026, 9, 14, 12, 0, 20) + SECOND_NS // 2


def test_ten_minutes_without_lines_at_the_end_of_summer_time_are_ten_minutes() -> None:
    first = _request(["1025 02:50:00", "1025 02:50:05", "1025 02:50:15", "1025 02:50:20"])
    later = _request(["1025 02:00:20", "1025 02:00:25", "1025 02:00:35", "1025 02:00:40"], span="0..8:8")
    one, other = _read([*first, *later], year=2026).requests
    assert (other.prefill_start or 0) - (one.t_end or 0) == 600 * SECOND_NS


def test_the_beginning_of_summer_time_inside_a_request_is_seen_by_its_own_durations() -> None:
    first = _request(["0329 01:59:50", "0329 01:59:55", "0329 03:00:05", "0329 03:00:10"])
    # Begun after the jump and before the line that tells of it: its times are moved too.
    second = _request(["0329 03:00:02", "0329 03:00:07", "0329 03:00:17", "0329 03:00:22"], span="0..8:8")
    facts = _read([*first[:2], second[0], first[2], second[1], first[3], *second[2:]], year=2026)
    one, other = facts.requests
    assert one.prefill_start == _ns(2026, 3, 29, 1, 59, 50) + SECOND_NS // 2
    assert one.decode_end == _ns(2026, 3, 29, 2, 0, 5) + SECOND_NS // 2
    assert other.prefill_start == _ns(2026, 3, 29, 2, 0, 2) + SECOND_NS // 2
    assert other.t_end == _ns(2026, 3, 29, 2, 0, 22) + SECOND_NS // 2
    assert "clock-set-ahead" in _codes(facts)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_machine_that_slept_between_two_lines_of_a_request_does_not_make_it_two(place: int) -> None:
    # It slept for 300 s, in which its monotonic clock stood still.
    stamps = ["0914 12:00:00", "0914 12:00:05", "0914 12:00:15", "0914 12:00:20"]
    slept = [stamp.replace("12:00", "12:05") for stamp in stamps[place:]]
    facts = _read(_request([*stamps[:place], *slept]), year=2026)
    (one,) = facts.requests
    assert (one.prompt_tokens, one.new_prefill_tokens, one.decoded_tokens, one.finish) == (90, 90, 7, "stop")
    begun_ns = _ns(2026, 9, 14, 12, 0, 0) + SECOND_NS // 2
    assert (one.prefill_start, one.prefill_end, one.decode_end, one.t_end) == (
        begun_ns, begun_ns + 5 * SECOND_NS, begun_ns + 15 * SECOND_NS, begun_ns + 20 * SECOND_NS
    )  # fmt: skip
    assert _codes(facts) == ["clock-and-durations-disagree"]
    assert facts.doubts[0].message.startswith(
        f"line {place + 1}: ctx 0..90:90 line 1 began 300.0 s off what its earlier lines say"
    )


WENT = f"0914 12:00:01 {SERVER}chat ctx=0..90:90 TOOLS stream closed during prefill"


@pytest.mark.parametrize(
    ("between", "later"),
    [
        ([], _request(["", "", "", "0914 12:05:20"])[3:]),
        ([WENT], _request(["", "0914 12:05:05", "0914 12:05:15", "0914 12:05:20"])[1:]),
        ([], _request(["", "0914 12:00:05", "0914 12:00:15", "0914 12:00:20"], start_s=300)[1:]),
    ],
    ids=["lines between are lost", "its client went away", "begun earlier"],
)
def test_a_line_five_minutes_off_is_of_another_request_unless_it_is_the_next_one(
    between: list[str], later: list[str]
) -> None:
    one, other = _read([CALM[0], *between, *later], year=2026).requests
    assert (one.finish, one.new_prefill_tokens) == ("cancelled" if between else None, None)
    assert (other.finish, other.new_prefill_tokens, other.decoded_tokens) == ("stop", 90, 7)


def test_an_hour_without_lines_is_an_hour() -> None:
    later = _request(["0329 03:10:00", "0329 03:10:05", "0329 03:10:15", "0329 03:10:20"], span="0..8:8")
    facts = _read([*_request(["0329 01:59:00", "0329 01:59:05", "0329 01:59:15", "0329 01:59:20"]), *later], year=2026)
    starts = [one.prefill_start or 0 for one in facts.requests]
    assert starts[1] - starts[0] == HOUR_NS + 660 * SECOND_NS
    assert not any(code.startswith("clock") for code in _codes(facts))
