"""What do the lines say that most logs of llama.cpp's server are full of, many thousand of them at once?

What differs from the usual shape in any way (nine digits, a slot's name of another width, `inf` as a rate) is left to
`llamacpp_grammar`, so that both can only agree.
"""

from typing import Final, NamedTuple

import numpy as np

from agentload.serverlogs.words import (
    HIGH,
    TO_HIGH,
    ZEROS,
    Flags,
    Ints,
    Words,
    begins,
    is_padded,
    leading,
    mask,
    numbers,
    rate,
    series,
    which_begin,
    word,
)

OTHER, NOISE, LAUNCH, PROMPT, EVAL, TOTAL, RELEASE, CACHED, NEW = 0, 1, 2, 3, 4, 5, 6, 7, 8
STAMP: Final = 14  # bytes of a prefix after the minutes
_MOST_MINUTES: Final = 7  # digits
_NAME: Final = 12  # bytes of a function's name
_FAR: Final = 8  # spaces: there may be more of them

_DIGITS: Final = np.uint64(0x00FFFFFF00FFFF00)  # of `.SS.mmm.`
_DOTS: Final = word(b".\0\0.\0\0\0.")
_LEVEL_AT, _LEVEL, _SPACES = np.uint64(32), mask(1), word(b"\0\0\0 \0 ")
_SPACES_AT: Final = word(b"\0\0\0\xff\0\xff")

# Texts that say nothing, by what they begin with. What is not here, and is noise all the same, costs time only.
_SLOT_NOISE: Final = (
    b"selected slot by ", b"- checking ", b"- skipping ", b"prompt processing, n_tokens = ",
    b"prompt processing progress, n_tokens = ", b"prompt processing done, n_tokens = ", b"prompt done, n_tokens = ",
    b"init sampler, took ", b"sampler chain: ", b"sampler params: ", b"created context checkpoint",
    b"restored context checkpoint", b"stopped by ", b"prompt token", b"statistics ", b"Checking checkpoint with ",
    b"need to evaluate at least 1 token for each active slot", b"clearing slot", b"clearing idle slot",
)  # fmt: skip
_OTHER_NOISE: Final = (
    b"conv_id=", b"chat format: ", b"Chat format: ", b"prompt cache update took ", b"- ", b"saving prompt ",
    b"done request: ", b"request: ", b"response: ", b"params_from_", b"statistics ", b"proxying request ",
)  # fmt: skip
_OTHER_WHOLE: Final = (b"all slots are idle", b"updating prompt cache")
_PARTS: Final = tuple(word(part) for part in (b"srv  ", b"que  ", b"res  ", b"cmn  ", b"spec "))


class Lines(NamedTuple):
    """Which lines begin with a prefix."""

    body: Ints  # where what follows the prefix begins
    prefixed: Flags
    debug: Flags
    digits: Ints  # at the beginning


class Said(NamedTuple):
    """Lines of a slot that are understood: which of those given, and their numbers."""

    which: Ints
    kind: Ints
    slot: Ints
    task: Ints
    at_us: Ints
    first: Ints  # ms * 100 of a timing; whether a released one was truncated
    tokens: Ints


def prefixes(at: Words, starts: Ints) -> Lines:
    """Read `M.SS.mmm.uuu L ` at the beginning of lines."""
    _, digits = numbers(at, starts)
    p = starts + digits
    head, tail = at[p] ^ ZEROS, at[p + 8]
    text = tail ^ ZEROS
    good = (digits > 0) & (digits <= _MOST_MINUTES) & ((at[p] & ~_DIGITS) == _DOTS)
    good &= ((((head & _DIGITS) + (TO_HIGH & _DIGITS)) | (head & _DIGITS)) & HIGH) == 0
    good &= ((head >> np.uint64(8)) & _LEVEL) < np.uint64(6)
    some = mask(3)
    good &= ((((text & some) + (TO_HIGH & some)) | (text & some)) & HIGH) == 0
    level = (tail >> _LEVEL_AT) & _LEVEL
    good &= ((tail & _SPACES_AT) == _SPACES) & (level >= np.uint64(ord("A"))) & (level <= np.uint64(ord("Z")))
    return Lines(p + STAMP, good, good & (level == np.uint64(ord("D"))), digits)


def _at_us(at: Words, starts: Ints, body: Ints) -> Ints:
    """Return the times of prefixes."""
    minutes, _ = numbers(at, starts)
    head, tail = at[body - STAMP] ^ ZEROS, at[body - STAMP + 8] ^ ZEROS

    def digit(of: Words, index: int) -> Ints:
        return ((of >> np.uint64(8 * index)) & _LEVEL).astype(np.int64)

    seconds = minutes * 60 + digit(head, 1) * 10 + digit(head, 2)
    millis = seconds * 1000 + digit(head, 4) * 100 + digit(head, 5) * 10 + digit(head, 6)
    return millis * 1000 + digit(tail, 0) * 100 + digit(tail, 1) * 10 + digit(tail, 2)


def says_nothing(at: Words, body: Ints, ends: Ints) -> Flags:
    """Whether lines are known noise of the server's other parts; `body` is where they go on after the prefix."""
    part = at[body] & mask(5)
    good = np.zeros(len(body), np.bool_)
    for one in _PARTS:
        good |= part == one
    good &= begins(at, body + 17, b": ") & is_padded(at, body + 5, _NAME)
    text = body + 18
    spaces = leading(at, text)
    good &= (spaces > 0) & (spaces < _FAR)
    text += spaces
    head = at[text]
    noise = _is_noise(at, text, head, _OTHER_NOISE)
    for whole in _OTHER_WHOLE:
        some = which_begin(at, text, head, whole)
        noise[some] = text[some] + len(whole) == ends[some]
    noise &= good
    return noise


def _is_noise(at: Words, text: Ints, head: Words, heads: tuple[bytes, ...]) -> Flags:
    noise = np.zeros(len(text), np.bool_)
    for one in heads:
        noise[which_begin(at, text, head, one)] = True
    return noise


def is_slot(at: Words, body: Ints) -> Flags:
    """Whether lines go on after the prefix with `slot print_timing: id`."""
    good: Flags = begins(at, body, b"slot ") & begins(at, body + 17, b": id ")
    good &= is_padded(at, body + 5, _NAME)
    return good


def slots(at: Words, starts: Ints, body: Ints, ends: Ints) -> tuple[Ints, Said]:
    """Read lines for which `is_slot` holds.

    Returns:
        Of each what it is, and what those say that are neither `OTHER` nor `NOISE`.
    """
    spaces = leading(at, body + 21)
    p = body + 21 + spaces
    slot, length = numbers(at, p)
    good, p = (spaces < _FAR) & (length > 0), p + length
    good &= begins(at, p, b" | task ")
    minus = (at[p + 8] & mask(1)) == word(b"-")
    task, length = numbers(at, p + 8 + minus)
    p = p + 8 + minus + length
    good &= (length > 0) & begins(at, p, b" | ")
    spaces = leading(at, p + 3)
    good &= spaces < _FAR
    text = p + 3 + spaces
    kind, head = np.zeros(len(starts), np.int64), at[text]
    head[~good] = 0
    kind[_is_noise(at, text, head, _SLOT_NOISE)] = NOISE
    some = which_begin(at, text, head, b"graphs reused = ")
    kind[some[_counts(at, text[some] + 15, ends[some])]] = NOISE
    first, tokens = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    head[minus] = 0
    for this, says, read in (
        (PROMPT, b"prompt eval time =", _timing),
        (EVAL, b"eval time =", _timing),
        (TOTAL, b"total time =", _total),
        (RELEASE, b"stop processing: n_tokens = ", _released),
        (NEW, b"new prompt, n_ctx_slot = ", _new),
        (CACHED, b"cached n_tokens = ", _cached),
        (LAUNCH, b"processing task", _launched),
    ):
        some = which_begin(at, text, head, says)
        if len(some):
            first[some], tokens[some], well = read(at, text[some] + len(says), ends[some])
            kind[some[well]] = this
    which = np.flatnonzero(kind > NOISE)
    at_us = _at_us(at, starts[which], body[which])
    return kind, Said(which, kind[which], slot[which], task[which], at_us, first[which], tokens[which])


_Read = tuple[Ints, Ints, Flags]  # two numbers, and whether they and the line's end stand there


def _counts(at: Words, p: Ints, ends: Ints) -> Flags:
    """Whether spaces, a number and the line's end follow."""
    spaces = leading(at, p)
    p = p + spaces
    more = leading(at, p)  # the number is ten wide
    _, length = numbers(at, p + more)
    good: Flags = (spaces > 0) & (length > 0) & (p + more + length == ends)
    return good


def _took(at: Words, p: Ints) -> tuple[Ints, Ints, Ints, Flags]:
    """Read `   10221.78 ms /   144 tokens`: ms * 100, tokens, where it ends, and whether it is that."""
    spaces = leading(at, p)
    (whole, part), digits, p, well = series(at, p + spaces, b".")
    well &= (digits == 2) & begins(at, p, b" ms / ")
    p = p + 6
    p = p + leading(at, p)
    tokens, length = numbers(at, p)
    p = p + length
    return whole * 100 + part, tokens, p + 7, well & (length > 0) & begins(at, p, b" tokens")


def _timing(at: Words, p: Ints, ends: Ints) -> _Read:
    first, tokens, p, well = _took(at, p)
    for before, after in ((b" (", b" ms per token, "), (b"", b" tokens per second)")):
        well &= begins(at, p, before)
        p = p + len(before)
        p = p + leading(at, p)
        length = rate(at, p)
        p = p + length
        well &= (length > 0) & begins(at, p, after)
        p = p + len(after)
    return first, tokens, well & (p == ends)


def _total(at: Words, p: Ints, ends: Ints) -> _Read:
    first, tokens, p, well = _took(at, p)
    return first, tokens, well & (p == ends)


def _released(at: Words, p: Ints, ends: Ints) -> _Read:
    (tokens, truncated), digits, p, well = series(at, p, b", truncated = ")
    return truncated, tokens, well & (digits == 1) & (truncated < 2) & (p == ends)


def _new(at: Words, p: Ints, ends: Ints) -> _Read:
    (_, kept, tokens), _, p, well = series(at, p, b", n_keep = ", b", task.n_tokens = ")
    return kept, tokens, well & (p == ends)


def _cached(at: Words, p: Ints, ends: Ints) -> _Read:
    (tokens, _), _, p, well = series(at, p, b", memory_seq_rm [")
    return tokens, tokens, well & begins(at, p, b", end)") & (p + 6 == ends)


def _launched(at: Words, p: Ints, ends: Ints) -> _Read:
    """Not those that copy another task's prompt."""
    nothing = np.zeros(len(p), np.int64)
    return nothing, nothing, (p == ends) | (begins(at, p, b", is_child = 0") & (p + 14 == ends))
