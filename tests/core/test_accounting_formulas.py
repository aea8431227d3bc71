"""The formulas of the accounting that need no requests, by hand. Published tables are in test_published_tables."""

import pytest

from agentload.core.accounting import exposure, pooled_speed, ratio, speed_tok_s
from agentload.core.estimates import equal_work, expected_under_time_sharing
from agentload.core.intervals import Intervals


def test_ratio_is_none_whenever_it_has_no_value() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(0, 2) == 0
    assert (ratio(1, 0), ratio(None, 2), ratio(1, None)) == (None, None, None)


def test_speed_is_tokens_a_second_from_nanoseconds() -> None:
    assert speed_tok_s(300, 1_500_000_000) == 200
    assert (speed_tok_s(300, 0), speed_tok_s(None, 5), speed_tok_s(300, None)) == (None, None, None)


def test_pooled_speed_weighs_runs_by_their_time() -> None:
    assert pooled_speed([(100, 1.0), (100, 9.0)]) == 20  # the mean of 100 and 11.1 would be 55.6
    assert pooled_speed([]) is None


def test_exposure_is_the_part_of_prefill_under_decode() -> None:
    assert exposure(Intervals.of([(0, 10), (20, 30)]), Intervals.of([(8, 22)])) == pytest.approx(4 / 20)
    assert exposure(Intervals.of([]), Intervals.of([(8, 22)])) is None


def test_equal_work_is_an_estimate_and_says_so() -> None:
    work = equal_work(100, 10, new_prefill_tokens=1_000, decoded_tokens=50)
    assert work is not None
    assert (work.prefill_s, work.decode_s, work.total_s, work.evidence) == (10, 5, 15, "estimate")


def test_equal_work_without_both_speeds_is_none() -> None:
    assert (equal_work(None, 10), equal_work(100, None), equal_work(0, 10)) == (None, None, None)


def test_time_sharing_leaves_what_decode_does_not_use() -> None:
    assert expected_under_time_sharing(400, 0.25) == 300
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match="from 0 to 1"):
            expected_under_time_sharing(400, wrong)
