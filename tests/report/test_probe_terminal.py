"""Does a probe's report say what a reader compares, with what it rests on, and a dash where nothing is known?"""

from typing import Any

import pytest

from agentload.analysis import probe
from agentload.analysis.probe import Asked
from agentload.report import probe_terminal
from agentload.report.page import Page
from agentload.twin import profile, scenarios
from agentload.twin.options import Options
from tests.analysis.probes import PUBLISHED_TOKENS, played


def account() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run at quantum 2048: without load, and three prompts at once beside three decoders."""
    parts = []
    for load in ({"decoders": 3, "prompts": 3}, {"decoders": 0}):
        rows, segment, answers = played(2048, **load)
        parts.append({"probe": probe.segment(rows, segment, answers, Asked(PUBLISHED_TOKENS)), "memory": None})
    summary = probe.summary(one["probe"] for one in parts)
    assert summary is not None
    return summary, parts


def lines() -> list[str]:
    page = Page()
    probe_terminal.run(page, *account())
    return page.text().splitlines()


def line(of: str, told: list[str], times: int = 1) -> list[str]:
    """Fields of the so manieth line that begins with a load's name."""
    return [one.split() for one in told if one.split()[:1] == [of]][times - 1]


def test_each_load_has_its_speed_its_share_of_the_ceiling_and_whether_it_was_cold() -> None:
    """Speeds of the model: 74,028 tokens in 154.57 s are 478.9; 526.3 without load; 91.0 %."""
    told = lines()
    assert line("d0", told) == ["d0", "1", "24,676", "0", "yes", "526.3", "-", "100.0", "%", "46.89"]
    assert line("d3k3", told) == ["d3k3", "1", "24,676", "0", "yes", "478.9", "-", "91.0", "%", "153.92"]
    assert "ceiling: 526.3 tok/s, the speed without load (d0)" in told
    assert "when a prompt was computed: by the server's log" in told


def test_decoders_have_their_gaps_and_what_they_get_alone_and_no_load_has_no_line() -> None:
    """Of a decoder 41 tokens: a gap follows on each, the last over the end; the one before the first lies outside."""
    told = lines()
    found = line("d3k3", told, 2)
    plain = scenarios.probe(
        profile.load("m3-ultra"),
        Options(mixed_prefill_quantum=2048),
        tokens=PUBLISHED_TOKENS,
        decoders=3,
        prompts=3,
    )
    assert plain.gap_s is not None
    assert float(found[2]) == pytest.approx(plain.gap_s, rel=0.01)
    assert (found[1], found[5:9], found[9:]) == ("123", ["123", "0.80", "34.80", "2.3"], ["%", "100.0", "%"])
    assert sum(one.split()[:1] == ["d0"] for one in told) == 1


def test_estimates_are_labelled_and_say_what_was_expected() -> None:
    """526.3 x (1 - 0.0229) = 514.2; 478.9 / 514.2 = 0.93."""
    told = lines()
    assert "What it cost, and what time sharing alone would leave: ESTIMATES" in told
    assert line("d3k3", told, 3) == ["d3k3", "2.040", "514.2", "0.93", "100.0", "%"]


def test_prompts_that_came_together_say_when_each_ended() -> None:
    told = " ".join(lines())
    assert "d3k3: 3 cold prompts at once were computed after 153.1, 153.9, 154.6 s; first to" in told
    assert "last 1.49 s" in told


def test_every_repeat_has_its_line_in_the_order_of_time() -> None:
    told = lines()
    names = [one.split()[0] for one in told if "-r" in one.partition(" ")[0]]
    assert names == ["d3k3-r1", "d0-r1"]


def test_prose_fits_80_columns() -> None:
    assert max(len(one) for one in lines()) <= 80


def test_what_a_prompt_that_was_not_cold_found_is_not_hidden() -> None:
    summary, parts = account()
    summary["loads"][0] |= {"cold": False, "cached_tokens": 5000, "prefill_source": "client"}
    page = Page()
    probe_terminal.run(page, summary, [one | {"memory": memory()} for one in parts])
    told = page.text().splitlines()
    assert line("d0", told)[3:5] == ["5,000", "NO"]
    assert "network and queue are in it" in " ".join(told)
    assert told[-1] == "smallest free memory while it was measured: host 1.50 GiB, device 0 0.25 GiB"


def test_behind_a_context_that_a_cache_has_the_new_part_is_cold() -> None:
    summary, parts = account()
    summary["loads"][0] |= {"cached_tokens": 30_002, "expected_cached_tokens": 30_000}
    page = Page()
    probe_terminal.run(page, summary, parts)
    assert line("d0", page.text().splitlines())[3:6] == ["30,002", "new", "part"]


def memory() -> dict[str, Any]:
    device = {"index": 0, "name": "x", "free_min_bytes": 1 << 28, "total_bytes": 1 << 34}
    return {"host_free_min_bytes": 3 << 29, "devices": [device]}
