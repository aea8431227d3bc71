"""What does the SGLang reader make of requests, ranks, start-up of both kinds, and lines that are torn or of others?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.records import LogFacts, Timeline
from agentload.serverlogs.sglang import FORMAT
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
AT = "[2026-10-06 11:00:38] "
AT_NS = 1_791_284_438 * SECOND_NS
PREFILL = (
    "Prefill batch, #new-seq: 1, #new-token: 4061, #cached-token: 1000, token usage: 0.01, #running-req: 0, "
    "#queue-req: 51, #pending-token: 0, cuda graph: False, input throughput (token/s): 16.21"
)
DECODE = (
    "Decode batch, #running-req: 4, #token: 3121, token usage: 0.10, accept len: 2.74, accept rate: 0.58, "
    "cuda graph: True, gen throughput (token/s): 396.76, #queue-req: 0"
)
ARGUMENTS = "server_args=ServerArgs(model_path='/m', tp_size=2, api_key='sk-1', context_length=None, dtype='auto')"
DICTIONARY = (
    "server_args={'model_path': '/m', 'tp_size': 2, 'api_key': 'sk-1', 'nested': {'tp_size': 9}, 'page_size': 64}"
)
CAPACITY = (
    "max_total_num_tokens=1000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
    "context_len=40960, available_gpu_mem=10.51 GB"
)
READY = "The server is fired up and ready to roll!"
INFO = (
    "{'id': 'r1', 'finish_reason': {'type': 'stop', 'matched': 2}, 'prompt_tokens': 100, 'cached_tokens': 64, "
    "'completion_tokens': 50, 'e2e_latency': 6.0, 'request_received_ts': 1000.0, 'response_sent_to_client_ts': 1001.0, "
    "'request_finished_ts': 1006.0, 'decode_throughput': 10.0}"
)
FINISH = "Finish: obj=GenerateReqInput(rid='r1', stream=True), out={'meta_info': " + INFO + "}"
LOG = [
    AT + ARGUMENTS,
    "[2026-10-06 11:00:38 TP0] " + CAPACITY,
    AT + READY,
    "[2026-10-06 11:00:38 TP0] " + PREFILL,
    "[2026-10-06 11:00:38 TP0] " + DECODE,
    AT + FINISH,
]


def read(lines: list[str], stamps: list[int] | None = None) -> LogFacts:
    return read_by(FORMAT, lines, stamps)


def codes(facts: LogFacts) -> list[str]:
    return [one.code for one in facts.doubts]


# ---- start-up --------------------------------------------------------------------------------------------------------


def test_arguments_of_both_forms_are_settings_and_a_key_is_not() -> None:
    assert settings(read([AT + ARGUMENTS])) == {"model_path": "/m", "tp_size": 2, "dtype": "auto"}
    assert settings(read([AT + DICTIONARY])) == {"model_path": "/m", "tp_size": 2, "page_size": 64}


def test_what_the_memory_allows_comes_after_the_arguments_and_counts() -> None:
    facts = read(LOG)
    assert counted(facts) == (6, 0, 0)
    assert settings(facts) == {
        "model_path": "/m",
        "tp_size": 2,
        "dtype": "auto",
        "max_total_num_tokens": 1000,
        "chunked_prefill_size": 8192,
        "max_prefill_tokens": 16384,
        "max_running_requests": 48,
        "context_length": 40960,
    }
    assert [(one.first_line, one.ready and one.ready.line) for one in facts.boots] == [(1, 3)]


def test_two_starts_in_one_log_are_two_boots() -> None:
    facts = read([*LOG, *LOG])
    assert [(one.first_line, one.ready and one.ready.line) for one in facts.boots] == [(1, 3), (7, 9)]
    assert [one.boot for one in facts.requests] == [0, 1]


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_finish_line_tells_tokens_and_times_laid_back_from_its_own_time() -> None:
    # It came 6 s before its end; 50 tokens at 10 tokens/s are 5 s: the first was sent 1 s after it came.
    (one,) = read(LOG).requests
    assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (100, 64, 36, 50)
    assert (one.label, one.server_id, one.finish) == ("r1", "r1", "stop")
    seconds = [one.t_arrived, one.prefill_end, one.decode_start, one.decode_end, one.t_end]
    assert [None if at is None else (at - AT_NS) / SECOND_NS for at in seconds] == [-6, -5, -5, 0, 0]
    assert one.prefill_start is None  # the line does not say when it left the queue


def test_stamps_of_prefill_are_used_where_a_version_has_them() -> None:
    more = "'forward_entry_time': 1000.25, 'prefill_finished_time': 1000.75, 'prompt_tokens'"
    (one,) = read([AT + FINISH.replace("'prompt_tokens'", more)]).requests
    assert one.prefill_start == AT_NS - 5_750_000_000
    assert one.prefill_end == AT_NS - 5_250_000_000


def test_the_time_of_an_answer_that_does_not_stream_is_not_taken_for_its_first_token() -> None:
    (one,) = read([AT + FINISH.replace("1001.0", "1005.9")]).requests
    assert (one.prefill_end, one.decode_start) == (None, None)
    assert one.t_end == AT_NS


def test_times_that_contradict_each_other_are_not_used_and_that_is_said() -> None:
    facts = read([AT + FINISH.replace("'e2e_latency': 6.0", "'e2e_latency': 60.0")])
    (one,) = facts.requests
    assert (one.t_arrived, one.prefill_end, one.decoded_tokens) == (None, None, 50)
    assert "impossible-times" in codes(facts)


def test_more_cached_tokens_than_the_prompt_has_are_taken_as_all_of_it_and_doubted() -> None:
    facts = read([AT + FINISH.replace("'cached_tokens': 64", "'cached_tokens': 122884")])
    (one,) = facts.requests
    assert (one.cached_tokens, one.new_prefill_tokens) == (100, 0)
    assert "122884 of 100" in next(one for one in facts.doubts if one.code == "cached-beyond-prompt").message


def test_counts_that_the_line_has_not_stay_unknown() -> None:
    (one,) = read(
        [AT + FINISH.replace("'cached_tokens': 64, ", "").replace("'completion_tokens': 50", "'x': 1")]
    ).requests
    assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (100, None, None, None)


def test_a_prompt_that_quotes_a_finish_line_does_not_change_the_counts() -> None:
    quoted = FINISH.replace("'prompt_tokens': 100", "'prompt_tokens': 1").replace("'", '"')
    (one,) = read([AT + FINISH.replace("stream=True", f"text='{quoted}', stream=True")]).requests
    assert (one.label, one.prompt_tokens) == ("r1", 100)


def test_a_request_is_open_from_its_first_line_to_its_last() -> None:
    reader = FORMAT.reader()
    came = "Receive: obj=GenerateReqInput(rid='r2', stream=True)"
    reader.feed(f"{AT}{came}\n".encode())
    assert reader.open_requests() == 1
    times = "ReqTimeStats(rid=r3, input_len=1): queue_duration=1.5ms, forward_duration=5.2ms"
    reader.feed(f"{AT}{times}\n".encode())  # of this one no more need come
    assert reader.open_requests() == 1
    reader.feed(f"[2026-10-06 11:00:40] {FINISH.replace('r1', 'r2')}\n".encode())
    assert reader.open_requests() == 0
    requests = {one.label: one for one in reader.close().requests}
    assert requests["r2"].t_arrived == AT_NS


def test_statistics_of_times_tell_when_a_request_was_at_work() -> None:
    line = (
        "ReqTimeStats(rid=r1, input_len=100, cached_input_len=64, output_len=50, attempts=1, type=unified): "
        "queue_duration=1.50ms, forward_duration=5500.25ms, entry_time=1000.0"
    )
    (one,) = read([AT + line, AT + FINISH]).requests
    assert one.prefill_start == AT_NS - 5_500_250_000
    assert (one.new_prefill_tokens, one.decoded_tokens, one.finish) == (36, 50, "stop")


def test_with_receive_stamps_times_are_laid_back_from_when_the_line_was_received() -> None:
    facts = read(LOG, [1_790_000_000 * SECOND_NS + n for n in range(len(LOG))])
    assert facts.timeline is Timeline.UNIX
    assert [one.t_end for one in facts.requests] == [1_790_000_000 * SECOND_NS + 5]
    assert [one.prefill_end for one in facts.requests] == [1_789_999_995 * SECOND_NS + 5]


# ---- ranks and taints ------------------------------------------------------------------------------------------------


def test_ranks_of_one_engine_count_once_though_each_measures_its_own_throughput() -> None:
    ranks = [f"[2026-10-06 11:00:3{8 + n // 6} TP{n} EP{n}] " + PREFILL.replace("16.21", f"16.2{n}") for n in range(8)]
    facts = read(ranks)
    assert [dict(one.values)["new_tokens"] for one in facts.statistics] == [4061]
    assert (facts.repeated, counted(facts)) == (7, (8, 0, 0))
    assert "repeated-by-ranks" in codes(facts)


def test_data_parallel_ranks_have_requests_of_their_own() -> None:
    facts = read([f"[2026-10-06 11:00:38 DP{n} TP{n}] {PREFILL}" for n in range(3)])
    assert sum(dict(one.values)["new_tokens"] for one in facts.statistics) == 3 * 4061
    assert [one.source for one in facts.statistics] == ["DP0", "DP1", "DP2"]
    assert facts.repeated == 0


def test_one_rank_that_writes_two_equal_lines_has_done_it_twice() -> None:
    facts = read(["[2026-10-06 11:00:38 TP0] " + PREFILL] * 2)
    assert (len(facts.statistics), facts.repeated) == (2, 0)


def test_kernels_that_compile_while_it_serves_are_suspect_and_not_before() -> None:
    line = "[2026-10-06 11:00:38 TP0] Try DeepGEMM JIT Compiling for <GEMM> N=1, K=2"
    assert [proof.line for _, proof, _ in read([LOG[0], line, *LOG[1:], line]).suspects] == [8]


# ---- torn, foreign ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        PREFILL.replace("#cached-token: 1000, ", ""),
        PREFILL[: PREFILL.index(", token usage")],
        PREFILL.replace("#new-token: 4061", "#new-token: 4061, #new-token: 1"),
        PREFILL.replace("16.21", "16.2"),
        DECODE[: DECODE.index("396.76") + 4],
        DECODE.replace("#token: 3121", "#token: 31[2026-10-06 11:00:38 TP1] Decode batch"),
        FINISH[:-1],
        FINISH.replace("'id': 'r1'", "'id': 'r9'"),
        "Finish: obj=",
        DICTIONARY[:-1],
    ],
)
def test_what_begins_like_a_line_we_use_and_is_none_is_unknown(line: str) -> None:
    facts = read([*LOG, AT + line])
    assert counted(facts) == (6, 0, 1)
    assert (len(facts.statistics), len(facts.requests)) == (2, 1)


FOREIGN = st.sampled_from(
    [
        "LISTEN http://127.0.0.1:18181",
        PREFILL,
        "model says: " + AT + PREFILL,
        AT + "model says: " + PREFILL,
        "(APIServer pid=1) INFO 05-30 07:49:21 [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        "[2026-13-06 11:00:38 TP0] " + PREFILL,
        "\ufffd\x00garbage",
    ]
)


def sums(facts: LogFacts) -> tuple[float, ...]:
    batches = [dict(one.values) for one in facts.statistics if one.kind == "prefill"]
    return (
        sum(one["new_tokens"] for one in batches),
        sum(one["cached_tokens"] for one in batches),
        sum(one.new_prefill_tokens or 0 for one in facts.requests),
        sum(one.decoded_tokens or 0 for one in facts.requests),
        len(facts.statistics),
    )


BUSY = [*LOG, *(f"[2026-10-06 11:01:1{n} TP0] {line}" for n in range(4) for line in (PREFILL, DECODE))]


@given(put_into(BUSY, FOREIGN))
def test_foreign_lines_are_unknown_and_change_no_sum(edits: Edits) -> None:
    check_foreign(FORMAT, BUSY, edits, sums, AT)


@given(st.integers(0, len(BUSY) - 1), st.data())
def test_a_line_that_was_cut_off_is_unknown_or_says_the_same(index: int, data: st.DataObject) -> None:
    check_cut_off(FORMAT, BUSY, index, data, sums)


def test_the_format_is_detected_and_takes_no_line_of_another_format() -> None:
    others = [
        b'[2026-05-20 08:02:44] INFO:     10.42.0.190:54466 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        b"[2026-05-20 08:02:44] a line of any program",
        b"(EngineCore pid=7) INFO 05-30 07:48:45 [x.py:1] Using max model len 5",
    ]
    check_detected(FORMAT, LOG, 6, others)


def test_an_end_of_a_request_with_a_list_as_a_name_is_unknown() -> None:
    facts = read([AT + "Finish: obj=GenerateReqInput(rid='r1'), out={[1]: 2}", AT + FINISH])
    assert counted(facts) == (1, 0, 1)
    assert [(one.label, one.prompt_tokens) for one in facts.requests] == [("r1", 100)]
