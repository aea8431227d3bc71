"""How is text shown, kept or put into a command that may hold anything?

A file's name may have a newline in it, or what a terminal obeys. A request's id may be half of a surrogate pair, which
JSON and a printed dict can name (`\\ud83d`) and no UTF-8 can: no table and no file.
"""

import shlex
import unicodedata
from pathlib import Path
from typing import Any


def shown(text: str) -> str:
    r"""Return it on one line, with what does not print as its escape: a newline as `\n`, an escape sign as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or unicodedata.category(one) == "Zs" else one.encode("unicode_escape").decode("ascii")
        for one in text
    )


def in_shell(path: Path | str) -> str:
    """Return a path as one word of a command that a user may paste; it is no option either."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def encodable(value: Any) -> Any:
    r"""Return what JSON holds or a program printed, in all its texts half a surrogate pair as its escape: `\ud83d`."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple | set):
        return type(value)(map(encodable, value))
    if isinstance(value, dict):
        return {encodable(name): encodable(one) for name, one in value.items()}
    return value
