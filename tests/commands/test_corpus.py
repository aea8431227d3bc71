"""Does `agentload corpus` keep data on stdout and words for people on stderr, and say what helps?"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentload.agents import corpora, workspace
from agentload.commands.corpus import app
from agentload.errors import InputError, UsageError
from agentload.registry import cached_path
from tests.confined import FULL, NO_OVERRIDE, without
from tests.program import PROGRAM, Done, program, started

runner = CliRunner()
CORPUS = [str(PROGRAM), "corpus"]
TINY = corpora.load("tiny")
COMMIT = "3639ecac9400cad9e85a4d01faba5ddca4bab070"


@pytest.fixture
def cache(tmp_path: Path, release: Path) -> Path:
    """A cache with the release file only."""
    kept = cached_path(TINY.pin(), tmp_path / "cache")
    kept.parent.mkdir(parents=True)
    shutil.copyfile(release, kept)
    return tmp_path / "cache"


def call(cache: Path, *arguments: str, how: Callable[..., Done] = program) -> Done:
    """The program, with no index."""
    env = {"AGENTLOAD_CACHE": str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    return how("corpus", *arguments, env=env)


def told(done: Done | subprocess.CompletedProcess[str]) -> str:
    """The one line that a failure is."""
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if ": fetching" not in line]
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("agentload: ")


def test_a_corpus_goes_from_fetched_to_imported_and_its_path_is_the_last_line(cache: Path) -> None:
    env = {"AGENTLOAD_CACHE": str(cache)}
    before = json.loads(runner.invoke(app, ["list", "--json"], env=env).stdout)
    assert {row["name"]: row["state"] for row in before} == {"standard": "fetched", "tiny": "fetched"}
    done = runner.invoke(app, ["fetch", "tiny"], env=env)
    path = workspace.repository_path(TINY, cache)
    assert done.stdout.splitlines() == [str(path)]
    assert f"{COMMIT}, as pinned" in done.stderr
    assert runner.invoke(app, ["path", "tiny"], env=env).stdout.splitlines() == [str(path)]
    verified = json.loads(runner.invoke(app, ["verify", "--json"], env=env).stdout)
    assert [(row["name"], row["commit"]) for row in verified] == [("tiny", COMMIT)]


def test_the_list_says_in_words_what_each_state_means_and_where_the_cache_is(cache: Path, tmp_path: Path) -> None:
    assert call(cache, "fetch", "tiny").returncode == 0
    listed = call(cache, "list")
    standard, tiny, place = listed.stdout.splitlines()
    assert standard.endswith(
        ": downloaded, not imported yet: a run or `agentload corpus fetch standard` does it, offline"
    )
    assert tiny.endswith(f"commit {COMMIT[:12]}: ready in the cache")
    assert place == f"cache: {cache} (AGENTLOAD_CACHE sets it)"
    assert listed.stderr == ""
    nothing = call(tmp_path / "none", "list").stdout.splitlines()[1]
    assert nothing.endswith(": not on this machine: a run downloads it, or `agentload corpus fetch tiny`")


def test_a_verified_corpus_is_one_line_however_often_it_is_named(cache: Path) -> None:
    path = call(cache, "fetch", "tiny").stdout.strip()
    for names in ([], ["tiny"], ["tiny", "tiny"]):
        done = call(cache, "verify", *names)
        expected = f"tiny       sound: every object, commit {COMMIT} and its tree, as pinned: {path}\n"
        assert (done.stdout, done.stderr) == (expected, "")


def test_fetch_mends_a_damaged_corpus_and_says_so(cache: Path) -> None:
    path = Path(call(cache, "fetch", "tiny").stdout.strip())
    shutil.rmtree(path / "objects")
    assert "`agentload corpus fetch tiny` makes them anew" in told(call(cache, "verify"))
    done = call(cache, "fetch", "tiny")
    assert (done.returncode, done.stdout) == (0, f"{path}\n")
    assert "damaged in the cache, imported anew" in done.stderr
    assert call(cache, "verify").returncode == 0


def test_quiet_says_nothing_beside_the_path(cache: Path) -> None:
    done = call(cache, "fetch", "tiny", "--quiet", how=started)
    assert (done.returncode, done.stdout) == (0, f"{workspace.repository_path(TINY, cache)}\n")
    assert done.stderr == ""


def test_errors_reach_the_caller_as_they_are(tmp_path: Path) -> None:
    env = {"AGENTLOAD_CACHE": str(tmp_path)}
    assert isinstance(runner.invoke(app, ["path", "tinny"], env=env).exception, UsageError)
    assert isinstance(runner.invoke(app, ["verify"], env=env).exception, InputError)


COMMANDS = (["list"], ["fetch", "tiny"], ["verify"], ["path", "tiny"])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("inside", ["", "inside"])
def test_a_cache_that_is_a_file_or_inside_of_one_is_one_line(tmp_path: Path, command: list[str], inside: str) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / inside
    line = told(call(place, *command))
    assert line.startswith(f"the cache folder {place} cannot be used (")
    assert line.endswith("or set AGENTLOAD_CACHE to another one")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cache_that_may_not_be_looked_into_is_one_line(tmp_path: Path, command: list[str]) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o000)
    line = told(without(NO_OVERRIDE, [*CORPUS, *command], env={"AGENTLOAD_CACHE": str(folder)}))
    assert line.startswith(f"the cache folder {folder} cannot be used (Permission denied)")


def test_a_folder_inside_the_cache_that_may_not_be_looked_into_is_named(cache: Path) -> None:
    (cache / "pinned").chmod(0o000)
    line = told(without(NO_OVERRIDE, [*CORPUS, "list"], env={"AGENTLOAD_CACHE": str(cache)}))
    (cache / "pinned").chmod(0o755)
    assert line.startswith(f"the cache folder {cache} cannot be used ({cache}/pinned/")


def test_a_cache_that_may_only_be_read_serves_what_it_has_and_refuses_the_rest(cache: Path) -> None:
    path = call(cache, "fetch", "tiny").stdout
    for folder in (cache, *(one for one in cache.rglob("*") if one.is_dir())):
        folder.chmod(0o555)
    done = without(NO_OVERRIDE, [*CORPUS, "fetch", "tiny"], env={"AGENTLOAD_CACHE": str(cache)})
    refused = without(NO_OVERRIDE, [*CORPUS, "fetch", "standard"], env={"AGENTLOAD_CACHE": str(cache)})
    for folder in (cache, *(one for one in cache.rglob("*") if one.is_dir())):
        folder.chmod(0o755)
    assert (done.returncode, done.stdout) == (0, path)
    assert told(refused).startswith(f"the cache folder {cache} cannot be used ({cache}/")


@pytest.mark.parametrize("kib", [100, 500])
def test_a_full_disk_is_told_as_such_and_not_as_a_trouble_of_the_network(
    tmp_path: Path, release: Path, kib: int
) -> None:
    """The release is 0.4 MB: with 100 KiB its download fills the disk, with 500 KiB git does."""
    links = tmp_path / "links"
    links.mkdir()
    shutil.copyfile(release, links / release.name)
    disk = tmp_path / "disk"
    disk.mkdir()
    env = {"AGENTLOAD_CACHE": str(disk), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "UV_FIND_LINKS": ""}
    line = told(without(FULL, [*CORPUS, "fetch", "tiny"], disk, kib, env=env))
    assert line.startswith(f"no space is left on the disk (or in the quota) of {disk}")
    assert line.endswith("make room there, or set AGENTLOAD_CACHE to a folder on another disk")


def test_without_a_network_the_file_serves_where_the_error_says(tmp_path: Path, release: Path) -> None:
    cache = tmp_path / "cache"
    line = told(call(cache, "fetch"))
    assert f"put the file with sha256 {TINY.pin().sha256} at " in line
    shutil.copyfile(release, line.rpartition(" at ")[2])
    done = call(cache, "fetch")
    assert done.returncode == 0
    assert [Path(path).name for path in done.stdout.splitlines()] == [
        "standard-d1fbb05ad6c8.git",
        "tiny-3639ecac9400.git",
    ]
