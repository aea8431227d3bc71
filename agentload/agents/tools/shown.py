"""Which files does a shell command show lines of, as far as its words tell?

A coding agent reads as much with `sed -n`, `cat` or `grep -n` as with a tool for reading. Only files that are named
one by one count: what a search through a whole folder shows depends on what it finds.
"""

import shlex
from itertools import groupby
from pathlib import Path
from typing import Final

# Programs that print what is in a file they are given; not those that count, list or look for names.
_READERS: Final = frozenset(("awk", "bat", "cat", "egrep", "grep", "head", "less", "more", "nl", "rg", "sed", "tail"))
_BETWEEN: Final = frozenset("();<>|&")
_MOST_WORDS: Final = 1000


def files_shown(command: str, folder: Path) -> list[str]:
    """Return the files under `folder`, relative to it, that `command` names for a program that shows files."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)[:_MOST_WORDS]
    except ValueError:  # a quote that is not closed
        return []
    found: dict[str, None] = {}
    for between, group in groupby(words, lambda word: bool(word) and set(word) <= _BETWEEN):
        program, *named = group
        if not between and program in _READERS:
            found.update((path, None) for word in named if (path := _inside(word, folder)) is not None)
    return list(found)


def _inside(word: str, folder: Path) -> str | None:
    """Return the path of a file of that name, relative to `folder`; None: there is none in it."""
    if not word or word.startswith("-") or "\0" in word:
        return None
    try:
        path = (folder / word).resolve()
        return path.relative_to(folder.resolve()).as_posix() if path.is_file() else None
    except (OSError, ValueError):  # a name too long for a file, or a file outside
        return None
