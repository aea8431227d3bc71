"""Does the report say what the account says, with a dash where nobody knows, and every doubt with its advice?"""

from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import account as accounts
from agentload.report import terminal
from tests.analysis.test_account import AGENT, answered, make, mark
from tests.analysis.test_evidence import events


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    run = make(tmp_path, agents=({**AGENT, "growth_tokens": 12_345, "started": 57},))
    events(run, ("agent_started", 1_234_000_000, {"agent": "a0", "task": "t", "planned": 0}), answered())
    mark(run, ("begin", 0), ("end", 2_500_000_000))
    return accounts.account(run.path)


def test_counts_have_separators_and_times_are_seconds(found: dict[str, Any]) -> None:
    text = terminal.render(found)
    assert "segment s1, condition c: 2.5 s between its markers" in text
    agents = next(line.split() for line in text.splitlines() if " answered " in line)
    # ended, requests, calls, repeated, growth, facts, files, late
    assert agents[2:] == ["answered", "1", "0", "0", "12,345", "0/1", "0/1", "1.234"]
    work = next(line.split() for line in text.splitlines() if line.startswith("all "))
    assert work == ["all", "1", "1,000", "900", "100", "50", "0"]


def test_what_nobody_knows_is_a_dash_and_not_zero(found: dict[str, Any]) -> None:
    whole = found["segments"][0]["whole"]
    unknown = dict.fromkeys(("prompt_tokens", "cached_tokens", "prefill_tok_s", "prefill_share", "overlap"))
    found["segments"][0]["whole"] = {**whole, **unknown, "wall_ns": None}
    text = terminal.render(found)
    work = next(line.split() for line in text.splitlines() if line.startswith("all "))
    assert work[1:5] == ["1", "-", "-", "100"]
    assert "overlap: - of the prefill time" in text
    assert "condition c: its end marker is missing" in text


def test_a_simulated_run_says_so_first(found: dict[str, Any]) -> None:
    assert terminal.render({**found, "simulated": True}).startswith("SIMULATED ")


def test_every_doubt_is_said_with_its_advice(found: dict[str, Any]) -> None:
    doubts = [{"code": f"d{index}", "message": f"message {index}", "advice": "do it."} for index in range(3)]
    text = terminal.render({**found, "doubts": doubts})
    assert [line for line in text.splitlines() if line.startswith("doubt")] == [
        f"doubt (d{index}): message {index}. do it." for index in range(3)
    ]


def test_nothing_in_the_text_is_taken_for_markup_and_the_width_is_kept(found: dict[str, Any]) -> None:
    text = terminal.render({**found, "why": "[bold]HTTP 500[/bold] :warning: " + "word " * 60})
    assert "[bold]HTTP 500[/bold] :warning:" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 110


def test_requests_of_nobody_of_ours_have_a_row_of_their_own(found: dict[str, Any]) -> None:
    segment = found["segments"][0]
    segment["no_agent"] = {**segment["whole"], "requests": 7}
    text = terminal.render(found)
    assert next(line.split()[:3] for line in text.splitlines() if line.startswith("not ours")) == ["not", "ours", "7"]


def test_tokens_by_log_and_by_usage_stand_beside_each_other_with_the_remainder(found: dict[str, Any]) -> None:
    found["lines"] = {"format": "llamacpp", "total": 20, "understood": 9, "ignored": 8, "markers": 2, "unknown": 1}
    found["usage_check"]["prompt_tokens"] |= {"log": 12_000, "usage": 11_990, "remainder": 10}
    text = " ".join(terminal.render(found).split())
    assert "log (llamacpp): 20 lines = 9 understood + 8 ignored on purpose + 2 markers + 1 unknown" in text
    assert "prompt 12,000 / 11,990 (remainder 10)" in text
