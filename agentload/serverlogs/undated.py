"""How many lines of ds4-server lost the date of their stamp? Posters cut it off, or all of the stamp.

`0914 20:01:23 ds4-server: ...` is what the server writes. Without a date there is no time, so that such lines are
unknown; but it is known what they are.
"""

import re
from typing import Final

from agentload.serverlogs import ds4_grammar as grammar

_CUT: Final = re.compile(rb"(\d\d:\d\d:\d\d )?(?:ds4-server: |\w+ ctx=\d+\.\.\d+:\d+ )")
COMMAND: Final = "sed -E 's/^[0-9:]{8} ds4-server: /0101 &/'"  # 1 January will do: order and durations hold
"""Gives lines that have their time of day a date."""


def count(head: bytes) -> tuple[int, int]:
    """Return how many lines of the head of a ds4 log have no date, and how many of them have their time of day."""
    found = [
        one
        for line in head.split(b"\n")
        if (one := _CUT.match(line)) is not None and grammar.UNSTAMPED.fullmatch(line.rstrip(b"\r")) is None
    ]
    return len(found), sum(one[1] is not None for one in found)
