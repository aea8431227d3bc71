"""Does a check against the ground truth find a run's accounting right where it is, and each wrong thing where not?

Two runs of two agents with real tools on the tiny corpus. One against `agentload twin serve`, started and owned as any
other server, on a machine 150 times as fast as the profile: its times are late by as much as this machine is busy. One
in virtual time, whose times are what the truth says on any machine: its raw files are then spoilt, one thing at a time.
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.analysis import logfile, truth
from agentload.artifacts.rundir import RunDir
from agentload.errors import InputError
from agentload.report import logfile_terminal, terminal
from agentload.twin.machine import machine
from tests.run.runs import AGENTLOAD, LIMITS, fields_of, make

Row = dict[str, Any]


@dataclass(frozen=True)
class Twinned:
    run: RunDir
    account: Row

    @property
    def truths(self) -> list[Row]:
        return rows(self.run)


def rows(run: RunDir) -> list[Row]:
    return [json.loads(line) for line in (run.path / truth.TRUTH).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def twinned(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Twinned:
    told = tmp_path_factory.mktemp("truth") / truth.TRUTH
    serve = ("twin", "serve", "--speed", "150", "--batched-session", "2", "--truth", str(told))
    launch = f"{shlex.join((*AGENTLOAD, *serve))} --port {{port}}"
    limits = {**LIMITS, "tool_calls": 4}
    made = anyio.run(
        lambda: make(
            tmp_path_factory.mktemp("runs"), cache_dir, fields_of(server={"launch": launch}, limits=limits, name="twin")
        )
    )
    shutil.copy(told, made.run.path / truth.TRUTH)
    return Twinned(made.run, accounts.account(made.run.path))


@pytest.fixture(scope="module")
def simulated(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Twinned:
    server = {"kind": "twin", "set": {"batched_session": 2}}
    fields = fields_of(server=server, limits={**LIMITS, "tool_calls": 4}, name="twin", seed=7)
    made = anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, fields)
    return Twinned(made.run, accounts.account(made.run.path))


@pytest.fixture
def copied(simulated: Twinned, tmp_path: Path) -> RunDir:
    return RunDir(shutil.copytree(simulated.run.path, tmp_path / simulated.run.name))


def changed(run: RunDir, change: Callable[[list[Row]], None]) -> truth.Check:
    """Check against a ground truth of which `change` has altered the requests."""
    found = rows(run)
    requests = [one for one in found if one.get("kind") == "request"]
    rest = [one for one in found if one.get("kind") != "request"]
    change(requests)
    (run.path / truth.TRUTH).write_text("".join(json.dumps(one) + "\n" for one in (*rest, *requests)), encoding="utf-8")
    return truth.check(run.path)


# ---- a run that is right -------------------------------------------------------------------------------------------


def test_a_run_against_a_launched_twin_is_accounted_like_one_against_a_real_server(twinned: Twinned) -> None:
    account, requests = twinned.account, [one for one in twinned.truths if one.get("kind") == "request"]
    assert (account["status"], account["lines"]["format"], account["lines"]["unknown"]) == ("success", "ds4", 0)
    matched = {name: account["requests"][name] for name in ("matched", "ambiguous", "client_only", "server_only")}
    assert matched == {"matched": len(requests), "ambiguous": 0, "client_only": 0, "server_only": 0}
    for log, of_truth in (("prompt_tokens",) * 2, ("cached_tokens",) * 2, ("decoded_tokens",) * 2):
        check = account["usage_check"][log]
        assert check["log"] == check["usage"] == sum(one[of_truth] for one in requests)
    assert twinned.run.read_manifest().server["exit_code"] == 0
    assert twinned.run.server_log.read_bytes().endswith(b" ds4-server: shutdown requested, draining requests\n")
    (quantum,) = (one for one in account["settings"] if one["name"] == "mixed_prefill_quantum")
    assert quantum["applied"] == 128


def test_a_launched_twin_is_called_simulated_by_its_own_log(twinned: Twinned) -> None:
    assert not twinned.run.read_manifest().simulated  # to the runner it was a server like any other
    assert twinned.account["simulated"]
    assert terminal.render(twinned.account).startswith("SIMULATED ")
    alone = logfile.read_file(twinned.run.server_log).found
    assert alone["simulated"]
    assert logfile_terminal.render(alone).startswith("SIMULATED: ")


def test_its_agents_call_tools_that_run_and_end_with_an_answer(twinned: Twinned) -> None:
    assert [one["end"] for one in twinned.account["agents"]] == ["wrapped_up", "wrapped_up"]
    assert twinned.account["work"]["tool_calls"] == 8
    assert twinned.account["work"]["answers"] == 2


def test_tokens_and_attribution_of_it_are_those_of_the_truth_and_each_boundary_is_there(twinned: Twinned) -> None:
    """How near the boundaries are depends on how busy this machine is; the next test has a run in virtual time."""
    began = [one for one in twinned.truths if one.get("kind") == "request"]
    for view in truth.check(twinned.run.path).views:
        assert (view.attribution_errors, view.token_errors) == ([], [])
        assert {name: (one.compared, one.missing) for name, one in view.boundaries.items()} == dict.fromkeys(
            ("prefill_start", "prefill_end", "decode_start", "decode_end"), (len(began), 0)
        )
        assert [one.holds for one in view.sums if one.name.endswith("_tokens")] == [True] * 4


def test_both_accounts_of_a_run_hold(simulated: Twinned) -> None:
    found = truth.check(simulated.run.path)
    joined, alone = found.views
    began = [one for one in simulated.truths if one.get("kind") == "request"]
    assert (joined.name, alone.name, found.requests) == ("log + client", "log alone", len(began))
    for view in found.views:
        assert (view.attribution_errors, view.token_errors) == ([], [])
        assert view.compared == view.requests == len(began)
        assert {name: (one.compared, one.wrong, one.missing) for name, one in view.boundaries.items()} == dict.fromkeys(
            ("prefill_start", "prefill_end", "decode_start", "decode_end"), (len(began), 0, 0)
        )
        assert [one.name for one in view.sums] == [
            *("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens"),
            *("prefill_union_ns", "decode_union_ns", "overlap"),
        ]
        assert all(one.holds for one in view.sums)
    assert joined.resolution_ns < alone.resolution_ns == 1_000_000_000
    assert found.holds


def test_the_busy_times_in_truth_are_those_of_the_engine(simulated: Twinned) -> None:
    """Prefill is longer than its engine calls by what it waits; all decode steps lie inside the decode union."""
    sums = {one.name: one.truth for one in truth.check(simulated.run.path).views[0].sums}
    calls = [one for one in simulated.truths if one.get("kind") == "engine_call"]
    steps = [one for one in simulated.truths if one.get("kind") == "decode_step"]
    assert sums["prefill_union_ns"] >= sum(one["end_ns"] - one["begin_ns"] for one in calls)
    assert sums["decode_union_ns"] >= sum(one["end_ns"] - one["begin_ns"] for one in steps)


# ---- runs that are wrong -------------------------------------------------------------------------------------------


def test_a_token_too_many_in_the_log_is_found(copied: RunDir) -> None:
    def one_less(requests: list[Row]) -> None:
        requests[3]["new_prefill_tokens"] -= 1

    found = changed(copied, one_less)
    assert not found.holds
    for view in found.views:
        assert len(view.token_errors) == 1
        assert "new_prefill_tokens" in view.token_errors[0]
        assert [one.name for one in view.sums if not one.holds] == ["new_prefill_tokens"]


def test_a_request_whose_lines_went_to_another_one_is_found(copied: RunDir) -> None:
    """The truth of two requests of the two agents is exchanged, all but their names: the client's ids know better."""

    def exchange(requests: list[Row]) -> None:
        first, second = requests[2], requests[3]
        first["request"], second["request"] = second["request"], first["request"]

    found = changed(copied, exchange)
    joined, alone = found.views
    assert len(joined.attribution_errors) == 2
    assert all("has lines of" in one for one in joined.attribution_errors)
    assert alone.attribution_errors == []  # a log knows no names
    assert not found.holds


def test_a_request_that_the_log_has_with_other_integers_is_found(copied: RunDir) -> None:
    def longer(requests: list[Row]) -> None:
        requests[1]["prompt_tokens"] += 7

    for view in changed(copied, longer).views:
        assert any("no request has these tokens" in one for one in view.attribution_errors)


def test_a_boundary_that_is_off_by_more_than_the_resolution_and_one_percent_is_found(copied: RunDir) -> None:
    def later(requests: list[Row]) -> None:
        requests[0]["decode_end_ns"] += 2_500_000_000

    for view in changed(copied, later).views:
        assert {name: one.wrong for name, one in view.boundaries.items()}["decode_end"] == 1
        assert view.boundaries["prefill_end"].wrong == 0


def test_a_boundary_that_is_off_by_less_than_the_logs_second_is_found_with_the_stamps_only(copied: RunDir) -> None:
    def earlier(requests: list[Row]) -> None:
        for one in requests:
            one["prefill_start_ns"] -= 400_000_000

    joined, alone = changed(copied, earlier).views
    assert joined.boundaries["prefill_start"].wrong == joined.compared
    assert alone.boundaries["prefill_start"].wrong == 0
    assert "prefill_union_ns" in [one.name for one in joined.sums if not one.holds]


def test_a_request_that_the_account_does_not_have_is_found(copied: RunDir) -> None:
    def another(requests: list[Row]) -> None:
        requests.append({**requests[0], "request": "r99", "prefill_start_ns": requests[0]["prefill_start_ns"] + 1})

    joined, alone = changed(copied, another).views
    assert len(alone.attribution_errors) == 1  # of two with the same integers a log without stamps tells neither
    assert alone.attribution_errors[0].endswith("the log's account does not have it")
    assert joined.attribution_errors == []  # no client of this run sent it


def test_lines_that_are_missing_from_the_log_are_found(copied: RunDir) -> None:
    lines = copied.server_log.read_bytes().splitlines(keepends=True)
    last = [at for at, line in enumerate(lines) if b" decoding " in line][-3]
    times = copied.server_times.read_bytes().splitlines(keepends=True)
    copied.server_log.write_bytes(b"".join(lines[:last]))
    copied.server_times.write_bytes(b"".join(times[:last]))
    joined, alone = truth.check(copied.path).views
    assert joined.attribution_errors  # decoded tokens that no request has
    assert alone.attribution_errors


@pytest.mark.parametrize("spoilt", [truth.TRUTH, "server.log"])
def test_what_is_needed_and_missing_is_said(copied: RunDir, spoilt: str) -> None:
    (copied.path / spoilt).unlink()
    with pytest.raises(InputError, match=r"expected (the ground truth|server\.log)"):
        truth.check(copied.path)


# ---- the commands --------------------------------------------------------------------------------------------------


def ran(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AGENTLOAD, "twin", *arguments], capture_output=True, text=True, check=False)


def test_the_command_says_what_it_compared_and_ends_with_0_when_all_holds(simulated: Twinned) -> None:
    done = ran("check", simulated.run.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"SIMULATED {simulated.run.name}: profile m3-ultra, seed 7, ")
    assert done.stdout.count("attribution errors 0") == 2
    assert done.stdout.endswith("\nholds\n")


def test_the_command_ends_with_1_and_names_what_is_wrong(copied: RunDir) -> None:
    def one_more(requests: list[Row]) -> None:
        requests[0]["decoded_tokens"] += 1

    changed(copied, one_more)
    done = ran("check", copied.path, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["simulated"], found["holds"]) == (1, True, False)
    assert any("no request has these tokens" in error for error in found["views"][0]["attribution_errors"])


def test_a_profile_fitted_to_this_run_is_one_that_serve_takes(twinned: Twinned, tmp_path: Path) -> None:
    """On a machine 150 times as fast a token takes (8 + 26 + 0.2) / 150 = 0.23 ms, the host's part included."""
    out = tmp_path / "mine.toml"
    done = ran("fit", twinned.run.path, "--name", "mine", "--out", out)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, str(out))
    made = machine(str(out))
    assert made.name == "mine"
    step_ms = 1e3 * (made.decode.idle_s.value + made.decode.idle_row_s.value)
    assert step_ms + made.host.token_ms.value == pytest.approx(0.23, abs=0.08)
