"""What does the server's process use: CPU seconds and memory, at the segment's ends and every few seconds between?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Final

import anyio
import psutil
from anyio import to_thread

from agentload.core.ports import Clock, EventSink

PERIOD_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the server's process and its children."""

    cpu_s: float  # user + system since each was started
    rss_bytes: int
    processes: int
    host_busy_s: float  # of all cores of the host, everything that ran: CPU seconds since boot
    host_free_bytes: int


def look(pid: int) -> Sample | None:
    """Sample the process `pid` with its children; None when it is gone."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return None
    cpu_s, rss, count = 0.0, 0, 0
    for one in family:
        with suppress(psutil.NoSuchProcess):
            with one.oneshot():
                times = one.cpu_times()
                cpu_s += times.user + times.system
                rss += one.memory_info().rss
            count += 1
    host = psutil.cpu_times()
    busy = sum(host) - host.idle - sum(getattr(host, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
    return Sample(cpu_s, rss, count, busy, psutil.virtual_memory().available)


async def sample_once(pid: int, clock: Clock, events: EventSink, where: str) -> None:
    """Emit one `sample` event; `where` is begin, end or periodic."""
    sample = await to_thread.run_sync(look, pid)
    if sample is not None:
        events.emit("sample", clock.now_ns(), where=where, **asdict(sample))


async def sample_until_cancelled(pid: int, clock: Clock, events: EventSink, period_s: float = PERIOD_S) -> None:
    """Emit a periodic `sample` event every `period_s`, until the task is cancelled."""
    due = clock.now_ns()
    while True:
        due += int(period_s * 1e9)
        await clock.sleep_until(due)
        with anyio.CancelScope(shield=True):
            await sample_once(pid, clock, events, "periodic")


@asynccontextmanager
async def sampled(pid: int | None, clock: Clock, events: EventSink, period_s: float) -> AsyncIterator[None]:
    """Sample the process at the block's begin, every `period_s`, and at its end; nothing when `pid` is None."""
    if pid is None:
        yield
        return
    await sample_once(pid, clock, events, "begin")
    async with anyio.create_task_group() as group:
        group.start_soon(sample_until_cancelled, pid, clock, events, period_s)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await sample_once(pid, clock, events, "end")
