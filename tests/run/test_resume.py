"""Is the result of a night that was killed, or whose disk was full, that of an undisturbed one, and what is refused?"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from agentload.agents import workspace
from agentload.analysis import compare
from agentload.artifacts.design import ExperimentDir
from agentload.artifacts.journal import RunSetAside, Stopped
from agentload.artifacts.rundir import RunDir
from agentload.errors import ArtifactError, UsageError
from agentload.run import experiment
from tests.confined import FULL, without
from tests.run import nights
from tests.run.runs import ROOT

NAMES = nights.names(nights.six())
DRIVER = [sys.executable, "-m", "tests.run.night_driver"]


@pytest.fixture(scope="module")
def undisturbed(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "night"
    outcome, _ = anyio.run(lambda: nights.night(nights.six(), path, cache_dir))
    assert outcome == experiment.Outcome(total=6, done=6, stopped=None, failed=(), ran=6)
    return path


@pytest.fixture
def copied(undisturbed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "night"))


def assert_equal(path: Path, undisturbed: Path) -> None:
    assert nights.raw(path, NAMES) == nights.raw(undisturbed, NAMES)
    assert nights.accounts(path, NAMES) == nights.accounts(undisturbed, NAMES)
    assert comparison(path) == comparison(undisturbed)


def comparison(path: Path) -> dict[str, bytes]:
    """The bytes of the comparison, of a copy: what is compared may not have been there before."""
    with TemporaryDirectory() as folder:
        copy = ExperimentDir(Path(shutil.copytree(path, Path(folder) / "night")))
        compare.compare(copy)
        return {file.name: file.read_bytes() for file in copy.derived.iterdir()}


def test_an_undisturbed_night_does_the_runs_of_the_design_in_its_order(undisturbed: Path) -> None:
    # Blocks of two, the second reversed, the third as the second (crossover's tests work the order out by hand).
    assert NAMES == ["01-B", "02-A", "03-A", "04-B", "05-A", "06-B"]
    told = [(one.event, getattr(one, "run", None)) for one in nights.events(undisturbed)]
    both = [(event, name) for name in NAMES for event in ("run_started", "run_done")]
    assert told == [("experiment_started", None), *both, ("experiment_done", None)]
    for name in NAMES:
        manifest = RunDir(undisturbed / "runs" / name).read_manifest()
        assert (manifest.run, manifest.scenario["condition"]) == (name, name[-1])
        assert manifest.scenario["server"]["boot"] == int(name[:2]) - 1
    assert sorted(path.name for path in undisturbed.iterdir()) == ["design.json", "journal.jsonl", "runs"]


def test_kill_9_of_agentload_at_five_places_changes_no_byte_of_the_result(
    undisturbed: Path, cache_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "night"
    places = [
        "01-B: server:",  # the run is begun, and has no directory yet
        "02-A: a0 started",  # an agent is at work
        "03-A: a0 wrapped_up",  # and done
        "judging 03-A",  # the manifest is whole, the journal does not know yet
        "05-A: success",  # it knows
    ]
    command = [*DRIVER, "kill", str(path), str(cache_dir), *places]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcome, said = anyio.run(lambda: nights.night(nights.six(), path, cache_dir))
    assert (outcome.done, outcome.ran, outcome.stopped) == (6, 1, None)
    assert not any("set aside" in line for line in said)
    assert_equal(path, undisturbed)
    aside = [(one.run, one.to) for one in nights.events(path, "run_set_aside") if isinstance(one, RunSetAside)]
    assert aside == [("02-A", "02-A.1"), ("03-A", "03-A.1"), ("03-A", "03-A.2")]
    assert RunDir(path / "runs" / "02-A.1").read_manifest().status == "started"
    assert len(nights.events(path, "resumed")) == 5


def test_a_disk_that_is_full_in_mid_run_ends_the_night_in_one_line_and_it_goes_on_when_there_is_room(
    undisturbed: Path, cache_dir: Path, tmp_path: Path
) -> None:
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    out.mkdir()
    command = [*DRIVER, "full", str(disk), str(cache_dir), str(out)]
    done = without(FULL, command, disk, kib=16_384, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    told = json.loads((out / "told.json").read_text())
    reason, nothing = told["stopped"]
    assert os.strerror(28) in reason
    assert "\n" not in reason
    assert reason.startswith("03-A: ")
    assert nothing is None
    assert told["done"] == [2, 6]
    (line,) = [one for one in told["said"] if one.startswith("stopped: ")]
    assert line == f"stopped: {reason}; once there is room, `agentload ab {disk}` goes on where it was"
    assert_equal(out / "experiment", undisturbed)
    (stopped,) = nights.events(out / "experiment", "stopped")
    assert isinstance(stopped, Stopped)
    assert stopped.why == reason


def test_an_experiment_that_is_complete_is_looked_through_and_nothing_is_written_into_its_journal(
    copied: Path, cache_dir: Path
) -> None:
    before = (copied / "journal.jsonl").read_bytes()
    outcome, said = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    assert (outcome.done, outcome.ran, said) == (6, 0, [])
    assert (copied / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["server.log", "agents/a0/messages.jsonl", "manifest.json"])
def test_a_finished_run_that_was_changed_is_one_error_that_names_the_file(
    copied: Path, cache_dir: Path, name: str
) -> None:
    file = copied / "runs" / "04-B" / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ArtifactError) as caught:
        anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    assert str(caught.value).startswith(f"{file}: expected what the run wrote (sha256 ")
    assert str(caught.value).endswith(
        f"put back what was there, or remove {file.parents[len(Path(name).parts) - 1]} to have it run again"
    )


def test_a_raw_file_that_is_gone_is_named(copied: Path, cache_dir: Path) -> None:
    file = copied / "runs" / "01-B" / "markers.jsonl"
    file.unlink()
    with pytest.raises(ArtifactError, match=rf"^{file}: expected a file, it is gone; "):
        anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))


def test_derived_files_may_be_deleted_or_edited_and_a_run_that_is_gone_is_run_again(
    copied: Path, cache_dir: Path, undisturbed: Path
) -> None:
    shutil.rmtree(copied / "runs" / "01-B" / "derived")
    (copied / "runs" / "02-A" / "derived" / "account.json").write_text("{}")
    shutil.rmtree(copied / "runs" / "06-B")
    outcome, said = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    assert (outcome.done, outcome.ran) == (6, 1)
    assert said[0] == f"{copied / 'runs' / '06-B'} is gone, though it was finished: it is run again"
    assert_equal(copied, undisturbed)


def test_an_account_that_is_another_when_it_is_made_again_is_an_error_unless_another_version_had_made_it(
    copied: Path, cache_dir: Path
) -> None:
    """The journal of an experiment of which 02-A was accounted for otherwise, by this version or by another one."""
    book = copied / "journal.jsonl"
    digest = hashlib.sha256((copied / "runs" / "02-A" / "derived" / "account.json").read_bytes()).hexdigest()
    text = book.read_text().replace(digest, "0" * 64)
    book.write_text(text)
    file = copied / "runs" / "02-A" / "derived" / "account.json"
    with pytest.raises(ArtifactError, match=rf"^{file}: expected what was made that night of the same raw files"):
        anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    book.write_text(text.replace(f'"version":"{version("agentload")}"', '"version":"0.0.1"'))
    for _ in range(2):
        shutil.rmtree(copied / "runs" / "06-B")
        outcome, said = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
        assert (outcome.done, outcome.ran) == (6, 1)
        assert said[0] == "02-A: another version of agentload made its account, which was made again and is another now"


def test_a_torn_last_line_of_the_journal_is_read_over_and_said(
    copied: Path, cache_dir: Path, undisturbed: Path
) -> None:
    """The last but one line tells that 06-B is done: cut off, the run is one that nothing came of."""
    book = copied / "journal.jsonl"
    lines = book.read_bytes().splitlines(keepends=True)
    book.write_bytes(b"".join(lines[:-2]) + lines[-2][:100])
    torn = len(lines) - 1
    assert experiment.status(ExperimentDir(copied)).torn == (torn,)
    outcome, said = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    assert (outcome.done, outcome.ran) == (6, 1)
    assert said[0] == f"{book}: line {torn} was cut off by a kill, and is read over"
    assert_equal(copied, undisturbed)
    assert book.read_bytes().splitlines()[torn - 1] == lines[-2][:100]  # it is still there
    again, _ = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    assert again.ran == 0


def test_a_directory_that_holds_another_experiment_is_one_line(copied: Path, cache_dir: Path) -> None:
    other = nights.restarts(nights.twin(1024), nights.twin(128), repeats=3)
    with pytest.raises(UsageError, match=rf"^{copied}: expected the experiment that is to go on, it holds another"):
        anyio.run(lambda: nights.night(other, copied, cache_dir))


def test_what_was_foretold_is_no_other_experiment(copied: Path, cache_dir: Path) -> None:
    foretold = nights.six().model_copy(update={"expected_s": 55.0})
    outcome, _ = anyio.run(lambda: nights.night(foretold, copied, cache_dir))
    assert outcome.done == 6


def test_with_retry_a_run_that_does_not_count_is_set_aside_and_run_again_and_without_it_stays(
    copied: Path, cache_dir: Path, undisturbed: Path
) -> None:
    """The journal of an experiment in which 05-A was found to be without work."""
    book = copied / "journal.jsonl"
    lines = book.read_text().splitlines(keepends=True)
    (at,) = [index for index, line in enumerate(lines) if '"run_done"' in line and '"run":"05-A"' in line]
    lines[at] = lines[at].replace('"invalid":[]', '"invalid":["too little work"]')
    book.write_text("".join(lines))
    state = experiment.status(ExperimentDir(copied))
    assert [(one.run, one.why) for one in state.runs if one.status == "invalid"] == [("05-A", "too little work")]
    assert state.done == 6
    outcome, _ = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir))
    assert outcome.ran == 0
    outcome, said = anyio.run(lambda: nights.night(nights.six(), copied, cache_dir, retry=True))
    assert outcome.ran == 1
    assert said[0].startswith(
        "05-A was not finished (it does not count, and --retry asks for another: too little work)"
    )
    assert_equal(copied, undisturbed)
    assert (copied / "runs" / "05-A.1").is_dir()
    assert experiment.status(ExperimentDir(copied)).runs[4].attempts == 2
