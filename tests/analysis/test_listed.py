"""What did each request of a log cost: are the costliest chosen, with the numbers of the log's ground truth?"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import logfile
from agentload.analysis.listed import MOST, listed
from agentload.core.attribution import Group
from agentload.core.packed import pack
from agentload.core.records import LoggedRequest, Proof

LOGS = Path(__file__).resolve().parents[1] / "serverlogs"
TRUTH = LOGS / "ds4" / "truth_batched6_q128.log"
LLAMA = LOGS / "llamacpp" / "three_agents.log"
S = 1_000_000_000
BARE = LoggedRequest(0, "one", None, None, None, None, None, None, None, None, None, None, None, None, None, None)


def one(label: str, start_s: int, prefill_s: int, decode_s: int, **more: Any) -> LoggedRequest:
    """A request whose decode follows its prefill."""
    times = {
        "prefill_start": start_s * S,
        "prefill_end": (start_s + prefill_s) * S,
        "decode_start": (start_s + prefill_s) * S,
        "decode_end": (start_s + prefill_s + decode_s) * S,
    }
    return replace(BARE, label=label, **{**times, **more})


def names(found: dict[str, Any]) -> list[str]:
    return [row["request"] for row in found["rows"]]


def test_the_twenty_that_took_longest_are_those_of_the_ground_truth_with_its_numbers() -> None:
    truth = json.loads(TRUTH.with_suffix(".json").read_bytes())
    longest = sorted(truth, key=lambda each: each["t2"] - each["t0"], reverse=True)[:20]
    found = logfile.read_file(TRUTH).found["listed"]
    assert (found["by"], found["left_out"], len(found["rows"])) == ("time", 30 - 20, MOST)
    shown = sorted((row["cached_tokens"], row["new_prefill_tokens"], row["decoded_tokens"]) for row in found["rows"])
    assert shown == sorted((each["A"], each["B"] - each["A"], each["G"]) for each in longest)
    by_counts = {(each["A"], each["B"], each["G"]): each for each in longest}
    for row in found["rows"]:
        each = by_counts[row["cached_tokens"], row["prompt_tokens"], row["decoded_tokens"]]
        # The log writes ms; its stamps are of whole seconds, so that a start is known to 1 s.
        assert row["prefill_ns"] / S == pytest.approx(each["t1"] - each["t0"], abs=0.001)
        assert row["decode_ns"] / S == pytest.approx(each["t2"] - each["t1"], abs=0.001)
    starts = [row["start"] for row in found["rows"]]
    assert starts == sorted(starts)


def test_the_lines_are_the_first_and_the_last_that_prove_something_of_it() -> None:
    found = logfile.read_file(TRUTH).found["listed"]["rows"]
    # By eye: line 5 `ctx=0..4750:4750 TOOLS prompt start`, line 83 `ctx=0..4750:4750 gen=52 ... finish=tool_calls`.
    row = next(row for row in found if row["prompt_tokens"] == 4750)
    assert (row["first_line"], row["last_line"], row["finish"]) == (5, 83, "tool_calls")
    assert (row["prefill_ns"], row["decode_ns"], row["decoded_tokens"]) == (52_076_000_000, 43_235_000_000, 52)


def test_cost_is_prefill_and_decode_added_up_and_the_order_is_that_of_the_starts() -> None:
    # 20 of 3 s each, one of 2 + 9 s that starts last but one, one of 1 + 1 s: the cheapest, which is left out.
    requests = [one(f"r{index}", index, 1, 2) for index in range(20)]
    requests += [one("cheap", 30, 1, 1), one("dear", 25, 2, 9)]
    for kept in (tuple(requests), pack(requests, few=0)):
        found = listed(kept, ())
        assert found["left_out"] == 2
        assert "log boot 0 cheap" not in names(found)
        assert names(found)[-1] == "log boot 0 dear"
        assert (found["rows"][-1]["prefill_ns"], found["rows"][-1]["decode_ns"]) == (2 * S, 9 * S)
        assert names(found)[0] == "log boot 0 r0"  # of equal ones the first of the log stay


def test_durations_of_a_log_without_times_count_and_tokens_where_there_are_none() -> None:
    without = [replace(BARE, label="a", prefill_ms=1.5, decode_ms=2.0), replace(BARE, label="b", prefill_ms=9.0)]
    found = listed(without, ())
    assert (found["by"], found["rows"][0]["prefill_ns"], found["rows"][0]["start"]) == ("time", 1_500_000, None)
    counts = [replace(BARE, label=f"t{index}", decoded_tokens=index) for index in range(21)]
    by_tokens = listed(counts, ())
    assert (by_tokens["by"], by_tokens["left_out"]) == ("tokens", 1)
    assert "log boot 0 t0" not in names(by_tokens)
    assert listed([BARE], ())["by"] == "order"


def test_a_phase_that_would_end_before_it_starts_took_no_time() -> None:
    backwards = replace(BARE, prefill_start=5 * S, prefill_end=4 * S)
    (row,) = listed([backwards], ())["rows"]
    assert row["prefill_ns"] is None


def test_a_start_is_the_prefills_else_that_of_its_slot_else_its_arrival() -> None:
    requests = [
        one("a", 7, 1, 1, t_slot=6 * S, t_arrived=5 * S),
        replace(BARE, label="b", t_slot=8 * S, t_arrived=5 * S),
        replace(BARE, label="c", t_arrived=9 * S),
        BARE,
    ]
    assert [row["start"] for row in listed(requests, ())["rows"]] == [7 * S, 8 * S, 9 * S, None]


def test_a_request_names_its_group_and_those_among_which_it_is_looked_for_are_the_only_ones() -> None:
    requests = [one("a", 0, 1, 1, group="x"), one("b", 1, 1, 1, group="x"), one("c", 2, 5, 5)]
    group = Group("g1", ("log boot 0 a", "log boot 0 b"), 0, 2)
    found = listed(requests, [group], {(0, "a"), (0, "b")})
    assert [(row["request"], row["group"]) for row in found["rows"]] == [
        ("log boot 0 a", "g1"),
        ("log boot 0 b", "g1"),
    ]
    assert found["left_out"] == 0


def test_proofs_of_all_fields_count() -> None:
    proofs = (("decode_end", Proof(40, 900)), ("t_slot", Proof(12, 100)), ("t_end", Proof(41, 950)))
    (row,) = listed([replace(BARE, proofs=proofs)], ())["rows"]
    assert (row["first_line"], row["last_line"]) == (12, 41)
    (bare,) = listed([BARE], ())["rows"]
    assert (bare["first_line"], bare["last_line"]) == (None, None)
