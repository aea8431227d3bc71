"""Between which of a log's own times do the markers stand?

A marker carries the client's time, the lines around it the server's: what aligns the two clocks where nothing else does
(`core.clocks`).
"""

from collections.abc import Sequence
from dataclasses import replace

from agentload.core.records import Marker


class Neighbours:
    """Times of the last line before and of the first one after each marker, as far as they have one."""

    def __init__(self) -> None:
        self._around: dict[int, list[int | None]] = {}
        self.waiting: list[int] = []  # markers after which no line with a time has come

    def mark(self, index: int, before_ns: int | None) -> None:
        """Marker `index` (from 0) stands here."""
        self._around[index] = [before_ns, None]
        self.waiting.append(index)

    def line(self, at_ns: int) -> None:
        """A line with a time stands here."""
        for index in self.waiting:
            self._around[index][1] = at_ns
        self.waiting.clear()

    def move(self, by_ns: int, since_ns: int) -> None:
        """Move the times from `since_ns` on: the log's clock turns out to have jumped there."""
        for around in self._around.values():
            around[:] = [at if at is None or at < since_ns else at + by_ns for at in around]

    def placed(self, markers: Sequence[Marker]) -> tuple[Marker, ...]:
        """Return the markers with what is known."""
        return tuple(
            replace(marker, before_ns=around[0], after_ns=around[1])
            if (around := self._around.get(index)) is not None
            else marker
            for index, marker in enumerate(markers)
        )
