"""How do several tool calls of one answer run at once?"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import anyio

Job = Callable[[], Coroutine[Any, Any, None]]
Together = Callable[[Sequence[Job]], Awaitable[None]]  # runs all, and returns when all have ended


async def at_once(jobs: Sequence[Job]) -> None:
    """Run all jobs at once, and return when all have ended. The error of a single one arrives as itself."""
    try:
        async with anyio.create_task_group() as group:
            for job in jobs:
                group.start_soon(job)
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) > 1:
            raise
        raise errors.exceptions[0] from None
