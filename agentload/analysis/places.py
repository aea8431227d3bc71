"""Which segment does a line of a log stand in?

Between the lines of a segment's markers; of several it is the one that begun last, by the place of its begin. A marker
that stands there twice counts at its first place.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from agentload.core.markers import BEGIN
from agentload.core.packed_statistics import lines_of
from agentload.core.records import Marker, Request, Segment, Statistic


@dataclass(frozen=True, slots=True)
class Stretch:
    """A segment, and between which lines of the log it stands."""

    segment: Segment
    after: int
    before: int | None  # None: it does not end

    def holds(self, line: int) -> bool:
        """Whether a line (1-based) stands in it."""
        return self.after < line and (self.before is None or line < self.before)

    def held(self, statistics: Sequence[Statistic]) -> Sequence[Statistic]:
        """Return those that stand in it; `statistics` are in the order of the log."""
        lines = lines_of(statistics)
        first = bisect_right(lines, self.after)
        return statistics[first : None if self.before is None else bisect_left(lines, self.before, first)]


def stretches(segments: Iterable[Segment], markers: Sequence[Marker]) -> list[Stretch]:
    """Return where each segment of a log stands; `markers` are the log's, which the segments were made of."""
    lines = {
        (one.run, one.segment, one.action == BEGIN, one.at_ns): one.proof.line
        for one in reversed(markers)
        if one.proof is not None
    }
    return [
        Stretch(
            one,
            lines[one.run, one.segment, True, one.begin_ns],
            None if one.end_ns is None else lines[one.run, one.segment, False, one.end_ns],
        )
        for one in segments
    ]


class Places:
    """The segment of any line: found among sorted lines, for there may be thousands of segments and a million rows."""

    def __init__(self, found: Sequence[Stretch]) -> None:
        # Between two neighbours of these lines nothing begins or ends: one segment, or none, holds all of them.
        edges = {one.after + 1 for one in found} | {one.before for one in found if one.before is not None}
        self._lines = sorted(edges)
        self._segments: list[Segment | None] = []
        coming = sorted(range(len(found)), key=lambda index: found[index].after, reverse=True)
        begun: list[tuple[int, int]] = []  # the one begun last is in front; what has ended goes when it comes there
        for line in self._lines:
            while coming and found[coming[-1]].after < line:
                index = coming.pop()
                heappush(begun, (-found[index].after, index))
            while begun and not found[begun[0][1]].holds(line):
                heappop(begun)
            self._segments.append(found[begun[0][1]].segment if begun else None)

    def of(self, line: int) -> Segment | None:
        """Return the segment that a line stands in; of several the one that begun last."""
        index = bisect_right(self._lines, line) - 1
        return self._segments[index] if index >= 0 else None

    def placed(self, row: Request) -> Request:
        """Give a row the segment that its first line stands in."""
        proofs = (row.prefill_start_proof, row.prefill_proof, row.decode_start_proof, row.decode_proof)
        line = min((proof.line for proof in proofs if proof is not None), default=None)
        segment = None if line is None else self.of(line)
        return row if segment is None else replace(row, run=segment.run, segment=segment.segment)


def on_own_timeline(
    segments: Iterable[Segment], first_ns: Mapping[tuple[str, str | None], int], markers: Iterable[Marker]
) -> list[Segment]:
    """Move segments whose markers have the client's clock to the log's timeline; their lengths stay.

    One begins at the time that stands behind its begin marker, or before it; where none does, with its first request.

    Args:
        segments: on the client's clock.
        first_ns: of a run's segment, the first time of its requests.
        markers: the log's, which the segments were made of.
    """
    beside: dict[tuple[str, str, int], int] = {}
    for one in markers:
        at_ns = one.before_ns if one.after_ns is None else one.after_ns
        if one.action == BEGIN and at_ns is not None:
            beside.setdefault((one.run, one.segment, one.at_ns), at_ns)
    moved = []
    for each in segments:
        begin_ns = beside.get((each.run, each.segment, each.begin_ns), first_ns.get((each.run, each.segment), 0))
        end_ns = None if each.end_ns is None else begin_ns + (each.end_ns - each.begin_ns)
        moved.append(replace(each, begin_ns=begin_ns, end_ns=end_ns))
    return moved
