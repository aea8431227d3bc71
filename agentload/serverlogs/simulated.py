"""Does a log say itself that no machine was measured?

The simulated ds4-server begins its log with a line that says so, because a log outlives its run's manifest, and a
simulated number must never pass for a measured one.
"""

from typing import Final

HEAD_BYTES: Final = 65_536
_NOTICE: Final = b"ds4: simulated by agentload: "


def says_so(head: bytes) -> bool:
    """Tell whether a line in a log's first bytes is the simulated server's notice."""
    return head.startswith(_NOTICE) or b"\n" + _NOTICE in head
