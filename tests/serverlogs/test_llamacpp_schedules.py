"""Schedules of concurrent requests, written as a log, are read back as they were."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.records import LogFacts, LoggedRequest, Timeline
from agentload.serverlogs.llamacpp import FORMAT
from tests.serverlogs.llama_schedule import Planned, plans, render

UNIX_NS = 1_795_971_897_000_000_000


def read(lines: Sequence[bytes], stamps: Sequence[int] | None = None) -> LogFacts:
    reader = FORMAT.reader(stamps)
    reader.feed(b"".join(line + b"\n" for line in lines))
    return reader.close()


def times(one: LoggedRequest) -> tuple[int | None, ...]:
    return (one.t_slot, one.prefill_start, one.prefill_end, one.decode_start, one.decode_end, one.t_end)


def planned_times(one: Planned, offset_ns: int = 0) -> tuple[int | None, ...]:
    start = one.t_slot + one.wait
    middle = start + 10 * one.prefill_10us
    found: list[int | None] = [one.t_slot, start, middle, middle, one.decode_end, one.t_end]
    if one.cancelled:
        found[1:5] = [None] * 4
    return tuple(None if us is None else us * 1000 + offset_ns for us in found)


def check(facts: LogFacts, plan: list[Planned], *, verbose: bool, offset_ns: int = 0) -> None:
    by_label = {one.label: one for one in facts.requests}
    assert len(facts.requests) == len(plan)
    for wanted in plan:
        one = by_label[f"slot {wanted.slot} task {wanted.task}"]
        if wanted.cancelled:
            # At -lv 4 the line of its first batch tells when its prefill began; when that ended stands nowhere.
            planned = planned_times(wanted, offset_ns)
            begun = one.prefill_start if verbose else None
            assert begun in (None, (wanted.t_slot + wanted.wait) * 1000 + offset_ns)
            assert times(one) == (planned[0], begun, None, None, None, planned[5])
            assert one.finish == "cancelled"
            assert one.new_prefill_tokens in (None, wanted.new)  # it left while decoding: all was prefilled
            assert one.decoded_tokens is None
            assert one.cached_tokens == (wanted.cached if verbose else None)
        else:
            assert times(one) == planned_times(wanted, offset_ns)
            assert one.finish is None
            assert (one.new_prefill_tokens, one.decoded_tokens) == (wanted.new, wanted.decoded)
            assert (one.cached_tokens, one.prompt_tokens) == (wanted.cached, wanted.cached + wanted.new)
            assert one.context_start == wanted.cached
            assert (one.prefill_ms, one.decode_ms) == (wanted.prefill_10us / 100, wanted.decode_10us / 100)


@given(plans(), st.booleans())
def test_what_is_read_back_is_the_schedule(plan: list[Planned], verbose: bool) -> None:
    lines = [line for _, line in render(plan, verbose=verbose)]
    facts = read(lines)
    check(facts, plan, verbose=verbose)
    assert facts.timeline is Timeline.PROCESS
    assert facts.clock_error_ns is None
    assert (facts.lines.unknown, facts.lines.total) == (0, len(lines))
    assert facts.doubts == ()


@given(plans(), st.data())
def test_where_the_bytes_are_cut_changes_nothing(plan: list[Planned], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for _, line in render(plan, verbose=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    reader = FORMAT.reader()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        reader.feed(whole[start:end])
    at_once = FORMAT.reader()
    at_once.feed(whole)
    assert reader.close() == at_once.close()


@given(plans(), st.data())
def test_receive_stamps_move_each_time_by_the_least_delay(plan: list[Planned], data: st.DataObject) -> None:
    lines = render(plan)
    delays = [data.draw(st.integers(0, 3_000_000)) for _ in lines]
    delays[5] = least = 0 if data.draw(st.booleans()) else min(delays)  # of the line that says it is ready
    stamps = np.array([UNIX_NS + us * 1000 + delay for (us, _), delay in zip(lines, delays, strict=True)], np.int64)
    facts = read([line for _, line in lines], cast("Sequence[int]", stamps))
    check(facts, plan, verbose=False, offset_ns=UNIX_NS + least)
    assert facts.timeline is Timeline.UNIX
    assert facts.clock_error_ns is not None
    assert {type(time) for one in facts.requests for time in times(one)} <= {int, type(None)}
    assert type(facts.clock_error_ns) is int


@given(plans())
def test_without_prefix_counts_are_known_and_times_are_not(plan: list[Planned]) -> None:
    facts = read([line for _, line in render(plan, prefix=False)])
    whole = {one.label: one for one in facts.requests}
    for wanted in plan:
        one = whole[f"slot {wanted.slot} task {wanted.task}"]
        assert times(one) == (None,) * 6
        if not wanted.cancelled:
            assert (one.new_prefill_tokens, one.cached_tokens, one.decoded_tokens) == (
                wanted.new,
                wanted.cached,
                wanted.decoded,
            )
    assert facts.lines.unknown == 0


@given(plans())
def test_without_prefix_the_receive_stamps_are_the_times(plan: list[Planned]) -> None:
    lines = render(plan, prefix=False)
    facts = read([line for _, line in lines], [UNIX_NS + us * 1000 for us, _ in lines])
    check(facts, plan, verbose=False, offset_ns=UNIX_NS)
    assert facts.timeline is Timeline.UNIX


@given(plans(), plans())
def test_a_second_start_in_one_log_has_a_timeline_of_its_own(first: list[Planned], second: list[Planned]) -> None:
    lines = [*render(first), *render(second)]
    later = UNIX_NS + 10**15
    stamps = [(UNIX_NS if index < len(render(first)) else later) + us * 1000 for index, (us, _) in enumerate(lines)]
    facts = read([line for _, line in lines], stamps)
    assert [boot.index for boot in facts.boots] == [0, 1]
    assert facts.boots[1].first_line == len(render(first)) + 1
    for boot, plan, offset_ns in ((0, first, UNIX_NS), (1, second, later)):
        found = {one.label: times(one) for one in facts.requests if one.boot == boot}
        assert found == {f"slot {one.slot} task {one.task}": planned_times(one, offset_ns) for one in plan}


@given(plans(), st.data())
def test_live_open_requests_are_those_launched_and_not_released(plan: list[Planned], data: st.DataObject) -> None:
    lines = render(plan)
    cut = data.draw(st.integers(0, len(lines)))
    reader = FORMAT.reader()
    reader.feed(b"".join(line + b"\n" for _, line in lines[:cut]))
    text = b"\n".join(line for _, line in lines[:cut])
    assert reader.open_requests() == text.count(b"processing task") - text.count(b"stop processing")
    kept = {one.label for one in reader.close().requests}
    assert len(kept) == text.count(b"processing task")
