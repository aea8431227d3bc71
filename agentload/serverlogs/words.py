"""How are numbers and texts read out of a block of bytes, at many thousand places at once?

A regular expression takes 2 us a line, and its groups as long again. Here each step is taken for all lines together:
eight bytes from where each line has been read so far, as one integer, are compared with a text, or are the digits of a
number. A step costs 1 to 3 ns a line.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

PAD: Final = 256  # bytes that must follow the beginning of the last line: no step of any reader leads further
LONGEST: Final = 16
_LEAST_BYTES_A_LINE: Final = 6  # on average; with each line come about 15 numbers of 8 bytes
_PRINTABLE: Final = 32  # the first byte that is no control character

Bytes = npt.NDArray[np.uint8]
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
ZEROS, _SEVEN, HIGH = np.uint64(0x30 * _EACH), np.uint64(0x7F * _EACH), np.uint64(0x80 * _EACH)
TO_HIGH, _DOTS = np.uint64(0x76 * _EACH), np.uint64(0x2E * _EACH)
_SPACES, _BARS = np.uint64(0x20 * _EACH), np.uint64(0x7C * _EACH)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_BY_10, _BY_100, _BY_10000 = np.uint64(1 + (10 << 8)), np.uint64(1 + (100 << 16)), np.uint64(1 + (10_000 << 32))
_1, _3, _7, _8, _16, _32, _64 = (np.uint64(number) for number in (1, 3, 7, 8, 16, 32, 64))


def _run(of: Words) -> Words:
    """Return 8 times the number of bytes that no high bit marks, before the first that one does."""
    first = of & (~of + _1)
    count: Words = np.bitwise_count(first - _1).astype(np.uint64)
    return np.where(of == 0, _64, count & ~_7)


def _other(than: Words) -> Words:
    """Return a high bit for each byte that is not zero."""
    return (((than & _SEVEN) + _SEVEN) | than) & HIGH


def numbers(at: Words, p: Ints) -> tuple[Ints, Ints]:
    """Return the number that begins at each place, and its length: 0 to 8 digits."""
    digits = at[p] ^ ZEROS
    bits = _run(((digits + TO_HIGH) | digits) & HIGH)
    value = np.where(bits == 0, np.uint64(0), digits << (_64 - np.maximum(bits, _8)))
    value = ((value * _BY_10) >> _8) & _PAIRS
    value = ((value * _BY_100) >> _16) & _FOURS
    value = (value * _BY_10000) >> _32
    return value.astype(np.int64), (bits >> _3).astype(np.int64)


def series(at: Words, p: Ints, *between: bytes) -> tuple[list[Ints], Ints, Ints, Flags]:
    """Read numbers with a text between each and the next, such as `170101..171331:1230`.

    Returns:
        The numbers; how long the last of them is; where it ends; whether all of that stands there.
    """
    value, length = numbers(at, p)
    found, well, p = [value], length > 0, p + length
    for text in between:
        well &= begins(at, p, text)
        value, length = numbers(at, p + len(text))
        found.append(value)
        well &= length > 0
        p = p + len(text) + length
    return found, length, p, well


def rate(at: Words, p: Ints) -> Ints:
    """Return the length of the digits and dots that begin at each place, at most 8."""
    text = at[p]
    digits, dots = text ^ ZEROS, text ^ _DOTS
    other = (((digits & _SEVEN) + TO_HIGH) | digits) & (((dots & _SEVEN) + _SEVEN) | dots) & HIGH
    return (_run(other) >> _3).astype(np.int64)


def begins(at: Words, p: Ints, text: bytes) -> Flags:
    """Whether a text stands at each place."""
    same: Flags = (at[p] & mask(min(len(text), 8))) == word(text[:8])
    for start in _rest(text):
        same &= at[p + start] == word(text[start : start + 8])
    return same


def which_begin(at: Words, p: Ints, head: Words, text: bytes) -> Ints:
    """Return at which of the places a text stands, for a text that is rare there; `head` is `at[p]`."""
    found = np.flatnonzero((head & mask(min(len(text), 8))) == word(text[:8]))
    for start in _rest(text):
        if not len(found):
            break
        found = found[at[p[found] + start] == word(text[start : start + 8])]
    return found


def _rest(text: bytes) -> list[int]:
    """Return where the words after the first one begin; the last one may overlap."""
    return [min(start, len(text) - 8) for start in range(8, len(text), 8)]


def to_space(at: Words, p: Ints) -> Ints:
    """Return how far it is to the next space, at most `LONGEST`."""
    length = _to_space(at[p])
    far = np.flatnonzero(length == 8)
    if len(far):
        length[far] += _to_space(at[p[far] + 8])
    return length


def _to_space(text: Words) -> Ints:
    return (_run(_other(text ^ _SPACES) ^ HIGH) >> _3).astype(np.int64)


def leading(at: Words, p: Ints) -> Ints:
    """Return how many spaces there are from each place on, at most 8."""
    return (_run(_other(at[p] ^ _SPACES)) >> _3).astype(np.int64)


def is_padded(at: Words, p: Ints, width: int) -> Flags:
    """Whether `width` bytes (8 to 16) are spaces, and then a name, one at least, without space or `|`."""
    space = np.zeros(len(p), np.uint64)
    good = np.ones(len(p), np.bool_)
    for text in (at[p], at[p + width - 8]):
        space = _other(text ^ _SPACES) ^ HIGH
        space |= space - (space >> _7)  # all bits of those bytes
        good &= ((space & (space + _1)) == 0) & (_other(text ^ _BARS) == HIGH)
    good &= space != ~np.uint64(0)
    return good


def runs(of: Flags) -> tuple[Ints, Ints]:
    """Return where each run begins, and what follows it."""
    edges = np.flatnonzero(np.diff(of, prepend=False, append=False))
    return edges[::2], edges[1::2]


class CrowdedError(Exception):
    """Bytes that end a line or that none should have come so often that a block is not worth looking at as a whole."""


class Cut(NamedTuple):
    """The lines of a block, which ends with a newline."""

    raw: Bytes
    newlines: Ints
    starts: Ints  # and the block's end
    ends: Ints
    odd: Flags  # has a byte that no line should have
    blank: Flags
    near: int  # lines before that end in front of the last PAD bytes: of these nothing is looked for past the end


def cut(block: bytes) -> Cut:
    """Cut a block into its lines; a copy with room behind the last ones would cost more than leaving them out.

    Raises:
        CrowdedError: what is kept for each line would take many times the block's size.
    """
    raw = np.frombuffer(block, np.uint8)
    # One pass for the newlines and for all bytes that no line should have.
    newlines = np.flatnonzero(raw < _PRINTABLE)
    if len(newlines) > len(raw) // _LEAST_BYTES_A_LINE:
        raise CrowdedError
    controls = raw[newlines]
    is_newline = controls == ord("\n")
    others = newlines[:0]
    if not is_newline.all():
        others = newlines[(controls == 0) | (controls == ord("\r")) | (controls == ord("\x1b"))]
        newlines = newlines[is_newline]
    starts = np.concatenate((np.zeros(1, np.int64), newlines + 1))
    ends, odd = _line_ends(raw, newlines, others)
    return Cut(raw, newlines, starts, ends, odd, ends == starts[:-1], int(np.searchsorted(starts, len(block) - PAD)))


def _line_ends(raw: Bytes, newlines: Ints, others: Ints) -> tuple[Ints, Flags]:
    """Return where each line ends, and whether it has one of the `others` elsewhere than a carriage return there."""
    odd = np.zeros(len(newlines), np.bool_)
    if not len(others):
        return newlines, odd
    ends, line = newlines.copy(), np.searchsorted(newlines, others)
    closes = (raw[others] == ord("\r")) & (raw[others + 1] == ord("\n"))
    ends[line[closes]] -= 1
    odd[line[~closes]] = True
    return ends, odd
