"""Fixtures of the agents' tests: a small corpus with its release file, and a user's own repository."""

from pathlib import Path

import pytest

from agentload.agents import workspace
from agentload.agents.corpora import Corpus
from tests.agents.repositories import FILES, IDENTITY, commit_by_hand, git, make_corpus, make_sdist


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    return make_sdist(tmp_path / "mine-1.0.tar.gz", {**FILES, "PKG-INFO": b"left out"})


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return make_corpus(*commit_by_hand(tmp_path / "by-hand", FILES, "mine 1.0"))


@pytest.fixture
def mine(corpus: Corpus, sdist: Path, tmp_path: Path) -> workspace.Repository:
    return workspace.import_corpus(corpus, sdist, tmp_path / "cache")


@pytest.fixture
def checkout_of_mine(tmp_path: Path) -> Path:
    """A user's own repository with two commits."""
    top = tmp_path / "my-project"
    top.mkdir()
    git(top, "init", "-q", "-b", "trunk", ".")
    (top / "sub").mkdir()
    for number in (1, 2):
        (top / "sub" / "a.txt").write_text(f"{number}\n")
        git(top, "add", ".")
        git(top, "commit", "-q", "-m", f"commit {number}", env=IDENTITY)
    return top
