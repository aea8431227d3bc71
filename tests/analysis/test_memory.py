"""Are the smallest free memory and the longest filled context those that a reader would pick by hand?"""

from dataclasses import fields, replace
from typing import Any

import pytest

from agentload.analysis import memory, tables
from agentload.core.evidence_grade import Repetition
from agentload.core.records import Applied, Match, Request, Segment, Verdict

GIB = 1 << 30
PART = Segment(run="r", segment="s1", condition="x", begin_ns=0, end_ns=100)


def device(index: int, free_gib: float, name: str = "RTX 3060") -> dict[str, Any]:
    return {"index": index, "name": name, "free_bytes": round(free_gib * GIB), "total_bytes": 12 * GIB}


def sample(t: int, host_gib: float, rss_gib: float | None, *devices: dict[str, Any]) -> dict[str, Any]:
    rss = None if rss_gib is None else round(rss_gib * GIB)
    return {"t": t, "host_free_bytes": round(host_gib * GIB), "host_total_bytes": 64 * GIB, "rss_bytes": rss} | {
        "devices": list(devices)
    }


FALLING = (
    sample(10, 40, 4, device(1, 3), device(0, 2)),
    sample(20, 25, 9, device(0, 0.5)),  # device 1 did not tell
    sample(30, 30, 6, device(0, 1), device(1, 0.25)),
)


def test_each_minimum_is_its_own_with_its_own_time() -> None:
    assert memory.segment(FALLING) == {
        "host_free_min_bytes": 25 * GIB,
        "at": 20,
        "host_total_bytes": 64 * GIB,
        "devices": [
            {"index": 0, "name": "RTX 3060", "free_min_bytes": GIB // 2, "at": 20, "total_bytes": 12 * GIB},
            {"index": 1, "name": "RTX 3060", "free_min_bytes": GIB // 4, "at": 30, "total_bytes": 12 * GIB},
        ],
        "server_rss_max_bytes": 9 * GIB,
    }


def test_the_first_of_equal_minima_counts() -> None:
    found = memory.segment([sample(10, 5, 1), sample(20, 5, 1)])
    assert found is not None
    assert found["at"] == 10


def test_a_server_whose_process_is_not_known_has_no_resident_memory() -> None:
    found = memory.segment([sample(10, 40, None), sample(20, 39, None)])
    assert found is not None
    assert (found["host_free_min_bytes"], found["server_rss_max_bytes"], found["devices"]) == (39 * GIB, None, [])


def test_samples_of_a_run_from_before_devices_have_the_hosts_minimum() -> None:
    old = {"where": "begin", "cpu_s": 1.0, "processes": 1, "host_busy_s": 1.0}
    found = memory.segment([{"t": 1, "rss_bytes": 3, "host_free_bytes": 7, **old}])
    assert found == {
        "host_free_min_bytes": 7,
        "at": 1,
        "host_total_bytes": None,
        "devices": [],
        "server_rss_max_bytes": 3,
    }


def test_without_samples_there_is_no_memory() -> None:
    assert memory.segment(()) is None


def test_the_table_has_the_device_with_the_least_free_memory() -> None:
    table = tables.samples_table([sample(10, 40, 4, device(1, 3), device(3, 2)), sample(20, 39, 4)])
    assert table.select("t", "device_free_bytes", "device_index").rows() == [(10, 2 * GIB, 3), (20, None, None)]
    assert table["host_total_bytes"].to_list() == [64 * GIB, 64 * GIB]


def request(name: str, prompt: int | None, decoded: int | None, segment: str = "s1") -> Request:
    values: dict[str, Any] = dict.fromkeys(one.name for one in fields(Request))
    known = {"run": "r", "segment": segment, "agent": "a0", "request": name, "match": Match.EXACT}
    return Request(**{**values, **known, "prompt_tokens": prompt, "decoded_tokens": decoded})


def applied(name: str, value: str | int | None) -> Applied:
    return Applied(name, None, value, "server.log:1", Verdict.DEFAULTED)


def test_the_filled_context_is_the_longest_prompt_with_its_answer() -> None:
    rows = [
        request("a0-r0", 900, 200),
        request("a0-r1", 1000, 50),
        request("a0-r2", 1050, None),
        request("a0-r3", None, 5000),
        request("a0-r4", 9000, 1, segment="s2"),
    ]
    settings = [applied("n_ctx", 16_384), applied("n_ctx_slot", "8192")]
    assert memory.context(rows, PART, settings) == {
        "filled_tokens": 1100,
        "request": "a0-r0",
        "broken_off_prompt_tokens": None,
        "configured_tokens": 8192,
        "setting": "n_ctx_slot",
    }


@pytest.mark.parametrize(
    ("settings", "name", "tokens"),
    [
        ([], None, None),
        ([("ctx", 100_000)], "ctx", 100_000),
        ([("max_model_len", "131072")], "max_model_len", 131_072),
        ([("n_ctx", 0)], None, None),
        ([("context_length", None), ("n_ctx", 4096)], "n_ctx", 4096),
        ([("ctx", "a lot")], None, None),
    ],
)
def test_the_configured_context_is_what_the_server_calls_it(
    settings: list[tuple[str, Any]], name: str | None, tokens: int | None
) -> None:
    found = memory.context([request("a0-r0", 10, 1)], PART, [applied(*one) for one in settings])
    assert found is not None
    assert (found["setting"], found["configured_tokens"]) == (name, tokens)


def test_a_prompt_that_was_broken_off_fills_what_was_cached_and_computed() -> None:
    """Of 59,855 tokens 56,410 were cached and 896 of 3,445 computed: 57,306 stood there."""
    broken = replace(request("a1-r21", 59_855, None), cached_tokens=56_410, new_prefill_tokens=896, error="broken off")
    found = memory.context([request("a0-r0", 57_000, 100), broken], PART, [])
    assert found is not None
    assert (found["filled_tokens"], found["request"]) == (57_306, "a1-r21")
    assert found["broken_off_prompt_tokens"] == 59_855


@pytest.mark.parametrize(
    ("counts", "failed", "filled"),
    [
        ((1000, 600, 400, 550), True, 1550),  # it decoded: all of its prompt was there
        ((1000, 600, 400, 0), True, 1000),
        ((1000, 600, 100, None), False, 700),  # of a log alone, which shows no answer
        ((1000, None, None, None), True, None),  # sent, and nobody knows how far it came
        ((1000, None, None, None), False, 1000),
        ((None, None, None, 9), False, None),
    ],
)
def test_what_a_request_filled_is_what_really_stood_there(
    counts: tuple[int | None, int | None, int | None, int | None], *, failed: bool, filled: int | None
) -> None:
    assert memory.filled_tokens(*counts, failed=failed) == filled


def test_where_no_prompt_is_known_nothing_was_filled() -> None:
    assert memory.context([request("a0-r0", None, 7)], PART, []) is None


def test_a_variants_headroom_is_the_smallest_over_its_runs() -> None:
    other = (sample(50, 26, 3, device(0, 0.75), device(1, 0.125)),)
    filled = {"filled_tokens": 900, "request": "a1-r3", "configured_tokens": 8192, "setting": "n_ctx_slot"}
    found = memory.of_runs(
        [
            ("01-A", {"memory": memory.segment(FALLING), "context": filled}),
            ("04-A", {"memory": memory.segment(other), "context": {**filled, "filled_tokens": 800}}),
        ],
        Repetition(2, order_reversed=True),
        simulated=False,
    )
    assert found is not None
    assert (found["host_free_min_bytes"], found["run"]) == (25 * GIB, "01-A")
    assert [(one["index"], one["free_min_bytes"], one["run"]) for one in found["devices"]] == [
        (0, GIB // 2, "01-A"),
        (1, GIB // 8, "04-A"),
    ]
    assert found["server_rss_max_bytes"] == 9 * GIB
    assert found["context"] == {**filled, "run": "01-A"}
    assert found["grade"]["grade"] == "confirmed"


def test_a_variant_of_which_nothing_was_seen_has_no_headroom() -> None:
    parts: list[tuple[str, dict[str, Any]]] = [("01-A", {"memory": None, "context": None}), ("02-A", {})]
    assert memory.of_runs(parts, Repetition(2, order_reversed=True), simulated=True) is None
