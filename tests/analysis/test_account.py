"""Is an account made of raw files alone, and does it say what is missing instead of guessing?"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from agentload.analysis import account as accounts
from agentload.analysis import sections
from agentload.artifacts import rundir, schemas
from agentload.artifacts.alive import Hold
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, RunDir, Status
from agentload.artifacts.table_schemas import TABLES
from agentload.cli import app
from agentload.core import markers
from agentload.core.attribution import Attribution
from agentload.core.records import Match, Segment, Source
from agentload.errors import ArtifactError, InputError
from agentload.report import export as exports
from agentload.report import terminal
from tests import bound_by_modes
from tests.analysis.test_evidence import FAILED, MANIFEST, WHOLE, done, events
from tests.analysis.test_tables import request

AGENT = {
    "agent": "a0",
    "task": "t",
    "end": "answered",
    "why": None,
    "answer": "long text",
    "requests": 1,
    "failed_requests": 0,
    "answers": 1,
    "nudges": 0,
    "tool_calls": 0,
    "calls_not_run": 0,
    "failed_calls": 0,
    "repeated_calls": 0,
    "growth_tokens": None,
    "facts_found": [],
    "facts": ["f"],
    "likely_opened": [],
    "likely_missed": ["x.rs"],
    "planned": 50,
    "started": 57,
}


def make(out: Path, status: Status = "success", agents: tuple[dict[str, Any], ...] = (AGENT,)) -> RunDir:
    run = rundir.create(out, "x", "2026-01-01T000000Z", "0000")
    limits = {"min_tool_calls": 0, "min_growth_tokens": 0}
    changed = {"status": status, "agents": list(agents), "scenario": {"limits": limits}, "run": run.name}
    run.write_manifest(MANIFEST.model_copy(update=changed))
    return run


def mark(run: RunDir, *marks: tuple[str, int]) -> None:
    writer = JsonLinesWriter(run.markers_path, schemas.MARKERS)
    for action, t_ns in marks:
        place = {"where": "sidecar", "inode": None, "offset": None}
        writer.append({"action": action, "segment": "s1", "run": run.name, "condition": "c", "t": t_ns, **place})
    writer.close()


MS = 1_000_000


def answered() -> tuple[str, int, dict[str, Any]]:
    """Sent at 100 ms, done at 1,100 ms; by the answer: 100 tokens in 200 ms, then 50 tokens in 500 ms."""
    timings = {"cached_tokens": 900, "prompt_tokens": 100, "prompt_ms": 200.0, "decoded_tokens": 50, "decode_ms": 500.0}
    _, _, fields = done(WHOLE)
    times = {"t_sent": 100 * MS, "t_first_byte": 110 * MS, "t_first_token": 600 * MS, "timings": timings}
    return "request_done", 1100 * MS, {**fields, **times, "chunk_ns": [], "chunks_without_token": []}


def test_shares_and_speeds_follow_from_the_answers_own_timings(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    whole = accounts.account(run.path)["segments"][0]["whole"]
    assert (whole["prefill_union_ns"], whole["decode_union_ns"], whole["wall_ns"]) == (200 * MS, 500 * MS, 2000 * MS)
    assert (whole["prefill_tok_s"], whole["decode_tok_s"]) == (500.0, 98.0)  # 49 of 50 tokens come after the first
    assert (whole["prefill_share"], whole["decode_share"]) == (0.1, 0.25)


def test_an_agents_lateness_is_its_start_minus_its_plan_and_the_answers_text_stays_out(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, ("agent_started", 57, {"agent": "a0", "task": "t", "planned": 50}), done(FAILED))
    mark(run, ("begin", 40), ("end", 90))
    (agent,) = accounts.account(run.path)["agents"]
    assert (agent["start_late_ns"], agent["t_first_request"], agent["too_little_work"]) == (7, None, False)
    assert "answer" not in agent


@pytest.mark.parametrize(
    ("calls", "growth", "too_little"),
    [(6, 3000, False), (5, 3000, True), (6, 2999, True), (6, None, False)],
)
def test_too_little_work_is_less_than_either_minimum(
    calls: int, growth: int | None, *, too_little: bool, tmp_path: Path
) -> None:
    run = make(tmp_path, agents=({**AGENT, "tool_calls": calls, "growth_tokens": growth},))
    limits = {"min_tool_calls": 6, "min_growth_tokens": 3000}
    run.write_manifest(run.read_manifest().model_copy(update={"scenario": {"limits": limits}}))
    events(run)
    (agent,) = accounts.account(run.path)["agents"]
    assert agent["too_little_work"] is too_little


def test_a_run_that_failed_before_its_first_marker_has_no_segment_and_can_be_shown(tmp_path: Path) -> None:
    run = make(tmp_path, status="error", agents=())
    EventLog(run.events_path).close()
    found = accounts.account(run.path)
    assert (found["segments"], found["agents"], found["requests"]["total"]) == ([], [], 0)
    assert found["work"]["requests"] == 0
    assert f"{run.name}  error" in terminal.render(found)


def test_a_killed_run_counts_its_events_and_leaves_null_what_only_an_outcome_tells(tmp_path: Path) -> None:
    run = make(tmp_path, status="started", agents=())
    who = {"request": "a1-r1", "agent": "a1", "turn": 1}
    tool = {"agent": "a1", "turn": 0, "call": "c1", "tool": "bash"}
    events(run, done(WHOLE), done(FAILED), ("tool_started", 150, tool), ("request_sent", 200, who))
    mark(run, ("begin", 0))
    found = accounts.account(run.path)
    assert found["work"] == {
        "requests": 3,
        "tool_calls": 1,
        "failed_requests": 1,
        "cut_requests": 0,
        "broken_off": 1,
        **dict.fromkeys(("answers", "nudges", "calls_not_run", "failed_calls", "repeated_calls", "tool_turns")),
    }
    assert found["segments"][0]["whole"]["wall_ns"] is None


def live(tmp_path: Path) -> RunDir:
    """A run one of whose requests is under way, while a line is being written."""
    run = make(tmp_path, status="started", agents=())
    events(run, answered(), ("request_sent", 1200 * MS, {"request": "a0-r4", "agent": "a0", "turn": 4}))
    with run.events_path.open("ab") as file:
        file.write(b'{"event":"reque')
    mark(run, ("begin", 0))
    return run


def test_a_run_whose_writer_lives_is_still_running_and_not_killed(tmp_path: Path) -> None:
    run = live(tmp_path)
    hold = Hold(run.path)
    found = accounts.account(run.path)
    hold.release()
    assert (found["status"], found["running"], found["why"]) == ("started", True, None)
    assert doubts(found) == ["no-server-log", "still-running"]  # no torn event, no missing end marker
    said = " ".join(terminal.render(found).split())
    assert said.startswith(f"{run.name} started, still running server")
    assert "still running, so far: 2 requests (0 failed, 0 cut off at the end of an agent's time, 1 without an" in said
    assert "segment s1, condition c: it has not ended" in said
    assert "killed" not in said
    assert "to compare runs" not in said
    assert accounts.exit_code(found) == 1


def test_a_run_whose_writer_died_was_killed(tmp_path: Path) -> None:
    found = accounts.account(live(tmp_path).path)
    assert (found["status"], found["running"]) == ("started", False)
    assert doubts(found) == ["torn-events", "no-server-log", "segment-without-end"]
    assert found["why"] == "agentload was killed, or had no room left for its last manifest"
    said = terminal.render(found)
    assert said.startswith(f"{found['run']}  started, never ended: agentload was killed, or had no")
    assert "the run was killed, its agents' outcomes are not known: 2 requests" in said


def test_the_room_that_a_run_had_set_aside_is_given_back_when_its_writer_died(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.reserve.write_bytes(bytes(1000))
    hold = Hold(run.path)
    accounts.account(run.path)
    assert run.reserve.stat().st_size == 1000
    hold.release()  # as the kernel does
    accounts.account(run.path)
    assert not run.reserve.exists()


def test_an_account_made_while_the_run_was_at_work_is_made_anew(tmp_path: Path) -> None:
    run = live(tmp_path)
    hold = Hold(run.path)
    accounts.account(run.path)
    hold.release()
    run.write_manifest(run.read_manifest().model_copy(update={"status": "cancelled", "why": "stopped"}))
    found = accounts.load(run.path)
    assert (found["status"], found["running"]) == ("cancelled", False)
    (run.derived / "account.json").write_bytes(
        (run.derived / "account.json").read_bytes().replace(b'"why": "stopped"', b'"why": "kept"')
    )
    assert accounts.load(run.path)["why"] == "kept"  # that of a run that has ended is read, not made
    (run.derived / "phases.parquet").unlink()
    assert accounts.load(run.path)["why"] == "stopped"  # but not with a table missing
    assert (run.derived / "phases.parquet").is_file()


@pytest.mark.parametrize("running", [True, False])
def test_the_log_of_a_server_that_was_there_before_comes_with_the_runs_end(running: bool, tmp_path: Path) -> None:
    run = live(tmp_path)
    scenario = {"limits": {}, "server": {"log": "/var/log/server.log"}}
    run.write_manifest(run.read_manifest().model_copy(update={"scenario": scenario}))
    hold = Hold(run.path)
    if not running:
        hold.release()
    found = accounts.account(run.path)
    hold.release()
    (doubt,) = (one for one in found["doubts"] if one["code"] == "no-server-log")
    assert doubt["message"].startswith("server.log is copied at the run's end, which has not come")
    said = "wait for the end" if running else "read the server's own log: agentload account /var/log/server.log"
    assert doubt["advice"] == said


def test_without_a_log_there_is_nothing_to_hold_the_usage_against(tmp_path: Path) -> None:
    """Usage was compared with itself, and agreed."""
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    check = accounts.account(run.path)["usage_check"]
    usage = done(WHOLE)[2]["usage"]
    assert check["prompt_tokens"] == {
        "requests": 0,
        "log": None,
        "usage": usage["prompt_tokens"],
        "remainder": None,
        "differing_requests": None,
    }


def test_only_counts_that_the_log_has_are_held_against_the_answers() -> None:
    logged = request(
        label="slot 0 task 1", prompt_tokens=100, cached_tokens=40, decoded_tokens=9, cached_source=Source.LOG,
        usage_prompt_tokens=98, usage_cached_tokens=40, usage_completion_tokens=9,
    )  # fmt: skip
    by_timings = request(
        label="slot 0 task 2", prompt_tokens=50, cached_tokens=20, decoded_tokens=7, cached_source=Source.USAGE,
        usage_prompt_tokens=50, usage_cached_tokens=20, usage_completion_tokens=8,
    )  # fmt: skip
    lost = request(prompt_tokens=10, usage_prompt_tokens=10, decoded_tokens=1, usage_completion_tokens=1)
    check = sections.usage_check([logged, by_timings, lost])
    assert list(check["prompt_tokens"].values()) == [1, 100, 98, 2, 1]
    assert list(check["cached_tokens"].values()) == [1, 40, 40, 0, 0]
    assert list(check["decoded_tokens"].values()) == [2, 16, 17, -1, 1]


def test_the_time_to_first_token_is_told_of_all_and_of_each_agent(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())  # sent at 100 ms, first token at 600 ms
    mark(run, ("begin", 0), ("end", 2000 * MS))
    (segment,) = accounts.account(run.path)["segments"]
    waited = {"requests": 1, "median_ns": 500 * MS, "worst_ns": 500 * MS, "worst_request": "a0-r3"}
    assert segment["first_token"] == {"whole": waited, "agents": {"a0": waited}}


def test_a_request_that_was_broken_off_has_no_end_and_no_total_time(tmp_path: Path) -> None:
    """Nobody saw its end: from sending to sending would be 0 ms of an answer that came for seconds."""
    run = make(tmp_path, status="cancelled")
    events(run, answered(), ("request_sent", 1200 * MS, {"request": "a0-r4", "agent": "a0", "turn": 4}))
    mark(run, ("begin", 0), ("end", 2000 * MS))
    accounts.account(run.path)
    table = exports.complete(TABLES["requests"], pl.read_parquet(run.derived / "requests.parquet"))
    told = table.select("request", "t_sent", "t_done", "total_time_ms").rows()
    assert told == [("a0-r3", 100 * MS, 1100 * MS, 1000.0), ("a0-r4", 1200 * MS, None, None)]


def test_the_smallest_free_memory_and_the_filled_context_stand_in_the_segment(tmp_path: Path) -> None:
    run = make(tmp_path)

    def sample(t_ms: int, free: int, rss: int, device: int) -> tuple[str, int, dict[str, Any]]:
        card = {"index": 0, "name": "card", "free_bytes": device, "total_bytes": 90}
        where = {0: "begin", 2000: "end"}.get(t_ms, "periodic")
        used = {"cpu_s": 1.0, "rss_bytes": rss, "processes": 1, "host_busy_s": 1.0, "host_free_bytes": free}
        return "sample", t_ms * MS, {"where": where, **used, "host_total_bytes": 99, "devices": [card]}

    events(
        run, sample(0, 50, 5, 80), sample(700, 20, 7, 30), answered(), sample(1900, 30, 9, 10), sample(2000, 40, 6, 60)
    )
    mark(run, ("begin", 0), ("end", 2000 * MS))
    (segment,) = accounts.account(run.path)["segments"]
    assert segment["memory"] == {
        "host_free_min_bytes": 20,
        "at": 700 * MS,
        "host_total_bytes": 99,
        "devices": [{"index": 0, "name": "card", "free_min_bytes": 10, "at": 1900 * MS, "total_bytes": 90}],
        "server_rss_max_bytes": 9,
    }
    assert segment["server_cpu_s"] == 0.0
    whole = segment["whole"]
    assert segment["context"] == {
        "filled_tokens": whole["prompt_tokens"] + whole["decoded_tokens"],  # of the only request
        "request": "a0-r3",
        "broken_off_prompt_tokens": None,
        "configured_tokens": None,
        "setting": None,
    }
    table = pl.read_parquet(run.derived / "samples.parquet")
    assert table["device_free_bytes"].to_list() == [80, 30, 10, 60]
    assert accounts.load(run.path)["segments"] == [segment]


def test_a_server_whose_process_is_not_known_has_memory_and_no_cpu_seconds(tmp_path: Path) -> None:
    run = make(tmp_path)
    used = {"cpu_s": None, "rss_bytes": None, "processes": None, "host_busy_s": 1.0, "host_free_bytes": 4}
    events(
        run,
        ("sample", 0, {"where": "begin", **used, "host_total_bytes": 9, "devices": []}),
        answered(),
        ("sample", 2000 * MS, {"where": "end", **used, "host_total_bytes": 9, "devices": []}),
    )
    mark(run, ("begin", 0), ("end", 2000 * MS))
    (segment,) = accounts.account(run.path)["segments"]
    assert (segment["server_cpu_s"], segment["host_other_cpu_s"], segment["sampled_ns"]) == (None, None, None)
    assert (segment["memory"]["host_free_min_bytes"], segment["memory"]["server_rss_max_bytes"]) == (4, None)


def test_a_machine_that_others_kept_busy_is_doubted(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.write_manifest(run.read_manifest().model_copy(update={"host": {"cores": 4}}))

    def sample(where: str, t_ms: int, cpu_s: float, host_busy_s: float) -> tuple[str, int, dict[str, Any]]:
        used = {"cpu_s": cpu_s, "rss_bytes": 1, "processes": 1, "host_busy_s": host_busy_s, "host_free_bytes": 1}
        return "sample", t_ms * MS, {"where": where, **used}

    # 2 s on 4 cores are 8 CPU-s; the machine was busy for 5 of them, 2 by the server: others 3, 37.5 %.
    events(run, sample("begin", 0, 10.0, 100.0), answered(), sample("end", 2000, 12.0, 105.0))
    mark(run, ("begin", 0), ("end", 2000 * MS))
    found = accounts.account(run.path)
    assert (found["segments"][0]["host_other_cpu_s"], found["segments"][0]["sampled_ns"]) == (3.0, 2000 * MS)
    (doubt,) = (one for one in found["doubts"] if one["code"] == "busy-machine")
    assert "used 3.0 CPU-s in the 2.0 s between its first and last sample on 4 cores, 38 % of" in doubt["message"]


def test_a_server_without_usage_is_doubted_and_gives_no_number_to_compare(tmp_path: Path) -> None:
    run = make(tmp_path)
    kind, at, fields = answered()
    events(run, (kind, at, {**fields, "usage": None, "timings": None}))
    mark(run, ("begin", 0), ("end", 2000 * MS))
    found = accounts.account(run.path)
    assert doubts(found) == ["no-server-log", "no-usage"]
    assert found["usage_check"]["prompt_tokens"]["usage"] is None
    assert "to compare runs" not in terminal.render(found)


def test_a_request_broken_off_is_not_taken_for_one_that_ended_in_a_call(tmp_path: Path) -> None:
    # 5 requests: 1 answer, 1 tool call, 1 failed, 1 broken off; the fifth called a tool as its final answer.
    counts = {"requests": 5, "tool_calls": 1, "answers": 1, "failed_requests": 1, "calls_not_run": 1}
    run = make(tmp_path, status="cancelled", agents=({**AGENT, **counts},))
    events(run, ("request_sent", 200, {"request": "a0-r4", "agent": "a0", "turn": 4}))
    found = accounts.account(run.path)
    said = " ".join(terminal.render(found).split())
    assert (
        "requests 5 = tool calls 1 + answers 1 + failed 1 + broken off 1 + ended in a call instead of an answer 1"
        in said
    )


def test_what_is_no_run_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a run directory, there is no"):
        accounts.account(tmp_path / "none")
    with pytest.raises(InputError, match=r"expected a run directory \(with manifest\.json\)"):
        accounts.load(tmp_path)


@pytest.mark.parametrize("broken", ["{", "[]", '{"schema": "agentload.account/0"}'])
def test_an_account_that_is_not_whole_is_not_loaded(broken: str, tmp_path: Path) -> None:
    run = make(tmp_path)
    run.derived.mkdir()
    (run.derived / "account.json").write_text(broken, encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"account\.json: expected .*; delete .*/derived to have it made anew"):
        accounts.load(run.path)


def test_an_account_needs_no_folder_of_an_earlier_attempt_that_was_killed(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, done(FAILED))
    torn = run.path / ".derived.tmp"
    torn.mkdir()
    (torn / "junk").write_text("x", encoding="utf-8")
    accounts.account(run.path)
    assert sorted(path.name for path in run.path.glob("*derived*")) == ["derived"]
    assert not (run.derived / "junk").exists()
    assert not torn.exists()


def doubts(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["doubts"]]


def test_that_there_is_no_log_is_said_once(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    assert doubts(accounts.account(run.path)) == ["no-server-log"]


def test_a_log_that_the_run_had_and_that_is_gone_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    run.write_manifest(run.read_manifest().model_copy(update={"server": {"kind": "launch", "log_owned": True}}))
    (doubt,) = accounts.account(run.path)["doubts"]
    assert doubt["message"].startswith("server.log is missing, though the run had one")


def test_an_empty_log_is_said(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    run.server_log.touch()
    assert doubts(accounts.account(run.path)) == ["log-empty"]


def test_a_log_of_no_known_format_has_all_its_lines_counted_as_unknown(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    run.server_log.write_text("hello\nworld\n", encoding="utf-8")
    found = accounts.account(run.path)
    assert doubts(found) == ["log-format-unknown"]
    assert (found["lines"]["format"], found["lines"]["unknown"], found["lines"]["total"]) == ("unknown", 2, 2)
    assert "log (unknown): 2 lines = 0 understood" in terminal.render(found)


@pytest.mark.parametrize("name", ["server.log", "server.log.times", "events.jsonl", "markers.jsonl"])
def test_a_folder_in_the_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    run.server_log.write_text("hello\n", encoding="utf-8")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).mkdir()
    with pytest.raises(ArtifactError, match=rf"/{name}: (cannot be read: Is a directory|expected .* got a directory)$"):
        accounts.account(run.path)


@pytest.mark.parametrize(
    ("name", "said"),
    [("events.jsonl", "events.jsonl: cannot be read: No such file"), ("manifest.json", "with manifest.json")],
)
def test_a_missing_file_is_named(name: str, said: str, tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    (run.path / name).unlink()
    with pytest.raises((ArtifactError, InputError), match=said):
        accounts.account(run.path)


@pytest.mark.parametrize("name", ["events.jsonl", "markers.jsonl", "manifest.json"])
def test_an_empty_file_is_named(name: str, tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0))
    (run.path / name).write_bytes(b"")
    with pytest.raises(ArtifactError, match=rf"/{name}:.*(is empty$|got b'':)"):
        accounts.account(run.path)


def test_without_markers_jsonl_the_markers_in_the_log_tell_the_segment(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    lines = [markers.render(action, "s1", run.name, "c", at) for action, at in (("begin", 0), ("end", 2000 * MS))]
    run.server_log.write_bytes(b"\n".join((*lines, markers.render("begin", "s1", "another", "c", 5), b"")))
    found = accounts.account(run.path)
    assert doubts(found) == ["no-markers-file", "log-format-unknown"]
    (segment,) = found["segments"]
    assert (segment["run"], segment["whole"]["wall_ns"]) == (run.name, 2000 * MS)


def test_without_any_marker_it_is_said_that_there_are_no_sums(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    found = accounts.account(run.path)
    assert doubts(found) == ["no-markers-file", "no-server-log", "no-segment"]
    assert found["segments"] == []


def test_a_marker_of_another_run_is_named(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0))
    run.markers_path.write_bytes(run.markers_path.read_bytes().replace(run.name.encode(), b"other"))
    with pytest.raises(ArtifactError, match=rf"markers\.jsonl:2: run: expected {run.name}, as the .*, got other$"):
        accounts.account(run.path)


def test_requests_of_the_log_outside_the_markers_are_counted_under_their_own_name() -> None:
    """The log of a server that had been up for long made `matched 6/506` of a run in which all was matched."""
    segments = (Segment("s1", "r", "c", 10, 20),)
    ours = [request(request=f"a0-r{index}", t_sent=12, segment="s1") for index in range(2)]
    late = request(request="a0-r2", t_sent=25, match=Match.CLIENT_ONLY)  # ours counts wherever it lies
    strangers = [
        request(request=f"log boot 0 {at}", match=Match.SERVER_ONLY, prefill_start=at, segment=segment)
        for at, segment in ((5, None), (15, "s1"), (25, None), (26, None))
    ]
    rows = (*ours, late, *strangers)
    found = sections.requests(Attribution(rows, {}, (), ()), segments)
    assert found == {
        "total": 4,
        "matched": 2,
        "exact": 2,
        "unique": 0,
        "ambiguous": 0,
        "client_only": 1,
        "server_only": 1,
        "outside_segments": 3,
        "perhaps_ours": 0,
        "groups": [],
    }


def test_a_derived_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    run.path.chmod(0o555)
    code = "import sys; from agentload.cli import main; sys.argv[0] = 'agentload'; main()"
    words = [*bound_by_modes.prefix(), sys.executable, "-c", code, "account", str(run.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    run.path.chmod(0o755)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"agentload: {run.derived}: cannot be made: Permission denied; make {run.path} writable, or copy it and use "
        "the copy\n"
    )
    assert not run.derived.exists()


def test_an_account_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    accounts.account(run.path)
    path = run.derived / "account.json"
    path.chmod(0)
    code = "import sys; from agentload.cli import main; sys.argv[0] = 'agentload'; main()"
    words = [*bound_by_modes.prefix(), sys.executable, "-c", code, "report", str(run.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"agentload: {path}: cannot be read: Permission denied; make it readable, or delete {run.derived} to have it "
        "made anew\n"
    )


@pytest.mark.parametrize("command", ["report", "account"])
@pytest.mark.parametrize(("status", "code"), [("success", 0), ("partial", 1), ("started", 1)])
def test_a_run_that_was_cut_short_is_a_negative_finding(
    command: str, status: Status, code: int, tmp_path: Path
) -> None:
    run = make(tmp_path, status=status, agents=())
    events(run, done(FAILED))
    found = CliRunner().invoke(app, [command, str(run.path)])
    assert (found.exit_code, found.stdout.startswith(f"{run.name}  {status}")) == (code, True)


def test_an_account_of_an_ended_run_without_its_counts_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2000 * MS))
    accounts.account(run.path)
    path = run.derived / "account.json"
    path.write_text(path.read_text().replace('"work": {\n    "requests": 1', '"work": {\n    "requests": null'))
    with pytest.raises(ArtifactError, match=r"account\.json: .*work\.requests: expected a number in a run that has"):
        accounts.load(run.path)
