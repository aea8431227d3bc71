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
        365 * DAY_NS + last,
    ]


def test_a_stamp_with_a_year_has_its_unix_time_each_time() -> None:
    clock = LocalClock()
    stamps = (b"2026-10-06 11:00:38", b"2026-10-06 11:00:38", b"2026-02-30 11:00:38", b"2026-10-06 11:00:38")
    assert [clock.of_year(one) for one in stamps] == [1_791_284_438 * 10**9] * 2 + [None, 1_791_284_438 * 10**9]
