"""How do a server's lines and our markers get into one file, whole and stamped?

agentload owns the pipe behind the server's stdout and stderr. One thread reads it, stamps each piece as it arrives
and appends whole lines; a marker goes between two of them. For each physical line of the log, `server.log.times` has
one line: the receive time in Unix ns. While the thread writes, the next bytes wait in the pipe: its worst such pause
is part of the clock error that an account states.
"""

import os
import threading
from pathlib import Path
from typing import Final

from agentload.core.ports import Clock
from agentload.errors import ArtifactError

_PIECE: Final = 1 << 16


class Pump:
    """Moves a server's output from a pipe into a log file, in a thread of its own."""

    def __init__(self, pipe: int, log: Path, times: Path, clock: Clock) -> None:
        """Take over the reading end `pipe`.

        Raises:
            ArtifactError: one of the files cannot be created, or is there already; the pipe is still the caller's.
        """
        self._pipe = pipe
        self._clock = clock
        self._lock = threading.Lock()
        self._log = _create(log)
        try:
            self._times = _create(times)
        except ArtifactError:
            os.close(self._log)
            raise
        self.log = log
        self._paths = {self._log: log, self._times: times}
        self._size = 0
        self._partial: list[bytes] = []  # pieces of a line that has not ended: joined once, however many there are
        self._partial_stamp = 0
        self._last_stamp = 0
        self._ends_whole = True
        self._closed = False
        self.worst_pause_ns = 0
        self.failure: OSError | None = None  # its `filename` is the file that could not be written
        self._thread = threading.Thread(target=self._run, name="server-output", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def write_marker(self, line: bytes) -> int:
        """Append `line` (no newline) between two whole lines; return the byte offset at which it stands.

        It may still be written after the server has ended, until `close`.

        Raises:
            ArtifactError: the log cannot be written, could not be before, or is closed.
        """
        with self._lock:
            if self._closed:
                raise ArtifactError(f"{self.log}: marker cannot be written: the log is closed")
            try:
                if self.failure is not None:
                    raise self.failure
                if not self._ends_whole:  # the server's last line came without a newline
                    self._append(b"\n", [])
                offset = self._size
                self._append(line + b"\n", [self._clock.now_ns()])
            except OSError as error:
                self.failure = self.failure or error
                raise ArtifactError(f"{error.filename}: marker cannot be written: {error.strerror}") from error
            return offset

    def join(self, timeout_s: float) -> bool:
        """Wait until the server has closed its end and all is written; False when that takes longer."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Close the log; what the server may still write is read and dropped. Closing twice is fine."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._log)
                os.close(self._times)

    def tail(self, limit_bytes: int = 2000) -> str:
        """Return the last whole lines of the log, for an error message."""
        with self._lock, self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - limit_bytes))
            data = log.read() + b"".join(self._partial)[-limit_bytes:]
        return data.decode("utf-8", "replace")

    def _run(self) -> None:
        while True:
            try:
                piece = os.read(self._pipe, _PIECE)
            except OSError:
                piece = b""
            stamp = self._clock.now_ns()
            with self._lock:
                # A full disk must not stop the server: its output is read on, and the failure is kept for the run.
                # Nothing is written after it, since offsets and stamps would no longer belong to the log's lines.
                if self.failure is None and not self._closed:
                    try:
                        self._take(piece, stamp)
                    except OSError as error:
                        self.failure = error
                if not piece:
                    os.close(self._pipe)
                    return
            self.worst_pause_ns = max(self.worst_pause_ns, self._clock.now_ns() - stamp)

    def _take(self, piece: bytes, stamp: int) -> None:
        if not piece:
            if self._partial:  # the server's last line has no newline; neither has the log
                data, self._partial = b"".join(self._partial), []
                self._append(data, [self._partial_stamp])
            return
        cut = piece.rfind(b"\n") + 1
        before, rest = self._partial, piece[cut:]
        self._partial_stamp = stamp
        if not cut:
            before.append(piece)
        else:
            self._partial = [rest] if rest else []
            whole = b"".join((*before, piece[:cut]))
            self._append(whole, [stamp] * whole.count(b"\n"))

    def _append(self, data: bytes, stamps: list[int]) -> None:
        self._write_all(self._log, data)
        self._size += len(data)
        self._ends_whole = data.endswith(b"\n")
        # A marker may get the lock between a piece's arrival and its turn: stamps keep the order of the lines.
        stamps = [max(stamp, self._last_stamp) for stamp in stamps]
        if stamps:
            self._last_stamp = stamps[-1]
            self._write_all(self._times, "".join(f"{stamp}\n" for stamp in stamps).encode())

    def _write_all(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            error.filename = str(self._paths[fd])
            raise


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be created: {error.strerror}") from error
