"""What is one line of a doctor's report?"""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "OK"
    NOTE = "note"  # worth knowing; nothing has to be done
    WARN = "warn"  # a night may be worse for it
    FAIL = "FAIL"  # a night would be wasted


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    code: str  # stable, kebab-case
    level: Level
    found: str  # with numbers
    advice: str = ""  # what to do; empty where nothing is to be done

    @property
    def line(self) -> str:
        """As a person reads it: one line, without what a terminal would obey (names come from servers)."""
        told = f"{self.level.value:<4}  {self.code:<14}  {self.found}"
        line = " ".join((told, "->", self.advice)) if self.advice else told
        return "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in line)
