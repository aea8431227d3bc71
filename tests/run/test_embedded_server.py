"""Does the main job hold on the real thing: a real llama.cpp server, a real model, real tools, a real corpus?"""

import os
from pathlib import Path

import anyio
import polars as pl
import pytest

from agentload.analysis.account import account
from agentload.artifacts.rundir import RunDir
from agentload.run import runner, scenario

pytestmark = pytest.mark.real_server

AGENTS = 2


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> RunDir:
    """One short run of two agents on the embedded server."""
    fields = {
        "agents": AGENTS,
        "stagger_s": 1.0,
        "seed": 3,
        # Short on purpose: a 135M model on one thread prefills about 85 tokens a second.
        "limits": {
            "tool_calls": 1,
            "min_tool_calls": 1,
            "min_growth_tokens": 0,
            "answer_tokens": 64,
            "final_tokens": 24,
            "turns": 8,
            "nudges": 6,
            "resample": True,
            "stop_at_minimum": True,
            "context_tokens": 4096,
        },
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    env["AGENTLOAD_CACHE"] = str(cache_dir)
    return anyio.run(
        runner.run,
        scenario.from_fields(fields, ""),
        tmp_path_factory.mktemp("embedded"),
        env,
        lambda _line: None,
    )


def test_a_run_on_the_embedded_server_matches_every_request_exactly(run_dir: RunDir) -> None:
    found = account(run_dir.path)
    assert found["status"] == "success"
    assert found["requests"]["total"] > 0
    assert found["requests"]["exact"] == found["requests"]["total"]
    assert found["lines"]["unknown"] == 0
    assert found["lines"]["markers"] == 2


def test_tokens_by_the_log_equal_tokens_by_usage_and_by_the_conversation(run_dir: RunDir) -> None:
    found = account(run_dir.path)
    for name, check in found["usage_check"].items():
        assert (check["remainder"], check["differing_requests"]) == (0, 0), name
        assert check["requests"] == found["requests"]["total"], name
    whole = found["segments"][0]["whole"]
    assert whole["prompt_tokens"] == whole["cached_tokens"] + whole["new_prefill_tokens"]
    # Each agent's second request reuses its first prompt: had nothing been cached, new would equal prompt.
    assert whole["cached_tokens"] > 0
    work = found["work"]
    assert work["requests"] == work["tool_calls"] + work["answers"] + work["failed_requests"]


def test_phases_lie_between_the_markers_and_in_the_order_of_work(run_dir: RunDir) -> None:
    found = account(run_dir.path)
    begin, end = found["segments"][0]["begin_ns"], found["segments"][0]["end_ns"]
    table = pl.read_parquet(run_dir.derived / "requests.parquet")
    error = found["clock"]["error_ns"]
    for row in table.iter_rows(named=True):
        assert begin <= row["t_sent"] < row["t_done"] <= end
        assert row["t_sent"] - error <= row["prefill_start"] < row["prefill_end"] == row["decode_start"]
        assert row["decode_start"] <= row["decode_end"] <= row["t_done"] + error


def test_every_flag_of_the_embedded_server_that_its_log_states_is_applied(run_dir: RunDir) -> None:
    verdicts = {one["name"]: one["verdict"] for one in account(run_dir.path)["settings"]}
    asked = {name: verdicts[name] for name in ("n_ctx", "n_slots", "n_threads", "verbosity")}
    assert asked == dict.fromkeys(asked, "applied")


def test_the_log_holds_the_servers_bytes_and_a_stamp_for_each_line(run_dir: RunDir) -> None:
    lines = run_dir.server_log.read_bytes().count(b"\n")
    assert run_dir.server_times.read_bytes().count(b"\n") == lines
    begin, end = (line for line in run_dir.server_log.read_bytes().splitlines() if b" agentload: segment " in line)
    assert b"segment begin id=s1" in begin
    assert b"segment end id=s1" in end
