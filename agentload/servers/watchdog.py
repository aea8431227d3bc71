"""What is left of a run when agentload itself is killed (kill -9, out of memory) and can tidy up no more?

A watchdog process of its own reads from a pipe whose writing end only agentload holds. When that end closes without a
goodbye, it ends the servers it was told of (SIGTERM, SIGKILL after a grace) and removes the folders it was told of.
It is in a session of its own, takes no signal that asks for an end, and holds neither our output nor a server's.

The kernel's own means, PR_SET_PDEATHSIG, is none here: it also fires when the *thread* that started the child ends
(measured: the child is gone as soon as a worker thread is), and there is none on macOS.

Measured: 1 to 11 ms to start it (it gets ready beside the run: 0.07 s of CPU, 15 MB), 30 to 60 ms to let it go.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agentload.errors import ServerError
from agentload.servers.family import Family

_PACKAGE_PARENT: Final = Path(__file__).resolve().parents[2]
_GOODBYE: Final = "goodbye"
_BLOCKED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Watchdog:
    """The watchdog, as agentload talks to it; use as a context manager. Safe to use from any thread."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Start it with the environment `env`.

        Raises:
            ServerError: it cannot be started.
        """
        # -P and PYTHONPATH: it imports this very package, whatever stands in the working directory.
        path = os.pathsep.join((str(_PACKAGE_PARENT), *filter(None, sys.path)))
        # Blocked from its first moment on: a signal mask is inherited. Its life hangs on ours alone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**env, "PYTHONPATH": path},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ServerError(f"cannot start the watchdog, {sys.executable!r}: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def end_on_death(self, pid: int, grace_s: float) -> None:
        """Have the server that was started as `pid`, in a session of its own, ended when we die."""
        self._tell({"end": pid, "grace_s": grace_s})

    def forget(self, pid: int) -> None:
        """The server that was started as `pid` has ended."""
        self._tell({"forget": pid})

    def remove_on_death(self, folder: Path) -> None:
        """Have `folder` removed, with all that is in it, when we die."""
        self._tell({"remove": str(folder.absolute())})

    def close(self) -> None:
        """Let it go: it ends nothing and removes nothing. Closing twice is fine."""
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.closed:
            self._tell({_GOODBYE: True})
            stdin.close()
        self._process.wait()

    def _tell(self, what: dict[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # One write of less than PIPE_BUF: whole or not at all. Somebody may have killed the watchdog: the run goes on.
        with suppress(BrokenPipeError):
            os.write(stdin.fileno(), json.dumps(what).encode() + b"\n")


def watch(orders: Iterable[bytes]) -> None:
    """Take orders until their pipe closes; then, without a goodbye, do what they say."""
    servers: dict[int, tuple[Family, float]] = {}
    folders: list[Path] = []
    for line in orders:
        order = json.loads(line)
        if _GOODBYE in order:
            return
        if "end" in order:
            servers[order["end"]] = (Family(order["end"]), order["grace_s"])
        elif "forget" in order:
            servers.pop(order["forget"], None)
        else:
            folders.append(Path(order["remove"]))
    for family, grace_s in servers.values():
        family.end(grace_s)
    for folder in folders:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, also one with folders in it that nobody may write or look into."""
    for path, names, _ in os.walk(folder):
        for below in (Path(path, name) for name in names):
            with suppress(OSError):
                if not below.is_symlink():
                    below.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin.buffer)
