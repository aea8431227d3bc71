"""How does one command run to its end, whatever it does, without holding up the event loop?

It blocks, so it belongs into a worker thread: launching from the loop stalls it by 100 ms and more when many agents
launch at once, and the time stamps of the others' streams suffer.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentload.agents.tools.output import HeadTail
from agentload.errors import SandboxError

Ending = Literal["exit", "timeout", "flood", "cancelled"]

_TICK_S = 0.05  # how soon the shell's exit is seen while a process that it left behind holds the pipe
_DRAIN_S = 1.0  # after a kill: how long the last bytes may take
_REAP_S = 60.0
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use. Memory, files, CPU are for each process of it; the others for all together."""

    wall_s: float = 30.0
    cpu_s: int = 60
    memory_bytes: int = 2 << 30  # address space
    processes: int = 128
    file_bytes: int = 64 << 20
    open_files: int = 256
    flood_bytes: int = 50_000_000  # of output: a command that prints more is killed


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `exit_code` is None when we killed it; a signal n that hit the command itself is 128 + n."""

    ended: Ending
    exit_code: int | None
    output: str  # stdout and stderr as they came, at most the bytes asked for
    bytes_out: int  # printed, before the cut
    truncated: bool
    status: str = ""  # what the launcher said of itself, for `describe`


class Execution:
    """One command, from its launch to its last process' end. `run` once; `kill` from any thread, at any time."""

    def __init__(
        self,
        argv: Callable[[int], list[str]],
        env: Mapping[str, str],
        cwd: Path,
        limits: Limits,
        keep_bytes: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`argv(fd)` makes the command line; fd is where the launched program says that the command has started.

        `now_s` tells the time that `limits.wall_s` is of.
        """
        self._argv, self._env, self._cwd, self._limits, self._now_s = argv, dict(env), cwd, limits, now_s
        self._kept = HeadTail(keep_bytes)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = self._over = False

    def kill(self) -> None:
        """End it now; `run` then returns soon with `ended="cancelled"`."""
        with self._lock:
            self._cancelled = True
            self._kill_group()

    def run(self) -> Outcome:
        """Run it and wait for its end.

        Raises:
            SandboxError: the sandbox could not be set up, so the command never ran.
        """
        output, output_w = os.pipe()
        status, status_w = os.pipe()
        try:
            try:
                started = self._start(output_w, status_w)
            finally:
                os.close(output_w)
                os.close(status_w)
            if not started:
                return Outcome("cancelled", None, "", 0, truncated=False)
            return self._finish(self._pump(output), status)
        finally:
            self._end()
            os.close(output)
            os.close(status)

    def _start(self, output_w: int, status_w: int) -> bool:
        with self._lock:
            if self._cancelled:
                return False
            argv = self._argv(status_w)
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output_w,
                    stderr=output_w,
                    env=self._env,
                    cwd=self._cwd,
                    pass_fds=(status_w,),
                    start_new_session=True,  # a process group of its own to kill, and no terminal
                )
            except OSError as error:
                raise SandboxError(f"cannot start {argv[0]}: {error.strerror or error}") from error
        return True

    def _pump(self, output: int) -> Ending:
        """Read until every holder of the pipe is gone, or the command is, or has had enough."""
        deadline = self._now_s() + self._limits.wall_s
        poller = select.poll()
        poller.register(output, select.POLLIN)
        ended: Ending = "exit"
        exited = False
        while True:
            left_s = deadline - self._now_s()
            if left_s <= 0:
                return ended if exited else self._stop("timeout", output)
            if poller.poll(max(1, int(min(left_s, _TICK_S) * 1000))):
                data = os.read(output, _READ_BYTES)
                if not data:
                    return self._wait(deadline)
                self._kept.feed(data)
                if self._kept.total > self._limits.flood_bytes:
                    return self._stop("flood", output)
            elif exited:
                return ended  # what still holds the pipe is silent, and may do so for ever
            if not exited and self._gone():
                exited = True
                self._stop_rest()

    def _wait(self, deadline: float) -> Ending:
        assert self._process is not None
        try:
            self._process.wait(max(0.0, deadline - self._now_s()))
        except subprocess.TimeoutExpired:  # it closed its output and runs on
            return "timeout"
        return "exit"

    def _stop(self, why: Ending, output: int) -> Ending:
        self._stop_rest()
        os.set_blocking(output, False)
        poller = select.poll()
        poller.register(output, select.POLLIN)
        deadline = time.monotonic() + _DRAIN_S
        while (left_s := deadline - time.monotonic()) > 0 and poller.poll(int(left_s * 1000)):
            data = os.read(output, _READ_BYTES)
            if not data:
                break
            self._kept.feed(data)
        return why

    def _gone(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def _stop_rest(self) -> None:
        with self._lock:
            self._kill_group()

    def _kill_group(self) -> None:
        """Kill what is left of the group, also when its leader has gone. The leader of a sandbox takes all with it."""
        if self._process is not None and not self._over:  # once over, its number may be another's
            # No such group: all gone. Not permitted: macOS says so of a group of which only zombies are left.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> None:
        """Leave nothing running, on every way out."""
        if self._process is None:
            return
        self._stop_rest()
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired as error:
            raise SandboxError(f"process {self._process.pid} did not end {_REAP_S:.0f} s after SIGKILL") from error
        finally:
            with self._lock:
                self._over = True

    def _finish(self, ended: Ending, status: int) -> Outcome:
        assert self._process is not None
        if self._cancelled:
            ended = "cancelled"
        code = self._process.returncode if ended == "exit" else None
        os.set_blocking(status, False)
        try:
            said = os.read(status, _READ_BYTES).decode("utf-8", "replace")
        except BlockingIOError:
            said = ""
        if ended == "exit" and not said.endswith("started\n"):
            reason = said.strip().removeprefix("fail ") or " ".join(self._kept.text().split()) or f"exit code {code}"
            raise SandboxError(f"the sandbox could not be set up: {reason}")
        if code is not None and code < 0:
            code = 128 - code
        return Outcome(ended, code, self._kept.text(), self._kept.total, self._kept.truncated, said)
