"""What was meant by a path: a run, a log, a log on stdin, or nothing that is there?"""

import difflib
from pathlib import Path
from typing import Final, TextIO

from agentload import plugins
from agentload.analysis import logfile
from agentload.analysis.logfile import LogAccount
from agentload.errors import InputError, UsageError

STDIN: Final = Path("-")
_NEAREST: Final = 3


def is_run(path: Path) -> bool:
    """Tell a run directory from a log.

    Raises:
        InputError: it is neither; what is near is named.
    """
    if path == STDIN:
        return False
    try:
        if not path.exists():
            raise InputError(f"expected a run directory or a server's log, there is no {path}{_nearest(path)}")
        if not path.is_dir():
            return False
        if (path / "manifest.json").is_file():
            return True
        logs = sorted(one.name for one in path.iterdir() if one.is_file() and ".log" in one.name)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    there = f"; for a log in it name the file: {', '.join(logs[:_NEAREST])}" if logs else ""
    raise InputError(f"expected a run directory (with manifest.json), {path} is none{there}")


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    near = difflib.get_close_matches(path.name, (one.name for one in folder.iterdir()), n=_NEAREST)
    return f"; near it: {', '.join(near)}" if near else ""


def read_log(path: Path, log_format: str | None, stdin: TextIO | None) -> LogAccount:
    """Account for the log at `path`, or for that on `stdin`.

    Raises:
        InputError: it cannot be read, or is no log.
        UsageError: there is no such format, or stdin is a terminal or closed.
    """
    known = plugins.names(plugins.SERVERLOGS)
    if log_format is not None and log_format not in known:
        raise UsageError(f"--format: expected one of {', '.join(known)}, got {log_format!r}")
    if path != STDIN:
        return logfile.read_file(path, log_format)
    if stdin is None:
        raise UsageError("-: expected a log on stdin, it is closed")
    if stdin.isatty():
        raise UsageError("-: expected a log on stdin, it is a terminal: `zcat server.log.gz | agentload account -`")
    return logfile.read_stream(stdin.buffer, "stdin", log_format)
