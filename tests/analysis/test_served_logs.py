"""What does an account say of a run, and of a log, whose server is vLLM or SGLang?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import account as accounts
from agentload.analysis import logfile
from agentload.artifacts import rundir
from agentload.core import markers
from agentload.core.records import Completion, Usage, Verdict
from agentload.errors import ArtifactError
from agentload.report import logfile_terminal, terminal
from agentload.serverlogs import formats
from agentload.servers.settings import compare
from tests.analysis.test_account import AGENT, make, mark
from tests.analysis.test_evidence import WHOLE, done, events

LOGS = Path(__file__).parent.parent / "serverlogs"
NGRAM, COMPILING, RANKS = LOGS / "vllm" / "ngram.log", LOGS / "vllm" / "compiling.log", LOGS / "sglang" / "ranks.log"
S = 1_000_000_000
MS = 1_000_000
# 14:13:00 of the log's clock on the client's.
NOON = 1_795_961_580 * S


def prose(text: str) -> str:
    return " ".join(text.split())


def answer(turn: int, sent_s: float, done_s: float, usage: Usage) -> Completion:
    first = NOON + round((sent_s + 0.2) * S)
    return replace(
        WHOLE,
        request=f"a0-t{turn}",
        turn=turn,
        t_sent=NOON + round(sent_s * S),
        t_first_byte=first,
        t_first_token=first,
        t_done=NOON + round(done_s * S),
        usage=usage,
        timings=None,
        server_id=f"chatcmpl-agent7-turn{turn}",
        chunk_ns=(first,),
        token_ns=(first,),
        tool_calls=(),
    )


ANSWERS = (
    answer(3, 22.3, 43.9, Usage(692, 24, 0)),
    answer(4, 44.0, 44.9, Usage(692, 24, 672)),
    answer(5, 44.95, 46.5, Usage(696, 16, 0)),
)


def vllm_run(out: Path, log: Path = NGRAM) -> rundir.RunDir:
    run = make(out, agents=(AGENT,))
    events(run, *(done(one) for one in ANSWERS))
    mark(run, ("begin", NOON + 20 * S), ("end", NOON + 60 * S))
    run.server_log.write_bytes(log.read_bytes())
    return run


def codes(found: dict[str, Any]) -> set[str]:
    return {one["code"] for one in found["doubts"]}


def test_a_run_on_vllm_joins_its_requests_by_their_id_and_takes_the_answers_counts(tmp_path: Path) -> None:
    found = accounts.account(vllm_run(tmp_path).path)
    assert (found["requests"]["exact"], found["requests"]["total"]) == (3, 3)
    whole = found["segments"][0]["whole"]
    # The server's own counters had 2,080 prompt tokens: 1,408 computed and 672 from the cache, and 64 generated.
    assert (whole["prompt_tokens"], whole["cached_tokens"], whole["new_prefill_tokens"]) == (2080, 672, 1408)
    assert whole["decoded_tokens"] == 64
    assert {name: one["requests"] for name, one in found["usage_check"].items()} == {
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "decoded_tokens": 0,
    }
    assert found["lines"]["counts_requests"] is False
    assert not codes(found) & {"answers-not-in-log", "foreign-requests", "clock-not-aligned", "log-not-aligned"}


def test_statistics_of_a_run_are_those_between_its_markers(tmp_path: Path) -> None:
    # The log's clock is laid on the client's by the arrivals; its last statistics came at 14:14:03, 3 s after the end.
    found = accounts.account(vllm_run(tmp_path).path)["statistics"]
    (part,) = found["parts"]
    assert (found["lines"], part["segment"], part["lines"]) == (3, "s1", 2)
    by_name = {one["name"]: one for one in part["quantities"]}
    assert by_name["generation_rate"] == {
        "kind": "engine",
        "source": "Engine 000",
        "name": "generation_rate",
        "unit": "tokens/s",
        "lines": 1,
        "least": 6.4,
        "median": 6.4,
        "most": 6.4,
        "sum": None,
    }
    assert by_name["accepted_tokens"]["sum"] == 45
    assert round(part["speculation"]["nominal_length"], 2) == 3.37
    assert part["speculation"]["effective_length"] is None  # steps are counted for the whole log
    assert found["steps"][0]["prompt_tokens"] == 1408


def test_a_report_says_who_counted_the_tokens_and_shows_the_statistics(tmp_path: Path) -> None:
    text = prose(terminal.render(accounts.account(vllm_run(tmp_path).path)))
    assert "tokens counted by the answers: the log has none of a request" in text
    assert "statistics lines in the log: 3" in text
    assert "effective length - (tokens emitted / decode steps), nominal 3.37" in text
    assert "tokens by log / by usage" not in text


def test_a_log_without_requests_says_what_to_start_the_server_with_and_misses_no_answer(tmp_path: Path) -> None:
    run = vllm_run(tmp_path, COMPILING)
    found = accounts.account(run.path)
    assert found["requests"]["client_only"] == 3
    assert "requests-not-logged" in codes(found)
    assert "answers-not-in-log" not in codes(found)


def test_a_request_of_somebody_else_is_foreign_where_it_came_between_the_markers(tmp_path: Path) -> None:
    run = vllm_run(tmp_path)
    line = "(APIServer pid=1) INFO 11-29 14:{}:50 [x.py:1] Received request {}: params: SamplingParams(n=1), x"
    lines = run.server_log.read_text().splitlines(keepends=True)
    inside, outside = line.format(13, "inside"), line.format(55, "outside")
    run.server_log.write_text("".join([*lines[:100], f"{inside}\n", *lines[100:], f"{outside}\n"]))
    found = accounts.account(run.path)
    assert (found["requests"]["server_only"], found["requests"]["outside_segments"]) == (1, 1)
    (doubt,) = [one for one in found["doubts"] if one["code"] == "foreign-requests"]
    assert "1 request in the log is not ours, the first is log boot 0 inside" in doubt["message"]
    assert found["segments"][0]["no_agent"]["requests"] == 1


def test_an_account_with_damaged_statistics_is_not_loaded(tmp_path: Path) -> None:
    run = vllm_run(tmp_path)
    accounts.account(run.path)
    path = run.derived / "account.json"
    path.write_text(path.read_text().replace('"repeated_by_ranks": 0', '"repeated_by_ranks": "none"'))
    with pytest.raises(ArtifactError, match=r"statistics\.repeated_by_ranks"):
        accounts.load(run.path)


# ---- a log alone -----------------------------------------------------------------------------------------------------


def test_a_log_of_vllm_is_shown_with_settings_what_was_asked_for_and_statistics() -> None:
    found = logfile.read_file(NGRAM).found
    stated = {one["name"]: one for one in found["settings"]}
    assert (stated["max_num_batched_tokens"]["applied"], stated["max_num_batched_tokens"]["verdict"]) == (
        512,
        "applied",
    )
    asked = stated["max_num_seqs"]
    assert (asked["requested"], asked["applied"], asked["verdict"], asked["line"]) == (8, None, "unproven", 11)
    text = prose(logfile_terminal.render(found))
    assert "max_num_seqs=8" in text
    assert "effective length 2.77 +- 0.02 (tokens emitted / decode steps), nominal 3.37" in text
    assert "decoded in 22 steps of one request each" in text
    assert "vllm logs neither tokens nor times of a request" in text
    assert logfile_terminal.nothing_found(found) == ""


def test_what_was_asked_for_and_is_not_in_force_is_doubted(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(NGRAM.read_bytes().replace(b"'max_num_batched_tokens': 512", b"'max_num_batched_tokens': 2048"))
    found = logfile.read_file(log).found
    (doubt,) = [one for one in found["doubts"] if one["code"] == "setting-mismatch"]
    assert doubt["message"] == "max_num_batched_tokens: 2048 was asked for, in force is 512 (server.log:14)"


def test_a_log_with_statistics_alone_is_no_empty_one() -> None:
    found = logfile.read_file(COMPILING).found
    assert logfile_terminal.nothing_found(found) == ""
    text = prose(logfile_terminal.render(found))
    assert "Triton kernel JIT compilation during inference" in text
    assert "580 drafts of 1,740 tokens, 1,056 accepted" in text


def test_statistics_of_a_log_with_markers_are_cut_by_the_markers_lines(tmp_path: Path) -> None:
    lines = COMPILING.read_bytes().splitlines(keepends=True)
    begin, end = (
        markers.render(action, "s1", "r1", "c", NOON + at * S) + b"\n" for action, at in (("begin", 0), ("end", 9))
    )
    log = tmp_path / "server.log"
    log.write_bytes(b"".join([*lines[:12], begin, *lines[12:17], end, *lines[17:]]))
    found = logfile.read_file(log).found["statistics"]
    (part,) = found["parts"]
    assert (found["lines"], part["segment"], part["lines"]) == (11, "s1", 4)
    assert part["speculation"]["drafts"] == 4 + 188


def test_lines_of_several_ranks_are_counted_once_and_that_is_shown() -> None:
    found = logfile.read_file(RANKS).found
    assert (found["statistics"]["lines"], found["statistics"]["repeated_by_ranks"]) == (2, 3)
    whole = found["segments"][0]["whole"]
    assert (whole["prompt_tokens"], whole["cached_tokens"], whole["new_prefill_tokens"]) == (32472, 32320, 152)
    text = prose(logfile_terminal.render(found))
    assert "3 more are of other ranks, and are counted once" in text
    assert "inference_time 26520974.4 s" in text


# ---- settings --------------------------------------------------------------------------------------------------------


def test_flags_of_vllm_are_held_against_what_its_log_states() -> None:
    argv = "vllm serve /models/tiny --max-num-batched-tokens 512 --max-num-seqs 8 --dtype auto -tp 2 --max-model-len 4k"
    stated = formats.read([NGRAM.read_bytes()]).facts.settings
    found = {one.name: one for one in compare("vllm", [*argv.split(), "--enforce-eager"], stated)}
    said = {name: (found[name].applied, found[name].source, found[name].verdict) for name in found}
    assert said["max_num_batched_tokens"] == (512, "server.log:14", Verdict.APPLIED)
    assert said["enforce_eager"] == (True, "server.log:16", Verdict.APPLIED)
    assert said["tensor_parallel_size"] == (1, "server.log:19", Verdict.MISMATCH)
    assert said["max_model_len"] == (4096, "server.log:13", Verdict.MISMATCH)  # 4k is 4,000 to vLLM
    assert said["dtype"] == ("bfloat16", "server.log:19", Verdict.DEFAULTED)
    assert said["max_num_seqs"] == (None, "", Verdict.UNPROVEN)  # the log repeats the request only


def test_what_the_log_repeats_counts_as_asked_for_where_no_command_line_is_known() -> None:
    facts = formats.read(
        [NGRAM.read_bytes().replace(b"'max_num_batched_tokens': 512", b"'max_num_batched_tokens': 99")]
    )
    stated, asked = facts.facts.settings, facts.facts.asked
    found = {one.name: one for one in compare("vllm", [], stated, repeated=asked)}
    told = found["max_num_batched_tokens"]
    assert (told.requested, told.applied, told.verdict) == (99, 512, Verdict.MISMATCH)
    assert (found["max_num_seqs"].requested, found["max_num_seqs"].verdict) == (8, Verdict.UNPROVEN)
    assert "host" not in found  # nothing that is measured
    argv = ["vllm", "serve", "m", "--max-num-batched-tokens", "512"]
    ours = {one.name: one for one in compare("vllm", argv, stated, repeated=asked)}
    assert ours["max_num_batched_tokens"].verdict is Verdict.APPLIED


def test_flags_of_sglang_are_held_against_what_its_log_states() -> None:
    log = (
        b"[2026-10-06 11:00:38] server_args={'model_path': 'm', 'tp_size': 2, 'max_running_requests': None}\n"
        b"[2026-10-06 11:00:40 TP0] max_total_num_tokens=9, chunked_prefill_size=8192, max_running_requests=48\n"
    )
    argv = "python -m sglang.launch_server --model-path m --tp 2 --max-running-requests 64"
    found = {one.name: one for one in compare("sglang", argv.split(), formats.read([log]).facts.settings)}
    assert (found["tp_size"].source, found["tp_size"].verdict) == ("server.log:1", Verdict.APPLIED)
    assert (found["max_running_requests"].applied, found["max_running_requests"].verdict) == (48, Verdict.MISMATCH)
    assert found["chunked_prefill_size"].verdict is Verdict.DEFAULTED


def test_requests_of_sglang_have_one_account_as_json_and_as_text(tmp_path: Path) -> None:
    found = []
    for form in ("json", "text"):
        log = tmp_path / form / "s.log"
        log.parent.mkdir()
        log.write_bytes((LOGS / "sglang" / f"requests_{form}.log").read_bytes())
        found.append(without_places(logfile.read_file(log).found))
    assert found[0] == found[1]
    whole = found[0]["segments"][0]["whole"]
    # By hand, of requests_*.log: 8000 + 400 + 32472 + 100 + 101, and 50 + 55 + 0 + 10 + 11.
    assert (whole["prompt_tokens"], whole["decoded_tokens"]) == (41_073, 126)
    # a1 was prefilled from -0.25 to 1 s, and decoded from 1 to 6 s; b1 decoded from 3 to 8 s.
    assert (whole["prefill_union_ns"], whole["decode_union_ns"], whole["decode_sum_ns"]) == (1.25 * S, 7 * S, 10 * S)
    assert found[0]["requests"]["total"] == 5


def without_places(value: Any) -> Any:
    """All that an account says but at which byte of the file it stands, and how long that is."""
    if isinstance(value, dict):
        return {key: without_places(one) for key, one in value.items() if key not in ("offset", "size", "bytes")}
    return [without_places(one) for one in value] if isinstance(value, list) else value
