"""A server's clock on ours, by receive stamps."""

from hypothesis import given
from hypothesis import strategies as st

from agentload.serverlogs.stamps import MIN_ERROR_NS, ReceiveClock

OFFSET_NS = 1_795_971_897_000_000_000


def clock(delays_ns: list[int], drift_ppm: int = 0) -> ReceiveClock:
    found = ReceiveClock()
    for number, delay in enumerate(delays_ns):
        at = number * 10_000_000
        found.add(OFFSET_NS + at + at * drift_ppm // 1_000_000 + delay, at)
    return found


def test_without_a_line_nothing_is_known() -> None:
    assert (ReceiveClock().offset_ns(), ReceiveClock().error_ns()) == (None, None)


def test_the_least_delayed_line_gives_the_offset() -> None:
    found = clock([700, 300, 5_000])
    assert (found.offset_ns(), found.error_ns()) == (OFFSET_NS + 300, MIN_ERROR_NS)


def test_a_few_lines_vouch_for_no_more_than_their_spread() -> None:
    assert clock([300, 8_000_300]).error_ns() == 8_000_000


def test_single_late_lines_do_not_widen_the_error_of_many() -> None:
    delays = [50_000 + (900_000_000 if number % 10 == 3 else 0) for number in range(400)]
    assert clock(delays).error_ns() == MIN_ERROR_NS


def test_a_delay_that_lasts_does() -> None:
    assert clock([0] * 64 + [40_000_000] * 64).error_ns() == 40_000_000


def test_so_does_a_drift() -> None:
    # 100 ppm over 6,400 lines 10 ms apart (64 s) is 6.4 ms; the last stretch of 128 lines begins 128 lines earlier.
    found = clock([0] * 6400, drift_ppm=100)
    assert found.offset_ns() == OFFSET_NS
    assert found.error_ns() == (6400 - 128) * 1_000


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3000))
def test_memory_is_flat_and_the_offset_exact_whatever_the_delays(delays_ns: list[int]) -> None:
    found = clock(delays_ns)
    assert found.offset_ns() == OFFSET_NS + min(delays_ns)
    error = found.error_ns()
    assert error is not None
    assert MIN_ERROR_NS <= error <= max(MIN_ERROR_NS, max(delays_ns) - min(delays_ns))
