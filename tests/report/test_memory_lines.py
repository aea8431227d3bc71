"""Is what was left said in words that a reader can hold against a data sheet?"""

from typing import Any

from agentload.report import memory_lines

GIB = 1 << 30
MEMORY: dict[str, Any] = {
    "host_free_min_bytes": 25 * GIB,
    "at": 20,
    "host_total_bytes": 64 * GIB,
    "devices": [{"index": 1, "name": "RTX 3060", "free_min_bytes": GIB // 4, "at": 30, "total_bytes": 12 * GIB}],
    "server_rss_max_bytes": 9 * GIB,
}
FREE = "host 25.0 of 64.0 GiB; device 1 (RTX 3060) 0.25 of 12.0 GiB"
CONTEXT: dict[str, Any] = {
    "filled_tokens": 41_203,
    "request": "a0-r7",
    "configured_tokens": 131_072,
    "setting": "n_ctx_slot",
}


def test_a_segment_says_what_was_free_and_what_was_filled() -> None:
    assert memory_lines.of_segment({"memory": MEMORY, "context": CONTEXT}) == [
        f"smallest free memory, of this machine: {FREE}; the server held at most 9.00 GiB of the host's",
        "longest context filled: 41,203 tokens (a0-r7) of n_ctx_slot 131,072, a capacity: no more of it was tested",
    ]


def test_a_prompt_that_was_broken_off_is_said_beside_what_was_there_of_it() -> None:
    context = {**CONTEXT, "broken_off_prompt_tokens": 59_855, "setting": None, "configured_tokens": None}
    assert memory_lines.of_segment({"memory": None, "context": context}) == [
        "longest context filled: 41,203 tokens (a0-r7, cached + computed of a prompt of 59,855 that was broken off)"
    ]


def test_a_context_whose_setting_is_not_known_is_said_alone() -> None:
    context = {**CONTEXT, "setting": None, "configured_tokens": None}
    assert memory_lines.of_segment({"memory": None, "context": context}) == [
        "longest context filled: 41,203 tokens (a0-r7)"
    ]


def test_an_account_of_an_earlier_version_says_nothing() -> None:
    assert memory_lines.of_segment({}) == []
    assert memory_lines.of_variants([{"name": "A"}, {"name": "B", "memory": None}]) == []


def test_each_variant_has_its_line_below_a_heading() -> None:
    side = {**MEMORY, "context": CONTEXT, "server_rss_max_bytes": None}
    simulated: dict[str, Any] = {
        "host_free_min_bytes": None,
        "host_total_bytes": None,
        "devices": [],
        "server_rss_max_bytes": None,
    }
    found = memory_lines.of_variants(
        [{"name": "A", "memory": side}, {"name": "B", "memory": {**simulated, "context": CONTEXT}}]
    )
    filled = "context 41,203 tokens filled of n_ctx_slot 131,072, a capacity: no more of it was tested"
    assert found == [
        "Headroom over the valid runs: smallest free memory, longest context that was really filled:",
        f"A: {FREE}; {filled}",
        f"B: {filled}",
    ]


def test_little_memory_is_told_finer_than_much() -> None:
    assert [memory_lines.gib(size) for size in (0, GIB // 100, 10 * GIB, 512 * GIB)] == [
        "0.00",
        "0.01",
        "10.0",
        "512.0",
    ]
