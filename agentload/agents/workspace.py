"""What do the agents work on, and is it exactly the code that was pinned?

A corpus is imported once into a bare repository whose tree and commit ids must be the pinned ones; each agent gets a
checkout of its own. Git runs in an environment made here (`env -i`), so that no variable and no configuration of the
user, of the machine or of a surrounding git hook can change an object id: measured, an import is the same commit
under umask 022 and 077, with autocrlf, gpgsign and commitEncoding set globally, with TZ and GIT_AUTHOR_DATE set.

The only module that imports git (GitPython).
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from agentload.agents.corpora import Corpus, release_files
from agentload.errors import InputError, PinMismatchError
from agentload.registry import IndexSettings, Progress, fetch

try:
    import git
except ImportError as missing:  # GitPython looks for the git program as it is imported
    raise InputError(f"expected the git program on PATH, there is none: {str(missing).split(chr(10))[0]}") from missing

# The identity and the instant of every import commit; with tree and message they fix its id.
_IDENTITY: Final = "corpus import <corpus@localhost> 1700000000 +0000"
_BRANCH: Final = "refs/heads/main"
_UMASK: Final = 0o022  # files 0644, folders 0755, whatever the user's umask is


@dataclass(frozen=True, slots=True)
class Repository:
    """A bare repository that checkouts are made from; its only branch is `main`."""

    name: str  # the corpus' name, or the folder's name of the user's own checkout
    path: Path
    commit: str
    tree: str
    dirty: bool = False  # the user's checkout had changes that are not committed; they are not in here


def obtain(
    corpus: Corpus, cache_dir: Path, settings: IndexSettings | None = None, *, progress: Progress | None = None
) -> Repository:
    """Return the imported corpus, fetching and importing what is not in the cache yet.

    Raises:
        FetchError, PinMismatchError: see `registry.fetch` and `import_corpus`.
    """
    if repository_path(corpus, cache_dir).is_dir():
        return verify(corpus, cache_dir)
    return import_corpus(corpus, fetch(corpus.pin(), cache_dir, settings, progress=progress), cache_dir)


def repository_path(corpus: Corpus, cache_dir: Path) -> Path:
    """Return where the imported corpus lies in the cache, whether or not it is there."""
    return cache_dir / "corpora" / f"{corpus.name}-{corpus.imported.commit[:12]}.git"


def import_corpus(corpus: Corpus, sdist: Path, cache_dir: Path) -> Repository:
    """Import the corpus' files from its release file; several processes may do so at once.

    Raises:
        PinMismatchError: the files do not give the pinned tree, commit or counts; nothing is kept.
        InputError: the release file holds something a corpus cannot hold.
    """
    files = release_files(corpus, sdist)
    rust = [data for path, data in files.items() if path.endswith(".rs")]
    pinned = corpus.imported
    expected = {"files": pinned.files, ".rs files": pinned.rs_files, ".rs lines": pinned.rs_lines}
    got = {"files": len(files), ".rs files": len(rust), ".rs lines": sum(data.count(b"\n") for data in rust)}
    for what, count in expected.items():
        if got[what] != count:
            raise PinMismatchError(f"corpus {corpus.name} from {sdist}: expected {count} {what}, got {got[what]}")
    final = repository_path(corpus, cache_dir)
    with _new_folder(final) as folder:
        _init(folder)
        with tempfile.TemporaryFile() as stream:
            _write_import(stream, files, pinned.message)
            stream.seek(0)
            _git(folder, "fast-import", "--quiet", "--done", stdin=stream)
        _check_ids(corpus, folder, str(sdist))
    return verify(corpus, cache_dir)


def verify(corpus: Corpus, cache_dir: Path) -> Repository:
    """Check every object of the imported corpus against its id, and the ids against the pins.

    Raises:
        InputError: it is not in the cache.
        PinMismatchError: it is not what was pinned.
    """
    path = repository_path(corpus, cache_dir)
    if not path.is_dir():
        raise InputError(
            f"corpus {corpus.name} is not in the cache ({path}): run `agentload corpus fetch {corpus.name}`"
        )
    try:
        _git(path, "fsck", "--full", "--strict", "--no-progress", "--no-dangling")
        _check_ids(corpus, path, str(path))
    except InputError as error:
        if isinstance(error, PinMismatchError):
            raise
        raise PinMismatchError(f"{path}: expected sound git objects of corpus {corpus.name}: {error}") from error
    return Repository(corpus.name, path, corpus.imported.commit, corpus.imported.tree)


def import_checkout(path: Path, dest: Path) -> Repository:
    """Copy the HEAD commit (with its history) of the user's own checkout at `path` into a new bare repository `dest`.

    Changes that are not committed, and files git does not know, are left behind; `dirty` says that there were any.
    The user's repository is only read. A checkout that another user owns is refused, as git does by itself.

    Raises:
        InputError: not the top of a git checkout, or there is no commit yet; or `dest` is there already.
    """
    if not path.is_dir():
        raise InputError(f"--corpus {path}: expected a git checkout, there is no such folder")
    try:
        top = Path(_git(path, "rev-parse", "--show-toplevel"))
    except InputError as error:
        raise InputError(f"--corpus {path}: expected a git checkout: {error}") from error
    if not top.samefile(path):
        raise InputError(f"--corpus {path}: expected the top of a git checkout, which is {top}")
    try:
        _git(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except InputError as error:
        raise InputError(f"--corpus {path}: expected at least one commit, there is none: commit first") from error
    # core.fsmonitor may name a program that `status` would start.
    dirty = _git(path, "--no-optional-locks", "-c", "core.fsmonitor=false", "status", "--porcelain") != ""
    with _new_folder(dest, reuse=False) as folder:
        _init(folder)
        # What came over is what counts: HEAD may move while we look.
        _git(folder, "fetch", "--quiet", "--no-tags", "--update-shallow", str(path.resolve()), f"+HEAD:{_BRANCH}")
    commit, tree = _git(dest, "rev-parse", _BRANCH, f"{_BRANCH}^{{tree}}").split()
    return Repository(path.resolve().name, dest, commit, tree, dirty)


def checkout(repository: Path, commit: str, dest: Path, *, link_objects: bool = False) -> Path:
    """Make a checkout of `commit`, the tip of the bare `repository`, at `dest`, for one agent alone.

    Files are 0644 (0755 where the commit says executable) with the commit's time as their mtime, so that listings
    are the same on each machine; git works inside, with no remote, no hooks and no trace of where it came from.
    Objects are copied, or with `link_objects` hard-linked: cheap for a long history, but then a writer that ignores
    their read-only mode reaches the other checkouts' too.

    Raises:
        InputError: `dest` is there already, or git failed.
        PinMismatchError: the checkout is not clean or not at `commit`; it is removed.
    """
    with _new_folder(dest, reuse=False) as folder:
        options = ["-c", "core.logAllRefUpdates=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"]
        objects = [] if link_objects else ["--no-hardlinks"]
        source = str(repository.resolve())
        _git(folder, "clone", "--quiet", "--no-tags", "--template=", *options, *objects, "--branch=main", source, ".")
        _git(folder, "remote", "remove", "origin")
        head, time_s = _git(folder, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
        if head != commit:
            raise PinMismatchError(f"{repository}: expected commit {commit} at its tip, there is {head}")
        _set_times(folder, int(time_s))
        _git(folder, "update-index", "-q", "--refresh")  # or each `git status` would read every file again
        if changed := _git(folder, "status", "--porcelain", "--ignored"):
            raise PinMismatchError(
                f"checkout of {commit}: expected a clean work tree, there is {changed.splitlines()[0]}"
            )
    return dest


def _check_ids(corpus: Corpus, repository: Path, shown: str) -> None:
    pinned = corpus.imported
    commit, tree = _git(repository, "rev-parse", _BRANCH, f"{_BRANCH}^{{tree}}").split()
    for what, expected, got in (("tree", pinned.tree, tree), ("commit", pinned.commit, commit)):
        if got != expected:
            raise PinMismatchError(f"corpus {corpus.name} from {shown}: expected {what} {expected}, got {got}")


def _init(folder: Path) -> None:
    _git(folder, "init", "--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=main")


def _write_import(stream: BinaryIO, files: dict[str, bytes], message: str) -> None:
    """Write git-fast-import's input (git-fast-import(1)): it takes bytes as they are, with no filter or attribute."""
    blobs = enumerate(files.values(), 1)
    stream.writelines(b"blob\nmark :%d\ndata %d\n%b\n" % (mark, len(data), data) for mark, data in blobs)
    text = f"{message}\n".encode()
    identity = _IDENTITY.encode()
    stream.write(b"commit %b\nauthor %b\ncommitter %b\n" % (_BRANCH.encode(), identity, identity))
    stream.write(b"data %d\n%b" % (len(text), text))
    stream.writelines(b"M 100644 :%d %b\n" % (mark, path.encode()) for mark, path in enumerate(files, 1))
    stream.write(b"\ndone\n")


def _set_times(folder: Path, time_s: int) -> None:
    for parent, folders, names in os.walk(folder, topdown=True):
        if Path(parent) == folder:
            folders.remove(".git")
        for name in (*names, "."):
            os.utime(Path(parent) / name, (time_s, time_s), follow_symlinks=False)


@contextmanager
def _new_folder(final: Path, *, reuse: bool = True) -> Iterator[Path]:
    """Yield an empty folder beside `final`, and rename it to `final` when the block ends well.

    With `reuse`, another process that was quicker wins; without, a `final` that is there already is an error.
    """
    if not reuse and final.exists():
        raise InputError(f"{final}: expected nothing there yet")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
        try:
            building.chmod(0o777 & ~_UMASK)
            yield building
            try:
                building.rename(final)
            except OSError:
                if not (reuse and final.is_dir()):
                    raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{final}: cannot be written: {error.strerror or error}") from error


def _git(folder: Path, *arguments: str, stdin: BinaryIO | None = None) -> str:
    """Run git in `folder`, in an environment that holds nothing of the caller's.

    Raises:
        InputError: git failed; its own last word is told.
    """
    program = shutil.which("git")
    if program is None:
        raise InputError("expected the git program on PATH, there is none")
    clean = {
        "PATH": f"{Path(program).parent}:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    # GitPython can add to the environment but not take away; `env -i` can.
    command = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in clean.items()), program, *arguments]
    try:
        return git.Git(folder).execute(command, istream=stdin, umask=_UMASK)
    except git.GitCommandError as error:
        said = [line for line in str(error.stderr).strip().strip("'").splitlines() if line.strip()]
        told = said[-1].strip().strip("'") if said else f"exit code {error.status}"
        raise InputError(f"git {arguments[0]} failed: {told}") from error
