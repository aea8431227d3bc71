"""Does `agentload corpus` keep data on stdout and words for people on stderr?"""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentload.agents import corpora, workspace
from agentload.commands.corpus import app
from agentload.errors import InputError, UsageError
from agentload.registry import IndexSettings, fetch

runner = CliRunner()


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agentload-cache")
    fetch(corpora.load("tiny").pin(), folder, IndexSettings.from_environment(os.environ))
    return folder


def test_a_corpus_goes_from_fetched_to_imported_and_its_path_is_the_last_line(cache_dir: Path) -> None:
    env = {"AGENTLOAD_CACHE": str(cache_dir)}
    before = json.loads(runner.invoke(app, ["list", "--json"], env=env).stdout)
    assert {row["name"]: row["state"] for row in before} == {"standard": "fetched", "tiny": "fetched"}
    done = runner.invoke(app, ["fetch", "tiny"], env=env)
    path = workspace.repository_path(corpora.load("tiny"), cache_dir)
    assert done.stdout.splitlines() == [str(path)]
    assert "3639ecac9400cad9e85a4d01faba5ddca4bab070, as pinned" in done.stderr
    assert runner.invoke(app, ["path", "tiny"], env=env).stdout.splitlines() == [str(path)]
    verified = json.loads(runner.invoke(app, ["verify", "--json"], env=env).stdout)
    assert [(row["name"], row["commit"]) for row in verified] == [("tiny", "3639ecac9400cad9e85a4d01faba5ddca4bab070")]


def test_quiet_says_nothing_beside_the_path(cache_dir: Path) -> None:
    done = runner.invoke(app, ["fetch", "tiny", "--quiet"], env={"AGENTLOAD_CACHE": str(cache_dir)})
    assert (done.exit_code, done.stderr) == (0, "")


def test_errors_reach_the_caller_as_they_are(tmp_path: Path) -> None:
    env = {"AGENTLOAD_CACHE": str(tmp_path)}
    assert isinstance(runner.invoke(app, ["path", "tinny"], env=env).exception, UsageError)
    assert isinstance(runner.invoke(app, ["verify"], env=env).exception, InputError)
