"""Which stretches of time were measured, and are their markers sound?

A begin and an end marker of one run and one id make a segment. Times are the ones inside the markers (the client's
clock, Unix ns), because a marker's place in a log is the order of writing only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agentload.core.markers import BEGIN
from agentload.core.records import Doubt, Marker, Request, Segment

_TOLD: Final = 20  # doubts of one code; of more the first one is told, and how many there are


def _place(marker: Marker) -> str:
    if marker.proof is not None:
        return f"line {marker.proof.line}"
    return "a sidecar marker" if marker.log_offset is None else f"log byte {marker.log_offset}"


@dataclass(slots=True)
class _Open:
    begin: Marker
    end: Marker | None = None

    @property
    def name(self) -> str:
        return f"segment {self.begin.segment} of run {self.begin.run}"

    def segment(self) -> Segment:
        end_ns = None if self.end is None else self.end.at_ns
        return Segment(self.begin.segment, self.begin.run, self.begin.condition, self.begin.at_ns, end_ns)


def _end(marker: Marker, found: _Open | None, later: Marker | None) -> Doubt | None:
    """Close the segment of an end marker; return what is wrong with it. `later`: its begin, should it come after."""
    name = f"segment {marker.segment} of run {marker.run}"
    if found is None and later is not None:
        return Doubt(
            "segment-ends-before-begin",
            f"{name} begins at {_place(later)} and ends at {_place(marker)}: by their times its end stands before its "
            "begin",
            "the clock was set back, or a marker was changed: its wall clock and shares are unknown; measure again",
        )
    if found is None:
        return Doubt(
            "segment-end-without-begin",
            f"{name} ends at {_place(marker)} and begins nowhere before",
            "the log was cut or rotated at the front: its requests are in no segment; keep the whole log",
        )
    if found.end is not None:
        return Doubt(
            "duplicate-segment",
            f"{name} ends at {_place(found.end)} and again at {_place(marker)}; the first end is used",
            "give every segment of a run its own id",
        )
    found.end = marker
    if marker.condition != found.begin.condition:
        return Doubt(
            "segment-condition-differs",
            f"{name} begins at {_place(found.begin)} with condition {found.begin.condition!r} and ends at "
            f"{_place(marker)} with {marker.condition!r}; the one of the begin is used",
            "write both markers of a segment with the same condition",
        )
    return None


def _overlaps(found: Iterable[_Open]) -> Iterator[Doubt]:
    last: _Open | None = None  # of those begun so far, the one that ends last; no end is the latest
    for here in sorted(found, key=lambda each: each.begin.at_ns):
        until = None if last is None or last.end is None else last.end.at_ns
        if last is not None and (until is None or here.begin.at_ns < until):
            inside = until is None or (here.end is not None and here.end.at_ns <= until)
            how = "inside" if inside else "before the end of"
            yield Doubt(
                "segments-overlap",
                f"{here.name} begins at {_place(here.begin)}, {how} {last.name}, begun at {_place(last.begin)}",
                "requests in the common stretch count for the segment that began last; measure one after the other",
            )
            if inside:
                continue
        last = here


class _Doubts:
    """Collects doubts: some of a code as they are; of more than that the first one, and how many others there are."""

    def __init__(self) -> None:
        self._kept: list[Doubt] = []
        self._times: Counter[str] = Counter()

    def add(self, one: Doubt | None) -> None:
        """Note one, if it is one."""
        if one is None:
            return
        self._times[one.code] += 1
        if self._times[one.code] <= _TOLD:
            self._kept.append(one)

    def all(self) -> tuple[Doubt, ...]:
        """Return what is to be told, in the order in which it was met."""
        summed: dict[str, Doubt] = {}
        for one in self._kept:
            if self._times[one.code] > _TOLD and one.code not in summed:
                more = f" (and {self._times[one.code] - 1:,} more such segments)"
                summed[one.code] = replace(one, message=one.message + more)
        return tuple(dict.fromkeys(summed.get(one.code, one) for one in self._kept))


def segments_of(markers: Iterable[Marker]) -> tuple[tuple[Segment, ...], tuple[Doubt, ...]]:
    """Pair markers into segments, in order of their begin, and say what is wrong with them.

    The same marker told twice, by the log and by the sidecar, counts once. A segment without an end has end_ns None.
    Of several with one run and id the first stands; the others are left out and said. Of more than 20 doubts of one
    code the first is told, with the number of the others.
    """
    told: dict[tuple[str, str, str, int], Marker] = {}
    for marker in markers:
        key = (marker.action, marker.run, marker.segment, marker.at_ns)
        if key not in told or (told[key].proof is None and marker.proof is not None):
            told[key] = marker
    begins = {(one.run, one.segment): one for one in told.values() if one.action == BEGIN}
    found: dict[tuple[str, str], _Open] = {}
    backwards: set[tuple[str, str]] = set()
    doubts = _Doubts()
    for marker in sorted(told.values(), key=lambda m: (m.at_ns, m.action != BEGIN)):
        here = found.get((marker.run, marker.segment))
        if marker.action != BEGIN:
            later = begins.get((marker.run, marker.segment))
            if here is None and later is not None:
                backwards.add((marker.run, marker.segment))
            doubts.add(_end(marker, here, later))
        elif here is None:
            found[marker.run, marker.segment] = _Open(marker)
        else:
            doubts.add(
                Doubt(
                    "duplicate-segment",
                    f"{here.name} begins at {_place(here.begin)} and again at {_place(marker)}; the first is used",
                    "give every segment of a run its own id",
                )
            )
    for name, here in found.items():
        if here.end is None and name not in backwards:
            doubts.add(
                Doubt(
                    "segment-without-end",
                    f"{here.name} begins at {_place(here.begin)} and does not end",
                    "the run was cut off: its wall clock and shares are unknown, and later requests count for it",
                )
            )
    for one in _overlaps(found.values()):
        doubts.add(one)
    return tuple(each.segment() for each in found.values()), doubts.all()


def lies_outside(row: Request, segments: Sequence[Segment]) -> bool:
    """Tell whether a request that only the log has began before, between or after the segments.

    One without any time may have been inside, and counts as such; where there are no segments nothing is outside.
    """
    if row.t_sent is not None or row.segment is not None or not segments:
        return False
    times = (row.prefill_start, row.t_slot, row.prefill_end, row.decode_start, row.decode_end)
    began = next((at_ns for at_ns in times if at_ns is not None), None)
    return began is not None and segment_at(began, segments) is None


def segment_at(at_ns: int, segments: Sequence[Segment]) -> str | None:
    """Return the id of the segment whose [begin, end) holds `at_ns`; the one begun last, should they overlap."""
    holding = [one for one in segments if one.begin_ns <= at_ns and (one.end_ns is None or at_ns < one.end_ns)]
    return max(holding, key=lambda one: one.begin_ns).segment if holding else None
