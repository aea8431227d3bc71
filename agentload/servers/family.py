"""Which processes belong to a server, and how does all of it end?

A server runs in a session of its own (servers.process). Its family is itself, its descendants, and whoever is in its
session: a wrapper script may have ended long before the server that it started. A descendant with a session of its own
is one of them too; who was seen once stays one, since nothing tells it from others when its parent has ended.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psutil

_POLL_S: Final = 0.1
_KILLS: Final = 50  # times _POLL_S: what is forked meanwhile is killed too, and the kernel needs to take all apart


class Family:
    """The server that was started as process `pid`, the leader of a session of its own."""

    def __init__(self, pid: int, wait_first: Callable[[float], object] | None = None) -> None:
        """Remember who has the number `pid` now, since it may be another's later.

        Args:
            pid: the process that was started.
            wait_first: wait for that process, at most so many seconds. Its parent gives a function of its own, in
                which it takes the exit code: psutil would take it away. None: it is no child of this process.
        """
        self.pid = pid
        try:
            self._first: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._first = None
        self._wait_first = wait_first
        self._seen: set[psutil.Process] = set()

    def running(self) -> list[psutil.Process]:
        """Return those that run now; one that only waits to be collected does not."""
        found = {one for one in self._seen if one.is_running()}
        # Otherwise another process has its number: while one of its session lived, the kernel would not give it away.
        if not psutil.pid_exists(self.pid) or (self._first is not None and self._first.is_running()):
            if self._first is not None:
                found.add(self._first)
            for pid in psutil.pids():
                with suppress(OSError, psutil.NoSuchProcess):
                    if os.getsid(pid) == self.pid:
                        found.add(psutil.Process(pid))
        for one in list(found):
            with suppress(psutil.NoSuchProcess):
                found.update(one.children(recursive=True))
        self._seen = {one for one in found if runs(one)}
        return list(self._seen)

    def end(self, grace_s: float) -> bool:
        """Send SIGTERM, and SIGKILL to those that run after `grace_s`; return whether that was needed. Blocks."""
        members = self.running()
        if members:
            others = [one for one in members if not self._in_group(one)]  # one signal each: a second may mean "at once"
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGTERM)
            for one in others:
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    one.terminate()
        left = self._left_after(grace_s)
        killed = bool(left)
        for _ in range(_KILLS):
            for one in left:
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    one.kill()
            left = left and self._left_after(_POLL_S)
        return killed

    def _in_group(self, process: psutil.Process) -> bool:
        try:
            return os.getpgid(process.pid) == self.pid
        except ProcessLookupError:
            return True

    def _left_after(self, seconds: float) -> list[psutil.Process]:
        """Return who runs when `seconds` have passed, or nobody before."""
        due = time.monotonic() + seconds
        while (left := self.running()) and (rest := due - time.monotonic()) > 0:
            if self._wait_first is not None and self._first in left:
                self._wait_first(rest)
            else:
                psutil.wait_procs(left, timeout=min(rest, _POLL_S))
        return left


def runs(process: psutil.Process) -> bool:
    """Tell a running process from one that only waits to be collected, as a container's first process may never do."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
