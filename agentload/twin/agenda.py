"""What happens next? Calls in order of their virtual time; those of one instant in the order they were noted."""

import heapq
from collections.abc import Callable
from typing import Any, Final

Call = Callable[..., None]

MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000


def to_ns(seconds: float) -> int:
    """Return the nearest whole number of ns."""
    return round(seconds * SECOND_NS)


class Agenda:
    """Virtual time, in ns since the Unix epoch, and what is to happen later."""

    def __init__(self, start_ns: int) -> None:
        self.now_ns = start_ns
        self._noted: list[tuple[int, int, Call, tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time_ns: int, call: Call, *args: Any) -> None:
        """Note that `call(*args)` happens at `time_ns`.

        Raises:
            ValueError: that time has passed.
        """
        if time_ns < self.now_ns:
            raise ValueError(f"expected a time of {self.now_ns} or later, got {time_ns}")
        self._count += 1
        heapq.heappush(self._noted, (time_ns, self._count, call, args))

    def next_ns(self) -> int | None:
        """When the next call is due; None when nothing is noted."""
        return self._noted[0][0] if self._noted else None

    def advance(self, to_ns: int) -> None:
        """Make all calls that are due up to and at `to_ns`, then let that be the time."""
        while self._noted and self._noted[0][0] <= to_ns:
            self.now_ns, _, call, args = heapq.heappop(self._noted)
            call(*args)
        self.now_ns = max(self.now_ns, to_ns)
