"""Processes of a test: have they ended, and has one said something yet?"""

import time
from collections.abc import Iterable
from pathlib import Path

import psutil

WAIT_S = 120.0  # until a wait is given up: a machine with other work to do may stand still for seconds


def gone(*processes: psutil.Process) -> bool:
    """Wait for their end. Init reaps those whose parent has ended, and may take a moment."""
    return not psutil.wait_procs(processes, timeout=WAIT_S)[1]


def still_there(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of the processes that have not been reaped."""
    found = []
    for pid in pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found


def runs(pid: int) -> bool:
    """Whether it is there, and not only waits to be collected."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def runs_as(pid: int, argv: list[str]) -> bool:
    """Wait until a process that was started has become the program of that command line."""
    until = time.monotonic() + WAIT_S
    while psutil.Process(pid).cmdline() != argv:
        if time.monotonic() > until:
            return False
    return True


def line_of(log: Path, start: str) -> str:
    """Wait until a log has a whole line that begins so; its writer is another process or thread."""
    until = time.monotonic() + WAIT_S
    while True:
        for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.startswith(start) and line.endswith("\n"):
                return line.rstrip("\n")
        assert time.monotonic() < until, f"{log} has no line that begins with {start!r}"
