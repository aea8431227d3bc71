"""What do the sessions of a synthetic probe say to the server, so that work is equal and a cold prompt is cold?

A cold prompt begins with a line that no other text has; behind it stands source code of the corpus, the same in every
cold prompt. The line is made of numbers of three digits: nearly every tokenizer makes as many tokens of one as of any
other, so that prompts of one body are equally long. What an assistant said is a fixed text, whatever the model wrote.
"""

from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from agentload.errors import InputError
from agentload.twin.lengths import Draws

Messages = tuple[dict[str, Any], ...]

_SOURCE: Final = "*.rs"
_NUMBERS: Final = 8  # of three digits: 900 to the power of 8 lines
# One token each nearly everywhere, with the blank before it.
_WORDS: Final = (" the", " of", " and", " to", " in", " is", " for", " with", " on", " by")
_ASK: Final = "\n\nWhich of the functions above should be tested first? Answer with its name alone."
_KEEP: Final = "\n\nKeep these files in mind: a question about more of them follows. Answer with one word."
_WRITE: Final = (
    "Write a long handbook about the maintenance of a lighthouse, one chapter for each part of it, with a worked "
    "example in every chapter. Do not sum up, and do not end before you are stopped."
)
_WRITTEN: Final = "That was the first half of the chapter; the second half follows when you ask for it."
_GO_ON: Final = "Go on with the next chapter where you stopped, as long as the one before, and do not sum up."
NOTHING_SAID: Final = "Understood."  # of an assistant whose answer had no text
MOST_TURNS: Final = 40  # of one conversation of a session that writes: it then has about 2,000 tokens


@dataclass(frozen=True, slots=True)
class Source:
    """The text that prompts are made of: one file after the other."""

    text: str

    def cut(self, chars: int, start: int = 0) -> str:
        """Return whole lines, about `chars` characters and never more but for the first line, from a line's begin on.

        Where the text is over it begins anew.
        """
        start %= len(self.text)
        begin = 0 if start == 0 else self.text.find("\n", start) + 1
        length = max(1, chars)
        held = self.text[begin : begin + length]
        while len(held) < length:
            held += self.text[: length - len(held)]
        end = held.rfind("\n")
        return held[: end + 1] if end >= 0 else held


def source_of(checkout: Path) -> Source:
    """Read the source files of a checkout in the order of their paths; where it has no Rust, all that is text.

    Raises:
        InputError: there is nothing to read.
    """
    files = sorted(path for path in checkout.rglob(_SOURCE) if path.is_file())
    if not files:
        files = sorted(path for path in checkout.rglob("*") if path.is_file() and ".git" not in path.parts)
    text = "".join(told for path in files if "\0" not in (told := _read(path)))
    if not text.strip():
        raise InputError(f"corpus: expected source files for the text of a prompt, there is none in {checkout.name}")
    return Source(text if text.endswith("\n") else text + "\n")


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def first_line(*name: str | int) -> str:
    """Return a line that other names do not share."""
    draws = Draws("probe", *name)
    return " ".join(str(100 + draws.below(900)) for _ in range(_NUMBERS))


def words(tokens: int) -> str:
    """Return so many words that are a token each, with the blank before the first one."""
    return "".join(islice(cycle(_WORDS), max(0, tokens)))


def cold(first: str, body: str) -> Messages:
    """Return a cold prompt."""
    return _opened(first, f"{body}{_ASK}")


def context(first: str, body: str) -> Messages:
    """Return what leaves a context behind."""
    return _opened(first, f"{body}{_KEEP}")


def behind(before: Messages, said: str, body: str) -> Messages:
    """Return a prompt that comes after a context; `said` is what the assistant said to that."""
    return (
        *before,
        {"role": "assistant", "content": said or NOTHING_SAID},
        {"role": "user", "content": f"{body}{_ASK}"},
    )


def writing(first: str, turn: int, more: int = 0) -> Messages:
    """Return what a session that writes is asked in one of its turns; every `MOST_TURNS` it begins anew.

    It is `more` tokens longer than others, so that a log which tells no more than tokens can still be joined.
    """
    number = turn % MOST_TURNS
    messages = _opened(first, _WRITE + words(more))
    further = ({"role": "assistant", "content": _WRITTEN}, {"role": "user", "content": _GO_ON})
    return (*messages, *(message for _ in range(number) for message in further))


def _opened(first: str, text: str) -> Messages:
    # The first line is the system's: many templates put a text of their own before a user's, which all would share.
    return {"role": "system", "content": first}, {"role": "user", "content": text}
