"""Is a gap put to the prefills that lay in it, and only what is beyond the usual one? Worked out by hand, in ms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.stalls import Prefill, Prefills, Stall, Stream, stalls_of

MS = 1_000_000


def stream(*at_ms: int, request: str = "a0-r0", agent: str = "a0", begins: int | None = None) -> Stream:
    return Stream(request, agent, tuple(at * MS for at in at_ms), None if begins is None else begins * MS)


def prefills(*each: tuple[str, int, int]) -> Prefills:
    """(request, start ms, end ms); the agent stands before the dash."""
    return Prefills([Prefill(name, name.partition("-")[0], start * MS, end * MS) for name, start, end in each])


def in_ms(stall: Stall) -> tuple[int, int, int, int, tuple[tuple[int, int], ...]]:
    shares = tuple((at, took // MS) for at, took in stall.by)
    return stall.begin // MS, stall.end // MS, stall.usual_ns // MS, stall.stalled_ns // MS, shares


STEADY = tuple(range(0, 1001, 100))  # ten gaps of 100 ms, the last token at 1,000 ms


def test_a_gap_counts_beyond_the_usual_one() -> None:
    """1,000 to 2,000 ms: of the gap of 1,000 ms 900 are beyond the usual 100, and the prefill lasted for all of it."""
    found = stalls_of([stream(*STEADY, 2000)], prefills(("a1-r0", 900, 2500)))
    assert [in_ms(one) for one in found] == [(1000, 2000, 100, 900, ((0, 900),))]


def test_it_counts_at_most_for_the_time_of_the_prefills() -> None:
    found = stalls_of([stream(*STEADY, 2000)], prefills(("a1-r0", 1100, 1400)))
    assert [in_ms(one) for one in found] == [(1000, 2000, 100, 300, ((0, 300),))]


def test_time_of_several_prefills_is_shared_evenly() -> None:
    """1,100 to 1,300 the first alone, to 1,500 both, to 1,600 the second alone: 300 and 200 of 500 ms."""
    found = stalls_of([stream(*STEADY, 2000)], prefills(("a1-r0", 1100, 1500), ("a2-r0", 1300, 1600)))
    assert [in_ms(one) for one in found] == [(1000, 2000, 100, 500, ((0, 300), (1, 200)))]


@pytest.mark.parametrize(
    ("last_ms", "why"),
    [(1190, "less than twice the usual gap"), (1119, "less than 20 ms longer")],
)
def test_a_short_gap_is_no_stall(last_ms: int, why: str) -> None:
    assert stalls_of([stream(*STEADY, last_ms)], prefills(("a1-r0", 1000, 1200))) == [], why


def test_a_gap_without_another_prefill_is_no_stall_and_its_own_prefill_is_none() -> None:
    assert stalls_of([stream(*STEADY, 2000)], prefills(("a1-r0", 2000, 3000), ("a0-r0", 1000, 2000))) == []


def test_the_wait_for_the_first_token_counts_where_decode_is_known_to_have_begun() -> None:
    tokens = [at + 800 for at in STEADY]
    found = stalls_of([stream(*tokens, begins=0)], prefills(("a1-r0", 0, 700)))
    assert [in_ms(one) for one in found] == [(0, 800, 100, 700, ((0, 700),))]


def test_a_stream_that_lies_beside_prefills_all_the_time_takes_its_agents_other_streams_as_usual() -> None:
    """Gaps of 500 ms throughout; the agent's other stream had 100 ms, another agent's 10 ms."""
    slow = stream(*range(5000, 10_001, 500), request="a0-r1")
    fast = stream(*range(0, 101, 10), request="a1-r0", agent="a1")
    found = stalls_of([slow, stream(*STEADY), fast], prefills(("a2-r0", 5000, 10_000)))
    assert [in_ms(one)[2:4] for one in found] == [(100, 400)] * 10


def test_without_any_other_gap_a_streams_own_median_is_usual() -> None:
    found = stalls_of([stream(0, 100, 200, 300, 1300)], prefills(("a1-r0", 0, 1300)))
    assert [in_ms(one)[:4] for one in found] == [(300, 1300, 100, 900)]


def test_nothing_at_all_is_no_stall() -> None:
    assert stalls_of([], prefills()) == []
    assert stalls_of([stream(), stream(5)], prefills(("a1-r0", 0, 10))) == []


def test_a_ns_that_is_left_of_an_uneven_share_goes_to_none_that_had_no_more() -> None:
    # Three prefill for 1 ms at once, another one for 1 ms after them: 2 ms are shared, thirds of the first one.
    together = [(f"b{number}-r0", 0, 3) for number in range(3)]
    (found,) = stalls_of([stream(0, 1, 2, 23)], prefills(*together, ("b3-r0", 3, 4)))
    assert found.by == ((3, 1_000_000), (0, 333_334), (1, 333_333), (2, 333_333))


_SPANS = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 800)), max_size=5)


@given(gaps=st.lists(st.integers(1, 900), min_size=1, max_size=30), spans=_SPANS)
def test_shares_add_up_and_never_exceed_the_gap_or_the_prefill(gaps: list[int], spans: list[tuple[int, int]]) -> None:
    stamps = [sum(gaps[:at]) for at in range(len(gaps) + 1)]
    all_of = prefills(*((f"b{number}-r0", start, start + length) for number, (start, length) in enumerate(spans)))
    for one in stalls_of([stream(*stamps)], all_of):
        assert sum(took for _, took in one.by) == one.stalled_ns <= one.end - one.begin - one.usual_ns
        for at, took in one.by:
            prefill = all_of.all[at]
            assert 0 <= took <= min(one.end, prefill.end) - max(one.begin, prefill.start)
