"""Which lines of a block say together of one request what can be taken in one step?

A request's decode lines follow one another, and so do its chunks, with other requests' lines between them. Where each
goes on exactly where the one before left off, only the last one counts, and the bounds that all of them set to when the
request began. Such a run never goes beyond a line that is handed over, or a jump of the clock: so far, only lines of
the same prompt length can say anything about its request.
"""

from typing import Final, NamedTuple

import numpy as np

from agentload.serverlogs import ds4_columns as columns
from agentload.serverlogs.ds4_clock import HALF_HOUR_S, SECOND_NS
from agentload.serverlogs.words import Flags, Ints, Words

_TEXT: Final = (0, 8, 16)  # where the words of a span begin; it has no more than 29 bytes, the last 8 are looked at too

# Of a run: its number; its last line, where that begins, its end, gen, tokens and took_ns; of its lines the least and
# greatest `stamp - took_ns`, in ns from the year's beginning; how many there are.
Run = tuple[int, int, int, int, int, int, int, int, int, int]


class Runs(NamedTuple):
    """Runs of a block's lines, in the order of their first lines."""

    first: Ints  # index of each run's first line
    of: Ints  # run of each line, -1 for those that are in none
    rows: list[Run]


def stretches(found: columns.Columns, lines: Ints, by_hand: Ints) -> tuple[Ints, Flags]:
    """Return, for each line, in which stretch it is, and whether it is the first one there.

    A stretch ends before each line that is handed over, and where the stamps do not just go on.
    """
    opens = np.ones(len(lines), np.bool_)
    before, year_s = found.year_s[:-1], found.year_s[1:]
    step_s = year_s - before
    opens[1:] = (before < 0) | (year_s < 0) | (step_s < 0) | (step_s >= HALF_HOUR_S)
    hands = np.searchsorted(by_hand, lines)
    opens[1:] |= hands[1:] != hands[:-1]
    return np.cumsum(opens), opens


def find(at: Words, found: columns.Columns, lines: Ints, begins: Ints, stretch: Ints, opens: Flags) -> Runs:
    """Find the runs of more than one line; a stretch's first line is in none, because the clock must hear of it."""
    prompt = found.end - np.where(found.kind == columns.DECODE, found.gen, 0)
    order = np.lexsort((prompt, stretch))
    kind, end, gen, first = (column[order] for column in (found.kind, found.end, found.gen, found.first))
    joins = np.zeros(len(order), np.bool_)
    joins[1:] = ~opens[order][:-1]
    for column in (prompt, stretch, found.kind):
        joins[1:] &= column[order][1:] == column[order][:-1]
    is_decode = kind == columns.DECODE
    goes_on = np.zeros(len(order), np.bool_)
    goes_on[1:] = (found.start[order][1:] == end[:-1]) & (gen[1:] - gen[:-1] == first[1:])
    joins &= np.where(is_decode, goes_on, _same_chunks(at, found, begins, order))
    joins &= is_decode | (kind == columns.CHUNK)
    heads = np.flatnonzero(~joins)
    count = np.diff(heads, append=len(order))
    long = count > 1
    if not long.any():
        return Runs(np.zeros(0, np.int64), np.full(len(order), -1), [])
    # Lines of runs only, run after run.
    number = np.repeat(np.where(long, np.cumsum(long) - 1, -1), count)
    inside = np.flatnonzero(number >= 0)
    heads, count, number = np.flatnonzero(~joins[inside]), count[long], number[inside]
    inside = order[inside]
    begun = found.year_s[inside] * SECOND_NS - found.took_ns[inside]
    least, most = np.minimum.reduceat(begun, heads), np.maximum.reduceat(begun, heads)
    last = inside[heads + count - 1]
    by_line = np.argsort(inside[heads])
    renamed = np.empty(len(heads), np.int64)
    renamed[by_line] = np.arange(len(heads))
    of = np.full(len(order), -1)
    of[inside] = renamed[number]
    rows = [np.arange(len(heads))]
    rows += [column[last][by_line] for column in (lines, begins, found.end, found.gen, found.first, found.took_ns)]
    rows += [column[by_line] for column in (least, most, count)]
    return Runs(inside[heads][by_line], of, list(zip(*(row.tolist() for row in rows), strict=True)))


def _same_chunks(at: Words, found: columns.Columns, begins: Ints, order: Ints) -> Flags:
    """Whether each line is a later chunk of the span of the one before it."""
    same = np.zeros(len(order), np.bool_)
    some = np.flatnonzero(found.kind[order] == columns.CHUNK)
    lines = order[some]
    spans, ends = begins[lines] + columns.CTX, found.ctx_end[lines]
    well = (ends - spans)[1:] == (ends - spans)[:-1]
    for step in _TEXT:
        text = at[np.minimum(spans + step, ends - 8)]
        well &= text[1:] == text[:-1]
    first, second = found.first[lines], found.second[lines]
    well &= (at[ends - 8][1:] == at[ends - 8][:-1]) & (second[1:] == second[:-1])
    well &= (first[1:] > first[:-1]) & (first[1:] <= second[1:])
    same[some[1:]] = well & (np.diff(some) == 1)
    return same
