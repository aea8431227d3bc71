"""How is a server started, known to be ready, and stopped, with nothing of it left behind?

Its stdout and stderr are one pipe that we own (servers.pump). It runs in a session of its own, so that Ctrl-C in the
terminal stops the agents first and the server last, and so that a wrapper script's children end with it.
"""

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import httpx2
import psutil
from anyio import to_thread

from agentload.core.ports import Clock
from agentload.errors import ArtifactError, ServerError, UsageError
from agentload.servers.pump import Pump

_POLL_S: Final = 0.1
_KILLED_NS: Final = 5_000_000_000  # for the kernel to take a killed process apart


def split_command(command: str) -> list[str]:
    """Split `--launch` as a shell would split words.

    Raises:
        UsageError: it is empty or a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--launch: {error}: {command!r}") from error
    if not words:
        raise UsageError("--launch: expected a command, got an empty one")
    return words


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class ServerProcess:
    """A server that agentload started and will stop."""

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        times: Path,
        clock: Clock,
        *,
        env: Mapping[str, str],
        on_bytes: Callable[[bytes], None] | None = None,
    ) -> None:
        """Start `argv`.

        Raises:
            ServerError: there is no such program, or it may not be run.
            ArtifactError: the log cannot be created; nothing was started then.
        """
        self.argv = list(argv)
        self._clock = clock
        self.t_started = clock.now_ns()
        reading, writing = os.pipe()
        try:
            self.pump = Pump(reading, log, times, clock, on_bytes)
        except ArtifactError:
            os.close(reading)
            os.close(writing)
            raise
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            self.pump.close()
            raise ServerError(f"cannot start {self.argv[0]!r}: {error.strerror}") from error
        finally:
            os.close(writing)
        self.pump.start()

    @property
    def pid(self) -> int:
        """The process id of what was started (a wrapper's, when a script wraps the server)."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return None while it runs."""
        return self._process.poll()

    async def wait_ready(self, base_url: str, timeout_s: float) -> None:
        """Return when GET `base_url`/models answers.

        Raises:
            ServerError: it exits before, or is not ready in time; the last lines of its log stand in the message.
        """
        async with httpx2.AsyncClient(trust_env=False, timeout=5.0) as client:
            with anyio.move_on_after(timeout_s):
                while True:
                    if self.exit_code() is not None:
                        await to_thread.run_sync(self.pump.join, 1.0)
                        raise ServerError(
                            f"the server exited with {self.exit_code()} before it was ready: "
                            f"{shlex.join(self.argv)}; its last lines: {self._last_lines()}"
                        )
                    try:
                        answer = await client.get(f"{base_url}/models")
                    except httpx2.TransportError:
                        await anyio.sleep(_POLL_S)
                        continue
                    if answer.status_code == httpx2.codes.OK:
                        return
                    await anyio.sleep(_POLL_S)
        raise ServerError(
            f"the server did not answer at {base_url}/models within {timeout_s:g} s: "
            f"{shlex.join(self.argv)}; its last lines: {self._last_lines()}"
        )

    def stop(self, timeout_s: float) -> int | None:
        """End it and its children: SIGTERM, after `timeout_s` SIGKILL. Return its exit code. Blocks."""
        due_ns = self._clock.now_ns() + int(timeout_s * 1e9)
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        # A wrapper ends at once; the server behind it has the rest of the time.
        left = self._family_after(due_ns)
        if self._process.poll() is None or left:
            self._signal(signal.SIGKILL)
            for child in left:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.wait()
        self._family_after(self._clock.now_ns() + _KILLED_NS)
        self.pump.join(10.0)
        self.pump.close()
        return self._process.returncode

    def _signal(self, number: signal.Signals) -> None:
        # With nobody left its number might be another's by now.
        if self._process.poll() is None or self._family():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _family_after(self, due_ns: int) -> list[psutil.Process]:
        """Return who is left at `due_ns`, or nobody before."""
        while (left := self._family()) and self._clock.now_ns() < due_ns:
            psutil.wait_procs(left, timeout=_POLL_S)
        return left

    def _family(self) -> list[psutil.Process]:
        """Return its children, and whoever is in its session, which is known also when it has ended itself."""
        found: set[psutil.Process] = set()
        with suppress(psutil.NoSuchProcess):
            found |= set(psutil.Process(self.pid).children(recursive=True))
        for pid in psutil.pids():
            with suppress(OSError, psutil.NoSuchProcess):
                if pid != self.pid and os.getsid(pid) == self.pid:
                    found.add(psutil.Process(pid))
        return [one for one in found if _runs(one)]

    def _last_lines(self) -> str:
        lines = [line for line in self.pump.tail().splitlines() if line.strip()]
        return " | ".join(lines[-3:]) or "none"


def _runs(process: psutil.Process) -> bool:
    """Tell a running process from one that only waits to be collected, as a container's first process may never do."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
