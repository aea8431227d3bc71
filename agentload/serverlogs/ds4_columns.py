"""What do the lines say that most logs of ds4-server are full of, many thousand of them at once?

What differs from the usual shape in any way (nine digits, a flag of a newer build) is left to
`ds4_grammar`, so that both can only agree.
"""

from typing import Final, NamedTuple

import numpy as np

from agentload.serverlogs.words import ZEROS, Flags, Ints, Words, begins, mask, numbers, rate, series, word

DECODE, CHUNK, START, DONE, FINISH = 1, 2, 3, 4, 5
REASONS: Final = ("stop", "length", "tool_calls", "error")
CTX: Final = 35  # bytes of a line before the three numbers of its span
_DAYS_IN: Final = np.array((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
_DAYS_BEFORE: Final = np.concatenate((np.zeros(2, np.int64), np.cumsum(_DAYS_IN[1:12])))
_MS_NS: Final = 1_000_000

# Whole flags: the first bytes, how many of them, the last eight bytes and where those begin, the length.
_FLAGS: Final = tuple(
    (word(text[:8]), mask(min(len(text), 8)), word(text[-8:]) if len(text) > 8 else None, len(text) - 8, len(text))
    for text in (b" TOOLS", b" THINKING", b" RESPPROTO", b" DSML_START", b" DSML_END")
)
_MOST_FLAGS: Final = 5


class Columns(NamedTuple):
    """Line by line: what it is (0: something else), where its span ends, and its numbers."""

    kind: Ints
    ctx_end: Ints
    start: Ints
    end: Ints
    gen: Ints
    first: Ints  # tokens of a decode line, position of a chunk, index of a finish reason
    second: Ints  # new tokens of a chunk
    took_ns: Ints
    year_s: Ints  # from a common year's beginning to its stamp, -1 for one that is not plain


def _after_flags(at: Words, p: Ints) -> Ints:
    for _ in range(_MOST_FLAGS):
        head, step = at[p], np.zeros(len(p), np.int64)
        for text, some, last, back, length in _FLAGS:
            same = (head & some) == text
            if same.any():
                step[same if last is None else same & (at[p + back] == last)] = length
        if not step.any():
            break
        p = p + step
    return p


def _chunks(at: Words, p: Ints) -> tuple[Ints, Ints, Ints, Flags]:
    """Read `2048/8000 (25.6%) chunk=`: both numbers, where it ends, and whether it is that."""
    (first, second), _, p, well = series(at, p, b"/")
    well &= begins(at, p, b" (")
    length = rate(at, p + 2)
    p = p + 2 + length
    return first, second, p + 9, well & (length > 0) & begins(at, p, b"%) chunk=")


def _rates(at: Words, p: Ints) -> tuple[Ints, Flags]:
    """Read `18.73 t/s avg=18.73 t/s `: where it ends, and whether it is that."""
    length = rate(at, p)
    well, p = (length > 0) & begins(at, p + length, b" t/s avg="), p + length + 9
    length = rate(at, p)
    return p + length + 5, well & (length > 0) & begins(at, p + length, b" t/s ")


def _seconds(at: Words, p: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """Read `2.669s`: the ns, and whether it is that and the line's end."""
    (seconds, millis), digits, p, well = series(at, p, b".")
    return (seconds * 1000 + millis) * _MS_NS, well & (digits == 3) & begins(at, p, b"s") & (p + 1 == ends)


def parse(at: Words, starts: Ints, ends: Ints) -> Columns:
    """Read lines that begin with 13 bytes of a stamp and ` ds4-server: chat ctx=`.

    Args:
        at: see `words`; at least `PAD` bytes follow the last line's beginning.
        starts: where each line begins.
        ends: and ends.
    """
    count = len(starts)
    (start, end, first), _, ctx_end, good = series(at, starts + CTX, b"..", b":")
    p = ctx_end
    has_gen = begins(at, p, b" gen=")
    gen, length = numbers(at, p + 5)
    good &= ~has_gen | (length > 0)
    p = _after_flags(at, p + np.where(has_gen, 5 + length, 0))
    head = at[p]
    kind, second, took_ns = (np.zeros(count, np.int64) for _ in range(3))
    # Prefill chunks, up to the rate that decode lines have as well.
    is_chunk = good & ~has_gen & (head == word(b" prefill")) & begins(at, p + 8, b" chunk ")
    is_decode = good & has_gen & begins(at, p, b" decoding chunk=")
    p = p + np.where(is_decode, 16, 0)
    some = np.flatnonzero(is_chunk)
    if len(some):
        first[some], second[some], p[some], is_chunk[some] = _chunks(at, p[some] + 15)
    some = np.flatnonzero(is_chunk | is_decode)
    if len(some):
        p[some], well = _rates(at, p[some])
        kind[some] = np.where(well, np.where(is_chunk[some], CHUNK, DECODE), 0)
    some = np.flatnonzero(good & ~has_gen & (head == word(b" prompt ")))
    if len(some):
        q = p[some]
        is_start = begins(at, q + 8, b"start") & (q + 13 == ends[some])
        is_done = begins(at, q + 8, b"done ")
        kind[some] = np.where(is_start, START, np.where(is_done, DONE, 0))
        p[some] = q + 13
    some = np.flatnonzero(good & has_gen & (head == word(b" finish=")))
    if len(some):
        q = p[some] + 8
        for index, reason in enumerate(REASONS):
            same = begins(at, q, reason.encode() + b" ")
            first[some[same]], kind[some[same]] = index, FINISH
            p[some[same]] = q[same] + len(reason) + 1
    some = np.flatnonzero((kind != 0) & (kind != START))
    if len(some):
        took_ns[some], well = _seconds(at, p[some], ends[some])
        kind[some[~well]] = 0
    return Columns(kind, ctx_end, start, end, gen, first, second, took_ns, _year_s(at, starts))


def _year_s(at: Words, starts: Ints) -> Ints:
    """Return what `MMDD HH:MM:SS` make in a common year; only those whose shape was seen have any meaning."""
    date, day_time = at[starts] ^ ZEROS, at[starts + 5] ^ ZEROS
    month, day = _two(date, 0), _two(date, 2)
    hour, minute, second = _two(day_time, 0), _two(day_time, 3), _two(day_time, 6)
    known = (month > 0) & (month < 13)
    month = np.where(known, month, 0)
    good = known & (day > 0) & (day <= _DAYS_IN[month]) & (hour < 24) & (minute < 60) & (second < 100)
    return np.where(good, ((_DAYS_BEFORE[month] + day - 1) * 24 + hour) * 3600 + minute * 60 + second, -1)


def _two(digits: Words, at: int) -> Ints:
    """Return the number of two digits, 1000 or more if they are none."""
    tens, ones = (digits >> np.uint64(8 * at)) & np.uint64(255), (digits >> np.uint64(8 * at + 8)) & np.uint64(255)
    return np.where((tens < 10) & (ones < 10), tens * np.uint64(10) + ones, np.uint64(1000)).astype(np.int64)


def steps(at: Words, starts: Ints, ends: Ints) -> tuple[Flags, Ints, Ints]:
    """Read lines that begin with 13 bytes of a stamp and ` ds4-server: decode batch count=`.

    Returns:
        Whether each is a step that went well, in the usual shape; its rows; its us.
    """
    p = starts + 45
    good = (at[p] & mask(1)) != word(b"0")  # their text is their name
    (rows, millis, micros), digits, p, well = series(at, p, b" elapsed=", b".")
    good = (good | (rows == 0)) & well & (digits == 3)
    fine = begins(at, p, b" ms status=ok") & (p + 13 == ends)
    fine |= begins(at, p, b" ms status=0") & (p + 12 == ends)
    return good & fine, rows, millis * 1000 + micros
