"""What speaks for or against a logged request being this request of the client?

Exact keys (llama.cpp's timings, ds4-server's tool-call ids, the answer's id that vLLM and SGLang log), counts that both
sides know, and times.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Final

from agentload.core.records import Completion, LoggedRequest

TIMING_TOLERANCE_MS: Final = 0.0051  # the log has 2 decimals of the answer's many: half a step, and float noise
FINISH_SLACK_NS: Final = 1_000_000_000  # log lines follow the client's last byte; 3-68 ms measured on llama.cpp
CUT_SHORT: Final = frozenset(("cancelled", "error"))  # finishes that no whole answer has


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one request as one side tells them; None is not told."""

    prompt: int | None
    cached: int | None
    new: int | None
    decoded: int | None


def _counts(prompt: int | None, cached: int | None, new: int | None, decoded: int | None) -> Counts:
    """Fill the one of prompt = cached + new that is missing; a negative one is not a count."""
    if new is None and prompt is not None and cached is not None and prompt >= cached:
        new = prompt - cached
    elif cached is None and prompt is not None and new is not None and prompt >= new:
        cached = prompt - new
    elif prompt is None and cached is not None and new is not None:
        prompt = cached + new
    return Counts(prompt, cached, new, decoded)


def told(sent: Completion) -> Counts:
    """Return what the answer says: timings where they are (the log repeats them), else usage."""
    usage, timings = sent.usage, sent.timings
    prompt = None if usage is None else usage.prompt_tokens
    cached = None if usage is None else usage.cached_tokens
    if timings is None:
        return _counts(prompt, cached, None, None if usage is None else usage.completion_tokens)
    cached = timings.cached_tokens if cached is None else cached
    return _counts(prompt, cached, timings.prompt_tokens, timings.decoded_tokens)


def _logged(logged: LoggedRequest) -> Counts:
    return _counts(logged.prompt_tokens, logged.cached_tokens, logged.new_prefill_tokens, logged.decoded_tokens)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= TIMING_TOLERANCE_MS


def _same_timings(sent: Completion, logged: LoggedRequest) -> bool | None:
    """Whether llama.cpp's four numbers agree; None when one of them is missing."""
    timings = sent.timings
    if timings is None or logged.prefill_ms is None or logged.decode_ms is None:
        return None
    return (
        (timings.prompt_tokens, timings.decoded_tokens) == (logged.new_prefill_tokens, logged.decoded_tokens)
        and _near(timings.prompt_ms, logged.prefill_ms)
        and _near(timings.decode_ms, logged.decode_ms)
    )


def _same_calls(sent: Completion, logged: LoggedRequest) -> bool | None:
    """Whether the tool-call ids agree; None when the log has none, because not every format writes them."""
    if not logged.tool_call_ids:
        return None
    ids = tuple(call.id for call in sent.tool_calls)
    if sent.error is not None:  # it may have seen a part of them
        return None if not ids else set(ids) <= set(logged.tool_call_ids)
    return ids == logged.tool_call_ids


def _same_id(sent: Completion, logged: LoggedRequest) -> bool | None:
    """Whether the answer has the id that the log has; None when either has none."""
    return None if sent.server_id is None or logged.server_id is None else sent.server_id == logged.server_id


_Timed = Mapping[tuple[int | None, int | None], Sequence[tuple[float, int]]]


def _by_timings(logged: Sequence[LoggedRequest]) -> _Timed:
    """Return, by new and decoded tokens, the ms of prefill and the indices of those that have them, in order."""
    found: dict[tuple[int | None, int | None], list[tuple[float, int]]] = defaultdict(list)
    for index, one in enumerate(logged):
        if one.prefill_ms is not None:
            found[one.new_prefill_tokens, one.decoded_tokens].append((one.prefill_ms, index))
    for each in found.values():
        each.sort()
    return found


def _with_timings(sent: Completion, logged: Sequence[LoggedRequest], timed: _Timed) -> set[int]:
    """Return those with llama.cpp's four numbers; of 4,000 with equal counts not all are looked at: that took 5 s."""
    if sent.timings is None:
        return set()
    same = timed.get((sent.timings.prompt_tokens, sent.timings.decoded_tokens), ())
    first = bisect_left(same, sent.timings.prompt_ms - 2 * TIMING_TOLERANCE_MS, key=itemgetter(0))
    beyond = bisect_right(same, sent.timings.prompt_ms + 2 * TIMING_TOLERANCE_MS, key=itemgetter(0))
    return {index for _, index in same[first:beyond] if _same_timings(sent, logged[index])}


def exact_pairs(sent: Sequence[Completion], logged: Sequence[LoggedRequest]) -> tuple[tuple[int, int], ...]:
    """Return (index of the answer, index in the log) of the pairs whose exact key fits nobody else on either side.

    What the log tells of a member of a group is a guess, so a key there proves nothing of the rest of its row.
    """
    if not sent:  # then the log need not be gone through, which may be long
        return ()
    by_key: dict[object, list[int]] = defaultdict(list)
    for index, one in enumerate(logged):
        if one.tool_call_ids:
            by_key[one.tool_call_ids].append(index)
        if one.server_id is not None:
            by_key[one.server_id].append(index)
    timed = _by_timings(logged)
    fits: list[set[int]] = []
    for one_sent in sent:
        found = _with_timings(one_sent, logged, timed)
        if one_sent.tool_calls:
            found |= set(by_key.get(tuple(call.id for call in one_sent.tool_calls), ()))
        if one_sent.server_id is not None:
            found |= set(by_key.get(one_sent.server_id, ()))
        fits.append(found)
    fitted: Counter[int] = Counter()
    for found in fits:
        fitted.update(found)
    alone = [(left, next(iter(found))) for left, found in enumerate(fits) if len(found) == 1]
    return tuple((left, right) for left, right in alone if fitted[right] == 1 and logged[right].group is None)


def telling_pairs(sent: Sequence[Completion], logged: Sequence[LoggedRequest]) -> tuple[tuple[int, int], ...]:
    """Return `exact_pairs`, and pairs of whole answers whose four counts are those of nobody else on either side.

    No time is looked at: they can tell how two clocks stand to one another.
    """
    if not sent:
        return ()
    pairs = exact_pairs(sent, logged)
    lefts, rights = {left for left, _ in pairs}, {right for _, right in pairs}
    ours = {left: told(one) for left, one in enumerate(sent) if left not in lefts and one.error is None}
    theirs = {right: _logged(one) for right, one in enumerate(logged) if right not in rights}
    counted = Counter(ours.values()), Counter(theirs.values())
    right_of = {counts: right for right, counts in theirs.items()}
    more = [
        (left, right_of[counts])
        for left, counts in ours.items()
        if None not in (counts.prompt, counts.cached, counts.new, counts.decoded)
        and (counted[0][counts], counted[1][counts]) == (1, 1)
        and logged[right_of[counts]].group is None
        and fit(sent[left], logged[right_of[counts]], None)
    ]
    return (*pairs, *more)


# ---- what fits what ------------------------------------------------------------------------------------------------


WORK_TIMES: Final = ("t_slot", "prefill_start", "prefill_end", "decode_start", "decode_end", "t_end")
_WORK_TIMES: Final = attrgetter(*WORK_TIMES)


def work_times(logged: LoggedRequest) -> list[int]:
    """Times at which the server worked on it; t_end only where there is nothing else.

    ds4-server logs the finish after it has rebuilt its checkpoint, which can take a minute after the last byte.
    """
    return worked(_WORK_TIMES(logged))


def worked(times: Sequence[int | None]) -> list[int]:
    """Return `work_times` of a request of which `WORK_TIMES` are these."""
    *work, end = times
    return [time for time in work if time is not None] or [time for time in (end,) if time is not None]


def _within(sent: Completion, logged: LoggedRequest, error_ns: int) -> tuple[bool | None, bool | None]:
    """Whether the log's times begin, and whether they end, within the client's; None when the log has none.

    Of a failed request only the first must lie before the end: the server goes on until it notices that the client
    has gone.
    """
    times = work_times(logged)
    if not times:
        return None, None
    last = max(times) if sent.error is None else min(times)
    return sent.t_sent - error_ns <= min(times), last <= sent.t_done + error_ns + FINISH_SLACK_NS


def _may_end(sent: Completion, logged: LoggedRequest) -> bool:
    """Whether it can have ended as the client saw it end."""
    if sent.error is None:
        return logged.finish not in CUT_SHORT
    return logged.finish in CUT_SHORT or logged.t_end is None


def _equal(one: int | None, other: int | None) -> bool | None:
    return None if one is None or other is None else one == other


def _says(sent: Completion, logged: LoggedRequest) -> tuple[bool | None, ...]:
    """What keys and counts say for (True), against (False), or not at all (None)."""
    ours, theirs = told(sent), _logged(logged)
    return (
        _same_timings(sent, logged),
        _same_calls(sent, logged),
        _same_id(sent, logged),
        _equal(ours.prompt, theirs.prompt),
        _equal(ours.cached, theirs.cached),
        _equal(ours.new, theirs.new),
        _equal(ours.decoded, theirs.decoded),
    )


def fit(sent: Completion, logged: LoggedRequest, error_ns: int | None) -> bool:
    """Whether something says that they are one, and nothing that they are not."""
    if not _may_end(sent, logged):
        return False
    within = (None,) if error_ns is None else _within(sent, logged, error_ns)
    if False in within:  # the cheapest to find out, and true of most pairs
        return False
    evidence = (*within, *_says(sent, logged))
    return True in evidence and False not in evidence


def unended(logged: LoggedRequest) -> bool:
    """Whether the log has no whole answer of it: it was cancelled, it failed, or nothing tells of an end."""
    return logged.finish in CUT_SHORT or (logged.finish is None and logged.t_end is None)


def may_be(sent: Completion, logged: LoggedRequest, error_ns: int) -> bool:
    """Whether `logged` can be our `sent`, which broke off: it began after that was sent, and no count is another one.

    When it began is not held against the end: a request that waits in a server's queue may begin when its client has
    gone, and of one that the run's end broke off no end is known (`Completion.ended`). One that the server finished is
    ours only if it did when we were gone: it may have been quicker than the news of that.
    """
    if not (unended(logged) or (sent.ended and logged.t_end is not None and logged.t_end >= sent.t_done - error_ns)):
        return False
    began = min(work_times(logged), default=None)
    return began is not None and sent.t_sent - error_ns <= began and False not in _says(sent, logged)


def _among(ours: object | None, theirs: AbstractSet[object | None]) -> bool | None:
    """Whether ours is one of theirs; None when it is not told, or it is none of them and one of them is not told."""
    if ours is None:
        return None
    return ours in theirs or (None if None in theirs else False)


def _any(said: Iterable[bool | None]) -> bool | None:
    """Whether one says so; None when none does and not all say no."""
    every = set(said)
    return True in every or (None if None in every else False)


class Together:
    """Requests that the log does not tell apart: an answer can be one of them, or none.

    A line of one may have been counted for another, so each thing that is asked of `fit` is asked of all members by
    itself: it speaks against an answer only when it does so of each. What they have is kept as sets and bounds: with
    each answer held against each member, 600 equal requests took 8 s.
    """

    def __init__(self, members: Sequence[LoggedRequest]) -> None:
        """`members` are at least one."""
        self._members = members
        counts = [_logged(one) for one in members]
        self._prompt = frozenset(one.prompt for one in counts)
        self._cached = frozenset(one.cached for one in counts)
        self._new = frozenset(one.new for one in counts)
        self._decoded = frozenset(one.decoded for one in counts)
        self._calls = frozenset(one.tool_call_ids or None for one in members)
        self._ids = frozenset(one.server_id for one in members)
        self._whole = any(one.finish not in CUT_SHORT for one in members)
        self._cut = any(one.finish in CUT_SHORT or one.t_end is None for one in members)
        times = [work_times(one) for one in members]
        known = [each for each in times if each]
        self._timeless = len(known) < len(times)
        begins = [min(each) for each in known]
        self._begins = (min(begins), max(begins)) if begins else None
        self._first_end = min((max(each) for each in known), default=0)

    @property
    def begins(self) -> tuple[int, int] | None:
        """When the first and the last of them began; None when one has no times, which then speak against nothing."""
        return None if self._timeless else self._begins

    def fit(self, sent: Completion, error_ns: int | None) -> bool:
        """Whether it can be one of them; `error_ns` is that of the log's clock, None: times tell nothing."""
        if not (self._whole if sent.error is None else self._cut):
            return False
        evidence = self._within(sent, error_ns)
        if False in evidence:  # the cheapest to find out, and true of most
            return False
        ours = told(sent)
        evidence += (
            None if sent.timings is None else _any(_same_timings(sent, one) for one in self._members),
            self._same_calls(sent),
            _among(sent.server_id, self._ids),
            _among(ours.prompt, self._prompt),
            _among(ours.cached, self._cached),
            _among(ours.new, self._new),
            _among(ours.decoded, self._decoded),
        )
        return True in evidence and False not in evidence

    def _within(self, sent: Completion, error_ns: int | None) -> list[bool | None]:
        if error_ns is None or self._begins is None:
            return []
        ended = self._first_end if sent.error is None else self._begins[0]
        within = sent.t_sent - error_ns <= self._begins[1], ended <= sent.t_done + error_ns + FINISH_SLACK_NS
        return [each or (None if self._timeless else False) for each in within]

    def _same_calls(self, sent: Completion) -> bool | None:
        if sent.error is None:
            return _among(tuple(call.id for call in sent.tool_calls), self._calls)
        return _any(_same_calls(sent, one) for one in self._members)
