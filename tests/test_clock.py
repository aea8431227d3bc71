"""The clock of a run: Unix time that never steps back."""

import threading
import time
from itertools import pairwise

import pytest

from agentload.clock import SystemClock

pytestmark = pytest.mark.anyio


def test_it_tells_unix_time() -> None:
    before = time.time_ns()
    clock = SystemClock()
    after = time.time_ns()
    assert before <= clock.anchor_unix_ns <= after


def test_the_two_anchors_are_of_one_moment_within_the_error_that_is_told() -> None:
    before = time.monotonic_ns()
    clock = SystemClock()
    after = time.monotonic_ns()
    assert before <= clock.anchor_monotonic_ns <= after
    assert 0 <= clock.anchor_error_ns <= after - before


def test_it_is_carried_on_by_the_monotonic_clock() -> None:
    clock = SystemClock()
    before = time.monotonic_ns()
    now = clock.now_ns()
    after = time.monotonic_ns()
    assert before <= now - clock.anchor_unix_ns + clock.anchor_monotonic_ns <= after


def test_it_never_steps_back_in_any_thread() -> None:
    clock = SystemClock()
    readings: list[list[int]] = [[] for _ in range(4)]

    def look(into: list[int]) -> None:
        into.extend(clock.now_ns() for _ in range(5000))

    threads = [threading.Thread(target=look, args=(into,)) for into in readings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(into) for into in readings] == [5000] * 4
    assert all(one <= next_one for into in readings for one, next_one in pairwise(into))


def test_the_drift_is_how_far_the_wall_clock_is_ahead() -> None:
    clock = SystemClock()
    clock._shift -= 3_000_000_000  # as if the wall clock had been stepped three seconds ahead
    ours_before, wall_before = clock.now_ns(), time.time_ns()
    drift = clock.drift_ns()
    wall_after, ours_after = time.time_ns(), clock.now_ns()
    # Both are read between the two moments, however far apart those are; without a pause that is 3 s within some us.
    assert wall_before - ours_after <= drift <= wall_after - ours_before


def test_what_the_manifest_says_of_it_is_integers_in_ns() -> None:
    clock = SystemClock()
    told = clock.describe()
    assert set(told) == {"anchor_unix_ns", "anchor_monotonic_ns", "anchor_error_ns", "wall_drift_ns"}
    assert told["anchor_unix_ns"] == clock.anchor_unix_ns
    assert told["anchor_monotonic_ns"] == clock.anchor_monotonic_ns
    assert all(type(value) is int for value in told.values())


async def test_it_sleeps_until_the_time_and_never_less() -> None:
    clock = SystemClock()
    for _ in range(20):
        due = clock.now_ns() + 1_000_000
        await clock.sleep_until(due)
        assert clock.now_ns() >= due


def test_a_time_that_has_passed_is_not_waited_for() -> None:
    clock = SystemClock()
    sleeping = clock.sleep_until(clock.now_ns())
    with pytest.raises(StopIteration):  # it ended at its first step: it never gave the event loop control
        sleeping.send(None)
