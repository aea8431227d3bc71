"""Do the draws follow the published quantiles, and are they the same everywhere?"""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import UsageError
from agentload.twin.lengths import DEFAULT, Draws, Lengths, Lognormal, Mix, Quantiles, Spread, always

EXPLORE = {
    "calls": {0.10: 7, 0.25: 13, 0.50: 21, 0.75: 27, 0.90: 34, 0.99: 55},
    "turn_tokens": {0.10: 125, 0.50: 228, 0.90: 340, 0.99: 520},
    "final_tokens": {0.10: 1899, 0.50: 3093, 0.90: 4765, 0.99: 9829},
}


@pytest.mark.parametrize("name", EXPLORE)
def test_each_published_quantile_is_met_exactly(name: str) -> None:
    spread: Spread = getattr(DEFAULT.lengths, name)
    assert {share: spread.at(share) for share in EXPLORE[name]} == EXPLORE[name]


def test_the_mean_number_of_calls_is_the_published_one_within_a_call() -> None:
    # Half the sum of neighbouring values times the share between them, of the points and the two chosen ends.
    # 0.5 + 1.5 + 4.25 + 6 + 4.575 + 4.005 + 0.685 = 21.5; published 21.
    mean = sum(DEFAULT.lengths.calls.at((number + 0.5) / 10_000) for number in range(10_000)) / 10_000
    assert mean == pytest.approx(21.5, abs=0.05)


def test_a_lognormal_goes_through_its_median_and_its_ninth_decile() -> None:
    spread = Lognormal(250, 1500)
    assert (spread.at(0.5), spread.at(0.9)) == (250, 1500)
    assert spread.at(0.1) == 42  # 250 x 250 / 1500 = 41.67, by symmetry in the logarithm
    assert Lognormal(250, 1500, least=50, most=400).at(0.1) == 50
    assert Lognormal(250, 1500, least=50, most=400).at(0.9) == 400


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_higher_share_never_gives_a_lower_value(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for spread in (DEFAULT.lengths.calls, DEFAULT.lengths.thinking_tokens, always(3)):
        assert spread.at(low) <= spread.at(high)


@pytest.mark.parametrize(
    "points", [((0.0, 1.0),), ((0.1, 1.0), (1.0, 2.0)), ((0.0, 1.0), (0.9, 2.0)), ((0.0, 2.0), (1.0, 1.0))]
)
def test_quantiles_that_are_no_distribution_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(UsageError, match="expected rising"):
        Quantiles(points)


def test_shares_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match=r"sum to 1, got 1\.1"):
        Mix(grep=0.9)
    with pytest.raises(UsageError, match="shares from 0 to 1"):
        Mix(read=1.5)
    with pytest.raises(UsageError, match="thinking_share"):
        Lengths(thinking_share=-0.1)
    with pytest.raises(UsageError, match="p50 <= p90"):
        Lognormal(5, 4)


def test_the_stream_is_splitmix64() -> None:
    draws = Draws()
    draws._state = 0
    # The reference outputs of splitmix64 from state 0.
    assert [draws._next() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_each_name_has_its_own_stream() -> None:
    names: list[tuple[str | int, ...]] = [("a",), ("b",), (1,), ("1",), ("a", "b"), ("ab",), ("a\x1fstr:b", "")]
    assert len({Draws(*name).unit() for name in names}) == len(names)
    assert Draws("a", 3).unit() == Draws("a", 3).unit()


def test_weights_are_probabilities() -> None:
    draws, n = Draws("weights"), 4000
    hits = [draws.index([1.0, 0.0, 3.0]) for _ in range(n)]
    assert hits.count(1) == 0
    assert abs(hits.count(2) / n - 0.75) < 4 * sqrt(0.75 * 0.25 / n)
    assert abs(sum(draws.chance(0.2) for _ in range(n)) / n - 0.2) < 4 * sqrt(0.2 * 0.8 / n)
    assert {draws.below(3) for _ in range(100)} == {0, 1, 2}
