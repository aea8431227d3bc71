"""What is left to say of a log of no known format? How many lines it has, its markers, and what it looks like."""

from typing import Final

from agentload.core.records import Boot, LogFacts, Timeline
from agentload.serverlogs.lines import Kind, LineWalker

NAME: Final = "unknown"


class Reader:
    """A `core.ports.LogReader` to which each line is unknown, markers and blank lines aside."""

    def __init__(self) -> None:
        self._walker = LineWalker(lambda _number, _offset, _text: Kind.UNKNOWN)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        self._walker.feed(data)

    def open_requests(self) -> int:
        """None can be seen."""
        return 0

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        self._walker.close()
        return LogFacts(
            format=NAME,
            timeline=Timeline.WALL,
            resolution_ns=1_000_000_000,
            clock_error_ns=None,
            size=self._walker.size,
            lines=self._walker.tally.count(),
            boots=(Boot(0, 1, None),),
            settings=(),
            requests=(),
            markers=tuple(self._walker.markers),
        )
