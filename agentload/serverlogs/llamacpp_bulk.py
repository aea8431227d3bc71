"""Which lines of a block of a llama.cpp log need not be read one by one?

Those of a slot that have the usual shape are read together (`llamacpp_columns`), known noise is counted, and so are the
lines of a debug entry, which may hold prompts and answers: up to the next prefix. Whatever is left, or has a byte that
no line should have, is handed over. This holds for a log with prefixes, whose lines have no tag.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from agentload.serverlogs import llamacpp_columns as columns
from agentload.serverlogs.words import PAD, Bytes, Flags, Ints, Words, cut, mask, runs, word, words

LEAST_BYTES: Final = PAD + 1  # of a block

Event = tuple[int, int, int, int, int, int, int, int]  # line, where it begins, and the columns of `Said` but the index


class Block:
    """The lines of one block."""

    def __init__(self, block: bytes, *, debug: bool) -> None:
        """Look at a block.

        Args:
            block: ends with a newline, and has `LEAST_BYTES` at least.
            debug: it begins inside a debug entry.
        """
        raw, newlines, self.starts, self._ends, by_hand, blank, near = cut(block)  # the last lines are handed over
        self.count = len(newlines)
        at = words(block)
        starts, ends, odd = self.starts[:near], self._ends[:near], by_hand[:near] | blank[:near]
        lines = columns.prefixes(at, starts)
        # A prefix with nothing behind it was torn off its text, which may stand in the next line.
        prefixed, is_debug = lines.prefixed & ~odd, lines.debug & ~odd & (lines.body < ends)
        normal = np.flatnonzero(prefixed & ~is_debug)
        done = is_debug.copy()
        is_slot = columns.is_slot(at, lines.body[normal])
        others = normal[~is_slot]
        if len(others):
            done[others[columns.says_nothing(at, lines.body[others], ends[others])]] = True
        normal = normal[is_slot]
        kind, said = columns.slots(at, starts[normal], lines.body[normal], ends[normal])
        done[normal[kind != columns.OTHER]] = True
        # What goes on with a debug entry: what stands between it and anything else that is not blank.
        self._heads = np.flatnonzero(done)
        self._is_debug = is_debug[self._heads]
        plain = ~(prefixed | odd)
        if plain.any():
            done |= _inside(is_debug, blank[:near], _goes_on(at, raw, starts, lines, plain), debug=debug)
        by_hand[:near] = ~done
        by_hand[near:] = True
        by_hand &= ~blank
        first, after = runs(by_hand)
        self._runs = np.append(first, self.count), np.append(after, self.count)  # the last one is empty
        self._said = normal[said.which]
        self._events: Iterator[Event] = zip(
            self._said.tolist(), starts[self._said].tolist(), *(column.tolist() for column in said[1:]), strict=True
        )
        self._taken = 0

    def stretch(self, first: int) -> tuple[int, int]:
        """Return up to which line nothing is to be handed over from line `first` on, and the line after what is."""
        firsts, afters = self._runs
        run = int(np.searchsorted(afters, first, side="right"))
        return max(first, int(firsts[run])), int(afters[run])

    def events(self, first: int, until: int) -> Iterator[Event]:
        """Give those of lines [first, until); to be asked for in order, and taken to the end."""
        lo, hi = np.searchsorted(self._said, (first, until)).tolist()
        skipped = max(lo - self._taken, 0)
        self._taken = hi
        return islice(self._events, skipped, skipped + hi - lo)

    def last(self, first: int, until: int) -> tuple[int, int]:
        """Return the last line in [first, until) with a prefix, and the last one that is of no debug entry; or -1."""
        lo, hi = np.searchsorted(self._heads, (first, until)).tolist()
        if lo == hi:
            return -1, -1
        normal = np.flatnonzero(~self._is_debug[lo:hi])
        return int(self._heads[hi - 1]), int(self._heads[lo + normal[-1]]) if len(normal) else -1

    def line(self, block: bytes, index: int) -> bytes:
        """Return a line's text."""
        return block[int(self.starts[index]) : int(self._ends[index])]


def _goes_on(at: Words, raw: Bytes, starts: Ints, lines: columns.Lines, plain: Flags) -> Flags:
    """Which lines can be nothing but text of an entry, if they stand in one."""
    head = at[starts]
    first = raw[starts]
    good: Flags = plain & (first != ord("["))
    good &= ((head & mask(6)) != word(b"warn: ")) & ((head & mask(6)) != word(b"LLAMA_"))
    # After digits: `.12.` of a prefix that was cut off, or the `-` of a marker.
    after = at[starts + lines.digits]
    dotted = ((after & mask(1)) == word(b".")) & (((after >> np.uint64(24)) & mask(1)) == word(b"."))
    good &= (lines.digits == 0) | ~(dotted | ((after & mask(1)) == word(b"-")))
    return good


def _inside(is_debug: Flags, blank: Flags, goes_on: Flags, *, debug: bool) -> Flags:
    """Which of the lines that may go on with a debug entry do."""
    before = np.where(goes_on | blank, -1, np.arange(len(is_debug)))
    np.maximum.accumulate(before, out=before)
    return goes_on & np.where(before < 0, debug, is_debug[before])
