"""In how much memory, and how fast, is a long log accounted for and exported?

    python tests/bench/bench_memory.py [MEGABYTES [CASE ...]]

Each case is a made-up log (log_maker.py) of that size in a temporary file, given to the command line as a user gives
it, each command in a process of its own: its peak memory and its CPU time. Cases: ds4, llamacpp.
Goal: below 300 MB, whatever the size.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import log_maker

MOST_MB = 300.0
_PROGRAM = "from agentload.cli import main; main()"
CASES: dict[str, Callable[[], Iterator[bytes]]] = {"ds4": log_maker.ds4, "llamacpp": lambda: log_maker.llama(3)}


def measured(arguments: list[str]) -> tuple[float, float]:
    """Run `agentload` and return its peak memory in MB, and its CPU seconds."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.execv(sys.executable, [sys.executable, "-c", _PROGRAM, *arguments])
    _, status, used = os.wait4(pid, 0)  # of this child alone: RUSAGE_CHILDREN has the largest of all
    if status:
        raise SystemExit(f"agentload {' '.join(arguments)}: exit status {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def main(megabytes: int, names: list[str]) -> None:
    """Measure the cases."""
    for name in names or CASES:
        with tempfile.TemporaryDirectory(prefix="agentload-bench-") as where:
            path, out = Path(where) / "server.log", Path(where) / "out"
            log_maker.make(path, megabytes * 1_000_000, CASES[name]())
            for arguments in (
                ["account", str(path)],
                ["account", str(path), "--out", str(out)],
                *(["export", str(path), "--to", to, "--out", str(out)] for to in ("parquet", "jsonl", "csv")),
            ):
                peak_mb, cpu_s = measured(arguments)
                what = " ".join(one for one in arguments if not one.startswith(where))
                verdict = "ok" if peak_mb < MOST_MB else "MISSED"
                sys.stdout.write(f"{name:<9} {what:<24} {peak_mb:6.0f} MB {cpu_s:7.1f} s CPU  {verdict}\n")
                sys.stdout.flush()
                shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, sys.argv[2:])
