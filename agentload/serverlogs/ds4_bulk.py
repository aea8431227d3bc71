"""Which lines of a block of a ds4 log need not be read one by one?

The first bytes of each line tell: what begins neither as the server's lines do nor as its engine's is another program's
and unknown; a line of the engine tells nothing, unless it has one of a few words; lines of the server that have the
usual shape are read together (`ds4_columns`). Whatever is left, or has a byte that no line should have, is handed over:
markers, torn lines, the server's other lines.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.serverlogs import ds4_columns as columns
from agentload.serverlogs.ds4_columns import Flags, Ints, Words, mask, word

FEW: Final = 100  # lines: to read any number of them together takes as long as so many one by one
LEAST_BYTES: Final = columns.PAD + 1  # of a block
BY_HAND: Final = 0  # kind of an event
_EXAMPLES: Final = 5
_NEAR_END: Final = 16  # bytes
_SLICE: Final = 1 << 16  # bytes that stay in the cache

# Line, where it begins, kind, and for a line that was read: ctx_end, start, end, gen, first, second, took_ns, year_s,
# fresh (`Columns`). For lines to be handed over ctx_end is the line after them.
Event = tuple[int, int, int, int, int, int, int, int, int, int, int, bool]

# Bytes 4, 7 and 10 of a line: a stamp is `MMDD HH:MM:SS `, that of a marker `YYYY-MM-DDTHH:`.
_SHAPE: Final = np.uint64(0x00FF0000FF0000FF)
_STAMP, _MARKER = word(b" \0\0:\0\0:"), word(b"-\0\0-\0\0T")

Bytes = npt.NDArray[np.uint8]


class Block:
    """The lines of one block."""

    def __init__(self, block: bytes, *, examples: bool, few: int = FEW) -> None:
        """Look at a block.

        Args:
            block: ends with a newline, and has `LEAST_BYTES` at least.
            examples: hand over the first unknown lines too.
            few: fewer lines than that are handed over, although they have the usual shape.
        """
        raw = np.frombuffer(block, np.uint8)
        newlines = np.flatnonzero(raw == ord("\n"))
        self.count = len(newlines)
        self.starts = np.concatenate((np.zeros(1, np.int64), newlines + 1))  # and the block's end
        self._ends, by_hand = _ends(block, raw, newlines)
        blank = self._ends == self.starts[:-1]
        # The last lines are handed over, so that nothing is looked for past the end: a copy with room costs more.
        near = int(np.searchsorted(self.starts, len(block) - columns.PAD))
        starts, ends, at = self.starts[:near], self._ends[:near], columns.words(block)
        head, shape = at[starts], at[starts + 4] & _SHAPE
        stamped, engine = shape == _STAMP, (head & mask(5)) == word(b"ds4: ")
        server = at[starts + 13] == word(b" ds4-ser")
        usual = np.flatnonzero(stamped & server & ~(blank | by_hand)[:near])
        by_hand[near:] = True
        by_hand[:near] |= stamped | server | (shape == _MARKER) | (head == word(b"ds4-serv"))
        if engine.any():
            lines = np.flatnonzero(engine)
            by_hand[_may_tell(at, raw, newlines, lines, starts[lines] + 5)] = True
        by_hand &= ~blank
        foreign = ~(blank | by_hand)
        foreign[:near] &= ~engine
        self._foreign: Ints | None = None  # how many before each line
        if foreign.any():
            if examples:
                by_hand[np.flatnonzero(foreign)[:_EXAMPLES]] = True
                foreign &= ~by_hand
            self._foreign = np.concatenate((np.zeros(1, np.int64), np.cumsum(foreign)))
        p = starts[usual]
        kinds, texts = at[p + 21], at[p + 29]
        steps = usual[(kinds == word(b"ver: dec")) & (texts == word(b"ode batc")) & (at[p + 37] == word(b"h count="))]
        chats = usual[(kinds == word(b"ver: cha")) & ((texts & mask(6)) == word(b"t ctx="))]
        steps, chats = (lines[: len(lines) if len(lines) >= few else 0] for lines in (steps, chats))
        self._steps(at, starts, ends, steps, by_hand)
        self.events = self._events(at, starts, ends, chats, by_hand)

    def _steps(self, at: Words, starts: Ints, ends: Ints, lines: Ints, by_hand: Flags) -> None:
        """Read decode steps; they are added up when it is known that none of them was handed over after all."""
        self._step_lines = self._rows = self._took_us = np.zeros(0, np.int64)
        if len(lines):
            good, rows, took_us = columns.steps(at, starts[lines], ends[lines])
            self._step_lines, self._rows, self._took_us = lines[good], rows[good], took_us[good]
            by_hand[self._step_lines] = False

    def _events(self, at: Words, starts: Ints, ends: Ints, lines: Ints, by_hand: Flags) -> Iterator[Event]:
        if not len(lines):
            first, after = _runs(by_hand)
            return (_run(*run) for run in zip(first.tolist(), self.starts[first].tolist(), after.tolist(), strict=True))
        found = columns.parse(at, starts[lines], ends[lines])
        good = found.kind != BY_HAND
        lines = lines[good]
        by_hand[lines] = False
        # What is handed over goes in runs: each has its first line, and the line after its last one.
        first, after = _runs(by_hand)
        order = np.argsort(np.concatenate((lines, first)), kind="stable")
        nothing = np.zeros(len(first), np.int64)
        lines = np.concatenate((lines, first))
        all_of = [lines, self.starts[lines], np.concatenate((found.kind[good], nothing))]
        all_of.append(np.concatenate((found.ctx_end[good], after)))
        all_of += [np.concatenate((column[good], nothing)) for column in found[2:]]
        return zip(*(column[order].tolist() for column in all_of), strict=True)

    def line(self, block: bytes, index: int) -> bytes:
        """Return a line's text."""
        return block[int(self.starts[index]) : int(self._ends[index])]

    def foreign(self, first: int, after: int) -> int:
        """Return how many foreign lines there are in [first, after)."""
        return 0 if self._foreign is None else int(self._foreign[after] - self._foreign[first])

    def steps(self, first: int, after: int) -> list[tuple[int, int, int]]:
        """Return rows, steps and us of the decode steps in lines [first, after)."""
        lo, hi = np.searchsorted(self._step_lines, (first, after)).tolist()
        if lo == hi:
            return []
        rows, at, count = np.unique(self._rows[lo:hi], return_inverse=True, return_counts=True)
        took_us = np.zeros(len(rows), np.int64)
        np.add.at(took_us, at, self._took_us[lo:hi])
        return list(zip(rows.tolist(), count.tolist(), took_us.tolist(), strict=True))

    def step_lines(self, first: int, after: int) -> int:
        """Return how many decode steps there are in lines [first, after)."""
        if not len(self._step_lines):
            return 0
        lo, hi = np.searchsorted(self._step_lines, (first, after)).tolist()
        return int(hi - lo)


def _runs(of: Flags) -> tuple[Ints, Ints]:
    """Return where each run begins, and what follows it."""
    edges = np.flatnonzero(np.diff(of, prepend=False, append=False))
    return edges[::2], edges[1::2]


def _run(line: int, begins: int, after: int) -> Event:
    return line, begins, BY_HAND, after, 0, 0, 0, 0, 0, 0, 0, False


def _ends(block: bytes, raw: Bytes, newlines: Ints) -> tuple[Ints, Flags]:
    """Return where each line ends, and whether it has a byte that no line should have."""
    odd = np.zeros(len(newlines), np.bool_)
    for byte in (b"\0", b"\x1b"):
        if byte in block:
            odd[np.searchsorted(newlines, np.flatnonzero(raw == byte[0]))] = True
    if b"\r" not in block:
        return newlines, odd
    returns = raw == ord("\r")
    ends = newlines - returns[newlines - 1]
    returns[newlines - 1] = False
    odd[np.searchsorted(newlines, np.flatnonzero(returns))] = True
    return ends, odd


def _may_tell(at: Words, raw: Bytes, newlines: Ints, engine: Ints, second: Ints) -> Ints:
    """Return which of the engine's lines may tell something, never too few; the text of each begins at `second`."""
    text = at[second]
    found = (text & mask(5)) == word(b"Metal")
    found |= (text & mask(5)) == word(b"Linux")
    found |= (text & mask(7)) == word(b"another")
    # `ds4: NAME backend initialized ...` and `ds4: NAME using managed KV cache ...`
    length = columns.to_space(at, second)
    after = at[second + length]
    found |= (length == columns.LONGEST) | (after == word(b" backend")) | (after == word(b" using m"))
    # `failed` and `out of memory` anywhere, by a few of their letters: comparing bytes runs at 13 GB/s, find at 1.
    places = [np.arange(max(len(raw) - _NEAR_END, 0), len(raw))]  # where that does not look
    for start in range(0, len(raw), _SLICE):
        part = raw[start : start + _SLICE + _NEAR_END]
        if len(part) > _NEAR_END:
            f, m = part == ord("f"), part == ord("m")
            failed = f[:-13] & (part[3:-10] == ord("l"))
            failed &= part[5:-8] == ord("d")
            memory = f[:-13] & m[2:-11]
            memory &= m[4:-9]
            failed |= memory
            if failed.any():
                places.append(np.flatnonzero(failed) + start)
    anywhere = np.zeros(len(newlines), np.bool_)
    anywhere[np.searchsorted(newlines, np.concatenate(places))] = True
    telling: Ints = engine[found | anywhere[engine]]
    return telling
