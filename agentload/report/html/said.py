"""What does a page say in words and tables? The shape of it: the answer first, every doubt with its advice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from agentload.report.html.figure import Table
from agentload.report.page import NONE, shortened

MANY: Final = 30  # settings or pairs in a table; the text at the page's end has all


@dataclass(frozen=True, slots=True)
class Doubted:
    """One doubt."""

    code: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class Said:
    """The words of a page."""

    title: str
    what: str  # a run, or an experiment, with its name
    outcome: str
    badges: Sequence[str]  # what the sentence claims, in two or three words each
    tone: str  # of the answer: good | dim | bad | warn
    sentence: str
    below: Sequence[str]
    compared_title: str
    compared: Sequence[str]
    fixes: Sequence[str]
    doubts: Sequence[Doubted]
    settings: Table | None
    settings_left: str
    tables: Sequence[Table]
    notes: Sequence[str]
    forecast: Sequence[str]

    def fields(self) -> dict[str, Any]:
        """Return all of it by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


_TONES: Final = {
    "distinguished": "good",
    "success": "good",
    "invalid": "bad",
    "error": "bad",
    "not distinguished": "dim",
}


def tone(outcome: str) -> str:
    """In which tone an outcome is shown."""
    return _TONES.get(outcome, "warn")


def doubted(found: Iterable[Mapping[str, str]], where: str = "") -> list[Doubted]:
    """Each doubt once, in their order."""
    all_of_them = [Doubted(one["code"], where + one["message"].rstrip("."), one["advice"].rstrip(".")) for one in found]
    return list(dict.fromkeys(all_of_them))


def setting_value(value: object) -> str:
    """A setting's value, not longer than a cell may be."""
    return NONE if value is None else shortened(value)


def count(value: int | None) -> str:
    """A number with separators; a dash for None."""
    return NONE if value is None else f"{value:,}"
