"""Does virtual time stand while anybody works, and is the order of events the same however the machine's tasks run?"""

import asyncio
import heapq
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count, cycle
from typing import Any

import anyio
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.agents.deadline import cut_at
from agentload.errors import ServerError
from agentload.twin.virtual_clock import Gate, VirtualClock

pytestmark = pytest.mark.anyio


class Bells:
    """A source that calls something at given times."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Callable[[int], object]]] = []
        self._order = count()

    def at(self, t_ns: int, ring: Callable[[int], object]) -> None:
        heapq.heappush(self._due, (t_ns, next(self._order), ring))

    def next_ns(self) -> int | None:
        return self._due[0][0] if self._due else None

    def advance(self, to_ns: int) -> None:
        while self._due and self._due[0][0] <= to_ns:
            t_ns, _, ring = heapq.heappop(self._due)
            ring(t_ns)


Life = Callable[[], Coroutine[Any, Any, None]]


async def live(clock: VirtualClock, source: Bells, *lives: Life, order: tuple[int, ...] | None = None) -> None:
    """Let members live, started in `order` (default: that of their numbers), until all have ended."""

    async def one(number: int) -> None:
        async with clock.taking_part(number, len(lives)):
            await lives[number]()

    async with anyio.create_task_group() as driving:
        driving.start_soon(clock.drive, source)
        async with anyio.create_task_group() as group:
            for number in order or range(len(lives)):
                group.start_soon(one, number)
        driving.cancel_scope.cancel()


def sleeper(clock: VirtualClock, name: str, seen: list[tuple[str, int]], *times: int) -> Life:
    async def life() -> None:
        for time in times:
            await clock.sleep_until(time)
            seen.append((name, clock.now_ns()))

    return life


async def test_members_wake_at_their_times_and_at_one_time_by_their_numbers() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()
    lives = [
        sleeper(clock, "a", seen, 30, 40, 70),
        sleeper(clock, "b", seen, 10, 40, 40),
        sleeper(clock, "c", seen, 40, 41),
    ]
    await live(clock, Bells(), *lives, order=(2, 0, 1))
    assert seen == [("b", 10), ("a", 30), ("a", 40), ("b", 40), ("b", 40), ("c", 40), ("c", 41), ("a", 70)]
    assert clock.now_ns() == 70


async def test_the_source_goes_before_a_member_whose_time_it_is_too() -> None:
    clock, source, seen = VirtualClock(0), Bells(), list[tuple[str, int]]()
    for time in (5, 20, 21):
        source.at(time, lambda t_ns: seen.append(("source", t_ns)))
    await live(clock, source, sleeper(clock, "a", seen, 20))
    assert seen == [("source", 5), ("source", 20), ("a", 20)]  # and what is left to come, nobody waits for


async def test_time_stands_while_one_of_them_works_in_a_thread() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()
    working, go_on = threading.Event(), threading.Event()

    def tool() -> None:
        working.set()
        assert go_on.wait(120)

    async def worker() -> None:
        await clock.sleep_until(10)
        await to_thread.run_sync(tool)
        seen.append(("worker", clock.now_ns()))
        await clock.sleep_until(50)
        seen.append(("worker", clock.now_ns()))

    async def watch() -> None:
        await to_thread.run_sync(partial(working.wait, 120))
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append(("watch", clock.now_ns()))
        go_on.set()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await live(clock, Bells(), worker, sleeper(clock, "other", seen, 11))
    assert seen == [("watch", 10), ("worker", 10), ("other", 11), ("worker", 50)]


async def test_a_member_that_is_late_waits_for_no_time_but_for_those_whose_turn_it_is() -> None:
    clock, seen = VirtualClock(100), list[tuple[str, int]]()
    await live(clock, Bells(), sleeper(clock, "a", seen, 100, 101), sleeper(clock, "b", seen, 7, 7))
    assert seen == [("a", 100), ("b", 100), ("b", 100), ("a", 101)]


async def test_time_stands_until_all_who_are_to_come_have_come() -> None:
    clock, seen, late = VirtualClock(0), list[tuple[str, int]](), anyio.Event()

    async def one(number: int, arrive: anyio.Event | None) -> None:
        if arrive is not None:
            await arrive.wait()
        async with clock.taking_part(number, 2):
            seen.append((f"m{number}", clock.now_ns()))
            await clock.sleep_until(1000)

    async with anyio.create_task_group() as driving:
        driving.start_soon(clock.drive, Bells())
        async with anyio.create_task_group() as group:
            group.start_soon(one, 1, None)
            group.start_soon(one, 0, late)
            for _ in range(50):
                await asyncio.sleep(0)
            assert (seen, clock.now_ns()) == ([], 0)
            late.set()
        driving.cancel_scope.cancel()
    assert seen == [("m0", 0), ("m1", 0)]


async def test_a_gate_is_waited_at_until_it_opens_or_until_the_time_is_over() -> None:
    clock, source, found = VirtualClock(0), Bells(), list[tuple[bool, int]]()
    gates = [clock.gate() for _ in range(4)]
    gates[0].open(5)  # before anybody waits
    source.at(10, lambda _: gates[1].open(12))
    source.at(20, lambda _: gates[2].open(99))  # too late for a wait until 30
    source.at(20, lambda _: gates[1].open(13))  # what was said first counts

    async def life() -> None:
        for gate, until in zip(gates, (None, 50, 30, 40), strict=True):
            found.append((await clock.wait_at(gate, until), clock.now_ns()))

    await live(clock, source, life)
    assert found == [(True, 5), (True, 12), (False, 30), (False, 40)]


async def test_only_a_member_waits_at_a_gate() -> None:
    clock = VirtualClock(0)
    with pytest.raises(ValueError, match="only members wait at gates"):
        await clock.wait_at(Gate(lambda: None), None)


async def test_a_number_is_one_members_alone() -> None:
    clock = VirtualClock(0)

    async def life() -> None:
        with pytest.raises(ValueError, match="0 is taken"):
            async with clock.taking_part(0):
                pass

    await live(clock, Bells(), life)


async def test_a_deadline_beside_a_tool_cuts_it_off_in_virtual_time() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()

    async def life() -> None:
        for took in (60, 40):
            begin = clock.now_ns()
            async with cut_at(clock, begin + 50) as scope:
                await clock.sleep_until(begin + took)
            seen.append(("cut" if scope.cancelled_caught else "whole", clock.now_ns()))

    await live(clock, Bells(), life, sleeper(clock, "other", seen, 49, 51, 95))
    assert seen == [("other", 49), ("cut", 50), ("other", 51), ("whole", 90), ("other", 95)]


async def test_an_alarm_that_cuts_nothing_off_holds_nobody_up() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()

    async def life() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(sleeper(clock, "alarm", seen, 20))
            await clock.sleep_until(30)
            seen.append(("member", clock.now_ns()))

    await live(clock, Bells(), life, sleeper(clock, "other", seen, 25))
    assert seen == [("alarm", 20), ("other", 25), ("member", 30)]


async def test_a_bystander_is_woken_when_its_time_has_passed_and_holds_nobody_up() -> None:
    clock, seen, said = VirtualClock(0), list[tuple[str, int]](), list[int]()

    async def say() -> None:
        while True:
            await clock.sleep_until(clock.now_ns() + 10)
            said.append(clock.now_ns())

    async with anyio.create_task_group() as group:
        group.start_soon(say)
        await asyncio.sleep(0)
        await live(clock, Bells(), sleeper(clock, "a", seen, 5, 25, 26, 100))
        group.cancel_scope.cancel()
    assert seen == [("a", 5), ("a", 25), ("a", 26), ("a", 100)]
    assert said == [25, 100]


async def test_it_is_an_error_when_all_wait_and_nothing_is_left_to_happen() -> None:
    clock = VirtualClock(0)

    async def life() -> None:
        await clock.wait_at(clock.gate(), None)

    with pytest.raises(BaseExceptionGroup) as raised:
        await live(clock, Bells(), life, life)
    (error,) = raised.value.split(ServerError)[0].exceptions  # type: ignore[union-attr]  # there is one
    assert "nothing left to do, and 2 agents wait" in str(error)


async def test_jobs_of_one_member_take_time_beside_each_other_and_it_waits_for_the_last() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()

    async def life() -> None:
        await clock.sleep_until(10)
        await clock.together([sleeper(clock, "long", seen, 50), sleeper(clock, "short", seen, 20, 30)])
        seen.append(("all", clock.now_ns()))
        await clock.sleep_until(60)
        seen.append(("on", clock.now_ns()))

    await live(clock, Bells(), life, sleeper(clock, "other", seen, 20, 50, 55))
    assert seen == [
        *(("short", 20), ("other", 20), ("short", 30), ("long", 50)),
        # At 50 the job goes before the other member, by its own member's number, and so does who waited for it.
        *(("all", 50), ("other", 50), ("other", 55), ("on", 60)),
    ]


async def test_jobs_that_work_in_threads_are_begun_one_after_the_other_and_time_stands() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()

    def job(name: str, takes: int) -> Life:
        async def run() -> None:
            seen.append((f"{name} begins", clock.now_ns()))
            await to_thread.run_sync(lambda: None)
            seen.append((f"{name} has run", clock.now_ns()))
            await clock.sleep_until(takes)
            seen.append((f"{name} ends", clock.now_ns()))

        return run

    await live(clock, Bells(), lambda: clock.together([job("a", 7), job("b", 3)]))
    assert seen == [
        *(("a begins", 0), ("a has run", 0), ("b begins", 0), ("b has run", 0)),
        *(("b ends", 3), ("a ends", 7)),
    ]


async def test_a_deadline_cuts_off_the_job_that_runs_at_it_and_no_other() -> None:
    clock, cut = VirtualClock(0), list[tuple[str, bool, int]]()

    def job(name: str, until: int) -> Life:
        async def run() -> None:
            async with cut_at(clock, 50) as scope:
                await clock.sleep_until(until)
            cut.append((name, scope.cancelled_caught, clock.now_ns()))

        return run

    await live(clock, Bells(), lambda: clock.together([job("a", 90), job("b", 40)]))
    assert cut == [("b", False, 40), ("a", True, 50)]


async def test_an_error_of_a_job_is_its_members_own_error_and_ends_the_other_jobs() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()

    async def fail() -> None:
        await clock.sleep_until(5)
        raise ServerError("broken")

    async def life() -> None:
        with pytest.raises(ServerError, match="broken"):
            await clock.together([sleeper(clock, "other", seen, 9), fail])
        await clock.sleep_until(7)
        seen.append(("on", clock.now_ns()))

    await live(clock, Bells(), life)
    assert seen == [("on", 7)]


async def test_only_a_member_has_jobs() -> None:
    with pytest.raises(ValueError, match="only members have jobs"):
        await VirtualClock(0).together([])


async def test_a_member_that_is_cancelled_leaves_and_the_others_go_on() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await clock.sleep_until(10)
            await clock.sleep_until(1000)

    async def canceller() -> None:
        await clock.sleep_until(20)
        scope.cancel()
        await clock.sleep_until(30)
        seen.append(("canceller", clock.now_ns()))

    await live(clock, Bells(), cancelled, canceller)
    assert (seen, clock.now_ns()) == ([("canceller", 30)], 30)


async def test_after_the_driver_has_gone_a_members_sleep_takes_no_time_of_anybody() -> None:
    clock = VirtualClock(0)
    async with anyio.create_task_group() as group:
        group.start_soon(clock.drive, Bells())
        await asyncio.sleep(0)
        group.cancel_scope.cancel()
    async with clock.taking_part(0):
        await clock.sleep_until(500)
        assert clock.now_ns() == 500
        assert not await clock.wait_at(clock.gate(), 600)
    assert clock.now_ns() == 600


async def test_who_waits_when_the_driver_goes_does_not_wait_for_ever() -> None:
    clock, left = VirtualClock(0), anyio.Event()

    async def life() -> None:
        with anyio.CancelScope(shield=True):
            assert not await clock.wait_at(clock.gate(), None)
        left.set()

    with pytest.raises(BaseExceptionGroup):
        await live(clock, Bells(), life)
    assert left.is_set()


def test_without_members_time_is_taken_to_where_it_is_wanted() -> None:
    source, rung = Bells(), list[int]()
    for time in (3, 8, 12):
        source.at(time, rung.append)

    async def go() -> VirtualClock:
        clock = VirtualClock(0)
        clock.advance(source, 10)
        return clock

    clock = anyio.run(go)
    assert (rung, clock.now_ns()) == ([3, 8], 10)
    assert clock.describe()["anchor_unix_ns"] == 0


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=6), min_size=1, max_size=5),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_order_of_all_that_happens_does_not_depend_on_how_tasks_are_scheduled(
    plans: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """Each step of a member: sleep so long, then make an answer come so much later and wait for it."""
    order = tuple(data.draw(st.permutations(range(len(plans)))))
    # How often a member lets the event loop go round before it goes on.
    work = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=9))

    def happened(order: tuple[int, ...], idle: Iterator[int]) -> list[tuple[int, int, int]]:
        clock, source, seen = VirtualClock(0), Bells(), list[tuple[int, int, int]]()

        def life(number: int) -> Life:
            async def steps() -> None:
                for step, (sleep, later) in enumerate(plans[number]):
                    await clock.sleep_until(clock.now_ns() + sleep)
                    for _ in range(next(idle)):
                        await asyncio.sleep(0)
                    gate = clock.gate()
                    source.at(clock.now_ns() + later, gate.open)
                    await clock.wait_at(gate, clock.now_ns() + 3)
                    seen.append((clock.now_ns(), number, step))

            return steps

        async def go() -> None:
            await live(clock, source, *map(life, range(len(plans))), order=order)

        anyio.run(go)
        return seen

    expected = happened(tuple(range(len(plans))), cycle([0]))
    assert happened(order, cycle(work)) == expected
    assert [one[0] for one in expected] == sorted(one[0] for one in expected)


async def test_an_error_of_a_member_ends_all_at_once() -> None:
    clock, seen = VirtualClock(0), list[tuple[str, int]]()

    async def broken() -> None:
        await clock.sleep_until(10)
        raise LookupError("broken")

    with pytest.raises(BaseExceptionGroup) as raised:
        await live(clock, Bells(), broken, sleeper(clock, "other", seen, 5, *range(11, 1000)))
    assert raised.value.subgroup(LookupError) is not None
    assert seen[0] == ("other", 5)
    assert len(seen) < 5  # it may have had its turn before it was cancelled


async def test_an_error_of_the_source_ends_all_at_once() -> None:
    clock, source, seen = VirtualClock(0), Bells(), list[tuple[str, int]]()

    def fail(_: int) -> None:
        raise LookupError("broken")

    source.at(10, fail)
    with pytest.raises(BaseExceptionGroup) as raised:
        await live(clock, source, sleeper(clock, "a", seen, 5, 11), sleeper(clock, "b", seen, 1000))
    assert raised.value.subgroup(LookupError) is not None
    assert seen == [("a", 5)]
