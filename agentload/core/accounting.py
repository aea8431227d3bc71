"""How much work did a segment's requests do, and how fast?

The quantities of PROTOCOL section 1, each over its own denominator, from the joined requests of one segment. Busy time
is the measure of a union of intervals; adding durations up instead counts overlapped time twice (1.14 times in report
A). What no request reported is None, never 0; a speed without a known, positive denominator is None, never 0 or inf.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np

from agentload.core.intervals import Intervals
from agentload.core.records import Match, Request, Segment
from agentload.core.work import COUNTS, SAMPLE_CELL_NS, TIMED, Phases, Work, busy_of, cells, prefill_of

NS_PER_S: Final = 1_000_000_000
LEAST_CELLS: Final = 4  # one cell of 8.8 s said 100 % where 12 % overlapped: fewer say nothing

_BUCKETS: Final[tuple[tuple[str, int, int | None], ...]] = (
    ("0-30k", 0, 30_000),
    ("30k-60k", 30_000, 60_000),
    ("60k-100k", 60_000, 100_000),
    ("100k+", 100_000, None),
)
BUCKETS: Final = tuple(name for name, _, _ in _BUCKETS)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return numerator / denominator; None when either is unknown or the denominator is 0."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def speed_tok_s(tokens: int | None, busy_ns: int | None) -> float | None:
    """Return tokens a second of busy time; None when either is unknown or no time was spent."""
    return ratio(None if tokens is None else tokens * NS_PER_S, busy_ns)


def pooled_speed(runs: Iterable[tuple[int, float]]) -> float | None:
    """Speed in tok/s of a condition from its runs' (tokens, union seconds): sum / sum, not the mean of speeds."""
    pairs = list(runs)
    return ratio(sum(tokens for tokens, _ in pairs), sum(union_s for _, union_s in pairs))


def exposure(prefill: Intervals, decode_of_others: Intervals) -> float | None:
    """Share of the prefill union during which other requests decode; None when there was no prefill.

    Under 5 % a flag that only applies then was not exercised (PROTOCOL section 1).
    """
    return ratio(prefill.intersection(decode_of_others).summed_ns(), prefill.measure_ns())


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """How many requests were joined in which way (see `core.records.Match`)."""

    matched: int  # exact or unique
    ambiguous: int
    client_only: int
    server_only: int  # foreign traffic where agents of ours were at work


@dataclass(frozen=True, slots=True)
class Unknown:
    """For each column, the number of requests whose log does not tell it: what the sums beside it leave out."""

    prompt_tokens: int
    cached_tokens: int
    new_prefill_tokens: int
    decoded_tokens: int
    prefill_times: int
    decode_times: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums, busy times, speeds and shares of a set of requests.

    A sum covers the requests that report its column and is None when none does; `unknown` counts the others.
    A speed is `*_speed_tokens` over `*_speed_ns`, of the requests whose tokens and times are both known, and of their
    tokens without `decode_untimed_tokens`: no tokens are divided by a time in which they were not computed. Only of
    prefills are these the sum and the union where `*_left_out`, the requests of which one is known and not the other,
    is 0.
    Where `unknown` counts times, unions, shares and overlaps are lower bounds.
    """

    requests: int
    matches: MatchCounts
    unknown: Unknown
    prompt_tokens: int | None
    cached_tokens: int | None
    new_prefill_tokens: int | None
    decoded_tokens: int | None
    prefill_union_ns: int | None
    prefill_sum_ns: int | None
    decode_union_ns: int | None
    decode_sum_ns: int | None
    prefill_double_counting: float | None  # sum of durations / union
    decode_double_counting: float | None
    prefill_speed_tokens: int
    prefill_speed_ns: int
    prefill_tok_s: float | None
    decode_speed_tokens: int
    decode_speed_ns: int
    decode_tok_s: float | None
    wall_ns: int | None  # of the segment; None when its end marker is missing
    prefill_share: float | None  # union / wall
    decode_share: float | None
    overlap: float | None  # of the prefill union, the part during which another request of the segment decodes
    sampled_overlap: float | None  # the same in cells of 15 s; None in a segment of fewer than 4
    prefill_left_out: int = 0
    decode_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Bucket:
    """The requests whose prefill starts in one range of context positions."""

    name: str
    from_tokens: int
    to_tokens: int | None  # None: open
    requests: int
    new_prefill_tokens: int | None
    median_tok_s: float | None  # of the requests' own speeds; requests without new tokens have none
    prefill_union_ns: int | None
    union_tok_s: float | None


@dataclass(frozen=True, slots=True)
class SegmentAccount:
    """All that the account of one segment says."""

    segment: Segment
    whole: Totals
    agents: dict[str, Totals]  # by agent name, sorted; overlap is with every other request of the segment
    no_agent: Totals | None  # requests that no agent is known to have sent; None when there are none
    buckets: tuple[Bucket, ...]  # always all four, in order of context
    unknown_context: int  # requests whose context position is not known: in no bucket
    straddles_begin: tuple[str, ...]  # requests of the run at work when the segment began: they belong to no part of it
    straddles_end: tuple[str, ...]  # requests of the segment still at work at its end: their whole phases count


def _overlap(of: Work, everyone: Work, cells_from_ns: int | None = None) -> float | None:
    """Share of the prefill union of `of` during which another request decodes; None without prefill or decode times.

    `everyone` holds these requests and all others; `cells_from_ns`: in cells of 15 s from there on. A request never
    overlaps with itself: the time at which the only prefill and the only decode are of one request drops out.
    """
    if everyone.decode.unknown_times == len(everyone):
        return None
    # Unions as soon as may be: of a million requests each set is 16 MB, and what it unites to is nearly nothing.
    alone = _both_at_once(of, cells_from_ns)
    prefilling = of.prefill.timed(cells_from_ns)
    alone = alone.difference(prefilling.at_least(2)) if len(alone) else alone
    prefilling = prefilling.union()
    decoding = everyone.decode.timed(cells_from_ns)
    alone = alone.difference(decoding.at_least(2)) if len(alone) else alone
    return exposure(prefilling, decoding.difference(alone))


def _both_at_once(of: Work, cells_from_ns: int | None) -> Intervals:
    """The time in which a request is both prefilled and decoded."""
    both = of.prefill.has(TIMED) & of.decode.has(TIMED)
    prefills, decodes = of.prefill.spans(both), of.decode.spans(both)
    mine = (prefills.starts < prefills.ends) & (decodes.starts < decodes.ends)
    starts, ends = np.maximum(prefills.starts, decodes.starts), np.minimum(prefills.ends, decodes.ends)
    del prefills, decodes
    if cells_from_ns is not None:  # of two starts the later one is in the later cell
        starts, ends = cells(starts, ends, cells_from_ns)
    mine &= starts < ends
    starts, ends = starts[mine], ends[mine]
    return Intervals(starts, ends).union()


def _matches(work: Work) -> MatchCounts:
    matches = work.matches
    return MatchCounts(
        matched=matches[Match.EXACT] + matches[Match.UNIQUE],
        ambiguous=matches[Match.AMBIGUOUS],
        client_only=matches[Match.CLIENT_ONLY],
        server_only=matches[Match.SERVER_ONLY],
    )


def _unknown(work: Work) -> Unknown:
    missing = {name: len(work) - work.known[name] for name in COUNTS}
    return Unknown(**missing, prefill_times=work.prefill.unknown_times, decode_times=work.decode.unknown_times)


def _wall_ns(segment: Segment) -> int | None:
    if segment.end_ns is None:
        return None
    if segment.end_ns < segment.begin_ns:
        raise ValueError(
            f"expected segment {segment.segment} to begin before it ends, got {segment.begin_ns} > {segment.end_ns}"
        )
    return segment.end_ns - segment.begin_ns


def _cells(segment: Segment, wall_ns: int | None, everyone: Work) -> int:
    """How many cells of 15 s a segment has; without an end it ends with the last phase of `everyone`."""
    length_ns = wall_ns
    if length_ns is None:
        last_ns = [phases.last_ns() for phases in (everyone.prefill, everyone.decode)]
        length_ns = max((at_ns for at_ns in last_ns if at_ns is not None), default=segment.begin_ns) - segment.begin_ns
    return -(-length_ns // SAMPLE_CELL_NS)


def total(requests: Iterable[Request], segment: Segment, others: Iterable[Request] | None = None) -> Totals:
    """Account for `requests`, all of `segment`; `others` (they and more; by default only they) are who may overlap.

    Raises:
        ValueError: a phase or the segment ends before it starts.
    """
    work = Work.of(requests)
    return _total(work, segment, work if others is None else Work.of(others))


def _total(work: Work, segment: Segment, everyone: Work) -> Totals:
    prefill, decode = busy_of(work.prefill), busy_of(work.decode)
    wall_ns = _wall_ns(segment)
    sampled = _cells(segment, wall_ns, everyone) >= LEAST_CELLS
    return Totals(
        requests=len(work),
        matches=_matches(work),
        unknown=_unknown(work),
        prompt_tokens=work.known_sum("prompt_tokens"),
        cached_tokens=work.known_sum("cached_tokens"),
        new_prefill_tokens=work.known_sum("new_prefill_tokens"),
        decoded_tokens=work.known_sum("decoded_tokens"),
        prefill_union_ns=prefill.union_ns,
        prefill_sum_ns=prefill.sum_ns,
        decode_union_ns=decode.union_ns,
        decode_sum_ns=decode.sum_ns,
        prefill_double_counting=ratio(prefill.sum_ns, prefill.union_ns),
        decode_double_counting=ratio(decode.sum_ns, decode.union_ns),
        prefill_speed_tokens=work.prefill.speed_tokens,
        prefill_speed_ns=prefill.speed_ns,
        prefill_tok_s=speed_tok_s(work.prefill.speed_tokens, prefill.speed_ns),
        decode_speed_tokens=work.decode.speed_tokens,
        decode_speed_ns=decode.speed_ns,
        decode_tok_s=speed_tok_s(work.decode.speed_tokens, decode.speed_ns),
        wall_ns=wall_ns,
        prefill_share=ratio(prefill.union_ns, wall_ns),
        decode_share=ratio(decode.union_ns, wall_ns),
        overlap=_overlap(work, everyone),
        sampled_overlap=_overlap(work, everyone, segment.begin_ns) if sampled else None,
        prefill_left_out=work.prefill.left_out,
        decode_left_out=work.decode.left_out,
    )


def bucket_of(context_start: int) -> str:
    """Return the name of the context bucket: 0-30k, 30k-60k, 60k-100k or 100k+; a bound belongs to the upper one.

    Raises:
        ValueError: a negative position.
    """
    if context_start < 0:
        raise ValueError(f"expected a context position of 0 or more tokens, got {context_start}")
    return next(name for name, _, to in _BUCKETS if to is None or context_start < to)


class _Contexts:
    """The prefills of a set of requests, by the context position at which they start."""

    def __init__(self) -> None:
        self.unknown = 0  # without one: in no bucket
        self._phases: dict[str, Phases] = defaultdict(Phases)  # most segments have requests in one bucket
        self._tokens: dict[str, int] = {}
        self._speeds: dict[str, array[float]] = defaultdict(lambda: array("d"))

    def add(self, request: Request) -> None:
        """Add a request.

        Raises:
            ValueError: its position is negative, or its prefill ends before it starts.
        """
        if request.context_start is None:
            self.unknown += 1
            return
        name, tokens, span = bucket_of(request.context_start), request.new_prefill_tokens, prefill_of(request)
        self._phases[name].add(tokens, span, request.prefill_logged_ms)
        if tokens is not None:
            self._tokens[name] = self._tokens.get(name, 0) + tokens
        logged_ms = request.prefill_logged_ms
        took_ns = span[1] - span[0] if span else None if logged_ms is None else round(logged_ms * 1e6)
        speed = speed_tok_s(tokens, took_ns) if tokens else None
        if speed is not None:
            self._speeds[name].append(speed)

    def buckets(self) -> tuple[Bucket, ...]:
        """Return all four."""
        return tuple(self._bucket(name, low, high) for name, low, high in _BUCKETS)

    def _bucket(self, name: str, low: int, high: int | None) -> Bucket:
        phases = self._phases.get(name) or Phases()
        busy = busy_of(phases)
        return Bucket(
            name=name,
            from_tokens=low,
            to_tokens=high,
            requests=len(phases),
            new_prefill_tokens=self._tokens.get(name),
            median_tok_s=_median(self._speeds.get(name, ())),
            prefill_union_ns=busy.union_ns,
            union_tok_s=speed_tok_s(phases.speed_tokens, busy.speed_ns),
        )


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered, half = np.sort(np.asarray(values, np.float64)), len(values) // 2
    return float(ordered[half]) if len(values) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2


def by_context(requests: Iterable[Request]) -> tuple[Bucket, ...]:
    """Group requests by the context position at which their prefill starts; those without one are in no bucket."""
    contexts = _Contexts()
    for request in requests:
        contexts.add(request)
    return contexts.buckets()


def _last_ns(request: Request) -> int | None:
    ends = [end for end in (request.prefill_end, request.decode_end) if end is not None]
    return max(ends, default=None)


class _Part:
    """What is kept of one segment's requests."""

    __slots__ = ("at_begin", "at_end", "contexts", "segment", "works")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.works: dict[str | None, Work] = {}  # by agent
        self.contexts = _Contexts()
        self.at_begin: list[str] = []
        self.at_end: list[str] = []

    def add(self, request: Request) -> None:
        """Add a request of the segment."""
        work = self.works.get(request.agent)
        if work is None:
            work = self.works[request.agent] = Work()
        work.add(request)
        self.contexts.add(request)
        end_ns = self.segment.end_ns
        if end_ns is not None and _at_work(request, end_ns):
            self.at_end.append(request.request)

    def account(self) -> SegmentAccount:
        """Account for all that was added."""
        whole = Work.together(self.works.values())
        total = _total(whole, self.segment, whole)
        by_agent = {who: total if one is whole else _total(one, self.segment, whole) for who, one in self.works.items()}
        return SegmentAccount(
            segment=self.segment,
            whole=total,
            agents={name: by_agent[name] for name in sorted(name for name in by_agent if name is not None)},
            no_agent=by_agent.get(None),
            buckets=self.contexts.buckets(),
            unknown_context=self.contexts.unknown,
            straddles_begin=tuple(self.at_begin),
            straddles_end=tuple(self.at_end),
        )


def _at_work(request: Request, at_ns: int) -> bool:
    last_ns = _last_ns(request)
    return request.prefill_start is not None and last_ns is not None and request.prefill_start < at_ns < last_ns


def account_segment(requests: Iterable[Request], segment: Segment) -> SegmentAccount:
    """Account for one segment. `requests` may hold those of other segments and runs too: `Request.segment` decides.

    Membership is by prefill start (PROTOCOL 1.8) and was decided by whoever joined the requests, so the phases of a
    member count whole even where they reach past the segment's end, and a share can then exceed 1.
    Server-only requests count: without a client's record every request is one. With agents at work they are foreign
    traffic, and `whole.matches.server_only` says so.

    Raises:
        ValueError: a phase or the segment ends before it starts.
    """
    return account_segments(requests, (segment,))[0]


def account_segments(requests: Iterable[Request], segments: Sequence[Segment]) -> list[SegmentAccount]:
    """Account for several segments as for each by itself; `requests` are gone through once, whatever their number.

    Raises:
        ValueError: as `account_segment`.
    """
    parts = [_Part(segment) for segment in segments]
    holding: dict[tuple[str, str | None], list[_Part]] = defaultdict(list)
    begins: dict[str, list[tuple[int, int]]] = defaultdict(list)  # by run: when each part begins, and its index
    for index, part in enumerate(parts):
        holding[part.segment.run, part.segment.segment].append(part)
        begins[part.segment.run].append((part.segment.begin_ns, index))
    for each in begins.values():
        each.sort()
    for request in requests:
        for part in holding.get((request.run, request.segment), ()):
            part.add(request)
        last_ns = _last_ns(request)
        if request.prefill_start is not None and last_ns is not None:
            of_run = begins.get(request.run, [])
            first = bisect_right(of_run, request.prefill_start, key=itemgetter(0))
            for _, index in of_run[first : bisect_left(of_run, last_ns, key=itemgetter(0))]:
                parts[index].at_begin.append(request.request)
    return [part.account() for part in parts]
