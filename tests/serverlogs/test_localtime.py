"""Does a stamp have the same time whenever it comes again, also beyond New Year?"""

from agentload.serverlogs.localtime import LocalClock

DAY_NS = 86_400 * 10**9


def test_a_stamp_that_comes_again_has_the_time_that_it_had() -> None:
    clock = LocalClock()
    stamps = (b"12-31 23:59:59", b"12-31 23:59:59", b"01-01 00:00:01", b"01-01 00:00:01", b"12-31 23:59:59")
    last = 365 * DAY_NS - 10**9
    assert [clock.without_year(one) for one in stamps] == [
        last,
        last,
        last + 2 * 10**9,
        last + 2 * 10**9,
        last,
    ]


def seconds_of(*stamps: bytes) -> list[int | None]:
    clock = LocalClock()
    return [None if (at := clock.without_year(one)) is None else at // 10**9 for one in stamps]


YEAR_S = 365 * 86_400


def test_processes_that_are_out_of_order_around_new_year_are_as_far_apart_as_they_are() -> None:
    old, new = b"12-31 23:59:59", b"01-01 00:00:00"
    assert seconds_of(old, new, old, new, old) == [YEAR_S - 1, YEAR_S, YEAR_S - 1, YEAR_S, YEAR_S - 1]
    assert seconds_of(new, old, new) == [0, -1, 0]  # the log begins in the new year
    assert seconds_of(old, b"01-01 00:00:01", b"12-31 23:59:60") == [YEAR_S - 1, YEAR_S + 1, YEAR_S]  # a leap second


def test_a_line_is_of_the_old_year_when_it_is_an_hour_late_and_a_log_that_was_silent_for_months_goes_on() -> None:
    assert seconds_of(b"01-01 00:00:00", b"12-31 23:00:00") == [0, -3_600]
    assert seconds_of(b"01-01 00:00:00", b"12-31 22:59:59") == [0, YEAR_S - 3_601]
    # 1 March is day 59 of a common year, counted from 0, 1 November is day 304.
    assert seconds_of(b"03-01 00:00:00", b"11-01 00:00:00") == [59 * 86_400, 304 * 86_400]
    assert seconds_of(b"11-01 00:00:00", b"03-01 00:00:00") == [304 * 86_400, (365 + 59) * 86_400]


def test_a_stamp_with_a_year_has_its_unix_time_each_time() -> None:
    clock = LocalClock()
    stamps = (b"2026-10-06 11:00:38", b"2026-10-06 11:00:38", b"2026-02-30 11:00:38", b"2026-10-06 11:00:38")
    assert [clock.of_year(one) for one in stamps] == [1_791_284_438 * 10**9] * 2 + [None, 1_791_284_438 * 10**9]
