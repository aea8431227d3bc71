"""What a server's process uses: real processes; the times of samples on a clock that the test holds."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import psutil
import pytest

from agentload.servers.devices import DeviceMemory
from agentload.servers.sampler import Memory, look, memory_now, sampled

pytestmark = pytest.mark.anyio

# Says what it used itself, then waits.
BURN = """
import sys, time
while time.process_time() < 0.3:
    pass
print(time.process_time(), flush=True)
sys.stdin.read()
"""
HOLD = """
import sys
held = bytearray(b"x") * (64 << 20)
print(len(held), flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {HOLD!r}]).wait()
"""


@contextmanager
def process(program: str) -> Iterator[tuple[int, float]]:
    """Yield its pid and the number that it said."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        yield child.pid, float(child.stdout.readline())
        child.stdin.close()


class Events:
    """An event sink in memory."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, dict[str, Any]]] = []

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        self.found.append((kind, t_ns, fields))


MIB = 1 << 20
STEADY = Memory(9 * MIB, 10 * MIB)


def steady() -> Memory:
    return STEADY


class SteppedClock:
    """Reaches each time at once, `steps` times; from then on it stands still."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._now = 1000
        self.stands = anyio.Event()

    def now_ns(self) -> int:
        return self._now

    async def sleep_until(self, t_ns: int) -> None:
        if not self._left:
            self.stands.set()
            await anyio.sleep_forever()
        self._left -= 1
        self._now = t_ns


def test_cpu_seconds_are_what_the_process_itself_counted() -> None:
    with process(BURN) as (pid, used_s):
        sample = look(pid)
    assert sample is not None
    assert sample.cpu_s == pytest.approx(used_s, abs=0.05)  # the kernel tells user and system in ticks of 10 ms
    assert sample.processes == 1


def test_memory_and_children_are_counted() -> None:
    with process(PARENT) as (pid, held_bytes):
        sample = look(pid)
    assert held_bytes == 64 << 20
    assert sample is not None
    assert sample.processes == 2
    assert sample.rss_bytes is not None
    assert held_bytes < sample.rss_bytes < held_bytes + (100 << 20)


def test_the_hosts_busy_time_leaves_out_idle_and_counts_no_guest_twice() -> None:
    before = psutil.cpu_times()
    with process(BURN) as (pid, _):
        sample = look(pid)
    after = psutil.cpu_times()
    assert sample is not None
    plain = [sum(getattr(at, name) for name in ("user", "nice", "system")) for at in (before, after)]
    extra = [sum(getattr(at, name, 0.0) for name in ("irq", "softirq", "steal")) for at in (before, after)]
    # Linux counts a guest's time within user and nice, so that neither is added again.
    assert plain[0] + extra[0] <= sample.host_busy_s + 1e-6
    assert sample.host_busy_s <= plain[1] + extra[1] + 1e-6
    assert 0 < sample.host_free_bytes < psutil.virtual_memory().total


def test_a_process_that_is_gone_has_no_sample() -> None:
    with process(BURN) as (pid, _):
        pass
    assert look(pid) is None


async def test_a_block_is_sampled_at_both_ends_and_every_period_between() -> None:
    events, clock = Events(), SteppedClock(45)  # the memory is looked at every second
    with process(BURN) as (pid, _):
        async with sampled(pid, clock, events, 15.0, steady):
            await clock.stands.wait()
    assert [(kind, t_ns, fields["where"]) for kind, t_ns, fields in events.found] == [
        ("sample", 1000, "begin"),
        ("sample", 15_000_001_000, "periodic"),
        ("sample", 30_000_001_000, "periodic"),
        ("sample", 45_000_001_000, "periodic"),
        ("sample", 45_000_001_000, "end"),
    ]
    assert set(events.found[0][2]) == {
        *("where", "cpu_s", "rss_bytes", "processes", "host_busy_s"),
        *("host_free_bytes", "host_total_bytes", "devices"),
    }


async def test_a_block_that_fails_is_sampled_at_its_end_too() -> None:
    events, clock = Events(), SteppedClock(0)
    with process(BURN) as (pid, _), pytest.raises(BaseExceptionGroup) as caught:
        async with sampled(pid, clock, events, 15.0, steady):
            raise KeyError("the block's own")
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    assert [fields["where"] for _, _, fields in events.found] == ["begin", "end"]


async def test_a_server_that_died_has_no_end_sample_and_no_error() -> None:
    events, clock = Events(), SteppedClock(0)
    with process(BURN) as (pid, _):
        pass
    async with sampled(pid, clock, events, 15.0, steady):
        await clock.stands.wait()
    assert events.found == []


async def test_no_process_of_ours_no_samples() -> None:
    events, clock = Events(), SteppedClock(0)
    async with sampled(None, clock, events, 15.0, steady):
        pass
    assert events.found == []


class Draining:
    """Memory of a host and one device, in MiB: the next pair at each look, at last the last one for good."""

    def __init__(self, *pairs: tuple[float, float]) -> None:
        self._pairs = list(pairs)

    def __call__(self) -> Memory:
        host, device = self._pairs.pop(0) if len(self._pairs) > 1 else self._pairs[0]
        card = DeviceMemory(0, "card", round(device * MIB), 12 * MIB)
        return Memory(round(host * MIB), 64 * MIB, (card,))


async def drained(
    steps: int, *pairs: tuple[float, float], period_s: float = 15.0
) -> list[tuple[int, str, float, float]]:
    """When (s after the begin) which sample was taken, with the free MiB of host and device."""
    events, clock = Events(), SteppedClock(steps)
    async with sampled(None, clock, events, period_s, Draining(*pairs), here=True):
        await clock.stands.wait()
    return [
        (
            (t_ns - 1000) // 1_000_000_000,
            fields["where"],
            fields["host_free_bytes"] / MIB,
            fields["devices"][0]["free_bytes"] / MIB,
        )
        for _, t_ns, fields in events.found
    ]


async def test_a_trough_between_two_periods_is_kept_by_the_second() -> None:
    # At 0 s the begin; at 2 s the host, at 4 s the device falls to its smallest; at 5 s both are back.
    found = await drained(5, (40, 8), (40, 8), (30, 8), (40, 8), (40, 1), (41, 9), (41, 9))
    assert found == [(0, "begin", 40, 8), (2, "periodic", 30, 8), (4, "periodic", 40, 1), (5, "end", 41, 9)]


async def test_a_higher_value_or_one_less_than_a_mebibyte_lower_makes_no_sample() -> None:
    found = await drained(4, (40, 8), (39.5, 8), (40, 7.1), (45, 8), (39, 8), (39, 8))
    assert found == [(0, "begin", 40, 8), (4, "periodic", 39, 8), (4, "end", 39, 8)]


async def test_a_slow_fall_is_in_the_periodic_samples() -> None:
    found = await drained(4, (40, 8), (39.75, 8), (39.5, 8), (39.25, 8), (39, 8), (39, 8), period_s=2)
    assert found == [(0, "begin", 40, 8), (2, "periodic", 39.5, 8), (4, "periodic", 39, 8), (4, "end", 39, 8)]


async def test_a_server_on_this_host_whose_process_is_not_known_has_the_machines_samples_alone() -> None:
    events, clock = Events(), SteppedClock(0)
    async with sampled(None, clock, events, 15.0, memory_now, here=True):
        pass
    begin, end = (fields for _, _, fields in events.found)
    for fields in (begin, end):
        assert [fields[name] for name in ("cpu_s", "rss_bytes", "processes")] == [None, None, None]
        assert 0 < fields["host_free_bytes"] < fields["host_total_bytes"] == psutil.virtual_memory().total
    assert begin["host_busy_s"] <= end["host_busy_s"]


def test_memory_now_is_the_hosts_own() -> None:
    found = memory_now()
    assert found.host_total_bytes == psutil.virtual_memory().total
    assert 0 < found.host_free_bytes < found.host_total_bytes
    assert found.devices == ()
