"""Does a repository of the user's own become a corpus like the shipped ones, and is what it lacks said?"""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from agentload.agents import corpora, pinning, sources, workspace
from agentload.agents.corpora import Corpus
from agentload.agents.pinning import Pinned, Wanted
from agentload.errors import AgentloadError, FetchError, InputError, UsageError
from tests.agents.git_servers import Daemon, Web, serving
from tests.agents.repositories import FILES, IDENTITY, commit_by_hand, git, make_upstream

SHIPPED: Final = corpora.places({})


def add(tmp_path: Path, source: str | Path, *, replacing: bool = False, **wanted: Any) -> Pinned:
    folder = tmp_path / "pins"
    made = Wanted(str(source), **wanted)
    places = (*SHIPPED, folder)
    return pinning.add(made, folder, places, tmp_path / "cache", {}, replacing=replacing)


def refusal(tmp_path: Path, source: str | Path, kind: type[AgentloadError], **wanted: Any) -> str:
    with pytest.raises(kind) as caught:
        add(tmp_path, source, **wanted)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "pins").glob("*")) == []
    return str(caught.value)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A project with the files of FILES at its tag v1; its HEAD is one commit on."""
    (tmp_path / "srv").mkdir()
    make_upstream(tmp_path / "srv" / "up")
    return tmp_path / "srv" / "up"


def test_a_pin_gives_the_ids_that_plain_git_gives_to_the_chosen_files(upstream: Path, tmp_path: Path) -> None:
    made = add(tmp_path, upstream, commit="v1", include=("LICENSE", "src/"), name="mine")
    at = git(upstream, "rev-parse", "v1^{commit}")
    tree, commit = commit_by_hand(tmp_path / "by-hand", FILES, f"mine {at[:12]}")
    assert (made.repository.tree, made.repository.commit) == (tree, commit)
    assert made.corpus.upstream.commit == at
    assert made.corpus.upstream.tree == git(upstream, "rev-parse", "v1^{tree}")
    assert (made.corpus.imported.files, made.corpus.imported.rs_files, made.corpus.imported.rs_lines) == (5, 3, 4)
    assert made.notes == ()


def test_a_pin_is_found_by_its_name_and_gives_the_same_on_another_machine(upstream: Path, tmp_path: Path) -> None:
    made = add(tmp_path, upstream, include=("src/",))
    assert made.file == tmp_path / "pins" / "up.toml"
    places = (*SHIPPED, tmp_path / "pins")
    loaded = corpora.load("up", *places)
    assert loaded == made.corpus
    assert "up" in corpora.names(*places)
    elsewhere = sources.obtain(loaded, tmp_path / "other-cache", network={})
    assert elsewhere.commit == made.repository.commit
    assert workspace.checkout(elsewhere.path, elsewhere.commit, tmp_path / "a0").is_dir()


def test_the_commit_stays_when_the_repository_moves_on(upstream: Path, tmp_path: Path) -> None:
    made = add(tmp_path, upstream)
    (upstream / "src" / "lib.rs").write_text("later still\n")
    git(upstream, "commit", "-q", "-a", "-m", "later", env=IDENTITY)
    assert sources.obtain(made.corpus, tmp_path / "other", network={}).commit == made.repository.commit


@pytest.mark.parametrize(
    ("wish", "ref", "tag"), [(None, "main", None), ("v1", "v1", "v1"), ("main", "main", None), ("", "v1", None)]
)
def test_of_an_address_the_head_a_tag_a_branch_or_a_full_id_is_pinned(
    upstream: Path, tmp_path: Path, wish: str | None, ref: str, tag: str | None
) -> None:
    commit = git(upstream, "rev-parse", f"{ref}^{{commit}}")
    with serving(Daemon(tmp_path / "srv")) as daemon:
        made = add(tmp_path, f"{daemon.url}/up", commit=commit if wish == "" else wish)
        assert made.corpus.upstream.repository == f"{daemon.url}/up"
        assert (made.corpus.upstream.commit, made.corpus.upstream.tag) == (commit, tag)
        assert sources.obtain(made.corpus, tmp_path / "other", network={}).commit == made.repository.commit


def test_a_login_is_used_and_not_written_down(upstream: Path, tmp_path: Path) -> None:
    with serving(Web(tmp_path / "srv", login="me:hunter2")) as server:
        made = add(tmp_path, server.url.replace("//", "//me:hunter2@") + "/up")
        assert made.notes[0] == "the address is kept without user, password and query: a later fetch needs --url"
        assert made.corpus.upstream.repository == f"{server.url}/up"
        assert "hunter2" not in made.file.read_text()
        left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
        assert left == []


def test_globs_choose_by_name_and_by_folder(upstream: Path, tmp_path: Path) -> None:
    made = add(tmp_path, upstream, include=("*.rs", "LIC*"))
    listed = git(made.repository.path, "ls-tree", "-r", "--name-only", "main").splitlines()
    assert listed == ["LICENSE", "src/a-b.rs", "src/a/mod.rs", "src/lib.rs"]


def test_what_a_corpus_cannot_hold_is_excluded_and_said(checkout_of_mine: Path, tmp_path: Path) -> None:
    head = git(checkout_of_mine, "rev-parse", "HEAD")
    for name, text in (
        (".gitattributes", "*.bin filter=lfs\n"),
        ("sub/\t.txt", "t"),
        ("sub/é [id] @.txt", "e"),
        ("sub/b.txt", "b\n"),
    ):
        (checkout_of_mine / name).write_text(text)
    (checkout_of_mine / "model.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    for number in range(4):
        (checkout_of_mine / f"link{number}").symlink_to("sub/a.txt")
    git(checkout_of_mine, "-c", "filter.lfs.clean=cat", "add", ".")
    git(checkout_of_mine, "update-index", "--add", "--cacheinfo", f"160000,{head},deps/one")
    git(checkout_of_mine, "commit", "-q", "-m", "all sorts", env=IDENTITY)
    made = add(tmp_path, checkout_of_mine)
    assert made.notes[1:] == (  # the first is about the submodule's folder, which is not there
        ".gitattributes are left out: 1 (.gitattributes)",
        "submodules are left out: 1 (deps/one)",
        "links are left out: 4 (link0, link1, link2, ...)",
        "files with unusual names are left out: 1 (sub/\\t.txt)",
        "files kept in Git LFS come as their pointers: 1",
    )
    listed = git(made.repository.path, "ls-tree", "-r", "-z", "--name-only", "main").split("\0")
    assert listed == ["model.bin", "sub/a.txt", "sub/b.txt", "sub/é [id] @.txt", ""]
    assert sources.obtain(made.corpus, tmp_path / "other", network={}).commit == made.repository.commit


def test_a_file_name_that_is_no_text_is_told_and_can_be_left_out(checkout_of_mine: Path, tmp_path: Path) -> None:
    (checkout_of_mine / os.fsdecode(b"caf\xe9.txt")).write_text("latin\n")
    git(checkout_of_mine, "add", ".")
    git(checkout_of_mine, "commit", "-q", "-m", "latin", env=IDENTITY)
    line = refusal(tmp_path, checkout_of_mine, UsageError)
    assert line.endswith(r"expected file names in UTF-8, there is 'caf\udce9.txt': let less in with --include")
    assert add(tmp_path, checkout_of_mine, include=("sub/",)).corpus.imported.files == 1


def test_a_shallow_clone_can_be_pinned(checkout_of_mine: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout_of_mine}", "shallow")
    made = add(tmp_path, tmp_path / "shallow")
    assert made.corpus.upstream.commit == git(checkout_of_mine, "rev-parse", "HEAD")
    assert git(made.repository.path, "cat-file", "blob", "main:sub/a.txt") == "2"


def test_uncommitted_changes_are_said_and_the_checkout_is_only_read(checkout_of_mine: Path, tmp_path: Path) -> None:
    (checkout_of_mine / "sub" / "a.txt").write_text("not committed\n")
    os.utime(checkout_of_mine / "sub" / "a.txt", (1, 1))
    before = {path: path.read_bytes() for path in checkout_of_mine.rglob("*") if path.is_file()}
    made = add(tmp_path, checkout_of_mine)
    assert made.notes == (f"changes in the work tree of {checkout_of_mine} that are not committed are left out",)
    assert {path: path.read_bytes() for path in checkout_of_mine.rglob("*") if path.is_file()} == before
    assert git(made.repository.path, "cat-file", "blob", "main:sub/a.txt") == "2"
    assert made.corpus.name == "my-project"


def test_a_name_that_is_taken_is_refused_and_an_own_pin_can_be_replaced(upstream: Path, tmp_path: Path) -> None:
    first = add(tmp_path, upstream, commit="v1")
    for name, told in ((None, f"{first.file} is there already: give another --name, or --replace"), ("tiny", "--name")):
        with pytest.raises(UsageError) as caught:
            add(tmp_path, upstream, name=name)
        assert str(caught.value).startswith(told)
    second = add(tmp_path, upstream, replacing=True)
    assert corpora.load("up", tmp_path / "pins") == second.corpus != first.corpus
    assert [path.name for path in (tmp_path / "pins").iterdir()] == ["up.toml"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "Über", "-x", "a" * 65, "any", "a b", "x\n"])
def test_a_bad_name_is_one_line(upstream: Path, tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, upstream, UsageError, name=name).startswith("--name: ")


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("src", "--include 'src': it is a folder: write src/"),
        ("*.py", "--include '*.py': no file of commit "),
        ("/etc/", "--include: '/etc/': expected a path relative to the repository's top"),
        ("src/../x", "--include: 'src/../x': expected a path relative"),
        ("docs/link", ": expected a file that a corpus can hold in commit "),
    ],
)
def test_an_include_rule_that_lets_in_nothing_is_one_line(upstream: Path, tmp_path: Path, rule: str, told: str) -> None:
    line = refusal(tmp_path, upstream, UsageError, include=(rule,))
    assert line.removeprefix(str(upstream)).startswith(told)


def test_sources_and_commits_that_are_none_are_one_line(upstream: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "plain").mkdir()
    for path, told in (
        (tmp_path / "none", "expected a git checkout or the address of a repository, there is no such folder"),
        (tmp_path / "file", "expected a git checkout or the address of a repository, it is a file"),
        (tmp_path / "plain", "expected a git checkout, there is no git repository"),
        (upstream / "src", f"expected the top of a git checkout, which is {upstream}"),
    ):
        assert refusal(tmp_path, path, InputError).startswith(f"{path}: {told}")
    for wish in ("v2", "-x", "HEAD:src"):
        line = refusal(tmp_path, upstream, UsageError, commit=wish)
        assert line == f"--commit: expected a commit, tag or branch of {upstream}, there is no {wish!r}"
    with serving(Daemon(tmp_path / "srv")) as daemon:
        url = f"{daemon.url}/up"
        line = refusal(tmp_path, url, UsageError, commit="abc1234")
        assert line == f"--commit: expected a full commit id (40 hex digits), a tag or a branch of {url}, got 'abc1234'"
        assert refusal(tmp_path, url, FetchError, commit="f" * 40).startswith("cannot fetch commit ffff")
        assert refusal(tmp_path, f"{daemon.url}/no", FetchError).startswith("cannot fetch its refs from ")


def test_more_than_a_corpus_may_hold_is_told_before_it_is_read(checkout_of_mine: Path, tmp_path: Path) -> None:
    """One object of 16 MiB of zeros, under 17 names: each agent would have 272 MiB."""
    blob = git(checkout_of_mine, "hash-object", "-w", "--stdin", stdin=bytes(16 << 20))
    names = "".join(f"100644 {blob}\tzeros{number}.bin\n" for number in range(17))
    git(checkout_of_mine, "update-index", "--add", "--index-info", stdin=names.encode())
    git(checkout_of_mine, "commit", "-q", "-m", "large", env=IDENTITY)
    line = refusal(tmp_path, checkout_of_mine, InputError)
    assert line.endswith("at most 256 MiB in a corpus, there are 272 in 18 files: let less in with --include")
    assert add(tmp_path, checkout_of_mine, include=("sub/",)).corpus.imported.files == 1


def test_a_pin_is_written_as_the_shipped_ones_are(upstream: Path, tmp_path: Path) -> None:
    text = add(tmp_path, upstream, include=("src/",)).file.read_text()
    assert [line for line in text.splitlines() if line.startswith("[")] == ["[upstream]", "[import]"]
    assert "exclude" not in text
    assert isinstance(corpora.load("up", tmp_path / "pins"), Corpus)


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://example.org/Some/Project.git", "project"),
        ("https://me:p@example.org/a/b/?token=x", "b"),
        ("git@example.org:team/tool.git", "tool"),
        ("github:owner/repo", "repo"),
        ("ssh://git@example.org/~me/x_y", "x_y"),
        ("/srv/code/thing/", "thing"),
    ],
)
def test_a_corpus_is_called_as_its_repository(source: str, name: str) -> None:
    assert pinning.name_for(Wanted(source)) == name


def test_own_pins_lie_where_the_environment_says() -> None:
    for env, folder in (
        ({"AGENTLOAD_CORPORA": "/pins", "HOME": "/h"}, Path("/pins")),
        ({"XDG_CONFIG_HOME": "/config", "HOME": "/h"}, Path("/config/agentload/corpora")),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, Path("/h/.config/agentload/corpora")),
        ({}, None),
    ):
        assert corpora.own_folder(env) == folder


def test_a_corpus_that_two_folders_have_is_refused(upstream: Path, tmp_path: Path) -> None:
    file = add(tmp_path, upstream).file
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / file.name).write_text(file.read_text())
    with pytest.raises(UsageError, match=r"corpus up: expected one of that name, there are .* and .*: rename yours"):
        corpora.load("up", tmp_path / "pins", tmp_path / "other")
