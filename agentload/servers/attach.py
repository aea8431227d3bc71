"""May our markers go into the log of a server that somebody else started?

A process that opened its log without O_APPEND keeps its own position and would overwrite what we append (measured:
3,279 of 5,241 markers lost). So: the processes that hold the log open for writing are looked up in /proc, and only
when all of them append do we write. Each marker is one write that begins and ends with a newline, which keeps it at a
line's start even inside a line that its server writes in pieces. Otherwise markers stay in markers.jsonl (the
sidecar), each with the log's inode and size at that moment.
"""

import errno
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.errors import InputError

_KNOWN_BYTES: Final = 64  # of the log, by which a truncated one is known even when it has grown again
_FLAGS: Final = re.compile(rb"^flags:\s*(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that has the log open for writing."""

    pid: int
    fd: int
    appends: bool


class AttachedLog:
    """The log file of a running server; it notices when the log is no longer the one that it was."""

    def __init__(self, path: Path) -> None:
        """Check that `path` can be read.

        Raises:
            InputError: it is missing, a directory, a pipe, or unreadable.
        """
        self.path = path
        try:
            if path.is_dir():
                raise InputError(f"--server-log: expected a log file, {path} is a directory")
            if path.exists() and not path.is_file():
                raise InputError(f"--server-log: expected a regular file, {path} is none")
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(max(0, status.st_size - _KNOWN_BYTES))
                self._known = file.read(_KNOWN_BYTES)
        except OSError as error:
            raise InputError(f"--server-log: {path} cannot be read: {error.strerror}") from error
        self.inode = status.st_ino
        self.size_at_start = status.st_size
        self._known_at = max(0, status.st_size - _KNOWN_BYTES)
        self.writers = writers(path)
        self.refusal = self._refusal()

    def _refusal(self) -> str | None:
        """Why markers may not go into the log; None when they may."""
        if not Path("/proc/self/fdinfo").is_dir():
            return f"cannot see how the server opened {self.path}: there is no /proc here"
        if not self.writers:
            return f"no process that we may look into has {self.path} open for writing"
        for one in self.writers:
            if not one.appends:
                return (
                    f"process {one.pid} opened {self.path} without O_APPEND and would overwrite our markers: "
                    f"restart the server with `>>` instead of `>` to have markers in its log"
                )
        if not os.access(self.path, os.W_OK):
            return f"{self.path} may not be written by this user"
        return None

    def changed(self) -> str | None:
        """Say why the log is no longer the one that was attached to; None while it is, and has only grown."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(self._known_at)
                there = file.read(len(self._known))
        except OSError as error:
            return f"{self.path} cannot be read: {error.strerror}"
        if status.st_ino != self.inode:
            return f"{self.path} was rotated: another file has its name now"
        if there != self._known:  # also when it has grown beyond that again
            return f"{self.path} was truncated: the bytes from {self._known_at} on are gone or others"
        return None

    def write_marker(self, line: bytes) -> int:
        """Append the marker and return the offset of its line's first byte.

        Raises:
            InputError: the log cannot be written.
        """
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                data = b"\n" + line + b"\n"
                if os.write(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                offset = os.lseek(fd, 0, os.SEEK_CUR) - len(line) - 1
                self._known, self._known_at = line, offset
                return offset
            finally:
                os.close(fd)
        except OSError as error:
            raise InputError(f"{self.path}: marker cannot be written: {error.strerror}") from error

    def place(self) -> tuple[int, int]:
        """Return (inode, size) of the log now: where a sidecar marker stands.

        Raises:
            InputError: it was rotated away.
        """
        try:
            status = self.path.stat()
        except OSError as error:
            raise InputError(f"--server-log: {self.path} cannot be read: {error.strerror}") from error
        return status.st_ino, status.st_size

    def copy_to(self, target: Path) -> int:
        """Copy the log, from its first byte (start-up lines prove settings) to its end now; return the bytes copied.

        Raises:
            InputError: it was rotated away or truncated, or cannot be read.
        """
        if (why := self.changed()) is not None:
            raise InputError(f"--server-log cannot be copied: {why}")
        try:
            shutil.copyfile(self.path, target)
            return target.stat().st_size
        except OSError as error:
            raise InputError(f"--server-log cannot be copied: {self.path}: {error.strerror}") from error


def writers(path: Path) -> list[Writer]:
    """Return the processes that have `path` open for writing, as far as this user may see; by pid, then fd."""
    wanted = path.stat()
    found: list[Writer] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fds = list((process / "fd").iterdir())
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
        found += [one for fd in fds if (one := _writer(process, fd.name, wanted)) is not None]
    return sorted(found, key=lambda one: (one.pid, one.fd))


def _writer(process: Path, fd: str, wanted: os.stat_result) -> Writer | None:
    try:
        status = (process / "fd" / fd).stat()
        if (status.st_dev, status.st_ino) != (wanted.st_dev, wanted.st_ino):
            return None
        flags = _FLAGS.search((process / "fdinfo" / fd).read_bytes())
    except OSError:  # this one was closed meanwhile; a busy server does that all the time
        return None
    value = int(flags[1], 8) if flags else 0
    if value & os.O_ACCMODE == os.O_RDONLY:
        return None
    return Writer(int(process.name), int(fd), bool(value & os.O_APPEND))
