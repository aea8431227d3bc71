"""How does a repository of the user's own become a pinned corpus?

Its commit is fetched as the git route does it, the chosen files are imported, and what came out (tree, commit, counts)
is written into a TOML file like those of the shipped corpora. What a corpus cannot hold (links, submodules, paths that
git would have to quote) and `.gitattributes`, which would change files in a checkout, is excluded by name and said.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import tomli_w

from agentload import folders
from agentload.agents import corpora, own_checkout
from agentload.agents.corpora import Corpus
from agentload.agents.datafiles import names as files_in
from agentload.agents.git_route import Entry, Server, server, split_login
from agentload.agents.tasks import ANY
from agentload.agents.workspace import Counts, GitError, Repository, import_files, run_git, write_repository
from agentload.errors import InputError, UsageError

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://|github:|[\w.-]+@[\w.-]+:", re.IGNORECASE)
_FULL_ID: Final = re.compile(r"[0-9a-f]{40}")
_LFS: Final = b"version https://git-lfs.github.com/spec/"
_SHOWN: Final = 3  # paths that a line names of many


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    source: str  # the address of a repository, or the path of a checkout
    commit: str | None = None  # a full id; a tag or a branch; of a checkout whatever git understands. Default: HEAD
    include: tuple[str, ...] = ()  # default: everything
    name: str | None = None  # default: as the repository is called


@dataclass(frozen=True, slots=True)
class Origin:
    """What `Wanted.source` turned out to be."""

    url: str  # what is fetched from; it may hold a password
    kept: str  # what the pin says
    commit: str
    tag: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A pin that was written."""

    corpus: Corpus
    file: Path
    repository: Repository
    notes: tuple[str, ...]  # what of the repository is not in it, and what else to know


def is_address(source: str) -> bool:
    """Tell whether a source is the address of a repository, and no path."""
    return _ADDRESS.match(source) is not None


def name_for(wanted: Wanted) -> str:
    """Return the name of the corpus: what was asked for, else the last part of the address or path.

    Raises:
        UsageError: it cannot be a name.
    """
    if wanted.name is not None:
        option, name = "--name", wanted.name
    else:
        option = "the repository's name"
        shown = re.split(r"[?#]", wanted.source)[0] if is_address(wanted.source) else str(Path(wanted.source).resolve())
        name = re.split(r"[/:]", shown.rstrip("/"))[-1].removesuffix(".git").lower()
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{option}: expected small letters, digits, dots, dashes and underscores (at most 64), got {name!r}"
            + ("" if wanted.name is not None else ": give another with --name")
        )
    if name == ANY:
        raise UsageError(f"{option}: {name!r} stands for every corpus in tasks: give another with --name")
    return name


def file_for(name: str, folder: Path, places: Sequence[Path], *, replacing: bool = False) -> Path:
    """Return where the pin is written: a file of `folder`, and no name that another corpus in `places` has.

    Raises:
        UsageError: the name is taken.
    """
    file = folder / f"{name}.toml"
    for place in places:
        if name in files_in(place) and place.resolve() != folder.resolve():
            raise UsageError(f"--name: {name!r} is a corpus already ({place / file.name}): give another with --name")
    if os.path.lexists(file) and not replacing:
        raise UsageError(f"{file} is there already: give another --name, or --replace to write it anew")
    return file


def add(
    wanted: Wanted, folder: Path, places: Sequence[Path], cache_dir: Path, network: dict[str, str], *,
    replacing: bool = False,
) -> Pinned:  # fmt: skip
    """Pin a commit of a repository, import it into the cache, and write its TOML file into `folder`.

    `places` are where corpora are looked for. The file is written last, and appears whole.

    Raises:
        UsageError: a name, an include rule or a commit is not acceptable.
        InputError: the source is no repository that can be read; or a folder cannot be written.
        FetchError: it cannot be fetched.
    """
    name = name_for(wanted)
    for rule in wanted.include:
        try:
            corpora.check_rule(rule)
        except ValueError as error:
            raise UsageError(f"--include: {error}") from error
    file = file_for(name, folder, places, replacing=replacing)
    with folders.usable(folder, corpora.OWN_SETTING):
        folder.mkdir(parents=True, exist_ok=True)
    local = None if is_address(wanted.source) else _local(wanted)
    url = wanted.source if local is None else local.url
    with server(corpora.full_address(url), cache_dir, network) as repository:
        origin = local or _remote(wanted, repository)
        repository.fetch(origin.commit, origin.tag)
        corpus, files, notes = _pinned(name, wanted, origin, repository)
        source = f"{repository.shown} at {origin.commit[:12]}"
        imported = import_files(corpus, files, source, cache_dir)
    text = tomli_w.dumps(corpus.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True))
    _write(file, f"# Written by `agentload corpus add`.\n{text}")
    return Pinned(corpus, file, replace(imported, notes=notes), (*origin.notes, *notes))


def _local(wanted: Wanted) -> Origin:
    """Look at the user's own checkout, which is only read."""
    path, shown = Path(wanted.source), wanted.source
    with folders.usable(path, None):
        if not path.is_dir():
            there = "it is a file" if path.exists() else "there is no such folder"
            raise InputError(f"{shown}: expected a git checkout or the address of a repository, {there}")
    folders.look(path, None)
    own_checkout.check(path, shown)
    top = str(path.resolve())
    wish = wanted.commit or "HEAD"
    try:
        commit = run_git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{wish}^{{commit}}")
    except GitError as error:
        raise UsageError(f"--commit: expected a commit, tag or branch of {shown}, there is no {wish!r}") from error
    notes: tuple[str, ...] = ()
    if own_checkout.is_dirty(path, shown):
        notes = (f"changes in the work tree of {shown} that are not committed are left out",)
    return Origin(top, top, commit, None, notes)


def _remote(wanted: Wanted, repository: Server) -> Origin:
    """Find out which commit of a repository elsewhere is meant."""
    kept, _ = split_login(wanted.source)
    secret = kept != wanted.source
    notes = ("the address is kept without user, password and query: a later fetch needs --url",) if secret else ()
    wish = wanted.commit or "HEAD"
    if _FULL_ID.fullmatch(wish):
        return Origin(wanted.source, kept, wish, None, notes)
    wishes = (
        ("HEAD",) if wanted.commit is None else (f"refs/tags/{wish}", f"refs/tags/{wish}^{{}}", f"refs/heads/{wish}")
    )
    found = repository.refs(*wishes)
    for ref in wishes:
        if ref in found:
            tag = wish if ref.startswith("refs/tags/") else None
            return Origin(wanted.source, kept, found[ref], tag, notes)
    if wanted.commit is None:
        raise InputError(f"{repository.shown}: expected a HEAD with a commit, there is none: name one with --commit")
    raise UsageError(
        f"--commit: expected a full commit id (40 hex digits), a tag or a branch of {repository.shown}, got {wish!r}"
    )


def _pinned(
    name: str, wanted: Wanted, origin: Origin, repository: Server
) -> tuple[Corpus, dict[str, bytes], tuple[str, ...]]:
    """Return the corpus, its files, and what to say of it."""
    tree, entries = repository.tree(origin.commit)
    rules = wanted.include or ("**",)
    for rule in rules:
        if not any(corpora.matches(rule, entry.path) for entry in entries):
            is_folder = any(entry.path.startswith(f"{rule}/") for entry in entries)
            told = f"it is a folder: write {rule}/" if is_folder else f"no file of commit {origin.commit[:12]} matches"
            raise UsageError(f"--include {rule!r}: {told}")
    chosen = [entry for entry in entries if any(corpora.matches(rule, entry.path) for rule in rules)]
    left_out = {entry.path: why for entry in chosen if (why := _why_not(entry)) is not None}
    if not_text := [path for path in left_out if not _is_text(path)]:
        raise UsageError(
            f"{repository.shown}: expected file names in UTF-8, there is {not_text[0]!r}: let less in with --include"
        )
    files = repository.read([entry for entry in chosen if entry.path not in left_out])
    if not files:
        raise UsageError(f"{repository.shown}: expected a file that a corpus can hold in commit {origin.commit[:12]}")
    version = origin.tag or origin.commit[:12]
    message = f"{name} {version}"
    with tempfile.TemporaryDirectory(prefix="pin-", dir=repository.bare.parent) as scratch:
        made_tree, made_commit = write_repository(Path(scratch), files, message)
    counts = Counts.of(files)
    fields: dict[str, Any] = {
        "name": name,
        "project": name,
        "version": version,
        "licence": "not stated",
        "include": rules,
        "exclude": tuple(sorted(left_out)),
        "upstream": {"repository": origin.kept, "commit": origin.commit, "tree": tree, "tag": origin.tag},
        "import": {"message": message, "tree": made_tree, "commit": made_commit, **counts._asdict()},
    }
    return Corpus.model_validate(fields), files, _notes(left_out, files)


def _why_not(entry: Entry) -> str | None:
    """Why a corpus cannot hold this; None when it can."""
    if entry.mode == "160000":
        return "submodules"
    if not entry.is_file:
        return "links"
    if not corpora.holdable(entry.path):
        return "files with unusual names"
    if entry.path.rpartition("/")[2] == ".gitattributes":
        return ".gitattributes"
    return None


def _is_text(path: str) -> bool:
    """Tell whether a file name is UTF-8; if not, its odd bytes came as lone surrogates, which TOML cannot hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _notes(left_out: dict[str, str], files: dict[str, bytes]) -> tuple[str, ...]:
    notes = []
    for why in dict.fromkeys(left_out.values()):
        paths = [path for path, reason in left_out.items() if reason == why]
        some = ", ".join(repr(path)[1:-1] for path in paths[:_SHOWN]) + (", ..." if len(paths) > _SHOWN else "")
        notes.append(f"{why} are left out: {len(paths)} ({some})")
    if pointers := sum(data.startswith(_LFS) for data in files.values()):
        notes.append(f"files kept in Git LFS come as their pointers: {pointers}")
    return tuple(notes)


def _write(file: Path, text: str) -> None:
    with folders.usable(file.parent, corpora.OWN_SETTING):
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                out.write(text)
                os.fchmod(descriptor, 0o644)
            Path(name).replace(file)
        finally:
            Path(name).unlink(missing_ok=True)
