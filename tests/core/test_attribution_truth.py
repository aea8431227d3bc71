"""Attribution against a known truth: requests of our agents and of strangers, interleaved at random."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from agentload.core.attribution import attribute
from agentload.core.evidence import FINISH_SLACK_NS
from agentload.core.records import (
    Boot,
    Completion,
    LineCount,
    LogFacts,
    LoggedRequest,
    Match,
    Request,
    ServerTimings,
    Timeline,
    ToolCall,
    Usage,
)

MS = 1_000_000
T0 = 1_795_958_524_000 * MS
ERROR_NS = 20 * MS
RESOLUTION_NS = 1_000


@dataclass(frozen=True)
class Truth:
    """One request as it really was; times in ms after T0."""

    number: int
    ours: bool
    in_log: bool
    failed: bool  # it broke off: the client has no counts, the log (if at all) shows it as cancelled
    sent: int
    waited: int
    prefill: int
    decode: int
    returned: int
    skew: int  # of the log's clock against the client's
    prompt: int
    cached: int
    decoded: int
    timed: bool  # the answer carries timings that the log repeats
    prefill_us: int
    calls: bool  # it ended in a tool call whose id is in the log

    @property
    def client(self) -> Completion:
        done = self.sent + self.waited + self.prefill + self.decode + self.returned
        if self.failed:
            return Completion(
                f"q{self.number}", "a0", 0, T0 + self.sent * MS, None, None, T0 + done * MS, None, error="timed out"
            )
        return Completion(
            request=f"q{self.number}",
            agent="a0",
            turn=0,
            t_sent=T0 + self.sent * MS,
            t_first_byte=None,
            t_first_token=T0 + done * MS,
            t_done=T0 + done * MS,
            status=200,
            tool_calls=(ToolCall(f"call_{self.number}", "read", "{}"),) if self.calls else (),
            usage=Usage(self.prompt, self.decoded, self.cached),
            timings=ServerTimings(self.cached, self.prompt - self.cached, self.prefill_us / 1_000, self.decoded, 7.0)
            if self.timed
            else None,
        )

    @property
    def logged(self) -> LoggedRequest:
        start = T0 + (self.sent + self.waited + self.skew) * MS
        middle, end = start + self.prefill * MS, start + (self.prefill + self.decode) * MS
        return LoggedRequest(
            boot=0,
            label=f"n{self.number}",
            slot=None,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            new_prefill_tokens=self.prompt - self.cached,
            decoded_tokens=self.decoded,
            t_slot=None,
            prefill_start=start,
            prefill_end=None if self.failed else middle,
            decode_start=None if self.failed else middle,
            decode_end=None if self.failed else end,
            t_end=end + 30 * MS,
            prefill_ms=round(self.prefill_us / 1_000, 2) if self.timed and not self.failed else None,
            decode_ms=7.0 if self.timed and not self.failed else None,
            finish="cancelled" if self.failed else "stop",
            tool_call_ids=(f"call_{self.number}",) if self.calls and not self.failed else (),
        )


def plainly_fit(one: Truth, other: Truth) -> bool:
    """Whether the answer of `one` could be the log's `other`: told from the truth, both of the log and whole."""
    if (one.prompt, one.cached, one.decoded) != (other.prompt, other.cached, other.decoded):
        return False
    if one.timed and other.timed and abs(one.prefill_us / 1_000 - round(other.prefill_us / 1_000, 2)) > 0.0051:
        return False
    if other.calls and one.number != other.number:
        return False
    sent, log = one.client, other.logged
    assert log.prefill_start is not None
    assert log.decode_end is not None
    error_ns = ERROR_NS + RESOLUTION_NS
    return sent.t_sent - error_ns <= log.prefill_start and log.decode_end <= sent.t_done + error_ns + FINISH_SLACK_NS


@st.composite
def truths(draw: st.DrawFn) -> list[Truth]:
    """Up to seven requests with counts from a small pool, so that equal ones meet; those not in the log are unlike all.

    A whole answer that the log has lost while a stranger's equal request ran in its time cannot be told by anyone (the
    module says so), so lost ones have counts of their own.
    """
    found = []
    for number in range(draw(st.integers(1, 7))):
        ours = draw(st.integers(0, 2)) > 0
        lost = ours and draw(st.integers(0, 5)) == 0
        found.append(
            Truth(
                number=number,
                ours=ours,
                in_log=not lost,
                failed=draw(st.integers(0, 5)) == 0,
                sent=draw(st.integers(0, 4_000)),
                waited=draw(st.integers(0, 500)),
                prefill=draw(st.integers(0, 500)),
                decode=draw(st.integers(0, 500)),
                returned=draw(st.integers(0, 50)),
                skew=draw(st.integers(-20, 20)),
                prompt=9_000 + number if lost else 100,
                cached=draw(st.sampled_from((0, 50))),
                decoded=draw(st.sampled_from((5, 5, 6))),
                timed=draw(st.integers(0, 2)) == 0,
                prefill_us=draw(st.integers(20_000, 20_020)),
                calls=draw(st.integers(0, 3)) == 0,
            )
        )
    return found


def attributed(truth: list[Truth], order: list[int]) -> Sequence[Request]:
    mixed = [truth[at] for at in order]
    facts = LogFacts(
        format="any", timeline=Timeline.UNIX, resolution_ns=RESOLUTION_NS, clock_error_ns=ERROR_NS, size=0,
        lines=LineCount(0, 0, 0), boots=(Boot(0, 1, None),), settings=(),
        requests=tuple(one.logged for one in mixed if one.in_log), markers=(),
    )  # fmt: skip
    return attribute("r1", [one.client for one in mixed[::-1] if one.ours], facts, ()).requests


CASES = truths().flatmap(lambda truth: st.tuples(st.just(truth), st.permutations(range(len(truth)))))


@given(CASES)
def test_every_request_of_either_side_is_in_exactly_one_row(case: tuple[list[Truth], list[int]]) -> None:
    truth, order = case
    rows = attributed(truth, order)
    names = Counter(row.request for row in rows if row.t_sent is not None)
    labels = Counter(row.label for row in rows if row.label is not None)
    assert names == Counter(f"q{one.number}" for one in truth if one.ours)
    assert labels == Counter(f"n{one.number}" for one in truth if one.in_log)


@given(CASES)
def test_what_is_called_exact_or_unique_is_true(case: tuple[list[Truth], list[int]]) -> None:
    truth, order = case
    failed = {f"q{one.number}" for one in truth if one.failed}
    never_arrived = any(one.failed and one.ours and not one.in_log for one in truth)  # its place may be a stranger's
    for row in attributed(truth, order):
        if row.match in (Match.EXACT, Match.UNIQUE) and not (never_arrived and row.request in failed):
            assert row.label is not None
            assert row.request[1:] == row.label[1:]


@given(CASES)
def test_the_sums_of_tokens_are_those_of_the_truth(case: tuple[list[Truth], list[int]]) -> None:
    truth, order = case
    rows = attributed(truth, order)
    seen = [one for one in truth if one.in_log or not one.failed]  # a failed one that is not in the log told nothing
    assert sum(row.prompt_tokens or 0 for row in rows) == sum(one.prompt for one in seen)
    assert sum(row.cached_tokens or 0 for row in rows) == sum(one.cached for one in seen)
    assert sum(row.new_prefill_tokens or 0 for row in rows) == sum(one.prompt - one.cached for one in seen)
    assert sum(row.decoded_tokens or 0 for row in rows) == sum(one.decoded for one in seen)


@given(CASES)
def test_ambiguous_means_that_another_joining_is_possible_and_otherwise_none_is(
    case: tuple[list[Truth], list[int]],
) -> None:
    truth, order = case
    whole = {one.number: one for one in truth if not one.failed}
    ours = [one for one in whole.values() if one.ours]
    theirs = [one for one in whole.values() if one.in_log]
    fits = {one.number: [other.number for other in theirs if plainly_fit(one, other)] for one in ours}
    possible: dict[int, set[int | None]] = {one.number: set() for one in ours}
    joinings: list[dict[int, int]] = [{}]
    for one in ours:  # every way to join, the largest kept
        joinings = [
            {**joining, **found}
            for joining in joinings
            for found in ({}, *({one.number: other} for other in fits[one.number] if other not in joining.values()))
        ]
    largest = max(map(len, joinings))
    for joining in joinings:
        if len(joining) == largest:
            for number, partners in possible.items():
                partners.add(joining.get(number))
    rows = attributed(truth, order)
    no_keys = all(row.match is not Match.EXACT for row in rows)  # else a key has taken choices away
    for row in rows:
        number = int(row.request[1:]) if row.t_sent is not None else -1
        if number not in possible:
            continue
        choices = possible[number]
        if row.match is Match.AMBIGUOUS:
            assert row.group is not None
            assert len(choices) > 1
            assert (None if row.label is None else int(row.label[1:])) in choices
        elif row.match is Match.CLIENT_ONLY:
            assert choices == {None}
        elif row.match is Match.UNIQUE and no_keys:
            assert row.label is not None
            assert choices == {int(row.label[1:])}


@given(CASES)
def test_the_order_in_which_requests_are_read_changes_nothing(case: tuple[list[Truth], list[int]]) -> None:
    truth, order = case
    assert attributed(truth, order) == attributed(truth, sorted(order))
