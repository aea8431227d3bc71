"""Can everybody see that a run is at work, while it is?"""

from pathlib import Path

import pytest

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.artifacts import alive
from agentload.artifacts.rundir import RunDir
from agentload.report import terminal
from agentload.run import runner, scenario
from tests.run.runs import environment

pytestmark = pytest.mark.anyio


async def test_a_run_is_held_and_reported_as_running_until_its_manifest_says_how_it_ended(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    opened: list[RunDir] = []
    held: list[bool] = []
    reports: list[str] = []
    room: list[bool] = []

    def say(line: str) -> None:
        if line == "a0 started":
            held.append(alive.is_held(opened[0].path))
            reports.append(terminal.render(accounts.load(opened[0].path)))
            room.append((opened[0].path / ".reserve").is_file())

    fields = {"agents": 1, "corpus": "tiny", "seed": 7, "server": {"kind": "twin"}}
    chosen = scenario.from_fields(fields, "")
    run = await runner.run(chosen, tmp_path, environment(cache_dir), say, opened=opened.append)
    assert (held, alive.is_held(run.path)) == ([True], False)
    assert room == [True]  # an account does not take it from the run
    (report,) = reports
    assert report.startswith(f"SIMULATED {run.name}  started, still running\n")
    assert "killed" not in report
    after = accounts.load(run.path)  # what was made on the way is not taken for the run's account
    assert (after["status"], after["running"]) == (run.read_manifest().status, False)
