"""Which format a log is of, and how a log of any kind and size is read."""

from collections.abc import Iterator

import pytest

from agentload.core import markers
from agentload.core.packed import FEW
from agentload.core.records import LogFacts
from agentload.core.segments import segments_of
from agentload.errors import UsageError
from agentload.serverlogs import formats
from agentload.serverlogs.doubts import MOST_SUSPECTS

DS4 = (
    b"0914 12:00:00 ds4-server: chat ctx=0..90:90 prompt start\n"
    b"0914 12:00:05 ds4-server: chat ctx=0..90:90 prompt done 5.000s\n"
    b"0914 12:00:15 ds4-server: chat ctx=90..97:7 gen=7 decoding chunk=0.70 t/s avg=0.70 t/s 10.000s\n"
    b"0914 12:00:20 ds4-server: chat ctx=0..90:90 gen=7 finish=stop 20.000s\n"
)
RATES = b" (    6.67 ms per token,   150.00 tokens per second)\n"
LLAMA = (
    b"0.01.000.000 I slot launch_slot_: id  1 | task 7 | processing task, is_child = 0\n"
    b"0.02.000.000 I slot print_timing: id  1 | task 7 | prompt eval time =     600.00 ms /    90 tokens" + RATES
    + b"0.02.000.100 I slot print_timing: id  1 | task 7 |        eval time =     300.00 ms /     7 tokens" + RATES
    + b"0.02.000.200 I slot      release: id  1 | task 7 | stop processing: n_tokens = 96, truncated = 0\n"
)  # fmt: skip
LOGS = {"ds4": DS4, "llamacpp": LLAMA}
NGINX = b'127.0.0.1 - - [29/Nov/2026:13:12:04 +0000] "GET /v1/models HTTP/1.1" 200 1 "-" "probe/1.0"\n'
BOTH = pytest.mark.parametrize("name", sorted(LOGS))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def told(facts: LogFacts) -> list[tuple[int | None, int | None]]:
    return [(one.new_prefill_tokens, one.decoded_tokens) for one in facts.requests]


def counted(facts: LogFacts) -> tuple[int, int, int, int]:
    lines = facts.lines
    return lines.understood, lines.ignored, lines.unknown, lines.markers


# ---- which one -----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_log_is_detected_and_read_in_pieces_of_any_size_that_come_once(name: str, size: int) -> None:
    found = formats.read(pieces(LOGS[name], size))
    assert (found.looks.best, found.looks.lines, found.facts.format) == (name, 4, name)
    assert found.looks.scores == {one: 4 if one == name else 0 for one in formats.installed()}
    assert (told(found.facts), found.facts.lines.total, found.facts.size) == ([(90, 7)], 4, len(LOGS[name]))


@BOTH
def test_a_wrong_format_reads_nothing_and_what_the_log_looks_like_is_told(name: str) -> None:
    (other,) = set(LOGS) - {name}
    found = formats.read([LOGS[name]], other)
    assert (found.facts.format, found.facts.requests, counted(found.facts)) == (other, (), (0, 0, 4, 0))
    assert (found.looks.best, found.looks.scores[other], found.looks.scores[name]) == (name, 0, 4)


def test_a_format_that_is_not_installed_is_refused_before_anything_is_read() -> None:
    source = iter([DS4])
    with pytest.raises(UsageError, match="ds4, llamacpp"):
        formats.read(source, "vllm-of-old")
    assert list(source) == [DS4]


def test_of_two_formats_in_one_file_the_one_with_more_lines_is_taken() -> None:
    found = formats.read([DS4 + DS4 + LLAMA])
    assert found.looks.best == "ds4"
    assert {name: lines for name, lines in found.looks.scores.items() if lines} == {"ds4": 8, "llamacpp": 4}
    assert counted(found.facts) == (8, 0, 4, 0)


@pytest.mark.parametrize("size", [4_096, 1 << 20, 1 << 24])
def test_the_first_lines_tell_the_format_whatever_comes_in_one_piece_with_them(size: int) -> None:
    count = formats.HEAD_BYTES // len(DS4) - 1
    found = formats.read(pieces(DS4 * count + LLAMA * (2 * count), size))
    # The head ends within two DS4s' bytes of llama.cpp's lines, whose four are longer: of 4 * count at most seven.
    assert (found.looks.best, found.looks.scores["ds4"]) == ("ds4", 4 * count)
    assert found.looks.scores["llamacpp"] < 8
    assert counted(found.facts) == (4 * count, 0, 8 * count, 0)


@BOTH
def test_a_long_preamble_of_another_program_is_read_past_and_every_line_of_it_is_counted(name: str) -> None:
    preamble = NGINX * (formats.HEAD_BYTES // len(NGINX) + 9)
    found = formats.read(pieces(preamble + LOGS[name], 1 << 16))
    assert (found.facts.format, told(found.facts)) == (name, [(90, 7)])
    assert counted(found.facts) == (4, 0, preamble.count(b"\n"), 0)
    assert found.facts.requests[0].proofs[0][1].line > preamble.count(b"\n")


def test_what_begins_after_so_many_bytes_of_something_else_is_not_looked_for() -> None:
    preamble = NGINX * (formats.MOST_HEAD_BYTES // len(NGINX) + 1)
    found = formats.read(pieces(preamble + DS4, 1 << 20))
    assert (found.looks.best, found.facts.format) == (None, "unknown")
    assert found.facts.lines.unknown == preamble.count(b"\n") + 4


@BOTH
def test_blank_lines_in_front_are_looked_at_and_no_format_is_asked_for_them(name: str) -> None:
    found = formats.read(pieces(b"\n" * 300_000 + b" \t\r\n\r\n" + LOGS[name], 1 << 16))
    assert (found.looks.best, found.looks.lines, found.looks.asked) == (name, 300_006, 4)
    assert (found.looks.scores[name], told(found.facts), counted(found.facts)[:2]) == (4, [(90, 7)], (4, 300_001))


def test_a_head_gives_its_lines_that_are_not_blank_and_how_many_lines_they_reach() -> None:
    head = b"\n  a\r\n\n\t\nb \n\nc\n\ntorn"
    assert formats.written(head, 9) == ([b"  a", b"b ", b"c"], 8)
    assert formats.written(head, 3) == ([b"  a", b"b ", b"c"], 8)
    assert formats.written(head, 2) == ([b"  a", b"b "], 6)  # c would be the next, in line 7
    assert formats.written(b"torn\r", 9) == ([b"torn"], 1)
    assert formats.written(b"\n\n", 9) == ([], 2)
    assert formats.written(b"", 9) == ([], 0)


def test_no_more_lines_are_asked_than_so_many_and_so_far_the_log_was_looked_at() -> None:
    most = formats.MOST_LINES
    data = b"\nx\n" * (most + 5) + DS4
    found = formats.read(pieces(data, 1 << 16))
    # Line 2 * most + 1 is blank, and the one after it would have been asked next.
    assert (found.looks.best, found.looks.lines, found.looks.asked) == (None, 2 * most + 1, most)
    assert (found.facts.format, counted(found.facts)) == ("unknown", (0, most + 5, most + 9, 0))
    assert told(formats.read(pieces(data, 1 << 16), "ds4").facts) == [(90, 7)]


def test_a_log_of_lines_of_servers_that_another_one_started_is_detected() -> None:
    tagged = b"".join(b"[8081] " + line for line in LLAMA.splitlines(keepends=True))
    found = formats.read([tagged])
    assert (found.looks.best, found.looks.scores["llamacpp"], told(found.facts)) == ("llamacpp", 4, [(90, 7)])
    assert formats.look(b"[2026] begun\n[8081] 0.01 I slot\n").best is None


# ---- what is no log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", (0, 0, 0, 0)),
        (b"\n\r\n\n", (0, 3, 0, 0)),
        (b"\x7fELF\x02\x01\x00\x00\n\xff\xfe\x00\n\x00", (0, 0, 3, 0)),
        (bytes(100_000), (0, 0, 1, 0)),
        (NGINX * 3 + NGINX[:20], (0, 0, 4, 0)),
        (b"one word", (0, 0, 1, 0)),
    ],
)
@pytest.mark.parametrize("name", [None, *sorted(LOGS)])
def test_a_file_that_is_no_servers_log_has_its_lines_counted(
    data: bytes, lines: tuple[int, int, int, int], name: str | None
) -> None:
    found = formats.read(pieces(data, 4_096), name)
    assert (found.facts.format, found.looks.best) == (name or "unknown", None)
    assert (counted(found.facts), found.facts.requests, found.facts.size) == (lines, (), len(data))
    assert len(found.facts.lines.examples) == min(lines[2], 5)


def test_markers_in_a_file_of_no_format_are_found() -> None:
    marker = markers.render("begin", "s1", "r1", "a", 1_790_000_000_000_000_000)
    facts = formats.read([NGINX + marker + b"\n"]).facts
    assert ([one.segment for one in facts.markers], counted(facts)) == (["s1"], (0, 0, 1, 1))


# ---- logs that were cut, rotated, or written by several ------------------------------------------------------------


@BOTH
def test_a_log_cut_in_mid_line_at_both_ends_gives_what_it_has(name: str) -> None:
    facts = formats.read([LOGS[name][30:-10]]).facts
    assert facts.format == name
    assert (facts.lines.understood, facts.lines.unknown) == (2, 2)
    assert told(facts) == [(90, 7)]
    assert {"log-cut-at-front"} <= {one.code for one in facts.doubts}


@BOTH
def test_a_long_line_or_a_long_hole_in_front_hides_no_format(name: str) -> None:
    plain = formats.read([LOGS[name]]).facts
    for front in (b"x" * 5_000_000 + b"\n", bytes(20_000_000)):
        data = front + LOGS[name]
        read = formats.read(data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000))
        assert (read.looks.best, told(read.facts), read.facts.size) == (name, told(plain), len(data))
        assert read.facts.lines.total == plain.lines.total + front.count(b"\n")


@BOTH
def test_line_ends_colours_and_holes_change_nothing(name: str) -> None:
    plain = formats.read([LOGS[name]]).facts
    coloured = LOGS[name].replace(b": ", b": \x1b[36m", 1).replace(b"\n", b"\x1b[0m\n")
    for data in (LOGS[name].replace(b"\n", b"\r\n"), bytes(4_096) + LOGS[name], coloured, LOGS[name][:-1]):
        facts = formats.read([data], name).facts
        assert (told(facts), counted(facts), facts.doubts) == (told(plain), counted(plain), plain.doubts)


@BOTH
def test_a_log_rotated_in_mid_line_goes_on_with_the_next_file(name: str) -> None:
    # What a tail reads: the old file up to where it was cut, then the new one from its beginning.
    reader = formats.by_name(name).reader()
    reader.feed(LOGS[name][:-30])
    assert reader.open_requests() == 1
    reader.feed(b"\n" + LOGS[name].replace(b"task 7", b"task 8").replace(b"0914", b"0915"))
    facts = reader.close()
    assert told(facts)[-1] == (90, 7)
    assert facts.lines.total == 8
    assert facts.lines.unknown == 1
    assert sum(new or 0 for new, _ in told(facts)) == 180


@BOTH
def test_a_log_truncated_while_it_is_read_has_a_hole_and_then_goes_on(name: str) -> None:
    # Without O_APPEND the server goes on at its old offset: the file has NUL bytes up to there.
    reader = formats.by_name(name).reader()
    reader.feed(LOGS[name])
    reader.feed(bytes(len(LOGS[name])) + LOGS[name].replace(b"task 7", b"task 8").replace(b"0914", b"0915"))
    facts = reader.close()
    assert (told(facts), facts.lines.unknown) == ([(90, 7), (90, 7)], 0)
    assert dict(facts.requests[1].proofs)["t_end"].offset > 2 * len(LOGS[name])


# ---- markers -------------------------------------------------------------------------------------------------------


def mark(action: str, segment: str, second: int) -> bytes:
    return markers.render(action, segment, "r1", "a", (1_790_000_000 + second) * 1_000_000_000) + b"\n"


@BOTH
@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ([("begin", "s1", 1)], ["segment-without-end"]),
        ([("end", "s1", 1)], ["segment-end-without-begin"]),
        ([("begin", "s1", 1), ("begin", "s2", 2), ("end", "s2", 3), ("end", "s1", 4)], ["segments-overlap"]),
        ([("begin", "s1", 1), ("end", "s1", 2), ("begin", "s1", 3), ("end", "s1", 4)], ["duplicate-segment"] * 2),
    ],
)
def test_markers_that_are_not_sound_are_read_and_told(
    name: str, lines: list[tuple[str, str, int]], codes: list[str]
) -> None:
    facts = formats.read([LOGS[name] + b"".join(mark(*line) for line in lines) + NGINX]).facts
    assert (facts.lines.markers, facts.lines.unknown) == (len(lines), 1)
    assert [one.code for one in segments_of(facts.markers)[1]] == codes


# ---- very many -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ds4", b"0914 12:00:00 ds4-server: failed to listen on 127.0.0.1:8000: in use\n"),
        ("llamacpp", b"0.01.200.000 E srv  update_slots: failed to decode the batch\n"),
    ],
)
def test_of_very_many_suspect_lines_the_first_are_kept_and_the_others_counted(name: str, line: bytes) -> None:
    facts = formats.read([line * (MOST_SUSPECTS + 3)], name).facts
    assert (len(facts.suspects), facts.lines.understood) == (MOST_SUSPECTS, MOST_SUSPECTS + 3)
    (doubt,) = [one for one in facts.doubts if one.code == "left-out"]
    first = MOST_SUSPECTS + 1  # line of the first that is not kept
    assert doubt.message == (
        f"line {first}: after the first 20,000 suspect lines there are 3 more, which are counted here and not listed"
    )


@BOTH
def test_more_requests_than_are_kept_as_objects_come_back_in_order(name: str) -> None:
    count = FEW + 600
    if name == "ds4":
        data = b"".join(
            b"0914 %02d:%02d:%02d ds4-server: chat ctx=0..%d:%d prompt start\n"
            % (n // 3600, n // 60 % 60, n % 60, n, n)
            + b"0914 %02d:%02d:%02d ds4-server: chat ctx=0..%d:%d prompt done 0.100s\n"
            % (n // 3600, n // 60 % 60, n % 60, n, n)
            + b"0914 %02d:%02d:%02d ds4-server: chat ctx=0..%d:%d gen=0 finish=stop 0.200s\n"
            % (n // 3600, n // 60 % 60, n % 60, n, n)
            for n in range(count)
        )
    else:
        data = b"".join(
            LLAMA.replace(b"task 7", b"task %d" % n).replace(b"96,", b"%d," % (96 + n)) for n in range(count)
        )
    facts = formats.read(pieces(data, 1 << 20)).facts
    assert len(facts.requests) == count
    prompts = [one.prompt_tokens for one in facts.requests]
    assert prompts == [n if name == "ds4" else 90 + n for n in range(count)]
