"""Is a run still being written, or did its writer die?

The writer holds a lock on the run's folder from before the first manifest until after the last one. The kernel drops
it when the process dies, however it dies; the number of a process may be another's by then, and says nothing on another
machine. A copy of the folder has no lock.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from agentload.errors import ArtifactError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Hold:
    """Says that a run is being written, until it is released or the process ends."""

    def __init__(self, run: Path, *, wait: bool = True) -> None:
        """Take the lock on the folder `run`; where the file system has no locks, nothing is said.

        Args:
            run: the folder of a run, or of an experiment.
            wait: wait for another writer to end.

        Raises:
            ArtifactError: there is another writer, and it is not to be waited for.
        """
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(run, _FOLDER)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                self.release()
                raise ArtifactError(f"{run}: is being written by another agentload") from error

    def release(self) -> None:
        """Let go; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_held(run: Path) -> bool:
    """Tell whether a living process writes the run at `run`; False too where the file system has no locks.

    To be asked before the manifest is read: of a run that ends in between the manifest then says how it ended.
    """
    try:
        fd = os.open(run, _FOLDER)
    except OSError:
        return False
    try:
        # Shared: two that look at once must not take each other for the writer, who has it exclusively.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
