"""How long did a stream of tokens wait for other requests' prefills, and for which?

A server that prefills one prompt lets the others' decode wait, or decodes them in slower steps. What the client sees of
that is a gap between two tokens. The usual gap of a stream is the median of its gaps beside which no other request
prefilled; where it has fewer than 8 of these, that of its agent's other streams, of all streams, and last of all of its
own gaps (then too long). A gap is a stall when it is at least twice the usual one and 20 ms longer, and another request
prefilled meanwhile. Of it counts what goes beyond the usual gap, at most the time in which others prefilled; time in
which several did is shared among them evenly.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import lcm
from typing import Final

import numpy as np

from agentload.core.intervals import Intervals, Times

TIMES: Final = 2  # a stall is at least so many usual gaps long
LEAST_NS: Final = 20_000_000  # and so much longer: less is the network, or a client that waits for a core
LEAST_GAPS: Final = 8  # whose median says what is usual


@dataclass(frozen=True, slots=True)
class Prefill:
    """One request's prefill, [start, end) in ns."""

    request: str
    agent: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Stream:
    """One request's tokens: receive stamps in ns, ascending. `begins`: where its decode begins, when that is known."""

    request: str
    agent: str | None
    stamps: tuple[int, ...]
    begins: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """One gap of a stream, [begin, end) in ns, that is longer than usual beside others' prefills."""

    stream: int  # index
    begin: int
    end: int
    usual_ns: int
    stalled_ns: int  # of the gap, what others' prefills took
    by: tuple[tuple[int, int], ...]  # (index of the prefill, its ns); they add up to `stalled_ns`


class Prefills:
    """All prefills, to be asked which of them lay in a time."""

    def __init__(self, prefills: Sequence[Prefill]) -> None:
        self.all = prefills
        self._starts = np.array([one.start for one in prefills], np.int64)
        self._ends = np.array([one.end for one in prefills], np.int64)

    def beside(self, request: str, begin: int, end: int) -> list[int]:
        """Return the indices of those of other requests that have part of [begin, end)."""
        found = np.flatnonzero((self._starts < end) & (self._ends > begin) & (self._starts < self._ends))
        return [index for index in found.tolist() if self.all[index].request != request]

    def spans(self, indices: Sequence[int]) -> Intervals:
        """Return the intervals of some."""
        return Intervals(self._starts[list(indices)], self._ends[list(indices)])


@dataclass(frozen=True, slots=True)
class _Gaps:
    edges: Times
    lengths: Times
    covered: Times  # of each gap, the time in which others prefilled
    beside: tuple[int, ...]  # those prefills
    between: int  # the first so many gaps are not between two tokens


def stalls_of(streams: Sequence[Stream], prefills: Prefills) -> list[Stall]:
    """Return the stalls of all streams, stream by stream in the order of time."""
    gaps = [_gaps(one, prefills) for one in streams]
    usual = _usual(streams, gaps)
    found: list[Stall] = []
    for number, each in enumerate(gaps):
        if each is None or (normal := usual[number]) is None:
            continue
        beyond = each.lengths - normal
        stalled = np.minimum(beyond, each.covered)
        long = (each.lengths >= TIMES * normal) & (beyond >= LEAST_NS) & (stalled > 0)
        for place in np.flatnonzero(long).tolist():
            begin, end, took = int(each.edges[place]), int(each.edges[place + 1]), int(stalled[place])
            shares = _shares(prefills, each.beside, begin, end, took)
            found.append(Stall(number, begin, end, normal, took, shares))
    return found


def _gaps(stream: Stream, prefills: Prefills) -> _Gaps | None:
    """A stream's gaps; None where it has none. What comes after a stamp that runs backwards is taken as at it."""
    begins = stream.begins is not None and bool(stream.stamps) and stream.begins < stream.stamps[0]
    stamps = (stream.begins, *stream.stamps) if begins else stream.stamps
    if len(stamps) < 2:
        return None
    edges = np.maximum.accumulate(np.array(stamps, np.int64))
    beside = prefills.beside(stream.request, int(edges[0]), int(edges[-1]))
    return _Gaps(edges, np.diff(edges), _covered(prefills.spans(beside), edges), tuple(beside), int(begins))


def _covered(spans: Intervals, edges: Times) -> Times:
    """Of each piece between two edges, how much the union of `spans` covers."""
    union = spans.union()
    if len(union) == 0:
        return np.zeros(len(edges) - 1, np.int64)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(union.ends - union.starts)))
    at = np.searchsorted(union.starts, edges, side="right")
    inside = np.where(at > 0, np.minimum(edges, union.ends[at - 1]) - union.starts[at - 1], 0)
    return np.diff(np.where(at > 0, before[at - 1] + inside, 0))


def _usual(streams: Sequence[Stream], gaps: Sequence[_Gaps | None]) -> list[int | None]:
    """The usual gap of each stream, in ns; None where it has no gap at all."""
    alone: list[Times] = []
    of_agent: dict[str | None, list[Times]] = defaultdict(list)
    for stream, each in zip(streams, gaps, strict=True):
        free = (
            np.zeros(0, np.int64) if each is None else each.lengths[each.between :][each.covered[each.between :] == 0]
        )
        alone.append(free)
        of_agent[stream.agent].append(free)
    pooled = {agent: _median(np.concatenate(each)) for agent, each in of_agent.items()}
    everyone = _median(np.concatenate(alone)) if alone else None
    usual: list[int | None] = []
    for stream, each, free in zip(streams, gaps, alone, strict=True):
        known = next((one for one in (_median(free), pooled[stream.agent], everyone) if one is not None), None)
        if known is None and each is not None and len(each.lengths) > each.between:
            known = int(np.median(each.lengths[each.between :]))
        usual.append(known)
    return usual


def _median(gaps: Times) -> int | None:
    return int(np.median(gaps)) if len(gaps) >= LEAST_GAPS else None


def _shares(
    prefills: Prefills, beside: Sequence[int], begin: int, end: int, stalled: int
) -> tuple[tuple[int, int], ...]:
    """Share `stalled` ns of a gap among the prefills in it, by the time that each had of it.

    In whole ns by the largest remainders, so that none is given more than it had.
    """
    inside = [(max(begin, prefills.all[at].start), min(end, prefills.all[at].end), at) for at in beside]
    inside = [one for one in inside if one[0] < one[1]]
    edges = sorted({edge for start, stop, _ in inside for edge in (start, stop)})
    pieces = [
        (high - low, [at for start, stop, at in inside if start <= low and high <= stop])
        for low, high in pairwise(edges)
    ]
    whole = lcm(*(len(here) for _, here in pieces if here))
    had: dict[int, int] = defaultdict(int)  # times `whole`
    for length, here in pieces:
        for at in here:
            had[at] += length * (whole // len(here))
    total = sum(had.values())
    parts = {at: divmod(stalled * part, total) for at, part in had.items()}
    left = stalled - sum(took for took, _ in parts.values())
    more = set(sorted(parts, key=lambda at: -parts[at][1])[:left])
    shares = ((at, took + (at in more)) for at, (took, _) in parts.items())
    return tuple(sorted(shares, key=lambda one: -one[1]))
