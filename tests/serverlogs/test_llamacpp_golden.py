"""Logs of the real server, beside what the client was told at the time.

The logs are real ones, shortened (loading the model, prompt cache chatter) and with the model's path replaced. The
`.json` beside each holds the client's usage, timings and stamps, and the receive stamp of every line that was kept.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentload.core.records import LogFacts, LoggedRequest, Timeline
from agentload.serverlogs.llamacpp import FORMAT

HERE = Path(__file__).parent / "llamacpp"


def load(name: str, *, stamped: bool = True) -> tuple[LogFacts, list[dict[str, Any]]]:
    beside = json.loads((HERE / f"{name}.json").read_text())
    reader = FORMAT.reader(beside["receive_stamps_ns"] if stamped else None)
    reader.feed((HERE / f"{name}.log").read_bytes())
    return reader.close(), beside["client"]


def of(facts: LogFacts, sent: dict[str, Any]) -> LoggedRequest:
    """The one request whose log lines have the answer's timings."""
    told = sent["timings"]
    (found,) = [
        one
        for one in facts.requests
        if one.prefill_ms is not None
        and one.decode_ms is not None
        and abs(one.prefill_ms - told["prompt_ms"]) < 0.0051
        and abs(one.decode_ms - told["predicted_ms"]) < 0.0051
    ]
    return found


@pytest.mark.parametrize("name", ["real_default", "real_verbose"])
def test_every_answer_stands_in_the_log_with_the_tokens_the_client_was_told(name: str) -> None:
    facts, client = load(name)
    answered = [sent for sent in client if "timings" in sent]
    assert len(answered) >= 6
    for sent in answered:
        one, usage = of(facts, sent), sent["usage"]
        assert one.cached_tokens == sent["timings"]["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
        assert one.new_prefill_tokens == sent["timings"]["prompt_n"]
        assert one.prompt_tokens == usage["prompt_tokens"]
        if sent["name"] != "n2":  # two choices: the usage has the tokens of both
            assert one.decoded_tokens == sent["timings"]["predicted_n"] == usage["completion_tokens"]


@pytest.mark.parametrize("name", ["real_default", "real_verbose", "three_agents"])
def test_the_tokens_of_a_decodes_time_make_the_rate_that_the_server_itself_prints(name: str) -> None:
    # task 0 |  eval time = 4212.60 ms / 150 tokens (...,  35.37 tokens per second): 149 in 4.2126 s are 35.37
    text = (HERE / f"{name}.log").read_text()
    printed = re.findall(r"task (\d+) \| +eval time = .* ([\d.]+) tokens per second", text)
    reader = FORMAT.reader(None)
    reader.feed(text.encode())
    ended = {one.label.rpartition(" ")[2]: one for one in reader.close().requests if one.decode_ms is not None}
    assert len(printed) == len(ended) >= 6
    for task, rate in printed:
        one = ended[task]
        assert one.decoded_tokens is not None
        assert one.decode_untimed_tokens is not None
        assert one.decode_ms is not None
        # Both numbers are rounded to two decimals: over 14 s that makes 0.07 tokens.
        assert one.decoded_tokens - one.decode_untimed_tokens == round(float(rate) * one.decode_ms / 1000)


@pytest.mark.parametrize("name", ["real_default", "real_verbose"])
def test_every_line_of_the_real_server_is_known(name: str) -> None:
    facts, _ = load(name)
    assert facts.lines.examples == ()
    assert facts.lines.total == len((HERE / f"{name}.log").read_bytes().splitlines())
    assert len(facts.boots) == 1


@pytest.mark.parametrize("name", ["real_default", "real_verbose"])
def test_times_on_our_clock_lie_within_what_the_client_saw(name: str) -> None:
    facts, client = load(name)
    assert facts.timeline is Timeline.UNIX
    assert facts.clock_error_ns is not None
    slack = facts.clock_error_ns
    for sent in client:
        if "timings" not in sent or sent["name"] == "n2":
            continue
        one = of(facts, sent)
        assert one.t_slot is not None
        assert one.prefill_start is not None
        assert one.prefill_end is not None
        assert one.decode_end is not None
        assert sent["t_sent"] - slack <= one.t_slot <= one.prefill_start + slack
        # The first token leaves the server when prefill ends, and the client has it 20 ms later at most.
        assert one.prefill_end - slack <= sent["t_first"] <= one.prefill_end + 20_000_000
        assert one.decode_end - slack <= sent["t_done"] + 20_000_000


def test_clients_that_left_and_a_prompt_too_long_end_as_such() -> None:
    facts, _ = load("real_verbose", stamped=False)
    ends = {one.label: (one.finish, one.prompt_tokens, one.t_end) for one in facts.requests if one.finish is not None}
    # Lines 215-238 of the log: tasks 53 and 60 were cancelled, 63 was refused.
    assert ends == {
        "slot 0 task 53": ("cancelled", 34, 10_511_435_000),
        "slot 1 task 60": ("cancelled", 400, 10_512_551_000),
        "slot 0 task 63": ("error", 3520, 10_512_587_000),
    }


def test_a_generation_that_filled_the_context_is_marked_truncated() -> None:
    facts, _ = load("real_verbose", stamped=False)
    (one,) = [one for one in facts.requests if one.truncated]
    assert (one.label, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (
        "slot 0 task 67",
        26,
        180,
        562,
    )
    # Stamp of its `eval time` line 0.27.575.231 less 14431.43 ms, less 2620.15 ms.
    assert (one.decode_start, one.prefill_start) == (13_143_801_000, 10_523_651_000)


def test_one_who_left_the_queue_had_no_slot_and_each_of_two_choices_has_one() -> None:
    facts, _ = load("real_default", stamped=False)
    slots = [one for one in facts.requests if one.slot is not None]
    assert len(slots) == 7
    assert [one.label for one in slots if one.finish is not None] == []
    assert {one.label for one in slots} >= {"slot 0 task 220", "slot 1 task 221"}  # two choices of one prompt
    assert "parallel-choices" in {doubt.code for doubt in facts.doubts}  # its 8 tokens stand in the log twice


def test_settings_are_stated_with_their_lines() -> None:
    facts, _ = load("real_verbose", stamped=False)
    stated = {one.name: one.value for one in facts.settings}
    wanted = {
        "n_slots": 2,
        "n_ctx_slot": 768,
        "kv_unified": False,
        "n_ctx": 1536,
        "n_ctx_seq": 768,
        "n_seq_max": 2,
        "n_batch": 512,
        "n_ubatch": 512,
        "flash_attn": "auto",
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "cache_ram_mib": 8192,
        "n_threads": 1,
        "model": "/models/small.gguf",
    }
    assert {name: stated[name] for name in wanted} == wanted
    lines = (HERE / "real_verbose.log").read_bytes().splitlines(keepends=True)
    for one in facts.settings:
        assert one.proof.offset == len(b"".join(lines[: one.proof.line - 1]))
    (ready,) = [boot.ready for boot in facts.boots]
    assert ready is not None
    assert b"listening on" in lines[ready.line - 1]


@pytest.mark.parametrize("name", ["real_default", "real_verbose"])
def test_its_lines_look_like_this_format_and_others_do_not(name: str) -> None:
    lines = (HERE / f"{name}.log").read_bytes().splitlines()
    assert FORMAT.looks_like(lines) > 0.9 * len([line for line in lines if line[:1].isdigit()])
    assert (
        FORMAT.looks_like([b"INFO 11-29 13:12:04 [loggers.py:123] Engine 000: Avg prompt throughput", b"", b"x"]) == 0
    )
