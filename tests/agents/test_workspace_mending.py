"""Is a damaged corpus made anew from its release file, by one process at a time, whatever a killed one left?"""

import fcntl
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentload.agents import sources, workspace
from agentload.agents.corpora import Corpus
from agentload.errors import InputError, PinMismatchError
from agentload.registry import IndexSettings, cached_path, sha256_of
from tests.agents.repositories import FILES, commit_by_hand, git, make_corpus

IMPORT = """
import sys
from pathlib import Path
from agentload.agents import workspace
from agentload.agents.corpora import Corpus
corpus = Corpus.model_validate_json(sys.stdin.read())
print(workspace.import_corpus(corpus, Path(sys.argv[1]), Path(sys.argv[2])).commit)
"""


def damage(mine: workspace.Repository, how: str) -> None:
    objects = [path for path in (mine.path / "objects").rglob("*") if path.is_file()]
    if how == "an object is gone":
        next(path for path in objects if path.suffix in ("", ".pack")).unlink()
    elif how == "all objects are gone":
        shutil.rmtree(mine.path / "objects")
    elif how == "HEAD is junk":
        (mine.path / "HEAD").write_text("junk\n")
    elif how == "HEAD is another branch":
        (mine.path / "HEAD").write_text("ref: refs/heads/other\n")
    elif how == "the branch is gone":
        (mine.path / "refs" / "heads" / "main").unlink()
    elif how == "an empty folder":
        shutil.rmtree(mine.path)
        mine.path.mkdir()
    else:
        assert how == "a file"
        shutil.rmtree(mine.path)
        mine.path.write_text("")


DAMAGES = (
    "an object is gone",
    "all objects are gone",
    "HEAD is junk",
    "HEAD is another branch",
    "the branch is gone",
    "an empty folder",
    "a file",
)


@pytest.fixture
def fetchable(sdist: Path) -> Corpus:
    """The corpus with its release file's true hash, so that it can be put into the cache by hand."""
    return make_corpus(*commit_by_hand(sdist.with_name("again"), FILES, "mine 1.0"), sha256=sha256_of(sdist))


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_corpus_is_imported_anew_from_the_cached_release_file(
    fetchable: Corpus, sdist: Path, tmp_path: Path, how: str
) -> None:
    cache = tmp_path / "cache"
    kept = cached_path(fetchable.pin(), cache)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(sdist.read_bytes())
    nothing_but_the_cache = IndexSettings(no_index=True)
    mine = sources.obtain(fetchable, cache, nothing_but_the_cache)
    damage(mine, how)
    with pytest.raises(InputError) as caught:
        workspace.verify(fetchable, cache)
    assert "\n" not in str(caught.value)
    said: list[str] = []
    assert sources.obtain(fetchable, cache, nothing_but_the_cache, say=said.append) == mine
    assert workspace.verify(fetchable, cache) == mine
    assert git(mine.path, "cat-file", "blob", "main:LICENSE") == "free"
    assert [path.name for path in mine.path.parent.iterdir()] == [mine.path.name]
    assert len(said) == (0 if how == "a file" else 1)
    assert all("imported anew" in line for line in said)


def test_a_cache_inside_a_git_checkout_is_not_taken_for_that_checkout(
    corpus: Corpus, sdist: Path, checkout_of_mine: Path
) -> None:
    mine = workspace.import_corpus(corpus, sdist, checkout_of_mine / "cache")
    damage(mine, "HEAD is junk")
    with pytest.raises(PinMismatchError, match=r"not a git repository: '\.'"):
        workspace.verify(corpus, checkout_of_mine / "cache")


def test_what_a_killed_import_left_is_removed_by_the_next(corpus: Corpus, sdist: Path, tmp_path: Path) -> None:
    final = workspace.repository_path(corpus, tmp_path)
    for left in ("-a1b2c3", "-a1b2c3-old"):
        (final.parent / f".{final.name}{left}" / "objects").mkdir(parents=True)
    workspace.import_corpus(corpus, sdist, tmp_path)
    assert list(final.parent.iterdir()) == [final]


def test_an_import_that_is_killed_half_way_leaves_nothing_under_its_name(
    corpus: Corpus, sdist: Path, tmp_path: Path
) -> None:
    cache, reached, go_on = tmp_path / "cache", tmp_path / "reached", tmp_path / "go-on"
    for fifo in (reached, go_on):
        os.mkfifo(fifo)
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    halt = f'case "$*" in *fast-import*) echo . > {reached}; cat {go_on};; esac'
    slow.write_text(f'#!/bin/sh\n{halt}\nexec {shutil.which("git")} "$@"\n')
    slow.chmod(0o755)
    with reached.open("r+b", buffering=0) as signal, go_on.open("r+b", buffering=0) as release_git:
        with import_in_a_process(corpus, sdist, cache, path=f"{slow.parent}:{os.environ['PATH']}") as process:
            assert select.select([signal], [], [], 300)[0], "git fast-import was never called"
            process.kill()
        final = workspace.repository_path(corpus, cache)
        assert not final.exists()
        assert len(list(final.parent.iterdir())) == 1  # the half import
        with (cache / ".import.lock").open("ab") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its git is still at work there
        release_git.write(b".")
        assert workspace.import_corpus(corpus, sdist, cache) == workspace.verify(corpus, cache)
    assert list(final.parent.iterdir()) == [final]


def test_processes_that_mend_at_once_end_in_one_sound_repository(
    corpus: Corpus, mine: workspace.Repository, sdist: Path, tmp_path: Path
) -> None:
    damage(mine, "an object is gone")
    processes = [import_in_a_process(corpus, sdist, tmp_path / "cache") for _ in range(3)]
    outputs = {process.communicate(timeout=300)[0].strip() for process in processes}
    assert outputs == {mine.commit}
    assert workspace.verify(corpus, tmp_path / "cache") == mine
    assert list(mine.path.parent.iterdir()) == [mine.path]


def import_in_a_process(
    corpus: Corpus, sdist: Path, cache: Path, path: str = os.environ["PATH"]
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(sdist), str(cache)],
        env={**os.environ, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(corpus.model_dump_json(by_alias=True))
    process.stdin.close()
    process.stdin = None  # communicate() would flush it
    return process


def test_a_corpus_of_another_user_is_refused_with_what_helps(
    corpus: Corpus, mine: workspace.Repository, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(mine.path, 4242, 4242)
    with pytest.raises(InputError, match=r"it belongs to another user.*set AGENTLOAD_CACHE to a folder of yours"):
        workspace.verify(corpus, tmp_path / "cache")
