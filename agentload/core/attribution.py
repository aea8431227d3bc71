"""Which request in the server's log is which request of our agents?

In this order:

1. An exact key: the numbers of llama.cpp's `timings`, which its log repeats (68 of 68 requests over 6 runs), the
   tool-call ids that ds4-server logs, or the answer's id, which vLLM and SGLang do. EXACT when the key fits one request
   on either side; else it goes on to 2.
2. Counts and times: an answer and a logged request fit when no count that both sides know differs and the log's times
   lie within the client's. UNIQUE when the pair is in every largest joining of all that fits, AMBIGUOUS otherwise.
   Requests that the log itself does not tell apart (`LoggedRequest.group`) are AMBIGUOUS always, joined or not: which
   line was whose is a guess, so an answer fits all members or none, and no key makes one of them EXACT.
3. A failed request fits only what the log shows as cancelled, failed or still open, and is joined only when it fits
   that one and nothing else does: the server may never have seen it.
   Equal requests of which some broke off are joined with what is left of their group, if it is enough for all.
   What nobody is joined with, and may be one of several that broke off, is called no stranger (core.strangers).

What this rests on, and cannot prove: a whole answer is in the log if anything there fits it. An answer that is missing
from the log while a stranger's request with the same counts ran within its time would be taken for the stranger's.
More logged requests than answers are no such case: they leave a choice, so nothing there is called UNIQUE.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from agentload.core import attribution_doubts, strangers
from agentload.core.candidates import Candidates
from agentload.core.evidence import Counts, exact_pairs, told, work_times
from agentload.core.first_tokens import tokens_of_first_piece
from agentload.core.names import counted, log_name
from agentload.core.records import (
    Completion,
    Doubt,
    LogFacts,
    LoggedRequest,
    Match,
    Proof,
    Request,
    Segment,
    Source,
    Timeline,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that cannot be told apart. What is logged beyond those sent is foreign, or ours and broke off."""

    name: str
    requests: tuple[str, ...]  # names of its rows, in their order
    sent: int
    logged: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """Every request of the client and of the log, each in exactly one row."""

    requests: Sequence[Request]  # by prefill start, else by the time they were sent; those without a time last
    counts: dict[Match, int]
    groups: tuple[Group, ...]
    doubts: tuple[Doubt, ...]
    # By segment, how many of its server-only rows are perhaps requests of ours that broke off (core.strangers).
    perhaps_ours: Mapping[str | None, int] = field(default_factory=dict)

    @property
    def foreign(self) -> tuple[Request, ...]:
        """Rows that no request of ours is joined with: server-only ones, and what groups have too many of."""
        return tuple(row for row in self.requests if row.t_sent is None)


# ---- joining -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Join:
    sent: Completion | None
    logged: LoggedRequest | None
    match: Match
    group: str | None = None


def _join_failed(failed: Sequence[Completion], log: Candidates, free: AbstractSet[int]) -> list[_Join]:
    """Join those that fit one request alone; return the rest of `failed`, and of the `free` ones, none in a group."""
    fits = [[index for index in log.alone(sent) if index in free] for sent in failed]
    wanted = Counter(index for found in fits for index in found)
    joins = []
    taken = set()
    for sent, found in zip(failed, fits, strict=True):
        if len(found) == 1 and wanted[found[0]] == 1:
            joins.append(_Join(sent, log.requests[found[0]], Match.UNIQUE))
            taken.add(found[0])
        else:
            joins.append(_Join(sent, None, Match.CLIENT_ONLY))
    return joins + [_Join(None, log.requests[index], Match.SERVER_ONLY) for index in sorted(free - taken)]


def _failed_of_groups(
    failed: Sequence[Completion], log: Candidates, spare: Sequence[int]
) -> tuple[dict[int, Completion], list[Completion]]:
    """Give failed requests that fit members of one group only to its `spare` ones, where there is one for each.

    Return them by the index of the member, and those that were not given.
    """
    of_group: dict[str, list[Completion]] = {}
    rest = []
    for sent in failed:
        name = log.only_group(sent)
        if name is None:
            rest.append(sent)
        else:
            of_group.setdefault(name, []).append(sent)
    left_of: dict[str | None, list[int]] = {}
    for index in spare:
        left_of.setdefault(log.requests[index].group, []).append(index)
    given: dict[int, Completion] = {}
    for name, members in of_group.items():
        left = left_of.get(name, [])
        if len(left) < len(members):
            rest += members
        else:
            given |= zip(sorted(left, key=lambda index: log.requests[index].finish is not None), members, strict=False)
    return given, rest


def _join(completions: Sequence[Completion], requests: Sequence[LoggedRequest], error_ns: int | None) -> list[_Join]:
    """Join all; both sides come in order of time, which is how the members of an ambiguous group are joined."""
    exact = exact_pairs(completions, requests)
    joins = [_Join(completions[left], requests[right], Match.EXACT) for left, right in exact]
    lefts, rights = {left for left, _ in exact}, {right for _, right in exact}
    open_sent = [sent for left, sent in enumerate(completions) if left not in lefts]
    log = Candidates([one for right, one in enumerate(requests) if right not in rights], error_ns)
    whole = [sent for sent in open_sent if sent.error is None]
    found = log.pair_up(whole)
    joins += [_Join(whole[left], log.requests[right], Match.UNIQUE) for left, right in found.certain]
    seen = {left for left, _ in found.certain} | {left for group in found.groups for left in group.left}
    joins += [_Join(sent, None, Match.CLIENT_ONLY) for left, sent in enumerate(whole) if left not in seen]

    # What cannot be told apart: groups that the pairing leaves, and those of the log that no answer fits.
    together = [(group.left, group.right, {right: left for left, right in group.pairs}) for group in found.groups]
    seen_right = {right for _, right in found.certain} | {right for group in found.groups for right in group.right}
    together += [((), tuple(each), {}) for each in log.groups.values() if seen_right.isdisjoint(each)]
    spare = [right for _, members, left_of in together for right in members if right not in left_of]
    given, failed = _failed_of_groups([sent for sent in open_sent if sent.error is not None], log, spare)
    for number, (members_left, members, left_of) in enumerate(together, start=1):
        name = f"g{number}"
        sent_of = {right: whole[left] for right, left in left_of.items()} | {
            right: given[right] for right in members if right in given
        }
        without = sorted(set(members_left) - set(left_of.values()))
        joins += [_Join(sent_of.get(right), log.requests[right], Match.AMBIGUOUS, name) for right in sorted(members)]
        joins += [_Join(whole[left], None, Match.AMBIGUOUS, name) for left in without]
        seen_right |= set(members)
    return joins + _join_failed(failed, log, set(range(len(log.requests))) - seen_right)


# ---- rows ----------------------------------------------------------------------------------------------------------

_Phase = tuple[int | None, int | None, Source | None]


def _best(*phases: _Phase) -> _Phase:
    """Return the first that has both ends; else what the log has of it."""
    for start, end, source in phases:
        if start is not None and end is not None:
            return start, end, source
    start, end, source = phases[0]
    return start, end, None if start is None and end is None else source


def _durations(sent: Completion) -> tuple[int, int] | None:
    """Return how long its prefill and its decode took (ns), where the answer tells."""
    if sent.timings is not None:
        return round(sent.timings.prompt_ms * 1e6), round(sent.timings.decode_ms * 1e6)
    if sent.phases is not None:
        return round(sent.phases.prefill_ms * 1e6), round(sent.phases.decode_ms * 1e6)
    return None


def _phases(sent: Completion | None, logged: LoggedRequest | None) -> tuple[_Phase, _Phase]:
    """Prefill and decode from the best source that has them (design, section 5)."""
    nothing: _Phase = (None, None, None)
    log_prefill = log_decode = usage_prefill = usage_decode = client_prefill = client_decode = nothing
    if logged is not None:
        log_prefill = (logged.prefill_start, logged.prefill_end, Source.LOG)
        log_decode = (logged.decode_start, logged.decode_end, Source.LOG)
    if sent is not None:
        client_prefill = (sent.t_sent if sent.t_first_token is not None else None, sent.t_first_token, Source.CLIENT)
        client_decode = (sent.t_first_token, sent.t_done, Source.CLIENT)
        if (durations := _durations(sent)) is not None:  # laid backwards from the last byte
            first_token = sent.t_done - durations[1]
            usage_prefill = (first_token - durations[0], first_token, Source.USAGE)
            usage_decode = (first_token, sent.t_done, Source.USAGE)
    return _best(log_prefill, usage_prefill, client_prefill), _best(log_decode, usage_decode, client_decode)


def _untimed(join: _Join, source: Source | None, decoded: int | None) -> int | None:
    """Return how many of the decoded tokens are not of the decode's times, which `source` tells; None: not known."""
    if source is Source.LOG and join.logged is not None:
        return join.logged.decode_untimed_tokens
    if source is Source.CLIENT and join.sent is not None:
        return tokens_of_first_piece(join.sent.token_ns, decoded)
    return None if source is None else 1  # an answer's durations begin with its first token


def _segment(at_ns: int | None, segments: Sequence[Segment]) -> str | None:
    """Return the segment whose [begin, end) holds `at_ns`; the one begun last, should they overlap."""
    if at_ns is None:
        return None
    holding = [s for s in segments if s.begin_ns <= at_ns and (s.end_ns is None or at_ns < s.end_ns)]
    return max(holding, key=lambda s: s.begin_ns).segment if holding else None


def _proof(proofs: Mapping[str, Proof], *fields: str) -> Proof | None:
    for name in fields:  # six times a request, of a million requests: a generator took twice as long
        if name in proofs:
            return proofs[name]
    return None


def _name(join: _Join) -> str:
    if join.sent is not None:
        return join.sent.request
    if join.logged is None:
        raise ValueError("expected a request that the client or the log knows, got neither")
    return log_name(join.logged.boot, join.logged.label)


def _began(prefill_start: int | None, sent: Completion | None) -> int | None:
    """When its prefill began, for the segment: a log's time may stand some ms before the request was even sent."""
    if sent is None or prefill_start is None:
        return prefill_start if sent is None else sent.t_sent
    return max(prefill_start, sent.t_sent)


_NONE_TOLD: Final = Counts(None, None, None, None)


def _tokens(join: _Join) -> tuple[Counts, Source | None]:
    """Return the counts, the log's where it has the request, and where the cached tokens are from.

    llama.cpp's log does not tell these where it shifted the context or used a draft model. Its answer's timings do,
    and the log repeats their other numbers. vLLM's log tells no count of a request: the answer's are all there is.
    """
    sent, logged = join.sent, join.logged
    if logged is None:
        counts = Counts(None, None, None, None) if sent is None else told(sent)
        return counts, None if counts.cached is None else Source.USAGE
    counts = Counts(logged.prompt_tokens, logged.cached_tokens, logged.new_prefill_tokens, logged.decoded_tokens)
    if counts == _NONE_TOLD and join.match is Match.EXACT and sent is not None:
        return told(sent), Source.USAGE
    if counts.cached is not None:
        return counts, Source.LOG
    timings = None if sent is None or join.match is Match.AMBIGUOUS else sent.timings
    if timings is None or timings.cached_tokens is None or counts.new != timings.prompt_tokens:
        return counts, None
    prompt = timings.cached_tokens + timings.prompt_tokens if counts.prompt is None else counts.prompt
    return Counts(prompt, timings.cached_tokens, counts.new, counts.decoded), Source.USAGE


def _row(run: str, join: _Join, segment_at: Callable[[int | None], str | None], *, placed: bool) -> Request:
    """Make the row; `placed` says that the log's times are on the client's clock, or that there is no client."""
    sent, logged = join.sent, join.logged
    prefill, decode = _phases(sent, logged if placed else None)
    usage = None if sent is None else sent.usage
    counts, cached_source = _tokens(join)
    context_start = None if logged is None else logged.context_start
    proofs = {} if logged is None else dict(logged.proofs)
    prefill_ms, decode_ms = (None, None) if logged is None else (logged.prefill_ms, logged.decode_ms)
    told = prefill[1], prefill_ms, counts.new  # of the end of its prefill
    taken = None  # by the server: it got a slot, or came to one that has none
    if logged is not None and placed:
        taken = logged.t_arrived if logged.t_slot is None else logged.t_slot
    return Request(
        run=run,
        segment=segment_at(_began(taken if prefill[0] is None and sent is None else prefill[0], sent)),
        agent=None if sent is None else sent.agent,
        turn=None if sent is None else sent.turn,
        request=_name(join),
        match=join.match,
        group=join.group,
        boot=None if logged is None else logged.boot,
        slot=None if logged is None else logged.slot,
        label=None if logged is None else logged.label,
        t_sent=None if sent is None else sent.t_sent,
        t_first_byte=None if sent is None else sent.t_first_byte,
        t_first_token=None if sent is None else sent.t_first_token,
        t_done=sent.t_done if sent is not None and sent.ended else None,
        t_slot=taken,
        prefill_start=prefill[0],
        prefill_end=prefill[1],
        decode_start=decode[0],
        decode_end=decode[1],
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        new_prefill_tokens=counts.new,
        decoded_tokens=counts.decoded,
        reasoning_tokens=None if usage is None else usage.reasoning_tokens,
        rebuild_tokens=None if logged is None else logged.rebuild_tokens,
        context_start=counts.cached if context_start is None else context_start,  # prefill starts after what is cached
        finish=logged.finish if logged is not None and logged.finish is not None else sent.finish if sent else None,
        prefill_source=prefill[2],
        decode_source=decode[2],
        usage_prompt_tokens=None if usage is None else usage.prompt_tokens,
        usage_cached_tokens=None if usage is None else usage.cached_tokens,
        usage_completion_tokens=None if usage is None else usage.completion_tokens,
        prefill_proof=None
        if told == (None, None, None)
        else _proof(proofs, "prefill_end", "prefill_ms", "prefill_start", "new_prefill_tokens"),
        decode_proof=_proof(proofs, "decode_end", "decode_ms", "decode_start", "decoded_tokens"),
        error=None if sent is None else sent.error,
        cached_source=cached_source,
        prefill_start_proof=None
        if prefill[0] is None
        else _proof(proofs, "prefill_start", "prefill_end", "prefill_ms"),
        # ds4-server logs no start of decoding: its prompt is done, and it begins.
        decode_start_proof=None if decode[0] is None else _proof(proofs, "decode_start", "prefill_end", "decode_end"),
        cached_proof=_proof(proofs, "cached_tokens"),  # a count that is not the log's has none
        prompt_proof=_proof(proofs, "prompt_tokens"),
        prefill_logged_ms=prefill_ms,
        decode_logged_ms=decode_ms,
        decode_untimed_tokens=_untimed(join, decode[2], counts.decoded),
    )


def log_row(run: str, logged: LoggedRequest, group: str | None, segment: str | None) -> Request:
    """Make the row of a logged request where there is no client; `group` names the one it is not told apart in."""
    match = Match.SERVER_ONLY if group is None else Match.AMBIGUOUS
    return _row(run, _Join(None, logged, match, group), lambda _: segment, placed=True)


def _row_order(row: Request) -> tuple[bool, int, tuple[str, str]]:
    at_ns = row.t_sent if row.prefill_start is None else row.prefill_start
    return at_ns is None, at_ns or 0, counted(row.request)


def _groups(joins: Iterable[_Join], rows: Iterable[Request]) -> list[Group]:
    names: dict[str, list[str]] = {}  # of the rows
    for row in rows:
        if row.group is not None:
            names.setdefault(row.group, []).append(row.request)
    members: dict[str, list[_Join]] = {}
    for join in joins:
        if join.group is not None:
            members.setdefault(join.group, []).append(join)
    return [
        Group(
            name=name,
            requests=tuple(names[name]),
            sent=sum(join.sent is not None for join in each),
            logged=sum(join.logged is not None for join in each),
        )
        for name, each in members.items()
    ]


def attribute(
    run: str, completions: Sequence[Completion], facts: LogFacts | None, segments: Sequence[Segment]
) -> Attribution:
    """Join the client's requests with the log's, and assign each row to a segment of `run`.

    Times of a log that is not on the Unix timeline (see `core.clocks.align`) are used only when there is no client:
    they would be of another clock than the rest of the row.
    """
    unix = facts is not None and facts.timeline is Timeline.UNIX
    error_ns = facts.resolution_ns + (facts.clock_error_ns or 0) if facts is not None and unix else None
    sent = sorted(completions, key=lambda one: (one.t_sent, one.request))
    logged = sorted(
        () if facts is None else facts.requests,
        key=lambda one: (one.boot, min(work_times(one), default=0), counted(one.label)),
    )
    ours = [segment for segment in segments if segment.run == run]
    joins = _join(sent, logged, error_ns)
    place = partial(_segment, segments=ours)
    rows = sorted((_row(run, join, place, placed=unix or not sent) for join in joins), key=_row_order)
    groups = _groups(joins, rows)
    doubts: list[Doubt] = []
    perhaps: dict[str | None, int] = {}
    if facts is not None and sent:
        alone = [join.sent for join in joins if join.sent is not None and join.logged is None]
        broken = [one for one in alone if one.error is not None]
        unjoined = {_name(join): join.logged for join in joins if join.sent is None and join.logged is not None}
        seen = strangers.of(rows, ours, broken, unjoined, error_ns)
        perhaps = seen.perhaps_ours
        tells_requests = bool(facts.requests) or facts.counts_requests  # else its reader says that it tells of none
        doubts += attribution_doubts.of_rows(rows, len(groups), seen.doubts, tells_requests=tells_requests)
    if facts is None:
        doubts.append(attribution_doubts.no_log())
    elif sent and logged and not unix:
        doubts.append(attribution_doubts.not_aligned(facts))
    counts = {match: sum(row.match is match for row in rows) for match in Match}
    return Attribution(tuple(rows), counts, tuple(groups), tuple(doubts), perhaps)
