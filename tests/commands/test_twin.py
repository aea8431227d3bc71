"""`agentload twin tables`: published beside simulated, as the command prints it."""

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentload.commands.twin import show
from agentload.twin.rows import Evidence, Misfit, Row, exact, near
from agentload.twin.tables import Section, Tables

PROGRAM = Path(sys.executable).with_name("agentload")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "twin", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = ran("tables", "--json")
    assert done.stderr == ""
    assert done.returncode == 0
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def simulated(found: dict[str, Any], profile: str, table: str, quantity: str) -> Any:
    (section,) = (one for one in found["sections"] if one["profile"] == profile)
    (row,) = (row for row in section["rows"] if (row["table"], row["quantity"]) == (table, quantity))
    return row["simulated"]


def plain(found: dict[str, Any], table: str, quantity: str) -> Any:
    return simulated(found, "m3-ultra", table, quantity)


def test_it_says_that_all_of_it_is_simulated_and_where_the_other_numbers_are_from(found: dict[str, Any]) -> None:
    assert (found["schema"], found["simulated"], found["holds"]) == ("agentload.twin.tables/1", True, True)
    assert "report A" in found["published_source"]


def test_speeds_of_the_sweep_are_within_2_percent(found: dict[str, Any]) -> None:
    published = {128: 220.3, 512: 332.9, 1024: 426.0, 2048: 508.2, 4096: 542.3}
    for quantum, want in published.items():
        assert plain(found, "3", f"quantum {quantum}, tok/s") == pytest.approx(want, rel=0.02)
    assert 552 * 0.97 <= plain(found, "3", "quantum 8192, tok/s") <= 559 * 1.03
    assert plain(found, "3", "the ceiling is that of quantum") == 8192
    assert plain(found, "3", "quantum 1536 is slower than 2048 (1: yes)") == 1


def test_gaps_of_the_neighbours_are_within_2_percent(found: dict[str, Any]) -> None:
    for quantum, want in {128: 0.58, 1024: 2.4, 2048: 4.02, 4096: 7.6}.items():
        name = f"gap between two tokens of a neighbour, quantum {quantum}, s"
        assert plain(found, "10", name) == pytest.approx(want, rel=0.02)


def test_prefill_under_each_load_is_within_4_percent(found: dict[str, Any]) -> None:
    assert plain(found, "1", "no load, at 177,700 tokens, tok/s") == pytest.approx(279.5, rel=0.04)
    for name, small, large in (("three", 220.3, 508.9), ("one", 230.3, 520.6)):
        assert plain(found, "1", f"{name} decoding, quantum 128, tok/s") == pytest.approx(small, rel=0.04)
        assert plain(found, "1", f"{name} decoding, quantum 2048, tok/s") == pytest.approx(large, rel=0.04)
    assert 1.55 <= plain(found, "1", "ratio at 177,700 tokens") <= 1.75


def test_three_cold_prompts_end_together(found: dict[str, Any]) -> None:
    for quantum, published in {128: (447.5, 447.7, 448.0), 2048: (152.8, 153.0, 153.2)}.items():
        name = f"three cold prompts of 24,676, quantum {quantum}"
        got = [plain(found, "text", f"{name}: no. {number}, s") for number in (1, 2, 3)]
        assert got == pytest.approx(published, rel=0.02)
        assert max(got) - min(got) <= 1.5


def test_the_chunk_cap_makes_the_published_calls(found: dict[str, Any]) -> None:
    for chunk, calls in {4096: 5, 3072: 7, 2560: 8}.items():
        assert plain(found, "11", f"--prefill-chunk {chunk}, engine calls") == calls
    for chunk, loss in {3072: 0.034, 2560: 0.051}.items():
        assert math.isclose(plain(found, "11", f"--prefill-chunk {chunk}, loss"), loss, abs_tol=0.03)
    assert plain(found, "11", "chunks from 1539 mod 4096") == [2048, 509, 1539, 2048, 509, 1539]


def test_real_agents_under_the_probes_costs(found: dict[str, Any]) -> None:
    runs = "runs of 47 and 55 requests"
    assert 1.7 <= plain(found, "4", f"{runs}, ratio") <= 2.1
    assert plain(found, "", f"{runs}: exposure at 128, share of time of quanta") >= 0.85
    assert plain(found, "7", "0k to 30k, ratio") > plain(found, "7", "100k and more, ratio")


def test_real_agents_under_costs_fitted_to_them_are_marked_as_no_evidence(found: dict[str, Any]) -> None:
    runs = "runs of 47 and 55 requests"
    assert 2.0 <= simulated(found, "m3-ultra-agents", "4", f"{runs}, ratio") <= 2.3
    assert 1.6 <= simulated(found, "m3-ultra-agents", "6", f"{runs}, equal work, ratio") <= 1.9
    for bucket in ("0k to 30k", "30k to 60k", "60k to 100k"):
        assert 1.9 <= simulated(found, "m3-ultra-agents", "7", f"{bucket}, ratio") <= 2.6
    (section,) = (one for one in found["sections"] if one["profile"] == "m3-ultra-agents")
    assert {
        row["evidence"] for row in section["rows"] if row["table"] in {"4", "7"} and "union" not in row["quantity"]
    } == {"fitted"}


def test_what_does_not_fit_is_told_with_its_reason(found: dict[str, Any]) -> None:
    misfits = [one for section in found["sections"] for one in section["misfits"]]
    assert {"1", "2, 5", "3", "3, 4", "8"} <= {one["table"] for one in misfits}
    assert all(len(one["why"]) > 20 and one["published"] and one["simulated"] for one in misfits)


def shown(*rows: Row) -> str:
    misfit = Misfit("8", "decode", "1.08", "0.25", "two tables disagree")
    text = io.StringIO()
    show(Tables((Section("m3-ultra", "fitted to a probe", rows, (misfit,)),)), Console(file=text, width=150))
    return text.getvalue()


def test_the_text_says_simulated_and_what_is_fitted_and_what_does_not_hold() -> None:
    text = shown(
        near("3", "quantum 128, tok/s", 220.3, 219.7, 0.02, Evidence.FITTED),
        near("3", "quantum 512, tok/s", 332.9, 300.0, 0.02, Evidence.FREE),
    )
    assert "SIMULATED, profile m3-ultra: fitted to a probe" in text
    assert re.search(r"│ 3 +│ quantum 128, tok/s +│ +220\.3 │ +219\.7 │ +-0\.3% │ +2% │ yes +│ fitted +│", text)
    assert re.search(r"│ 3 +│ quantum 512, tok/s +│ +332\.9 │ +300\.0 │ +-9\.9% │ +2% │ NO +│ free +│", text)
    assert re.search(r"│ 8 +│ decode +│ 1\.08 +│ 0\.25 +│ two tables disagree +│", text)
    assert "1 of 2 limits hold" in text


def test_a_limit_that_does_not_hold_is_a_negative_finding() -> None:
    held = exact("11", "engine calls", 5, 5, Evidence.FREE)
    missed = exact("11", "engine calls", 5, 6, Evidence.FREE)
    assert Tables((Section("p", "a", (held,), ()),)).holds
    assert not Tables((Section("p", "a", (held,), ()), Section("q", "a", (missed,), ()))).holds
