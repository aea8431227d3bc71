"""Which parts are installed, and how is one loaded only when it is needed?

Commands, log formats and later reports and exports are entry points of the installed distribution. This is the only
dynamic import in agentload: importing openai alone costs more than a second, so `--help` must not pay for `run`.
Entry points are read from installed metadata, so a new one needs a reinstall (an architecture test says so).
"""

import sys
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from agentload.errors import UsageError

COMMANDS = "agentload.commands"
SERVERLOGS = "agentload.serverlogs"
EXPORTS = "agentload.exports"
STAGES = "agentload.stages"  # what a command does, where importing that is too slow for its --help


def names(group: str) -> list[str]:
    """Names of the entry points of `group`, sorted."""
    return sorted({point.name for point in _points(group, tuple(sys.path))})


@cache
def _points(group: str, _where: tuple[str, ...]) -> EntryPoints:
    """Read the metadata of all that is installed once: 5 to 8 ms each time, and eight formats are asked for."""
    return entry_points(group=group)


def load(group: str, name: str) -> Any:
    """Import and return the object behind entry point `name` of `group`.

    Raises:
        UsageError: there is no such entry point, several distributions offer one, or it cannot be imported.
    """
    kind = group.rpartition(".")[2]
    found: list[EntryPoint] = [point for point in _points(group, tuple(sys.path)) if point.name == name]
    if not found:
        raise UsageError(f"no {kind} named {name!r}: there is {', '.join(names(group)) or 'none'}")
    if len({point.value for point in found}) > 1:
        offers = " and ".join(sorted(f"{_distribution(point)} ({point.value})" for point in found))
        raise UsageError(f"expected one distribution with {kind} {name!r}, got {offers}: uninstall all but one")
    try:
        return found[0].load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{kind} {name!r} of {_distribution(found[0])} ({found[0].value}) cannot be loaded: {error}"
        ) from error


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed distribution"
