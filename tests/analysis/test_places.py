"""Segments by the place of lines between the markers' lines: nested, overlapping, unended, and many."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.analysis.places import Places, Stretch, on_own_timeline, stretches
from agentload.core.records import Marker, Proof, Segment, Statistic


def segment(name: str, begin_ns: int = 0, end_ns: int | None = 10) -> Segment:
    return Segment(name, "r1", "a", begin_ns, end_ns)


def names(found: list[Stretch], lines: range) -> list[str]:
    places = Places(found)
    return ["-" if (one := places.of(line)) is None else one.segment for line in lines]


def test_a_segment_holds_the_lines_between_its_markers() -> None:
    assert names([Stretch(segment("s"), 3, 6), Stretch(segment("t"), 7, None)], range(1, 11)) == [*"---ss--ttt"]


def test_of_segments_that_overlap_or_stand_in_each_other_the_one_begun_last_holds() -> None:
    nested = [Stretch(segment("o"), 1, 9), Stretch(segment("i"), 3, 6), Stretch(segment("j"), 6, 7)]
    assert names(nested, range(1, 11)) == [*"-ooiiooo--"]
    overlapping = [Stretch(segment("b"), 4, 8), Stretch(segment("a"), 1, 6)]
    assert names(overlapping, range(1, 10)) == [*"-aaabbb--"]


def test_a_segment_whose_end_stands_before_its_begin_holds_no_line() -> None:
    assert names([Stretch(segment("s"), 5, 2), Stretch(segment("t"), 6, 9)], range(1, 10)) == [*"------tt-"]


def test_without_segments_no_line_stands_in_one() -> None:
    assert Places([]).of(5) is None


@given(
    st.lists(st.tuples(st.integers(1, 60), st.none() | st.integers(1, 60)), max_size=12, unique_by=lambda one: one[0])
)
def test_each_line_has_the_segment_that_a_look_through_all_of_them_finds(edges: list[tuple[int, int | None]]) -> None:
    found = [Stretch(segment(f"s{after}"), after, before) for after, before in edges]
    places = Places(found)
    for line in range(70):
        holding = [one for one in found if one.holds(line)]
        wanted = max(holding, key=lambda one: one.after).segment if holding else None
        assert places.of(line) == wanted


class Counted(Stretch):
    """One that counts how often it, or another, was asked."""

    asked = 0

    def holds(self, line: int) -> bool:
        """Whether a line stands in it."""
        Counted.asked += 1
        return self.after < line and (self.before is None or line < self.before)


def test_thousands_of_lines_in_a_thousand_segments_ask_each_segment_a_few_times_only() -> None:
    found = [Counted(segment(f"s{n}"), n, 3000 - n) for n in range(1, 1001)]  # each inside the one before
    places = Places(found)
    assert [one.segment for line in (2, 500, 1500, 2500) if (one := places.of(line)) is not None] == [
        "s1",
        "s499",
        "s1000",
        "s499",
    ]
    assert sum(places.of(line) is not None for line in range(10_000)) == 2997  # lines 2 to 2998
    assert Counted.asked <= 3_000  # 2,000 lines where one begins or ends, 1,000 ends


def marker(
    action: str, name: str, at_ns: int, line: int, before_ns: int | None = None, after_ns: int | None = None
) -> Marker:
    proof = Proof(line, line * 100)
    return Marker(action, name, "r1", "a", at_ns, proof, before_ns=before_ns, after_ns=after_ns)


def test_a_marker_that_stands_there_twice_counts_at_its_first_place() -> None:
    markers = [
        marker("begin", "s", 5, 2),
        marker("begin", "s", 5, 4),
        marker("end", "s", 9, 8),
        marker("end", "s", 9, 12),
    ]
    assert stretches([segment("s", 5, 9)], markers) == [Stretch(segment("s", 5, 9), 2, 8)]


def test_a_segment_moves_to_the_time_behind_its_begin_marker_and_keeps_its_length() -> None:
    markers = [
        marker("begin", "s", 1000, 2, before_ns=40, after_ns=50),
        marker("end", "s", 1007, 5, before_ns=60, after_ns=70),
        marker("begin", "t", 2000, 8, before_ns=80),
        marker("begin", "u", 3000, 9),
        marker("begin", "u", 3000, 10, after_ns=99),  # told twice: the first time that is known
        marker("begin", "v", 4000, 11),
        marker("begin", "w", 5000, 12),
    ]
    segments = [
        segment("s", 1000, 1007),
        segment("t", 2000, None),
        segment("u", 3000, 3001),
        segment("v", 4000, 4005),
        segment("w", 5000, 5005),
    ]
    moved = on_own_timeline(segments, {("r1", "v"): 77, ("r1", "s"): 1}, markers)
    assert [(one.segment, one.begin_ns, one.end_ns) for one in moved] == [
        ("s", 50, 57),
        ("t", 80, None),
        ("u", 99, 100),
        ("v", 77, 82),
        ("w", 0, 5),
    ]


class Watched(list[Marker]):
    """Markers that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[Marker]:
        """Go through them."""
        self.times += 1
        return super().__iter__()


def test_a_thousand_segments_are_moved_with_one_look_at_the_markers() -> None:
    markers = Watched(marker("begin", f"s{n}", n, n, after_ns=n + 5) for n in range(1000))
    moved = on_own_timeline([segment(f"s{n}", n, n + 1) for n in range(1000)], {}, markers)
    assert [one.begin_ns for one in moved] == list(range(5, 1005))
    assert markers.times == 1


@pytest.mark.parametrize(("after", "before", "lines"), [(2, 7, [4, 6]), (4, None, [6, 8]), (8, None, []), (6, 3, [])])
def test_statistics_of_a_segment_are_those_between_its_markers(
    after: int, before: int | None, lines: list[int]
) -> None:
    found = tuple(Statistic(0, 0, "engine", "", (), Proof(line, 0)) for line in (2, 4, 6, 8))
    assert [one.proof.line for one in Stretch(segment("s"), after, before).held(found)] == lines
