"""Does the vLLM reader tell of small logs what a person reads out of them?

The logs are parts of real ones (vLLM 0.32 with a tiny model; a public one with kernels that compile while it serves),
their long lines shortened. Expected values in vllm/*.json were worked out by hand.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import statistics
from agentload.core.records import LogFacts
from agentload.serverlogs.vllm import FORMAT
from tests.serverlogs.served import check_counts, excerpt

DATA = Path(__file__).parent / "vllm"
NAMES = ("ngram", "queue", "compiling")
MIDNIGHT_S = 332 * 86_400  # 29 November of a common year: 304 days and 28


def read(name: str, piece: int = 1 << 20) -> tuple[LogFacts, dict[str, Any]]:
    return excerpt(FORMAT, DATA, name, piece)


def at(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return (MIDNIGHT_S + hours * 3600 + minutes * 60 + seconds) * 1_000_000_000


@pytest.mark.parametrize("piece", [1 << 20, 7])
@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_an_excerpt_is_counted_as_what_it_is(name: str, piece: int) -> None:
    facts, told = read(name, piece)
    check_counts(facts, told, DATA / f"{name}.log")
    assert facts.counts_requests is False
    assert [proof.line for _, proof, _ in facts.suspects] == told["suspects"]


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_an_excerpt_have_the_line_that_proves_them(name: str) -> None:
    facts, told = read(name)
    assert {one.name: [one.value, one.proof.line] for one in facts.settings} == told["settings"]
    asked = {one.name: [one.value, one.proof.line] for one in facts.asked}
    assert {key: asked[key] for key in told["asked"]} == told["asked"]
    assert [one.ready and one.ready.line for one in facts.boots] == [told["ready"]]


@pytest.mark.parametrize("name", NAMES)
def test_statistics_and_steps_of_an_excerpt_are_those_that_stand_there(name: str) -> None:
    facts, told = read(name)
    assert [[one.proof.line, one.kind, one.source] for one in facts.statistics] == told["statistics"]
    assert [asdict(one) for one in facts.steps] == told["steps"]
    assert [[one.rows, one.steps, one.elapsed_ns] for one in facts.decode_batches] == told["batches"]


@pytest.mark.parametrize("name", NAMES)
def test_requests_of_an_excerpt_come_with_the_id_of_their_answer_and_without_any_count(name: str) -> None:
    facts, told = read(name)
    assert [one.label for one in facts.requests] == [one["label"] for one in told["requests"]]
    for one, expected in zip(facts.requests, told["requests"], strict=True):
        proofs = {field: proof.line for field, proof in one.proofs}
        assert one.server_id == expected["label"]
        assert (one.t_arrived, proofs["t_arrived"]) == (at(expected["arrived"][0]), expected["arrived"][1])
        ended = expected["ended"]
        assert (one.t_end, proofs.get("t_end")) == ((at(ended[0]), ended[1]) if ended else (None, None))
        assert one.finish == expected["finish"]
        assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (None,) * 4


def test_the_values_of_a_statistics_line_are_told_with_their_names() -> None:
    facts, _ = read("queue")
    assert dict(facts.statistics[0].values) == {
        "prompt_rate": 153.6,
        "generation_rate": 29.9,
        "running": 2.0,
        "waiting": 2.0,
        "kv_usage": 0.1,
        "prefix_hit_rate": 0.0,
    }
    assert facts.statistics[0].at == at("14:31:43")


def test_both_lengths_of_speculation_are_told_and_differ() -> None:
    # 64 tokens were generated, the first of each of 3 requests by its prefill; 22 steps decoded. 19 drafts, all taken.
    facts, _ = read("ngram")
    found = statistics.summary(facts, ())
    assert found is not None
    (part,) = found["parts"]
    told = part["speculation"]
    assert told["effective_length"] == pytest.approx((64 - 3) / 22)
    assert round(told["effective_length"], 2) == 2.77
    assert told["effective_error"] == pytest.approx(0.05 * 10 / 22)  # the throughput has one digit
    assert round(told["nominal_length"], 2) == 3.37
    assert told["acceptance_by_position"] == [1.0, 0.684, 0.684]
    assert (told["drafts"], told["drafted_tokens"], told["accepted_tokens"]) == (19, 45, 45)


def test_lines_of_speculation_weigh_as_many_drafts_as_each_tells_of() -> None:
    # 204, 12, 564, 519 and 441 tokens in drafts of 3: 68, 4, 188, 173 and 147 drafts.
    facts, _ = read("compiling")
    found = statistics.summary(facts, ())
    assert found is not None
    told = found["parts"][0]["speculation"]
    assert (told["drafts"], told["accepted_tokens"]) == (580, 1056)
    assert told["nominal_length"] == pytest.approx(1 + 1056 / 580, abs=0.001)  # positions are rounded to 0.001
    assert told["acceptance_by_position"] == pytest.approx([456.055 / 580, 344.025 / 580, 255.869 / 580])
    assert (told["effective_length"], told["effective_error"]) == (None, None)  # the log has no steps


def test_prompt_tokens_that_were_computed_are_those_of_the_servers_own_counter() -> None:
    # Its /metrics had local_compute 1408 afterwards, and 672 from the cache, of 2080.
    facts, _ = read("ngram")
    assert sum(one.prompt_tokens for one in facts.steps) == 2080 - 672


def test_every_proof_leads_back_to_its_line() -> None:
    data = (DATA / "ngram.log").read_bytes()
    lines = data.split(b"\n")
    facts, _ = read("ngram")
    for one in facts.settings:
        assert data[one.proof.offset :].startswith(lines[one.proof.line - 1])
    for request in facts.requests:
        for _, proof in request.proofs:
            assert data[proof.offset :].startswith(lines[proof.line - 1])
            assert request.label.encode() in lines[proof.line - 1]
