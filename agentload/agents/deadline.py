"""How is work cut off at a time of the clock, so that its caller learns of it and can say what there is so far?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from agentload.core.ports import Clock


@asynccontextmanager
async def cut_at(clock: Clock, t_ns: int | None) -> AsyncIterator[anyio.CancelScope]:
    """Cancel the block at `t_ns` of `clock`; `cancelled_caught` of the scope tells afterwards. None: never.

    An error of the block arrives as itself, not in a group.
    """
    if t_ns is None:
        with anyio.CancelScope() as scope:
            yield scope
        return
    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(_cancel_at, scope, clock, t_ns)
                yield scope
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) > 1:
            raise
        raise errors.exceptions[0] from None


async def _cancel_at(scope: anyio.CancelScope, clock: Clock, t_ns: int) -> None:
    await clock.sleep_until(t_ns)
    scope.cancel()
