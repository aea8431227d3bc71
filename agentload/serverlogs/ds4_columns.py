"""What do the lines say that most logs of ds4-server are full of, many thousand of them at once?

A regular expression takes 2 us a line, and its groups as long again. Here each step is taken for all lines together:
eight bytes from where each line has been read so far, as one integer, are compared with a text, or are the digits of a
number. What differs from the usual shape in any way (nine digits, a flag of a newer build) is left to
`ds4_grammar`, so that both can only agree.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

PAD: Final = 256  # bytes that must follow the beginning of the last line: no step leads further
DECODE, CHUNK, START, DONE, FINISH = 1, 2, 3, 4, 5
REASONS: Final = ("stop", "length", "tool_calls", "error")
CTX: Final = 35  # bytes of a line before the three numbers of its span
_DAYS_IN: Final = np.array((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
_DAYS_BEFORE: Final = np.concatenate((np.zeros(2, np.int64), np.cumsum(_DAYS_IN[1:12])))
_MS_NS: Final = 1_000_000

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


def word(text: bytes) -> np.uint64:
    """Return at most eight bytes as the integer that `words` has for them."""
    return np.uint64(int.from_bytes(text, "little"))


def mask(count: int) -> np.uint64:
    """Return what keeps the first `count` bytes of a word."""
    return np.uint64((1 << 8 * count) - 1)


def words(block: bytes) -> Words:
    """Return, for each byte, it and the seven after it as one integer; nothing is copied."""
    return np.ndarray((len(block) - 7,), "<u8", block, 0, (1,))


_EACH: Final = 0x0101010101010101
_ZEROS, _SEVEN, _HIGH = np.uint64(0x30 * _EACH), np.uint64(0x7F * _EACH), np.uint64(0x80 * _EACH)
_TO_HIGH, _DOTS = np.uint64(0x76 * _EACH), np.uint64(0x2E * _EACH)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_BY_10, _BY_100, _BY_10000 = np.uint64(1 + (10 << 8)), np.uint64(1 + (100 << 16)), np.uint64(1 + (10_000 << 32))
_1, _3, _8, _16, _32, _64 = (np.uint64(number) for number in (1, 3, 8, 16, 32, 64))

_SPACES: Final = np.uint64(0x20 * _EACH)
LONGEST: Final = 16

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
    fresh: Flags  # its stamp is not that of the line before


def _run(of: Words) -> Words:
    """Return 8 times the number of bytes that no high bit marks, before the first that one does."""
    first = of & (~of + _1)
    count: Words = np.bitwise_count(first - _1).astype(np.uint64)
    return np.where(of == 0, _64, count & ~np.uint64(7))


def numbers(at: Words, p: Ints) -> tuple[Ints, Ints]:
    """Return the number that begins at each place, and its length: 0 to 8 digits."""
    digits = at[p] ^ _ZEROS
    bits = _run(((digits + _TO_HIGH) | digits) & _HIGH)
    value = np.where(bits == 0, np.uint64(0), digits << (_64 - np.maximum(bits, _8)))
    value = ((value * _BY_10) >> _8) & _PAIRS
    value = ((value * _BY_100) >> _16) & _FOURS
    value = (value * _BY_10000) >> _32
    return value.astype(np.int64), (bits >> _3).astype(np.int64)


def _rate(at: Words, p: Ints) -> Ints:
    """Return the length of the digits and dots that begin at each place, at most 8."""
    text = at[p]
    digits, dots = text ^ _ZEROS, text ^ _DOTS
    other = (((digits & _SEVEN) + _TO_HIGH) | digits) & (((dots & _SEVEN) + _SEVEN) | dots) & _HIGH
    return (_run(other) >> _3).astype(np.int64)


def _begins(at: Words, p: Ints, text: bytes) -> Flags:
    """Whether a text of at most 16 bytes stands at each place."""
    same: Flags = (at[p] & mask(min(len(text), 8))) == word(text[:8])
    if len(text) > 8:
        same &= at[p + len(text) - 8] == word(text[-8:])
    return same


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


def to_space(at: Words, p: Ints) -> Ints:
    """Return how far it is to the next space, at most `LONGEST`."""
    length = _to_space(at[p])
    far = np.flatnonzero(length == 8)
    if len(far):
        length[far] += _to_space(at[p[far] + 8])
    return length


def _to_space(text: Words) -> Ints:
    text = text ^ _SPACES
    return (_run(~(((text & _SEVEN) + _SEVEN) | text) & _HIGH) >> _3).astype(np.int64)  # a high bit for each space


def _chunks(at: Words, p: Ints) -> tuple[Ints, Ints, Ints, Flags]:
    """Read `2048/8000 (25.6%) chunk=`: both numbers, where it ends, and whether it is that."""
    first, length = numbers(at, p)
    well, p = (length > 0) & _begins(at, p + length, b"/"), p + length + 1
    second, length = numbers(at, p)
    well, p = well & (length > 0) & _begins(at, p + length, b" ("), p + length + 2
    length = _rate(at, p)
    return first, second, p + length + 9, well & (length > 0) & _begins(at, p + length, b"%) chunk=")


def _rates(at: Words, p: Ints) -> tuple[Ints, Flags]:
    """Read `18.73 t/s avg=18.73 t/s `: where it ends, and whether it is that."""
    length = _rate(at, p)
    well, p = (length > 0) & _begins(at, p + length, b" t/s avg="), p + length + 9
    length = _rate(at, p)
    return p + length + 5, well & (length > 0) & _begins(at, p + length, b" t/s ")


def _seconds(at: Words, p: Ints, ends: Ints) -> tuple[Ints, Flags]:
    """Read `2.669s`: the ns, and whether it is that and the line's end."""
    seconds, length = numbers(at, p)
    well, p = (length > 0) & _begins(at, p + length, b"."), p + length + 1
    millis, digits = numbers(at, p)
    return (seconds * 1000 + millis) * _MS_NS, well & (digits == 3) & _begins(at, p + 3, b"s") & (p + 4 == ends)


def parse(at: Words, starts: Ints, ends: Ints) -> Columns:
    """Read lines that begin with 13 bytes of a stamp and ` ds4-server: chat ctx=`.

    Args:
        at: see `words`; at least `PAD` bytes follow the last line's beginning.
        starts: where each line begins.
        ends: and ends.
    """
    count = len(starts)
    p = starts + CTX
    start, length = numbers(at, p)
    good = length > 0
    p = p + length
    good &= _begins(at, p, b"..")
    end, length = numbers(at, p + 2)
    good &= length > 0
    p = p + 2 + length
    good &= _begins(at, p, b":")
    first, length = numbers(at, p + 1)
    good &= length > 0
    ctx_end = p = p + 1 + length
    has_gen = _begins(at, p, b" gen=")
    gen, length = numbers(at, p + 5)
    good &= ~has_gen | (length > 0)
    p = _after_flags(at, p + np.where(has_gen, 5 + length, 0))
    head = at[p]
    kind, second, took_ns = (np.zeros(count, np.int64) for _ in range(3))
    # Prefill chunks, up to the rate that decode lines have as well.
    is_chunk = good & ~has_gen & (head == word(b" prefill")) & _begins(at, p + 8, b" chunk ")
    is_decode = good & has_gen & _begins(at, p, b" decoding chunk=")
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
        is_start = _begins(at, q + 8, b"start") & (q + 13 == ends[some])
        is_done = _begins(at, q + 8, b"done ")
        kind[some] = np.where(is_start, START, np.where(is_done, DONE, 0))
        p[some] = q + 13
    some = np.flatnonzero(good & has_gen & (head == word(b" finish=")))
    if len(some):
        q = p[some] + 8
        for index, reason in enumerate(REASONS):
            same = _begins(at, q, reason.encode() + b" ")
            first[some[same]], kind[some[same]] = index, FINISH
            p[some[same]] = q[same] + len(reason) + 1
    some = np.flatnonzero((kind != 0) & (kind != START))
    if len(some):
        took_ns[some], well = _seconds(at, p[some], ends[some])
        kind[some[~well]] = 0
    fresh = np.ones(count, np.bool_)
    early, late = at[starts], at[starts + 5]
    fresh[1:] = (early[1:] != early[:-1]) | (late[1:] != late[:-1])
    return Columns(kind, ctx_end, start, end, gen, first, second, took_ns, _year_s(at, starts), fresh)


def _year_s(at: Words, starts: Ints) -> Ints:
    """Return what `MMDD HH:MM:SS` make in a common year; only those whose shape was seen have any meaning."""
    date, day_time = at[starts] ^ _ZEROS, at[starts + 5] ^ _ZEROS
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
    rows, length = numbers(at, p)
    good = (length > 0) & (((at[p] & mask(1)) != word(b"0")) | (length == 1))
    p = p + length
    good &= _begins(at, p, b" elapsed=")
    millis, length = numbers(at, p + 9)
    good &= length > 0
    p = p + 9 + length
    good &= _begins(at, p, b".")
    micros, digits = numbers(at, p + 1)
    good &= digits == 3
    p = p + 4
    fine = _begins(at, p, b" ms status=ok") & (p + 13 == ends)
    fine |= _begins(at, p, b" ms status=0") & (p + 12 == ends)
    return good & fine, rows, millis * 1000 + micros
