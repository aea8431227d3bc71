"""What does a configuration say that a Python program printed: `a=1, b=Kind(c=[2, 'x, y']), d=None`?

It is no Python: `dtype=torch.bfloat16` and `load_format=auto` stand there as they are. So it is split at the commas
that no bracket and no quote encloses, and only values that are plain are told apart from text.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentload.shown import encodable

MOST_CHARS: Final = 1 << 22  # of a configuration 3 to 12 kB were seen; a finished request may hold its whole answer
_PAIR: Final = re.compile(r"\s*(\w+)=(.*)", re.DOTALL)
_MOST_TOKENS: Final = 1 << 18  # 120 MB while a dict of so many is read: ids of 130,000 tokens are that
_CLOSED_BY: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSING: Final = frozenset(_CLOSED_BY.values())
# What ends a quoted text, or a sign of it that ends none. A pattern for the whole of it keeps 120 bytes of each sign.
_ENDS: Final = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in "'\""}
_MARK: Final = re.compile(r"""[()\[\]{},'"]""")
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_HIDING: Final = frozenset(("#", "f", "F", "fr", "fR", "Fr", "FR", "rf", "rF", "Rf", "RF"))  # no printed dict has them
_WHOLE: Final = re.compile(r"-?\d{1,18}")
_BROKEN: Final = re.compile(r"-?\d{1,18}\.\d{0,18}(?:e[-+]?\d{1,3})?|-?\d{1,18}e[-+]?\d{1,3}")
_SECRET: Final = re.compile(
    r"(?:.*_)?(?:api_?keys?|keys?|token|secret|password|passwd|passphrase|hf_token)", re.IGNORECASE
)

Plain = str | int | float | bool


def pairs(text: str) -> dict[str, str] | None:
    """Return the values of `name=value, ...` as they stand there; None when the brackets or quotes do not close."""
    found: dict[str, str] = {}
    for part in _split(text):
        if part is None:
            return None
        pair = _PAIR.fullmatch(part)
        if pair is not None:
            found.setdefault(pair[1], pair[2].strip())
    return found


def inner(text: str, name: str) -> dict[str, str] | None:
    """Return the values inside `Name(...)`; None when it is none of that name."""
    if not text.startswith(f"{name}(") or not text.endswith(")"):
        return None
    return pairs(text[len(name) + 1 : -1])


def dictionary(text: str) -> dict[str, Any] | None:
    """Return a printed dict of plain values, lists and dicts, its texts as a table can hold them.

    None when it is none, or too large or deep.
    """
    if len(text) > MOST_CHARS or not _is_small(text):
        return None
    try:
        found = ast.literal_eval(text)
        if "\\u" in text or "\\U" in text:
            found = encodable(found)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None  # TypeError: a list as a name, as in a line of which a part is missing
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None


def plain(text: str) -> Plain | None:
    """Return a printed value as one; None for None, and for what is none: a class, a list, a dict."""
    if text in ("True", "False"):
        return text == "True"
    if text in ("None", "") or text.endswith((")", "]", "}")):
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    if _BROKEN.fullmatch(text):
        return float(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def told(values: Mapping[str, Any]) -> Iterator[tuple[str, Plain]]:
    """Give what of a dict can be told: no keys and no passwords, what is no plain value as text."""
    for name, value in values.items():
        if value is None or _SECRET.fullmatch(name) is not None:
            continue
        yield name, value if isinstance(value, bool | int | float | str) else str(value)[:500]


def _signs(which: re.Pattern[str], text: str) -> Iterator[tuple[str, int, int]]:
    """Give signs outside quoted texts, from where to where; of a quoted text its quote, to -1 if it does not end."""
    at = 0
    while (found := which.search(text, at)) is not None:
        sign, begin, at = found[0], found.start(), found.end()
        if sign in _ENDS:
            at = next((one.end() for one in _ENDS[sign].finditer(text, at) if one[0] == sign), -1)
        yield sign, begin, at
        if at < 0:
            return


def _is_small(text: str) -> bool:
    """Whether Python's reading of it takes no more than a log may: 500 bytes a token, of which a quoted text is one."""
    if len(text) <= _MOST_TOKENS:
        return True
    tokens = enumerate(_signs(_TOKEN, text))
    return not any(number >= _MOST_TOKENS or sign in _HIDING for number, (sign, _, _) in tokens)


def _split(text: str) -> Iterator[str | None]:
    """Give the parts between commas; at the end None when something is left open."""
    if len(text) > MOST_CHARS:
        yield None
        return
    expected: list[str] = []  # what closes the brackets that are open
    begin = 0
    for mark, first, after in _signs(_MARK, text):
        if mark in _CLOSED_BY:
            expected.append(_CLOSED_BY[mark])
        elif mark in _CLOSING:
            if not expected or expected.pop() != mark:
                yield None
                return
        elif mark == "," and not expected:
            yield text[begin:first]
            begin = after
        elif after < 0:
            yield None
            return
    yield None if expected else text[begin:]
