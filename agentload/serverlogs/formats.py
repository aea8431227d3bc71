"""Which log formats are installed, which of them is this log of, and what does a log of any size tell?"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Protocol, runtime_checkable

from agentload import heap, plugins
from agentload.core.ports import LogFormat, LogReader
from agentload.core.records import LogFacts
from agentload.errors import UsageError
from agentload.serverlogs.unknown import Reader as UnknownReader

HEAD_BYTES: Final = 1 << 18  # of a log, looked at to detect its format
_HEAD_PIECE: Final = 1 << 20  # read at once while the format may not be known: a pipe gives less
FED_BYTES: Final = 1 << 23  # at once: what a reader does for a block, whatever is in it, costs 1 to 3 ms
NEAR_END: Final = 1 << 16  # bytes before a piece's end in which a line's end is looked for
MOST_HEAD_BYTES: Final = 1 << 24  # kept while no line is of any format: a long preamble of another program
MOST_LINES: Final = 1 << 18  # of these are asked, 64 bytes each: to ask all formats costs 5 us a line, however short
_WRITTEN: Final = re.compile(rb"(?m)^[^\S\n]*+\S[^\n]*")  # a line that is not blank


class Readable(Protocol):
    """What a log is read from."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, or what there is before the end."""
        ...


@runtime_checkable
class _Seekable(Readable, Protocol):
    """What may be read at any place: a file, unlike a pipe."""

    def seekable(self) -> bool: ...
    def seek(self, offset: int, /) -> int: ...
    def tell(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Detected:
    """What the head of a log looks like."""

    best: str | None  # the format that most lines can only be of; None when no line is of any
    scores: dict[str, int]  # installed format -> lines that only it would write
    lines: int  # looked at
    asked: int  # of these, all formats: those that are not blank


@dataclass(frozen=True, slots=True)
class Read:
    """A log, read: the facts, and what its head looks like."""

    facts: LogFacts  # of format "unknown", with every line unknown, when no format was named and none detected
    looks: Detected


def installed() -> dict[str, LogFormat]:
    """Return the installed log formats by name."""
    return {name: plugins.load(plugins.SERVERLOGS, name) for name in plugins.names(plugins.SERVERLOGS)}


def by_name(name: str) -> LogFormat:
    """Return the format `name`.

    Raises:
        UsageError: there is none of that name.
    """
    known = plugins.names(plugins.SERVERLOGS)
    if name not in known:
        raise UsageError(f"--log-format: expected one of {', '.join(known)}, got {name!r}")
    found: LogFormat = plugins.load(plugins.SERVERLOGS, name)
    return found


def written(head: bytes, most: int) -> tuple[list[bytes], int]:
    """Return the first lines that are not blank, at most so many, and how many lines of the head that took.

    A torn last line is left out, unless it is all there is.
    """
    end = head.rfind(b"\n") + 1 or len(head)
    lines: list[bytes] = []
    for found in _WRITTEN.finditer(head, 0, end):
        if len(lines) == most:
            end = found.start()
            break
        lines.append(found[0].rstrip(b"\r"))
    return lines, head.count(b"\n", 0, end) or min(end, 1)


def look(head: bytes, most: int = MOST_LINES) -> Detected:
    """Return what the head of a log looks like by `written`, as far as `most` lines reach."""
    asked, lines = written(head, most)
    scores = {name: one.looks_like(asked) for name, one in installed().items()}
    best = max(scores, key=lambda name: scores[name], default=None)
    return Detected(best if best is not None and scores[best] > 0 else None, scores, lines, len(asked))


def detect(head: bytes) -> str | None:
    """Return the format that most lines can only be of; None when no line is of any."""
    return look(head).best


def read(chunks: Iterable[bytes], name: str | None = None, stamps: Sequence[int] | None = None) -> Read:
    """Read a log given in pieces of any size, which are taken once and in order: a pipe will do.

    Memory is bounded by what the facts need, and by `MOST_HEAD_BYTES` while no line is of a known format.

    Args:
        chunks: the log's bytes.
        name: its format; None: detected from its first lines that are of any.
        stamps: `stamps[i]` is the receive time (Unix ns) of line i, where the pipe was owned.

    Raises:
        UsageError: there is no format `name`.
    """
    named = None if name is None else by_name(name)
    hole, pieces = _behind_hole(iter(chunks))
    head, wanted, seen, lines, asked = b"", HEAD_BYTES, 0, 0, 0
    while True:
        head += b"".join(_take(pieces, wanted - len(head)))
        part = head[seen:wanted]
        looks = look(part, MOST_LINES - asked)
        looks = replace(looks, lines=lines + looks.lines, asked=asked + looks.asked)
        if looks.best is not None or named is not None or len(head) < wanted or wanted >= MOST_HEAD_BYTES:
            break
        if looks.asked == MOST_LINES:
            break
        wanted *= 4
        if b"\n" in part:
            seen, lines, asked = seen + part.rfind(b"\n") + 1, looks.lines, looks.asked
    if named is None and looks.best is not None:
        named = by_name(looks.best)
    reader: LogReader = UnknownReader() if named is None else named.reader(stamps)
    with heap.for_blocks():
        for start in range(0, hole, _HEAD_PIECE):
            reader.feed(bytes(min(_HEAD_PIECE, hole - start)))
        reader.feed(head)
        while piece := b"".join(_take(pieces, FED_BYTES - NEAR_END)):
            reader.feed(piece)
    return Read(reader.close(), looks)


def blocks(file: Readable) -> Iterator[bytes]:
    """Give what is left of a file, in pieces that suit `read`: small ones for its head, then such as it feeds.

    Those of a file that is no pipe end where a line does, if one ends near there: what begins or ends within a line is
    copied by whoever cuts it into lines, which takes as long as to read it.
    """
    placed = file if isinstance(file, _Seekable) and file.seekable() else None
    given = 0
    while True:
        size = _HEAD_PIECE if given < MOST_HEAD_BYTES else FED_BYTES
        piece = file.read(size if placed is None else _to_newline(placed, size))
        if not piece:
            return
        given += len(piece)
        yield piece


def _to_newline(file: _Seekable, size: int) -> int:
    """Return how many of a file's next `size` bytes there are up to the last newline in the last of them."""
    here = file.tell()
    file.seek(here + size - NEAR_END)
    end = file.read(NEAR_END)
    file.seek(here)
    cut = end.rfind(b"\n") + 1
    return size - NEAR_END + cut if cut and len(end) == NEAR_END else size


def _behind_hole(pieces: Iterator[bytes]) -> tuple[int, Iterator[bytes]]:
    """Return how many NUL bytes a log begins with, and what follows: one truncated under its writer is a hole there."""
    hole = 0
    for piece in pieces:
        text = piece.lstrip(b"\0")
        hole += len(piece) - len(text)
        if text:
            return hole, chain((text,), pieces)
    return hole, pieces


def _take(pieces: Iterator[bytes], wanted: int) -> Iterator[bytes]:
    """Give pieces until they are as many bytes as wanted."""
    while wanted > 0 and (piece := next(pieces, None)) is not None:
        wanted -= len(piece)
        yield piece
