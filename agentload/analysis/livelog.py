"""How is a log read that does not end, such as `ssh HOST tail -f LOG`? Until Ctrl-C, and what came is kept."""

import io
import os
import stat
from typing import IO, Protocol

from agentload.serverlogs.formats import Readable


class Piecewise(Protocol):
    """A buffered stream, such as that of a pipe."""

    def read1(self, size: int, /) -> bytes:
        """Return at most so many bytes: what there is now, or comes first."""
        ...


class UntilInterrupted:
    """A stream that ends where Ctrl-C comes while it is waited for."""

    def __init__(self, file: Piecewise) -> None:
        self._file = file
        self.interrupted = False

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, or what there is before the end; none after an interruption."""
        parts: list[bytes] = []
        wanted = 0 if self.interrupted else size
        try:
            # One piece at a time: what a longer read has got so far is lost with it.
            while wanted > 0 and (piece := self._file.read1(wanted)):
                parts.append(piece)
                wanted -= len(piece)
        except KeyboardInterrupt:
            self.interrupted = True
        return b"".join(parts)


def until_interrupted(file: IO[bytes]) -> Readable:
    """Return a stream that ends at Ctrl-C; a file on a disk stays as it is, since its end comes by itself."""
    return UntilInterrupted(file) if isinstance(file, io.BufferedReader) and size_now(file) is None else file


def size_now(file: Readable) -> int | None:
    """Return how many bytes a file on a disk has now; None of anything else."""
    if not isinstance(file, io.BufferedReader):
        return None
    found = os.fstat(file.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None
