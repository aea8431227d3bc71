"""May our markers go into the log of a server that somebody else started?

A process that opened its log without O_APPEND keeps its own position and would overwrite what we append (measured:
3,279 of 5,241 markers lost). So: the processes that hold the log open for writing are looked up in /proc, and only
when all of them append do we write. Each marker is one write that begins and ends with a newline, which keeps it at a
line's start even inside a line that its server writes in pieces. Otherwise markers stay in markers.jsonl (the
sidecar), each with the log's inode and size at that moment.

The log is held open from the beginning on, so that it is there to the end when logrotate gives its name to another
file. What its server then writes into that one belongs to the log too, and is taken only where /proc proves that it
follows: those who wrote the old file write the new one, nobody writes the old one, and no third file came between.
"""

import errno
import glob
import os
import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.errors import InputError

_KNOWN_BYTES: Final = 64  # of the log, by which a truncated one is known even when it has grown again
_PIECE_BYTES: Final = 1 << 20
_FLAGS: Final = re.compile(rb"^flags:\s*(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that has the log open for writing."""

    pid: int
    fd: int
    appends: bool


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy of the log has."""

    own: int  # bytes of the file that it was at the start
    followed: int  # bytes of those in which it was proven to go on, which stand after them
    missing: int  # bytes of another one, see `AttachedLog.elsewhere`
    rotated: str | None  # see `AttachedLog.rotated`


class _Held:
    """A file that is open for reading, whatever becomes of its name; closed by `close`, or with this object."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self.fd)
        size = self.status().st_size
        self._known_at = max(0, size - _KNOWN_BYTES)
        self._known = os.pread(self.fd, _KNOWN_BYTES, self._known_at)

    def status(self) -> os.stat_result:
        """What it is now."""
        return os.fstat(self.fd)

    def know(self, line: bytes, offset: int) -> None:
        """Take note of bytes that were put there."""
        self._known, self._known_at = line, offset

    def lost_from(self) -> int | None:
        """Return from where on its bytes are gone or others, also when it has grown again since; None: it is whole."""
        whole = os.pread(self.fd, len(self._known), self._known_at) == self._known
        return None if whole else self._known_at

    def pieces(self, offset: int) -> Iterator[bytes]:
        """Give its bytes from `offset` to its end now."""
        while data := os.pread(self.fd, _PIECE_BYTES, offset):
            offset += len(data)
            yield data


class AttachedLog:
    """The log file of a running server; it notices when the log is no longer the one that it was."""

    def __init__(self, path: Path) -> None:
        """Check that `path` can be read, and hold it open until `close`.

        Raises:
            InputError: it is missing, a directory, a pipe, or unreadable.
        """
        self.path = path
        try:
            if path.is_dir():
                raise InputError(f"--server-log: expected a log file, {path} is a directory")
            if path.exists() and not path.is_file():
                raise InputError(f"--server-log: expected a regular file, {path} is none")
            held = _Held(path)
            status = held.status()
        except OSError as error:
            raise InputError(f"--server-log: {path} cannot be read: {error.strerror}") from error
        self._files = [held]  # the log, and those in which it was proven to go on
        self._told = False
        self.inode = status.st_ino
        self.size_at_start = status.st_size
        self.writers = _writers(status)
        self.refusal = self._refusal()

    def close(self) -> None:
        """Let go of the log; twice is fine."""
        for one in self._files:
            one.close()

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
        return self._truncated() or self.rotated()

    def rotated(self) -> str | None:
        """Say that the log does not have its name any more; None while it has."""
        named = self._named()
        if named is None:
            return f"{self.path} was rotated: no file that can be looked at has its name now"
        if _same(named, self._files[0].status()):
            return None
        return f"{self.path} was rotated: another file has its name now"

    def gone(self) -> str | None:
        """Say why not all that its server has written is to be had; None: it is, also where the log was rotated."""
        return self._truncated() or (self.rotated() if self.elsewhere() else None)

    def elsewhere(self) -> int:
        """Return the bytes of the file that has the log's name now, where they may be its server's and are not held.

        None of them: there is no such file, it is empty, it was proven to be where the log goes on, or those who wrote
        the log are all seen to write the old file, and none of them this one.
        """
        named = self._named()
        if named is None or _same(named, self._files[-1].status()) or self._follow(named):
            return 0
        known = {one.pid for one in self.writers}
        stay = known and known <= {one.pid for one in _writers(self._files[-1].status())}
        if stay and known.isdisjoint(one.pid for one in _writers(named)):
            return 0
        return named.st_size

    def news(self) -> str | None:
        """Say, the first time that it is seen, what became of the log; else None."""
        if self._told or (changed := self.changed()) is None:
            return None
        self._told = True
        if self._truncated() is not None:
            return f"{changed}: this run's server log is lost"
        if self.elsewhere():
            return f"{changed}: the old one is read on; whether the server goes on in the new one cannot be seen"
        goes_on = "the server goes on there, both are read" if self._files[1:] else "the old one is read on"
        return f"{changed}: {goes_on}"

    def _truncated(self) -> str | None:
        for one in self._files:
            if (lost_from := one.lost_from()) is not None:
                return f"{self.path} was truncated: the bytes from {lost_from} on are gone or others"
        return None

    def _named(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except OSError:
            return None

    def _follow(self, named: os.stat_result) -> bool:
        """Hold the file that has the name now too, if it is proven that the log goes on there."""
        last = self._files[-1].status()
        now = {one.pid for one in _writers(named)}
        if not now or not now <= {one.pid for one in self.writers} or _writers(last):
            return False
        if last.st_nlink == 0 or self.path.is_symlink() or self._came_between(last, named):
            return False
        try:
            held = _Held(self.path)
        except OSError:  # it was renamed, too, at this moment
            return False
        if not _same(held.status(), named):
            held.close()
            return False
        self._files.append(held)
        return True

    def _came_between(self, last: os.stat_result, named: os.stat_result) -> bool:
        """Whether a file beside the log may have had its name after `last` and before `named`: one of a like name."""
        ours = [named, *(one.status() for one in self._files)]
        for path in self.path.parent.glob(f"{glob.escape(self.path.stem)}*"):
            try:
                status = path.stat()
            except OSError:  # it went at this moment
                return True
            if status.st_mtime_ns >= last.st_mtime_ns and not any(_same(status, one) for one in ours):
                return True
        return False

    def write_marker(self, line: bytes) -> int | None:
        """Append the marker and return the offset of its line's first byte; None: another file has the log's name.

        Raises:
            InputError: the log cannot be written.
        """
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if not _same(os.fstat(fd), self._files[0].status()):  # since the last look
                    return None
                data = b"\n" + line + b"\n"
                if os.write(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                offset = os.lseek(fd, 0, os.SEEK_CUR) - len(line) - 1
                self._files[0].know(line, offset)
                return offset
            finally:
                os.close(fd)
        except OSError as error:
            raise InputError(f"{self.path}: marker cannot be written: {error.strerror}") from error

    def place(self) -> tuple[int, int]:
        """Return (inode, size) of the log now: where a sidecar marker stands."""
        status = self._files[0].status()
        return status.st_ino, status.st_size

    def pieces(self, offset: int) -> Iterator[bytes]:
        """Give the log's bytes from `offset` to its end now, also of one that was rotated, in the order of writing."""
        for one in self._files:
            size = one.status().st_size
            if offset < size or one is self._files[-1]:
                yield from one.pieces(offset)
            offset = max(0, offset - size)

    def copy_to(self, target: Path) -> Copied:
        """Copy the log, from its first byte (start-up lines prove settings) to its end now.

        Of one that was rotated: the file that it was, and what is proven to follow.

        Raises:
            InputError: it was truncated, also while it was copied, or cannot be read.
        """
        missing, rotated = self.elsewhere(), self.rotated()
        sizes: list[int] = []
        try:
            if (why := self._truncated()) is None:
                with target.open("wb") as file:
                    sizes = [sum(file.write(data) for data in one.pieces(0)) for one in self._files]
                why = self._truncated()
            if why is not None:
                target.unlink(missing_ok=True)
                raise InputError(f"--server-log cannot be copied: {why}")
            return Copied(sizes[0], sum(sizes[1:]), missing, rotated)
        except OSError as error:
            raise InputError(f"--server-log cannot be copied: {self.path}: {error.strerror}") from error


def writers(path: Path) -> list[Writer]:
    """Return the processes that have `path` open for writing, as far as this user may see; by pid, then fd."""
    return _writers(path.stat())


def _writers(wanted: os.stat_result) -> list[Writer]:
    found: list[Writer] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fds = list((process / "fd").iterdir())
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
        found += [one for fd in fds if (one := _writer(process, fd.name, wanted)) is not None]
    return sorted(found, key=lambda one: (one.pid, one.fd))


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _writer(process: Path, fd: str, wanted: os.stat_result) -> Writer | None:
    try:
        status = (process / "fd" / fd).stat()
        if not _same(status, wanted):
            return None
        flags = _FLAGS.search((process / "fdinfo" / fd).read_bytes())
    except OSError:  # this one was closed meanwhile; a busy server does that all the time
        return None
    value = int(flags[1], 8) if flags else 0
    if value & os.O_ACCMODE == os.O_RDONLY:
        return None
    return Writer(int(process.name), int(fd), bool(value & os.O_APPEND))
