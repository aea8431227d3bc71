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
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from agentload import folders
from agentload.agents.corpora import Corpus, release_files
from agentload.errors import InputError, PinMismatchError

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
BRANCH: Final = "refs/heads/main"
_UMASK: Final = 0o022  # files 0644, folders 0755, whatever the user's umask is
_LEAST_FREE: Final = 1 << 20  # bytes; with less, a file that cannot be written is the disk's trouble
_FULL: Final = ("No space left on device", "Out of diskspace", "Disk quota exceeded")


class GitError(InputError):
    """Git refused; `said` is what it said, one line without its prefix."""

    def __init__(self, command: str, folder: Path, said: str) -> None:
        super().__init__(f"git {command} in {folder} failed: {said}")
        self.said = said


class GitTimeoutError(GitError):
    """Git was given a time, and had not ended."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A bare repository that checkouts are made from; its only branch is `main`."""

    name: str  # the corpus' name, or the folder's name of the user's own checkout
    path: Path
    commit: str
    tree: str
    dirty: bool = False  # the user's checkout had changes that are not committed; they are not in here
    notes: tuple[str, ...] = ()  # what else of the user's checkout is not in here, or is more than expected


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
    """Import the corpus' files from its release file: see `import_files`.

    Raises:
        PinMismatchError, InputError: see `release_files` and `import_files`.
    """
    return import_files(corpus, release_files(corpus, sdist), str(sdist), cache_dir)


def import_files(
    corpus: Corpus, files: Mapping[str, bytes], source: str, cache_dir: Path, *, anew: bool = False
) -> Repository:
    """Import the corpus' files (path -> bytes, in the order of the paths' bytes), which came from `source`.

    Several processes may do so at once: one does, the others wait. The repository is made and checked beside its
    place. A damaged one is moved away only then; a process that is killed between these two renames leaves none, and
    leftovers are removed by the next import. With `anew` the files are imported and checked even when a sound one is
    there, which stays, since others may be reading it.

    Raises:
        PinMismatchError: the files do not give the pinned tree, commit or counts; nothing is kept.
        InputError: the cache cannot be written.
    """
    counts = Counts.of(files)
    expected = Counts(corpus.imported.files, corpus.imported.rs_files, corpus.imported.rs_lines)
    for what, count, got in zip(("files", ".rs files", ".rs lines"), expected, counts, strict=True):
        if got != count:
            raise PinMismatchError(f"corpus {corpus.name} from {source}: expected {count} {what}, got {got}")
    final = repository_path(corpus, cache_dir)
    with folders.usable(cache_dir):
        final.parent.mkdir(parents=True, exist_ok=True)
        with folders.locked(cache_dir / ".import.lock") as lock:
            folders.remove_leftovers(final.parent, f".{final.name}-")
            try:
                sound = verify(corpus, cache_dir)  # another process was quicker
            except InputError:  # not there, or damaged
                sound = None
            if sound is not None and not anew:
                return sound
            with new_folder(final, cache_dir, keep=sound is None) as folder:
                write_repository(folder, files, corpus.imported.message, lock)
                _check(corpus, folder, source)
    return Repository(corpus.name, final, corpus.imported.commit, corpus.imported.tree)


class Counts(NamedTuple):
    """How much a corpus is."""

    files: int
    rs_files: int
    rs_lines: int

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> "Counts":
        """Count the files, those of Rust, and the newlines in these."""
        rust = [data for path, data in files.items() if path.endswith(".rs")]
        return cls(len(files), len(rust), sum(data.count(b"\n") for data in rust))


def write_repository(
    folder: Path, files: Mapping[str, bytes], message: str, lock: int | None = None
) -> tuple[str, str]:
    """Make a bare repository of one commit in the empty `folder`; return the ids of its tree and its commit.

    The git that writes holds the caller's `lock` too: when the caller is killed, it is free once git has ended.
    """
    init_bare(folder, lock)
    with tempfile.TemporaryFile(dir=folder.parent) as stream:  # not in TMPDIR: one disk to have room on
        _write_import(stream, files, message)
        stream.seek(0)
        run_git(folder, "fast-import", "--quiet", "--done", stdin=stream, lock=lock)
    commit, tree = run_git(folder, "rev-parse", BRANCH, f"{BRANCH}^{{tree}}", bare=True).split()
    return tree, commit


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
    except GitError as error:
        raise PinMismatchError(
            f"{path}: expected sound git objects of corpus {corpus.name} (`agentload corpus fetch {corpus.name}` "
            f"makes them anew): {error}"
        ) from error
    return Repository(corpus.name, path, corpus.imported.commit, corpus.imported.tree)


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
    with new_folder(dest) as folder:
        options = ["-c", "core.logAllRefUpdates=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"]
        options += [] if link_objects else ["--no-hardlinks"]
        source = str(repository.resolve())
        try:
            run_git(folder, "clone", "--quiet", "--no-tags", "--template=", *options, "--branch=main", source, ".")
        except GitError as error:
            raise InputError(f"{repository}: expected a bare repository with a branch main: {error}") from error
        run_git(folder, "remote", "remove", "origin")
        head, time_s = run_git(folder, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
        if head != commit:
            raise PinMismatchError(f"{repository}: expected commit {commit} at its tip, there is {head}")
        _set_times(folder, int(time_s))
        run_git(folder, "update-index", "-q", "--refresh")  # or each `git status` would read every file again
        if changed := run_git(folder, "status", "--porcelain", "--ignored"):
            raise PinMismatchError(
                f"checkout of {commit}: expected a clean work tree, there is {changed.splitlines()[0]}"
            )
    return dest


def _check(corpus: Corpus, repository: Path, shown: str) -> None:
    """Check every object of the bare `repository` against its id, and the branch against the pins.

    Raises:
        PinMismatchError: another tree, commit or branch than pinned.
        GitError: objects are missing or damaged, or it is no repository.
    """
    run_git(repository, "fsck", "--full", "--strict", "--no-progress", "--no-dangling", bare=True)
    pinned = corpus.imported
    commit, tree = run_git(repository, "rev-parse", BRANCH, f"{BRANCH}^{{tree}}", bare=True).split()
    head = run_git(repository, "symbolic-ref", "HEAD", bare=True)
    for what, expected, got in (
        ("tree", pinned.tree, tree),
        ("commit", pinned.commit, commit),
        ("HEAD", BRANCH, head),
    ):
        if got != expected:
            raise PinMismatchError(f"corpus {corpus.name} from {shown}: expected {what} {expected}, got {got}")


def init_bare(folder: Path, lock: int | None = None) -> None:
    """Make an empty bare repository of `folder`; of `lock` see `run_git`."""
    options = ("--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=main")
    run_git(folder, "init", *options, lock=lock)


def _write_import(stream: BinaryIO, files: Mapping[str, bytes], message: str) -> None:
    """Write git-fast-import's input (git-fast-import(1)): it takes bytes as they are, with no filter or attribute."""
    blobs = enumerate(files.values(), 1)
    stream.writelines(b"blob\nmark :%d\ndata %d\n%b\n" % (mark, len(data), data) for mark, data in blobs)
    text = f"{message}\n".encode()
    identity = _IDENTITY.encode()
    stream.write(b"commit %b\nauthor %b\ncommitter %b\n" % (BRANCH.encode(), identity, identity))
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
def new_folder(final: Path, cache_dir: Path | None = None, *, keep: bool = True) -> Iterator[Path]:
    """Yield an empty folder beside `final`, and rename it to `final` when the block ends well.

    In a cache, the caller holds its lock and what is at `final` gives way; elsewhere that would be an error. Without
    `keep` the folder is removed at the end, whatever it is.
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
            if keep:
                if cache_dir is not None and os.path.lexists(final):
                    final.rename(old)
                building.rename(final)
        finally:
            for path in (building, old):
                folders.remove(path)


def run_git(
    folder: Path,
    *arguments: str,
    stdin: BinaryIO | None = None,
    bare: bool = False,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    lock: int | None = None,
) -> str:
    """Run git in `folder`, in an environment that holds nothing of the caller's but `env`; return what it printed.

    With `bare`, `folder` itself must be the repository, and not some folder around it. After `timeout_s` git is killed
    with all that it has started. `lock` is the descriptor of a held lock, which git holds with its caller.

    Raises:
        GitError: git failed; what it said first is told. GitTimeoutError: it was killed.
        OSError: the disk is full, or `folder` cannot be entered.
    """
    here = ["--git-dir=."] if bare else []
    command = [*_clean_git(env or {}), *here, *arguments]
    held = () if lock is None else (lock,)
    with _failures_told(folder, arguments):
        if timeout_s is None:
            return git.Git(folder).execute(command, istream=stdin, umask=_UMASK, pass_fds=held)
        start = partial(
            git.Git(folder).execute, command, as_process=True, umask=_UMASK, pass_fds=held, start_new_session=True
        )
        try:
            return _bounded(start, command, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise GitTimeoutError(_subcommand(arguments), folder, f"it had not ended after {timeout_s:g} s") from error


def _bounded(start: Callable[[], git.Git.AutoInterrupt], command: list[str], timeout_s: float) -> str:
    """Return what git printed; whatever ends the wait for it ends git, with the helpers that it has started.

    It is started in a thread, which no signal interrupts: between its start and our knowing its number there is time
    enough for one, and git stayed (1 of 6 tries on a busy machine).
    """
    with ThreadPoolExecutor(1) as starter:
        starting = starter.submit(start)
        try:
            out, err = _process(starting).communicate(timeout=timeout_s)
        finally:
            with _process(starting) as process:
                if process.returncode is None:  # not collected: the id of its group is no other's
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # one that it starts just now is of the group, too
    if process.returncode:
        raise git.GitCommandError(command, process.returncode, err, out)
    return str(out.decode(errors="surrogateescape").removesuffix("\n"))


def _process(starting: "Future[git.Git.AutoInterrupt]") -> subprocess.Popen[bytes]:
    process = starting.result().proc
    assert process is not None
    return process


def git_bytes(folder: Path, *arguments: str, stdin: BinaryIO) -> bytes:
    """Run git in the bare repository `folder` as `run_git` does; return the very bytes that it printed."""
    command = [*_clean_git({}), "--git-dir=.", *arguments]
    with _failures_told(folder, arguments):
        return git.Git(folder).execute(
            command, istream=stdin, umask=_UMASK, stdout_as_string=False, strip_newline_in_stdout=False
        )


def _clean_git(env: Mapping[str, str]) -> list[str]:
    """Return the start of a command line: git without the user's, the machine's and a surrounding hook's settings."""
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
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",  # not ext, which would start what an address names
        "LC_ALL": "C",
        "TZ": "UTC",
        **env,
    }
    # GitPython can add to the environment but not take away; `env -i` can.
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in clean.items()), program]


@contextmanager
def _failures_told(folder: Path, arguments: tuple[str, ...]) -> Iterator[None]:
    try:
        yield
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
        if lines and worst[0].endswith(":") and worst[0] != lines[-1]:  # the reason stands on the next line
            worst[0] += f" {lines[lines.index(worst[0]) + 1]}"
        said = worst[0].removeprefix("fatal: ").removeprefix("error: ") if worst else f"exit code {error.status}"
        old = " (expected git 2.31 or newer)" if "unknown option" in said else ""
        raise GitError(_subcommand(arguments), folder, said + old) from error


def _subcommand(arguments: tuple[str, ...]) -> str:
    rest = list(arguments)
    while rest[0].startswith("-"):
        del rest[: 2 if rest[0] == "-c" else 1]
    return rest[0]
