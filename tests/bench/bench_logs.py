"""How fast is a server's log read, beside grep and a plain Python line loop, and in how much memory?

    python tests/bench/bench_logs.py [MEGABYTES [CASE ...]]

Each case is a made-up log (log_maker.py) of that size in a temporary file, in the page cache when it is read. Columns:
`grep -cE` of the lines that matter; the line loop, that is `for line in file: if b"..." in line: count`; ours, as
`formats.read`; and the peak memory of that. Each in a process of its own, in turns, the median of two rounds, or of
five where few lines matter and so all are quick. It is CPU time, without the process's start, which a neighbour on the
machine changes all the same (the line loop alone had 160 to 340 MB/s on one): so the lowest and the highest ratio of a
round stand there, too.
Goals: 25 MB/s where many lines matter, 1.3 times the line loop where few do, below 300 MB.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from agentload.serverlogs import formats
from tests.bench import log_maker

MATTERS_MB_S, FEW_TIMES, MOST_MB = 25.0, 1.3, 300.0

# name: (log, few lines matter, what grep counts, what the line loop looks for)
CASES: dict[str, tuple[Callable[[], Iterator[bytes]], bool, str, bytes]] = {
    "ds4 requests": (log_maker.ds4, False, "chat ctx=", b"chat ctx="),
    "ds4 decode steps": (lambda: log_maker.ds4(batches=True), False, "chat ctx=|decode batch", b"ds4-server: "),
    "ds4, 3 % in engine's": (
        lambda: log_maker.diluted(log_maker.ds4(), log_maker.ENGINE, 32), True, "chat ctx=", b"chat ctx="
    ),
    "ds4, 3 % in foreign": (
        lambda: log_maker.diluted(log_maker.ds4(), log_maker.FOREIGN, 32), True, "chat ctx=", b"chat ctx="
    ),
    "ds4, 0.5 % in foreign": (
        lambda: log_maker.diluted(log_maker.ds4(), log_maker.FOREIGN, 199), True, "chat ctx=", b"chat ctx="
    ),
    "llama.cpp -lv 3": (lambda: log_maker.llama(3), False, "slot +[^ |]+: id", b" | task "),
    "llama.cpp -lv 4": (lambda: log_maker.llama(4), False, "eval time|stop processing|processing task", b" time = "),
    "llama.cpp -v": (lambda: log_maker.llama(5), False, "eval time|stop processing|processing task", b" time = "),
}  # fmt: skip

LOOP = """
import os, sys, time

def loop(path, needle):
    began, count = time.process_time(), 0
    with open(path, "rb") as file:
        for line in file:
            if needle in line:
                count += 1
    return time.process_time() - began

print(loop(sys.argv[1], os.fsencode(sys.argv[2])))
"""


def read(path: Path) -> None:
    """Read it as `agentload account` does; what was found goes to stdout as JSON. Runs in a process of its own."""
    formats.installed()  # the program's start takes 0.3 s; nor is Python's counted for the line loop
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with path.open("rb") as file:
        found = formats.read(formats.blocks(file)).facts
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = found.lines
    told = {
        "s": took, "base_mb": before / 1024, "peak_mb": peak / 1024, "requests": len(found.requests),
        "lines": [lines.understood, lines.ignored, lines.unknown],
    }  # fmt: skip
    sys.stdout.write(json.dumps(told))


def ours(path: Path) -> dict[str, Any]:
    """Run `read` in a process of its own."""
    command = [sys.executable, __file__, "--read", str(path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def grep(path: Path, pattern: str) -> float:
    """Return the seconds that `grep -cE` takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["grep", "-cE", pattern, str(path)], check=True, capture_output=True, env={"LC_ALL": "C"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loop(path: Path, needle: bytes) -> float:
    """Return the seconds that a plain line loop takes."""
    done = subprocess.run([sys.executable, "-c", LOOP, path, needle], check=True, capture_output=True)
    return float(done.stdout)


def main(megabytes: int, names: list[str]) -> None:
    """Measure the cases."""
    sys.stdout.write(
        f"{'':<22} {'grep':>6} {'loop':>6} {'ours':>6} MB/s  x loop                 peak MB  requests  "
        "understood/ignored/unknown lines\n"
    )
    for name, (log, few, pattern, needle) in CASES.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="agentload-bench-") as where:
            path = Path(where) / "server.log"
            log_maker.make(path, megabytes * 1_000_000, log())
            size_mb = path.stat().st_size / 1e6
            loop(path, needle)  # into the page cache
            rounds = [(grep(path, pattern), loop(path, needle), ours(path)) for _ in range(5 if few else 2)]
        grep_mb, loop_mb = size_mb / median(one[0] for one in rounds), size_mb / median(one[1] for one in rounds)
        our_mb, peak_mb = size_mb / median(one[2]["s"] for one in rounds), max(one[2]["peak_mb"] for one in rounds)
        ratios, found = [looped / read["s"] for _, looped, read in rounds], rounds[0][2]
        good = (our_mb >= FEW_TIMES * loop_mb if few else our_mb >= MATTERS_MB_S) and peak_mb < MOST_MB
        spread = f"({min(ratios):4.2f} to {max(ratios):4.2f})"
        sys.stdout.write(
            f"{name:<22} {grep_mb:6.0f} {loop_mb:6.0f} {our_mb:6.1f}       {our_mb / loop_mb:5.2f} {spread}  "
            f"{peak_mb:7.0f}  {found['requests']!s:>8}  {'/'.join(map(str, found['lines']))}  "
            f"{'ok' if good else 'MISSED'}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, sys.argv[2:])
