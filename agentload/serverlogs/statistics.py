"""What do the statistics lines of vLLM and SGLang say, in which units, and which of them are one line of several ranks?

Values are those of the line; SGLang's shares from 0 to 1 are turned into percent. `UNITS` has the unit of each name.
What a name means differs:

* vLLM's `prompt_rate` counts computed prompt tokens of the requests whose first token came in the interval (before
  2026-02 all their prompt tokens); a long prefill shows when it ends. It is no prefill speed.
* vLLM's hit rate is of the last 1,000 requests, not of the interval.
* SGLang's `input_rate` and `generation_rate` divide by the time since the last such line, idle time included.
* SGLang's `accepted_length` has the token that comes with each step in it, as vLLM's `mean_length` has.
"""

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final

UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "prompt_rate": "tokens/s",
        "generation_rate": "tokens/s",
        "input_rate": "tokens/s",
        "running": "requests",
        "waiting": "requests",
        "deferred": "requests",
        "preemptions": "requests",
        "new_sequences": "requests",
        "kv_usage": "%",
        "swa_usage": "%",
        "mamba_usage": "%",
        "prefix_hit_rate": "%",
        "external_hit_rate": "%",
        "mm_hit_rate": "%",
        "new_tokens": "tokens",
        "cached_tokens": "tokens",
        "pending_tokens": "tokens",
        "held_tokens": "tokens",
        "accepted_tokens": "tokens",
        "drafted_tokens": "tokens",
        "mean_length": "tokens/step",
        "accepted_length": "tokens/step",
        "accepted_rate": "tokens/s",
        "drafted_rate": "tokens/s",
        "acceptance": "%",
    }
)
SUMMED: Final = frozenset(("new_sequences", "new_tokens", "cached_tokens", "accepted_tokens", "drafted_tokens"))
"""Counts of what happened since the line before: over many lines they add up. All others are looks or rates."""

_RECENT: Final = 256  # different lines: those of several ranks lie nearer than that
_SAID: Final = 32  # equal lines of one rank, within the time in which another may repeat them
_NEAR_NS: Final = 1_000_000_000  # their stamps of 1 s may differ by one step


class Ranks:
    """Tells a line that another rank of the same engine has written already from one that says something new."""

    def __init__(self) -> None:
        self.repeated = 0
        self._recent: dict[object, list[tuple[int, set[bytes]]]] = {}  # what -> when it was said, and by whom

    def repeats(self, what: Hashable, at: int, rank: bytes) -> bool:
        """Take a line: `what` it says, apart from what ranks measure each for itself. A rank never repeats itself."""
        said = self._recent.pop(what, [])
        self._recent[what] = said  # as the last one
        for then, ranks in said:
            if abs(at - then) <= _NEAR_NS and rank not in ranks:
                ranks.add(rank)
                self.repeated += 1
                return True
        said.append((at, {rank}))
        del said[:-_SAID]
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        return False
