"""Does `agentload ab` do an experiment, go on with one, say how far it is, and tell a mistake at once?"""

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agentload.agents import workspace
from agentload.artifacts.alive import Hold
from agentload.artifacts.design import ExperimentDir
from agentload.cli import app
from agentload.commands.ab import deadline_ns
from agentload.errors import ArtifactError, EndpointError, InputError, UsageError
from agentload.run import experiment_file
from tests.run.runs import environment

SMALL = ("--server", "twin", "--corpus", "tiny", "--agents", "2", "--tool-calls", "4")
VARY = ("--vary", "mixed_prefill_quantum=2048,128")
LAUNCH = "ds4-server --port {port} --mixed-prefill-quantum {q}"


def here(cache_dir: Path, *arguments: str, url: str | None = None) -> Result:
    return CliRunner().invoke(app, ["ab", *arguments], env={**environment(cache_dir), "OPENAI_BASE_URL": url})


@pytest.fixture(scope="module")
def made(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A whole experiment, and what was said of it."""
    out = tmp_path_factory.mktemp("ab")
    result = here(cache_dir, *SMALL, *VARY, "--repeat", "2", "--name", "night", "--out", str(out))
    return out / "night", result


@pytest.fixture
def night(made: tuple[Path, Result], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made[0], tmp_path / "out" / "night"))


def test_one_command_prints_the_report_and_the_experiments_path_last(made: tuple[Path, Result]) -> None:
    path, result = made
    # 1.7 times the prefill speed, whose runs differ by less than a per cent: distinguished at two starts a side.
    assert (result.exit_code, result.exception) == (0, None)
    assert result.stdout.splitlines()[-1] == str(path)
    assert "SIMULATED" in result.stdout.splitlines()[0]
    assert [one.name for one in sorted((path / "runs").iterdir())] in (
        ["01-A", "02-B", "03-B", "04-A"],
        ["01-B", "02-A", "03-A", "04-B"],
    )


def test_the_plan_and_how_long_it_takes_are_said_before_the_first_run(made: tuple[Path, Result]) -> None:
    said = made[1].stderr.splitlines()
    beginnings = ["experiment: SIMULATED", "order: ", "settings that must be proven", "verdict: ", "expected: "]
    assert [line[: len(start)] for line, start in zip(said, beginnings, strict=False)] == beginnings
    assert said[5] == f"experiment directory: {made[0]}"
    assert said[6].startswith("run 1 of 4: ")


def test_the_experiment_that_is_kept_makes_the_same_design(made: tuple[Path, Result]) -> None:
    path, _ = made
    kept = experiment_file.read(path / "experiment.toml")
    assert (kept.name, kept.repeats, kept.vary) == ("night", 2, {"mixed_prefill_quantum": (2048, 128)})
    planned = ExperimentDir(path).read_design()
    assert planned.expected_s is not None
    assert {step.run for step in planned.steps} == {one.name for one in (path / "runs").iterdir()}


def test_the_same_command_again_runs_nothing_and_compares_again(cache_dir: Path, night: Path) -> None:
    before = {path: path.read_bytes() for path in night.rglob("*") if path.is_file()}
    shutil.rmtree(night / "derived")
    result = here(cache_dir, *SMALL, *VARY, "--repeat", "2", "--name", "night", "--out", str(night.parent), "--json")
    assert result.exit_code == 0
    said = f"{night} is complete, 4 runs: they are verified, and the comparison is made again"
    assert result.stderr.splitlines()[0] == said
    assert json.loads(result.stdout)["schema"] == "agentload.comparison/1"
    assert {path: path.read_bytes() for path in night.rglob("*") if path.is_file()} == before


def test_a_directory_goes_on_where_it_was_to_the_same_comparison(cache_dir: Path, night: Path) -> None:
    whole = (night / "derived" / "comparison.json").read_bytes()
    last = ExperimentDir(night).read_design().steps[-1].run
    shutil.rmtree(night / "runs" / last)
    result = here(cache_dir, str(night), "--quiet")
    assert result.exit_code == 0
    assert (night / "runs" / last).is_dir()
    assert (night / "derived" / "comparison.json").read_bytes() == whole
    assert result.stdout.splitlines()[-1] == str(night)


def test_one_that_is_begun_by_another_at_the_same_time_is_refused_and_nothing_of_it_touched(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    others = tmp_path / "night"
    others.mkdir()
    hold = Hold(others)  # as it is before the other one has written its design
    try:
        result = here(cache_dir, *SMALL, *VARY, "--name", "night", "--out", str(tmp_path))
    finally:
        hold.release()
    assert isinstance(result.exception, ArtifactError)
    assert str(result.exception) == f"{others}: is being written by another agentload"
    assert list(others.iterdir()) == []


def test_another_design_in_the_same_directory_is_refused_with_the_difference(cache_dir: Path, night: Path) -> None:
    vary = ("--vary", "mixed_prefill_quantum=1024,128")
    result = here(cache_dir, *SMALL, *vary, "--repeat", "2", "--name", "night", "--out", str(night.parent))
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        f"{night} holds another experiment: mixed_prefill_quantum=2048,128 there, mixed_prefill_quantum=1024,128 here; "
        "name another with --name or --out"
    )


def test_a_directory_takes_no_option_that_would_change_it(cache_dir: Path, night: Path) -> None:
    result = here(cache_dir, str(night), "--repeat", "3", "--agents", "2")
    assert isinstance(result.exception, UsageError)
    assert "goes on with it: expected no --repeat, --agents" in str(result.exception)


def test_a_file_names_its_directory_and_an_option_wins_over_it(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    path = tmp_path / "q.toml"
    text = (
        'schema = "agentload.experiment/1"\n# why\nrepeats = 1\n[scenario]\nagents = 1\ncorpus = "tiny"\n'
        '[scenario.limits]\ntool_calls = 3\n[scenario.server]\nkind = "twin"\n[vary]\nctx = [100000, 200000]\n'
    )
    path.write_text(text, encoding="utf-8")
    out = ("--out", str(tmp_path / "experiments"), "--quiet")
    # One start a side is no verdict: the finding is negative.
    assert here(cache_dir, str(path), *out).exit_code == 1
    assert (tmp_path / "experiments" / "q" / "experiment.toml").read_text(encoding="utf-8") == text
    result = here(cache_dir, str(path), "--vary", "ctx=100000,150000", "--name", "other", *out)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, str(tmp_path / "experiments" / "other"))
    assert experiment_file.read(tmp_path / "experiments" / "other" / "experiment.toml").vary == {
        "ctx": (100000, 150000)
    }


def test_status_says_what_came_of_each_run_and_what_is_left(cache_dir: Path, night: Path) -> None:
    lines = here(cache_dir, "status", str(night)).stdout.splitlines()
    assert lines[0] == f"SIMULATED {night}: mixed_prefill_quantum=2048,128, prefill_tok_s"
    assert [line.split()[1].rstrip(",") for line in lines[1:5]] == ["success"] * 4
    assert lines[5] == "4 of 4 runs done; no process is at it"
    assert lines[6].startswith("last event: experiment_done, ")


def test_status_in_json_has_the_same(cache_dir: Path, night: Path) -> None:
    first = ExperimentDir(night).read_design().steps[0].run
    shutil.rmtree(night / "runs")
    (night / "journal.jsonl").unlink()
    found = json.loads(here(cache_dir, "status", str(night), "--json").stdout)
    assert (found["total"], found["done"], found["at_work"], found["last"]) == (4, 0, False, None)
    assert found["runs"][0]["run"] == first
    assert {one["status"] for one in found["runs"]} == {"to do"}
    # Nothing is finished: what was foretold is all that is known, 0.8 to 6 s for each of two agents.
    assert found["left_s"] == pytest.approx(4 * 2 * 3.4, rel=0.02)


def test_a_finished_run_that_was_changed_is_named(cache_dir: Path, night: Path) -> None:
    run = ExperimentDir(night).read_design().steps[0].run
    log = night / "runs" / run / "server.log"
    log.write_bytes(log.read_bytes().replace(b"2048", b"1024"))
    result = here(cache_dir, str(night))
    assert isinstance(result.exception, ArtifactError)
    assert str(log) in str(result.exception)
    assert result.stdout.splitlines() == [str(night)]


def refused(result: Result) -> str:
    """Its one line."""
    assert isinstance(result.exception, (UsageError, InputError, EndpointError))
    assert result.stdout == ""
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--vary: expected what varies"),
        (
            ("--launch", LAUNCH),
            "--launch: {q} has no values (--vary q=V1,V2): there are {port}, {kv_dir}, {export_dir}",
        ),
        (("--launch", LAUNCH, "--vary", "k=1,2"), "--vary: expected {k} in the command (--launch)"),
        (("--launch", LAUNCH + " {z}", "--vary", "q=1,2"), "--launch: {z} has no values"),
        (("--launch", LAUNCH, "--vary", "q=1,1"), "--vary: the same value twice: q=1"),
        (("--launch", LAUNCH, "--vary", "q=1"), "--vary: expected two or more values, got one: 1"),
        (("--launch", LAUNCH, "--vary", "q"), "--vary: expected NAME=V1,V2,..., got 'q'"),
        (("--launch", LAUNCH, "--vary", "q=1,2", "--vary", "r=1,2"), "--vary: expected one factor, got q and r"),
        (("--launch", "serve {q}", "--vary", "q=1,2"), "--launch: expected the server's address"),
        (("--server", "twin", "--vary", "quantum=1,2"), "no option 'quantum': expected prefill_quantum"),
        (("--server", "twin", *VARY, "--set", "mixed_prefill_quantum=1"), "(--set) is given too"),
        (
            ("--server", "twin", *VARY, "--workload", "replay"),
            "--workload: expected 'agents', 'fixed' or 'probe', got 'replay'",
        ),
        (("--server", "twin", *VARY, "--metric", "speed"), "--metric: expected a metric: prefill_tok_s"),
        (("--server", "twin", *VARY, "--repeat", "0"), "--repeat: expected at least 1, got 0"),
        (("--server", "twin", *VARY, "--name", "../x"), "--name: expected 1 to 64 letters"),
        (("--server", "twin", *VARY, "--until", "24:00"), "--until: expected a time of day, HH:MM, got '24:00'"),
        (("--base-url", "http://127.0.0.1:1/v1", "--vary", "q=1,2"), "--base-url: agentload does not start"),
        (("--server-args", "-ub '{q}", "--vary", "q=1,2"), "--server-args: No closing quotation"),
        (("nothing.toml",), "nothing.toml: expected an experiment's file or directory, there is nothing"),
        (("a.toml", "b.toml"), "expected one experiment's file or directory, got a.toml and b.toml"),
        (("status",), "ab status: expected one experiment's directory, got none"),
        (("status", "."), "expected an experiment's directory (with design.json), . is none"),
        ((".",), "expected an experiment's directory (with design.json), . is none"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_made(
    options: Sequence[str], message: str, cache_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    known = options[:1] in (("status",), (".",))
    said = refused(here(cache_dir, *options, *([] if known else ["--out", str(out)])))
    assert message in said
    assert not out.exists()


def test_a_server_of_the_environment_cannot_be_restarted(cache_dir: Path, tmp_path: Path) -> None:
    options = ("--server-args", "-ub {q}", "--vary", "q=512,8", "--out", str(tmp_path / "out"))
    said = refused(here(cache_dir, *options, url="http://127.0.0.1:1/v1"))
    assert said.startswith("OPENAI_BASE_URL is set (http://127.0.0.1:1/v1), a server that agentload does not start")
    assert not (tmp_path / "out").exists()


def test_a_directory_that_holds_something_else_is_left_alone(cache_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work", encoding="utf-8")
    said = refused(here(cache_dir, *SMALL, *VARY, "--name", "mine", "--out", str(tmp_path)))
    assert "there is thesis.txt and no design.json" in said
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_run_that_would_not_end_before_the_deadline_is_not_begun(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """Agents that may work for 60 hours, half of which are expected: more than any time of day is away."""
    launch = ("--launch", f"{sys.executable} --port {{port}} -c {{q}}", "--vary", "q=1,2", "--wall", "216000")
    result = here(cache_dir, *launch, "--corpus", "tiny", "--until", "12:00", "--name", "x", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert list((tmp_path / "x" / "runs").iterdir()) == []
    assert f"incomplete: 0 of 6 runs are done; `agentload ab {tmp_path / 'x'}` goes on" in result.stderr


def test_an_experiment_that_was_killed_before_its_design_was_written_begins_anew(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "experiment.toml").write_text("torn", encoding="utf-8")
    launch = ("--launch", f"{sys.executable} --port {{port}} -c {{q}}", "--vary", "q=1,2", "--wall", "216000")
    here(cache_dir, *launch, "--corpus", "tiny", "--until", "12:00", "--name", "x", "--out", str(tmp_path))
    assert experiment_file.read(tmp_path / "x" / "experiment.toml").vary == {"q": (1, 2)}
    assert ExperimentDir(tmp_path / "x").read_design().repeats == 3


def test_an_endpoint_of_the_environment_becomes_part_of_a_request_experiments_design(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """Nobody answers there: the night ends in one line, and its directory says which server was meant."""
    options = ("--vary", "request.reasoning_effort=high,low", "--corpus", "tiny", "--name", "x", "--out", str(tmp_path))
    result = here(cache_dir, *options, "--quiet", url="http://127.0.0.1:1/v1")
    assert result.exit_code != 0
    scenario = ExperimentDir(tmp_path / "x").read_design().variants[0].scenario
    assert (scenario["server"]["kind"], scenario["server"]["base_url"]) == ("endpoint", "http://127.0.0.1:1/v1")


@pytest.mark.parametrize("text", ["23:30", "07:05", "7:05", "12:00", "00:00"])
def test_a_deadline_is_the_next_time_the_clock_on_the_wall_shows_it(text: str) -> None:
    now = datetime(2026, 11, 29, 12, 0, 30, tzinfo=UTC)
    then = datetime.fromtimestamp(deadline_ns(text, now) / 1e9, UTC)
    assert then.astimezone().strftime("%H:%M:%S") == f"{text:0>5}:00"
    assert timedelta(0) < then - now <= timedelta(hours=24)


def test_the_minute_that_the_clock_shows_now_is_tomorrows() -> None:
    now = datetime(2026, 11, 29, 12, 0, 30, tzinfo=UTC)
    then = datetime.fromtimestamp(deadline_ns(now.astimezone().strftime("%H:%M"), now) / 1e9, UTC)
    assert then - now == timedelta(hours=24) - timedelta(seconds=30)


@pytest.mark.parametrize("text", ["24:00", "12:60", "noon", "12", "12:5", "-1:00", "12:00:00"])
def test_what_is_no_time_of_day_is_no_deadline(text: str) -> None:
    with pytest.raises(UsageError, match="--until: expected a time of day"):
        deadline_ns(text, datetime(2026, 11, 29, tzinfo=UTC))
