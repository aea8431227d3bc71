"""How are a thousand equal doubts about a log told as one?"""

from collections.abc import Sequence
from typing import Final

from agentload.core.records import Doubt

MOST_SUSPECTS: Final = 20_000  # of a log: 10 MB
MOST_EVENTS: Final = 100_000  # of a prompt cache: 30 MB


class Doubts:
    """Collects doubts by code: each is told once, with how often and where it was met first."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int, str, str]] = {}
        self._left_out: dict[
            str, tuple[int, int, int]
        ] = {}  # of what: how many, the first one's line, how many are kept

    def add(self, code: str, line: int, what: str, advice: str) -> None:
        """Note one; `what` and `advice` of the first one of a code are shown."""
        times, first, shown, advised = self._found.get(code, (0, line, what, advice))
        self._found[code] = (times + 1, first, shown, advised)

    def left_out(self, line: int, what: str, most: int) -> None:
        """Note one of a kind of which `most` are kept: it is counted, for memory must not grow with the log."""
        times, first, _ = self._left_out.get(what, (0, line, most))
        self._left_out[what] = times + 1, first, most

    def compare(self, lines: int, stamps: Sequence[int] | None) -> None:
        """Note that so many lines do not have a receive stamp each; a kill may tear the last line or stamp off."""
        if stamps is not None and abs(len(stamps) - lines) > 1:
            self.add(
                "stamps-do-not-fit",
                min(lines, len(stamps)),
                f"there are {lines} lines and {len(stamps)} receive stamps",
                "the log was changed after it was received, or its stamps are of another log: times may be wrong",
            )

    def all(self) -> tuple[Doubt, ...]:
        """Return one doubt a code, in the order they were first met; then of each kind what was left out."""
        found = [
            Doubt(code, f"line {line}: {what}" + (f" (and {times - 1} more such lines)" if times > 1 else ""), advice)
            for code, (times, line, what, advice) in self._found.items()
        ]
        found += [
            Doubt(
                "left-out",
                f"line {line}: after the first {most:,} {what} there are {times:,} more, which are counted here and "
                "not listed",
                "cut the log at the time of interest to have these listed",
            )
            for what, (times, line, most) in self._left_out.items()
        ]
        return tuple(found)
