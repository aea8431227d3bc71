"""Why can a folder not be used, what helps, and who may write in it now?

The cache is shared by processes and outlives them, and so it meets full disks, foreign owners, read-only mounts and
half-written leftovers. What the system says of that ("Permission denied") becomes one line which names the folder, the
setting that chose it, and what to do.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agentload.errors import ArtifactError, InputError

CACHE_SETTING: Final = "AGENTLOAD_CACHE"

_HELD: Final = ".held"  # ends the names of folders that are locked while their makers live
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = "no space is left on the disk (or in the quota)"


def is_full(error: OSError) -> bool:
    """Tell whether a disk or a quota has no room left."""
    return error.errno in _FULL


def says_full(text: str) -> bool:
    """Tell whether an error's line is about a disk or a quota without room, where there is no OSError to ask."""
    return _NO_ROOM in text or any(os.strerror(number) in text for number in _FULL)


def no_room(folder: Path, setting: str | None = None) -> InputError:
    """Say that the disk below `folder`, which `setting` chose, has no room left."""
    other = f", or set {setting} to a folder on another disk" if setting else ""
    return InputError(f"{_NO_ROOM} of {folder}: make room there{other}")


def refusal(error: OSError, folder: Path, setting: str | None = None) -> InputError:
    """Say why `folder`, which `setting` chose, cannot be used, and what helps."""
    if is_full(error):
        return no_room(folder, setting)
    where = Path(error.filename) if isinstance(error.filename, str) else folder
    at = "" if where == folder else f"{where}: "
    if error.errno in _DESCRIPTORS:
        return InputError(f"{where}: {error.strerror}: expected room for more open files at once: raise `ulimit -n`")
    what = "the cache folder" if setting == CACHE_SETTING else "the folder"
    other = f", or set {setting} to another one" if setting else ""
    return InputError(
        f"{what} {folder} cannot be used ({at}{error.strerror or error}): expected a folder that you may use{other}"
    )


@contextmanager
def usable(folder: Path, setting: str | None = CACHE_SETTING) -> Iterator[None]:
    """Turn what the file system refuses in the block into `refusal`."""
    try:
        yield
    except OSError as error:
        raise refusal(error, folder, setting) from error


@contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """Make a folder where TMPDIR says, and remove it at the end, as `held` does.

    Raises:
        InputError: none can be made, or what the block writes there finds no room or no right.
    """
    try:
        place = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise InputError(
            f"expected a folder for temporary files: {error.strerror}: make room, or set TMPDIR"
        ) from error
    try:
        with held(place, prefix) as made:
            mine = made.resolve()
            try:
                yield mine
            except ArtifactError as error:  # of a writer that does not know TMPDIR chose the folder
                if not (says_full(str(error)) and str(error).startswith(f"{mine}{os.sep}")):
                    raise
                raise no_room(place, "TMPDIR") from error
    except OSError as error:
        inside = isinstance(error.filename, str) and Path(error.filename).is_relative_to(place)
        if not (inside or is_full(error)):
            raise
        raise refusal(error, place, "TMPDIR") from error


@contextmanager
def held(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder in `parent`, and remove it at the end; first remove those of this prefix whose makers were killed.

    The name's end says that its maker holds a lock on it, which the kernel drops when that process dies: no other
    folder is ever removed, and where the file system has no locks, none.

    Raises:
        OSError: it cannot be made.
    """
    _remove_abandoned(parent, prefix)
    made, lock = _make_held(parent, prefix)
    try:
        with made as path:
            yield Path(path)
    finally:
        if lock is not None:
            os.close(lock)


def _make_held(parent: Path, prefix: str) -> tuple["tempfile.TemporaryDirectory[str]", int | None]:
    while True:
        made = tempfile.TemporaryDirectory(prefix=prefix, suffix=_HELD, dir=parent, ignore_cleanup_errors=True)
        lock = _lock(Path(made.name), wait=True)
        if Path(made.name).exists():  # else somebody found it before it was locked, and removed it
            return made, lock
        if lock is not None:
            os.close(lock)
        made.cleanup()


def _remove_abandoned(parent: Path, prefix: str) -> None:
    with suppress(OSError):  # a folder that one may write, but not list
        for path in parent.iterdir():
            if not (path.name.startswith(prefix) and path.name.endswith(_HELD)):
                continue
            lock = _lock(path, wait=False)
            if lock is not None:
                if os.fstat(lock).st_uid == os.geteuid():
                    remove(path)
                os.close(lock)


def _lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder, and return the descriptor that holds the lock; None: it is gone, locked, or cannot be locked."""
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def look(folder: Path, setting: str | None = CACHE_SETTING) -> None:
    """Check that `folder` can be read, or could be made: nothing is there yet, or it is a folder one may look into.

    Raises:
        InputError: it, or what it is to be made in, is no folder or may not be looked into.
    """
    with usable(folder, setting):
        try:
            mode = folder.stat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder", str(folder))
        if not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock between processes and threads; the kernel drops it when its holder dies.

    Yields its descriptor: a process that is started with it holds the lock, too.
    """
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what a killed process left in `folder`: to be called under the lock that its writers hold."""
    for path in folder.iterdir():
        if path.name.startswith(prefix):
            remove(path)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, or a file, as far as it goes; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def set_room_aside(path: Path, size: int) -> None:
    """Write a file of `size` bytes that is deleted when the disk is full, so that what must be written finds room.

    Raises:
        OSError: there is no such room.
    """
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.write(bytes(size))
