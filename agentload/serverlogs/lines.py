"""How does a server's log, in pieces of any size, become whole lines with their place in the file?

Every reader of a format stands on this walker. Blocks, not lines, are what it handles: a piece is cut once at its last
newline and split once, so that what is done for each line is only what the format needs. A reader for which few lines
matter says where the next one is (`Skip`): what lies before is counted as one stretch.

Markers (core.markers) are recognised here, on whole lines only. A carriage return before the newline is not part of a
line; nor are leading NUL bytes, the hole that stays in front of a server's next write when its log was truncated, nor
the byte order mark that an editor may have left at the beginning of the file.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from agentload.core import markers
from agentload.core.records import LineCount, Marker, Proof

MAX_LINE_BYTES: Final = 1 << 24  # of a longer line only so much is kept: no server's fact is that long
_EXAMPLES: Final = 5
_EXAMPLE_CHARS: Final = 200
MARKER_TEXT: Final = b"agentload: segment "
_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]*m")  # on a terminal only, or when a server is asked for it


class Kind(Enum):
    """What a reader made of a line."""

    UNDERSTOOD = "understood"
    IGNORED = "ignored"  # known, and known to carry nothing we use
    UNKNOWN = "unknown"


def uncoloured(text: bytes) -> bytes:
    """Return a line without its colours."""
    return _COLOUR.sub(b"", text) if b"\x1b" in text else text


class Tally:
    """Counts lines by kind and keeps the first few unknown ones."""

    def __init__(self) -> None:
        self.understood = 0
        self.ignored = 0
        self.unknown = 0
        self.markers = 0
        self._examples: list[tuple[Proof, str]] = []

    def add(self, kind: Kind, number: int, offset: int, text: bytes) -> None:
        """Count one line."""
        if kind is Kind.UNDERSTOOD:
            self.understood += 1
        elif kind is Kind.IGNORED:
            self.ignored += 1
        else:
            self.unknown += 1
            if len(self._examples) < _EXAMPLES:
                shown = text[: 4 * _EXAMPLE_CHARS].decode("utf-8", "replace")[:_EXAMPLE_CHARS]
                self._examples.append((Proof(number, offset), shown))

    @property
    def wants_examples(self) -> bool:
        """Whether unknown lines should come one by one still."""
        return len(self._examples) < _EXAMPLES

    def count(self) -> LineCount:
        """Return the counts so far."""
        return LineCount(self.understood, self.ignored, self.unknown, self.markers, tuple(self._examples))


Take = Callable[[int, int, bytes], Kind | None]


class Skip(NamedTuple):
    """What a reader makes of a block from a line's beginning on; both places are beginnings of lines, or the end."""

    end: int  # so far the lines are counted as they stand here
    lines: int  # that are so far
    unknown: int  # of these; the others are ignored
    until: int  # from `end` so far they are handed over one by one, then the reader is asked again
    told: int = 0  # of the lines, those that the reader has counted itself


Bulk = Callable[[bytes, int], Skip]  # (block of whole lines, where)


class LineWalker:
    """Hands whole lines to a reader and counts what the reader made of them."""

    def __init__(self, take: Take, bulk: Bulk | None = None, mark: Callable[[int], None] | None = None) -> None:
        """Call `take(line number from 1, byte offset, bytes without newline)` for each line that may matter.

        `take` returns the line's kind, or None to hold it back and give it to `tally` itself later. Blank lines are
        ignored, and neither they nor markers are handed over.

        Args:
            take: the reader's function.
            bulk: asked first, for what need not be handed over. A stretch that is counted may hold blank lines, as
                ignored ones, but no marker.
            mark: hears of each marker, by its index in `markers`, before the line after it is taken.
        """
        self.tally = Tally()
        self.markers: list[Marker] = []
        self.size = 0
        self.odd = False  # what is handed over has a carriage return or a NUL somewhere
        self.marked = False  # what is handed over may hold a marker
        self._take = take
        self._bulk = bulk
        self._mark = mark
        self._parts: list[bytes] = []  # of the line that has not ended
        self._kept = 0
        self._hole = 0  # NUL bytes that it begins with, but the one that is kept
        self._line = 1
        self._offset = 0

    @property
    def lines(self) -> int:
        """Lines that have ended so far."""
        return self._line - 1

    @property
    def offset(self) -> int:
        """Where the line after those begins."""
        return self._offset

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file; they may begin and end anywhere."""
        base = self.size
        self.size += len(data)
        end = data.find(b"\n") + 1
        if not end:
            self._keep(data)
            return
        if self._parts:
            self._keep(data[:end])
            first = self._kept_line()
            self._block(first if first.endswith(b"\n") else first + b"\n", base + end)
        else:
            end = 0
        cut = data.rfind(b"\n") + 1
        if cut > end:
            self._block(data[end:cut], base + cut)
        if cut < len(data):
            self._keep(data[cut:])

    def close(self) -> None:
        """Say that the file has ended: what stands after the last newline is a line too."""
        if self._parts:
            self._block(self._kept_line() + b"\n", self.size)

    def _keep(self, part: bytes) -> None:
        """Keep a part of a line that has not ended; of the NUL bytes that it begins with one stands for all."""
        if self._parts in ([], [b"\0"]):
            text = part.lstrip(b"\0")
            if len(text) < len(part):
                self._hole += len(part) - len(text) - (not self._parts)
                self._parts, self._kept = [b"\0"], 1
                part = text
        room = MAX_LINE_BYTES - self._kept
        if part and room > 0:
            self._parts.append(part[:room])
            self._kept += min(room, len(part))

    def _kept_line(self) -> bytes:
        """Return what was kept of a line; it begins where its hole ends."""
        line = b"".join(self._parts)
        self._offset += self._hole
        self._parts, self._kept, self._hole = [], 0, 0
        return line

    def _block(self, block: bytes, ends_at: int) -> None:
        """Go through whole lines; `ends_at` is where the next block begins."""
        if self._offset == 0 and block.startswith(BOM_UTF8):
            block, self._offset = block[len(BOM_UTF8) :], len(BOM_UTF8)
        if self._bulk is None:
            self._look(block)
            self._each(block)
        else:
            self._stretches(block, self._bulk)
        self._offset = ends_at

    def _look(self, piece: bytes) -> None:
        # Asked for the whole piece first: what most pieces do not hold, no line is asked for.
        self.odd = b"\r" in piece or b"\0" in piece
        self.marked = MARKER_TEXT in piece

    def _stretches(self, block: bytes, bulk: Bulk) -> None:
        at = 0
        while at < len(block):
            end, lines, unknown, until, told = bulk(block, at)
            if lines:
                self.tally.ignored += lines - unknown - told
                self.tally.unknown += unknown
                self._line += lines
                self._offset += end - at
            if until > end:
                piece = block[end:until]
                self._look(piece)
                if self.odd or self.marked or piece.find(b"\n") + 1 < len(piece):
                    self._each(piece)
                else:
                    self._one(piece[:-1])
            at = max(end, until)

    def _one(self, text: bytes) -> None:
        """Hand over a single line of a block without markers."""
        number, offset = self._line, self._offset
        kind = self._take(number, offset, text) if text else Kind.IGNORED
        if kind is not None:
            self.tally.add(kind, number, offset, text)
        self._line, self._offset = number + 1, offset + len(text) + 1

    def _each(self, block: bytes) -> None:
        number, offset, tally, take = self._line, self._offset, self.tally, self._take
        odd, marked = self.odd, self.marked
        understood, ignored = Kind.UNDERSTOOD, Kind.IGNORED  # to look up a member of an enum costs 0.1 us
        known = nothing = 0  # counted here: a call for each line would cost as much again
        for raw in block[:-1].split(b"\n"):
            text, at = raw, offset
            offset += len(raw) + 1
            if odd:
                text = text.removesuffix(b"\r")
                at += len(text) - len(text.lstrip(b"\0"))
                text = text.lstrip(b"\0")
            if not text:
                kind: Kind | None = ignored if raw in (b"", b"\r") else Kind.UNKNOWN
            elif marked and (marker := markers.parse(text, Proof(number, at))) is not None:
                self.markers.append(marker)
                tally.markers += 1
                kind = None
                if self._mark is not None:
                    self._mark(len(self.markers) - 1)
            else:
                kind = take(number, at, text)
            if kind is understood:
                known += 1
            elif kind is ignored:
                nothing += 1
            elif kind is not None:
                tally.add(kind, number, at, text or b"\0")  # one stands for a hole
            number += 1
        tally.understood += known
        tally.ignored += nothing
        self._line, self._offset = number, offset
