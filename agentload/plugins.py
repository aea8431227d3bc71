"""Which parts are installed, and how is one loaded only when it is needed?

Commands, log formats and later reports and exports are entry points of the installed distribution. This is the only
dynamic import in agentload: importing openai alone costs more than a second, so `--help` must not pay for `run`.
Entry points are read from installed metadata, so a new one needs a reinstall (an architecture test says so).
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from agentload.errors import UsageError

COMMANDS = "agentload.commands"
SERVERLOGS = "agentload.serverlogs"


def names(group: str) -> list[str]:
    """Names of the entry points of `group`, sorted."""
    return sorted(point.name for point in entry_points(group=group))


def load(group: str, name: str) -> Any:
    """Import and return the object behind entry point `name` of `group`.

    Raises:
        UsageError: there is no such entry point.
    """
    found: list[EntryPoint] = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        raise UsageError(f"no {group.rpartition('.')[2]} named {name!r}: there is {', '.join(names(group)) or 'none'}")
    return found[0].load()
