"""How are a thousand equal doubts about a log told as one?"""

from agentload.core.records import Doubt


class Doubts:
    """Collects doubts by code: each is told once, with how often and where it was met first."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int, str, str]] = {}

    def add(self, code: str, line: int, what: str, advice: str) -> None:
        """Note one; `what` and `advice` of the first one of a code are shown."""
        times, first, shown, advised = self._found.get(code, (0, line, what, advice))
        self._found[code] = (times + 1, first, shown, advised)

    def all(self) -> tuple[Doubt, ...]:
        """Return one doubt a code, in the order they were first met."""
        return tuple(
            Doubt(code, f"line {line}: {what}" + (f" (and {times - 1} more such lines)" if times > 1 else ""), advice)
            for code, (times, line, what, advice) in self._found.items()
        )
