"""Speeds, overlap, exposure and buckets of runs small enough to be worked out by hand."""

import pytest

from agentload.twin.events import Quantum, Request
from agentload.twin.measure import RunTruth, equal_work_of, measure

SECOND = 1_000_000_000


def request(name: str, begin_s: float, prefilled_s: float, decoded_s: float, new: int, *, cached: int = 0) -> Request:
    begin, prefilled, decoded = (round(at * SECOND) for at in (begin_s, prefilled_s, decoded_s))
    return Request(
        request=name, slot=0, arrival_ns=begin, slot_ns=begin, prefill_start_ns=begin, prefill_end_ns=prefilled,
        decode_end_ns=decoded, end_ns=decoded, prompt_tokens=cached + new, cached_tokens=cached, new_prefill_tokens=new,
        prefilled_tokens=new, decoded_tokens=100, quanta=1, engine_calls=1, engine_ns=prefilled - begin,
        decode_steps=100, cache_source="none", finish="stop", tool_call_ids=(),
    )  # fmt: skip


def quantum(begin_s: int, end_s: int, *, mixed: bool) -> Quantum:
    begin, end = begin_s * SECOND, end_s * SECOND
    return Quantum("a", 0, 0, 100, 100, 128 if mixed else 2048, mixed, begin, begin, end)


def test_a_speed_is_new_tokens_over_the_union_of_the_prefills() -> None:
    """Prefills [0, 10) and [6, 14): union 14 s, sum 18 s. The second reuses 50,000 tokens, which are not new."""
    run = RunTruth(
        (request("a", 0, 10, 16, 4000), request("b", 6, 14, 20, 3000, cached=50_000)), (quantum(0, 10, mixed=False),)
    )
    found = measure([run])
    assert found.new_prefill_tokens == 7000
    assert found.prefill_busy_s == 14
    assert found.prefill_tok_s == 500
    assert found.double_counting == pytest.approx(18 / 14)
    assert found.decode_busy_s == 10  # [10, 16) and [14, 20)
    assert found.decode_tok_s == 20
    assert found.wall_s == 20
    assert found.overlap == pytest.approx(4 / 14)  # b prefills in [10, 14) while a decodes
    assert list(found.bucket_tok_s) == [400, 375, None, None]
    assert found.most_context == 53_100


def test_a_request_that_decodes_alone_after_its_own_prefill_overlaps_nothing() -> None:
    assert measure([RunTruth((request("a", 0, 10, 16, 4000),), (quantum(0, 10, mixed=False),))]).overlap == 0


def test_exposure_counts_quanta_and_their_time() -> None:
    quanta = (
        quantum(0, 9, mixed=False),
        quantum(9, 10, mixed=True),
        quantum(10, 11, mixed=True),
        quantum(11, 12, mixed=True),
    )
    found = measure([RunTruth((request("a", 0, 12, 16, 4000),), quanta)])
    assert found.exposed_quanta == 0.75
    assert found.exposed_time == pytest.approx(3 / 12)


def test_pooled_runs_add_up_tokens_and_busy_times_and_not_speeds() -> None:
    one = RunTruth((request("a", 0, 10, 16, 4000),), (quantum(0, 10, mixed=False),))
    other = RunTruth((request("a", 0, 30, 40, 3000),), (quantum(0, 30, mixed=True),))
    assert measure([one, other]).prefill_tok_s == 175  # 7000 tokens in 40 s; the mean of the speeds would be 250


def test_equal_work_is_fixed_work_at_the_measured_speeds() -> None:
    found = equal_work_of(measure([RunTruth((request("a", 0, 10, 16, 4000),), (quantum(0, 10, mixed=False),))]))
    assert found.total_s == pytest.approx(165_000 / 400 + 20_000 / (100 / 6))
    assert found.evidence == "estimate"
