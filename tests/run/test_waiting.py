"""Is a slow wait told once, a quick one not at all, and is blocking work left alone when it is no longer wanted?"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from agentload.errors import FetchError
from agentload.run.waiting import abandonable, said_if_slow, said_if_slow_to_leave

pytestmark = pytest.mark.anyio
S = 1_000_000_000


class SecondsByHand:
    """Time goes on when the test says so."""

    def __init__(self) -> None:
        self.at = 0
        self.asked: list[int] = []
        self.go_on = anyio.Event()

    def now_ns(self) -> int:
        return self.at

    async def sleep_until(self, t_ns: int) -> None:
        self.asked.append(t_ns)
        await self.go_on.wait()
        self.at = t_ns


async def test_a_wait_of_more_than_a_second_is_told_and_a_shorter_one_is_not() -> None:
    clock, said = SecondsByHand(), list[str]()
    async with said_if_slow(clock, said.append, "waiting"):
        await anyio.wait_all_tasks_blocked()
    assert (said, clock.asked) == ([], [S])
    clock.go_on.set()
    async with said_if_slow(clock, said.append, "waiting"):
        await anyio.wait_all_tasks_blocked()
    assert said == ["waiting"]


async def test_leaving_slowly_is_told_also_when_everything_is_cancelled_and_being_inside_is_not() -> None:
    clock, said, steps = SecondsByHand(), list[str](), list[str]()
    clock.go_on.set()

    @asynccontextmanager
    async def server() -> AsyncIterator[int]:
        try:
            yield 7
        finally:
            with anyio.CancelScope(shield=True):
                steps.append("stopping")
                await anyio.wait_all_tasks_blocked()
                steps.append("stopped")

    with anyio.CancelScope() as scope:
        async with said_if_slow_to_leave(server(), clock, said.append, "stopping the server") as number:
            await anyio.wait_all_tasks_blocked()
            assert (number, said, clock.asked) == (7, [], [])
            scope.cancel()
            await anyio.sleep_forever()
    assert (said, steps, clock.asked) == (["stopping the server"], ["stopping", "stopped"], [S])


async def test_leaving_quickly_is_not_told() -> None:
    clock, said = SecondsByHand(), list[str]()

    @asynccontextmanager
    async def quick() -> AsyncIterator[None]:
        yield

    async with said_if_slow_to_leave(quick(), clock, said.append, "stopping the server"):
        await anyio.lowlevel.checkpoint()
    assert said == []


async def test_blocking_work_gives_its_value_or_its_error() -> None:
    def fails() -> int:
        raise FetchError("no index")

    assert await abandonable(lambda: 3) == 3
    with pytest.raises(FetchError, match="no index"):
        await abandonable(fails)


async def test_blocking_work_that_is_cancelled_is_left_alone() -> None:
    started, release, ended = anyio.Event(), threading.Event(), threading.Event()

    def work() -> None:
        release.wait()
        ended.set()

    async with anyio.create_task_group() as group:

        async def wait() -> None:
            started.set()
            await abandonable(work)

        group.start_soon(wait)
        await started.wait()
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert not ended.is_set()
    assert [one for one in threading.enumerate() if one.daemon and one.is_alive()]
    release.set()
    await to_thread.run_sync(ended.wait)
