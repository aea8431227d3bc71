"""How much work did a segment's requests do, and how fast?

The quantities of PROTOCOL section 1, each over its own denominator, from the joined requests of one segment. Busy time
is the measure of a union of intervals; adding durations up instead counts overlapped time twice (1.14 times in report
A). What no request reported is None, never 0; a speed without a known, positive denominator is None, never 0 or inf.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from agentload.core.intervals import Intervals
from agentload.core.records import Match, Request, Segment

NS_PER_S: Final = 1_000_000_000
SAMPLE_CELL_NS: Final = 15_000_000_000  # report A looked at the log every 15 s
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
    return ratio(prefill.intersection(decode_of_others).measure_ns(), prefill.measure_ns())


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
    A speed covers the requests whose tokens and times are both known, so that no tokens are divided by another
    request's time: `*_speed_tokens` over `*_speed_ns`, which are the sum and the union unless one of them is unknown.
    `*_left_out` counts the requests of which one is known and not the other: where it is not 0, the sum over the union
    is not the speed.
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


@dataclass(frozen=True, slots=True)
class _Phase:
    """One request's prefill or decode: what it did, and from when to when. None is unknown."""

    tokens: int | None
    span: tuple[int, int] | None  # half-open, ns

    @property
    def unknown_times(self) -> bool:
        """Whether time was spent that nobody knows; a phase of 0 tokens needs none."""
        return self.span is None and self.tokens != 0

    @property
    def left_out(self) -> bool:
        """Whether it is in the sum of tokens or in the union of times, and in no speed."""
        return (self.tokens is None and self.span is not None) or (bool(self.tokens) and self.span is None)

    def in_cells(self, begin_ns: int) -> "_Phase":
        """Return it in whole cells of 15 s from the segment's begin: all that it touches."""
        if self.span is None:
            return self
        first, after = (self.span[0] - begin_ns) // SAMPLE_CELL_NS, -((begin_ns - self.span[1]) // SAMPLE_CELL_NS)
        return _Phase(self.tokens, (first, after if self.span[0] < self.span[1] else first))


def _phase(request: Request, name: str, tokens: int | None, start: int | None, end: int | None) -> _Phase:
    if start is None or end is None:
        return _Phase(tokens, None)
    if start > end:
        raise ValueError(f"expected the {name} of request {request.request} to start before it ends: {start} > {end}")
    return _Phase(tokens, (start, end))


def _prefill(r: Request) -> _Phase:
    return _phase(r, "prefill", r.new_prefill_tokens, r.prefill_start, r.prefill_end)  # cached ones are not computed


def _decode(r: Request) -> _Phase:
    return _phase(r, "decode", r.decoded_tokens, r.decode_start, r.decode_end)


def _spans(phases: Iterable[_Phase]) -> Intervals:
    return Intervals.of(phase.span for phase in phases if phase.span is not None)


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class _Busy:
    """One phase of a set of requests, as Totals has it."""

    union_ns: int | None
    sum_ns: int | None
    speed_tokens: int
    speed_ns: int
    unknown_times: int
    left_out: int


def _busy(phases: Sequence[_Phase]) -> _Busy:
    spans = _spans(phases)
    unknown_times = sum(phase.unknown_times for phase in phases)
    told = unknown_times < len(phases)
    both = [phase for phase in phases if phase.tokens is not None and phase.span is not None]
    return _Busy(
        union_ns=spans.measure_ns() if told else None,
        sum_ns=spans.summed_ns() if told else None,
        speed_tokens=sum(phase.tokens or 0 for phase in both),
        speed_ns=_spans(both).measure_ns(),
        unknown_times=unknown_times,
        left_out=sum(phase.left_out for phase in phases),
    )


def _own_overlap(prefill: _Phase, decode: _Phase) -> tuple[int, int] | None:
    if prefill.span is None or decode.span is None:
        return None
    start, end = max(prefill.span[0], decode.span[0]), min(prefill.span[1], decode.span[1])
    return (start, end) if start < end else None


def _overlap(prefills: Sequence[_Phase], decodes: Sequence[_Phase], all_decodes: Sequence[_Phase]) -> float | None:
    """Share of the union of `prefills` during which another request decodes; None without prefill or decode times.

    `decodes[i]` is of the request of `prefills[i]`; `all_decodes` holds these and everyone else's. A request never
    overlaps with itself: the time at which the only prefill and the only decode are of one request drops out.
    """
    if all(phase.unknown_times for phase in all_decodes):
        return None
    prefilling, decoding = _spans(prefills), _spans(all_decodes)
    own = Intervals.of(span for span in map(_own_overlap, prefills, decodes) if span is not None)
    alone = own.difference(prefilling.at_least(2)).difference(decoding.at_least(2))
    return exposure(prefilling, decoding.difference(alone))


def _matches(requests: Sequence[Request]) -> MatchCounts:
    kinds = [request.match for request in requests]
    return MatchCounts(
        matched=kinds.count(Match.EXACT) + kinds.count(Match.UNIQUE),
        ambiguous=kinds.count(Match.AMBIGUOUS),
        client_only=kinds.count(Match.CLIENT_ONLY),
        server_only=kinds.count(Match.SERVER_ONLY),
    )


def _wall_ns(segment: Segment) -> int | None:
    if segment.end_ns is None:
        return None
    if segment.end_ns < segment.begin_ns:
        raise ValueError(
            f"expected segment {segment.segment} to begin before it ends, got {segment.begin_ns} > {segment.end_ns}"
        )
    return segment.end_ns - segment.begin_ns


def _cells(segment: Segment, wall_ns: int | None, phases: Iterable[_Phase]) -> int:
    """How many cells of 15 s a segment has; without an end it ends with the last of `phases`."""
    length_ns = wall_ns
    if length_ns is None:
        length_ns = max((phase.span[1] for phase in phases if phase.span), default=segment.begin_ns) - segment.begin_ns
    return -(-length_ns // SAMPLE_CELL_NS)


def total(requests: Sequence[Request], segment: Segment, others: Sequence[Request] | None = None) -> Totals:
    """Account for `requests`, all of `segment`; `others` (they and more; by default only they) are who may overlap.

    Raises:
        ValueError: a phase or the segment ends before it starts.
    """
    prefills, decodes = [_prefill(r) for r in requests], [_decode(r) for r in requests]
    all_decodes = decodes if others is None else [_decode(r) for r in others]
    prefill, decode = _busy(prefills), _busy(decodes)
    begin_ns = segment.begin_ns
    wall_ns = _wall_ns(segment)
    everyone = [*all_decodes, *(_prefill(r) for r in (requests if others is None else others))]
    sampled = _cells(segment, wall_ns, everyone) >= LEAST_CELLS
    return Totals(
        requests=len(requests),
        matches=_matches(requests),
        unknown=Unknown(
            prompt_tokens=sum(r.prompt_tokens is None for r in requests),
            cached_tokens=sum(r.cached_tokens is None for r in requests),
            new_prefill_tokens=sum(r.new_prefill_tokens is None for r in requests),
            decoded_tokens=sum(r.decoded_tokens is None for r in requests),
            prefill_times=prefill.unknown_times,
            decode_times=decode.unknown_times,
        ),
        prompt_tokens=_sum_known(r.prompt_tokens for r in requests),
        cached_tokens=_sum_known(r.cached_tokens for r in requests),
        new_prefill_tokens=_sum_known(r.new_prefill_tokens for r in requests),
        decoded_tokens=_sum_known(r.decoded_tokens for r in requests),
        prefill_union_ns=prefill.union_ns,
        prefill_sum_ns=prefill.sum_ns,
        decode_union_ns=decode.union_ns,
        decode_sum_ns=decode.sum_ns,
        prefill_double_counting=ratio(prefill.sum_ns, prefill.union_ns),
        decode_double_counting=ratio(decode.sum_ns, decode.union_ns),
        prefill_speed_tokens=prefill.speed_tokens,
        prefill_speed_ns=prefill.speed_ns,
        prefill_tok_s=speed_tok_s(prefill.speed_tokens, prefill.speed_ns),
        decode_speed_tokens=decode.speed_tokens,
        decode_speed_ns=decode.speed_ns,
        decode_tok_s=speed_tok_s(decode.speed_tokens, decode.speed_ns),
        wall_ns=wall_ns,
        prefill_share=ratio(prefill.union_ns, wall_ns),
        decode_share=ratio(decode.union_ns, wall_ns),
        overlap=_overlap(prefills, decodes, all_decodes),
        sampled_overlap=_overlap(
            [phase.in_cells(begin_ns) for phase in prefills],
            [phase.in_cells(begin_ns) for phase in decodes],
            [phase.in_cells(begin_ns) for phase in all_decodes],
        )
        if sampled
        else None,
        prefill_left_out=prefill.left_out,
        decode_left_out=decode.left_out,
    )


def bucket_of(context_start: int) -> str:
    """Return the name of the context bucket: 0-30k, 30k-60k, 60k-100k or 100k+; a bound belongs to the upper one.

    Raises:
        ValueError: a negative position.
    """
    if context_start < 0:
        raise ValueError(f"expected a context position of 0 or more tokens, got {context_start}")
    return next(name for name, _, to in _BUCKETS if to is None or context_start < to)


def _bucket(name: str, low: int, high: int | None, requests: Sequence[Request]) -> Bucket:
    phases = [_prefill(r) for r in requests]
    busy = _busy(phases)
    speeds = [
        speed_tok_s(phase.tokens, phase.span[1] - phase.span[0]) for phase in phases if phase.tokens and phase.span
    ]
    known = [speed for speed in speeds if speed is not None]
    return Bucket(
        name=name,
        from_tokens=low,
        to_tokens=high,
        requests=len(requests),
        new_prefill_tokens=_sum_known(r.new_prefill_tokens for r in requests),
        median_tok_s=median(known) if known else None,
        prefill_union_ns=busy.union_ns,
        union_tok_s=speed_tok_s(busy.speed_tokens, busy.speed_ns),
    )


def by_context(requests: Sequence[Request]) -> tuple[Bucket, ...]:
    """Group requests by the context position at which their prefill starts; those without one are in no bucket."""
    placed = [(bucket_of(r.context_start), r) for r in requests if r.context_start is not None]
    return tuple(_bucket(name, low, high, [r for at, r in placed if at == name]) for name, low, high in _BUCKETS)


def _last_ns(request: Request) -> int | None:
    ends = [end for end in (request.prefill_end, request.decode_end) if end is not None]
    return max(ends, default=None)


def _at_work(request: Request, at_ns: int) -> bool:
    last_ns = _last_ns(request)
    return request.prefill_start is not None and last_ns is not None and request.prefill_start < at_ns < last_ns


def account_segment(requests: Sequence[Request], segment: Segment) -> SegmentAccount:
    """Account for one segment. `requests` may hold those of other segments and runs too: `Request.segment` decides.

    Membership is by prefill start (PROTOCOL 1.8) and was decided by whoever joined the requests, so the phases of a
    member count whole even where they reach past the segment's end, and a share can then exceed 1.
    Server-only requests count: without a client's record every request is one. With agents at work they are foreign
    traffic, and `whole.matches.server_only` says so.

    Raises:
        ValueError: a phase or the segment ends before it starts.
    """
    ours = [r for r in requests if r.run == segment.run]
    members = [r for r in ours if r.segment == segment.segment]
    names = sorted({r.agent for r in members if r.agent is not None})
    nameless = [r for r in members if r.agent is None]
    return SegmentAccount(
        segment=segment,
        whole=total(members, segment),
        agents={name: total([r for r in members if r.agent == name], segment, members) for name in names},
        no_agent=total(nameless, segment, members) if nameless else None,
        buckets=by_context(members),
        unknown_context=sum(r.context_start is None for r in members),
        straddles_begin=tuple(r.request for r in ours if _at_work(r, segment.begin_ns)),
        straddles_end=tuple(r.request for r in members if segment.end_ns is not None and _at_work(r, segment.end_ns)),
    )
