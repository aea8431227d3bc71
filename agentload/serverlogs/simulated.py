"""Does a log say itself that no machine was measured?

The simulated ds4-server begins its log with a line that says so, because a log outlives its run's manifest, and a
simulated number must never pass for a measured one.
"""

from typing import Final, Protocol

HEAD_BYTES: Final = 65_536  # of a log that is read once, from a pipe
_NOTICE: Final = b"ds4: simulated by agentload: "


class Searchable(Protocol):
    """Bytes, or a file that is mapped to memory."""

    def find(self, sub: bytes, start: int = 0, /) -> int:
        """Return where `sub` begins, from `start` on; -1: nowhere."""
        ...

    def __getitem__(self, place: slice, /) -> bytes:
        """Return a part."""
        ...


def says_so(log: Searchable) -> bool:
    """Tell whether a line of a log, or of its first bytes, is the simulated server's notice."""
    at = log.find(_NOTICE)
    while at > 0 and log[at - 1 : at] != b"\n":
        at = log.find(_NOTICE, at + 1)
    return at >= 0
