"""Does a run against an endpoint leave everything it should, and does its account say what the server did?

Real sockets, git, sandbox and corpus; the model is scripted. Two agents, three requests each: read, bash, answer.
"""

import json
import os
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import polars as pl
import psutil
import pytest
from anyio import to_thread

from agentload.agents import tasks, workspace
from agentload.analysis import account as accounts
from agentload.artifacts.rundir import RunDir
from agentload.core import markers
from agentload.errors import EndpointError, UsageError
from agentload.report import terminal
from agentload.run import runner, scenario
from agentload.run.interrupt import first_leaf
from tests.ports import nobody
from tests.processes import gone
from tests.run.chat_model import FINAL, ChatModel
from tests.run.runs import (
    LIMITS,
    TASKS,
    LeapingClock,
    Made,
    derived_bytes,
    environment,
    fields_of,
    make,
    only_run,
)

# By hand from the model's rules: agents 0 and 1, turns 0, 1 and 2.
PROMPT = (1000 + 1300 + 1600) + (1100 + 1400 + 1700)  # 8,100
CACHED = (0 + 1000 + 1300) + (0 + 1100 + 1400)  # 4,800
NEW = (1000 + 300 + 300) + (1100 + 300 + 300)  # 3,300
DECODED = (20 + 22 + 24) + (21 + 23 + 25)  # 135


@dataclass
class Finished(Made):
    """A run that went well, and the model it talked to."""

    model: ChatModel | None = None


@pytest.fixture(scope="module")
def finished(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    async def go() -> Finished:
        async with ChatModel() as model:
            made = await make(tmp_path_factory.mktemp("runs"), cache_dir, fields_of(model.url, name="whole"))
            return Finished(made.run, made.said, model)

    return anyio.run(go)


@pytest.fixture
def copied(finished: Finished, tmp_path: Path) -> RunDir:
    """The same run at another place, to be accounted for or spoilt."""
    return RunDir(shutil.copytree(finished.run.path, tmp_path / finished.run.name))


def test_the_run_directory_has_every_file_and_no_log_where_there_was_none(finished: Finished) -> None:
    files = sorted(path.relative_to(finished.run.path).as_posix() for path in finished.run.path.rglob("*.*"))
    raw = [name for name in files if not name.startswith("derived")]
    assert raw == [
        "agents/a0/messages.jsonl",
        "agents/a1/messages.jsonl",
        "events.jsonl",
        "manifest.json",
        "markers.jsonl",
        "scenario.toml",
    ]
    assert finished.run.name[:4].isdigit()
    assert "-whole-" in finished.run.name


def test_the_manifest_says_how_it_went_and_with_what(finished: Finished, tiny: workspace.Repository) -> None:
    manifest = finished.run.read_manifest()
    assert finished.model is not None
    assert (manifest.status, manifest.why, manifest.run) == ("success", None, finished.run.name)
    assert manifest.corpus == {"name": "tiny", "commit": tiny.commit, "tree": tiny.tree, "dirty": False}
    server = manifest.server
    assert (server["kind"], server["base_url"], server["model"]) == ("endpoint", finished.model.url, "scripted")
    assert (server["markers"], server["log_owned"], server["log_path"]) == ("sidecar", False, None)
    first, second = manifest.agents
    assert [first["agent"], second["agent"], first["task"], second["task"]] == ["a0", "a1", *TASKS]
    for one in (first, second):
        assert (one["end"], one["requests"], one["tool_calls"], one["answers"]) == ("answered", 3, 2, 1)
        assert (one["failed_requests"], one["failed_calls"], one["nudges"], one["answer"]) == (0, 0, 0, FINAL)
        assert one["paths_read"] == ["Cargo.toml"]
    # First prompt 1000, at the end 1600 + 24; the second agent is 100 and 1 above.
    assert sorted(one["growth_tokens"] for one in (first, second)) == [624, 625]
    # What the answer states is a fact of the first task and of no other.
    assert first["facts_found"] == ["init-returns-definition"]
    assert second["facts_found"] == []
    assert set(first["facts"]) == {fact.id for fact in tasks.load(TASKS[0]).facts}


def test_agents_are_planned_one_stagger_after_another_from_the_begin_marker(finished: Finished) -> None:
    manifest = finished.run.read_manifest()
    begin = finished.markers()[0]["t"]
    assert [one["planned"] - begin for one in manifest.agents] == [0, 50_000_000]
    started = finished.events("agent_started")
    assert [(one["agent"], one["planned"]) for one in started] == [("a0", begin), ("a1", begin + 50_000_000)]
    assert all(one["t"] >= one["planned"] for one in started)
    assert [one["started"] for one in manifest.agents] == [one["t"] for one in started]


def test_markers_begin_and_end_the_segment_around_all_requests(finished: Finished) -> None:
    begin, end = finished.markers()
    assert [begin["action"], end["action"], begin["where"], end["where"]] == ["begin", "end", "sidecar", "sidecar"]
    assert (begin["run"], begin["segment"], begin["condition"]) == (finished.run.name, "s1", "default")
    done = finished.events("request_done")
    assert len(done) == 6
    assert begin["t"] <= min(one["t_sent"] for one in done)
    assert max(one["t"] for one in done) <= end["t"]
    assert finished.run.read_manifest().segments == [
        {"segment": "s1", "condition": "default", "begin": begin["t"], "end": end["t"]}
    ]
    assert markers.parse(markers.render("end", "s1", begin["run"], "default", end["t"]), None) is not None


def test_the_saved_conversations_are_what_the_server_received(finished: Finished) -> None:
    assert finished.model is not None
    bodies = [one.json() for one in finished.model.requests]
    saved: list[Any] = []
    for agent in ("a0", "a1"):
        history = finished.history(agent)
        messages = [one["message"] for one in history if one["event"] == "message"]
        tools = next(one["tools"] for one in history if one["event"] == "tools")
        requests = [one for one in history if one["event"] == "request"]
        saved += [(messages[: one["messages"]], tools, one["max_tokens"], one["seed"]) for one in requests]
    received = [(body["messages"], body["tools"], body["max_tokens"], body["seed"]) for body in bodies]
    assert len(received) == 6
    assert sorted(received, key=json.dumps) == sorted(saved, key=json.dumps)
    # What the tools said went to the server: the corpus' own Cargo.toml, and the shell's count of lines.
    last = next(body["messages"] for body in bodies if len(body["messages"]) == 6)
    assert 'name = "whenever"' in last[3]["content"]
    assert last[5]["content"].endswith("src/lib.rs\n")


def test_the_scenario_is_kept_as_resolved_and_gives_the_same_scenario_again(finished: Finished) -> None:
    kept = tomllib.loads(finished.run.scenario_path.read_text(encoding="utf-8"))
    assert kept == finished.run.read_manifest().scenario
    assert scenario.from_fields(kept, "").dump() == kept


def test_it_is_said_what_is_used_and_when_each_agent_starts(finished: Finished) -> None:
    assert finished.said[0] == "server: a base URL is given: the server behind it is used"
    assert finished.said[1].startswith("sandbox: ")
    titles = [tasks.load(name).title for name in TASKS]
    assert f"run directory: {finished.run.path}" in finished.said
    plan = [
        "endpoint: " + str(finished.run.read_manifest().server["base_url"]) + ", model scripted",
        f"agent a0 starts 0 s after the begin marker: {TASKS[0]}, {titles[0]}",
        f"agent a1 starts 0.05 s after the begin marker: {TASKS[1]}, {titles[1]}",
        "the agents take at most 1:00:00: 0:00 until the last one starts, 1:00:00 for its work (--wall)",
        "a0 started",
    ]
    begin = finished.said.index(plan[0])
    assert finished.said[begin : begin + 5] == plan


def test_totals_are_the_sums_of_what_the_server_counted(copied: RunDir, finished: Finished) -> None:
    found = accounts.account(copied.path)
    assert finished.model is not None
    assert found["work"] == {
        "requests": 6,
        "tool_calls": 4,
        "answers": 2,
        "nudges": 0,
        "failed_requests": 0,
        "cut_requests": 0,
        "calls_not_run": 0,
        "failed_calls": 0,
        "repeated_calls": 0,
        "tool_turns": 4,
        "broken_off": 0,
    }
    (segment,) = found["segments"]
    whole = segment["whole"]
    tokens = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
    assert [whole[name] for name in tokens] == [8100, 4800, 3300, 135] == [PROMPT, CACHED, NEW, DECODED]
    assert [sum(one[name] for one in segment["agents"].values()) for name in tokens] == [8100, 4800, 3300, 135]
    # No log: the answers' timings are the source. What the server measured, added up here.
    answered = finished.model.answered
    assert whole["prefill_sum_ns"] == sum(round(one.prompt_ms * 1e6) for one in answered)
    assert whole["decode_sum_ns"] == sum(round(one.decode_ms * 1e6) for one in answered)
    begin, end = finished.markers()
    assert whole["wall_ns"] == end["t"] - begin["t"]
    assert (found["requests"]["total"], found["requests"]["client_only"], found["requests"]["matched"]) == (6, 6, 0)
    assert found["lines"]["format"] is None
    assert "no-server-log" in [one["code"] for one in found["doubts"]]


def test_the_tables_have_a_row_for_each_request_and_phase(copied: RunDir) -> None:
    accounts.account(copied.path)
    requests = pl.read_parquet(copied.derived / "requests.parquet")
    assert requests.height == 6
    assert requests["usage_prompt_tokens"].sum() == PROMPT
    assert set(requests["match"]) == {"client_only"}
    phases = pl.read_parquet(copied.derived / "phases.parquet")
    assert dict(phases["phase"].value_counts().iter_rows()) == {"prefill": 6, "decode": 6, "tool": 4}
    assert phases.filter(pl.col("phase") == "decode")["tokens"].sum() == DECODED
    assert phases.select((pl.col("end") - pl.col("start")).min()).item() >= 0
    segments = pl.read_parquet(copied.derived / "segments.parquet")
    names = [(scope, name) for scope, name in segments.select("scope", "name").iter_rows() if scope != "bucket"]
    assert names == [("whole", ""), ("agent", "a0"), ("agent", "a1")]
    assert segments.row(0, named=True)["new_prefill_tokens"] == NEW


def test_a_server_on_this_host_that_is_not_ours_has_the_hosts_memory_sampled(
    copied: RunDir, finished: Finished
) -> None:
    samples = finished.events("sample")
    assert [samples[0]["where"], samples[-1]["where"]] == ["begin", "end"]
    assert {one["cpu_s"] for one in samples} == {None}
    (segment,) = accounts.account(copied.path)["segments"]
    assert segment["memory"]["host_free_min_bytes"] == min(one["host_free_bytes"] for one in samples)
    assert (segment["memory"]["server_rss_max_bytes"], segment["server_cpu_s"]) == (None, None)
    assert "smallest free memory, of this machine: host " in terminal.render(accounts.load(copied.path))


def test_an_account_is_the_same_to_the_byte_each_time(copied: RunDir, finished: Finished) -> None:
    accounts.account(copied.path)
    first = derived_bytes(copied)
    assert sorted(first) == [
        "account.json",
        "phases.parquet",
        "requests.parquet",
        "samples.parquet",
        "segments.parquet",
    ]
    accounts.account(copied.path)
    assert derived_bytes(copied) == first
    shutil.rmtree(copied.derived)
    accounts.account(copied.path)
    assert derived_bytes(copied) == first
    # And at another path, of the same run.
    accounts.account(finished.run.path)
    assert derived_bytes(finished.run) == first


def test_an_account_changes_no_raw_file(copied: RunDir) -> None:
    def raw() -> dict[str, bytes]:
        files = (path for path in copied.path.rglob("*.*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if copied.derived not in path.parents}

    shutil.rmtree(copied.derived, ignore_errors=True)
    before = raw()
    accounts.account(copied.path)
    assert raw() == before


def test_the_report_says_the_numbers(copied: RunDir) -> None:
    text = terminal.render(accounts.account(copied.path))
    words = text.split()
    assert {"8,100", "4,800", "3,300", "135"} <= set(words)
    assert "requests 6 = tool calls 4 + answers 2 + failed 0\n" in text
    assert "success" in text.splitlines()[0]
    assert "doubt (no-server-log)" in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_loaded_account_is_the_one_on_disk_and_is_made_where_it_is_missing(copied: RunDir) -> None:
    shutil.rmtree(copied.derived, ignore_errors=True)
    made = accounts.load(copied.path)
    on_disk = (copied.derived / "account.json").read_text(encoding="utf-8")
    assert on_disk == accounts.text(made)
    assert accounts.load(copied.path) == json.loads(on_disk)


# ---- runs that do not go well ---------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_server_that_dies_in_mid_run_leaves_a_partial_run_that_can_be_accounted_for(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel(die_at=2) as model:
        made = await make(tmp_path, cache_dir, fields_of(model.url, stagger_s=0.0))
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why is not None
    assert [one["end"] for one in manifest.agents] == ["failed", "failed"]
    assert "a0 failed: " in manifest.why
    assert "a1 failed: " in manifest.why
    assert [one["action"] for one in made.markers()] == ["begin", "end"]
    found = accounts.account(made.run.path)
    # Two answered, to one agent or to both, but to none of them three times; then one failure each.
    assert (found["status"], found["work"]["requests"], found["work"]["failed_requests"]) == ("partial", 4, 2)
    assert found["work"]["tool_calls"] == 2
    assert found["segments"][0]["whole"]["unknown"]["prompt_tokens"] == 2
    text = terminal.render(found)
    assert "requests 4 = tool calls 2 + answers 0 + failed 2\n" in text
    assert "partial: a0 failed" in " ".join(text.split())


@pytest.mark.anyio
async def test_an_endpoint_that_fails_every_completion_is_an_error_with_the_first_failure(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel(die_at=0) as model:
        made = await make(tmp_path, cache_dir, fields_of(model.url, stagger_s=0.0))
    manifest = made.run.read_manifest()
    assert manifest.status == "error"
    assert manifest.why is not None
    assert manifest.why.startswith("no request of any agent was answered: broken answer: ")
    assert [one["action"] for one in made.markers()] == ["begin", "end"]
    assert accounts.account(made.run.path)["work"]["failed_requests"] == 2


@pytest.mark.anyio
async def test_an_agent_that_did_too_little_makes_the_run_partial_and_is_named(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    # Each makes 2 calls; its context grows by 624 and 625 tokens (by hand in the test of the manifest).
    limits = {**LIMITS, "min_tool_calls": 2, "min_growth_tokens": 625, "nudges": 0}
    async with ChatModel() as model:
        made = await make(tmp_path, cache_dir, fields_of(model.url, limits=limits))
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why == (
        "a0 did too little work: 2 tool calls (at least 2), growth of context 624 tokens (at least 625); "
        "it ended as answered"
    )


@pytest.mark.anyio
async def test_the_wall_time_cuts_off_a_request_that_hangs_and_the_run_is_whole_when_enough_was_done(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    limits = {**LIMITS, "wall_s": 1000.0, "min_tool_calls": 2}
    clock = LeapingClock()

    def hear(line: str) -> None:
        if line.startswith(" 15:0"):
            clock.leap(100.0)

    async with ChatModel(hang_at=2, on_hang=lambda: clock.leap(900.0)) as model:
        fields = fields_of(model.url, limits=limits, agents=1)
        made = await make(tmp_path, cache_dir, fields, hear, progress_s=900.0, clock=clock)
        await model.server.gone.wait()  # its connection was closed
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.why) == ("success", None)
    (agent,) = manifest.agents
    assert (agent["end"], agent["requests"], agent["tool_calls"]) == ("out_of_time", 3, 2)
    assert (agent["cut_requests"], agent["failed_requests"], agent["answers"]) == (1, 0, 0)
    cut = made.events("request_done")[2]
    assert cut["error"].startswith("cut off: its time was over after ")
    assert cut["t"] >= agent["started"] + 1_000_000_000_000
    assert [one["action"] for one in made.markers()] == ["begin", "end"]
    last = [one for one in made.history("a0") if one["event"] == "answer"][-1]
    assert (last["request"], last["error"]) == ("a0-r2", cut["error"])
    # Meanwhile it was said what the agent was at; the last usage was 1300 + 22, and its result in bytes came on top.
    (line,) = [line for line in made.said if line.startswith(" 15:")]
    assert "  a0 waiting for the first token, turn 3, 2 calls, 1.3k" in line


@pytest.mark.anyio
async def test_the_wall_time_kills_a_command_that_runs(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    sleep = ["sleep", f"3601.{os.getpid()}"]  # as nobody else's on this machine
    script = (("bash", {"command": f"echo started; exec {' '.join(sleep)}"}), FINAL)
    clock = LeapingClock()

    def running() -> list[psutil.Process]:
        return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == sleep]

    async def leap_when_it_runs() -> None:
        while not await to_thread.run_sync(running):
            await anyio.lowlevel.checkpoint()
        clock.leap(1000.0)

    async with ChatModel(script=script) as model, anyio.create_task_group() as group:
        group.start_soon(leap_when_it_runs)
        fields = fields_of(model.url, limits={**LIMITS, "wall_s": 1000.0}, agents=1)
        made = await make(tmp_path, cache_dir, fields, clock=clock)
    manifest = made.run.read_manifest()
    (agent,) = manifest.agents
    assert (manifest.status, agent["end"], agent["requests"]) == ("success", "out_of_time", 1)
    assert (agent["tool_calls"], agent["failed_calls"]) == (1, 1)
    (done,) = made.events("tool_done")
    assert (done["ok"], done["detail"]) == (False, {"ended": "out of time"})
    assert gone(*running())  # it was killed, and may take a moment to be gone
    assert accounts.account(made.run.path)["work"]["tool_calls"] == 1


@pytest.mark.anyio
async def test_an_error_that_is_a_bug_is_named_in_the_manifest_and_comes_out(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    def say(line: str) -> None:
        if line == "a1 started":
            raise TypeError("a bug of whoever listens")

    async with ChatModel() as model:
        chosen = scenario.from_fields(fields_of(model.url))
        with pytest.raises(BaseExceptionGroup) as caught:
            await runner.run(chosen, tmp_path, environment(cache_dir), say)
    assert isinstance(first_leaf(caught.value), TypeError)
    run = only_run(tmp_path)
    manifest = run.read_manifest()
    assert (manifest.status, manifest.why) == ("error", "internal error: TypeError: a bug of whoever listens")
    assert [one["action"] for one in Made(run).markers()] == ["begin", "end"]
    assert accounts.account(run.path)["status"] == "error"


@pytest.mark.anyio
async def test_an_endpoint_that_does_not_answer_is_an_error_before_any_request(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    with (
        nobody() as port,
        pytest.raises(EndpointError, match="expected a list of models: connection failed") as caught,
    ):
        await make(tmp_path, cache_dir, fields_of(f"http://127.0.0.1:{port}/v1"))
    manifest = only_run(tmp_path).read_manifest()
    assert (manifest.status, manifest.why) == ("error", str(caught.value))


@pytest.mark.anyio
async def test_a_model_that_the_endpoint_has_not_is_refused(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel() as model:
        with pytest.raises(UsageError, match="--model: expected one of scripted, got 'other'"):
            await make(tmp_path, cache_dir, fields_of(server={"base_url": model.url, "model": "other"}))
        assert model.requests == []


@pytest.mark.anyio
async def test_a_task_of_another_corpus_is_refused_before_there_is_a_run_directory(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel() as model:
        with pytest.raises(UsageError, match="task zone-lookup is about corpus standard, the run's corpus is tiny"):
            await make(tmp_path / "runs", cache_dir, fields_of(model.url, tasks=["zone-lookup"]))
    assert not (tmp_path / "runs").exists()


@pytest.mark.anyio
async def test_the_environments_base_url_is_used_where_nothing_else_is_given(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel() as model:
        env = environment(cache_dir) | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-secret"}
        said: list[str] = []
        run = await runner.run(scenario.from_fields(fields_of(agents=1), ""), tmp_path, env, said.append)
    assert said[0] == "server: OPENAI_BASE_URL is set: the server behind it is used"
    assert {seen.headers["authorization"] for seen in model.requests} == {"Bearer sk-secret"}
    # The key is in no file of the run.
    assert not [path for path in run.path.rglob("*.*") if b"sk-secret" in path.read_bytes()]
