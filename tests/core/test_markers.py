"""Is a marker read as it was written, and nothing else taken for one?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.records import Marker

LINE = markers.render("begin", "s1", "r1", "-ub 512", 1_795_958_524_123_456_789)


def test_a_marker_carries_its_time_twice_for_people_and_to_the_nanosecond() -> None:
    assert LINE == (
        b"2026-11-29T13:22:04.123456789Z agentload: segment begin id=s1 run=r1 condition=-ub%20512"
        b" t_ns=1795958524123456789"
    )


@given(st.text(min_size=1), st.text(min_size=1), st.text(), st.integers(0, 4_102_444_800_000_000_000))
def test_whatever_the_names_a_marker_is_read_as_it_was_written(segment: str, run: str, condition: str, at: int) -> None:
    line = markers.render("end", segment, run, condition, at)
    assert markers.parse(line, None) == Marker("end", segment, run, condition, at, None)


@pytest.mark.parametrize("damage", [b"\xeb", b"\xff\xfe", b"\0", b" ", b"\t", "é".encode()], ids=repr)
def test_a_line_whose_bytes_no_marker_has_is_none(damage: bytes) -> None:
    """A byte flipped in a log made an error of the decoder."""
    for at in range(len(LINE)):
        assert markers.parse(LINE[:at] + damage + LINE[at + 1 :], None) is None or LINE[at : at + 1] == damage


@pytest.mark.parametrize("at_ns", [b"9999999999999999999", b"4102444800000000001"])
def test_a_time_after_2100_is_damage_and_no_marker(at_ns: bytes) -> None:
    """19 digits can be more than 64 bits hold, and made an error of the arithmetic."""
    assert markers.parse(LINE.replace(b"1795958524123456789", at_ns), None) is None
