"""Where does each line of a log stand, however its bytes arrive, and what became of it?

The walker turns pieces of any size into blocks of whole lines, and knows the line number and byte offset of each. It
works in blocks, not lines, because logs reach 1 GB: a format in which few lines matter searches a block and asks
`Block.proof` where a hit stands; one in which every line matters iterates over `Block.lines`. What is held never
exceeds one piece and one line, and of an endless line its first `LONGEST` bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agentload.core import markers
from agentload.core.records import LineCount, Marker, Proof

LONGEST: Final = 1 << 20  # bytes; a line as long as this or longer is cut here, so no reader may take it for whole
_PIECE: Final = 1 << 22  # bytes of one block, so that one huge feed does not double the memory
_MARK: Final = b" agentload: segment "  # in every marker: a cheap check before the whole line is parsed
_EXAMPLES: Final = 8
_EXAMPLE_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines: each ends in a newline, but for the last one of the log and one that was cut at `LONGEST`."""

    data: bytes
    line: int  # number of its first line, 1-based
    offset: int  # bytes from the log's start to its first byte

    @property
    def may_mark(self) -> bool:
        """Whether a marker can be in it."""
        return _MARK in self.data

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (line number, byte offset, text) of each line; the text without its newline, and at most LONGEST."""
        offset = self.offset
        texts = self.data.split(b"\n")
        if not texts[-1]:
            texts.pop()
        for number, text in enumerate(texts, self.line):
            if text.endswith(b"\r"):
                yield number, offset, text[:-1]
            elif len(text) < LONGEST:
                yield number, offset, text
            else:
                yield number, offset, text[:LONGEST]
            offset += len(text) + 1

    def proof(self, position: int, near: tuple[int, Proof] | None = None) -> Proof:
        """Return where the line around byte `position` of the block stands.

        `near` is an earlier (position, its proof) to count newlines from: without it each call counts from the start.
        """
        start, line = (0, self.line) if near is None else (near[0], near[1].line)
        return Proof(
            line + self.data.count(b"\n", start, position), self.offset + self.data.rfind(b"\n", 0, position) + 1
        )


class LineWalker:
    """Cuts a stream of bytes into blocks of whole lines."""

    def __init__(self) -> None:
        self._line = 1
        self._offset = 0
        self._held: list[bytes] = []  # the beginning of a line whose end has not come yet
        self._held_size = 0  # of the line, what was cut away counted too
        self.size = 0  # bytes fed so far

    def feed(self, data: bytes) -> Iterator[Block]:
        """Take the next bytes and yield the blocks that they complete; the generator must be run to its end."""
        for start in range(0, len(data), _PIECE):
            yield from self._take(data[start : start + _PIECE])

    def end(self) -> Iterator[Block]:
        """Yield the last line, should it have no newline."""
        if self._held_size:
            yield self._held_line(b"", 0)

    def _take(self, data: bytes) -> Iterator[Block]:
        self.size += len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._hold(data)
            return
        start = 0
        if self._held_size:
            start = data.find(b"\n") + 1
            yield self._held_line(data[:start], 1)
        if start < cut:
            whole = data[start:cut]
            block = Block(whole, self._line, self._offset)
            self._line += whole.count(b"\n")
            self._offset += len(whole)
            yield block
        self._hold(data[cut:])

    def _hold(self, data: bytes) -> None:
        if data:
            if self._held_size < LONGEST:
                self._held.append(data[: LONGEST - self._held_size])
            self._held_size += len(data)

    def _held_line(self, rest: bytes, newlines: int) -> Block:
        self._hold(rest)
        block = Block(b"".join(self._held), self._line, self._offset)
        self._line += newlines
        self._offset += self._held_size
        self._held.clear()
        self._held_size = 0
        return block


class Tally:
    """Counts what became of each line, and keeps the markers and the first few unknown lines."""

    def __init__(self) -> None:
        self.understood = 0
        self.ignored = 0
        self.unknown = 0
        self.markers: list[Marker] = []
        self._examples: list[tuple[Proof, str]] = []

    def marker(self, number: int, offset: int, text: bytes) -> bool:
        """Keep and count the line if it is a marker, whole; say whether it is."""
        if _MARK not in text:
            return False
        marker = markers.parse(text, Proof(number, offset))
        if marker is None:
            return False
        self.markers.append(marker)
        return True

    def unknown_line(self, number: int, offset: int, text: bytes) -> None:
        """Count a line that no pattern knows."""
        self.unknown += 1
        if len(self._examples) < _EXAMPLES:
            shown = text[: 4 * _EXAMPLE_LENGTH].decode("utf-8", "replace")[:_EXAMPLE_LENGTH]
            self._examples.append((Proof(number, offset), shown))

    def count(self) -> LineCount:
        """Return the counts so far."""
        return LineCount(self.understood, self.ignored, self.unknown, len(self.markers), tuple(self._examples))
