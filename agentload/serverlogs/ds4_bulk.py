"""Which lines of a block of a ds4 log need not be read one by one?

The first bytes of each line tell: what begins neither as the server's lines do nor as its engine's is another program's
and unknown; a line of the engine tells nothing, unless it has one of a few words; lines of the server that have the
usual shape are read together (`ds4_columns`). Whatever is left, or has a byte that no line should have, is handed over:
markers, torn lines, the server's other lines.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from agentload.serverlogs import ds4_columns as columns
from agentload.serverlogs import ds4_runs
from agentload.serverlogs.ds4_runs import Run
from agentload.serverlogs.words import (
    LONGEST,
    PAD,
    Bytes,
    Flags,
    Ints,
    Words,
    begins,
    cut,
    mask,
    runs,
    to_space,
    word,
    words,
)

FEW: Final = 100  # lines: to read any number of them together takes as long as so many one by one
LEAST_BYTES: Final = PAD + 1  # of a block
BY_HAND: Final = 0  # kind of an event
_EXAMPLES: Final = 5
_NEAR_END: Final = 32  # bytes: longer than a text of trouble and a word
_COMMON: Final = 4  # beginnings
_SLICE: Final = 1 << 16  # words of two bytes, which stay in the cache
# Texts of trouble: two bytes of each that begin at an even place when it does, two when it does not, and where in it.
_FAILED, _MEMORY = b"failed", b"out of memory"
_TROUBLE: Final = tuple(
    (text, at, np.uint16(int.from_bytes(text[at : at + 2], "little")))
    for text, at in ((_FAILED, 0), (_FAILED, 1), (_MEMORY, 4), (_MEMORY, 5))  # rare ones: "il" is in each `prefill`
)

# Line, where it begins, kind, and for a line that was read: ctx_end, start, end, gen, first, second, took_ns, year_s
# (`Columns`), whether the clock must hear of its stamp, and the run of lines that it is the first one of. For lines to
# be handed over ctx_end is the line after them.
Event = tuple[int, int, int, int, int, int, int, int, int, int, int, bool, Run | None]

# Bytes 4, 7 and 10 of a line: a stamp is `MMDD HH:MM:SS `, that of a marker `YYYY-MM-DDTHH:`.
_SHAPE: Final = np.uint64(0x00FF0000FF0000FF)
_STAMP, _MARKER = word(b" \0\0:\0\0:"), word(b"-\0\0-\0\0T")
_FIFTH: Final = np.uint64(0xFF00000000)
_SPACE, _DASH = word(b"\0\0\0\0 "), word(b"\0\0\0\0-")


class Block:
    """The lines of one block."""

    def __init__(self, block: bytes, *, examples: bool, together: bool, few: int = FEW) -> None:
        """Look at a block.

        Args:
            block: ends with a newline, and has `LEAST_BYTES` at least.
            examples: hand over the first unknown lines too.
            together: give runs of lines as one event.
            few: fewer lines than that are handed over, although they have the usual shape.
        """
        raw, newlines, self.starts, self._ends, by_hand, blank, near = cut(block)  # the last lines are handed over
        self.count = len(newlines)
        starts, ends, at = self.starts[:near], self._ends[:near], words(block)
        head = at[starts]
        engine = (head & mask(5)) == word(b"ds4: ")
        by_hand[near:] = True
        usual = self._look(at, starts, head, None if not engine.any() else np.flatnonzero(~engine), by_hand)
        usual = usual[~blank[usual]]
        if engine.any():
            by_hand[_may_tell(at, raw, newlines, starts, engine)] = True
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
        found = columns.parse(at, starts[chats], ends[chats])
        good = found.kind != BY_HAND
        self._chats = chats[good]
        self._found = columns.Columns(*(column[good] for column in found))
        by_hand[self._chats] = False
        # What is handed over goes in runs: each has its first line, and the line after its last one.
        self._hands = runs(by_hand)
        stretch, self._opens = ds4_runs.stretches(self._found, self._chats, self._hands[0])
        self._runs = ds4_runs.Runs(self._chats[:0], np.full(len(self._chats), -1), [])
        if together and len(self._chats):
            begins = starts[self._chats]
            self._runs = ds4_runs.find(at, self._found, self._chats, begins, stretch, self._opens)
        self.has_runs = bool(self._runs.rows)
        self.taken: list[int] = []  # runs
        self.back: list[Event] = []  # to be given before the others
        self.events = self._events(0, self._runs)

    def _look(self, at: Words, starts: Ints, head: Words, others: Ints | None, by_hand: Flags) -> Ints:
        """Return which lines begin as most of the server's do, and say which are to be handed over if not read.

        Args:
            at: see `words`.
            starts: of all lines.
            head: the first eight bytes of each.
            others: lines that are not the engine's; None: all of them.
            by_hand: set for markers, and for whatever may be a line of the server.
        """
        lines = np.arange(len(starts)) if others is None else others
        if others is not None:
            starts, head = starts[others], head[others]
        server = at[starts + 13] == word(b" ds4-ser")
        # Of other programs' lines few have what a stamp or a marker has there.
        fifth = head & _FIFTH
        some = np.flatnonzero((fifth == _SPACE) | (fifth == _DASH))
        shape = at[starts[some] + 4] & _SHAPE
        stamped = some[shape == _STAMP]
        usual: Ints = lines[stamped[server[stamped]]]
        usual = usual[~by_hand[usual]]
        by_hand[lines[server | (head == word(b"ds4-serv"))]] = True
        by_hand[lines[stamped]] = by_hand[lines[some[shape == _MARKER]]] = True
        return usual

    def apart(self, first: int) -> None:
        """Give each line from `first` on by itself, but those of runs that were taken."""
        self.has_runs, self.back = False, []
        taken = np.zeros(len(self._runs.rows) + 1, np.bool_)  # the last one is for lines without a run
        taken[self.taken] = True
        self.events = self._events(first, ds4_runs.Runs(self._chats[:0], np.where(taken[self._runs.of], 0, -1), []))

    def _steps(self, at: Words, starts: Ints, ends: Ints, lines: Ints, by_hand: Flags) -> None:
        """Read decode steps; they are added up when it is known that none of them was handed over after all."""
        self._step_lines = self._rows = self._took_us = np.zeros(0, np.int64)
        if len(lines):
            good, rows, took_us = columns.steps(at, starts[lines], ends[lines])
            self._step_lines, self._rows, self._took_us = lines[good], rows[good], took_us[good]
            by_hand[self._step_lines] = False

    def _events(self, first: int, of: ds4_runs.Runs) -> Iterator[Event]:
        """Give what there is from a line on: lines without a run, runs, and what is to be handed over."""
        some = (of.of < 0) & (self._chats >= first)
        some[of.first] = True
        index = np.flatnonzero(some)
        hands, after = (column[self._hands[1] > first] for column in self._hands)
        lines = np.concatenate((self._chats[index], hands))
        order = np.argsort(lines, kind="stable")
        nothing = np.zeros(len(hands), np.int64)
        all_of = [np.concatenate((column[index], nothing)) for column in (*self._found, self._opens)]
        all_of[1][len(index) :] = after
        said = [column[order].tolist() for column in (lines, self.starts[lines], *all_of)]
        more: list[Run | None] = [None] * len(lines)
        for at, run in zip(np.searchsorted(lines[order], self._chats[of.first]).tolist(), of.rows, strict=True):
            more[at] = run
        return zip(*said, more, strict=True)

    def last_read(self, first: int, until: int) -> tuple[int, int]:
        """Return where the last line in [first, until) that was read begins, and its time in the year; or -1 twice."""
        index = int(np.searchsorted(self._chats, until)) - 1
        if index < 0 or self._chats[index] < first:
            return -1, -1
        return int(self.starts[self._chats[index]]), int(self._found.year_s[index])

    def next_read(self, first: int) -> tuple[int, int] | None:
        """Return the next line from `first` on, up to the next that is to be handed over, and where it begins."""
        begins, after = self._hands
        index, run = int(np.searchsorted(self._chats, first)), int(np.searchsorted(after, first, side="right"))
        if index == len(self._chats) or (run < len(after) and begins[run] < self._chats[index]):
            return None
        return int(self._chats[index]), int(self.starts[self._chats[index]])

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


def _may_tell(at: Words, raw: Bytes, newlines: Ints, starts: Ints, engine: Flags) -> Ints:
    """Return which of the engine's lines may tell something, never too few; `starts` are those of all lines."""
    second = starts + 5
    text, left = at[second], engine.copy()
    for _ in range(_COMMON):  # chatter begins with the same few words, most of which tell enough
        first = int(left.argmax())
        if not left[first] or not _tells_nothing(int(text[first])):
            break
        left &= text != text[first]
    some = np.flatnonzero(left)
    trouble = np.searchsorted(newlines, _trouble(at, raw))
    trouble = trouble[trouble < len(starts)]
    trouble = trouble[engine[trouble]]
    if not len(some):
        return trouble
    text, second = text[some], second[some]
    found = (text & mask(5)) == word(b"Metal")
    found |= (text & mask(5)) == word(b"Linux")
    found |= (text & mask(7)) == word(b"another")
    # `ds4: NAME backend initialized ...` and `ds4: NAME using managed KV cache ...`
    length = to_space(at, second)
    after = at[second + length]
    found |= (length == LONGEST) | (after == word(b" backend")) | (after == word(b" using m"))
    return np.concatenate((trouble, some[found]))


def _trouble(at: Words, raw: Bytes) -> Ints:
    """Return places inside every `failed` and `out of memory`, and a few more at both ends of a block."""
    # Two bytes of such a text begin at an even place: to compare with four of them takes 0.25 ms a MB, find 0.7 a text.
    pairs = raw[: len(raw) // 2 * 2].view("<u2")
    found = []
    for start in range(0, len(pairs), _SLICE):
        part = pairs[start : start + _SLICE]
        same = part == _TROUBLE[0][2]
        for _, _, pair in _TROUBLE[1:]:
            same |= part == pair
        if same.any():
            found.append(2 * (np.flatnonzero(same) + start))
    ends = (np.arange(_NEAR_END), np.arange(len(raw) - _NEAR_END, len(raw)))  # where `at` may not reach
    places = np.concatenate((*found, ends[0][:0]))
    places = places[(places >= _NEAR_END) & (places < len(raw) - _NEAR_END)]
    good = np.zeros(len(places), np.bool_)
    for text, before, _ in _TROUBLE:
        good |= begins(at, places - before, text)
    return np.concatenate((*ends, places[good]))


def _tells_nothing(text: int) -> bool:
    """Whether a line of the engine whose text begins with a word can tell nothing but by what `_may_tell` looks for."""
    head = text.to_bytes(8, "little")
    space = head.find(b" ", 0, 7)
    return space >= 0 and head[space + 1] not in b"bu" and not head.startswith((b"Metal", b"Linux", b"another"))
