"""How is a folder of derived files replaced, so that a death or a reader at any moment finds a whole one, or the means?

The new folder is made beside the old under a name of its own, put into the old one's place when it is whole, and only
then is the old one deleted. Between the two renames there is no folder for some microseconds; a death there leaves the
raw files, from which it is made again. Two processes that do this at once do not meet: the last one's folder stays.
"""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agentload.errors import ArtifactError

_TRIES: Final = 100  # each failure means that another process has just put its own there


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target`; put it into the place of `target` on leaving, or delete it on an exception.

    What earlier, killed processes left behind is deleted too.

    Raises:
        ArtifactError: the folder above cannot be written, or the disk is full.
    """
    _sweep(target)
    made, lock = _make(target)
    try:
        yield made
        _swap(made, target)
    except OSError as error:
        raise _cannot(target, error) from error
    finally:
        _delete(made)
        os.close(lock)


def _cannot(target: Path, error: OSError) -> ArtifactError:
    advice = {
        errno.EACCES: f"; make {target.parent} writable, or copy it and use the copy",
        errno.EPERM: f"; make {target.parent} writable, or copy it and use the copy",
        errno.EROFS: f"; copy {target.parent} to where you can write, and use the copy",
        errno.ENOSPC: "; make room on that disk",
    }.get(error.errno or 0, "")
    return ArtifactError(f"{target}: cannot be made: {error.strerror}{advice}")


def _beside(target: Path, what: str) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.{what}")


def _make(target: Path) -> tuple[Path, int]:
    """Return a new folder, and the lock that tells a living maker's from one that was left behind."""
    while True:
        made = _beside(target, "tmp")
        try:
            made.mkdir()
            lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if target.parent.is_dir():
                continue  # another process took it for one left behind, before it was locked
            raise ArtifactError(f"{target}: cannot be made: there is no {target.parent}") from None
        except OSError as error:
            raise _cannot(target, error) from error
        with suppress(OSError):  # a file system without locks: nothing is swept there
            fcntl.flock(lock, fcntl.LOCK_EX)
        if made.is_dir():
            return made, lock
        os.close(lock)


def _swap(made: Path, target: Path) -> None:
    for _ in range(_TRIES):
        old = _beside(target, "old")
        with suppress(FileNotFoundError):  # there is none yet, or another process has just put it aside
            target.rename(old)
        try:
            made.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                with suppress(OSError):
                    old.rename(target)
                raise
            _delete(old)
            continue
        _delete(old)
        return
    raise ArtifactError(f"{target}: cannot be made: another process puts its own there again and again")


def _sweep(target: Path) -> None:
    """Delete what killed processes left: folders that nobody holds a lock on."""
    try:
        found = [one for one in target.parent.iterdir() if one.name.startswith(f".{target.name}.")]
    except OSError:
        return  # making the new one says what is wrong
    for one in found:
        if one.suffix not in (".tmp", ".old"):
            continue
        try:
            lock = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            _delete(one)
        finally:
            os.close(lock)


def _delete(path: Path) -> None:
    """Delete a folder, or whatever else stood there under its name; what cannot be deleted stays."""
    with suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
        path.chmod(0o700)
        shutil.rmtree(path)
