"""What does a configuration say that a Python program printed: `a=1, b=Kind(c=[2, 'x, y']), d=None`?

It is no Python: `dtype=torch.bfloat16` and `load_format=auto` stand there as they are. So it is split at the commas
that no bracket and no quote encloses, and only values that are plain are told apart from text.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MOST_CHARS: Final = 1 << 22  # of a configuration 3 to 12 kB were seen; a finished request may hold its whole answer
_PAIR: Final = re.compile(r"\s*(\w+)=(.*)", re.DOTALL)
_QUOTES: Final = ("'", '"')
_CLOSED_BY: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSING: Final = frozenset(_CLOSED_BY.values())
_MARK: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[()\[\]{},'"]""", re.DOTALL
)  # a whole text, or one sign
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
    """Return a printed dict of plain values, lists and dicts; None when it is none, or too large or deep."""
    if len(text) > MOST_CHARS:
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
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


def _split(text: str) -> Iterator[str | None]:
    """Give the parts between commas; at the end None when something is left open."""
    if len(text) > MOST_CHARS:
        yield None
        return
    expected: list[str] = []  # what closes the brackets that are open
    begin = 0
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark in _CLOSED_BY:
            expected.append(_CLOSED_BY[mark])
        elif mark in _CLOSING:
            if not expected or expected.pop() != mark:
                yield None
                return
        elif mark == "," and not expected:
            yield text[begin : found.start()]
            begin = found.end()
        elif mark in _QUOTES:  # it has no other half
            yield None
            return
    yield None if expected else text[begin:]
