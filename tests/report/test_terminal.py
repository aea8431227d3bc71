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
    did, became = (
        line.split() for line in text.splitlines() if line.startswith("a0 ") and ("/1" in line or "ans" in line)
    )
    assert did == ["a0", "t", "answered", "1", "0", "0"]  # requests, tool calls, repeated calls
    assert became == ["a0", "12,345", "0/1", "0/1", "1.234"]  # growth, facts, files, started late
    work = next(line.split() for line in text.splitlines() if line.startswith("all "))
    assert work == ["all", "1", "1,000", "900", "100", "50", "0"]


def test_what_nobody_knows_is_a_dash_and_not_zero(found: dict[str, Any]) -> None:
    whole = found["segments"][0]["whole"]
    unknown = dict.fromkeys(("prompt_tokens", "cached_tokens", "prefill_tok_s", "prefill_share", "overlap"))
    found["segments"][0]["whole"] = {**whole, **unknown, "wall_ns": None}
    text = terminal.render(found)
    work = next(line.split() for line in text.splitlines() if line.startswith("all "))
    assert work[1:5] == ["1", "-", "-", "100"]
    assert "condition c: its end marker is missing" in text


def prose(text: str) -> str:
    """The text as it was before its lines were broken."""
    return " ".join(text.split())


def test_of_those_that_only_the_log_has_it_is_said_how_many_are_perhaps_ours(found: dict[str, Any]) -> None:
    found["requests"] |= {"server_only": 3, "perhaps_ours": 2}
    assert "client only 1, server only 3, of which 2 perhaps ours)" in prose(terminal.render(found))
    del found["requests"]["perhaps_ours"]  # an account of before
    assert "client only 1, server only 3)" in prose(terminal.render(found))


def test_one_agent_alone_has_no_overlap_to_show(found: dict[str, Any]) -> None:
    """Cells of 15 s showed 100 % beside an exact 0 %."""
    found["segments"][0]["whole"] |= {"overlap": 0.0, "sampled_overlap": 1.0}
    assert "overlap" not in terminal.render(found)
    found["segments"][0]["agents"]["a1"] = found["segments"][0]["whole"]
    text = prose(terminal.render(found))
    assert "overlap: 0.0 % of the prefill time another request was decoding" in text
    assert "(looked at every 15 s it would seem 100.0 %)" in text


def test_an_overlap_that_was_not_sampled_is_told_without_samples(found: dict[str, Any]) -> None:
    found["segments"][0]["whole"] |= {"overlap": 0.12, "sampled_overlap": None}
    text = prose(terminal.render(found))
    assert "overlap: 12.0 % of the prefill time another request was decoding" in text
    assert "every 15 s" not in text


@pytest.mark.parametrize(
    ("log_format", "server"), [("llamacpp", "llama.cpp"), ("ds4", "ds4-server"), ("vllm", None), (None, None)]
)
def test_what_a_servers_decode_intervals_hold_is_said_beside_the_overlap(
    found: dict[str, Any], log_format: str | None, server: str | None
) -> None:
    found["lines"] = {"format": log_format, "total": 0, "understood": 0, "ignored": 0, "markers": 0, "unknown": 0}
    said = f"decode intervals of {server} include waiting while another request prefills"
    assert "decode intervals" not in terminal.render(found)  # no overlap is shown
    found["segments"][0]["whole"] |= {"overlap": 0.12}
    text = prose(terminal.render(found))
    assert (said in text) is (server is not None)


def test_a_speed_that_leaves_requests_out_is_marked_and_explained(found: dict[str, Any]) -> None:
    found["segments"][0]["whole"] |= {
        "requests": 3,
        "decode_left_out": 2,
        "decode_speed_tokens": 49,
        "decode_speed_ns": 500_000_000,
        "decode_union_ns": 9_000_000_000,
    }
    text = terminal.render(found)
    assert next(line.split() for line in text.splitlines() if "98.0*" in line)[:2] == ["all", "9.0"]
    assert "* of the requests whose tokens and times are both known: all leaves out 2 of 3, 49 tokens in 0.5 s" in (
        prose(text)
    )
    found["segments"][0]["whole"]["decode_tok_s"] = None
    assert "both known" not in prose(terminal.render(found))


def test_a_prompt_that_is_not_cached_and_new_is_marked_and_explained(found: dict[str, Any]) -> None:
    assert "*" not in terminal.render(found)  # 1,000 = 900 + 100
    found["segments"][0]["whole"]["prompt_tokens"] = 1_700
    text = terminal.render(found)
    assert next(line.split() for line in text.splitlines() if line.startswith("all "))[2] == "1,700*"
    assert "* not cached + new prefill: of some requests not all three are known" in prose(text)


def test_a_prompt_of_which_more_was_cached_than_it_has_is_not_said_to_be_unknown(found: dict[str, Any]) -> None:
    whole = found["segments"][0]["whole"]
    whole |= {"prompt_tokens": 1_000, "cached_tokens": 2_000, "new_prefill_tokens": 0}
    said = "* not cached + new prefill: by the log, more was cached of some requests than their prompts have"
    text = terminal.render(found)
    assert next(line.split() for line in text.splitlines() if line.startswith("all "))[2:5] == ["1,000*", "2,000", "0"]
    assert said in prose(text)
    assert "not all three are known" not in prose(text)
    whole["unknown"] = {**whole["unknown"], "prompt_tokens": 1}
    assert said not in prose(terminal.render(found))
    assert "of some requests not all three are known" in prose(terminal.render(found))


def test_the_time_to_first_token_is_shown_of_all_and_of_each_agent(found: dict[str, Any]) -> None:
    found["segments"][0]["first_token"] = {
        "whole": {"requests": 4, "median_ns": 1_250_000_000, "worst_ns": 8_000_000_000, "worst_request": "a1-r0"},
        "agents": {"a0": None},
    }
    lines = terminal.render(found).splitlines()
    at = lines.index("Time to first token, by the client's clock: network, queue and prefill")
    assert lines[at + 2].split() == ["all", "4", "1.25", "8.00", "a1-r0"]
    assert not lines[at + 3].startswith("a0")
    del found["segments"][0]["first_token"]  # an account of an earlier version has none
    assert "first token" not in terminal.render(found)


def test_the_smallest_free_memory_and_the_filled_context_are_shown_where_they_are_known(found: dict[str, Any]) -> None:
    gib = 1 << 30
    card = {"index": 2, "name": "RTX 3060", "free_min_bytes": gib // 2, "at": 1, "total_bytes": 12 * gib}
    found["segments"][0]["memory"] = {
        "host_free_min_bytes": 3 * gib,
        "at": 1,
        "host_total_bytes": 64 * gib,
        "devices": [card],
        "server_rss_max_bytes": None,
    }
    found["segments"][0]["context"] = {
        "filled_tokens": 7_000,
        "request": "a1-r4",
        "configured_tokens": 8_192,
        "setting": "n_ctx_slot",
    }
    text = prose(terminal.render(found))
    assert "free memory, of this machine: host 3.00 of 64.0 GiB; device 2 (RTX 3060) 0.50 of 12.0 GiB" in text
    assert "longest context filled: 7,000 tokens (a1-r4) of n_ctx_slot 8,192, a capacity" in text
    for name in ("memory", "context"):  # an account of an earlier version has neither
        del found["segments"][0][name]
    assert "free memory" not in terminal.render(found)


def test_tool_calls_that_were_not_run_are_said_when_there_are_some(found: dict[str, Any]) -> None:
    assert "not run" not in terminal.render(found)
    found["work"]["calls_not_run"] = 3
    assert "tool calls not run: 3 (further calls of one answer, or calls instead of the final answer)" in (
        prose(terminal.render(found))
    )


def test_a_long_value_of_a_setting_loses_its_middle(found: dict[str, Any]) -> None:
    path = "/home/someone/models/quantized/2026/a-model-of-some-size-Q4_K_M.gguf"
    short = terminal.shortened(path)
    assert short == path[:13] + "..." + path[-24:]
    assert (terminal.shortened("x" * 40), terminal.shortened(4096)) == ("x" * 40, "4096")
    found["settings"] = [
        {"name": "model", "requested": path, "applied": path, "source": "argv", "verdict": "applied"},
        {"name": "n_ctx", "requested": 8192, "applied": None, "source": "", "verdict": "unproven"},
    ]
    text = prose(terminal.render(found))
    assert f"setting model: requested {short}, in force {short}: applied by argv" in text
    assert "setting n_ctx: requested 8192, in force -: unproven" in text


def test_counts_of_the_log_that_no_answer_has_are_not_compared(found: dict[str, Any]) -> None:
    found["lines"] = {"format": "ds4", "total": 1, "understood": 0, "ignored": 0, "markers": 1, "unknown": 0}
    assert "tokens by log / by usage: no request has both" in prose(terminal.render(found))


def test_ranges_of_context_without_requests_are_left_out(found: dict[str, Any]) -> None:
    text = terminal.render(found)
    assert "0-30k" in text
    assert "100k+" not in text
    found["segments"][0]["unknown_context"] = 2
    assert "requests of unknown context: 2" in terminal.render(found)


@pytest.mark.parametrize(
    ("log_format", "title"),
    [
        ("llamacpp", "Work, in tokens counted by the server log"),
        (None, "Work, in tokens counted by the answers: there is no log"),
        ("unknown", "Work, in tokens counted by the answers: there is no log"),
    ],
)
def test_a_title_says_who_counted(found: dict[str, Any], log_format: str | None, title: str) -> None:
    found["lines"] = {"format": log_format, "total": 2, "understood": 0, "ignored": 0, "markers": 1, "unknown": 1}
    assert title in terminal.render(found).splitlines()


def test_one_marker_is_one_marker(found: dict[str, Any]) -> None:
    found["lines"] = {"format": "ds4", "total": 1, "understood": 0, "ignored": 0, "markers": 1, "unknown": 0}
    assert "+ 1 marker + 0 unknown" in prose(terminal.render(found))


@pytest.mark.parametrize(
    ("outside", "said"),
    [
        (0, None),
        (1, "1 further request in the log lies outside our markers"),
        (1234, "1,234 further requests in the log lie outside our markers"),
    ],
)
def test_requests_outside_the_markers_have_a_line_of_their_own(
    found: dict[str, Any], outside: int, said: str | None
) -> None:
    found["requests"]["outside_segments"] = outside
    lines = terminal.render(found).splitlines()
    assert said in lines if said else not any("outside" in line for line in lines)


def test_the_number_to_compare_is_named(found: dict[str, Any]) -> None:
    assert 'to compare runs: prefill tok/s in row "all"' in prose(terminal.render(found))
    found["segments"] = []
    assert "to compare runs" not in terminal.render(found)


def test_numbers_wider_than_the_page_are_whole(found: dict[str, Any]) -> None:
    found["segments"][0]["whole"] |= {"prompt_tokens": 10**30, "decoded_tokens": 10**30}
    assert terminal.render(found).count(f"{10**30:,}") == 2


def test_a_request_cut_off_at_the_end_of_an_agents_time_has_its_place_in_the_sum(found: dict[str, Any]) -> None:
    turns = {"tool_calls": 2, "tool_turns": 2}
    found["work"] |= {**turns, "requests": 5, "answers": 1, "failed_requests": 0, "cut_requests": 2}
    said = "requests 5 = tool calls 2 + answers 1 + failed 0 + cut off at the end of an agent's time 2"
    assert said in prose(terminal.render(found))


def test_what_a_terminal_would_obey_is_not_passed_on(found: dict[str, Any]) -> None:
    server = {**found["server"], "model": "m\x1b]0;owned\x07\u202e\nx"}
    text = terminal.render({**found, "server": server, "why": "a\rb\tc\nd"})
    assert "model m\ufffd]0;owned\ufffd\ufffd x" in text
    assert ": a b c d" in text


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
    assert max(map(len, text.splitlines())) <= 80


def test_requests_of_nobody_of_ours_have_a_row_of_their_own(found: dict[str, Any]) -> None:
    segment = found["segments"][0]
    segment["no_agent"] = {**segment["whole"], "requests": 7}
    text = terminal.render(found)
    assert next(line.split()[:3] for line in text.splitlines() if line.startswith("not ours")) == ["not", "ours", "7"]


def test_tokens_by_log_and_by_usage_stand_beside_each_other_with_the_remainder(found: dict[str, Any]) -> None:
    found["lines"] = {"format": "llamacpp", "total": 20, "understood": 9, "ignored": 8, "markers": 2, "unknown": 1}
    found["usage_check"]["prompt_tokens"] |= {"requests": 5, "log": 12_000, "usage": 11_990, "remainder": 10}
    text = " ".join(terminal.render(found).split())
    assert "log (llamacpp): 20 lines = 9 understood + 8 ignored on purpose + 2 markers + 1 unknown" in text
    assert "prompt 12,000 / 11,990 (remainder 10)" in text


def test_without_counts_counts_no_request_of_which_only_times_are_unknown(found: dict[str, Any]) -> None:
    whole = found["segments"][0]["whole"]
    unknown = {**whole["unknown"], "prefill_times": 3, "decode_times": 4, "decoded_tokens": 2}
    found["segments"][0]["whole"] = {**whole, "unknown": unknown}
    work = next(line.split() for line in terminal.render(found).splitlines() if line.startswith("all "))
    assert work[-1] == "2"


def test_a_prompt_of_which_one_part_is_not_known_is_marked(found: dict[str, Any]) -> None:
    whole = found["segments"][0]["whole"]
    for parts, shown in (
        ({"cached_tokens": 0, "new_prefill_tokens": None}, "1,000*"),
        ({"cached_tokens": None, "new_prefill_tokens": 100}, "1,000*"),
        ({"cached_tokens": None, "new_prefill_tokens": None}, "1,000"),
    ):
        found["segments"][0]["whole"] = {**whole, **parts}
        text = terminal.render(found)
        work = next(line.split() for line in text.splitlines() if line.startswith("all "))
        assert work[2] == shown
        assert ("* not cached + new prefill" in text) == shown.endswith("*")
