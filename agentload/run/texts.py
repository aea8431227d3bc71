"""What is said to a server whose speed is the question, so that no cache knows how it begins?

Texts of common words, decided by their name alone. The first line is made of eight of 256 words, drawn anew for each
name: before it stands nothing but what the server's own template puts there. A word is one token nearly everywhere:
of 350 asked for, the embedded model's tokenizer made 360 to 366. What is reported is the server's own count.
"""

from hashlib import blake2b
from typing import Any, Final

from agentload.twin.lengths import Draws
from agentload.twin.vocabulary import text_of

_SEED_BYTES: Final = 4  # servers take seeds of 32 bits
_FIRST_TOKENS: Final = 8
_ASK: Final = (
    "The notes above are in no order. Write a long handbook about them, one chapter for each note, with a worked "
    "example in every chapter. Do not sum up, and do not end before you are stopped."
)
_ASK_TOKENS: Final = 42
_FRAME_TOKENS: Final = 12  # of a chat template around two messages


def first_line(*name: str | int) -> str:
    """Return a line that other names do not share: 256 to the power of seven or more are equally likely."""
    return text_of(_FIRST_TOKENS, Draws("first line", *name))


def seed(*name: str | int) -> int:
    """Return the seed of the request of that name."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=_SEED_BYTES).digest(), "big") >> 1


def prompt(tokens: int, *name: str | int) -> tuple[dict[str, Any], ...]:
    """Return chat messages of about `tokens` tokens that ask for a long answer; never less than about 60.

    The first line is the system's: many templates put a text of their own before a user's, which all would share.
    """
    body = tokens - _FIRST_TOKENS - _ASK_TOKENS - _FRAME_TOKENS
    notes = text_of(max(0, body), Draws("notes", *name))
    return (
        {"role": "system", "content": first_line(*name)},
        {"role": "user", "content": f"{notes}\n\n{_ASK}" if notes else _ASK},
    )
