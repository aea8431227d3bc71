"""What does a sandbox cost a call? `python tests/bench/bench_sandbox.py` prints the p50 of a command that does nothing.

It also prints how late a 1 ms sleeper of the event loop woke up meanwhile: what the stamps of other agents' streams
would have suffered.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from agentload.agents.sandbox import SYSTEM_PATH, Bubblewrap, Namespaces, Place, Sandbox, Shell, Unsafe, prove
from agentload.agents.sandbox_run import Limits

ROUNDS = 40


async def measure(sandbox: Sandbox, place: Place, agents: int) -> tuple[float, float, float]:
    """Return the p50 of a call, commands a second, and the p99 lateness of the loop, the times in ms."""
    shell = Shell(sandbox)
    took: list[float] = []
    late: list[float] = []
    limits = Limits()

    async def agent() -> None:
        for _ in range(max(8, ROUNDS // agents)):
            begun = time.perf_counter()
            outcome = await shell.run("true", place, limits, 1_000)
            took.append(time.perf_counter() - begun)
            assert outcome.exit_code == 0

    async def sleeper() -> None:
        while True:
            begun = time.perf_counter()
            await anyio.sleep(0.001)
            late.append(time.perf_counter() - begun - 0.001)

    async with anyio.create_task_group() as outer:
        outer.start_soon(sleeper)
        begun = time.perf_counter()
        async with anyio.create_task_group() as inner:
            for _ in range(agents):
                inner.start_soon(agent)
        wall = time.perf_counter() - begun
        outer.cancel_scope.cancel()
    return statistics.median(took) * 1e3, len(took) / wall, statistics.quantiles(late, n=100)[98] * 1e3


def main() -> None:
    """Measure each sandbox that works here."""
    kinds: dict[str, Sandbox] = {"plain bash -c": Unsafe(), "namespaces": prove(Namespaces())}
    if program := shutil.which("bwrap", path=SYSTEM_PATH):
        kinds["bubblewrap"] = prove(Bubblewrap(program))
    with tempfile.TemporaryDirectory() as made:
        place = Place(Path(made) / "checkout", Path(made) / "scratch")
        place.checkout.mkdir()
        place.scratch.mkdir()
        for name, sandbox in kinds.items():
            for agents in (1, 10):
                p50_ms, rate, late_ms = anyio.run(measure, sandbox, place, agents)
                sys.stdout.write(f"{name:14} {agents:3d} at once: p50 {p50_ms:6.1f} ms, {rate:5.0f}/s")
                sys.stdout.write(f", loop late p99 {late_ms:5.1f} ms\n")


if __name__ == "__main__":
    main()
