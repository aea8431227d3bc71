"""Does each metric take the right numbers from a segment, and none where a source did not say?"""

from typing import Any

import pytest

from agentload.core.evidence_grade import QUANTITIES
from agentload.core.metrics import FIXED, METRICS, PROBE, deciding, metrics_of
from agentload.core.probe import Load

S = 1_000_000_000


def segment(**whole: Any) -> dict[str, Any]:
    """Report A's pooled runs at 2048: 329,861 new tokens in 1,207 s; 29.2 tok/s of decode."""
    known = {
        "requests": 95,
        "unknown": {"new_prefill_tokens": 0},
        "new_prefill_tokens": 329_861,
        "prefill_speed_tokens": 329_861,
        "prefill_speed_ns": 1207 * S,
        "prefill_tok_s": 329_861 / 1207,
        "decode_speed_tokens": 29_200,
        "decode_speed_ns": 1000 * S,
        "decode_tok_s": 29.2,
        "prefill_share": 0.52,
        "decode_share": 0.59,
        "overlap": 0.25,
    }
    waits = {"whole": {"median_ns": 1_500_000_000.0}}
    return {"whole": {**known, **whole}, "server_cpu_s": 500.0, "first_token": waits}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefill_tok_s", 273.29),
        ("decode_tok_s", 29.2),
        ("prefill_tokens_per_cpu_s", 659.722),  # 329,861 / 500
        ("new_prefill_tokens_per_turn", 3472.22),  # 329,861 / 95
        ("ttft_s", 1.5),
        ("equal_work_s", 1288.7),  # 165,000 / 273.29 + 20,000 / 29.2; table 6 has 1,289
        ("prefill_share", 0.52),
        ("decode_share", 0.59),
        ("overlap", 0.25),
    ],
)
def test_a_metric_is_the_quotient_that_its_meaning_says(name: str, value: float) -> None:
    assert METRICS[name].measure(segment()).number == pytest.approx(value, abs=0.01 * max(1.0, value / 100))


def test_speeds_keep_amount_and_base_so_that_runs_can_be_pooled() -> None:
    found = METRICS["prefill_tok_s"].measure(segment())
    assert (found.amount, found.value) == (329_861, None)
    assert found.base == pytest.approx(1207)


def test_requests_without_a_count_are_no_turns() -> None:
    found = METRICS["new_prefill_tokens_per_turn"].measure(segment(unknown={"new_prefill_tokens": 5}))
    assert found.base == 90


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("prefill_tok_s", {"prefill_tok_s": None, "prefill_speed_tokens": 0, "prefill_speed_ns": 0}),
        ("new_prefill_tokens_per_turn", {"new_prefill_tokens": None}),
        ("new_prefill_tokens_per_turn", {"requests": 0}),
        ("equal_work_s", {"decode_tok_s": None}),
        ("overlap", {"overlap": None}),
    ],
)
def test_what_no_source_told_is_not_measured_and_not_0(name: str, whole: dict[str, Any]) -> None:
    assert METRICS[name].measure(segment(**whole)).number is None


def test_without_samples_or_first_tokens_there_is_no_value() -> None:
    bare = {**segment(), "server_cpu_s": None, "first_token": None}
    assert METRICS["prefill_tokens_per_cpu_s"].measure(bare).number is None
    assert METRICS["ttft_s"].measure(bare).number is None


def test_every_metric_has_a_grade_and_says_what_it_means() -> None:
    assert set(METRICS) <= set(QUANTITIES)
    assert all(one.meaning and one.unit and one.shown for one in METRICS.values())
    assert METRICS["equal_work_s"].meaning.startswith("ESTIMATE")


def test_the_fixed_workload_has_its_metrics_at_each_concurrency() -> None:
    found = metrics_of("fixed", (1, 8))
    assert list(found) == [f"{name}_c{number}" for name in FIXED for number in (1, 8)]
    assert found["ttft_s_c8"].concurrency == 8
    assert found["ttft_s_c8"].higher_is_better is False


def test_the_metric_that_decides_is_the_one_named_or_the_first() -> None:
    assert deciding(None, "agents") == "prefill_tok_s"
    assert deciding("ttft_s", "agents") == "ttft_s"
    assert deciding(None, "fixed", (1, 4, 8)) == "decode_tok_s_c8"
    assert deciding("ttft_s", "fixed", (1, 4)) == "ttft_s_c4"
    assert deciding("ttft_s_c1", "fixed", (1, 4)) == "ttft_s_c1"
    with pytest.raises(ValueError, match=r"expected a metric: prefill_tok_s, .*; got 'speed'"):
        deciding("speed", "agents")
    with pytest.raises(ValueError, match="got 'decode_tok_s_c16'"):
        deciding("decode_tok_s_c16", "fixed", (1, 4))


LOADS = (Load(0), Load(3), Load(3, 3), Load(1, 1, 16))


def test_a_probe_has_its_metrics_under_each_load_where_they_can_be_measured() -> None:
    """Without a decoder there is no gap, and of one prompt no spread of ends."""
    found = metrics_of("probe", loads=LOADS)
    assert [name for name in found if name.endswith("_d0")] == ["prefill_tok_s_d0", "ttft_s_d0"]
    assert [name for name in found if name.endswith("_d3")] == [
        "prefill_tok_s_d3",
        "ttft_s_d3",
        "decoder_gap_s_d3",
        "decoder_gap_p99_s_d3",
        "neighbour_tok_s_d3",
        "cost_ms_per_token_d3",
    ]
    assert [name for name in found if name.startswith("ends_spread_s")] == ["ends_spread_s_d3k3"]
    assert found["prefill_tok_s_n16"].shown == "prefill speed with one decoder with 16 tokens left"


def test_a_probes_metric_takes_its_number_from_the_segments_probe() -> None:
    metric = metrics_of("probe", loads=LOADS)["decoder_gap_s_d3"]
    assert metric.measure({"probe": {"load": "d3", "gap_s": 4.05}}).number == 4.05
    assert metric.measure({"probe": None}).number is None
    assert metric.measure({}).number is None


def test_every_probe_metric_has_a_grade() -> None:
    assert {one.plain for one in metrics_of("probe", loads=LOADS).values()} == set(PROBE) <= set(QUANTITIES)


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        (None, "prefill_tok_s_d3"),
        ("prefill_tok_s", "prefill_tok_s_d3"),
        ("decoder_gap_p99_s", "decoder_gap_p99_s_d3"),
        ("ttft_s_d3k3", "ttft_s_d3k3"),
    ],
)
def test_of_a_probe_the_speed_under_the_heaviest_load_of_one_prompt_decides(name: str | None, decides: str) -> None:
    assert deciding(name, "probe", loads=LOADS) == decides


def test_of_a_probe_without_decoders_the_speed_without_load_decides() -> None:
    assert deciding(None, "probe", loads=[Load(0)]) == "prefill_tok_s_d0"
    assert deciding(None, "probe", loads=[Load(0), Load(1, 1, 16)]) == "prefill_tok_s_d0"


def test_a_metric_of_a_load_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a metric: prefill_tok_s_d0, .*; got 'prefill_tok_s_d9'"):
        deciding("prefill_tok_s_d9", "probe", loads=LOADS)
