"""Does `agentload report` make pages and Markdown of runs and experiments, and leave other files alone?"""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agentload.analysis import account as accounts
from agentload.artifacts.design import ExperimentDir
from agentload.cli import app
from agentload.errors import InputError, UsageError
from agentload.report import export as exports
from agentload.report import markdown
from agentload.report.html import said_run
from tests.analysis.experiments import Ran, ds4_log, whole
from tests.analysis.test_account import AGENT
from tests.analysis.test_compare import QUANTA, published_runs
from tests.report.test_page import EVIL, many


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDir:
    return whole(QUANTA, tmp_path_factory.mktemp("cli") / "quanta", published_runs())


def report(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", *arguments])


def test_the_page_of_an_experiment_stands_in_its_folder_and_its_path_on_the_last_line(folder: ExperimentDir) -> None:
    done = report(str(folder.path), "--html")
    assert (done.exit_code, done.stdout) == (0, f"{folder.path / 'report.html'}\n")
    first = (folder.path / "report.html").read_bytes()
    assert report(str(folder.path), "--html").exit_code == 0  # its own page may be made again
    assert (folder.path / "report.html").read_bytes() == first


def test_the_page_of_a_run_has_its_exit_code(folder: ExperimentDir, tmp_path: Path) -> None:
    done = report(str(folder.runs / "01-A"), "--html", "--out", str(tmp_path / "one.html"))
    assert done.exit_code == 0
    assert "run 01-A" in (tmp_path / "one.html").read_text()


def test_an_experiment_is_shown_in_the_terminal_and_as_json(folder: ExperimentDir) -> None:
    assert "A (mixed_prefill_quantum=2048) is faster" in report(str(folder.path)).stdout
    printed = report(str(folder.path), "--json").stdout
    assert printed == (folder.derived / "comparison.json").read_text()


def test_a_file_that_is_no_page_of_ours_stays(folder: ExperimentDir, tmp_path: Path) -> None:
    precious = tmp_path / "notes.txt"
    precious.write_text("mine")
    done = report(str(folder.path), "--html", "--out", str(precious))
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(f"--out: {precious} is there already")
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--html", "--json"), "expected one of --json, --html and --markdown"),
        (("--out", "x.html"), "--out names the page's file: expected --html beside it"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    folder: ExperimentDir, arguments: tuple[str, ...], message: str
) -> None:
    done = report(str(folder.path), *arguments)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == message


def test_of_a_folder_that_is_neither_both_are_named(tmp_path: Path) -> None:
    done = report(str(tmp_path))
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == (
        f"expected a run's directory (with manifest.json) or an experiment's (with design.json), {tmp_path} is neither"
    )


def test_the_drift_has_its_unit(folder: ExperimentDir) -> None:
    (line,) = [line for line in report(str(folder.path), "--markdown").stdout.splitlines() if "drift from" in line]
    assert line.removesuffix("<br>").endswith(" tok/s.")


def test_markdown_has_the_answer_the_settings_and_the_tables(folder: ExperimentDir) -> None:
    lines = report(str(folder.path), "--markdown").stdout.splitlines()
    assert lines[0] == "### distinguished"
    assert lines[2].startswith("**A (mixed\\_prefill\\_quantum=2048) is faster: 2.20x the prefill speed of B")
    (row,) = [line for line in lines if line.startswith("| prefill\\_tok\\_s (decides) ")]
    assert [cell.strip() for cell in row.strip("|").split("|")][2:7] == [
        "distinguished",
        "confirmed",
        "273.3",
        "124.1",
        "2.20",
    ]
    tables = [line.count("|") for line in lines if line.startswith("|")]
    assert min(tables) > 1


def test_markdown_of_hostile_text_is_text(tmp_path: Path) -> None:
    hostile = {**AGENT, "task": EVIL + " @someone [x](http://y) | `z` *b*"}
    runs = {"01-A": Ran({"s1": many(4, 1)}, ds4_log(2048), agents=[hostile])}
    found = accounts.load(whole(QUANTA, tmp_path / "quanta", runs).runs / "01-A")
    told = markdown.render(said_run.of_run(found), simulated=True)
    assert "<script" not in told
    assert "<img" not in told
    assert "@someone" not in told
    (row,) = [line for line in told.splitlines() if "someone" in line]
    assert "\\[x\\](http://y) \\| \\`z\\` \\*b\\*" in row
    assert told.startswith("### **SIMULATED** success")


def test_a_long_reason_does_not_push_the_answer_off_the_page(tmp_path: Path) -> None:
    runs = {"01-A": Ran({"s1": many(4, 1)}, ds4_log(2048))}
    found = accounts.load(whole(QUANTA, tmp_path / "quanta", runs).runs / "01-A") | {"why": "w" * 10_000}
    assert 300 < len(said_run.of_run(found).sentence) < 600


def test_a_run_without_an_end_or_a_writer_is_called_killed(tmp_path: Path) -> None:
    runs = {"01-A": Ran({"s1": many(4, 1)}, ds4_log(2048))}
    found = accounts.load(whole(QUANTA, tmp_path / "quanta", runs).runs / "01-A") | {"status": "started"}
    assert said_run.of_run({**found, "running": False}).outcome == "killed before its end"
    assert said_run.of_run({**found, "running": True}).outcome == "still running"


def test_csv_tells_null_from_an_empty_text(folder: ExperimentDir, tmp_path: Path) -> None:
    run = folder.runs / "01-A"
    found = accounts.load(run)
    files = exports.write(tmp_path / "out", exports.by_name("csv"), run / "derived", accounts.text(found)).files
    assert [one.name for one in files[:3]] == ["account.json", "requests.csv", "requests.schema.json"]
    header, *rows = files[1].read_text().splitlines()
    first = dict(zip(header.replace('"', "").split(","), rows[0].split(","), strict=True))
    assert (first["run"], first["new_prefill_tokens"], first["slot"]) == ('"01-A"', "139599", "")
