"""Is what a run leaves behind waited for, within bounds, and is it said what does not go away?"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentload.artifacts.rundir import EventLog
from agentload.run.washout import Washout, left_over
from tests.processes import WAIT_S

pytestmark = pytest.mark.anyio
SECOND = 1_000_000_000
GIB = 2**30


class Jumping:
    """A clock on which every sleep is over at once."""

    def __init__(self) -> None:
        self.now = 0

    def now_ns(self) -> int:
        return self.now

    async def sleep_until(self, t_ns: int) -> None:
        self.now = max(self.now, t_ns)


class Bench:
    """A washout with what it says and waits for; each look at the free memory gives the next of `free`."""

    def __init__(self, *free: int) -> None:
        self.clock = Jumping()
        self.said: list[str] = []
        self.waits: list[tuple[float, str]] = []
        self._free = list(free)
        self.washout = Washout(
            self.clock, self.said.append, lambda seconds, why: self.waits.append((seconds, why)), sample=self.sample
        )

    def sample(self) -> Mapping[str, Any]:
        free = self._free.pop(0) if len(self._free) > 1 else self._free[0]
        return {"free_bytes": free, "total_bytes": 100 * GIB}


async def test_the_cooldown_lasts_until_its_end_and_is_no_wait_when_that_has_passed() -> None:
    bench = Bench(0)
    await bench.washout.cooldown(90 * SECOND)
    await bench.washout.cooldown(90 * SECOND)
    assert (bench.clock.now, bench.waits) == (90 * SECOND, [(90.0, "cooldown")])


async def test_a_port_that_is_taken_for_long_is_the_end_of_the_night() -> None:
    bench = Bench(0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert await bench.washout.port(port) == (
            f"port {port} is taken by another program: expected it to be free for the server under test; "
            "end what listens there (waited 30 s)"
        )
    assert bench.waits == [(30.0, f"port {port} to be free")]
    assert 30 * SECOND <= bench.clock.now <= 31 * SECOND


async def test_a_port_that_gets_free_is_waited_for() -> None:
    bench = Bench(0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        async def sleep_until(t_ns: int) -> None:
            other.close()
            bench.clock.now = t_ns

        bench.clock.sleep_until = sleep_until  # type: ignore[method-assign]  # the fake's own
        assert await bench.washout.port(port) is None
    assert bench.clock.now == SECOND // 4


async def test_memory_is_waited_for_until_it_is_back_within_a_twentieth() -> None:
    """90 GiB free at first, of 100; then 60, 84, 86: 85 is enough."""
    bench = Bench(90 * GIB, 60 * GIB, 84 * GIB, 86 * GIB)
    await bench.washout.memory()
    assert bench.waits == []
    await bench.washout.memory()
    assert bench.clock.now == 2 * SECOND // 4
    what = "the host has 60.0 GiB free, before the first run 90.0 GiB"
    assert (bench.waits, bench.said) == ([(60.0, f"memory to be released: {what}")], [])


async def test_memory_that_does_not_come_back_is_said_once_and_the_night_goes_on() -> None:
    bench = Bench(90 * GIB, 60 * GIB)
    for _ in range(3):
        await bench.washout.memory()
    (line,) = bench.said
    assert line == (
        "memory is still in use: the host has 60.0 GiB free, before the first run 90.0 GiB: "
        "something else holds it, or the old server does"
    )
    assert 60 * SECOND <= bench.clock.now <= 61 * SECOND


@contextmanager
def server(*, deaf: bool) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own; a deaf one takes no SIGTERM."""
    script = "import signal, sys\n" + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" * deaf
    script += "print(flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def run_with(folder: Path, *events: tuple[str, int, int]) -> Path:
    """A run directory whose events tell of servers: (kind, pid, t)."""
    folder.mkdir()
    log = EventLog(folder / "events.jsonl")
    for kind, pid, at_ns in events:
        log.emit(kind, at_ns, pid=pid)
    log.close()
    return folder


def started_ns(process: subprocess.Popen[bytes]) -> int:
    return int(psutil.Process(process.pid).create_time() * 1e9)


@pytest.mark.parametrize("deaf", [False, True])
async def test_the_server_of_a_killed_agentload_is_ended_when_nobody_else_does(tmp_path: Path, deaf: bool) -> None:
    bench = Bench(0)
    with server(deaf=deaf) as process:
        run = run_with(tmp_path / "03-A", ("server_started", process.pid, started_ns(process)))
        await bench.washout.old_process(run, 0.2 if deaf else WAIT_S)
        process.wait(WAIT_S)  # of its exit code nothing is known: who ends a child may be told of it before its parent
    assert bench.waits == [(20.0, f"the old server (pid {process.pid}) to end")]
    assert bench.said[0] == (f"the server of 03-A (pid {process.pid}) still runs, and nobody ends it: it is ended now")
    assert len(bench.said) == 1 + deaf


def test_a_server_that_has_stopped_or_whose_number_is_anothers_now_is_left_alone(tmp_path: Path) -> None:
    with server(deaf=False) as process:
        at_ns = started_ns(process)
        stopped = run_with(
            tmp_path / "1", ("server_started", process.pid, at_ns), ("server_stopped", process.pid, at_ns)
        )
        earlier = run_with(tmp_path / "2", ("server_started", process.pid, at_ns - 60 * SECOND))
        runs = run_with(tmp_path / "3", ("server_started", process.pid, at_ns + SECOND // 100))
        nothing = tmp_path / "4"
        assert [left_over(run) for run in (stopped, earlier, nothing)] == [None, None, None]
        family = left_over(runs)
        assert family is not None
        assert [one.pid for one in family.running()] == [process.pid]
    assert left_over(runs) is None
    assert os.getpid() != process.pid


async def test_nothing_is_waited_for_when_there_is_no_old_server(tmp_path: Path) -> None:
    bench = Bench(0)
    await bench.washout.old_process(tmp_path / "nothing", 0.2)
    assert (bench.waits, bench.said, bench.clock.now) == ([], [], 0)
