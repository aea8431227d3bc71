"""What did a server count between two looks at its /metrics?

The texts are of real servers (vLLM 0.32 with and without speculation, a public one with speculation, llama.cpp), with
buckets and other metrics left out. Expected values were read off them, or worked out by hand.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import InputError
from agentload.servers.metrics import Snapshot, delta, from_start, parse
from agentload.servers.metrics_names import KNOWN, UNITS

DATA = Path(__file__).parent / "metrics"
NAMES = ("vllm_ngram", "vllm_queue", "vllm_dspark", "llamacpp")


def look(name: str, at_ns: int = 1) -> Snapshot:
    found = parse((DATA / f"{name}.txt").read_text(), at_ns)
    assert found is not None
    return found


def of_text(text: str, at_ns: int = 1) -> Snapshot:
    found = parse(text, at_ns)
    assert found is not None
    return found


# ---- what is there ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "computed", "cached", "whole"),
    [("vllm_ngram", 1408, 672, 2080), ("vllm_queue", 3476, 0, 3476), ("llamacpp", 3636, 8805, 12441)],
)
def test_computed_and_cached_tokens_are_those_of_all_prompts(name: str, computed: int, cached: int, whole: int) -> None:
    found = from_start(look(name))
    assert (found.value("prompt_tokens_computed"), found.value("prompt_tokens_cached")) == (computed, cached)
    assert found.prompt_tokens == computed + cached == whole
    assert found.new_prefill_tokens == computed
    assert found.doubts() == ()


def test_counts_and_times_of_a_server_are_told_in_their_units() -> None:
    found = look("vllm_queue")
    assert found.software == "vllm"
    assert found.value("generation_tokens") == 825
    assert (found.value("queue_seconds"), found.value("queue_requests")) == (16.97803883799861, 8)
    assert (found.value("prefill_seconds"), found.value("prefill_requests")) == (1.2666619680012445, 8)
    assert (found.value("decode_seconds"), found.value("decode_requests")) == (24.29467073899923, 8)
    assert (found.value("first_token_seconds"), found.value("first_token_requests")) == (19.4916729927063, 9)
    assert (found.value("requests"), found.value("aborted_requests")) == (8, 0)
    assert found.began_s == 1.79596253948e9


def test_tokens_of_an_aborted_request_are_what_finished_ones_leave() -> None:
    # vLLM does not count the request as aborted: its tokens are in the totals, and in no request's.
    assert from_start(look("vllm_queue")).unfinished_tokens == (443, 19)
    assert from_start(look("vllm_ngram")).unfinished_tokens == (0, 0)
    assert from_start(look("llamacpp")).unfinished_tokens == (None, None)


def test_both_lengths_of_speculation_are_told_and_differ() -> None:
    found = from_start(look("vllm_ngram"))
    assert found.effective_length == (64 - 3) / 22
    assert found.nominal_length == 1 + 45 / 19
    assert (round(found.effective_length or 0, 2), round(found.nominal_length or 0, 2)) == (2.77, 3.37)
    assert found.acceptance_at == (1.0, 13 / 19, 13 / 19)


def test_acceptance_by_position_is_of_all_drafts() -> None:
    found = from_start(look("vllm_dspark"))
    assert list(found.acceptance_at or ()) == [84 / 105, 63 / 105, 1 / 105, 1 / 105, 0, 0]
    assert found.nominal_length == 1 + 149 / 105
    assert found.effective_length is None  # it tells neither steps nor generated tokens


def test_without_speculation_a_step_emits_one_token_and_there_is_no_nominal_length() -> None:
    found = from_start(look("vllm_queue"))
    assert found.effective_length == (825 - 9) / 816 == 1
    assert (found.nominal_length, found.acceptance_at, found.value("drafts")) == (None, None, None)
    assert from_start(look("llamacpp")).nominal_length is None  # 0 drafts


@pytest.mark.parametrize("name", NAMES)
def test_every_quantity_has_a_unit_and_what_is_not_exported_is_absent_and_not_zero(name: str) -> None:
    found = look(name)
    assert set(found.values) <= set(UNITS)
    assert found.value("live_computed_tokens") is None
    assert (found.value("prompt_tokens") is None) == (name in ("vllm_dspark", "llamacpp"))


def test_all_known_quantities_have_units() -> None:
    assert {source.quantity for software in KNOWN for source in software.sources} == set(UNITS)


def test_shares_are_in_percent_and_engines_are_added_up() -> None:
    text = (
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75\n'
        'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 3\n'
        'vllm:prompt_tokens_total{engine="0"} 10\nvllm:prompt_tokens_total{engine="1"} 20\n'
    )
    found = of_text(text)
    assert (found.value("kv_usage"), found.value("running"), found.value("prompt_tokens")) == (50, 5, 30)
    assert from_start(found).values == {"prompt_tokens": 30}  # looks are no counts


SGLANG = (
    'sglang:prompt_tokens_total{{model_name="m"}} {prompt}\nsglang:generation_tokens_total{{model_name="m"}} 90\n'
    'sglang:cached_tokens_total{{cache_source="device"}} 60\nsglang:cached_tokens_total{{cache_source="host"}} 4\n'
    'sglang:realtime_tokens_total{{mode="prefill_compute",tp_rank="0"}} 40\n'
    'sglang:realtime_tokens_total{{mode="prefill_compute",tp_rank="1"}} 40\n'
    'sglang:realtime_tokens_total{{mode="prefill_cache",tp_rank="0"}} 64\n'
    'sglang:num_queue_reqs{{tp_rank="0"}} 3\nsglang:spec_verify_calls_total 30\n'
    "sglang:queue_time_seconds_sum 1.5\nsglang:queue_time_seconds_count 3\n"
)


def test_sglangs_ranks_count_once_and_places_of_its_cache_are_added_up() -> None:
    found = from_start(of_text(SGLANG.format(prompt=100)))
    assert (found.prompt_tokens, found.value("prompt_tokens_cached"), found.new_prefill_tokens) == (100, 64, 36)
    assert (found.value("live_computed_tokens"), found.value("live_cached_tokens")) == (40, 64)
    assert found.value("queue_seconds") == 1.5
    assert found.effective_length == 3
    assert from_start(of_text(SGLANG.format(prompt=50))).new_prefill_tokens is None  # more cached than there is


def test_the_counters_of_a_ds4_fork_are_known() -> None:
    text = (
        'ds4_prefill_tokens_total{kind="computed"} 36\nds4_prefill_tokens_total{kind="cached"} 64\n'
        "ds4_decode_tokens_total 9\nds4_requests_inflight 4\n"
        'ds4_phase_active{phase="prefill"} 1\nds4_phase_active{phase="decode"} 2\n'
        'ds4_phase_waiting{phase="prefill"} 3\nds4_phase_waiting{phase="decode"} 1\n'
    )
    found = of_text(text)
    assert (found.software, found.value("running"), found.value("waiting")) == ("ds4", 4, 4)
    assert (found.value("prefilling"), found.value("decoding")) == (1, 2)
    assert (from_start(found).prompt_tokens, from_start(found).new_prefill_tokens) == (100, 36)


# ---- what is not -----------------------------------------------------------------------------------------------------


def test_metrics_of_another_program_are_none() -> None:
    assert parse("node_load1 0.5\n# a remark\n", 1) is None
    assert parse("", 1) is None


@pytest.mark.parametrize("text", ["vllm:prompt_tokens_total ten\n", "<html>\n", 'vllm:x{a="b 1\n', "vllm:x\n"])
def test_what_is_no_such_text_is_an_error_that_says_what_was_expected(text: str) -> None:
    with pytest.raises(InputError, match="/metrics: expected Prometheus' text format"):
        parse(text, 1)


def test_a_value_that_is_no_number_is_not_taken_for_one() -> None:
    assert of_text("vllm:prompt_tokens_total NaN\nvllm:generation_tokens_total 3\n").values == {"generation_tokens": 3}


# ---- differences -----------------------------------------------------------------------------------------------------


def later(before: Snapshot, **more: float) -> Snapshot:
    return replace(before, at_ns=before.at_ns + 5, values={**before.values, **more})


def test_a_difference_is_what_was_counted_in_between() -> None:
    before = look("vllm_ngram")
    found = delta(before, later(before, prompt_tokens=2180, prompt_tokens_computed=1438, prompt_tokens_cached=742))
    assert (found.begin_ns, found.end_ns, found.restarted) == (1, 6, False)
    assert (found.prompt_tokens, found.new_prefill_tokens, found.value("prompt_tokens_cached")) == (100, 30, 70)
    assert (found.value("generation_tokens"), found.nominal_length, found.effective_length) == (0, None, None)
    assert found.value("running") is None


@pytest.mark.parametrize("name", ["prompt_tokens", "queue_seconds", "drafts"])
def test_a_counter_that_fell_means_a_restart_and_nothing_is_known(name: str) -> None:
    before = look("vllm_ngram")
    found = delta(before, later(before, **{name: 0.0}))
    assert found.restarted
    assert found.values == {}
    assert (found.prompt_tokens, found.acceptance_at, found.effective_length) == (None, None, None)
    assert [one.code for one in found.doubts()] == ["metrics-restarted"]


def test_a_process_that_began_later_was_restarted_though_its_counters_rose() -> None:
    before = look("vllm_ngram")
    assert before.began_s is not None
    after = replace(later(before, prompt_tokens=9999), began_s=before.began_s + 60)
    assert delta(before, after).restarted


def test_a_counter_that_is_gone_means_a_restart() -> None:
    before = look("vllm_ngram")
    after = replace(before, values={name: value for name, value in before.values.items() if name != "drafts"})
    assert delta(before, after).restarted
    assert delta(before, replace(before, accepted_at=())).restarted


def test_a_counter_that_was_made_in_between_began_at_nothing() -> None:
    found = delta(of_text("sglang:num_running_reqs 0\n"), of_text(SGLANG.format(prompt=100), 2))
    assert (found.restarted, found.prompt_tokens) == (False, 100)


def test_sources_that_do_not_add_up_and_preemptions_are_doubted() -> None:
    before = look("vllm_ngram")
    found = delta(before, later(before, prompt_tokens=2180, prompt_tokens_computed=1438, preemptions=2))
    assert [one.code for one in found.doubts()] == ["metrics-do-not-add-up", "preemptions"]


def test_two_looks_at_different_servers_or_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="expected two looks at one server"):
        delta(look("llamacpp"), look("vllm_ngram"))
    with pytest.raises(ValueError, match="in order of time"):
        delta(look("llamacpp", 2), look("llamacpp", 1))


COUNTS = st.integers(0, 10**9)


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=3, max_size=3))
def test_differences_add_up_over_time(steps: list[tuple[int, int, int]]) -> None:
    text = (
        'vllm:prompt_tokens_by_source_total{{source="local_compute"}} {}\n'
        'vllm:prompt_tokens_by_source_total{{source="local_cache_hit"}} {}\nvllm:generation_tokens_total {}\n'
    )
    totals = [[0, 0, 0]]
    for step in steps:
        totals.append([before + more for before, more in zip(totals[-1], step, strict=True)])
    looks = [of_text(text.format(*each), at) for at, each in enumerate(totals)]
    parts = [delta(one, two) for one, two in itertools.pairwise(looks)]
    whole = delta(looks[0], looks[-1])
    for name in ("prompt_tokens_computed", "prompt_tokens_cached", "generation_tokens"):
        assert sum(part.value(name) or 0 for part in parts) == whole.value(name)
    assert from_start(looks[-1]).prompt_tokens == whole.prompt_tokens
