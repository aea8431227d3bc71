"""Does each agent get exactly the pinned code, whatever the machine's git settings are?"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentload.agents import corpora, sources, workspace
from agentload.agents.corpora import Corpus
from agentload.errors import InputError, PinMismatchError
from agentload.registry import IndexSettings
from tests.agents.repositories import FILES, IDENTITY, git, make_corpus, make_sdist
from tests.confined import FULL, without

# ---- import --------------------------------------------------------------------------------------------------------


def test_an_import_gives_the_ids_that_plain_git_gives(corpus: Corpus, mine: workspace.Repository) -> None:
    assert (mine.tree, mine.commit) == (corpus.imported.tree, corpus.imported.commit)
    assert git(mine.path, "rev-parse", "main", "main^{tree}").split() == [mine.commit, mine.tree]
    assert git(mine.path, "cat-file", "blob", "main:src/a/mod.rs") == "// é\nfn f() {}"
    assert not mine.dirty


def test_the_shipped_corpora_import_to_their_pinned_commits(
    tiny: workspace.Repository, standard: workspace.Repository
) -> None:
    assert git(tiny.path, "rev-parse", "main") == "3639ecac9400cad9e85a4d01faba5ddca4bab070"
    assert git(standard.path, "rev-parse", "main") == "d1fbb05ad6c842b5c59107bc861ee2303101d211"
    assert len(git(standard.path, "ls-tree", "-r", "--name-only", "main").splitlines()) == 71


def test_the_large_corpus_imports_to_its_pinned_commit(cache_dir: Path, tmp_path: Path) -> None:
    large = sources.obtain(corpora.load("large"), cache_dir, IndexSettings.from_environment(os.environ))
    assert git(large.path, "rev-parse", "main", "main^{tree}").split() == [
        "4298eca1743d0f9e528a16c364685655bdb364de",
        "0137951dc763f6def11327cf1be2d971aa82dc44",
    ]
    top = workspace.checkout(large.path, large.commit, tmp_path / "a0")
    assert len([path for path in top.rglob("*.rs") if path.is_file()]) == 658


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_no_setting_of_the_user_changes_an_import_or_a_checkout(tmp_path: Path, release: Path, umask: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "hooks").mkdir()
    hook = home / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)
    (home / "attributes").write_text("* text eol=crlf\n")
    (home / ".gitconfig").write_text(
        f"[core]\nautocrlf = true\nhooksPath = {home}/hooks\nattributesFile = {home}/attributes\nfileMode = false\n"
        "[commit]\ngpgsign = true\n[i18n]\ncommitEncoding = latin1\n[init]\ndefaultObjectFormat = sha256\n"
        "[user]\nname = Someone\nemail = someone@example.org\n[fetch]\nfsckObjects = true\n"
    )
    hostile = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TZ": "Asia/Tokyo",
        "GIT_AUTHOR_DATE": "2001-02-03T04:05:06",
        "GIT_COMMITTER_NAME": "Someone",
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_WORK_TREE": str(home),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TEMPLATE_DIR": str(home),
        "LANG": "de_DE.UTF-8",
    }
    script = (
        "import sys; from pathlib import Path; from agentload.agents import corpora, workspace\n"
        "release, work = map(Path, sys.argv[1:])\n"
        "for name in ('tiny', 'standard'):\n"
        "    made = workspace.import_corpus(corpora.load(name), release, work / 'cache')\n"
        "    print(made.commit, workspace.checkout(made.path, made.commit, work / 'checkouts' / name))\n"
    )
    command = [sys.executable, "-c", script, str(release), str(tmp_path)]
    done = subprocess.run(command, env=hostile, umask=umask, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "3639ecac9400cad9e85a4d01faba5ddca4bab070",
        "d1fbb05ad6c842b5c59107bc861ee2303101d211",
    ]
    assert not (tmp_path / "hook-ran").exists()
    top = tmp_path / "checkouts" / "tiny"
    assert (top / "src" / "lib.rs").stat().st_mode & 0o777 == 0o644
    assert (top / "src").stat().st_mode & 0o777 == 0o755
    assert b"\r" not in (top / "Cargo.toml").read_bytes()


@pytest.mark.parametrize("what", ["tree", "commit"])
def test_another_id_than_pinned_stops_the_import_and_leaves_nothing(
    corpus: Corpus, sdist: Path, tmp_path: Path, what: str
) -> None:
    ids = {"tree": corpus.imported.tree, "commit": corpus.imported.commit, what: "f" * 40}
    cache = tmp_path / "cache"
    with pytest.raises(PinMismatchError, match=f"expected {what} {'f' * 40}, got {getattr(corpus.imported, what)}"):
        workspace.import_corpus(make_corpus(ids["tree"], ids["commit"]), sdist, cache)
    assert list((cache / "corpora").iterdir()) == []


def test_one_changed_byte_of_the_release_is_noticed(corpus: Corpus, tmp_path: Path) -> None:
    changed = make_sdist(tmp_path / "changed.tar.gz", {**FILES, "LICENSE": b"Free\n"})
    with pytest.raises(PinMismatchError, match=f"expected tree {corpus.imported.tree}"):
        workspace.import_corpus(corpus, changed, tmp_path / "cache")


def test_counts_that_differ_from_the_pins_are_told(corpus: Corpus, sdist: Path, tmp_path: Path) -> None:
    other = make_corpus(corpus.imported.tree, corpus.imported.commit, rs_lines=5)
    with pytest.raises(PinMismatchError, match=r"expected 5 \.rs lines, got 4"):
        workspace.import_corpus(other, sdist, tmp_path / "cache")


def test_imports_at_once_end_in_one_sound_repository(corpus: Corpus, sdist: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: workspace.import_corpus(corpus, sdist, cache), range(8)))
    assert made == {workspace.verify(corpus, cache)}
    assert [path.name for path in (cache / "corpora").iterdir()] == [f"mine-{corpus.imported.commit[:12]}.git"]


def test_a_damaged_object_in_the_cache_is_found(corpus: Corpus, mine: workspace.Repository, tmp_path: Path) -> None:
    blob = git(mine.path, "rev-parse", "main:LICENSE")
    other = git(mine.path, "rev-parse", "main:src/lib.rs")
    victim = mine.path / "objects" / blob[:2] / blob[2:]
    victim.chmod(0o644)
    victim.write_bytes((mine.path / "objects" / other[:2] / other[2:]).read_bytes())
    with pytest.raises(PinMismatchError, match="expected sound git objects of corpus mine"):
        workspace.verify(corpus, tmp_path / "cache")


def test_a_moved_branch_in_the_cache_is_found(corpus: Corpus, mine: workspace.Repository, tmp_path: Path) -> None:
    moved = git(mine.path, "commit-tree", mine.tree, "-m", "another", env=IDENTITY)
    git(mine.path, "update-ref", "refs/heads/main", moved)
    with pytest.raises(PinMismatchError, match=f"expected commit {mine.commit}, got {moved}"):
        workspace.verify(corpus, tmp_path / "cache")


def test_a_corpus_that_is_not_in_the_cache_is_said_to_be_missing(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run `agentload corpus fetch mine`"):
        workspace.verify(corpus, tmp_path)


def test_an_imported_corpus_is_obtained_without_its_release_file(
    corpus: Corpus, mine: workspace.Repository, tmp_path: Path
) -> None:
    assert sources.obtain(corpus, tmp_path / "cache") == mine


# ---- checkouts -----------------------------------------------------------------------------------------------------


def test_a_checkout_holds_the_files_as_they_are(mine: workspace.Repository, tmp_path: Path) -> None:
    top = workspace.checkout(mine.path, mine.commit, tmp_path / "a0")
    found = {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    assert {path: data for path, data in found.items() if not path.startswith(".git/")} == FILES
    assert {(top / path).stat().st_mode & 0o777 for path in FILES} == {0o644}
    assert {(top / path).stat().st_mtime_ns for path in (*FILES, "src", ".")} == {1_700_000_000 * 10**9}


def test_git_works_inside_a_checkout_and_does_not_tell_where_it_came_from(
    mine: workspace.Repository, tmp_path: Path
) -> None:
    top = workspace.checkout(mine.path, mine.commit, tmp_path / "a0")
    assert git(top, "log", "--format=%H %an %s") == f"{mine.commit} corpus import mine 1.0"
    assert git(top, "status", "--porcelain") == ""
    assert git(top, "remote") == ""
    told = [
        path for path in (top / ".git").rglob("*") if path.is_file() and str(tmp_path).encode() in path.read_bytes()
    ]
    assert told == []


@pytest.mark.parametrize("link_objects", [False, True])
def test_a_checkout_stays_whole_when_its_source_is_gone(
    mine: workspace.Repository, tmp_path: Path, *, link_objects: bool
) -> None:
    top = workspace.checkout(mine.path, mine.commit, tmp_path / "a0", link_objects=link_objects)
    mine.path.rename(tmp_path / "gone")
    assert git(top, "fsck", "--full") == ""
    assert git(top, "show", "HEAD:LICENSE") == "free"


def test_sixteen_checkouts_at_once_share_nothing(standard: workspace.Repository, tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        tops = list(
            pool.map(lambda n: workspace.checkout(standard.path, standard.commit, tmp_path / f"a{n}"), range(16))
        )
    assert len({(top / "src" / "lib.rs").stat().st_ino for top in tops}) == 16
    packs = [path for top in tops for path in (top / ".git" / "objects").rglob("*") if path.is_file()]
    assert {path.stat().st_nlink for path in packs} == {1}
    (tops[0] / "src" / "lib.rs").write_text("broken")
    assert git(tops[0], "status", "--porcelain") == "M src/lib.rs"
    assert {git(top, "status", "--porcelain") for top in tops[1:]} == {""}


def test_another_commit_than_asked_for_is_refused_and_nothing_is_left(
    mine: workspace.Repository, tmp_path: Path
) -> None:
    with pytest.raises(PinMismatchError, match=f"expected commit {'a' * 40} at its tip, there is {mine.commit}"):
        workspace.checkout(mine.path, "a" * 40, tmp_path / "agents" / "a0")
    assert list((tmp_path / "agents").iterdir()) == []


def test_a_checkout_never_lands_in_a_folder_that_is_there(mine: workspace.Repository, tmp_path: Path) -> None:
    (tmp_path / "a0").mkdir()
    with pytest.raises(InputError, match="expected nothing there yet"):
        workspace.checkout(mine.path, mine.commit, tmp_path / "a0")


def test_what_is_no_repository_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: expected a bare repository .*git clone in ") as caught:
        workspace.checkout(tmp_path / "nowhere", "a" * 40, tmp_path / "a0")
    assert "\n" not in str(caught.value)


def test_shipped_corpora_are_found_by_name(cache_dir: Path, tiny: workspace.Repository) -> None:
    assert workspace.verify(corpora.load("tiny"), cache_dir) == tiny


CHECKOUT = """
import sys
from pathlib import Path
from agentload.agents import workspace
from agentload.errors import InputError
try:
    workspace.checkout(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) / "a0")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("kib", [48, 600])
def test_a_checkout_that_fills_the_disk_of_tmpdir_says_so(
    standard: workspace.Repository, tmp_path: Path, kib: int
) -> None:
    """The checkout takes 1.5 MiB: git meets the end of the disk in its clone, early and late."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-c", CHECKOUT, str(standard.path), standard.commit, str(disk)]
    done = without(FULL, command, disk, kib, env={"TMPDIR": str(disk)})
    told = f"no space is left on the disk (or in the quota) of {disk}: make room there, or set TMPDIR to a folder on "
    assert done.stdout == f"{told}another disk\n"
