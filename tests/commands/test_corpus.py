"""Does `agentload corpus` keep data on stdout and words for people on stderr, and say what helps?"""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentload.agents import corpora, workspace
from agentload.commands.corpus import app
from agentload.errors import InputError, UsageError
from agentload.registry import cached_path
from tests.agents.git_servers import Dripping, serving
from tests.agents.repositories import IDENTITY, git
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
    env = {
        "AGENTLOAD_CACHE": str(cache),
        "AGENTLOAD_CORPORA": str(cache.parent / "pins"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
    }
    return how("corpus", *arguments, env=env)


def told(done: Done | subprocess.CompletedProcess[str]) -> str:
    """The one line that a failure is."""
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if ": fetching" not in line]
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("agentload: ")


def test_a_corpus_goes_from_fetched_to_imported_and_its_path_is_the_last_line(cache: Path) -> None:
    env = {"AGENTLOAD_CACHE": str(cache), "AGENTLOAD_CORPORA": str(cache.parent / "pins")}
    before = json.loads(runner.invoke(app, ["list", "--json"], env=env).stdout)
    assert {row["name"]: row["state"] for row in before} == {
        "large": "not fetched",
        "standard": "fetched",
        "tiny": "fetched",
    }
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
    _, standard, tiny, place = listed.stdout.splitlines()
    assert standard.endswith(
        ": downloaded, not imported yet: a run or `agentload corpus fetch standard` does it, offline"
    )
    assert tiny.endswith(f"commit {COMMIT[:12]}: ready in the cache")
    assert place == f"cache: {cache} (AGENTLOAD_CACHE sets it)"
    assert listed.stderr == ""
    nothing = call(tmp_path / "none", "list").stdout.splitlines()[2]
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
    line = told(call(cache, "fetch", "standard", "tiny"))
    assert f"put the file with sha256 {TINY.pin().sha256} at " in line
    shutil.copyfile(release, line.rpartition(" at ")[2])
    done = call(cache, "fetch", "standard", "tiny")
    assert done.returncode == 0
    assert [Path(path).name for path in done.stdout.splitlines()] == [
        "standard-d1fbb05ad6c8.git",
        "tiny-3639ecac9400.git",
    ]


# ---- the git route, and pins of one's own --------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout of two files, of which one is Rust."""
    top = tmp_path / "my-project"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "a.txt").write_text("a\n")
    (top / "sub" / "lib.rs").write_text("fn main() {}\n")
    git(top, "init", "-q", ".")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "code", env=IDENTITY)
    return top


def test_a_pin_of_ones_own_goes_from_added_to_fetched_on_an_empty_cache(own: Path, tmp_path: Path) -> None:
    (own / "draft.txt").write_text("not committed\n")
    added = call(tmp_path / "cache", "add", str(own), "--include", "*.rs", "--name", "mine")
    pin = tmp_path / "pins" / "mine.toml"
    commit = git(own, "rev-parse", "HEAD")
    assert (added.returncode, added.stdout) == (0, f"{pin}\n")
    assert added.stderr.splitlines() == [
        f"mine: changes in the work tree of {own} that are not committed are left out",
        f"mine: 1 file, 1 .rs, of commit {commit[:12]}, pinned",
        "mine: ready: agentload run --corpus mine",
    ]
    listed = call(tmp_path / "cache", "list").stdout.splitlines()[1]
    assert listed.startswith(f"mine       {own}: 1 file, 1 .rs with 1 lines, commit ")
    assert listed.endswith(f": ready in the cache; your pin: {pin}")
    rows = {row["name"]: row for row in json.loads(call(tmp_path / "empty", "list", "--json").stdout)}
    assert (rows["mine"]["own_pin"], rows["mine"]["state"]) == (str(pin), "not fetched")
    assert rows["tiny"]["own_pin"] is None
    fetched = call(tmp_path / "empty", "fetch", "mine")
    assert fetched.stderr.splitlines()[0] == f"mine: fetching commit {commit[:12]} with git from {own}"
    assert git(Path(fetched.stdout.strip()), "rev-parse", "main") == rows["mine"]["commit"]
    assert call(tmp_path / "empty", "verify").stdout.startswith("mine       sound: every object, commit ")


def test_another_folder_for_the_pin_is_said_to_need_the_setting(own: Path, tmp_path: Path) -> None:
    done = call(tmp_path / "cache", "add", str(own), "--to", str(tmp_path / "there"))
    assert done.stdout == f"{tmp_path / 'there' / 'my-project.toml'}\n"
    assert f"to find it there, a run needs AGENTLOAD_CORPORA={tmp_path / 'there'}\n" in done.stderr


def test_a_mirror_stands_for_the_pinned_address_and_must_give_the_same(own: Path, tmp_path: Path) -> None:
    """What must come out is what was pinned, wherever it came from."""
    assert call(tmp_path / "cache", "add", str(own), "--name", "mine").returncode == 0
    own.rename(tmp_path / "moved")
    gone = told(call(tmp_path / "empty", "fetch", "mine"))
    assert gone.endswith(f"from {own} with git: '{own}' does not appear to be a git repository")
    done = call(tmp_path / "empty", "fetch", "mine", "--url", f"file://{tmp_path / 'moved'}")
    assert done.returncode == 0
    assert done.stderr.splitlines()[0].endswith(f"with git from file://{tmp_path / 'moved'}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fetch", "tiny", "--route", "ftp"], "--route: expected archive or git, got 'ftp'"),
        (["fetch", "--url", "/x"], "--url: expected with one corpus and the git route, whose address it stands for"),
        (["fetch", "tinny"], "no corpus named 'tinny': did you mean tiny?"),
        (["fetch", "tiny", "--route", "git", "--url", "ext::id"], "transport 'ext' not allowed"),
        (
            ["add", "/nowhere/here"],
            "/nowhere/here: expected a git checkout or the address of a repository, there is no ",
        ),
        (["add", "/nowhere", "--name", "../x"], "--name: expected small letters, digits, dots, dashes and underscores"),
        (["add", "git://127.0.0.1:9/x"], "cannot fetch its refs from git://127.0.0.1:9/x with git: unable to connect"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    said = told(call(tmp_path / "cache", *arguments))
    assert line in said


def in_three_seconds(*arguments: str, env: Mapping[str, str]) -> Done:
    return program(*arguments, env={**env, "AGENTLOAD_GIT_TIMEOUT_S": "3"})


def test_a_server_that_never_ends_is_one_line_and_no_pin(tmp_path: Path) -> None:
    with serving(Dripping()) as slow:
        url = f"git://{slow.address}/up"
        try:
            line = told(call(tmp_path / "cache", "add", url, how=in_three_seconds))
        finally:
            slow.over.set()
    assert line == (
        f"cannot fetch its refs from {url} with git: it had not ended after 3 s: "
        "AGENTLOAD_GIT_TIMEOUT_S gives it more or less time"
    )
    assert list((tmp_path / "pins").iterdir()) == []


def test_a_mistake_in_a_pin_is_told_with_its_line(own: Path, tmp_path: Path) -> None:
    pin = Path(call(tmp_path / "cache", "add", str(own), "--name", "mine").stdout.strip())
    text = pin.read_text()
    pin.write_text(text.replace("files = 2", 'files = "two"'))
    line = 1 + next(number for number, one in enumerate(text.splitlines()) if one == "files = 2")
    for command in (["list"], ["fetch", "mine"]):
        assert told(call(tmp_path / "cache", *command)).startswith(f"{pin}:{line}: import.files: expected a valid int")


def test_a_folder_for_pins_that_cannot_be_written_is_one_line(own: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = told(call(tmp_path / "cache", "add", str(own), "--to", str(tmp_path / "file")))
    assert line.startswith(f"the folder {tmp_path / 'file'} cannot be used (")
    assert line.endswith("or set AGENTLOAD_CORPORA to another one")


@pytest.mark.parametrize("kib", [100, 500])
def test_a_full_disk_while_git_fetches_is_told_as_such_and_leaves_no_pin(own: Path, tmp_path: Path, kib: int) -> None:
    """A file of 0.4 MB that cannot be packed: its way here fills the one disk, its import the other."""
    (own / "noise.bin").write_bytes(random.Random(1).randbytes(400_000))
    git(own, "add", ".")
    git(own, "commit", "-q", "-m", "noise", env=IDENTITY)
    disk = tmp_path / "disk"
    disk.mkdir()
    env = {"AGENTLOAD_CACHE": str(disk), "AGENTLOAD_CORPORA": str(tmp_path / "pins")}
    line = told(without(FULL, [*CORPUS, "add", str(own)], disk, kib, env=env))
    assert line.startswith(f"no space is left on the disk (or in the quota) of {disk}")
    assert list((tmp_path / "pins").iterdir()) == []
