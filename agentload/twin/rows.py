"""What is one line of the comparison between published and simulated numbers, and does it hold?

A limit says how far apart the two may be. `Evidence.FITTED` marks a number that the profile was fitted to: that it
comes out again is no evidence for the twin. Misfits are published numbers that no profile can give with the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Evidence(StrEnum):
    """Whether a number that comes out says anything for the twin."""

    FREE = "free"  # nothing was fitted to it
    FITTED = "fitted"


Shown = float | int | tuple[float, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One number: as published, as simulated, and how far apart the two may be."""

    table: str
    quantity: str
    published: Shown | None
    simulated: Shown
    limit: str  # empty: none is set
    holds: bool | None  # None: no limit
    evidence: Evidence
    off: float | None = None  # relative difference


@dataclass(frozen=True, slots=True)
class Misfit:
    """A published number that the twin does not give, and why."""

    table: str
    quantity: str
    published: str
    simulated: str
    why: str


def near(table: str, quantity: str, published: float, simulated: float, within: float, evidence: Evidence) -> Row:
    """`within`: largest relative difference."""
    off = simulated / published - 1
    return Row(table, quantity, published, simulated, f"{within:.0%}", abs(off) <= within, evidence, off)


def between(
    table: str, quantity: str, published: Shown | None, simulated: float, low: float, high: float, evidence: Evidence
) -> Row:
    """`low` and `high`: a range of its own, both ends in it."""
    off = simulated / published - 1 if isinstance(published, int | float) else None
    return Row(table, quantity, published, simulated, f"{low:g} to {high:g}", low <= simulated <= high, evidence, off)


def in_range_or_near(
    table: str, quantity: str, published: tuple[float, float], simulated: float, within: float, evidence: Evidence
) -> Row:
    """Inside the published range, or off its nearest end by at most `within`."""
    low, high = published
    nearest = min(max(simulated, low), high)
    off = simulated / nearest - 1
    limit = f"in it or {within:.0%}"
    return Row(table, quantity, published, simulated, limit, abs(off) <= within, evidence, off)


def exact(table: str, quantity: str, published: Shown, simulated: Shown, evidence: Evidence) -> Row:
    """Equal, or wrong."""
    return Row(table, quantity, published, simulated, "exact", published == simulated, evidence)


def free(table: str, quantity: str, published: Shown | None, simulated: float, evidence: Evidence) -> Row:
    """Without a limit."""
    off = simulated / published - 1 if isinstance(published, int | float) and published else None
    return Row(table, quantity, published, simulated, "", None, evidence, off)


def all_hold(rows: Sequence[Row]) -> bool:
    """Whether every limit holds."""
    return all(row.holds is not False for row in rows)
