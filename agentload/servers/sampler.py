"""What does the server use: CPU seconds and memory at a segment's ends and between, and how little memory was free?

Memory runs out between two looks of 15 s: it is looked at every second, and what is found is kept when it is a new
minimum, or a periodic sample is due. A look at the host's memory takes 50 us (median of 200 on Linux), one at a
device's a call into the driver; a whole sample, with the server's processes among 80 others, 2 ms.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Final

import anyio
import psutil
from anyio import to_thread

from agentload.core.ports import Clock, EventSink
from agentload.servers.devices import DeviceMemory, Devices

PERIOD_S: Final = 15.0
MEMORY_PERIOD_S: Final = 1.0
# Less than this below the lowest value so far makes no sample of its own: free memory trembles by some pages, and one
# that a cache eats up slowly would make a sample each second. Periodic samples hold whatever there is.
LEAST_STEP_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """What is free on this machine at one moment."""

    host_free_bytes: int  # that programs can have
    host_total_bytes: int
    devices: tuple[DeviceMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the server's process and its children, and at the machine."""

    cpu_s: float | None  # user + system since each was started; None: the process is not known
    rss_bytes: int | None
    processes: int | None
    host_busy_s: float  # of all cores of the host, everything that ran: CPU seconds since boot
    host_free_bytes: int
    host_total_bytes: int
    devices: tuple[DeviceMemory, ...]


@dataclass(slots=True)
class Lowest:
    """The lowest free memory of the host and of each device in the samples so far."""

    _bytes: dict[int | None, int] = field(default_factory=dict)  # None: the host

    def undercut(self, memory: Memory) -> bool:
        """Whether one of them has at least LEAST_STEP_BYTES less than ever before."""
        return any(
            where not in self._bytes or free <= self._bytes[where] - LEAST_STEP_BYTES
            for where, free in _free(memory).items()
        )

    def take(self, memory: Memory) -> None:
        """Count `memory` as one of the samples."""
        for where, free in _free(memory).items():
            self._bytes[where] = min(free, self._bytes.get(where, free))


def _free(memory: Memory) -> dict[int | None, int]:
    return {None: memory.host_free_bytes, **{one.index: one.free_bytes for one in memory.devices}}


def memory_now(devices: Devices | None = None) -> Memory:
    """Return what is free now."""
    host = psutil.virtual_memory()
    return Memory(host.available, host.total, () if devices is None else devices.look())


def look(pid: int | None, memory: Memory | None = None) -> Sample | None:
    """Sample the process `pid` with its children; None when it is gone. `pid` None: the machine alone.

    `memory`: what was seen just now, where it was.
    """
    cpu_s, rss, count = 0.0, 0, 0
    if pid is not None:
        try:
            root = psutil.Process(pid)
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return None
        for one in family:
            with suppress(psutil.NoSuchProcess):
                with one.oneshot():
                    times = one.cpu_times()
                    cpu_s += times.user + times.system
                    rss += one.memory_info().rss
                count += 1
    host = psutil.cpu_times()
    busy = sum(host) - host.idle - sum(getattr(host, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
    free = memory_now() if memory is None else memory
    machine = (busy, free.host_free_bytes, free.host_total_bytes, free.devices)
    return Sample(None, None, None, *machine) if pid is None else Sample(cpu_s, rss, count, *machine)


@dataclass(frozen=True, slots=True)
class _Sampler:
    """What is sampled, and where it goes."""

    pid: int | None
    clock: Clock
    events: EventSink
    memory: Callable[[], Memory]
    lowest: Lowest = field(default_factory=Lowest)

    async def sample(self, where: str, memory: Memory | None = None) -> None:
        """Emit one `sample` event; `where` is begin, end or periodic, `memory` what was seen just now."""
        seen = await to_thread.run_sync(self.memory) if memory is None else memory
        at_ns = self.clock.now_ns()
        found = await to_thread.run_sync(look, self.pid, seen)
        if found is not None:
            self.lowest.take(seen)
            self.events.emit("sample", at_ns, where=where, **asdict(found))

    async def until_cancelled(self, period_s: float, memory_s: float) -> None:
        """Look at the memory every `memory_s`; sample every `period_s`, and when less is free than ever before."""
        due = begun = self.clock.now_ns()
        period_ns, memory_ns = int(period_s * 1e9), int(memory_s * 1e9)
        periodic = begun + period_ns
        while True:
            # From now on, where the machine was asleep: what it missed is not made up for.
            due = max(min(due + memory_ns, periodic), self.clock.now_ns())
            await self.clock.sleep_until(due)
            with anyio.CancelScope(shield=True):
                seen = await to_thread.run_sync(self.memory)
                if due >= periodic:
                    periodic = max(periodic + period_ns, self.clock.now_ns())
                    await self.sample("periodic", seen)
                elif self.lowest.undercut(seen):
                    await self.sample("periodic", seen)


@asynccontextmanager
async def sampled(
    pid: int | None,
    clock: Clock,
    events: EventSink,
    period_s: float,
    memory: Callable[[], Memory],
    *,
    here: bool = False,
    memory_s: float = MEMORY_PERIOD_S,
) -> AsyncIterator[None]:
    """Sample the process and the machine at the block's begin, every `period_s`, and at its end.

    Args:
        pid: the server's process; None: it is not known.
        clock: the clock of the run.
        events: where the samples go.
        period_s: seconds between two samples, at most.
        memory: looks at the memory (`memory_now`).
        here: whether a server whose process is not known runs on this machine; where not, nothing is sampled.
        memory_s: seconds between two looks at it.
    """
    if pid is None and not here:
        yield
        return
    sampler = _Sampler(pid, clock, events, memory)
    await sampler.sample("begin")
    async with anyio.create_task_group() as group:
        group.start_soon(sampler.until_cancelled, period_s, memory_s)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await sampler.sample("end")
