"""A log that counts from its process start, put on the client's clock; every figure worked out by hand."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentload.core.clocks import Offset, align, offset_of
from agentload.core.records import (
    Boot,
    Completion,
    LineCount,
    LogFacts,
    LoggedRequest,
    Proof,
    ServerTimings,
    Timeline,
)

MS = 1_000_000
S = 1_000 * MS
START = 1_795_958_524_000_000_000  # the process started here, on the client's clock


def answer(number: int, sent: int, done: int, prompt_ms: float = 400.004, decode_ms: float = 600.0) -> Completion:
    """An answer of 10 + number new tokens; times in ms after START."""
    timings = ServerTimings(0, 10 + number, prompt_ms, 5, decode_ms)
    return Completion(
        f"a0-t{number}", "a0", number, START + sent * MS, None, None, START + done * MS, 200, timings=timings
    )


def logged(number: int, start: int | None, end: int | None, boot: int = 0, **columns: Any) -> LoggedRequest:
    """A request of the log with the numbers of `answer(number)`; times in ms after its process start."""
    begin, stop = (None if at is None else at * MS for at in (start, end))
    values: dict[str, Any] = {
        "boot": boot, "label": f"slot 0 task {number}", "slot": 0, "prompt_tokens": 10 + number, "cached_tokens": 0,
        "new_prefill_tokens": 10 + number, "decoded_tokens": 5, "t_slot": begin, "prefill_start": begin,
        "prefill_end": None if begin is None else begin + 400 * MS, "decode_start": None, "decode_end": None,
        "t_end": stop, "prefill_ms": 400.0, "decode_ms": 600.0, "finish": None,
    }  # fmt: skip
    return LoggedRequest(**(values | columns))


def facts_of(*requests: LoggedRequest, timeline: Timeline = Timeline.PROCESS, **columns: Any) -> LogFacts:
    values: dict[str, Any] = {
        "format": "llamacpp", "timeline": timeline, "resolution_ns": 1_000, "clock_error_ns": None, "size": 0,
        "lines": LineCount(0, 0, 0), "boots": (Boot(0, 1, None),), "settings": (), "requests": requests, "markers": (),
    }  # fmt: skip
    return LogFacts(**(values | columns))


def test_the_least_delayed_pair_gives_the_offset_and_the_scatter_its_error() -> None:
    # log ends at 2,000 and 4,000 ms; the client had them 3 and 9 ms later; work began 20 and 500 ms after sending
    pairs = [(answer(0, 980, 2_003), logged(0, 1_000, 2_000)), (answer(1, 2_500, 4_009), logged(1, 3_000, 4_000))]
    # offset START + 3 ms; scatter 9 - 3 = 6 ms; room 3 + 20 = 23 ms
    assert offset_of(pairs, 1_000) == Offset(START + 3 * MS, 6 * MS, 2)


def test_the_room_left_by_the_order_of_cause_and_effect_bounds_the_error_of_scattered_pairs() -> None:
    # client ends 3 and 68 ms late: scatter 65 ms; work began 2 ms after sending: room 3 + 2 = 5 ms
    pairs = [(answer(0, 998, 2_003), logged(0, 1_000, 2_000)), (answer(1, 2_500, 4_068), logged(1, 3_000, 4_000))]
    assert offset_of(pairs, 1_000) == Offset(START + 3 * MS, 5 * MS, 2)


def test_a_single_pair_has_no_scatter_so_the_room_is_its_error() -> None:
    pairs = [(answer(0, 900, 2_003), logged(0, 1_000, 2_000))]
    assert offset_of(pairs, 1_000) == Offset(START + 3 * MS, 103 * MS, 1)


def test_a_log_line_written_after_the_last_byte_is_found_out_by_the_start() -> None:
    # the log's end is 7 ms after the client's: offset START - 7 ms; the work would begin at 993 ms, sent at 998 ms
    pairs = [(answer(0, 998, 1_993), logged(0, 1_000, 2_000))]
    assert offset_of(pairs, 1_000) == Offset(START - 7 * MS, 5 * MS, 1)


def test_the_error_is_never_less_than_the_resolution_of_the_log() -> None:
    pairs = [(answer(0, 1_000, 2_000), logged(0, 1_000, 2_000))]
    assert offset_of(pairs, S) == Offset(START, S, 1)


def test_the_end_of_decode_stands_in_for_a_missing_end_and_durations_for_a_missing_start() -> None:
    one = logged(0, None, None, decode_end=2_000 * MS)  # 400 + 600 ms of work: it began at 1,000
    assert offset_of([(answer(0, 990, 2_003), one)], 1_000) == Offset(START + 3 * MS, 13 * MS, 1)


def test_no_pair_with_an_end_gives_no_offset() -> None:
    assert offset_of([(answer(0, 0, 1_000), logged(0, 0, None))], 1_000) is None


def test_all_times_move_to_the_clients_clock() -> None:
    one = logged(0, 1_000, 2_000, decode_start=1_400 * MS, decode_end=1_999 * MS)
    facts = facts_of(one, logged(5, 10_000, 11_000), suspects=((1_500 * MS, Proof(3, 90), "compiling"),))
    aligned = align(facts, [answer(0, 990, 2_003)])
    assert (aligned.timeline, aligned.clock_error_ns) == (Timeline.UNIX, 13 * MS)
    first, foreign = aligned.requests
    off = START + 3 * MS
    assert (first.t_slot, first.prefill_start, first.prefill_end) == (off + S, off + S, off + 1_400 * MS)
    assert (first.decode_start, first.decode_end, first.t_end) == (off + 1_400 * MS, off + 1_999 * MS, off + 2 * S)
    assert (foreign.prefill_start, foreign.decode_start) == (off + 10 * S, None)
    assert aligned.suspects == ((off + 1_500 * MS, Proof(3, 90), "compiling"),)
    assert aligned.doubts == ()


def test_each_boot_has_its_own_offset_and_the_worst_error_is_stated() -> None:
    facts = facts_of(
        logged(0, 1_000, 2_000),
        logged(1, 1_000, 2_000, boot=1),
        boots=(Boot(0, 1, None), Boot(1, 50, None)),
        suspects=((S, Proof(60, 9), "compiling"),),
    )
    # the second process started 60 s after the first
    aligned = align(facts, [answer(0, 940, 2_003), answer(1, 60_950, 62_001)])
    assert [one.t_end for one in aligned.requests] == [START + 2_003 * MS, START + 62_001 * MS]
    assert aligned.clock_error_ns == 63 * MS  # 3 + 60 ms and 1 + 50 ms
    assert aligned.suspects[0][0] == START + 60_001 * MS + S


def test_without_a_pair_the_facts_stay_as_they_are_and_a_doubt_says_so() -> None:
    facts = facts_of(logged(0, 1_000, 2_000))
    aligned = align(facts, [answer(7, 990, 2_003)])
    assert (aligned.timeline, aligned.requests, aligned.clock_error_ns) == (Timeline.PROCESS, facts.requests, None)
    assert [doubt.code for doubt in aligned.doubts] == ["clock-not-aligned"]


def test_a_boot_without_a_pair_loses_its_times_and_not_its_requests() -> None:
    facts = facts_of(
        logged(0, 1_000, 2_000),
        logged(8, 1_000, 2_000, boot=1),
        boots=(Boot(0, 1, None), Boot(1, 50, None)),
        suspects=((S, Proof(60, 9), "compiling"),),
    )
    aligned = align(facts, [answer(0, 990, 2_003)])
    assert (aligned.requests[1].t_end, aligned.requests[1].new_prefill_tokens) == (None, 18)
    assert [doubt.code for doubt in aligned.doubts] == ["boot-not-aligned"]
    assert "line 60: compiling" in aligned.doubts[0].message


def test_facts_on_the_clients_clock_are_returned_as_they_are() -> None:
    facts = facts_of(logged(0, 1_000, 2_000), timeline=Timeline.UNIX)
    assert align(facts, [answer(0, 990, 2_003)]) is facts


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(100, 9_000), st.integers(0, 70)), min_size=1, max_size=6))
def test_the_true_offset_is_no_further_away_than_the_causal_room_allows(waits: list[tuple[int, int, int]]) -> None:
    """Each request waits before its work and its end is delayed on the way; the truth is START."""
    pairs = []
    for number, (wait, work, delay) in enumerate(waits):
        sent = number * 20_000
        end = sent + wait + work
        pairs.append((answer(number, sent, end + delay), logged(number, sent + wait, end)))
    found = offset_of(pairs, 1_000)
    assert found is not None
    least_delay, least_wait = min(delay for _, _, delay in waits), min(wait for wait, _, _ in waits)
    assert found.offset_ns - START == least_delay * MS
    spread = max(delay for _, _, delay in waits) - least_delay
    bounds = [least_delay + least_wait] + ([spread] if len(waits) > 1 else [])
    assert found.error_ns == max(min(bounds) * MS, 1_000)
