"""What was meant by a path: a run, a log, a log on stdin, or nothing that is there?"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from agentload import plugins
from agentload.analysis import logfile
from agentload.analysis.livelog import until_interrupted
from agentload.analysis.logfile import LogAccount
from agentload.errors import InputError, UsageError
from agentload.shown import shown

STDIN: Final = Path("-")
_NEAREST: Final = 3


def single(paths: Sequence[Path], command: str) -> Path:
    """Return the only one; `command` reads a log from a pipe.

    Raises:
        UsageError: there are several; how a log is read that was rotated is said.
    """
    if len(paths) != 1:
        raise UsageError(
            f"expected one run or log, got {len(paths)}: {', '.join(map(str, paths[:_NEAREST]))}"
            f"{', ...' if len(paths) > _NEAREST else ''}; parts of one log, the oldest first: "
            f"`cat OLDER NEWER | {command}`"
        )
    return paths[0]


def is_run(path: Path) -> bool:
    """Tell a run directory from a log.

    Raises:
        InputError: it is neither; what is near is named.
    """
    if path == STDIN:
        return False
    name = shown(str(path))
    try:
        if not path.exists():
            what = "expected a run directory or a server's log"
            if path.is_symlink():
                raise InputError(f"{what}, {name} is a link to {shown(str(path.readlink()))}, where nothing is")
            raise InputError(f"{what}, there is no {name}{_nearest(path)}")
        if not path.is_dir():
            return False
        if (path / "manifest.json").is_file():
            return True
        logs = sorted(one.name for one in path.iterdir() if one.is_file() and ".log" in one.name)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from error
    there = f"; for a log in it name the file: {', '.join(map(shown, logs[:_NEAREST]))}" if logs else ""
    raise InputError(f"expected a run directory (with manifest.json), {name} is none{there}")


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {shown(str(folder))}"
    near = difflib.get_close_matches(path.name, (one.name for one in folder.iterdir()), n=_NEAREST)
    return f"; near it: {', '.join(map(shown, near))}" if near else ""


def read_log(
    path: Path, log_format: str | None, stdin: TextIO | None, only: str | None = None, *, wait: bool = False
) -> LogAccount:
    """Account for the log at `path`, or for that on `stdin`; `only` and `wait` as in `logfile.read_file`.

    Raises:
        InputError: it cannot be read, or is no log.
        UsageError: there is no such format or segment, or stdin is a terminal or closed.
    """
    known = plugins.names(plugins.SERVERLOGS)
    if log_format is not None and log_format not in known:
        raise UsageError(f"--format: expected one of {', '.join(known)}, got {log_format!r}")
    if path != STDIN:
        return logfile.read_file(path, log_format, only, wait=wait)
    if stdin is None:
        raise UsageError("-: expected a log on stdin, it is closed")
    if stdin.isatty():
        raise UsageError("-: expected a log on stdin, it is a terminal: `zcat server.log.gz | agentload account -`")
    file = until_interrupted(stdin.buffer) if wait else stdin.buffer
    return logfile.read_stream(file, "stdin", log_format, only)
