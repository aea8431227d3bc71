"""What do the agents work on, and is it exactly the code that was pinned?

A corpus is imported once into a bare repository whose tree and commit ids must be the pinned ones; each agent gets a
checkout of its own. Git runs in an environment made here (`env -i`), so that no variable and no configuration of the
user, of the machine or of a surrounding git hook can change an object id: measured, an import is the same commit
under umask 022 and 077, with autocrlf, gpgsign and commitEncoding set globally, with TZ and GIT_AUTHOR_DATE set.

The only module that imports git (GitPython).
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from agentload import folders
from agentload.agents.corpora import Corpus, release_files
from agentload.errors import InputError, PinMismatchError
from agentload.registry import IndexSettings, Progress, fetch

try:
    import git
except ImportError as missing:  # GitPython runs `git version` as it is imported, with the user's configuration
    if shutil.which("git") is None:
        raise InputError("expected the git program on PATH, there is none") from missing
    _told = [line.strip() for line in str(missing).splitlines() if line.strip()]
    _reason = next((line.partition("stderr: ")[2].strip("'") for line in _told if line.startswith("stderr: ")), "")
    raise InputError(f"expected a git program that works: {_reason or _told[0]}") from missing

# The identity and the instant of every import commit; with tree and message they fix its id.
_IDENTITY: Final = "corpus import <corpus@localhost> 1700000000 +0000"
_BRANCH: Final = "refs/heads/main"
_UMASK: Final = 0o022  # files 0644, folders 0755, whatever the user's umask is
_LARGE_KIB: Final = 256 << 10  # a copy of a history above this is told
_LEAST_FREE: Final = 1 << 20  # bytes; with less, a file that cannot be written is the disk's trouble
_FULL: Final = ("No space left on device", "Out of diskspace", "Disk quota exceeded")


class _GitError(InputError):
    """Git refused; `said` is what it said, one line without its prefix."""

    def __init__(self, command: str, folder: Path, said: str) -> None:
        super().__init__(f"git {command} in {folder} failed: {said}")
        self.said = said


@dataclass(frozen=True, slots=True)
class Repository:
    """A bare repository that checkouts are made from; its only branch is `main`."""

    name: str  # the corpus' name, or the folder's name of the user's own checkout
    path: Path
    commit: str
    tree: str
    dirty: bool = False  # the user's checkout had changes that are not committed; they are not in here
    notes: tuple[str, ...] = ()  # what else of the user's checkout is not in here, or is more than expected


def obtain(
    corpus: Corpus,
    cache_dir: Path,
    settings: IndexSettings | None = None,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Repository:
    """Return the imported corpus, fetching and importing what is not in the cache yet, or is damaged there.

    Raises:
        FetchError, PinMismatchError, InputError: see `registry.fetch` and `import_corpus`.
    """
    if is_imported(corpus, cache_dir):
        try:
            return verify(corpus, cache_dir)
        except PinMismatchError as error:
            if say is not None:
                say(f"damaged in the cache, imported anew: {error}")
    return import_corpus(corpus, fetch(corpus.pin(), cache_dir, settings, progress=progress), cache_dir)


def is_imported(corpus: Corpus, cache_dir: Path) -> bool:
    """Tell whether the corpus lies in the cache, sound or not.

    Raises:
        InputError: the cache cannot be looked into.
    """
    folders.look(cache_dir)
    with folders.usable(cache_dir):
        return repository_path(corpus, cache_dir).is_dir()


def repository_path(corpus: Corpus, cache_dir: Path) -> Path:
    """Return where the imported corpus lies in the cache, whether or not it is there."""
    return cache_dir / "corpora" / f"{corpus.name}-{corpus.imported.commit[:12]}.git"


def import_corpus(corpus: Corpus, sdist: Path, cache_dir: Path) -> Repository:
    """Import the corpus' files from its release file; several processes may do so at once: one does, the others wait.

    The repository is made and checked beside its place. A damaged one is moved away only then; a process that is
    killed between these two renames leaves none, and leftovers are removed by the next import.

    Raises:
        PinMismatchError: the files do not give the pinned tree, commit or counts; nothing is kept.
        InputError: the release file holds something a corpus cannot hold; or the cache cannot be written.
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
    with folders.usable(cache_dir):
        final.parent.mkdir(parents=True, exist_ok=True)
        with folders.locked(cache_dir / ".import.lock"):
            folders.remove_leftovers(final.parent, f".{final.name}-")
            try:
                return verify(corpus, cache_dir)  # another process was quicker
            except InputError:  # not there, or damaged
                pass
            with _new_folder(final, cache_dir) as folder:
                _init(folder)
                with tempfile.TemporaryFile(dir=folder.parent) as stream:  # not in TMPDIR: one disk to have room on
                    _write_import(stream, files, pinned.message)
                    stream.seek(0)
                    _git(folder, "fast-import", "--quiet", "--done", stdin=stream)
                _check(corpus, folder, str(sdist))
    return Repository(corpus.name, final, pinned.commit, pinned.tree)


def verify(corpus: Corpus, cache_dir: Path) -> Repository:
    """Check every object of the imported corpus against its id, and the ids against the pins.

    Raises:
        InputError: it is not in the cache.
        PinMismatchError: it is not what was pinned.
    """
    path = repository_path(corpus, cache_dir)
    if not is_imported(corpus, cache_dir):
        raise InputError(
            f"corpus {corpus.name} is not in the cache ({path}): run `agentload corpus fetch {corpus.name}`"
        )
    if path.stat().st_uid != os.geteuid():
        raise InputError(
            f"{path}: expected a cache of your own, it belongs to another user, whose repositories git refuses: "
            f"set {folders.CACHE_SETTING} to a folder of yours"
        )
    try:
        _check(corpus, path, str(path))
    except _GitError as error:
        raise PinMismatchError(
            f"{path}: expected sound git objects of corpus {corpus.name} (`agentload corpus fetch {corpus.name}` "
            f"makes them anew): {error}"
        ) from error
    return Repository(corpus.name, path, corpus.imported.commit, corpus.imported.tree)


def import_checkout(path: Path, dest: Path) -> Repository:
    """Copy the HEAD commit (with its history) of the user's own checkout at `path` into a new bare repository `dest`.

    Changes that are not committed, and files git does not know, are left behind; `dirty` says that there were any, and
    `notes` what else differs from what the user sees. The user's repository is only read. A checkout that another
    user owns is refused, as git does by itself. Of a partial clone, HEAD comes without history: no object is missing
    there, and none is fetched from anywhere.

    Raises:
        InputError: not the top of a git checkout, or there is no commit yet; or `dest` is there already.
    """
    shown = f"--corpus {path}"
    with folders.usable(path, None):
        if not path.is_dir():
            there = "it is a file" if path.exists() else "there is no such folder"
            raise InputError(f"{shown}: expected a git checkout, {there}")
    folders.look(path, None)
    shallow = _check_checkout(path, shown)
    try:
        # core.fsmonitor may name a program that `status` would start.
        dirty = _git(path, "--no-optional-locks", "-c", "core.fsmonitor=false", "status", "--porcelain") != ""
        settings = _git(path, "config", "--list", "--name-only").lower().splitlines()
        partial = any(name.endswith((".promisor", ".partialclone")) for name in settings)
        notes = _notes(path, shallow=shallow, partial=partial)
    except _GitError as error:
        raise InputError(f"{shown}: expected a checkout that git can read: {error}") from error
    with _new_folder(dest) as folder:
        _init(folder)
        # What came over is what counts: HEAD may move while we look.
        depth = ["--depth=1"] if partial else ["--update-shallow"]
        try:
            _git(folder, "fetch", "--quiet", "--no-tags", *depth, str(path.resolve()), f"+HEAD:{_BRANCH}")
        except _GitError as error:
            lacks = "all objects of its HEAD commit, which a partial clone may lack: use a clone without --filter"
            sound = "sound git objects, as `git fsck` checks them"
            raise InputError(f"{shown}: expected {lacks if partial else sound}: {error}") from error
    commit, tree = _git(dest, "rev-parse", _BRANCH, f"{_BRANCH}^{{tree}}").split()
    return Repository(path.resolve().name, dest, commit, tree, dirty, notes)


def _check_checkout(path: Path, shown: str) -> bool:
    """Refuse what is not the top of a checkout with a commit; return whether it is a shallow clone.

    Raises:
        InputError: it is none.
    """
    try:
        asked = ("--is-bare-repository", "--is-inside-work-tree", "--is-shallow-repository")
        bare, inside, shallow = (word == "true" for word in _git(path, "rev-parse", *asked).split())
    except _GitError as error:
        if "dubious ownership" in error.said:
            raise InputError(
                f"{shown}: expected a checkout of your own, it belongs to another user, and git refuses those: "
                "copy it (cp -r) and name the copy"
            ) from error
        if "not a git repository" in error.said:
            raise InputError(
                f"{shown}: expected a git checkout, there is no git repository: name one, or make it one "
                "(git init, git add, git commit)"
            ) from error
        raise InputError(f"{shown}: expected a git checkout: {error}") from error
    if bare:
        raise InputError(f"{shown}: expected a checkout with files, it is a bare repository: clone it, name the clone")
    if not inside:
        raise InputError(f"{shown}: expected the top of a git checkout, it is inside of a .git folder")
    top = Path(_git(path, "rev-parse", "--show-toplevel"))
    if not top.samefile(path):
        raise InputError(f"{shown}: expected the top of a git checkout, which is {top}")
    try:
        _git(path, "rev-parse", "--verify", "--quiet", "HEAD")
    except _GitError as error:
        raise InputError(f"{shown}: expected at least one commit, there is none: commit first") from error
    try:
        _git(path, "cat-file", "-e", "HEAD^{tree}")
    except _GitError as error:
        raise InputError(f"{shown}: expected a HEAD commit that can be read, as `git fsck` checks: {error}") from error
    return shallow


def _notes(path: Path, *, shallow: bool, partial: bool) -> tuple[str, ...]:
    """Say how what agents get will differ from what the user sees in the checkout at `path`."""
    notes = []
    if partial:
        notes.append("a partial clone: its HEAD commit is taken without history")
    elif shallow:
        notes.append("a shallow clone: its history is cut off")
    if _git(path, "config", "--type=bool", "--default", "false", "--get", "core.sparseCheckout") == "true":
        notes.append("a sparse checkout: agents get every file of the commit")
    entries = _git(path, "ls-tree", "-r", "--full-tree", "HEAD").splitlines()
    if modules := [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]:
        some = ", ".join(modules[:3]) + (", ..." if len(modules) > 3 else "")
        notes.append(f"submodules are left out: {len(modules)} ({some})")
    try:
        _git(path, "grep", "--quiet", "-e", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes")
        notes.append("files kept in Git LFS come as their pointers")
    except _GitError:  # no such line
        pass
    counts = dict(line.split(": ") for line in _git(path, "count-objects", "-v").splitlines())
    if not partial and (kib := int(counts["size"]) + int(counts["size-pack"])) > _LARGE_KIB:
        notes.append(f"its history is large, {kib / (1 << 20):.1f} GiB are copied")
    return tuple(notes)


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
    with _new_folder(dest) as folder:
        options = ["-c", "core.logAllRefUpdates=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"]
        options += [] if link_objects else ["--no-hardlinks"]
        source = str(repository.resolve())
        try:
            _git(folder, "clone", "--quiet", "--no-tags", "--template=", *options, "--branch=main", source, ".")
        except _GitError as error:
            raise InputError(f"{repository}: expected a bare repository with a branch main: {error}") from error
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


def _check(corpus: Corpus, repository: Path, shown: str) -> None:
    """Check every object of the bare `repository` against its id, and the branch against the pins.

    Raises:
        PinMismatchError: another tree, commit or branch than pinned.
        _GitError: objects are missing or damaged, or it is no repository.
    """
    _git(repository, "fsck", "--full", "--strict", "--no-progress", "--no-dangling", bare=True)
    pinned = corpus.imported
    commit, tree = _git(repository, "rev-parse", _BRANCH, f"{_BRANCH}^{{tree}}", bare=True).split()
    head = _git(repository, "symbolic-ref", "HEAD", bare=True)
    for what, expected, got in (
        ("tree", pinned.tree, tree),
        ("commit", pinned.commit, commit),
        ("HEAD", _BRANCH, head),
    ):
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
    for parent, inner, names in os.walk(folder, topdown=True):
        if Path(parent) == folder:
            inner.remove(".git")
        for name in (*names, "."):
            os.utime(Path(parent) / name, (time_s, time_s), follow_symlinks=False)


@contextmanager
def _new_folder(final: Path, cache_dir: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder beside `final`, and rename it to `final` when the block ends well.

    In a cache, the caller holds its lock and what is at `final` gives way; elsewhere that would be an error.
    """
    if cache_dir is None and final.exists():
        raise InputError(f"{final}: expected nothing there yet")
    setting = "TMPDIR" if final.is_relative_to(tempfile.gettempdir()) else None
    place = (final.parent, setting) if cache_dir is None else (cache_dir, folders.CACHE_SETTING)
    with folders.usable(*place):
        final.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
        old = building.with_name(f"{building.name}-old")
        try:
            building.chmod(0o777 & ~_UMASK)
            yield building
            if cache_dir is not None and os.path.lexists(final):
                final.rename(old)
            building.rename(final)
        finally:
            for path in (building, old):
                folders.remove(path)


def _git(folder: Path, *arguments: str, stdin: BinaryIO | None = None, bare: bool = False) -> str:
    """Run git in `folder`, in an environment that holds nothing of the caller's.

    With `bare`, `folder` itself must be the repository, and not some folder around it.

    Raises:
        _GitError: git failed; what it said first is told.
        OSError: the disk is full, or `folder` cannot be entered.
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
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    # GitPython can add to the environment but not take away; `env -i` can.
    command = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in clean.items()), program]
    try:
        here = ["--git-dir=."] if bare else []
        return git.Git(folder).execute([*command, *here, *arguments], istream=stdin, umask=_UMASK)
    except git.GitCommandError as error:
        # GitPython has each as "stderr: '...'".
        quoted = [str(text).strip().partition(": ")[2] for text in (error.stderr, error.stdout)]
        texts = [text.removeprefix("'").removesuffix("'") for text in quoted]
        # Of a file of a work tree git only says "unable to write file".
        no_room = "unable to write" in texts[0] and shutil.disk_usage(folder).free < _LEAST_FREE
        if no_room or any(word in text for text in texts for word in _FULL):
            raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error
        lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
        worst = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines
        said = worst[0].removeprefix("fatal: ").removeprefix("error: ") if worst else f"exit code {error.status}"
        old = " (expected git 2.31 or newer)" if "unknown option" in said else ""
        raise _GitError(_subcommand(arguments), folder, said + old) from error


def _subcommand(arguments: tuple[str, ...]) -> str:
    rest = list(arguments)
    while rest[0].startswith("-"):
        del rest[: 2 if rest[0] == "-c" else 1]
    return rest[0]
