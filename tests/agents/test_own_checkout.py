"""Is the user's own checkout taken as it is committed, only read, and refused with what helps where it cannot be?"""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from agentload.agents import own_checkout, workspace
from agentload.errors import InputError
from tests.agents.repositories import IDENTITY, git


def test_the_head_commit_of_the_users_checkout_is_used_with_its_history(checkout_of_mine: Path, tmp_path: Path) -> None:
    own = own_checkout.import_checkout(checkout_of_mine, tmp_path / "own.git")
    assert own.name == "my-project"
    assert own.commit == git(checkout_of_mine, "rev-parse", "HEAD")
    assert own.tree == git(checkout_of_mine, "rev-parse", "HEAD^{tree}")
    assert not own.dirty
    top = workspace.checkout(own.path, own.commit, tmp_path / "a0", link_objects=True)
    assert git(top, "log", "--format=%s").splitlines() == ["commit 2", "commit 1"]
    assert (top / "sub" / "a.txt").read_text() == "2\n"


def test_a_detached_head_is_used_as_it_stands(checkout_of_mine: Path, tmp_path: Path) -> None:
    git(checkout_of_mine, "checkout", "-q", "--detach", "HEAD~1")
    own = own_checkout.import_checkout(checkout_of_mine, tmp_path / "own.git")
    assert own.commit == git(checkout_of_mine, "rev-parse", "trunk~1")


def test_a_shallow_checkout_can_be_used(checkout_of_mine: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout_of_mine}", "shallow")
    own = own_checkout.import_checkout(tmp_path / "shallow", tmp_path / "own.git")
    top = workspace.checkout(own.path, own.commit, tmp_path / "a0")
    assert git(top, "log", "--format=%s") == "commit 2"


@pytest.mark.parametrize("change", ["edited", "untracked"])
def test_uncommitted_changes_are_said_and_left_behind(checkout_of_mine: Path, tmp_path: Path, change: str) -> None:
    name = {"edited": "sub/a.txt", "untracked": "new.txt"}[change]
    (checkout_of_mine / name).write_text("not committed\n")
    own = own_checkout.import_checkout(checkout_of_mine, tmp_path / "own.git")
    assert own.dirty
    top = workspace.checkout(own.path, own.commit, tmp_path / "a0")
    assert (top / "sub" / "a.txt").read_text() == "2\n"
    assert not (top / "new.txt").exists()


def test_the_users_repository_is_only_read_and_starts_no_program(checkout_of_mine: Path, tmp_path: Path) -> None:
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/spy-ran\n")
    spy.chmod(0o755)
    git(checkout_of_mine, "config", "core.fsmonitor", str(spy))
    os.utime(checkout_of_mine / "sub" / "a.txt", (1, 1))  # so that `git status` would like to refresh the index
    git_folder = checkout_of_mine / ".git"
    before = {path: path.read_bytes() for path in git_folder.rglob("*") if path.is_file()}
    own_checkout.import_checkout(checkout_of_mine, tmp_path / "own.git")
    assert {path: path.read_bytes() for path in git_folder.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "spy-ran").exists()


def test_what_is_no_usable_checkout_is_refused_in_one_line(checkout_of_mine: Path, tmp_path: Path) -> None:
    def made(name: str, *commands: tuple[str, ...]) -> Path:
        folder = tmp_path / name
        shutil.copytree(checkout_of_mine, folder)
        for command in commands:
            git(folder, *command)
        return folder

    def spoiled(name: str, inside: str, text: str) -> Path:
        folder = made(name)
        (folder / ".git" / inside).write_text(text)
        return folder

    plain = tmp_path / "plain"
    plain.mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q", ".")
    git(tmp_path, "clone", "-q", "--bare", str(checkout_of_mine), "bare.git")
    blob = git(checkout_of_mine, "rev-parse", "HEAD:sub/a.txt")
    incomplete = made("incomplete")
    (incomplete / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    headless = made("headless")
    tree = git(headless, "rev-parse", "HEAD^{tree}")
    (headless / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    for path, told in [
        (tmp_path / "nowhere", "expected a git checkout, there is no such folder"),
        (checkout_of_mine / "sub" / "a.txt", "expected a git checkout, it is a file"),
        (plain, "expected a git checkout, there is no git repository: name one, or make it one"),
        (empty, "expected at least one commit, there is none: commit first"),
        (made("unborn", ("symbolic-ref", "HEAD", "refs/heads/new")), "expected at least one commit, there is none"),
        (checkout_of_mine / "sub", f"expected the top of a git checkout, which is {checkout_of_mine}"),
        (checkout_of_mine / ".git", "expected the top of a git checkout, it is inside of a .git folder"),
        (tmp_path / "bare.git", "expected a checkout with files, it is a bare repository: clone it"),
        (headless, "expected a HEAD commit that can be read, as `git fsck` checks: git cat-file in "),
        (incomplete, "expected sound git objects, as `git fsck` checks them: git fetch in "),
        (spoiled("index", "index", "junk"), "expected a checkout that git can read: git status in "),
        (spoiled("config", "config", "[core"), "expected a git checkout: git rev-parse in "),
    ]:
        with pytest.raises(InputError) as caught:
            own_checkout.import_checkout(path, tmp_path / "own.git")
        assert str(caught.value).startswith(f"--corpus {path}: {told}")
        assert "\n" not in str(caught.value)
        assert "fatal:" not in str(caught.value)
    assert not (tmp_path / "own.git").exists()


def test_a_checkout_of_another_user_is_refused_with_what_helps(checkout_of_mine: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    for path in (checkout_of_mine, checkout_of_mine / ".git"):
        os.chown(path, 4242, 4242)
    with pytest.raises(InputError, match=r"it belongs to another user, and git refuses those: copy it") as caught:
        own_checkout.import_checkout(checkout_of_mine, tmp_path / "own.git")
    assert "\n" not in str(caught.value)


def notes_of(checkout: Path, tmp_path: Path) -> tuple[str, ...]:
    own = own_checkout.import_checkout(checkout, tmp_path / "own.git")
    workspace.checkout(own.path, own.commit, tmp_path / "a0")  # it can be worked on all the same
    return own.notes


def test_a_plain_checkout_needs_no_note(checkout_of_mine: Path, tmp_path: Path) -> None:
    assert notes_of(checkout_of_mine, tmp_path) == ()


def test_a_shallow_clone_is_told(checkout_of_mine: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout_of_mine}", "clone")
    assert notes_of(tmp_path / "clone", tmp_path) == ("a shallow clone: its history is cut off",)


def test_a_partial_clone_comes_without_history_and_asks_nobody_for_objects(
    checkout_of_mine: Path, tmp_path: Path
) -> None:
    git(checkout_of_mine, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{checkout_of_mine}", "clone")
    checkout_of_mine.rename(tmp_path / "gone")
    told = ("a partial clone: its HEAD commit is taken without history",)
    assert notes_of(tmp_path / "clone", tmp_path) == told
    assert git(tmp_path / "a0", "log", "--format=%s") == "commit 2"


def test_a_partial_clone_that_lacks_a_file_of_its_head_is_refused(checkout_of_mine: Path, tmp_path: Path) -> None:
    git(checkout_of_mine, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{checkout_of_mine}", "clone")
    checkout_of_mine.rename(tmp_path / "gone")
    with pytest.raises(InputError, match="which a partial clone may lack: use a clone without --filter"):
        notes_of(tmp_path / "clone", tmp_path)


def test_a_sparse_checkout_is_told(checkout_of_mine: Path, tmp_path: Path) -> None:
    git(checkout_of_mine, "sparse-checkout", "set", "nothing")
    told = ("a sparse checkout: agents get every file of the commit",)
    assert notes_of(checkout_of_mine, tmp_path) == told
    assert (tmp_path / "a0" / "sub" / "a.txt").read_text() == "2\n"


def test_submodules_are_told_and_left_out(checkout_of_mine: Path, tmp_path: Path) -> None:
    commit = git(checkout_of_mine, "rev-parse", "HEAD")
    for name in ("m1", "m2", "m3", "m4"):
        git(checkout_of_mine, "update-index", "--add", "--cacheinfo", f"160000,{commit},deps/{name}")
    git(checkout_of_mine, "commit", "-q", "-m", "modules", env=IDENTITY)
    told = ("submodules are left out: 4 (deps/m1, deps/m2, deps/m3, ...)",)
    assert notes_of(checkout_of_mine, tmp_path) == told


def test_files_in_git_lfs_are_told_to_come_as_pointers(checkout_of_mine: Path, tmp_path: Path) -> None:
    (checkout_of_mine / "sub" / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    git(checkout_of_mine, "add", ".")
    git(checkout_of_mine, "commit", "-q", "-m", "large files", env=IDENTITY)
    assert notes_of(checkout_of_mine, tmp_path) == ("files kept in Git LFS come as their pointers",)


def test_a_large_history_is_told_with_its_size(checkout_of_mine: Path, tmp_path: Path) -> None:
    """A pack of 1.5 GiB of no object, which is a hole on the disk: git counts it and never opens it."""
    pack = checkout_of_mine / ".git" / "objects" / "pack" / f"pack-{'0' * 40}.pack"
    with pack.open("wb") as file:
        file.truncate(3 << 29)
    # gitformat-pack(5), version 2: magic, version, 256 counts of 4 bytes, the pack's checksum, the index' own.
    index = b"\377tOc" + (2).to_bytes(4, "big") + bytes(256 * 4) + bytes(20)
    pack.with_suffix(".idx").write_bytes(index + hashlib.sha1(index).digest())
    told = f"its history is large, 1.5 GiB for each agent: `agentload corpus add {checkout_of_mine}` pins it without"
    assert notes_of(checkout_of_mine, tmp_path) == (told,)
