"""A log with local one-second stamps and no year, put on the client's clock by requests and by markers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.attribution import attribute
from agentload.core.clocks import align
from agentload.core.records import Completion, LogFacts, Match, Timeline, ToolCall, Usage
from agentload.core.segments import segments_of
from agentload.serverlogs import llamacpp
from agentload.serverlogs.ds4 import Reader
from tests.serverlogs.test_ds4_properties import SCHEDULES, START_UP, Planned

S = 1_000_000_000
MS = 1_000_000
HOUR_S = 3_600


def client_of(name: int, one: Planned, start_s: int, late_ms: int) -> Completion:
    begin = (start_s * 1000 + one.start_ms) * MS
    end = begin + (one.prefill_ms + one.decode_ms) * MS
    return Completion(
        f"a{name}-r0", f"a{name}", 0, begin - late_ms * MS, None, begin + (one.prefill_ms + late_ms) * MS,
        end + late_ms * MS, 200,
        tool_calls=(ToolCall(f"call_{name:032x}", "bash", "{}"),) if one.finish == "tool_calls" else (),
        usage=Usage(one.prompt, one.gen, one.cached),
    )  # fmt: skip


def read(lines: list[tuple[int, str]], zone_s: int, *, year: int | None = None) -> LogFacts:
    """Lines (Unix ms, text) as a server in a zone `zone_s` ahead of UTC would stamp them; markers stand as they are."""
    reader = Reader(year=year)
    for at_ms, text in lines:
        stamp = datetime.fromtimestamp(at_ms // 1000 + zone_s, UTC).strftime("%m%d %H:%M:%S ")
        reader.feed(f"{'' if 'agentload:' in text else stamp}{text}\n".encode())
    return reader.close()


def lines_of(plan: list[Planned], start_s: int) -> list[tuple[int, str]]:
    found = [(0, text) for text in START_UP] + [line for k, one in enumerate(plan) for line in one.lines(k)]
    return [(start_s * 1000 + at, text) for at, text in sorted(found, key=lambda line: line[0])]


def mark(action: str, at_ms: int) -> tuple[int, str]:
    return at_ms, markers.render(action, "s1", "r", "a", at_ms * MS).decode()


def unix_s(*when: int) -> int:
    year, month, day, hour, minute = when
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp())


NEW_YEAR = unix_s(2026, 12, 31, 21, 58)  # 23:58 where the server stands, two hours ahead
# Begun at 2.000 s. Its stamps less elapsed are 2 s, 3 - 1.666, 5 - 3.333 and again 2 s: from 2 s to below 2.334 s is
# left, of which 2.167 s is the middle. With 91 tokens they are 2, 3 - 1.648, 5 - 3.296 and 6 - 4.945: 2.0275 s.
ONE = Planned(2_000, 0, 90, 5_000, 7, 10_000, 500, "stop")
TWO = replace(ONE, new=91)
MIDDLES = 2_167_000_000, 2_027_500_000


def starts(facts: LogFacts) -> list[int]:
    return [one.prefill_start or 0 for one in facts.requests]


@settings(max_examples=60)
@given(
    SCHEDULES,
    st.sampled_from([-9 * HOUR_S, 0, 2 * HOUR_S, 20_700]),
    st.integers(0, 80),
    st.sampled_from([None, 2026]),
)
def test_requests_align_a_wall_clock_over_midnight_and_new_year_within_the_stated_error(
    plan: list[Planned], zone_s: int, late_ms: int, year: int | None
) -> None:
    start_s = unix_s(2026, 12, 31, 23, 58) - zone_s
    facts = read(lines_of(plan, start_s), zone_s, year=year)
    assert facts.timeline is Timeline.WALL
    sent = [client_of(name, one, start_s, late_ms) for name, one in enumerate(plan)]
    aligned = align(facts, sent)
    assert (aligned.timeline, aligned.doubts) == (Timeline.UNIX, facts.doubts)
    assert aligned.clock_error_ns is not None
    by_prompt = {one.prompt: one for one in plan}
    for logged in aligned.requests:
        true = (start_s * 1000 + by_prompt[logged.prompt_tokens or 0].start_ms) * MS
        assert abs((logged.prefill_start or 0) - true) <= aligned.clock_error_ns
    joined = attribute("r", sent, aligned, ())
    assert joined.counts[Match.EXACT] + joined.counts[Match.UNIQUE] == len(plan)


def test_markers_alone_align_a_log_and_put_its_requests_into_their_segment() -> None:
    begin, end = mark("begin", NEW_YEAR * 1000 + 1_200), mark("end", NEW_YEAR * 1000 + 18_100)
    lines = lines_of([ONE], NEW_YEAR)
    facts = read([*lines[:3], begin, *lines[3:], end], 2 * HOUR_S)
    assert [one.after_ns is None for one in facts.markers] == [False, True]
    aligned = align(facts, ())
    assert (aligned.timeline, aligned.doubts) == (Timeline.UNIX, ())
    # Start-up at 0.0 s and prompt start at 2.0 s, stamped 0 and 2: begin at 1.2 s bounds the clock to within
    # (1.2 - 2 - 1 - 0.1, 1.2 - 0 + 0.1) s; finish at 17.5 s, stamped 17, end at 18.1 s: at most 1.1 + 0.1 s.
    assert aligned.clock_error_ns == 1_900 * MS
    assert starts(aligned) == [NEW_YEAR * S + MIDDLES[0]]
    segments, _ = segments_of(aligned.markers)
    (row,) = attribute("r", (), aligned, segments).requests
    assert (row.segment, row.match) == ("s1", Match.SERVER_ONLY)


def test_a_log_alone_without_markers_stays_on_its_own_clock_and_nothing_is_doubted() -> None:
    facts = read(lines_of([ONE], NEW_YEAR), 0)
    assert align(facts, ()) is facts


def test_answers_that_tell_nothing_leave_the_log_where_it_is_with_a_doubt() -> None:
    facts = read(lines_of([ONE], NEW_YEAR), 0)
    silent = replace(client_of(0, ONE, NEW_YEAR, 0), usage=None)
    aligned = align(facts, [silent])
    assert (aligned.timeline, aligned.clock_error_ns, starts(aligned)) == (Timeline.WALL, None, starts(facts))
    assert [one.code for one in aligned.doubts] == ["clock-not-aligned"]


def test_requests_that_the_log_does_not_tell_apart_align_nothing() -> None:
    twins = [ONE, ONE]
    facts = read(lines_of(twins, NEW_YEAR), 0)
    assert {one.group for one in facts.requests} != {None}
    aligned = align(facts, [client_of(name, one, NEW_YEAR, 0) for name, one in enumerate(twins)])
    assert aligned.timeline is Timeline.WALL


@pytest.mark.parametrize(
    ("change", "before_s", "after_s", "jump"),
    [
        # The night of 28 to 29 March: 02:00 is 03:00. The night of 24 to 25 October: 03:00 is 02:00.
        (unix_s(2026, 3, 29, 1, 0), HOUR_S, 2 * HOUR_S, "+3600 s"),
        (unix_s(2026, 10, 25, 1, 0), 2 * HOUR_S, HOUR_S, "-3600 s"),
    ],
)
def test_summer_time_that_changed_between_two_requests_is_found_as_a_jump(
    change: int, before_s: int, after_s: int, jump: str
) -> None:
    early, late = change - 600, change + 2 * HOUR_S  # so long after that stamps go on ahead in October too
    reader = Reader()
    for start, zone_s, one in ((early, before_s, ONE), (late, after_s, TWO)):
        for at_ms, text in one.lines(0):
            stamp = datetime.fromtimestamp(start + at_ms // 1000 + zone_s, UTC).strftime("%m%d %H:%M:%S ")
            reader.feed(f"{stamp}{text}\n".encode())
    facts = reader.close()
    aligned = align(facts, [client_of(0, ONE, early, 10), client_of(1, TWO, late, 10)])
    assert starts(aligned) == [early * S + MIDDLES[0], late * S + MIDDLES[1]]
    assert aligned.clock_error_ns == S
    assert [one.code for one in aligned.doubts] == ["wall-clock-jumped"]
    assert jump in aligned.doubts[0].message


def test_what_was_read_between_a_jump_and_the_line_that_proves_it_is_moved_too() -> None:
    # A long request (its stamps less elapsed are 0, -0.333, -0.666 and -0.999 s) spans the jump; a short one and a
    # marker come after it and before the long one's next line.
    change = unix_s(2026, 3, 29, 1, 0)
    spanning = Planned(0, 0, 5_000, 1_000, 40, 3_000_000, 0, "stop")  # 50 minutes, no decode line before its last
    short = Planned(2_400_000, 0, 90, 5_000, 7, 10_000, 500, "stop")
    start_s = change - 600
    lines = sorted(
        [*lines_of([spanning], start_s)[3:], *lines_of([short], start_s)[3:],
         (start_s * 1000 + 2_420_000, "ds4-server: kv cache stored tokens=9 trimmed=0 reason=cold key=k save=1.0 ms"),
         mark("begin", start_s * 1000 + 2_430_000)],
        key=lambda line: line[0],
    )  # fmt: skip
    reader = Reader(year=2026)
    for at_ms, text in lines:
        zone_s = HOUR_S if at_ms < change * 1000 else 2 * HOUR_S
        stamp = datetime.fromtimestamp(at_ms // 1000 + zone_s, UTC).strftime("%m%d %H:%M:%S ")
        reader.feed(f"{'' if 'agentload:' in text else stamp}{text}\n".encode())
    facts = reader.close()
    local = (start_s + HOUR_S) * S
    assert "clock-set-ahead" in [one.code for one in facts.doubts]
    assert [one - local for one in starts(facts)] == [500_000, 2_400 * S + 167 * MS]
    assert [one.at - local for one in facts.cache_events] == [2_420 * S]
    (marker,) = facts.markers
    assert (marker.before_ns, marker.after_ns) == (local + 2_420 * S, local + 3_001 * S)


def test_a_leap_day_without_a_line_in_a_log_without_years_is_found_as_a_jump() -> None:
    early, late = unix_s(2028, 2, 28, 12, 0), unix_s(2028, 3, 1, 12, 0)
    facts = read([*lines_of([ONE], early), *lines_of([TWO], late)[3:]], 0)
    assert (
        starts(facts)[1] - starts(facts)[0] + MIDDLES[0] - MIDDLES[1] == 24 * HOUR_S * S
    )  # 28 February to 1 March of a common year
    aligned = align(facts, [client_of(0, ONE, early, 10), client_of(1, TWO, late, 10)])
    assert starts(aligned) == [early * S + MIDDLES[0], late * S + MIDDLES[1]]


def test_cache_events_and_suspects_move_with_the_requests() -> None:
    lines = [
        *lines_of([ONE], NEW_YEAR),
        (NEW_YEAR * 1000 + 20_000, "ds4-server: kv cache stored tokens=9 trimmed=0 reason=cold key=k save=1.0 ms"),
        (NEW_YEAR * 1000 + 21_000, "ds4-server: failed to listen on 127.0.0.1:8000: in use"),
    ]
    aligned = align(read(lines, 2 * HOUR_S), [client_of(0, ONE, NEW_YEAR, 10)])
    assert [one.at for one in aligned.cache_events] == [(NEW_YEAR + 20) * S]
    assert [at for at, _, _ in aligned.suspects] == [(NEW_YEAR + 21) * S]


def test_markers_alone_align_a_log_that_counts_from_process_start_each_start_by_its_own() -> None:
    at = unix_s(2026, 11, 29, 13, 0) * 1000

    def start(task: int) -> list[str]:
        slot = f"id  0 | task {task} |"
        return [
            "0.00.100.000 I srv          init: initializing ...",
            "0.01.000.000 I srv          init: listening on http://127.0.0.1:1",
            "MARKER",
            f"0.02.000.000 I slot launch_slot_: {slot} processing task, is_child = 0",
            f"0.03.000.000 I slot      release: {slot} stop processing: n_tokens = 9, truncated = 0",
        ]

    reader = llamacpp.Reader()
    # The processes began at 13:00:00 and 13:10:00; a begin marker in each 1.5 s later.
    for process, task in ((0, 1), (600_000, 2)):
        for line in start(task):
            text = mark("begin", at + process + 1_500)[1] if line == "MARKER" else line
            reader.feed(f"{text}\n".encode())
    facts = reader.close()
    assert [(one.before_ns, one.after_ns) for one in facts.markers] == [(S, 2 * S)] * 2
    aligned = align(facts, ())
    assert (aligned.timeline, aligned.clock_error_ns) == (Timeline.UNIX, 600 * MS + 500)
    # 1.5 s less 1 s and 0.1 s, 1.5 s less 2 s, 0.1 s and the resolution: the middle is half a microsecond off.
    assert [one.t_slot for one in aligned.requests] == [
        (at + 2_000) * MS - 500,
        (at + 602_000) * MS - 500,
    ]


def test_an_answer_whose_counts_are_its_own_aligns_a_process_clock_without_timings() -> None:
    start = datetime(2026, 11, 29, 13, tzinfo=UTC)
    reader = llamacpp.Reader()
    reader.feed(
        b"0.00.100.000 I srv          init: initializing ...\n"
        b"0.02.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n"
        b"0.04.000.000 I slot print_timing: id  0 | task 1 | prompt eval time =     600.00 ms /    90 tokens"
        b" (    6.67 ms per token,   150.00 tokens per second)\n"
        b"0.04.000.000 I slot print_timing: id  0 | task 1 |        eval time =    1300.00 ms /    11 tokens"
        b" (  118.18 ms per token,     8.46 tokens per second)\n"
        b"0.04.000.100 I slot      release: id  0 | task 1 | stop processing: n_tokens = 100, truncated = 0\n"
    )
    begin = int((start + timedelta(seconds=1.99)).timestamp() * 1000) * MS
    answer = Completion(
        "a0-r0", "a0", 0, begin, None, begin + 700 * MS, begin + 2_015 * MS, 200, usage=Usage(90, 11, 0)
    )
    aligned = align(reader.close(), [answer])
    # done at 13:00:04.005 and released at 4.0001 s; sent at 1.99 s and given its slot at 2.000 s
    assert aligned.requests[0].t_end == begin + 2_015 * MS
    assert aligned.clock_error_ns == 4_900_000 + 10 * MS
