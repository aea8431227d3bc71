"""How does a figure become inline SVG that follows the reader's colours, width and screen reader?

Own writer instead of vl-convert: that one costs 84 MB installed, 3.3 to 4.5 s for a process's first figure and 300
bytes a point (measured on 2 shared cores), and its marks carry fixed colours where these carry classes: one picture
serves light, dark and print. Colours stand in page.css only.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from markupsafe import Markup

WIDE: Final = 760
NARROW: Final = 344  # a phone of 360 CSS pixels, less its margins
FONT: Final = 12
_CHAR: Final = 0.56  # mean width of a character of a sans-serif font, in font sizes; digits have 0.55
_TOP: Final = 30  # room for the y axis' title
_LOG_STEPS: Final = (1, 2, 5)
_EXACT: Final = 1e-9
_NEAR: Final = 0.8


def plain(text: object) -> str:
    """Without what a reader cannot see: control characters and marks that turn the direction of text."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in str(text))


def text_width(text: str) -> float:
    """Estimated width of a label in pixels."""
    return len(text) * FONT * _CHAR


def tick_text(value: float) -> str:
    """A number at an axis: 1,200 or 0.25."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels; with `log` both bounds must be above 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Pixels of a value."""
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def linear(values: Iterable[float], count: int, *, zero: bool = True) -> tuple[float, float, list[float]]:
    """Return bounds that hold `values`, and about `count` round ticks between them.

    `zero`: the axis begins at 0. Without it an axis still does unless all values lie within a fifth of the greatest:
    of two speeds, one twice the other, the lower must not look like nothing.
    """
    known = list(values)
    high = max(known, default=1.0)
    low = min(known, default=0.0)
    if (zero or low < high * _NEAR or low == high) and low >= 0:
        low = 0.0
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / max(count, 1))
    first, last = math.floor(low / step + _EXACT), math.ceil(high / step - _EXACT)
    ticks = [float(f"{at * step:.12g}") for at in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= raw * (1 - _EXACT))


def logarithmic(values: Iterable[float]) -> tuple[float, float, list[float]]:
    """Return bounds above 0 that hold `values`, and ticks at 1, 2 and 5 times the powers of ten."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known), max(known)
    steps = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in _LOG_STEPS
    ]
    below = max((one for one in steps if one <= low * (1 + _EXACT)), default=low)
    above = min((one for one in steps if one >= high * (1 - _EXACT)), default=high)
    if above <= below:
        above = below * 2
    return below, above, [one for one in steps if below <= one <= above]


@dataclass(slots=True)
class Drawing:
    """An SVG in the making; coordinates in CSS pixels at its natural width."""

    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def add(self, part: str) -> None:
        """Add markup that is safe already."""
        self.parts.append(part)

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "t") -> None:
        """Add a label, escaped; one that would leave the picture is moved or shortened."""
        words = plain(words)
        room = {"start": self.width - x, "end": x, "middle": 2 * min(x, self.width - x)}[anchor]
        if text_width(words) > room > 0:
            words = words[: max(int(room / FONT / _CHAR) - 1, 1)] + "\u2026"
        at = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.add(f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}"{at}>{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Add a straight line."""
        self.add(f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{kind}"/>')

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Add a line through points."""
        if points:
            self.add(f'<path d="M{" ".join(f"{_n(x)},{_n(y)}" for x, y in points)}" class="{kind}"/>')

    def bars(self, boxes: Iterable[tuple[float, float]], y: float, height: float, kind: str) -> None:
        """Add many bars of one row as one line with gaps, 9 bytes a bar: (left, right) each, sorted and disjoint."""
        told: list[str] = []
        at = 0  # tenths of a pixel, where the line has come to: rounding does not add up
        for x, to in boxes:
            begin = max(round(x * 10), at)
            end = max(round(to * 10), begin + 5)
            told.append(f"{'m' if told else 'M'}{_tenths(begin - at)} 0h{_tenths(end - begin)}")
            at = end
        if told:
            middle = _n(y + height / 2)
            self.add(
                f'<path transform="translate(0 {middle})" d="{"".join(told)}" stroke-width="{_n(height)}" '
                f'class="bars {kind}"/>'
            )

    def box(self, x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> None:
        """Add a rectangle; `hint` is shown where the pointer rests."""
        end = f"><title>{escape(plain(hint))}</title></rect>" if hint else "/>"
        shape = f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(max(height, 0))}"'
        self.add(f'{shape} class="{kind}"{end}')

    def mark(self, x: float, y: float, size: float, index: int, *, hint: str = "", kind: str = "") -> None:
        """Add a point of the variant with this index: each has a shape of its own besides its colour."""
        look = f' class="{kind}"' if kind else ""
        told = f"<title>{escape(plain(hint))}</title>" if hint else ""
        if index % len(_SHAPES) == 0:
            self.add(
                f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(size)}"{look}' + (f">{told}</circle>" if told else "/>")
            )
            return
        corners = _SHAPES[index % len(_SHAPES)]
        at = "L".join(f"{_n(x + dx * size)},{_n(y + dy * size)}" for dx, dy in corners)
        self.add(f'<path d="M{at}z"{look}' + (f">{told}</path>" if told else "/>"))

    def done(self, name: str, kind: str, title: str, alt: str, label: str) -> Markup:
        """Return the SVG, with its title and description for who does not see it.

        Args:
            name: unique on the page.
            kind: its class.
            title: of the figure.
            alt: what it says.
            label: SIMULATED, or nothing.
        """
        if label:
            self.text(self.width - 2, 12, label, anchor="end", kind="t sim")
        head = (
            f'<svg class="{kind}" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" '
            f'role="img" aria-labelledby="{name}-t {name}-d" xmlns="http://www.w3.org/2000/svg">'
            f'<title id="{name}-t">{escape(plain(title))}</title><desc id="{name}-d">{escape(plain(alt))}</desc>'
        )
        return Markup(head + "".join(self.parts) + "</svg>")  # noqa: S704 - every text in it went through escape()


# Corners around a point, for a size of 1: square, triangle, diamond, triangle on its tip. The circle has none.
_SHAPES: Final[tuple[tuple[tuple[float, float], ...], ...]] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.15), (1.05, 0.85), (-1.05, 0.85)),
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    ((0, 1.15), (1.05, -0.85), (-1.05, -0.85)),
)


def _tenths(value: int) -> str:
    whole, part = divmod(value, 10)
    return f"{whole}.{part}" if part else str(whole)


def _n(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a plot."""

    title: str  # with its unit
    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False
    names: Callable[[float], str] = tick_text


class Plot:
    """A drawing with two axes: `x` and `y` turn values into pixels."""

    def __init__(self, width: int, height: int, x: Axis, y: Axis) -> None:
        self.drawing = Drawing(width, height)
        left = max((text_width(y.names(tick)) for tick in y.ticks), default=0) + 10
        last = text_width(x.names(x.ticks[-1])) / 2 if x.ticks else 0
        right, bottom = width - max(14.0, last + 2), height - 40.0
        self.left, self.right, self.top, self.bottom = left, right, float(_TOP), bottom
        self.x = Scale(x.low, x.high, left + 10, right, x.log)  # a point at its begin leaves the y labels free
        self.y = Scale(y.low, y.high, bottom, float(_TOP), y.log)
        self._grid(x, y)

    def _grid(self, x: Axis, y: Axis) -> None:
        d = self.drawing
        above = math.inf
        for tick in y.ticks:
            at = self.y(tick)
            d.line(self.left, at, self.right, at, "grid")
            if above - at >= FONT + 2:  # labels that would touch are left out
                d.text(self.left - 6, at + 4, y.names(tick), anchor="end")
                above = at
        d.line(self.left, self.bottom, self.right, self.bottom, "axis")
        free = 0.0
        for tick in x.ticks:
            at, words = self.x(tick), x.names(tick)
            half = text_width(words) / 2
            d.line(at, self.bottom, at, self.bottom + 4, "axis")
            if at - half >= free:
                d.text(min(at, d.width - half), self.bottom + 18, words, anchor="middle")
                free = at + half + 6
        d.text(2, 12, y.title)
        d.text(self.right, self.bottom + 35, x.title, anchor="end")
