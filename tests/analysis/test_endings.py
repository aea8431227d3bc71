"""Is a run whose events break off no success, and does a wait at the end not thin the shares without a word?"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentload.analysis import account as accounts
from agentload.analysis import endings
from agentload.artifacts.rundir import RunDir, Status
from agentload.cli import app
from agentload.core.records import Doubt, Segment
from tests.analysis.test_account import AGENT, MS, answered, make, mark
from tests.analysis.test_evidence import events
from tests.analysis.test_tables import request

S = 1_000_000_000


def marker(action: str, t_ns: int) -> tuple[str, int, dict[str, Any]]:
    return "marker_written", t_ns, {"action": action, "segment": "s1", "where": "sidecar"}


def ended(agent: str, t_ns: int) -> tuple[str, int, dict[str, Any]]:
    return "agent_done", t_ns, {"agent": agent, "end": "answered"}


def whole_run(out: Path, status: Status = "success") -> RunDir:
    """Of 2 s: a request sent and answered, and what a run writes around it."""
    run = make(out, status=status)
    asked = ("request_sent", 100 * MS, {"request": "a0-r3", "agent": "a0", "turn": 3})
    events(run, marker("begin", 0), asked, answered(), ended("a0", 1200 * MS), marker("end", 2000 * MS))
    mark(run, ("begin", 0), ("end", 2000 * MS))
    return run


def cut(run: RunDir, lines: int, more: int = 0) -> None:
    """Leave so many whole lines of events.jsonl, its schema line among them, and so many bytes of the next one."""
    kept = run.events_path.read_bytes().splitlines(keepends=True)
    run.events_path.write_bytes(b"".join(kept[:lines]) + b"".join(kept[lines : lines + 1])[:more])


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["doubts"]]


# ---- events that break off -------------------------------------------------------------------------------------------


def test_a_run_with_all_its_events_is_what_its_manifest_says(tmp_path: Path) -> None:
    found = accounts.account(whole_run(tmp_path).path)
    assert (found["status"], found["why"]) == ("success", None)
    assert not {"torn-events", "events-cut-off"} & set(codes(found))


@pytest.mark.parametrize(
    ("lines", "more", "code", "why"),
    [
        (5, 20, "torn-events", "its last event is cut off"),
        (3, 20, "torn-events", "its last event is cut off"),
        (5, 0, "events-cut-off", "segment s1 begins in it and does not end"),
        (2, 0, "events-cut-off", "segment s1 begins in it and does not end"),
        (1, 0, "events-cut-off", "it has none of the requests that the manifest counts"),
    ],
)
def test_a_run_whose_events_break_off_is_no_success(lines: int, more: int, code: str, why: str, tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    cut(run, lines, more)
    found = accounts.account(run.path)
    assert (found["status"], found["why"]) == ("partial", f"events.jsonl is not whole: {why}")
    assert [one for one in codes(found) if one in {"torn-events", "events-cut-off"}] == [code]


@pytest.mark.parametrize("command", ["account", "report"])
def test_both_commands_say_so_and_end_with_1(command: str, tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    cut(run, 4, 20)
    done = CliRunner().invoke(app, [command, str(run.path)])
    assert (done.exit_code, f"{run.name}  partial: events.jsonl" in " ".join(done.stdout.split(" "))) == (1, True)


def test_a_run_without_an_end_marker_is_no_success(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0))
    found = accounts.account(run.path)
    assert (found["status"], found["why"]) == ("partial", "segment s1 has no end marker")


@pytest.mark.parametrize("status", ["started", "partial", "cancelled", "error", "invalid"])
def test_what_is_no_success_stays_what_it_is(status: Status, tmp_path: Path) -> None:
    run = whole_run(tmp_path, status)
    cut(run, 4, 20)
    assert accounts.account(run.path)["status"] == status


def test_a_run_that_sent_nothing_lacks_nothing(tmp_path: Path) -> None:
    run = make(tmp_path, agents=({**AGENT, "requests": 0},))
    events(run)
    assert (accounts.account(run.path)["status"], json.loads(run.manifest_path.read_text())["status"]) == (
        "success", "success"
    )  # fmt: skip


# ---- the wait at the end ---------------------------------------------------------------------------------------------


def waits(*done_s: float, end_s: float | None = 50.0) -> list[Doubt]:
    """Of a segment of 50 s with two requests: prefill from 0 to 8 s and 4 to 12, decode from 12 to 45 s."""
    rows = [
        request(run="r", segment="s1", prefill_start=0, prefill_end=8 * S, decode_start=None, decode_end=None),
        request(run="r", segment="s1", prefill_start=4 * S, prefill_end=12 * S, decode_start=12 * S, decode_end=45 * S),
        request(run="r", segment="s2", prefill_start=0, prefill_end=40 * S, decode_start=None, decode_end=None),
    ]
    segment = Segment("s1", "r", "c", 0, None if end_s is None else round(end_s * S))
    return endings.last_waits(rows, [segment], [round(at * S) for at in done_s])


def test_a_wait_at_the_end_is_said_with_the_shares_of_the_time_before_it() -> None:
    # The last agent ended at 40 s. Prefill: 12 of 40 s. Decode: 12 to 45 s, of which 28 s lie before.
    (doubt,) = waits(30, 40)
    assert doubt.code == "wait-at-the-end"
    assert doubt.message == (
        "segment s1: the last 10.0 s of its 50.0 s are the wait for open requests after its last agent had ended; "
        "shares of the wall include it: of the 40.0 s until then prefill 30.0 % and decode 70.0 %"
    )


@pytest.mark.parametrize(("done_s", "end_s", "said"), [
    (49.1, 50.0, 0),  # 0.9 s: a server's last lines
    (49.0, 50.0, 1),  # 1 s, 2 % of it
    (1990.0, 2000.0, 0),  # 10 s, 0.5 % of it
    (990.0, 1000.0, 1),  # 1 %
    (60.0, 50.0, 0),  # an agent of a later segment
])  # fmt: skip
def test_a_short_wait_is_none(done_s: float, end_s: float, said: int) -> None:
    assert len(waits(done_s, end_s=end_s)) == said


def test_a_segment_without_an_end_or_without_agents_that_ended_waits_for_nothing() -> None:
    assert (waits(40, end_s=None), waits()) == ([], [])


def test_the_account_of_a_run_says_it(tmp_path: Path) -> None:
    run = make(tmp_path, status="cancelled")
    events(run, marker("begin", 0), answered(), ended("a0", 1200 * MS), marker("end", 11_200 * MS))
    mark(run, ("begin", 0), ("end", 11_200 * MS))
    (doubt,) = [one for one in accounts.account(run.path)["doubts"] if one["code"] == "wait-at-the-end"]
    # Prefill 200 ms and decode 500 ms, by the answer's timings: of 1.2 s, not of 11.2 s.
    assert doubt["message"] == (
        "segment s1: the last 10.0 s of its 11.2 s are the wait for open requests after its last agent had ended; "
        "shares of the wall include it: of the 1.2 s until then prefill 16.7 % and decode 41.7 %"
    )
