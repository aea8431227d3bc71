"""Answers joined with requests of the log near them, and what all fit alike in one go: as with all pairs looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from hypothesis import given
from hypothesis import strategies as st

from agentload.core.candidates import Candidates
from agentload.core.evidence import exact_pairs, fit
from agentload.core.pairing import Group, pair_up
from agentload.core.records import Completion, LoggedRequest, ServerTimings, ToolCall, Usage

S = 1_000_000_000
MINUTE = 60 * S


def answer(
    sent: int, done: int, prompt: int | None = 90, decoded: int | None = 7, *, failed: bool = False
) -> Completion:
    usage = Usage(prompt, decoded, 0)
    return Completion("q", "a0", 0, sent, sent, sent, done, 200, usage=usage, error="gone" if failed else None)


def logged(
    begin: int | None, end: int | None, group: str | None = None, prompt: int | None = 90, decoded: int | None = 7
) -> LoggedRequest:
    new = prompt  # nothing of it is cached
    times = (begin, begin, begin, begin, end, end)
    return LoggedRequest(0, "x", None, prompt, 0, new, decoded, *times, None, None, "stop", group=group)


class Counted(Sequence[LoggedRequest]):
    """Requests of a log, and how often one was asked for."""

    def __init__(self, requests: Sequence[LoggedRequest]) -> None:
        self.requests = requests
        self.asked = 0

    def __len__(self) -> int:
        return len(self.requests)

    @overload
    def __getitem__(self, index: int) -> LoggedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LoggedRequest]: ...
    def __getitem__(self, index: int | slice) -> LoggedRequest | Sequence[LoggedRequest]:
        self.asked += 1
        return self.requests[index]

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self.requests)


def test_of_equal_requests_an_answer_is_held_only_against_those_whose_prefill_took_as_long() -> None:
    count = 300  # equal but for the 0.01 ms by which each took longer than the one before
    log = Counted([replace(logged(0, S), prefill_ms=100 + at / 100, decode_ms=50.0) for at in range(count)])
    # An answer has more decimals than the log: it may be 0.005 ms off what that rounds to.
    sent = [replace(answer(0, S), timings=ServerTimings(0, 90, 99.996 + at / 100, 7, 50.0)) for at in range(count)]
    assert exact_pairs(sent, log) == tuple((at, at) for at in range(count))
    assert log.asked <= 5 * count


def test_an_answer_is_held_only_against_what_was_at_work_near_it() -> None:
    count = 300  # a minute apart, ten seconds each
    log = Counted([logged(at * MINUTE, at * MINUTE + 10 * S) for at in range(count)])
    candidates = Candidates(log, 0)
    log.asked = 0
    found = candidates.pair_up([answer(at * MINUTE - 1, at * MINUTE + 11 * S) for at in range(count)])
    assert found.certain == tuple((at, at) for at in range(count))
    assert found.groups == ()
    assert log.asked <= 2 * count


def test_answers_of_one_group_are_joined_in_order_without_a_list_of_all_pairs() -> None:
    count = 300
    log = Counted([logged(0, 10 * S, "boot 0 group 1") for _ in range(count)])
    candidates = Candidates(log, 0)
    log.asked = 0
    found = candidates.pair_up([answer(-1, 11 * S)] * count)
    everyone = tuple(range(count))
    assert found.groups == (Group(everyone, everyone, tuple(zip(everyone, everyone, strict=True))),)
    assert log.asked <= 3 * count


def test_each_answer_in_turn_takes_the_first_member_that_it_fits_by_itself() -> None:
    those = [logged(0, S, "g", decoded=9), logged(0, S, "g", decoded=8), logged(0, S, "g", decoded=7)]
    found = Candidates(those, 0).pair_up([answer(0, S), answer(0, S), answer(0, S, decoded=9)])
    # The second fits none that is left by itself, and takes the first; the third would have had that one.
    assert found.groups == (Group((0, 1, 2), (0, 1, 2), ((0, 2), (1, 0), (2, 1))),)


def test_the_last_answers_go_without_where_a_group_has_too_few() -> None:
    found = Candidates([logged(0, S, "g"), logged(0, S, "g")], 0).pair_up([answer(0, S)] * 3)
    assert found.groups == (Group((0, 1, 2), (0, 1), ((0, 0), (1, 1))),)


def test_what_has_no_times_is_near_every_answer() -> None:
    found = Candidates([logged(None, None), logged(0, S, prompt=80)], 0).pair_up([answer(90 * S, 91 * S)])
    assert found.certain == ((0, 0),)


def test_a_failed_answer_names_the_only_group_that_it_fits_and_none_where_it_fits_more() -> None:
    cut = [logged(0, None, "g"), logged(0, None, "g"), logged(MINUTE, None), logged(MINUTE, None, "h")]
    candidates = Candidates(cut, 0)
    first, second = answer(0, S, failed=True), answer(MINUTE, MINUTE + S, failed=True)
    assert (candidates.only_group(first), candidates.alone(first)) == ("g", [])
    assert (candidates.only_group(second), candidates.alone(second)) == (None, [2])
    assert candidates.only_group(answer(5 * MINUTE, 6 * MINUTE, failed=True)) is None


# ---- as with all pairs looked at -----------------------------------------------------------------------------------

TIMES = st.one_of(st.none(), st.integers(0, 12).map(lambda at: at * S))
COUNT = st.sampled_from((None, 7, 7, 8))
CALLS = st.sampled_from(((), (), ("c1",), ("c2",)))


@st.composite
def answers(draw: st.DrawFn) -> Completion:
    begin, length = draw(st.integers(0, 10)), draw(st.integers(0, 6))
    one = answer(begin * S, (begin + length) * S, draw(COUNT), draw(COUNT), failed=draw(st.integers(0, 9)) == 0)
    calls = tuple(ToolCall(name, "t", "{}") for name in draw(CALLS))
    return Completion(
        "q", "a0", 0, one.t_sent, one.t_sent, one.t_sent, one.t_done, 200, tool_calls=calls, usage=one.usage,
        error=one.error, server_id=draw(st.sampled_from((None, None, "i1"))),
    )  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> LoggedRequest:
    begin, prefilled, decoding, decoded, slot, end = (draw(TIMES) for _ in range(6))
    finish = draw(st.sampled_from(("stop", "stop", "stop", None, "cancelled")))
    return LoggedRequest(
        0, "x", None, draw(COUNT), 0, None, draw(COUNT), slot, begin, prefilled, decoding, decoded, end,
        None, None, finish, draw(CALLS),
        group=draw(st.sampled_from((None, "g", "g", "h"))), server_id=draw(st.sampled_from((None, None, "i1", "i2"))),
    )  # fmt: skip


def fits_one_of(sent: Completion, members: Sequence[LoggedRequest], error_ns: int | None) -> bool:
    """Whether for each thing that is known of an answer one of the members has it, or does not tell it."""
    failed = sent.error is not None
    if not any(
        (one.finish == "cancelled" or one.t_end is None) if failed else one.finish != "cancelled" for one in members
    ):
        return False
    usage = sent.usage or Usage()
    calls = tuple(call.id for call in sent.tool_calls)
    columns: list[list[bool | None]] = [[] for _ in range(8)]
    for one in members:
        work = [one.t_slot, one.prefill_start, one.prefill_end, one.decode_start, one.decode_end]
        times = [at for at in work if at is not None] or [at for at in (one.t_end,) if at is not None]
        timed = error_ns is not None and bool(times)
        last = min(times, default=0) if failed else max(times, default=0)
        columns[0].append(sent.t_sent - (error_ns or 0) <= min(times) if timed else None)
        columns[1].append(last <= sent.t_done + (error_ns or 0) + S if timed else None)
        told = one.tool_call_ids
        if failed:
            columns[2].append(None if not told or not calls else set(calls) <= set(told))
        else:
            columns[2].append(calls == told if told else None)
        for column, ours, theirs in (
            (3, sent.server_id, one.server_id),
            (4, usage.prompt_tokens, one.prompt_tokens),
            (5, usage.completion_tokens, one.decoded_tokens),
            (6, usage.cached_tokens, one.cached_tokens),
            (7, usage.prompt_tokens, one.prompt_tokens),  # new tokens: with none cached they are the prompt's
        ):
            columns[column].append(None if ours is None or theirs is None else ours == theirs)
    said = [True if True in each else None if None in each else False for each in columns]
    return True in said and False not in said


@given(st.lists(answers(), max_size=7), st.lists(requests(), max_size=7), st.sampled_from((None, 0, S)))
def test_it_joins_as_if_every_answer_were_held_against_every_request(
    sent: list[Completion], log: list[LoggedRequest], error_ns: int | None
) -> None:
    units = [[at] for at, one in enumerate(log) if one.group is None]
    names = dict.fromkeys(one.group for one in log if one.group is not None)
    units += [[at for at, one in enumerate(log) if one.group == name] for name in names]
    fits: list[list[int]] = [[] for _ in sent]
    for left, one in enumerate(sent):
        for unit in units:
            if fits_one_of(one, [log[at] for at in unit], error_ns):
                own = [at for at in unit if fit(one, log[at], error_ns)]
                fits[left] += own + [at for at in unit if at not in own]
    candidates = Candidates(log, error_ns)
    assert candidates.pair_up(sent) == pair_up(fits, len(log))
    for one, found in zip(sent, fits, strict=True):
        assert candidates.alone(one) == [at for at in found if log[at].group is None]
