"""What did one cold prompt cost, and what did it do to those who were writing when it came?

The quantities of the synthetic probe (PROTOCOL sections 1 and 2, report A tables 1, 3, 8 and 10), each from stamps and
intervals in integer ns. The window is half-open, [begin, end): from the first begin of a cold prompt's prefill to the
last end of one.

A gap belongs to the window when they share at least half of the shorter of the two, and then it counts whole. Cut at
the edge it would be shorter than anybody waited. Left out where it reaches over an edge, it would hide the worst case:
a server that stalls everybody for the whole prefill has one gap, and that one straddles both edges. And by a touch
alone the clocks would decide: of a real prefill of 49.5 s (llama.cpp) the ordinary gaps before and after it, of 0.13
and 0.07 s, each shared 0.3 ms, and the median was one of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any, Final

from agentload.core.accounting import NS_PER_S, exposure, ratio
from agentload.core.intervals import Intervals

WITHIN_TOKENS: Final = 8  # so far a prompt's counted length may be from what was asked for
LEAST_GAPS: Final = 20  # a 99th percentile of fewer is the longest one or beside it, and says nothing of its own
THROUGHOUT: Final = 0.95  # of the window: a session that changes turns in it is still one that decodes

Span = tuple[int, int]  # half-open, ns

# ---- loads -----------------------------------------------------------------------------------------------------------

_DECODERS: Final = (0, 3)  # of a scenario that does not say
_PROMPTS: Final = (1,)
_SEGMENT: Final = re.compile(r"(?P<load>d(?P<decoders>\d+)(?:k(?P<prompts>\d+))?|n(?P<left>\d+))-r(?P<repeat>\d+)")


@dataclass(frozen=True, slots=True)
class Load:
    """Under what a cold prompt comes: `d3`, three that decode; `d3k3`, three such prompts at once; `n16`."""

    decoders: int
    prompts: int = 1
    nearly_finished: int | None = None  # tokens that the only decoder has left when the prompt comes

    @property
    def name(self) -> str:
        """As segments are called after it."""
        if self.nearly_finished is not None:
            return f"n{self.nearly_finished}"
        return f"d{self.decoders}" + (f"k{self.prompts}" if self.prompts > 1 else "")

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Its place among others: by decoders, then by prompts; nearly finished ones last."""
        return self.nearly_finished is not None, self.nearly_finished or self.decoders, self.prompts

    @property
    def shown(self) -> str:
        """As a sentence says it."""
        if self.nearly_finished is not None:
            return f"one decoder with {self.nearly_finished} tokens left"
        beside = f"{self.decoders} decoder{'s' * (self.decoders != 1)}" if self.decoders else "no load"
        return f"{self.prompts} prompts at once, {beside}" if self.prompts > 1 else beside


def loads_of(asked: Mapping[str, Any]) -> tuple[Load, ...]:
    """Return the loads that a scenario's table `probe` asks for, each once, in its order."""
    prompts = asked.get("prompts") or _PROMPTS
    found = [Load(decoders, at_once) for decoders in asked.get("decoders") or _DECODERS for at_once in prompts]
    if (left := asked.get("nearly_finished")) is not None:
        found.append(Load(1, 1, left))
    return tuple(dict.fromkeys(found))


def load_of(segment: str) -> tuple[Load, int] | None:
    """Return the load and the repeat (from 1) that a segment's name says: `d3k3-r2`; None: it is no probe's."""
    found = _SEGMENT.fullmatch(segment)
    if found is None:
        return None
    left, repeat = found["left"], int(found["repeat"])
    if left is not None:
        return Load(1, 1, int(left)), repeat
    return Load(int(found["decoders"]), int(found["prompts"] or 1)), repeat


# ---- who was writing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of a decoder as it came: a stamp of each piece that carries a token, in order."""

    stamps: tuple[int, ...]  # ns
    tokens: int | None  # by the server's count; None: not told, a piece then stands for a token

    @property
    def weight(self) -> float:
        """Tokens that a piece stands for: 1 where a server sends each token as it comes."""
        return 1.0 if self.tokens is None or not self.stamps else self.tokens / len(self.stamps)


@dataclass(frozen=True, slots=True)
class Gaps:
    """How long the sessions that write waited between two pieces of one answer."""

    count: int
    median_ns: float
    p99_ns: int  # nearest rank
    longest_ns: int
    straddling: int  # of these, how many reach out of the window


def nearest_rank(ordered: Sequence[int], share: float) -> int:
    """Return the smallest of the sorted values that at least `share` of them do not exceed: the ceil(share x n)-th.

    Raises:
        ValueError: there is no value, or the share is not above 0 and at most 1.
    """
    if not ordered or not 0 < share <= 1:
        raise ValueError(f"expected values and a share above 0 and at most 1, got {len(ordered)} and {share}")
    # 0.99 x 100 is 99.00000000000001 in some orders of rounding: the rank would be 100
    return ordered[ceil(round(share * len(ordered), 9)) - 1]


def _belongs(before: int, after: int, begin: int, end: int) -> bool:
    if before == after:
        return begin <= before < end
    shared = min(after, end) - max(before, begin)
    return shared > 0 and 2 * shared >= min(after - before, end - begin)


def gaps(turns: Iterable[Turn], window: Span) -> Gaps | None:
    """Return the gaps that belong to the window (report A, table 10); None where there is none.

    Between two turns there is no gap: the next prompt's way and prefill lie there. Pieces that came together have a gap
    of 0, which counts where it lies inside.
    """
    begin, end = window
    found = [
        (after - before, before < begin or after > end)
        for turn in turns
        for before, after in pairwise(turn.stamps)
        if _belongs(before, after, begin, end)
    ]
    if not found:
        return None
    lengths = sorted(length for length, _ in found)
    return Gaps(
        count=len(lengths),
        median_ns=median(lengths),
        p99_ns=nearest_rank(lengths, 0.99),
        longest_ns=lengths[-1],
        straddling=sum(out for _, out in found),
    )


def tokens_in(turns: Iterable[Turn], window: Span) -> float:
    """Return the tokens whose stamps lie in the window, each piece weighed with its answer's tokens a piece."""
    begin, end = window
    return sum(turn.weight * sum(begin <= stamp < end for stamp in turn.stamps) for turn in turns)


def speed_alone(decoders: Iterable[Sequence[Turn]], window: Span) -> float | None:
    """Return what the decoders write together while nobody prefills, in tok/s; None: one of them cannot be told.

    Of each the tokens after its first stamp in the window until its last one, over the time between these two: a window
    that begins or ends anywhere between two tokens says the same.
    """
    begin, end = window
    total = 0.0
    for turns in decoders:
        stamped = sorted((stamp, turn.weight) for turn in turns for stamp in turn.stamps if begin <= stamp < end)
        if len(stamped) < 2 or stamped[0][0] == stamped[-1][0]:
            return None
        total += sum(weight for _, weight in stamped[1:]) * NS_PER_S / (stamped[-1][0] - stamped[0][0])
    return total or None


def coverage(decodes: Iterable[Span], window: Span) -> float | None:
    """Return the share of the window in which one of the spans was open; None: the window is empty."""
    begin, end = window
    return ratio(Intervals.of(decodes).clip(begin, end).measure_ns(), end - begin)


# ---- the prompt ------------------------------------------------------------------------------------------------------


def exposed(prefills: Iterable[Span], decodes: Iterable[Span]) -> float | None:
    """Return the share of the prefill time in which some decoder decodes (PROTOCOL section 1)."""
    return exposure(Intervals.of(prefills), Intervals.of(decodes))


def utilisation(meanwhile_tok_s: float | None, alone_tok_s: float | None) -> float | None:
    """Return decode tok/s while the prefill runs / the same decoders' tok/s alone (PROTOCOL section 1); at most 1.

    Not the decode share, which is 100 % with decoders that never stop. Above 1 is noise: nobody writes faster for it.
    """
    found = ratio(meanwhile_tok_s, alone_tok_s)
    return None if found is None else min(1.0, found)


def cost_per_token_s(prefill_s: float, tokens: int, steps: float, step_s: float | None) -> float | None:
    """Return the time of a prompt token without decode steps: (prefill time - steps in it x a step alone) / tokens.

    `steps`: of the batch, each a token of every decoder. What a step costs more beside a prefill stays in it. None
    where steps took place and nobody knows what one takes, or they alone would have taken longer than all did.
    """
    if steps and step_s is None:
        return None
    left_s = prefill_s - steps * (step_s or 0.0)
    return None if left_s < 0 else ratio(left_s, tokens)


def spread(values: Sequence[float]) -> float | None:
    """Return (largest - smallest) / median: how far repeats are apart; None of fewer than two, or around 0."""
    if len(values) < 2:
        return None
    return ratio(max(values) - min(values), median(values))


def fairness_spread_ns(ends_ns: Sequence[int]) -> int | None:
    """Return the time between the first and the last end of prompts that came together; None of fewer than two.

    Report A: three at once end within 0.4 to 0.5 s of each other.
    """
    return max(ends_ns) - min(ends_ns) if len(ends_ns) > 1 else None
