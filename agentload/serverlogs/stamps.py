"""When were a server's own time stamps, on the clock of whoever received its lines?

A line is stamped by the server when it queues it and by us when we receive it; what lies between is delay and never
negative. So for all lines of one process

    offset = min(received - stamped)

is too large by the delay of the least delayed line. That delay cannot be seen, but how steady the floor is can: the
lines are cut into stretches, each stretch has its least delayed line, and the spread of those minima covers a delay
that comes and goes and a drift of one clock against the other. The error stated is that spread, or 1 ms where it is
less: the floors of two real runs lay within 0.06 ms, single lines were up to 4.2 ms late.
"""

from typing import Final

MIN_ERROR_NS: Final = 1_000_000
_FIRST_STRETCH: Final = 16  # lines
_MOST_STRETCHES: Final = 64


class ReceiveClock:
    """Collects pairs of stamps in flat memory: when the stretches are too many, two and two become one."""

    def __init__(self) -> None:
        self._minima: list[int] = []
        self._stretch = _FIRST_STRETCH
        self._lines = 0  # in the present stretch
        self._least: int | None = None
        self._widest: int | None = None  # largest difference, for when there is one stretch only

    def add(self, received_ns: int, stamped_ns: int) -> None:
        """Add one line: received at Unix ns, stamped at ns of the server's clock."""
        ahead = received_ns - stamped_ns
        self._least = ahead if self._least is None else min(self._least, ahead)
        self._widest = ahead if self._widest is None else max(self._widest, ahead)
        self._lines += 1
        if self._lines < self._stretch:
            return
        self._minima.append(self._least)
        self._least, self._lines = None, 0
        if len(self._minima) == _MOST_STRETCHES:
            self._minima = [min(pair) for pair in zip(self._minima[::2], self._minima[1::2], strict=True)]
            self._stretch *= 2

    def _floors(self) -> list[int]:
        """Minima of the stretches; what came after the last whole stretch belongs to it."""
        if self._least is None:
            return list(self._minima)
        if not self._minima:
            return [self._least]
        return [*self._minima[:-1], min(self._minima[-1], self._least)]

    def offset_ns(self) -> int | None:
        """What to add to the server's times to get Unix ns; None without any line."""
        floors = self._floors()
        return min(floors) if floors else None

    def error_ns(self) -> int | None:
        """How far off `offset_ns` may be; with fewer lines than two stretches the whole spread of the delays."""
        floors = self._floors()
        if not floors or self._widest is None:
            return None
        highest = max(floors) if len(floors) > 1 else self._widest
        return max(MIN_ERROR_NS, highest - min(floors))
