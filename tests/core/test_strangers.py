"""Is a request of ours that broke off called a stranger's, and is a stranger ever taken for one of ours?"""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentload.core.attribution import Attribution
from agentload.core.records import Completion, LoggedRequest, Match, Segment, Timeline, Usage
from tests.core.test_attribution import T0, S, answer, counts, join, logged
from tests.core.test_attribution_groups import USAGE, alike

CUT = "cut off: its time was over"


def cut(name: str, sent: float, until: float, **fields: Any) -> Completion:
    return answer(name, sent, until, error=CUT, **fields)


def endless(label: str, start: float, last: float, **fields: Any) -> LoggedRequest:
    """What ds4-server's log has of a request that was cancelled at work: lines of its work, and no end."""
    return replace(logged(label, start, last), t_end=None, **fields)


def killed(name: str, sent: float) -> Completion:
    """The run ended before its answer: of its end nothing is known."""
    return answer(name, sent, sent, error="the run ended before its answer", ended=False, t_first_token=None)


def said(found: Attribution) -> dict[str, str]:
    return {doubt.code: doubt.message for doubt in found.doubts}


def test_requests_cut_off_side_by_side_are_perhaps_ours_and_no_strangers() -> None:
    # Each fits both, so that neither is joined: a0's began before a1's was sent, but a1's may never have arrived.
    found = join([cut("a0-t0", 0, 9), cut("a1-t0", 1, 10)], endless("n1", 0.1, 8), endless("n2", 1.1, 9))
    assert (found.counts[Match.CLIENT_ONLY], found.counts[Match.SERVER_ONLY]) == (2, 2)
    assert found.perhaps_ours == {None: 2}
    assert said(found) == {
        "perhaps-ours": "2 requests in the log are perhaps ours (log boot 0 n1 first): 2 requests of "
        "ours have neither an answer nor another trace there, and which is which it does not tell"
    }


def test_one_that_began_long_after_the_run_had_ended_it_in_the_queue_is_perhaps_ours() -> None:
    # 40 s in the queue: of a request that the run's end broke off, only when it was sent is known.
    found = join([killed("a0-t0", 0)], endless("n1", 40, 41))
    assert (found.counts[Match.CLIENT_ONLY], found.perhaps_ours) == (1, {None: 1})
    assert said(found) == {
        "perhaps-ours": "1 request in the log is perhaps ours (log boot 0 n1): 1 request of ours has "
        "neither an answer nor another trace there, and which is which it does not tell"
    }


def test_one_that_ended_well_is_a_strangers_whatever_broke_off_beside_it() -> None:
    waiting = [killed("a0-t0", 0), killed("a1-t0", 0)]
    found = join(waiting, logged("n1", 40, 50, finish="stop"))
    assert (found.perhaps_ours, said(found)) == (
        {}, {"foreign-requests": "1 request in the log is not ours, the first is log boot 0 n1"}
    )  # fmt: skip
    # A format that logs no reason still logs an end.
    found = join(waiting, logged("n1", 40, 50, finish=None))
    assert (found.perhaps_ours, list(said(found))) == ({}, ["foreign-requests"])


def test_one_that_ended_well_when_ours_had_broken_off_is_perhaps_ours() -> None:
    """The server was quicker than the news that its client had gone; before, that client would have had the answer."""
    ours = cut("a0-t0", 0, 9)
    later = join([ours], logged("n1", 0.5, 9.3, finish="tool_calls"))
    assert (later.counts[Match.CLIENT_ONLY], later.perhaps_ours, list(said(later))) == (1, {None: 1}, ["perhaps-ours"])
    before = join([ours], logged("n1", 0.5, 5, finish="tool_calls"))
    assert (before.perhaps_ours, list(said(before))) == ({}, ["foreign-requests"])


def test_strangers_that_ended_are_counted_apart_from_what_may_be_ours() -> None:
    found = join(
        [killed("a0-t0", 0)],
        logged("n1", 20, 30, finish="stop"),
        endless("n2", 40, 41),
        logged("n3", 42, 50, finish="length"),
    )
    assert found.perhaps_ours == {None: 1}
    told = said(found)
    assert told["foreign-requests"] == "2 requests in the log are not ours, the first is log boot 0 n1"
    assert told["perhaps-ours"].startswith("1 request in the log is perhaps ours (log boot 0 n2)")


def test_no_more_are_perhaps_ours_than_broke_off() -> None:
    found = join(
        [killed("a0-t0", 0), killed("a1-t0", 0)],
        endless("n1", 40, 41),
        logged("n2", 40, 41, finish="cancelled"),
        logged("n3", 40, 41, finish="error"),
    )
    assert found.perhaps_ours == {None: 2}
    told = said(found)
    assert told["foreign-requests"] == "1 of 3 requests in the log is not ours: only 2 can be"
    assert told["perhaps-ours"].startswith("2 requests")


def test_what_began_before_ours_was_sent_is_a_strangers() -> None:
    found = join([killed("a0-t0", 30)], endless("n1", 20, 31))
    assert (found.perhaps_ours, list(said(found))) == ({}, ["foreign-requests"])


def test_each_of_ours_is_left_for_what_only_it_can_be() -> None:
    # n1 began at 5: only a0 had been sent. n2 may be either, and takes a1.
    found = join([killed("a0-t0", 0), killed("a1-t0", 10)], endless("n1", 5, 6), endless("n2", 15, 16))
    assert (found.perhaps_ours, list(said(found))) == ({None: 2}, ["perhaps-ours"])
    # Both began at 5: a1 is neither.
    found = join([killed("a0-t0", 0), killed("a1-t0", 10)], endless("n1", 5, 6), endless("n2", 5, 6))
    assert (found.perhaps_ours, list(said(found))) == ({None: 1}, ["foreign-requests", "perhaps-ours"])


def test_a_count_that_is_another_one_makes_it_a_strangers() -> None:
    seen = cut("a0-t0", 0, 3, usage=Usage(prompt_tokens=100, completion_tokens=7))
    assert join([seen], endless("n1", 40, 41, prompt_tokens=100)).perhaps_ours == {None: 1}
    assert join([seen], endless("n1", 40, 41, prompt_tokens=101)).perhaps_ours == {}


def test_an_answer_that_came_whole_is_no_reason() -> None:
    found = join([answer("a0-t0", 0, 3)], endless("n1", 40, 41))
    assert (found.perhaps_ours, list(said(found))) == ({}, ["foreign-requests", "answers-not-in-log"])


def test_a_segment_is_told_by_itself() -> None:
    segments = (Segment("s1", "r1", "A", T0, T0 + 50 * S), Segment("s2", "r1", "B", T0 + 50 * S, T0 + 99 * S))
    here = join([killed("a0-t0", 0)], endless("n1", 40, 41), segments=segments)
    assert (here.perhaps_ours, list(said(here))) == ({"s1": 1}, ["perhaps-ours"])
    later = join([killed("a0-t0", 0)], endless("n1", 60, 61), segments=segments)
    assert (later.perhaps_ours, list(said(later))) == ({}, ["foreign-requests"])


def test_equal_ones_of_a_group_are_no_strangers_either_and_no_server_only_rows() -> None:
    # Of three prompts of one length that broke off two had come to work: the log does not tell which.
    open_ones = [alike(name, 1, 8, finish=None, t_end=None, decoded_tokens=None) for name in ("n1", "n2")]
    found = join([cut(f"a{n}-t0", 0, 9) for n in range(3)], *open_ones)
    assert (found.counts[Match.AMBIGUOUS], found.counts[Match.CLIENT_ONLY]) == (2, 3)
    assert found.perhaps_ours == {}
    assert "foreign-requests" not in said(found)
    assert said(found)["perhaps-ours"].startswith("2 requests in the log are perhaps ours")


def test_on_a_clock_of_its_own_nothing_says_who_came_first() -> None:
    found = join([killed("a0-t0", 0)], endless("n1", 40, 41), timeline=Timeline.PROCESS)
    assert (found.perhaps_ours, "perhaps-ours" in said(found)) == ({}, False)


def test_a_group_of_whole_answers_is_untouched() -> None:
    found = join(
        [answer("a0-t0", 0, 9, usage=USAGE)],
        alike("n1", 1, 8, finish="stop", **counts(59, 0, 50)),
        alike("n2", 1, 8, finish="stop", **counts(59, 0, 50)),
    )
    assert (found.perhaps_ours, list(said(found))) == ({}, ["ambiguous-requests", "foreign-requests"])


@given(
    sent=st.lists(st.integers(0, 9), max_size=5),
    began=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6),
)
def test_as_many_are_perhaps_ours_as_can_be_given_one_each_that_was_sent_before(
    sent: list[int], began: list[tuple[int, bool]]
) -> None:
    """In the log's order each takes the one sent first that is left: with one bound only, that is the most possible.

    What is joined by its time is neither.
    """
    ours = [killed(f"a{n}-t0", float(at)) for n, at in enumerate(sent)]
    theirs = [
        endless(f"n{n}", at + 0.5, at + 1) if is_open else logged(f"n{n}", at + 0.5, at + 1, finish="stop")
        for n, (at, is_open) in enumerate(began)
    ]
    found = join(ours, *theirs)
    left = sorted(row.t_sent for row in found.requests if row.match is Match.CLIENT_ONLY and row.t_sent is not None)
    rows = {row.request for row in found.requests if row.match is Match.SERVER_ONLY}
    most = 0
    for number, (at, is_open) in sorted(enumerate(began), key=lambda one: one[1][0]):
        if is_open and f"log boot 0 n{number}" in rows and left and left[0] <= T0 + round((at + 0.5) * S):
            left.pop(0)
            most += 1
    assert sum(found.perhaps_ours.values()) == most
    strangers = len(rows) - most
    assert ("foreign-requests" in said(found), "perhaps-ours" in said(found)) == (
        strangers > 0 and bool(sent), most > 0
    )  # fmt: skip
