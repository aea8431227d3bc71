"""How is a server started, known to have ended, and stopped, with nothing of it left behind?

Its stdout and stderr are one pipe that we own (servers.pump). It runs in a session of its own, so that Ctrl-C in the
terminal stops the agents first and the server last, and so that a wrapper script's children end with it.
"""

import os
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

import psutil
from anyio import to_thread

from agentload.core.ports import Clock
from agentload.errors import ArtifactError, ServerError, UsageError
from agentload.servers.family import Family
from agentload.servers.pump import Pump
from agentload.servers.watchdog import Watchdog

_POLL_NS: Final = 100_000_000  # between two looks whether it runs
_DRAIN_S: Final = 5.0  # at most, for the last lines of a server that has ended: a busy machine may need a second
_LINE_CHARS: Final = 300  # of each of the last lines, in a message
# Linux gives away 32,768 to 60,999 (net.ipv4.ip_local_port_range), macOS 49,152 and above.
_PORTS: Final = range(20_000, 32_768)
_PORT_TRIES: Final = 50


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
    """Return a TCP port of 127.0.0.1 that is free now.

    It is none that the system gives to connections and to who asks for any: one of those could be another's before
    the server that it is for has come to listen there, some seconds later.
    """
    for port in (*SystemRandom().sample(_PORTS, _PORT_TRIES), 0):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            free: int = listener.getsockname()[1]
            return free
    raise ServerError("expected a free TCP port at 127.0.0.1, there is none")


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
        watchdog: Watchdog | None = None,
        grace_s: float = 10.0,
    ) -> None:
        """Start `argv`; `watchdog` ends it, within `grace_s`, when agentload itself is killed.

        Raises:
            ServerError: there is no such program, or it may not be run.
            ArtifactError: the log cannot be created; nothing was started then.
        """
        self.argv = list(argv)
        self.clock = clock
        self.killed = False  # whether it had to be, in `stop`
        self._watchdog = watchdog
        self._t_ended: int | None = None
        self.t_started = clock.now_ns()
        reading, writing = os.pipe()
        try:
            self.pump = Pump(reading, log, times, clock)
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
        if watchdog is not None:
            watchdog.end_on_death(self.pid, grace_s)
        self._family = Family(self.pid, self._wait)
        self.pump.start()

    @property
    def pid(self) -> int:
        """The process id of what was started (a wrapper's, when a script wraps the server)."""
        return self._process.pid

    def family(self) -> list[psutil.Process]:
        """Return its processes that run now: itself, what it started, and who is in its session. Blocks."""
        return self._family.running()

    def exit_code(self) -> int | None:
        """Return None while it runs; -N when signal N ended it."""
        code = self._process.poll()
        if code is not None and self._t_ended is None:
            self._t_ended = self.clock.now_ns()
        return code

    def ending(self) -> str | None:
        """Say how and when it ended, and its last lines; None while it runs."""
        code = self.exit_code()
        if code is None or self._t_ended is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
        seconds = (self._t_ended - self.t_started) / 1e9
        return f"the server (pid {self.pid}) {how} after {seconds:.1f} s; {self.last_lines()}"

    async def wait_exit(self) -> str:
        """Return as soon as it has ended, with `ending` as its value."""
        while self.exit_code() is None:
            await self.clock.sleep_until(self.clock.now_ns() + _POLL_NS)
        await to_thread.run_sync(self.pump.join, _DRAIN_S)
        ending = self.ending()
        assert ending is not None
        return ending

    def last_lines(self) -> str:
        """Quote the last three lines of its log, and say where all of them are."""
        return f"its last lines: {' | '.join(self._tail(3)) or 'none'}; all of them: {self.pump.log}"

    def last_line(self) -> str:
        """Return the last line of its log that is not blank; nothing when there is none."""
        return "".join(self._tail(1))

    def stop(self, timeout_s: float) -> int | None:
        """End it and its family: SIGTERM, after `timeout_s` SIGKILL (see `killed`). Return its exit code. Blocks."""
        # A wrapper ends at once; the server behind it has the rest of the time.
        self.killed = self._family.end(timeout_s) or self.killed
        self._process.wait()
        if self._watchdog is not None:
            self._watchdog.forget(self.pid)
        self.pump.join(10.0)
        self.pump.close()
        return self.exit_code()

    def _tail(self, count: int) -> list[str]:
        lines = [line.strip()[:_LINE_CHARS] for line in self.pump.tail().splitlines() if line.strip()]
        return lines[-count:]

    def _wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
