"""Is an account made of raw files alone, and does it say what is missing instead of guessing?"""

from pathlib import Path
from typing import Any

import pytest

from agentload.analysis import account as accounts
from agentload.artifacts import rundir, schemas
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.artifacts.rundir import EventLog, RunDir, Status
from agentload.errors import ArtifactError, InputError
from agentload.report import terminal
from tests.analysis.test_evidence import FAILED, MANIFEST, WHOLE, done, events

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
    assert (whole["prefill_tok_s"], whole["decode_tok_s"]) == (500.0, 100.0)
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
        "broken_off": 1,
        **dict.fromkeys(("answers", "nudges", "calls_not_run", "failed_calls", "repeated_calls")),
    }
    assert found["segments"][0]["whole"]["wall_ns"] is None


def test_a_request_broken_off_is_not_taken_for_one_that_ended_in_a_call(tmp_path: Path) -> None:
    # 5 requests: 1 answer, 1 tool call, 1 failed, 1 broken off; the fifth called a tool as its final answer.
    counts = {"requests": 5, "tool_calls": 1, "answers": 1, "failed_requests": 1, "calls_not_run": 1}
    run = make(tmp_path, status="cancelled", agents=({**AGENT, **counts},))
    events(run, ("request_sent", 200, {"request": "a0-r4", "agent": "a0", "turn": 4}))
    found = accounts.account(run.path)
    assert (
        "requests 5 = tool calls 1 + answers 1 + failed 1 + broken off 1 + ended in a call instead of an answer 1\n"
        in terminal.render(found)
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
    with pytest.raises(ArtifactError, match=r"account\.json: expected .*; delete derived/ to have it made anew"):
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
