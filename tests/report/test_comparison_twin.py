"""Does a comparison of real runs on the simulated server stand beside what was published, and say what it is?"""

from pathlib import Path
from typing import Any

import anyio
import pytest

from agentload.agents import workspace
from agentload.analysis.compare import compare
from agentload.artifacts.design import Design
from agentload.report.comparison_terminal import render
from tests.analysis.experiments import design, open_folder
from tests.run.steps import carry_out


def planned() -> Design:
    """Report A's two quanta, twice each, order reversed; two agents with a few tool calls each."""
    fields = {
        "corpus": "tiny",
        "agents": 2,
        "stagger_s": 5.0,
        "limits": {"tool_calls": 4, "min_tool_calls": 2, "min_growth_tokens": 0},
    }
    variants = tuple(
        {
            "name": name,
            "label": f"mixed_prefill_quantum={quantum}",
            "scenario": {**fields, "server": {"kind": "twin", "set": {"mixed_prefill_quantum": quantum}}},
            "expected": {"mixed_prefill_quantum": quantum},
        }
        for name, quantum in (("A", 2048), ("B", 128))
    )
    return design(variants=variants, simulated=True)


@pytest.fixture(scope="module")
def found(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = open_folder(tmp_path_factory.mktemp("twin") / "quanta", planned())
    anyio.run(carry_out, folder, cache_dir)
    return compare(folder)


def test_all_four_runs_count_and_2048_is_distinguished_as_an_estimate(found: dict[str, Any]) -> None:
    row = found["pairs"][0]["metrics"][0]
    assert found["steps"] == {"planned": 4, "done": 4, "valid": 4}
    assert (row["outcome"], row["better"], row["grade"]["grade"]) == ("distinguished", "A", "estimate")
    assert found["simulated"] is True
    assert render(found).startswith("SIMULATED: A (mixed_prefill_quantum=2048) is faster")


def test_the_applied_quantum_is_proven_by_the_simulated_log(found: dict[str, Any]) -> None:
    for variant, quantum in zip(found["variants"], (2048, 128), strict=True):
        setting = variant["settings"][0]
        assert (setting["name"], setting["applied"], setting["verdict"]) == (
            "mixed_prefill_quantum",
            quantum,
            "applied",
        )
        assert f"mixed_prefill_quantum={quantum}" in setting["proofs"][0]["quote"]


def test_published_numbers_stand_beside_the_simulated_ones(found: dict[str, Any]) -> None:
    """Report A: tables 4, 5, 6 and 7."""
    rows = {(one["table"], one["quantity"]): one for one in found["published"]["rows"]}
    pooled = {one["name"]: one["pooled"] for one in found["variants"]}
    told = [
        ("4", "01-A, q2048 beside 1 q2048, requests", 47, found["runs"][0]["requests"]),
        ("4", "04-A, q2048 beside 2 q2048, tok/s", 263.5, found["runs"][3]["prefill_tok_s"]),
        ("4", "03-B, q128 beside 2 q128, new tokens", 252_263, found["runs"][2]["new_prefill_tokens"]),
        ("4", "all runs, ratio", 2.2, pooled["A"]["prefill_tok_s"] / pooled["B"]["prefill_tok_s"]),
        ("5", "q2048, decode tok/s", 29.2, pooled["A"]["decode_tok_s"]),
        ("5", "q128, prefill share", 0.90, pooled["B"]["prefill_share"]),
        ("6", "q128, equal work (an estimate), s", 2256, found["pairs"][0]["equal_work"]["second_s"]),
        ("7", "0-30k, ratio", 2.14, found["pairs"][0]["buckets"][0]["ratio"]),
    ]
    for table, quantity, published, simulated in told:
        row = rows[table, quantity]
        assert (row["published"], row["simulated"]) == (published, pytest.approx(simulated)), quantity
        assert row["off"] == pytest.approx(simulated / published - 1)


def test_misfits_have_the_words_of_the_twins_own_tables(found: dict[str, Any]) -> None:
    misfits = found["published"]["misfits"]
    assert [(one["table"], one["published"]) for one in misfits] == [
        ("7", "2.14 2.37 2.12 2.25"),
        ("2, 5", "0.52, 0.59, 0.20 to 0.27"),
        ("2, 5", "0.90, 0.48, 0.32 to 0.37"),
    ]
    said = " ".join(render(found).split())
    assert "misfit (table 7): ratio of each bucket: published 2.14 2.37 2.12 2.25, simulated" in said
    assert "such shares force an overlap of at least 0.42; the twin's agents decode nearly always" in said
