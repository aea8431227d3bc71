"""What does the vLLM reader make of ranks, restarts, old versions, colours, and lines that are torn or of others?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core import markers
from agentload.core.records import LogFacts, Timeline
from agentload.serverlogs.servedlog import MOST_OPEN
from agentload.serverlogs.statistics import Ranks
from agentload.serverlogs.vllm import FORMAT
from tests.serverlogs.served import (
    Edits,
    check_cut_off,
    check_detected,
    check_foreign,
    counted,
    put_into,
    read_by,
    settings,
)

SECOND_NS = 1_000_000_000
HEAD = "(EngineCore pid=7) INFO 05-30 07:48:45 [x.py:1] "
API = "(APIServer pid=1) INFO 05-30 07:48:46 [y.py:2] "
READY = "INFO:     Application startup complete."
STATS = (
    "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, "
    "Waiting: 4 reqs, GPU KV cache usage: 5.0%, Prefix cache hit rate: 6.0%"
)
DRAFTED = (
    "SpecDecoding metrics: Mean acceptance length: 3.00, Accepted throughput: 0.02 tokens/s, Drafted throughput: 0.03 "
    "tokens/s, Accepted: 8 tokens, Drafted: 12 tokens, Per-position acceptance rate: 1.000, 0.500, 0.500, Avg Draft "
    "acceptance rate: 66.7%"
)
STEP = (
    "Engine 000: Iteration(5): 1 context requests, 512 context tokens, 2 generation requests, 4 generation tokens, "
    "iteration elapsed time: 80.62 ms, GPU KV cache usage: 0.0%"
)
CONFIG = (
    "Initializing a V1 LLM engine (v0.33.0) with config: model='a, b', speculative_config=None, dtype=torch.float16, "
    "max_seq_len=8192, tensor_parallel_size=2, quantization=None, seed=0, compilation_config={'a': [1, (2, 3)]}"
)
LOG = [
    API + "vLLM API server version 0.33.0",
    HEAD + CONFIG,
    READY,
    API + "Received request r-1: params: SamplingParams(n=1), lora_request: None.",
    API + "Added request r-1-0123abcd.",
    API + STEP,
    API + STATS,
    API + DRAFTED,
]


def read(lines: list[str], stamps: list[int] | None = None) -> LogFacts:
    return read_by(FORMAT, lines, stamps)


# ---- start-up --------------------------------------------------------------------------------------------------------


def test_a_configuration_is_split_where_no_bracket_and_no_quote_encloses() -> None:
    facts = read(LOG)
    assert counted(facts) == (8, 0, 0)
    assert settings(facts) == {
        "version": "0.33.0",
        "model": "a, b",
        "dtype": "float16",
        "max_model_len": 8192,
        "tensor_parallel_size": 2,
        "seed": 0,
    }


def test_a_key_among_the_arguments_is_not_kept() -> None:
    facts = read([API + "non-default args: {'api_key': ['sk-1'], 'hf_token': 'x', 'max_num_seqs': 8, 'max_tokens': 9}"])
    assert {one.name: one.value for one in facts.asked} == {"max_num_seqs": 8, "max_tokens": 9}


def test_the_draft_models_length_is_not_taken_for_the_models() -> None:
    facts = read(
        [API + "vLLM API server version 0.33.0", *(API + f"Using max model len {n}" for n in (200000, 262144))]
    )
    assert settings(facts) == {"version": "0.33.0", "max_model_len": 200000, "max_model_len#2": 262144}


def test_an_older_version_writes_the_cache_size_in_two_lines_and_no_process() -> None:
    facts = read(
        [
            "INFO 05-30 07:48:45 [x.py:1] GPU KV cache size: 2,493,464 tokens",
            "INFO 05-30 07:48:45 x.py:1] Maximum concurrency for 1,048,576 tokens per request: 2.38x",
        ]
    )
    assert settings(facts) == {"kv_cache_size_tokens": 2_493_464, "kv_cache_max_concurrency": 2.38}


def test_settings_that_the_server_changed_by_itself_are_doubted() -> None:
    facts = read([API + "vLLM API server version 0.33.0", API + "Raising max_num_batched_tokens from 512 to 2048."])
    (doubt,) = [one for one in facts.doubts if one.code == "setting-overridden"]
    assert "from 512 to 2048" in doubt.message


def test_two_starts_in_one_log_are_two_boots_with_requests_and_settings_of_their_own() -> None:
    facts = read([*LOG, *LOG])
    assert [(one.first_line, one.ready and one.ready.line) for one in facts.boots] == [(1, 3), (9, 11)]
    assert [(one.boot, one.label) for one in facts.requests] == [(0, "r-1"), (1, "r-1")]
    assert [one.boot for one in facts.settings] == [0] * 6 + [1] * 6
    assert [one.steps for one in facts.steps] == [1, 1]


# ---- while it serves -------------------------------------------------------------------------------------------------


def test_what_several_ranks_say_of_one_kernel_is_one_suspect_and_that_is_said() -> None:
    kernel = (
        "Triton kernel JIT compilation during inference: k. This causes a latency spike; consider extending warmup."
    )
    ranks = [f"(Worker_TP{n} pid={n}) WARNING 05-30 07:48:4{5 + n // 3} [j.py:1] {kernel}" for n in range(4)]
    facts = read([*LOG, *ranks])
    assert [proof.line for _, proof, _ in facts.suspects] == [9]
    assert facts.repeated == 3
    assert [one.code for one in facts.doubts] == ["repeated-by-ranks"]
    again = read([*LOG, ranks[0], ranks[0]])  # one rank alone, twice: two kernels of that name were compiled
    assert [proof.line for _, proof, _ in again.suspects] == [9, 10]


def test_engines_that_work_side_by_side_are_no_ranks() -> None:
    kernel = "TileLang JIT compilation during inference: k. This causes a latency spike; consider extending warmup."
    facts = read([*LOG, *(f"(EngineCore_DP{n} pid={n}) WARNING 05-30 07:48:45 [j.py:1] {kernel}" for n in (1, 2))])
    assert (len(facts.suspects), facts.repeated) == (2, 0)


def test_kernels_that_compile_before_the_server_is_ready_are_no_taint() -> None:
    line = (
        "(EngineCore pid=5) 2026-05-30 07:48:45  [TileLang:tilelang.jit.kernel:INFO] (kernel.py:133): TileLang "
        "begins to compile kernel `k`"
    )
    assert [proof.line for _, proof, _ in read([line, *LOG, line]).suspects] == [10]


def test_an_error_of_many_lines_is_one_suspect() -> None:
    error = "(EngineCore pid=5) ERROR 05-30 07:48:45 [core.py:9] "
    facts = read(
        [*LOG, error + "EngineCore encountered an issue.", error + "Traceback (most recent call last):", error]
    )
    assert [(proof.line, why) for _, proof, why in facts.suspects] == [(9, "EngineCore encountered an issue.")]
    assert counted(facts) == (11, 0, 0)


def test_optional_fields_in_the_middle_of_statistics_are_read_and_unknown_ones_passed_over() -> None:
    line = (
        STATS.replace("GPU KV", "Deferred: 7 reqs, Preemptions: 1, Frogs: 3 green, GPU KV")
        + ", MM cache hit rate: 8.5%"
    )
    (one,) = read([API + line]).statistics
    values = dict(one.values)
    assert (values["deferred"], values["preemptions"], values["kv_usage"], values["mm_hit_rate"]) == (7, 1, 5.0, 8.5)


@pytest.mark.parametrize(
    "line",
    [
        STATS[:-1],
        STATS[:80],
        STATS.replace("Waiting: 4 reqs, ", ""),
        STATS.replace("Running: 3 reqs", "Running: 3 reqs, Running: 3 reqs"),
        STATS.replace("2.0 tokens/s", "2.0 tokens/s" + API + READY),
        DRAFTED[:-1],
        DRAFTED.replace("Accepted: 8", "Accepted: 80"),
        STEP.replace("512 context tokens, ", ""),
        "Engine 000: something else",
        "Added request",
        "non-default args: {'a': ",
        CONFIG[:-1],
    ],
)
def test_what_begins_like_a_line_we_use_and_is_none_is_unknown(line: str) -> None:
    facts = read([*LOG, API + line])
    assert counted(facts) == (8, 0, 1)
    assert (len(facts.statistics), [one.steps for one in facts.steps]) == (2, [1])


def test_a_line_of_the_server_that_is_not_known_is_unknown_while_it_serves() -> None:
    assert counted(read([*LOG, API + "A sentence of next year's version"])) == (8, 0, 1)
    assert counted(read([LOG[0], API + "A sentence of next year's version", *LOG[1:]])) == (8, 1, 0)


def test_what_a_model_writes_into_its_answer_is_nobodys_line() -> None:
    said = (
        "Generated response r-1 (streaming delta): output: 'Engine 000: Iteration(1), finish_reason: stop', "
        "finish_reason: None"
    )
    facts = read([*LOG, API + said])
    assert [one.finish for one in facts.requests] == [None]
    assert [one.steps for one in facts.steps] == [1]


def test_a_request_that_failed_is_told_from_one_that_was_aborted() -> None:
    came = [API + f"Received request {n}: params: SamplingParams(n=1), lora_request: None." for n in "abc"]
    facts = read([*came, API + "Request a failed (engine dead).", API + "Aborted request(s) b-0123abcd,c-0123abcd."])
    assert [(one.label, one.finish) for one in facts.requests] == [
        ("a", "error"),
        ("b", "cancelled"),
        ("c", "cancelled"),
    ]


def test_more_requests_than_are_kept_open_come_back_in_order() -> None:
    names = [f"r{n}" for n in range(MOST_OPEN + 7)]
    facts = read([API + f"Received request {n}: params: SamplingParams(n=1), lora_request: None." for n in names])
    assert [one.label for one in facts.requests] == names


def test_an_answer_that_the_server_could_not_give_is_suspect() -> None:
    facts = read([*LOG, 'INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error'])
    assert [proof.line for _, proof, _ in facts.suspects] == [9]


# ---- times -----------------------------------------------------------------------------------------------------------


def test_two_api_servers_out_of_order_at_new_year_are_a_second_apart() -> None:
    came = "INFO {} [y.py:2] Received request {}: params: SamplingParams(n=1), lora_request: None."
    old, new = "(APIServer pid=1) " + came, "(APIServer pid=2) " + came
    facts = read(
        [old.format("12-31 23:59:59", "a"), new.format("01-01 00:00:00", "b"), old.format("12-31 23:59:59", "c")]
    )
    year = 365 * 86_400 * SECOND_NS
    assert {one.label: one.t_arrived for one in facts.requests} == {
        "a": year - SECOND_NS,
        "b": year,
        "c": year - SECOND_NS,
    }


def test_with_receive_stamps_times_are_those_at_which_lines_were_received() -> None:
    facts = read(LOG, [10 * SECOND_NS + n for n in range(len(LOG))])
    assert (facts.timeline, facts.clock_error_ns) == (Timeline.UNIX, 1_000_000)
    assert [one.t_arrived for one in facts.requests] == [10 * SECOND_NS + 3]
    assert [one.at - 10 * SECOND_NS for one in facts.statistics] == [6, 7]


def test_new_year_goes_on_and_a_step_back_of_a_second_stays() -> None:
    stamps = ("12-31 23:59:59", "01-01 00:00:01", "01-01 00:00:00")
    facts = read([f"INFO {stamp} [x.py:1] {STATS}" for stamp in stamps])
    first, second, third = (one.at for one in facts.statistics)
    assert (second - first, third - second) == (2 * SECOND_NS, -SECOND_NS)


def test_a_stamp_that_is_no_time_makes_a_line_unknown() -> None:
    assert counted(read([f"INFO {stamp} [x.py:1] {STATS}" for stamp in ("13-01 00:00:00", "02-30 00:00:00")])) == (
        0,
        0,
        2,
    )


def test_markers_know_the_times_of_the_lines_beside_them() -> None:
    marker = markers.render("begin", "s1", "r1", "a", 1_790_000_000_000_000_000).decode()
    (found,) = read([LOG[0], marker, *LOG[1:]]).markers
    assert found.before_ns is not None
    assert found.after_ns == found.before_ns - SECOND_NS  # the engine's line stands a second before the API server's


# ---- torn, foreign, coloured -----------------------------------------------------------------------------------------


FOREIGN = st.sampled_from(
    [
        "LISTEN http://127.0.0.1:18181",
        "model says: " + HEAD + STEP,
        STEP,
        STATS,
        HEAD + "model says: " + STATS,
        "[2026-10-06 11:00:38 TP0] Prefill batch, #new-seq: 1, #new-token: 4061, #cached-token: 1000",
        "INFO 05-30 [x.py:1] " + STEP,
        "\ufffd\x00garbage",
    ]
)


def sums(facts: LogFacts) -> tuple[float, ...]:
    drafted = [dict(one.values) for one in facts.statistics if one.kind == "speculation"]
    return (
        sum(one.prompt_tokens for one in facts.steps),
        sum(one.decode_steps for one in facts.steps),
        sum(one["accepted_tokens"] for one in drafted),
        sum(one["drafted_tokens"] for one in drafted),
        len(facts.requests),
    )


BUSY = [*LOG, *(line for n in range(3) for line in (API + STEP, API + STATS, API + DRAFTED.replace("8 ", f"{n} ")))]


@given(put_into(BUSY, FOREIGN))
def test_foreign_lines_are_unknown_and_change_no_sum(edits: Edits) -> None:
    check_foreign(FORMAT, BUSY, edits, sums, HEAD)


@given(st.integers(0, len(BUSY) - 1), st.data())
def test_a_line_that_was_cut_off_is_unknown_or_says_the_same(index: int, data: st.DataObject) -> None:
    check_cut_off(FORMAT, BUSY, index, data, sums)


def test_what_is_left_of_a_line_torn_behind_its_head_is_unknown_and_the_banners_empty_line_is_not() -> None:
    assert counted(read([API, *LOG])) == (8, 1, 0)
    assert counted(read([*LOG, API])) == (8, 0, 1)
    assert counted(read([*LOG, API.rstrip()])) == (8, 0, 1)


def test_colours_carriage_returns_and_a_missing_last_newline_change_nothing() -> None:
    plain = "".join(f"{one}\n" for one in LOG).encode()
    coloured = plain.replace(b"(EngineCore", b"\x1b[0;36m(EngineCore").replace(b"INFO ", b"\x1b[32mINFO\x1b[0m ")
    expected = read(LOG)
    for data in (plain.replace(b"\n", b"\r\n"), coloured, plain[:-1]):
        reader = FORMAT.reader()
        reader.feed(data)
        facts = reader.close()
        assert counted(facts) == counted(expected)
        assert sums(facts) == sums(expected)
        assert settings(facts) == settings(expected)


def test_the_format_is_detected_and_takes_no_line_of_another_format() -> None:
    others = [
        b"[2026-10-06 11:00:38 TP0 EP0] Prefill batch, #new-seq: 1, #new-token: 4061",
        b"0914 12:00:00 ds4-server: chat ctx=0..90:90 prompt start",
        b"0.01.000.000 I slot launch_slot_: id  1 | task 7 | processing task, is_child = 0",
        b"INFO:     Application startup complete.",
        b"INFO 05-30 is a nice day",
    ]
    check_detected(FORMAT, LOG, 7, others)  # uvicorn's is everybody's


def test_a_rank_never_repeats_itself_and_the_second_of_two_equal_lines_is_found_again() -> None:
    ranks = Ranks()
    said = [ranks.repeats("a", 0, rank) for rank in (b"0", b"0", b"1", b"1", b"1")]
    assert said == [False, False, True, True, False]
    assert ranks.repeats("a", 5 * SECOND_NS, b"2") is False
    assert ranks.repeated == 2


def test_what_was_asked_for_with_a_list_as_a_name_is_unknown() -> None:
    asked = API + "non-default args: "
    facts = read([asked + "{[1]: 2}", asked + "{'max_num_seqs': 8}"])
    assert counted(facts) == (1, 0, 1)
    assert [(one.name, one.value, one.proof.line) for one in facts.asked] == [("max_num_seqs", 8, 2)]


def test_half_an_emoji_in_what_was_asked_for_is_its_escape() -> None:
    facts = read([API + r"non-default args: {'model': '\ud83d'}"])
    assert [(one.name, one.value) for one in facts.asked] == [("model", r"\ud83d")]
