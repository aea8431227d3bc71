"""Between which bounds does the offset of two clocks lie, when each fact allows a window of it and one clock may jump?

Each window says: at time `at` of the log's clock, what is to be added to it to get the client's is in [low, high].
While the log's clock runs evenly all windows hold the same offset, so their intersection does. A wall clock jumps by
half hours (summer time) or days (a leap day that a log without years and without a line on that day cannot tell):
windows that leave one another by so much are two pieces with that step between. A window that contradicts the others
by anything else is odd (a clock that was set, a request taken for another): the error that is stated covers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FAR: Final = 1 << 80  # no bound
_HALF_HOUR_NS: Final[int] = 1_800_000_000_000
_QUARTER_NS: Final = _HALF_HOUR_NS // 2  # all zones in use are whole quarters off UTC
_SUMMER: Final[int] = 6  # half hours that summer time may take or give, two changes missed included
_DAY: Final[int] = 48  # half hours


@dataclass(frozen=True, slots=True)
class Window:
    """What one fact allows; times and offsets in ns."""

    at: int
    low: int = -FAR
    high: int = FAR


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the log's clock, from its first window to its last, with one offset."""

    since: int
    until: int
    offset: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offset at any time, and how far off it may be."""

    pieces: tuple[Piece, ...]
    error_ns: int
    odd: int  # windows that contradict the others

    def at(self, time: int) -> int:
        """Return the offset of the piece that `time` is in or nearest to."""
        return min(self.pieces, key=lambda piece: max(piece.since - time, time - piece.until, 0)).offset


@dataclass(slots=True)
class _Sweep:
    """Windows taken one after another; the intersection is kept as the first piece has it."""

    low: int
    high: int
    shift: int  # of the present piece against the first
    spans: list[list[int]]  # first and last time, shift
    odd: list[tuple[int, Window]]

    @classmethod
    def over(cls, windows: Sequence[Window]) -> "_Sweep":
        sweep = cls(-FAR, FAR, 0, [[windows[0].at, windows[0].at, 0]], [])
        for window in windows:
            sweep.take(window)
        return sweep

    def take(self, window: Window) -> None:
        if not self._meets(window, self.shift):
            step = self._step(window)
            if step is None:
                self.odd.append((self.shift, window))
                return
            self.shift += step
            self.spans.append([window.at, window.at, self.shift])
        self.low = max(self.low, window.low - self.shift)
        self.high = min(self.high, window.high - self.shift)
        span = self.spans[-1]
        span[0], span[1] = min(span[0], window.at), max(span[1], window.at)

    def _meets(self, window: Window, shift: int) -> bool:
        return window.low <= self.high + shift and self.low + shift <= window.high

    def _step(self, window: Window) -> int | None:
        apart = max(window.low - self.high - self.shift, self.low + self.shift - window.high)
        if apart < _QUARTER_NS:
            return None
        sign = 1 if window.low > self.high + self.shift else -1
        for halves in (*range(1, _SUMMER + 1), *range(_DAY - _SUMMER, _DAY + _SUMMER + 1)):
            step: int = sign * halves * _HALF_HOUR_NS
            if self._meets(window, self.shift + step):
                return step
        return None


def offsets_of(windows: Sequence[Window], *, wall: bool) -> Offsets | None:
    """Return what the windows leave open; None without a bound on either side.

    Args:
        windows: in any order.
        wall: the log's clock is a wall clock. Where what is left open holds a whole quarter of an hour, as it does
            when both machines' clocks are set, that is taken, else the middle; the error covers both ends either way.
    """
    ordered = sorted(windows, key=lambda window: window.at)
    if not ordered:
        return None
    # From the front or from the back: a window that is odd itself makes all others so if it comes first.
    sweep = min((_Sweep.over(order) for order in (ordered, ordered[::-1])), key=lambda one: len(one.odd))
    if sweep.low <= -FAR // 2 or sweep.high >= FAR // 2:
        return None
    middle = (sweep.low + sweep.high) // 2
    quarter = (middle + _QUARTER_NS // 2) // _QUARTER_NS * _QUARTER_NS
    offset = quarter if wall and sweep.low <= quarter <= sweep.high else middle
    error_ns = max(sweep.high - offset, offset - sweep.low)
    for shift, window in sweep.odd:
        error_ns = max(error_ns, window.low - shift - offset, offset - window.high + shift)
    pieces = sorted((Piece(since, until, offset + shift) for since, until, shift in sweep.spans), key=lambda p: p.since)
    return Offsets(tuple(pieces), error_ns, len(sweep.odd))
