"""What is a figure of the page: a picture in two widths, what it shows in words, and its numbers as a table?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from agentload.report.html.svg import NARROW, WIDE, Drawing

SIMULATED = "SIMULATED"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; columns after the first `texts` ones are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1
    caption: str = ""
    folded: bool = False  # behind a summary: long, and not what the answer rests on


@dataclass(frozen=True, slots=True)
class Legend:
    """What a colour and a shape stand for. `look`: a class of page.css."""

    look: str
    words: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, ready for the template."""

    name: str  # an anchor, unique on the page
    title: str
    words: str  # how to read it, and what was left out
    wide: Markup
    narrow: Markup
    legend: tuple[Legend, ...] = ()
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What every figure of a page needs: who is drawn, and whether it is simulated."""

    simulated: bool

    @property
    def label(self) -> str:
        """What stands in each picture."""
        return SIMULATED if self.simulated else ""

    def figure(
        self,
        name: str,
        title: str,
        alt: str,
        draw: Callable[[int], Drawing],
        *,
        words: str = "",
        legend: Sequence[Legend] = (),
        table: Table | None = None,
    ) -> Figure:
        """Draw in both widths. `alt`: what the picture says, in a sentence with its numbers."""
        told = f"{self.label}: {alt}" if self.label else alt
        wide, narrow = (
            draw(width).done(f"{name}-{kind}", kind, title, told, self.label)
            for width, kind in ((WIDE, "wide"), (NARROW, "narrow"))
        )
        return Figure(name, title, words, wide, narrow, tuple(legend), table)


def variant_look(index: int) -> str:
    """The class of a variant's colour; there are eight, after which they come again."""
    return f"v{index % 8}"
