"""The rows of a log without a client: as those that joining with no answers gives, whatever the log's size."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core import log_alone
from agentload.core.attribution import attribute
from agentload.core.packed import Mapped, pack
from agentload.core.records import LineCount, LogFacts, LoggedRequest, Match, Proof, Timeline

TIMES = st.none() | st.integers(0, 4)  # few, so that many begin at once
DRAWN = st.builds(
    LoggedRequest,
    boot=st.integers(0, 2),
    label=st.sampled_from(["a", "b", "slot 2 task 10", "slot 2 task 9"]),
    slot=st.none() | st.integers(0, 1),
    prompt_tokens=st.none() | st.integers(0, 9),
    cached_tokens=st.none() | st.integers(0, 9),
    new_prefill_tokens=st.none() | st.integers(0, 9),
    decoded_tokens=st.none() | st.integers(0, 9),
    t_slot=TIMES,
    prefill_start=TIMES,
    prefill_end=TIMES,
    decode_start=TIMES,
    decode_end=TIMES,
    t_end=TIMES,
    prefill_ms=st.none() | st.floats(0, 9),
    decode_ms=st.none() | st.floats(0, 9),
    finish=st.sampled_from([None, "stop"]),
    proofs=st.sampled_from([(), (("prefill_end", Proof(3, 70)), ("decode_end", Proof(4, 90)))]),
    group=st.sampled_from([None, None, "equal-requests 1", "equal-requests 2"]),
)


def told_apart(requests: list[LoggedRequest]) -> tuple[LoggedRequest, ...]:
    """Give each a label of its own, as a log does."""
    return tuple(replace(one, label=f"{one.label} {number}") for number, one in enumerate(requests))


def facts_of(requests: tuple[LoggedRequest, ...], *, packed: bool) -> LogFacts:
    kept = pack(requests, few=0) if packed and requests else requests
    return LogFacts("ds4", Timeline.WALL, 1, None, 0, LineCount(0, 0, 0), (), (), kept, ())


@settings(max_examples=150)
@given(st.lists(DRAWN, max_size=12).map(told_apart), st.booleans())
def test_a_log_alone_gives_the_rows_of_joining_with_no_answers(
    requests: tuple[LoggedRequest, ...], packed: bool
) -> None:
    joined = attribute("run", (), facts_of(requests, packed=False), ())
    alone = log_alone.attribute("run", facts_of(requests, packed=packed))
    assert tuple(alone.requests) == tuple(joined.requests)
    assert (alone.counts, alone.groups, alone.doubts) == (joined.counts, joined.groups, joined.doubts)


def test_rows_of_a_packed_log_are_made_when_they_are_asked_for_and_stand_in_their_starts_segment() -> None:
    one = LoggedRequest(
        0, "slot 0 task 1", 0, 10, 4, 6, 2, 1, 1, 2, 2, 3, 3, None, None, "stop", proofs=(("decode_end", Proof(4, 90)),)
    )
    facts = facts_of((one, replace(one, boot=1, prefill_start=0)), packed=True)
    rows = log_alone.attribute("run", facts, {0: "log-start0", 1: "log-start1"}.get).requests
    assert isinstance(rows, Mapped)
    assert [(row.request, row.segment, row.match) for row in rows] == [
        ("log boot 1 slot 0 task 1", "log-start1", Match.SERVER_ONLY),
        ("log boot 0 slot 0 task 1", "log-start0", Match.SERVER_ONLY),
    ]
    assert rows[1].decode_proof == Proof(4, 90)
    assert [row.boot for row in rows[:1]] == [1]


def test_equal_requests_stand_in_the_order_of_their_lines_as_people_count() -> None:
    one = LoggedRequest(0, "", None, 59, 0, 59, 9, 1, 1, 2, 2, 3, 3, None, None, "stop", group="equal-requests 1")
    labels = [f"ctx 0..59:59 line {line}" for line in (10, 7, 100, 9)]
    requests = tuple(replace(one, label=label) for label in labels)
    expected = [f"log boot 0 ctx 0..59:59 line {line}" for line in (7, 9, 10, 100)]
    for packed in (False, True):
        alone = log_alone.attribute("run", facts_of(requests, packed=packed))
        assert [row.request for row in alone.requests] == expected
        assert list(alone.groups[0].requests) == expected
    joined = attribute("run", (), facts_of(requests, packed=False), ())
    assert [row.request for row in joined.requests] == list(joined.groups[0].requests) == expected
