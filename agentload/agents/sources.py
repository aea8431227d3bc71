"""By which route does a corpus come into the cache, and which one is tried when that fails?

The archive route is the release file of the package index, the git route the project's own repository. Both must give
the pinned commit, so it does not matter which one worked; a corpus that a user pinned has only git's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from agentload.agents import git_route
from agentload.agents.corpora import Corpus, release_files
from agentload.agents.git_route import Say
from agentload.agents.workspace import Repository, import_files, is_imported, verify
from agentload.errors import FetchError, PinMismatchError
from agentload.registry import IndexSettings, Progress, fetch, is_cached

Route = Literal["archive", "git"]


def obtain(
    corpus: Corpus,
    cache_dir: Path,
    settings: IndexSettings | None = None,
    *,
    route: Route | None = None,
    url: str | None = None,
    network: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Repository:
    """Return the imported corpus, fetching and importing what is not in the cache yet, or is damaged there.

    With no `route` that is the archive's, and git's when no index could give the release file, unless `settings` allow
    no index at all: then nothing is asked of any network. With a `route`, that one is gone even when the corpus is
    there, and must give the same. `url` stands for the pinned address of the git route; `network` is
    `git_route.network_of` the environment.

    Raises:
        FetchError: it could not be fetched.
        PinMismatchError: what was fetched is not what was pinned.
        InputError: see `registry.fetch`, `release_files` and `workspace.import_files`.
    """
    tell: Say = say or (lambda _: None)
    settings = settings or IndexSettings()
    if route is None and is_imported(corpus, cache_dir):
        try:
            return verify(corpus, cache_dir)
        except PinMismatchError as error:
            tell(f"damaged in the cache, imported anew: {error}")
    if route == "git" or (corpus.sdist is None and route is None):
        return _by_git(corpus, cache_dir, url, network, tell, anew=route is not None)
    try:
        archive = _archive(corpus, cache_dir, settings, progress, tell)
    except FetchError as error:
        if route is not None or settings.no_index:
            raise
        tell(f"the archive route failed, trying the git route: {error}")
        try:
            return _by_git(corpus, cache_dir, url, network, tell)
        except FetchError as second:
            raise FetchError(f"{second}; and by the archive route: {error}") from error
    return import_files(corpus, release_files(corpus, archive), str(archive), cache_dir, anew=route is not None)


def _archive(corpus: Corpus, cache_dir: Path, settings: IndexSettings, progress: Progress | None, tell: Say) -> Path:
    """Return the release file, downloaded anew when the cached one is damaged."""
    was_there = is_cached(corpus.pin(), cache_dir)
    try:
        return fetch(corpus.pin(), cache_dir, settings, progress=progress)
    except PinMismatchError as error:
        if not was_there:
            raise
        tell(f"damaged in the cache, fetched anew: {error}")
        return fetch(corpus.pin(), cache_dir, settings, progress=progress)


def _by_git(
    corpus: Corpus,
    cache_dir: Path,
    url: str | None,
    network: Mapping[str, str] | None,
    tell: Say,
    *,
    anew: bool = False,
) -> Repository:
    upstream = corpus.upstream
    with git_route.server(url or upstream.url, cache_dir, network) as repository:
        if not anew and is_imported(corpus, cache_dir):  # another process was quicker, while this one waited
            try:
                return verify(corpus, cache_dir)
            except PinMismatchError:
                pass
        tell(f"fetching commit {upstream.commit[:12]} with git from {repository.shown}")
        repository.fetch(upstream.commit, upstream.tag, tell)
        files = git_route.project(corpus, repository)
        return import_files(corpus, files, f"{repository.shown} at {upstream.commit[:12]}", cache_dir, anew=anew)
