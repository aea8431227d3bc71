"""How does a server's log, in pieces of any size, become whole lines with their place in the file?

Every reader of a format stands on this walker. Blocks, not lines, are what it handles: a piece is cut once at its last
newline and split once, so that what is done for each line is only what the format needs. A reader for which few lines
matter names the others (`noise`): stretches of them are matched and counted as one (600 MB/s on one slow core, where
80-byte lines one by one make 60).

Markers (core.markers) are recognised here, on whole lines only. A carriage return before the newline is not part of a
line; nor are leading NUL bytes, the hole that stays in front of a server's next write when its log was truncated.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from agentload.core import markers
from agentload.core.records import LineCount, Marker, Proof

MAX_LINE_BYTES: Final = 1 << 24  # of a longer line only so much is kept: no server's fact is that long
_EXAMPLES: Final = 5
_EXAMPLE_CHARS: Final = 200
_MARKER: Final = b"agentload: segment "


class Kind(Enum):
    """What a reader made of a line."""

    UNDERSTOOD = "understood"
    IGNORED = "ignored"  # known, and known to carry nothing we use
    UNKNOWN = "unknown"


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

    def count(self) -> LineCount:
        """Return the counts so far."""
        return LineCount(self.understood, self.ignored, self.unknown, self.markers, tuple(self._examples))


Take = Callable[[int, int, bytes], Kind | None]


class LineWalker:
    """Hands whole lines to a reader and counts what the reader made of them."""

    def __init__(self, take: Take, noise: re.Pattern[bytes] | None = None) -> None:
        """Call `take(line number from 1, byte offset, bytes without newline)` for each line that may matter.

        `take` returns the line's kind, or None to hold it back and give it to `tally` itself later. Blank lines are
        ignored, and neither they nor markers are handed over.

        Args:
            take: the reader's function.
            noise: matches as many consecutive lines as are to be ignored, each with its newline, or nothing:
                rb"(?:...\\n)*+". The first and the last of such lines are handed over nevertheless, so that a reader
                may carry something from one line to the next.
        """
        self.tally = Tally()
        self.markers: list[Marker] = []
        self.size = 0
        self._take = take
        self._noise = noise
        self._parts: list[bytes] = []  # of the line that has not ended
        self._kept = 0
        self._line = 1
        self._offset = 0

    @property
    def lines(self) -> int:
        """Lines that have ended so far."""
        return self._line - 1

    def set_noise(self, noise: re.Pattern[bytes] | None) -> None:
        """Take another `noise` from here on: looking for it costs time in a stretch of log that has none."""
        self._noise = noise

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
            first = b"".join(self._parts)
            self._parts, self._kept = [], 0
            self._block(first if first.endswith(b"\n") else first + b"\n", base + end)
            base, data = base + end, data[end:]
        cut = data.rfind(b"\n") + 1
        if cut:
            self._block(data[:cut], base + cut)
        if cut < len(data):
            self._keep(data[cut:])

    def close(self) -> None:
        """Say that the file has ended: what stands after the last newline is a line too."""
        if self._parts:
            last = b"".join(self._parts)
            self._parts = []
            self._block(last + b"\n", self.size)

    def _keep(self, part: bytes) -> None:
        room = MAX_LINE_BYTES - self._kept
        if part and room > 0:
            self._parts.append(part[:room])
            self._kept += min(room, len(part))

    def _block(self, block: bytes, ends_at: int) -> None:
        """Go through whole lines; `ends_at` is where the next block begins."""
        # Asked for the whole block first: what most blocks do not hold, no line is asked for.
        odd = b"\r\n" in block or b"\0" in block
        marked = _MARKER in block
        if self._noise is None:
            self._each(block, odd=odd, marked=marked)
        else:
            self._stretches(block, self._noise, odd=odd, marked=marked)
        self._offset = ends_at

    def _stretches(self, block: bytes, noise: re.Pattern[bytes], *, odd: bool, marked: bool) -> None:
        """Count noise in bulk, and hand over what stands between."""
        at, waiting = 0, 0  # what is not yet handed over begins at `waiting`
        while at < len(block):
            found = noise.match(block, at)
            end = at if found is None else found.end()
            first = block.find(b"\n", at) + 1
            last = block.rfind(b"\n", first, end - 1) + 1 if end > first else 0
            if last > first:
                self._each(block[waiting:first], odd=odd, marked=marked)
                lines = block.count(b"\n", first, last)
                self.tally.ignored += lines
                self._line += lines
                self._offset += last - first
                waiting = last
            at = max(end, first)
        self._each(block[waiting:], odd=odd, marked=marked)

    def _each(self, block: bytes, *, odd: bool, marked: bool) -> None:
        number, offset, tally, take = self._line, self._offset, self.tally, self._take
        understood, ignored = Kind.UNDERSTOOD, Kind.IGNORED  # to look up a member of an enum costs 0.1 us
        for raw in block[:-1].split(b"\n") if block else ():
            text, at = raw, offset
            offset += len(raw) + 1
            if odd:
                text = text.removesuffix(b"\r")
                at += len(text) - len(text.lstrip(b"\0"))
                text = text.lstrip(b"\0")
            if not text:
                kind: Kind | None = Kind.IGNORED if raw in (b"", b"\r") else Kind.UNKNOWN
            elif marked and (marker := markers.parse(text, Proof(number, at))) is not None:
                self.markers.append(marker)
                tally.markers += 1
                kind = None
            else:
                kind = take(number, at, text)
            if kind is understood:  # counted here: a call for each line would cost as much again
                tally.understood += 1
            elif kind is ignored:
                tally.ignored += 1
            elif kind is not None:
                tally.add(kind, number, at, text or raw)
            number += 1
        self._line, self._offset = number, offset
