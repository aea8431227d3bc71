"""Does the next run find nothing of the one before: its process gone, its port free, its memory given back, and a
machine that had time to cool down?

The restart is the washout. Whatever is waited for is waited for within bounds: a night must not stand still because a
program that has nothing to do with it took some memory.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
from anyio import to_thread

from agentload.artifacts import jsonlines, schemas
from agentload.core.ports import Clock
from agentload.errors import ArtifactError, UsageError
from agentload.run import launching, machine_state
from agentload.servers.family import Family
from agentload.servers.here import LOOPBACK

POLL_NS: Final = 250_000_000
PORT_S: Final = 30.0  # a port of a process that has ended is free at once; another's is not our business for long
OLD_PROCESS_S: Final = 20.0  # for the watchdog of a killed agentload, before we end what it should have
MEMORY_S: Final = 60.0
_MEMORY_PART: Final = 0.05  # of all there is: so much may be missing
_SAME_START_S: Final = 10.0  # a process that began farther from when ours did has its number by chance

Waiting = Callable[[float, str], None]  # takes the seconds at most, and what for


class Washout:
    """What is waited for between two runs of an experiment."""

    def __init__(
        self,
        clock: Clock,
        say: Callable[[str], None],
        waiting: Waiting,
        *,
        sample: Callable[[], Mapping[str, Any]] = machine_state.sample,
    ) -> None:
        """Look at the memory that is free now, before the first run: `sample` is machine_state's."""
        self._clock = clock
        self._say = say
        self._waiting = waiting
        self._sample = sample
        self._free: dict[str, int] = {}  # as it should be

    async def cooldown(self, until_ns: int) -> None:
        """Let the machine cool down."""
        left_s = (until_ns - self._clock.now_ns()) / 1e9
        if left_s > 0:
            self._say(f"cooldown: {left_s:.0f} s")
            self._tell(left_s, "cooldown")
            await self._clock.sleep_until(until_ns)

    async def port(self, port: int, address: str = LOOPBACK) -> str | None:
        """Wait until `port` is free at `address`; return what is wrong when it does not get free."""
        due = self._clock.now_ns() + int(PORT_S * 1e9)
        told = False
        while True:
            try:
                launching.must_be_free(port, address)
            except UsageError:
                if self._clock.now_ns() >= due:
                    return (
                        f"port {port} is taken by another program: expected it to be free for the server under test; "
                        f"end what listens there (waited {PORT_S:g} s)"
                    )
            else:
                return None
            if not told:
                told = True
                self._tell(PORT_S, f"port {port} to be free")
            await self._clock.sleep_until(self._clock.now_ns() + POLL_NS)

    async def old_process(self, run: Path, grace_s: float) -> None:
        """See the server of a broken run off: its watchdog may be at it, or may have been killed itself."""
        family = left_over(run)
        if family is None:
            return
        if await self._gone(family, OLD_PROCESS_S, f"the old server (pid {family.pid}) to end"):
            return
        self._say(f"the server of {run.name} (pid {family.pid}) still runs, and nobody ends it: it is ended now")
        if await to_thread.run_sync(family.end, grace_s):
            self._say(f"the server of {run.name} (pid {family.pid}) did not end within {grace_s:g} s: it was killed")

    async def _gone(self, family: Family, seconds: float, what: str) -> bool:
        due = self._clock.now_ns() + int(seconds * 1e9)
        self._tell(seconds, what)
        while await to_thread.run_sync(family.running):
            if self._clock.now_ns() >= due:
                return False
            await self._clock.sleep_until(self._clock.now_ns() + POLL_NS)
        return True

    async def memory(self) -> None:
        """Wait until the memory that was free before the first run is free again; say so when it does not get free."""
        now = machine_state.free_memory(dict(await to_thread.run_sync(self._sample)))
        if not self._free:
            self._free = {name: free for name, (free, _) in now.items()}
            return
        due = self._clock.now_ns() + int(MEMORY_S * 1e9)
        told = False
        while missing := self._missing(now):
            if self._clock.now_ns() >= due:
                self._say(
                    f"memory is still in use: {'; '.join(missing)}: something else holds it, or the old server does"
                )
                self._free |= {name: free for name, (free, _) in now.items()}  # said once; not waited for each time
                return
            if not told:
                told = True
                self._tell(MEMORY_S, f"memory to be released: {'; '.join(missing)}")
            await self._clock.sleep_until(self._clock.now_ns() + POLL_NS)
            now = machine_state.free_memory(dict(await to_thread.run_sync(self._sample)))

    def _missing(self, now: Mapping[str, tuple[int, int]]) -> list[str]:
        return [
            f"{name} has {free / 2**30:.1f} GiB free, before the first run {self._free[name] / 2**30:.1f} GiB"
            for name, (free, total) in now.items()
            if free < self._free.get(name, 0) - _MEMORY_PART * total
        ]

    def _tell(self, seconds: float, what: str) -> None:
        self._waiting(round(seconds, 3), what)


def left_over(run: Path) -> Family | None:
    """Return the server of the run at `run`, if it still runs: the last one that its events tell of."""
    found: tuple[int, int] | None = None
    with suppress(ArtifactError):  # a run that was broken off early has none
        for _, event in jsonlines.read(run / "events.jsonl", schemas.EVENTS):
            pid, at_ns = event.get("pid"), event.get("t")
            if event.get("event") == "server_started" and isinstance(pid, int) and isinstance(at_ns, int):
                found = (pid, at_ns)
            elif event.get("event") == "server_stopped":
                found = None
    if found is None:
        return None
    pid, at_ns = found
    with suppress(psutil.NoSuchProcess):  # its first process may have ended, and left others in its session
        if abs(psutil.Process(pid).create_time() - at_ns / 1e9) > _SAME_START_S:
            return None
    family = Family(pid)
    return family if family.running() else None
