"""What do durations without a place in time add to sums and speeds?"""

from dataclasses import fields
from typing import Any

import pytest

from agentload.core.accounting import by_context, total
from agentload.core.records import Match, Request, Segment

WHOLE = Segment("log", "r", "", 0, None)
MS = 1_000_000


def request(name: str, **known: Any) -> Request:
    values: dict[str, Any] = dict.fromkeys(one.name for one in fields(Request))
    return Request(**{**values, "run": "r", "segment": "log", "request": name, "match": Match.SERVER_ONLY, **known})


def bare(name: str, prefill_ms: float, tokens: int) -> Request:
    return request(
        name, new_prefill_tokens=tokens, decoded_tokens=5, prefill_logged_ms=prefill_ms, decode_logged_ms=100.25
    )


def test_durations_alone_are_summed_and_make_no_busy_time() -> None:
    found = total([bare("a", 250.5, 100), bare("b", 500.0, 100)], WHOLE)
    assert (found.prefill_sum_ns, found.decode_sum_ns) == (750_500_000, 200_500_000)
    assert (found.prefill_union_ns, found.prefill_tok_s, found.prefill_double_counting) == (None, None, None)
    assert found.unknown.prefill_times == 2


def test_beside_known_times_they_are_left_out_of_the_sum_so_that_it_fits_the_busy_time() -> None:
    timed = request(
        "a", new_prefill_tokens=100, prefill_start=0, prefill_end=200 * MS, prefill_logged_ms=200.0, decoded_tokens=0
    )
    found = total([timed, bare("b", 500.0, 100)], WHOLE)
    assert (found.prefill_sum_ns, found.prefill_union_ns, found.prefill_double_counting) == (200 * MS, 200 * MS, 1.0)
    assert found.unknown.prefill_times == 1


def test_a_requests_own_speed_needs_its_duration_only() -> None:
    first = by_context([request("a", context_start=0, new_prefill_tokens=100, prefill_logged_ms=250.0)])[0]
    assert first.median_tok_s == pytest.approx(400.0)
    assert first.union_tok_s is None


def test_times_win_over_a_duration_that_the_log_states() -> None:
    one = request(
        "a", context_start=0, new_prefill_tokens=100, prefill_start=0, prefill_end=500 * MS, prefill_logged_ms=250.0
    )
    assert by_context([one])[0].median_tok_s == pytest.approx(200.0)


def test_no_duration_is_no_sum() -> None:
    found = total([request("a", new_prefill_tokens=1, decoded_tokens=1)], WHOLE)
    assert (found.prefill_sum_ns, found.decode_sum_ns) == (None, None)
