"""Does the SGLang reader tell of small logs what a person reads out of them?

The lines are those that people posted, of many versions; some had their stamps cut off. Expected values in
sglang/*.json were worked out by hand.
"""

from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import statistics
from agentload.core.records import LogFacts
from agentload.serverlogs.sglang import FORMAT
from tests.serverlogs.served import check_counts, excerpt

DATA = Path(__file__).parent / "sglang"
NAMES = ("batches", "ranks")


def read(name: str, piece: int = 1 << 20) -> tuple[LogFacts, dict[str, Any]]:
    return excerpt(FORMAT, DATA, name, piece)


@pytest.mark.parametrize("piece", [1 << 20, 7])
@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_an_excerpt_is_counted_as_what_it_is(name: str, piece: int) -> None:
    facts, told = read(name, piece)
    check_counts(facts, told, DATA / f"{name}.log")
    assert (facts.settings, facts.suspects) == ((), ())


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_an_excerpt_are_counted_once_and_add_up(name: str) -> None:
    facts, told = read(name)
    assert [[one.proof.line, one.kind, one.source] for one in facts.statistics] == told["statistics"]
    for source, sums in told["sums"].items():
        batches = [dict(one.values) for one in facts.statistics if (one.kind, one.source) == ("prefill", source)]
        assert {key: sum(one[key] for one in batches) for key in sums} == sums


def test_a_batch_line_of_each_version_is_told_with_its_names_in_percent() -> None:
    facts, _ = read("batches")
    assert dict(facts.statistics[0].values) == {
        "new_sequences": 1,
        "new_tokens": 4061,
        "cached_tokens": 1000,
        "kv_usage": 1.0,
        "swa_usage": 17.0,
        "running": 0,
        "waiting": 51,
        "pending_tokens": 0,
        "input_rate": 16.21,
    }
    assert dict(facts.statistics[2].values) == {
        "running": 4,
        "held_tokens": 214912,
        "kv_usage": 82.0,
        "mamba_usage": 42.0,
        "accepted_length": 2.70,
        "acceptance": 57.0,
        "generation_rate": 123.73,
        "waiting": 0,
    }
    assert dict(facts.statistics[5].values) == {
        "running": 4,
        "held_tokens": 3121,
        "kv_usage": 0.0,
        "accepted_length": 2.74,
        "generation_rate": 396.76,
    }
    assert facts.statistics[0].at == 1_791_284_438_000_000_000  # 2026-10-06 11:00:38, as if it were UTC


@pytest.mark.parametrize("name", NAMES)
def test_requests_of_an_excerpt_are_those_worked_out_by_hand(name: str) -> None:
    facts, told = read(name)
    assert facts.counts_requests is bool(told["requests"])
    for one, expected in zip(facts.requests, told["requests"], strict=True):
        assert {key: getattr(one, key) for key in expected} == expected
        assert one.server_id == expected["label"]
        assert one.prompt_tokens == (one.cached_tokens or 0) + (one.new_prefill_tokens or 0)


def test_the_impossible_time_is_named() -> None:
    facts, _ = read("ranks")
    assert "inference_time 26520974.4 s" in facts.doubts[0].message


def test_the_length_of_speculation_is_the_mean_of_decode_lines_by_their_requests() -> None:
    facts, _ = read("batches")
    found = statistics.summary(facts, ())
    assert found is not None
    told = found["parts"][0]["speculation"]
    by_hand = (56 * 2.69 + 4 * 2.70 + 1 * 3.35 + 1 * 2.83 + 4 * 2.74) / 66
    assert told["effective_length"] == pytest.approx(by_hand)
    assert (told["nominal_length"], told["acceptance_by_position"], told["drafts"]) == (None, None, None)
