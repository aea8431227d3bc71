"""What is waited for, when a wait is long enough for somebody to wonder?"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, TypeVar

import anyio

from agentload.core.ports import Clock

Thing = TypeVar("Thing")

_SLOW_NS: Final = 1_000_000_000


@asynccontextmanager
async def said_if_slow(clock: Clock, say: Callable[[str], None], line: str) -> AsyncIterator[None]:
    """Say `line`, once, when the block takes more than a second."""
    async with anyio.create_task_group() as group:
        group.start_soon(_say_after, clock, say, line)
        yield
        group.cancel_scope.cancel()


@asynccontextmanager
async def said_if_slow_to_leave(
    inner: AbstractAsyncContextManager[Thing], clock: Clock, say: Callable[[str], None], line: str
) -> AsyncIterator[Thing]:
    """Enter `inner`; say `line`, once, when leaving it takes more than a second, also while all else is cancelled."""
    leaving = anyio.Event()
    own = anyio.CancelScope(shield=True)

    async def tell() -> None:
        with own:
            await leaving.wait()
            await _say_after(clock, say, line)

    async with anyio.create_task_group() as group:
        group.start_soon(tell)
        try:
            async with inner as thing:
                try:
                    yield thing
                finally:
                    leaving.set()
        finally:
            own.cancel()


async def _say_after(clock: Clock, say: Callable[[str], None], line: str) -> None:
    await clock.sleep_until(clock.now_ns() + _SLOW_NS)
    say(line)


async def abandonable(work: Callable[[], Thing]) -> Thing:
    """Do blocking `work` in a thread; cancelled, leave it alone: neither this nor the program's end waits for it.

    Its thread is a daemon, unlike those of anyio, which the interpreter joins: Ctrl-C in a download would only end when
    the download does. So `work` must leave things that can be taken up again when the program ends in the middle of it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Thing] = loop.create_future()

    def give(value: Thing) -> None:
        if not future.done():
            future.set_result(value)

    def fail(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def run() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits, as a future of a thread pool does
                loop.call_soon_threadsafe(fail, error)
            else:
                loop.call_soon_threadsafe(give, value)

    threading.Thread(target=run, daemon=True).start()
    return await future
