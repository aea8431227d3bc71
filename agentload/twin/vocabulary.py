"""Which tokens is a text, for a server that has no model?

The twin's own vocabulary: a token is a short piece of text, cut by one rule, and its id is those bytes read as a
number. So ids are the same in every process and turn back into text, no two pieces share one, and nothing is loaded.
Measured on the Rust source of `whenever` 0.10.5 (869 kB): 3.52 bytes a token, 3.50 with the read tool's line numbers,
3.6 on English; o200k_base has about 3.6 on such source. 7 MB a second where each text is new.

Where a piece ends depends on what it holds and the one character after it, never on more. Hence the first k pieces of
a text are the pieces of their own text: an answer may be cut after any token.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from agentload.twin.lengths import Draws

# A word of up to 6 letters with one sign or blank before it; one or two signs; blanks; up to three digits.
_PIECE: Final = re.compile(r"[^A-Za-z0-9\n]?[A-Za-z]{1,6}|[^\sA-Za-z0-9]{1,2}|\s{1,24}|[0-9]{1,3}")
FIRST_PIECE_ID: Final = 256  # ids below are free for the marks of a chat format
_CACHED: Final = 4096  # texts: a run of 3 agents with 60 messages each has under 400
# One piece each, with the blank before them; 256, so that a random byte is a word.
_WORD_LIST: Final = (
    "a about above across add admits after again agrees alias all also and any array as asked asks at await back be "
    "before behind below block body borrow both bound branch break buffer but by bytes cache call caller calls case "
    "cases char check clear clone code comes const copies count crate does done down drop each edge either else empty "
    "end ends entry enum error even every exits fails false field fields file final first flag fn for found free "
    "frees from frozen full given gives goes grows guard guards handle has held here holds if impl in index init "
    "inner inside int into is it item its keeps kept key last later layer least left length lets like line lines list "
    "lives loads local lock looks loop lost macro made makes many map maps marks match means merely method mod module "
    "more most moves mutex name names needed needs never new next no none not note null object of off often on once "
    "one only option or order other over owned owner pair parse part passes path place plain raises rather raw reads "
    "ref rest result right rule safe same second see sees set shared should shows side since single slice so some "
    "source start state static step still stops store string struct such takes test than that the their then there "
    "these they this those to trait true twice two type under unsafe until up use used value via wants way when where "
    "which while whole why with works wraps writes yet zero"
)
_WORDS: Final = tuple(_WORD_LIST.split())


class _Ids(dict[str, int]):
    """The id of each piece, made when it is first asked for."""

    def __missing__(self, piece: str) -> int:
        made = self[piece] = int.from_bytes(b"\1" + piece.encode("utf-8", "surrogatepass"), "big")
        return made


_IDS: Final = _Ids()


def pieces(text: str) -> list[str]:
    """Cut `text` into the pieces that are its tokens; joined they are the text."""
    return _PIECE.findall(text)


@lru_cache(maxsize=_CACHED)
def encode(text: str) -> tuple[int, ...]:
    """Return the token ids of `text`, each at least `FIRST_PIECE_ID`; remembered by content."""
    return tuple(map(_IDS.__getitem__, _PIECE.findall(text)))


def count(text: str) -> int:
    """Return how many tokens `text` is."""
    return len(encode(text))


def decode(ids: Iterable[int]) -> str:
    """Return the text of these ids; marks (ids below `FIRST_PIECE_ID`) have none."""
    return "".join(text_of_id(one) for one in ids)


def text_of_id(token: int) -> str:
    """Return the text of one id; empty for a mark."""
    if token < FIRST_PIECE_ID:
        return ""
    return token.to_bytes((token.bit_length() + 7) // 8, "big")[1:].decode("utf-8", "surrogatepass")


def text_of(tokens: int, draws: Draws, *, follows: bool = False) -> str:
    """Return words that are exactly `tokens` tokens, in sentences of 7 to 18 words; empty for none.

    With `follows` it begins with a blank: after a text that does not end in blanks, the tokens of both add up.
    """
    out: list[str] = []
    left = 0  # words until the full stop
    for byte in draws.bytes(tokens):
        word = _WORDS[byte]
        if not out or out[-1] == ".":
            out.append((" " if out or follows else "") + word.capitalize())
            left = 6 + byte % 12
        elif left == 0:
            out.append(".")
        else:
            out.append(" " + word)
            left -= 1
    return "".join(out)
