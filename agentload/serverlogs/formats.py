"""Which log formats are installed, and which of them is this log of?"""

from typing import Final

from agentload import plugins
from agentload.core.ports import LogFormat
from agentload.errors import UsageError

HEAD_BYTES: Final = 1 << 18  # of a log, looked at to detect its format


def installed() -> dict[str, LogFormat]:
    """Return the installed log formats by name."""
    return {name: plugins.load(plugins.SERVERLOGS, name) for name in plugins.names(plugins.SERVERLOGS)}


def by_name(name: str) -> LogFormat:
    """Return the format `name`.

    Raises:
        UsageError: there is none of that name.
    """
    known = plugins.names(plugins.SERVERLOGS)
    if name not in known:
        raise UsageError(f"--log-format: expected one of {', '.join(known)}, got {name!r}")
    found: LogFormat = plugins.load(plugins.SERVERLOGS, name)
    return found


def scores(head: bytes) -> dict[str, int]:
    """Return for each format how many lines of a log's head only it would write; a torn last line is left out."""
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:-1]]
    return {name: one.looks_like(lines) for name, one in installed().items()}


def detect(head: bytes) -> str | None:
    """Return the format that most lines can only be of; None when no line is of any."""
    found = scores(head)
    best = max(found, key=lambda name: found[name], default=None)
    return best if best is not None and found[best] > 0 else None
