"""What is kept of very many requests, so that their sums and busy times can be told?

Numbers in arrays, 35 bytes a request and more for none of them.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.core.intervals import Intervals, Times
from agentload.core.records import Match, Request

SAMPLE_CELL_NS: Final = 15_000_000_000  # report A looked at the log every 15 s
COUNTS: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
TIMED, BOTH = 1, 2  # of a phase: its times are known; and so are the tokens of these times
Flags = npt.NDArray[np.bool_]


def _span(request: Request, name: str, start: int | None, end: int | None) -> tuple[int, int] | None:
    if start is None or end is None:
        return None
    if start > end:
        raise ValueError(f"expected the {name} of request {request.request} to start before it ends: {start} > {end}")
    return start, end


class Phases:
    """One phase of a set of requests: their tokens and times, of which any may be unknown.

    Numbers in arrays, 17 bytes a request, so that a log of a million requests can be accounted for.
    """

    __slots__ = ("ends", "kinds", "left_out", "speed_tokens", "starts", "unknown_times", "unplaced_ns")

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.kinds = bytearray()
        self.unknown_times = 0  # requests of which time was spent that nobody knows; one of 0 tokens needs none
        self.left_out = 0  # those in the sum of tokens or in the union of times, and in no speed
        self.speed_tokens = 0
        self.unplaced_ns: int | None = None  # durations of those whose times are not known, of a log without times

    def add(
        self,
        tokens: int | None,
        span: tuple[int, int] | None,
        logged_ms: float | None = None,
        untimed: int | None = 0,
    ) -> None:
        """Add a request's.

        Args:
            tokens: all of them.
            span: its times.
            logged_ms: its duration as the log states it.
            untimed: so many of the tokens are not of these times; None: not known.
        """
        if span is None and logged_ms is not None:
            self.unplaced_ns = (self.unplaced_ns or 0) + round(logged_ms * 1e6)
        timed = None if tokens is None or untimed is None else max(tokens - untimed, 0)
        both = timed is not None and span is not None
        self.unknown_times += span is None and tokens != 0
        self.left_out += (timed is None and span is not None) or (bool(tokens) and span is None)
        self.speed_tokens += (timed or 0) if both else 0
        start, end = span or (0, 0)
        self.starts.append(start)
        self.ends.append(end)
        self.kinds.append((span is not None) * TIMED + both * BOTH)

    def __len__(self) -> int:
        return len(self.kinds)

    def has(self, kind: int) -> Flags:
        """For each request, whether its times are known (`TIMED`), or times and tokens (`BOTH`)."""
        return (np.frombuffer(self.kinds, np.uint8) & kind) > 0

    def spans(self, some: Flags, cells_from_ns: int | None = None) -> Intervals:
        """Return the times of some of them; in whole cells of 15 s from a time on, all that they touch."""
        columns = (np.frombuffer(column, np.int64) for column in (self.starts, self.ends))
        starts, ends = columns if some.all() else (column[some] for column in columns)
        if cells_from_ns is None:
            return Intervals(starts, ends)
        first, after = cells(starts, ends, cells_from_ns)
        np.copyto(after, first, where=starts >= ends)
        return Intervals(first, after)

    def timed(self, cells_from_ns: int | None = None) -> Intervals:
        """Return the times of all of which they are known."""
        return self.spans(self.has(TIMED), cells_from_ns)

    def last_ns(self) -> int | None:
        """Return when the last one ended; None when no times are known."""
        ends = self.timed().ends
        return int(ends.max()) if len(ends) else None

    def extend(self, other: "Phases") -> None:
        """Add those of other requests."""
        self.starts.extend(other.starts)
        self.ends.extend(other.ends)
        self.kinds.extend(other.kinds)
        self.unknown_times += other.unknown_times
        self.left_out += other.left_out
        self.speed_tokens += other.speed_tokens
        if other.unplaced_ns is not None:
            self.unplaced_ns = (self.unplaced_ns or 0) + other.unplaced_ns


def cells(starts: Times, ends: Times, begin_ns: int) -> tuple[Times, Times]:
    """Return the first cell of 15 s that each touches and the one after its last; of an empty one they mean nothing."""
    first, after = starts - begin_ns, begin_ns - ends
    first //= SAMPLE_CELL_NS  # in place: of a million requests a column is 8 MB
    after //= SAMPLE_CELL_NS
    return first, np.negative(after, out=after)


class Work:
    """All that is kept of a set of requests."""

    __slots__ = ("decode", "known", "matches", "prefill", "sums")

    def __init__(self) -> None:
        self.prefill, self.decode = Phases(), Phases()
        self.sums = dict.fromkeys(COUNTS, 0)
        self.known = dict.fromkeys(COUNTS, 0)
        self.matches: Counter[Match] = Counter()

    def add(self, request: Request) -> None:
        """Add a request.

        Raises:
            ValueError: a phase ends before it starts.
        """
        self.matches[request.match] += 1
        for name in COUNTS:
            value = getattr(request, name)
            if value is not None:
                self.sums[name] += value
                self.known[name] += 1
        self.prefill.add(request.new_prefill_tokens, prefill_of(request), request.prefill_logged_ms)  # no cached ones
        decoded, untimed = request.decoded_tokens, request.decode_untimed_tokens
        self.decode.add(decoded, decode_of(request), request.decode_logged_ms, untimed)

    @classmethod
    def of(cls, requests: Iterable[Request]) -> "Work":
        """Keep it of some requests."""
        work = cls()
        for request in requests:
            work.add(request)
        return work

    @classmethod
    def together(cls, works: Collection["Work"]) -> "Work":
        """Put sets together; a single one comes back as it is."""
        if len(works) == 1:
            return next(iter(works))
        whole = cls()
        for one in works:
            whole.prefill.extend(one.prefill)
            whole.decode.extend(one.decode)
            whole.matches.update(one.matches)
            for name in COUNTS:
                whole.sums[name] += one.sums[name]
                whole.known[name] += one.known[name]
        return whole

    def __len__(self) -> int:
        return len(self.prefill)

    def known_sum(self, name: str) -> int | None:
        """Return the sum of a count over those that report it; None when none does."""
        return self.sums[name] if self.known[name] else None


def prefill_of(r: Request) -> tuple[int, int] | None:
    """Return when its prefill began and ended; None unless both are known."""
    return _span(r, "prefill", r.prefill_start, r.prefill_end)


def decode_of(r: Request) -> tuple[int, int] | None:
    """Return when its decode began and ended, likewise."""
    return _span(r, "decode", r.decode_start, r.decode_end)


@dataclass(frozen=True, slots=True)
class Busy:
    """How long one phase of a set of requests took, as core.accounting.Totals has it."""

    union_ns: int | None
    sum_ns: int | None
    speed_ns: int


def busy_of(phases: Phases) -> Busy:
    """Return it."""
    if not len(phases):
        return Busy(None, None, 0)
    both = phases.has(BOTH)
    all_told = np.array_equal(both, phases.has(TIMED))  # of all with times the tokens: it is the same union
    # First: of a million requests each set of spans is 16 MB.
    speed_ns = None if all_told else phases.spans(both).measure_ns()
    spans = phases.timed()
    union_ns = spans.measure_ns()
    told = phases.unknown_times < len(phases)
    return Busy(
        union_ns=union_ns if told else None,
        # Where no time is known at all, durations can be added up still.
        sum_ns=phases.unplaced_ns if not len(spans) and phases.unplaced_ns else spans.summed_ns() if told else None,
        speed_ns=union_ns if speed_ns is None else speed_ns,
    )
