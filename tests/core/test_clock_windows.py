"""Offsets from windows: every figure worked out by hand."""

from hypothesis import given
from hypothesis import strategies as st

from agentload.core.clock_windows import Offsets, Piece, Window, offsets_of

S = 1_000_000_000
HOUR = 3_600 * S
SUMMER_TIME = 2 * HOUR  # a server two hours ahead of UTC: what is to be added is -2 h


def test_what_all_windows_leave_open_is_its_middle_and_half_its_width() -> None:
    found = offsets_of([Window(0, 10, 50), Window(5, 20, 90), Window(9, 0, 41)], wall=False)
    assert found == Offsets((Piece(0, 9, 30),), 11, 0)  # 20 .. 41


def test_a_whole_quarter_of_an_hour_is_taken_of_a_wall_clock_and_the_error_covers_both_ends() -> None:
    windows = [Window(0, -SUMMER_TIME - 3 * S, -SUMMER_TIME + S)]
    assert offsets_of(windows, wall=True) == Offsets((Piece(0, 0, -SUMMER_TIME),), 3 * S, 0)
    assert offsets_of(windows, wall=False) == Offsets((Piece(0, 0, -SUMMER_TIME - S),), 2 * S, 0)


def test_a_wall_clock_that_is_not_set_has_no_quarter_within_its_bounds() -> None:
    found = offsets_of([Window(0, 7 * S, 9 * S)], wall=True)
    assert found == Offsets((Piece(0, 0, 8 * S),), S, 0)


def test_bounds_of_different_facts_make_a_window_together_and_one_bound_makes_none() -> None:
    assert offsets_of([Window(3, low=10)], wall=True) is None
    assert offsets_of([Window(3, high=10)], wall=True) is None
    assert offsets_of([], wall=True) is None
    assert offsets_of([Window(3, low=10), Window(8, high=14)], wall=False) == Offsets((Piece(3, 8, 12),), 2, 0)


def test_an_hour_between_windows_is_a_jump_and_both_sides_narrow_one_another() -> None:
    # Summer time begins between 100 s and 4,000 s of the log: its clock is an hour ahead from there on.
    found = offsets_of([Window(100 * S, -3 * S, 1 * S), Window(4_000 * S, -HOUR - 1 * S, -HOUR + 4 * S)], wall=True)
    assert found == Offsets((Piece(100 * S, 100 * S, 0), Piece(4_000 * S, 4_000 * S, -HOUR)), S, 0)
    assert [found.at(at * S) for at in (0, 100, 2_049, 2_051, 9_999)] == [0, 0, 0, -HOUR, -HOUR]


def test_a_day_that_a_log_without_years_cannot_know_of_is_a_jump_too() -> None:
    found = offsets_of([Window(0, -S, S), Window(HOUR, 24 * HOUR - S, 24 * HOUR + S)], wall=True)
    assert found is not None
    assert [piece.offset for piece in found.pieces] == [0, 24 * HOUR]


def test_a_clock_that_was_set_by_seconds_is_no_jump_and_the_error_covers_it() -> None:
    found = offsets_of([Window(0, -S, S), Window(9, -S, S), Window(20, 39 * S, 41 * S)], wall=True)
    assert found == Offsets((Piece(0, 9, 0),), 39 * S, 1)


def test_one_wrong_window_does_not_outvote_the_others_even_if_it_comes_first() -> None:
    wrong, right = Window(0, 500 * S, 502 * S), [Window(at, -S, S) for at in (1, 2, 3)]
    for windows in ([wrong, *right], [*right, Window(9, 500 * S, 502 * S)]):
        found = offsets_of(windows, wall=True)
        assert found is not None
        assert (found.pieces[0].offset, found.odd, found.error_ns) == (0, 1, 500 * S)


@given(
    st.integers(-48, 56).map(lambda quarters: quarters * HOUR // 4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 90 * S), st.integers(0, 90 * S)), min_size=1, max_size=9),
    st.booleans(),
)
def test_the_truth_is_never_further_off_than_the_error(
    truth: int, facts: list[tuple[int, int, int]], wall: bool
) -> None:
    found = offsets_of([Window(at, truth - below, truth + above) for at, below, above in facts], wall=wall)
    assert found is not None
    assert (len(found.pieces), found.odd) == (1, 0)
    assert abs(found.pieces[0].offset - truth) <= found.error_ns
    if wall:
        assert found.pieces[0].offset == truth
