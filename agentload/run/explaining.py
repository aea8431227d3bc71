"""What is wrong with a file that a user wrote, in one line: what was expected, what there is, and on which line?"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from typing import Any, Final

from pydantic_core import ErrorDetails

# What pydantic finds, in our words; tests hold it against each kind of error that a scenario can cause.
_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "greater_than_equal": lambda context: f"expected at least {context['ge']:.0f}",
    "less_than_equal": lambda context: f"expected at most {context['le']:.0f}",
    "finite_number": lambda _: "expected a finite number",
    "int_type": lambda _: "expected a whole number",
    "int_parsing": lambda _: "expected a whole number",
    "int_parsing_size": lambda _: "expected a whole number of a sensible size",
    "int_from_float": lambda _: "expected a whole number",
    "float_type": lambda _: "expected a number",
    "float_parsing": lambda _: "expected a number",
    "bool_type": lambda _: "expected true or false",
    "bool_parsing": lambda _: "expected true or false",
    "string_type": lambda _: "expected text",
    "string_unicode": lambda _: "expected text in UTF-8",
    "string_too_short": lambda _: "expected some text",
    "string_pattern_mismatch": lambda _: (
        "expected 1 to 64 letters, digits, dots, dashes and underscores, with a letter or digit first"
    ),
    "literal_error": lambda context: f"expected {context['expected']}",
    "tuple_type": lambda _: "expected a list",
    "too_short": lambda context: f"expected a list of at least {context['min_length']}",
    "dict_type": lambda _: "expected a table",
    "model_type": lambda _: "expected a table",
    "value_error": lambda context: str(context["error"]),
}


def explain(error: ErrorDetails, keys: Callable[[list[str]], Sequence[str]]) -> str:
    """Return one line: what was expected, and what there is. `keys` gives the keys of the table at a path."""
    kind, path = error["type"], [part for part in error["loc"] if isinstance(part, str)]
    if kind == "extra_forbidden":
        return f"there is no such key: there are {', '.join(keys(path[:-1]))}"
    if kind == "missing":
        return "expected a value, there is none"
    words = _WORDS.get(kind)
    said = words(error.get("ctx", {})) if words is not None else error["msg"]
    return said if kind == "value_error" else f"{said}, got {_shown(error['input'])}"


def _shown(value: Any) -> str:
    """A value as TOML has it, where that is another way than Python's."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, (date, time)) else f"{value!r:.80}"  # a datetime is a date


def toml_line(text: str, path: Sequence[str]) -> int | None:
    """Return the line (1-based) of a TOML text on which the value at `path` begins; None when that is not plain to see.

    Tables, lists of tables ([[x]]; in a path its tables are 0, 1, ...), dotted keys and inline tables are followed; of
    a quoted key or a multi-line string nothing is known.
    """
    table: tuple[str, ...] = ()
    lists: dict[tuple[str, ...], int] = {}  # the number of each list's last table
    best: tuple[int, int] | None = None  # how much of the path, line
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if header := re.match(r"(\[\[?)\s*([A-Za-z0-9_.-]+)\s*\]", stripped):
            table = _table(header[2].split("."), lists, new=header[1] == "[[")
            here = table[: len(path)]  # of [a.b] a is told too, where it has no header of its own
        elif key := re.match(r"([A-Za-z0-9_.-]+)\s*=", stripped):
            here = (*table, *key[1].split("."))
        else:
            continue
        if here and here == tuple(path[: len(here)]) and (best is None or len(here) > best[0]):
            best = (len(here), number)
    return None if best is None else best[1]


def _table(names: Sequence[str], lists: dict[tuple[str, ...], int], *, new: bool) -> tuple[str, ...]:
    """Return the path of a header; a table `new` in a list counts that list up."""
    path: tuple[str, ...] = ()
    for depth, name in enumerate(names, 1):
        path = (*path, name)
        if new and depth == len(names):
            lists[path] = lists.get(path, -1) + 1
        if path in lists:
            path = (*path, str(lists[path]))
    return path
