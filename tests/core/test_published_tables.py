"""Do the published tables come out of our arithmetic when it is fed their inputs?

Numbers of the field report on one Apple M3 Ultra (PROTOCOL, report A), copied by hand. A tolerance is what the rounding
of the published inputs allows. Shares and overlap of table 5 contradict each other in print and are no oracles.
"""

import pytest

from agentload.core.accounting import bucket_of, pooled_speed, ratio
from agentload.core.estimates import equal_work, expected_under_time_sharing
from agentload.core.moe import chunk_for, tokens_per_expert, unique_experts

# Table 4, real agents: new prefill tokens, busy seconds (printed whole), printed tok/s.
TABLE_4 = {
    "q2048": [(139_599, 485, 287.7), (190_262, 722, 263.5)],
    "q128": [(214_270, 1735, 123.5), (252_263, 2025, 124.6)],
}


@pytest.mark.parametrize(("tokens", "busy_s", "tok_s"), [row for rows in TABLE_4.values() for row in rows])
def test_table_4_each_runs_speed_is_tokens_over_busy_time(tokens: int, busy_s: int, tok_s: float) -> None:
    fastest, slowest = pooled_speed([(tokens, busy_s - 0.5)]), pooled_speed([(tokens, busy_s + 0.5)])
    assert fastest is not None
    assert slowest is not None
    assert slowest - 0.05 <= tok_s <= fastest + 0.05
    assert pooled_speed([(tokens, busy_s)]) == pytest.approx(tok_s, abs=0.2)


def test_table_4_pooled_speeds_and_their_ratio() -> None:
    fast = pooled_speed((tokens, busy_s) for tokens, busy_s, _ in TABLE_4["q2048"])
    slow = pooled_speed((tokens, busy_s) for tokens, busy_s, _ in TABLE_4["q128"])
    assert fast == pytest.approx(273.2, abs=0.2)
    assert slow == pytest.approx(124.1, abs=0.05)
    assert ratio(fast, slow) == pytest.approx(2.20, abs=0.005)


def test_table_4_pooling_is_not_the_mean_of_the_speeds() -> None:
    fast = pooled_speed((tokens, busy_s) for tokens, busy_s, _ in TABLE_4["q2048"])
    assert fast is not None
    assert (287.7 + 263.5) / 2 - fast > 2  # 275.6 would be the mean


def test_table_5_ratios_of_prefill_and_decode_speed() -> None:
    assert ratio(273.2, 124.1) == pytest.approx(2.20, abs=0.005)
    assert ratio(29.2, 21.6) == pytest.approx(1.35, abs=0.005)


def test_table_6_equal_work_from_table_5_speeds() -> None:
    fast, slow = equal_work(273.2, 29.2), equal_work(124.1, 21.6)
    assert fast is not None
    assert slow is not None
    assert (fast.new_prefill_tokens, fast.decoded_tokens) == (165_000, 20_000)
    assert fast.prefill_s == pytest.approx(604, abs=0.5)
    assert fast.decode_s == pytest.approx(685, abs=0.5)
    assert slow.prefill_s == pytest.approx(1330, abs=0.5)
    assert slow.decode_s == pytest.approx(926, abs=0.5)
    assert fast.total_s == pytest.approx(1289, abs=1)
    assert slow.total_s == pytest.approx(2256, abs=1)  # printed as the sum of rounded parts
    assert ratio(slow.total_s, fast.total_s) == pytest.approx(1.75, abs=0.005)


@pytest.mark.parametrize(
    ("context_start", "bucket", "q2048", "q128", "published"),
    [
        (0, "0-30k", 296, 138, 2.14),
        (30_000, "30k-60k", 282, 119, 2.37),
        (60_000, "60k-100k", 254, 120, 2.12),
        (100_000, "100k+", 225, 100, 2.25),
    ],
)
def test_table_7_buckets_and_their_ratios(
    context_start: int, bucket: str, q2048: int, q128: int, published: float
) -> None:
    assert bucket_of(context_start) == bucket
    assert ratio(q2048, q128) == pytest.approx(published, abs=0.0055)  # 296/138 = 2.1449, cut to 2.14


@pytest.mark.parametrize(("utilisation", "expected_tok_s"), [(0.093, 507), (0.152, 474)])
def test_table_8_expected_speed_under_time_sharing(utilisation: float, expected_tok_s: int) -> None:
    assert expected_under_time_sharing(559, utilisation) == pytest.approx(expected_tok_s, abs=0.5)


def test_table_8_utilisations_come_from_decode_speeds_under_load_and_alone() -> None:
    assert ratio(1.08, 11.64) == pytest.approx(0.093, abs=0.0005)
    assert ratio(1.77, 11.64) == pytest.approx(0.152, abs=0.0005)


@pytest.mark.parametrize(
    ("quantum", "unique", "per_expert", "ms_per_token", "vs_2048"),
    [
        (128, 243.7, 3.0, 3.22, 1.71),
        (512, 256, 12, 2.67, 1.42),
        (1024, 256, 24, 2.18, 1.16),
        (2048, 256, 48, 1.88, 1.0),
        (4096, 256, 96, 1.79, 0.95),
        (4096, 256, 96, 1.80, 0.96),
    ],
)
def test_table_9_experts_woken_and_cost_of_a_token(
    quantum: int, unique: float, per_expert: float, ms_per_token: float, vs_2048: float
) -> None:
    assert unique_experts(quantum, 256, 6) == pytest.approx(unique, abs=0.05)
    assert tokens_per_expert(quantum, 256, 6) == per_expert
    assert ratio(ms_per_token, 1.88) == pytest.approx(vs_2048, abs=0.005)


@pytest.mark.parametrize(
    ("target", "experts", "chosen", "raw", "power_of_two"),
    [(48, 128, 8, 768, 1024), (36, 256, 6, 1536, 2048), (48, 256, 6, 2048, 2048)],
)
def test_table_9_inverse_examples(target: int, experts: int, chosen: int, raw: int, power_of_two: int) -> None:
    found = chunk_for(target, experts, chosen)
    assert (found.raw_tokens, found.power_of_two_tokens) == (raw, power_of_two)


@pytest.mark.parametrize(
    ("tok_s", "share"), [(220.3, 0.39), (332.9, 0.60), (426.0, 0.76), (508.2, 0.91), (542.3, 0.97)]
)
def test_table_3_shares_of_the_ceiling(tok_s: float, share: float) -> None:
    assert ratio(tok_s, 559) == pytest.approx(share, abs=0.005)


def test_table_1_ratios_under_decode_load() -> None:
    assert ratio(508.9, 220.3) == pytest.approx(2.31, abs=0.005)
    assert ratio(520.6, 230.3) == pytest.approx(2.26, abs=0.005)
