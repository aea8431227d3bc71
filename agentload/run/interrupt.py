"""How does a run end early: at a signal, and at the first error of several tasks?"""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from agentload.errors import AgentloadError


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> AgentloadError | None:
    """Return the first error of our own tree in a task group's errors; None when there is none."""
    for error in group.exceptions:
        if isinstance(error, AgentloadError):
            return error
        if isinstance(error, BaseExceptionGroup) and (found := first_of_ours(error)) is not None:
            return found
    return None


@asynccontextmanager
async def interruptible() -> AsyncIterator[anyio.Event]:
    """Cancel the block at the first SIGINT, SIGTERM or SIGHUP (a closed terminal), quietly; the event tells."""
    hit = anyio.Event()

    async def listen(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                break
        hit.set()
        scope.cancel()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(listen, scope)
            yield hit
        group.cancel_scope.cancel()
