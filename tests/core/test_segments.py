"""Segments from markers, each case as it stands in a log."""

from dataclasses import fields
from typing import Any

import pytest

from agentload.core.records import Marker, Match, Proof, Request, Segment
from agentload.core.segments import lies_outside, segment_at, segments_of

T0 = 1_795_958_524_000_000_000


def begin(segment: str, at: int, line: int, run: str = "r1", condition: str = "default") -> Marker:
    return Marker("begin", segment, run, condition, T0 + at, Proof(line, line * 100))


def end(segment: str, at: int, line: int, run: str = "r1", condition: str = "default") -> Marker:
    return Marker("end", segment, run, condition, T0 + at, Proof(line, line * 100))


def test_a_begin_and_an_end_make_a_segment() -> None:
    segments, doubts = segments_of([begin("s1", 5, 10, condition="ub512"), end("s1", 90, 70, condition="ub512")])
    assert segments == (Segment("s1", "r1", "ub512", T0 + 5, T0 + 90),)
    assert doubts == ()


def test_segments_that_touch_do_not_overlap() -> None:
    segments, doubts = segments_of([begin("s1", 0, 1), end("s1", 10, 2), begin("s2", 10, 3), end("s2", 20, 4)])
    assert [(s.segment, s.begin_ns - T0, s.end_ns) for s in segments] == [("s1", 0, T0 + 10), ("s2", 10, T0 + 20)]
    assert doubts == ()


def test_the_time_inside_a_marker_counts_and_not_its_place_in_the_log() -> None:
    segments, doubts = segments_of([end("s1", 10, 2), begin("s1", 0, 3)])
    assert segments == (Segment("s1", "r1", "default", T0, T0 + 10),)
    assert doubts == ()


def test_an_end_without_a_begin_is_said_with_its_line() -> None:
    segments, doubts = segments_of([end("s1", 10, 42)])
    assert segments == ()
    assert [doubt.code for doubt in doubts] == ["segment-end-without-begin"]
    assert "line 42" in doubts[0].message


def test_an_end_before_its_begin_is_no_segment_of_negative_length() -> None:
    segments, doubts = segments_of([begin("s1", 10, 1), end("s1", 9, 2)])
    assert segments == (Segment("s1", "r1", "default", T0 + 10, None),)
    assert [doubt.code for doubt in doubts] == ["segment-ends-before-begin"]
    assert "begins at line 1 and ends at line 2" in doubts[0].message
    assert "its end stands before its begin" in doubts[0].message


def test_a_begin_without_an_end_is_open_and_said_with_its_line() -> None:
    segments, doubts = segments_of([begin("s1", 0, 7)])
    assert segments == (Segment("s1", "r1", "default", T0, None),)
    assert [doubt.code for doubt in doubts] == ["segment-without-end"]
    assert "line 7" in doubts[0].message


def test_an_id_used_twice_keeps_its_first_segment() -> None:
    segments, doubts = segments_of([begin("s1", 0, 1), end("s1", 10, 2), begin("s1", 20, 3), end("s1", 30, 4)])
    assert segments == (Segment("s1", "r1", "default", T0, T0 + 10),)
    assert [doubt.code for doubt in doubts] == ["duplicate-segment", "duplicate-segment"]
    assert "line 1" in doubts[0].message
    assert "line 3" in doubts[0].message
    assert "line 2" in doubts[1].message
    assert "line 4" in doubts[1].message


def test_the_same_id_in_two_runs_is_two_segments() -> None:
    markers = [begin("s1", 0, 1), end("s1", 10, 2), begin("s1", 20, 3, run="r2"), end("s1", 30, 4, run="r2")]
    segments, doubts = segments_of(markers)
    assert [(s.run, s.begin_ns - T0) for s in segments] == [("r1", 0), ("r2", 20)]
    assert doubts == ()


def test_a_marker_that_log_and_sidecar_both_tell_counts_once() -> None:
    sidecar = Marker("begin", "s1", "r1", "default", T0, None, log_offset=100)
    segments, doubts = segments_of([sidecar, begin("s1", 0, 1), end("s1", 10, 2)])
    assert segments == (Segment("s1", "r1", "default", T0, T0 + 10),)
    assert doubts == ()


def test_a_sidecar_marker_is_named_by_its_place_in_the_log() -> None:
    _, doubts = segments_of([Marker("begin", "s1", "r1", "default", T0, None, log_offset=4711)])
    assert "log byte 4711" in doubts[0].message


def test_overlapping_and_nested_segments_are_told_apart() -> None:
    _, overlapping = segments_of([begin("s1", 0, 1), begin("s2", 5, 2), end("s1", 10, 3), end("s2", 15, 4)])
    _, nested = segments_of([begin("s1", 0, 1), begin("s2", 5, 2), end("s2", 8, 3), end("s1", 10, 4)])
    assert [doubt.code for doubt in overlapping + nested] == ["segments-overlap", "segments-overlap"]
    assert "before the end of" in overlapping[0].message
    assert "inside" in nested[0].message
    assert "line 1" in nested[0].message
    assert "line 2" in nested[0].message


def test_a_segment_after_a_nested_one_is_still_checked_against_the_outer_one() -> None:
    markers = [
        begin("s1", 0, 1),
        begin("s2", 2, 2),
        end("s2", 4, 3),
        begin("s3", 6, 4),
        end("s3", 8, 5),
        end("s1", 9, 6),
    ]
    _, doubts = segments_of(markers)
    assert [doubt.code for doubt in doubts] == ["segments-overlap", "segments-overlap"]
    assert "segment s3" in doubts[1].message


def test_conditions_that_differ_are_said() -> None:
    segments, doubts = segments_of([begin("s1", 0, 1, condition="a"), end("s1", 10, 2, condition="b")])
    assert segments[0].condition == "a"
    assert [doubt.code for doubt in doubts] == ["segment-condition-differs"]


def test_of_thousands_of_equal_doubts_the_first_is_told_with_the_number_of_the_others() -> None:
    unbegun = [end(f"e{n}", n, 10 + n) for n in range(3000)]
    overlapping = [begin(f"o{n}", 5000 + n, 4000 + n) for n in range(1002)]  # none of them ends
    _, doubts = segments_of([*unbegun, *overlapping])
    assert [doubt.code for doubt in doubts] == ["segment-end-without-begin", "segment-without-end", "segments-overlap"]
    ended, open_, inside = (doubt.message for doubt in doubts)
    assert ended == "segment e0 of run r1 ends at line 10 and begins nowhere before (and 2,999 more such segments)"
    assert open_ == "segment o0 of run r1 begins at line 4000 and does not end (and 1,001 more such segments)"
    assert inside.startswith(
        "segment o1 of run r1 begins at line 4001, inside segment o0 of run r1, begun at line 4000"
    )
    assert inside.endswith(" (and 1,000 more such segments)")


def test_twenty_equal_doubts_are_told_one_by_one() -> None:
    _, doubts = segments_of([end(f"e{n}", n, 10 + n) for n in range(20)])
    assert [doubt.message.split(" and ")[0] for doubt in doubts] == [
        f"segment e{n} of run r1 ends at line {10 + n}" for n in range(20)
    ]


SEGMENTS = (Segment("s1", "r1", "a", 10, 20), Segment("s2", "r1", "b", 30, None))


def logged(**known: Any) -> Request:
    """A request that only the log has."""
    values: dict[str, Any] = {one.name: None for one in fields(Request)}
    return Request(**{**values, "run": "r1", "request": "log boot 0 x", "match": Match.SERVER_ONLY, **known})


@pytest.mark.parametrize(
    ("at", "segment"), [(9, None), (10, "s1"), (19, "s1"), (20, None), (29, None), (30, "s2"), (10**18, "s2")]
)
def test_a_segment_holds_its_begin_and_not_its_end(at: int, segment: str | None) -> None:
    assert segment_at(at, SEGMENTS) == segment


def test_of_segments_that_overlap_the_one_begun_last_holds() -> None:
    overlapping = (Segment("s1", "r1", "a", 0, 100), Segment("s2", "r1", "a", 50, 60))
    assert [segment_at(at, overlapping) for at in (49, 50, 59, 60)] == ["s1", "s2", "s2", "s1"]


@pytest.mark.parametrize(
    ("known", "outside"),
    [
        ({"prefill_start": 5}, True),
        ({"prefill_start": 25}, True),
        ({"prefill_start": 5, "prefill_end": 15}, True),  # it began before: membership is by the prefill's start
        ({"prefill_start": 15, "segment": "s1"}, False),
        ({"prefill_start": 5, "t_sent": 4}, False),  # ours, wherever it lies
        ({}, False),  # nobody can say
        ({"t_slot": 5}, True),
        ({"t_slot": 15}, False),
        ({"prefill_end": 25}, True),
        ({"decode_start": 12, "decode_end": 25}, False),
    ],
    ids=str,
)
def test_a_request_of_the_log_lies_outside_when_it_began_in_no_segment(known: dict[str, Any], *, outside: bool) -> None:
    assert lies_outside(logged(**known), SEGMENTS) is outside


def test_without_segments_nothing_lies_outside() -> None:
    assert lies_outside(logged(prefill_start=5), ()) is False
