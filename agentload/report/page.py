"""How does a report stand on a terminal? Plain text that fits 80 columns, with tables that are as wide as they must."""

import io
import textwrap
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH: Final = 80
_TABLES: Final = 1_000  # for rich, which would shorten numbers without a word; `_fitting` sees to the width
_SPACES: Final = (2, 1)  # between columns: one where the table does not fit with two
_TEXTS: Final = frozenset(("task", "ended", "variant", "counts", "verdict", "grade", "quantity"))
_LONGEST_VALUE: Final = 40  # characters of a setting's value: a model's path made lines of 140
NONE: Final = "-"  # the source did not say; never 0


class Page:
    """Lines of text and tables, one below the other."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self._console = Console(
            file=self._out, width=_TABLES, color_system=None, highlight=False, emoji=False, markup=False
        )

    def say(self, line: str) -> None:
        """Add a line, which is broken between words where it is too long."""
        wrapped = textwrap.wrap(
            plain(line), _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        self._out.write("\n".join(wrapped) + "\n")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; columns after the first are numbers, those of `_TEXTS` excepted.

        One of numbers that is too wide is put in parts, one below the other, each with the first column: nothing is
        cut. One with texts among its numbers is as wide as it must be: its row is to be read in one line.
        """
        self.say(title)
        widths = [max(map(cell_len, map(plain, column))) for column in zip(columns, *rows, strict=True)]
        texts = any(not column or column in _TEXTS for column in columns[1:])
        for spaces, part in [(_SPACES[0], range(len(columns)))] if texts else _fitting(widths):
            table = Table(box=None, pad_edge=False, padding=(0, spaces, 0, 0))
            for index in part:
                left = index == 0 or columns[index] in _TEXTS
                table.add_column(columns[index], justify="left" if left else "right", no_wrap=True)
            for row in rows:
                table.add_row(*(Text(plain(row[index])) for index in part))
            with self._console.capture() as captured:
                self._console.print(table)
            self._out.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def gap(self) -> None:
        """Add an empty line."""
        self._out.write("\n")

    def text(self) -> str:
        """Return all of it."""
        return self._out.getvalue()


def _fitting(widths: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
    """Return the parts of a table as spaces between columns and the columns' places; its first column is in each."""
    for spaces in _SPACES:
        if sum(widths) + spaces * (len(widths) - 1) <= _WIDTH:
            return [(spaces, range(len(widths)))]
    parts = [[0]]
    for index in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[one] + _SPACES[0] for one in parts[-1]) + widths[index] > _WIDTH:
            parts.append([0])
        parts[-1].append(index)
    return [(_SPACES[0], part) for part in parts]


def plain(text: str) -> str:
    """Without what a terminal would obey: names and reasons come from servers and models."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)


def shortened(value: object) -> str:
    """A value as text of at most 40 characters: of a longer one, such as a path, the middle is left out."""
    text = str(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    head = _LONGEST_VALUE // 3  # the end of a path says more than its beginning
    return f"{text[:head]}...{text[head + 3 - _LONGEST_VALUE :]}"


def seconds(value_ns: float | None, digits: int = 1) -> str:
    """Nanoseconds as seconds; a dash for None."""
    return NONE if value_ns is None else f"{value_ns / 1e9:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as a percentage; a dash for None."""
    return NONE if value is None else f"{value * 100:.1f} %"
