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
from agentload.errors import ServerError, UsageError
from agentload.servers.pump import Pump

_POLL_S: Final = 0.1


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
        """
        self.argv = list(argv)
        self.t_started = clock.now_ns()
        reading, writing = os.pipe()
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
            raise ServerError(f"cannot start {self.argv[0]!r}: {error.strerror}") from error
        finally:
            os.close(writing)
        self.pump = Pump(reading, log, times, clock, on_bytes)
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
                        await to_thread.run_sync(self.pump.join, 5.0)
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
        family = self._family()
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        _, alive = psutil.wait_procs(family, timeout=1.0)
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(alive, timeout=5.0)
        self.pump.join(10.0)
        return self._process.returncode

    def _family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def _last_lines(self) -> str:
        lines = [line for line in self.pump.tail().splitlines() if line.strip()]
        return " | ".join(lines[-3:]) or "none"
