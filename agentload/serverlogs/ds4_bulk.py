"""Where in a block of a log is the next line of ds4-server, if most lines are its engine's or another program's?"""

from typing import Final

from agentload.serverlogs import ds4_grammar as grammar
from agentload.serverlogs.lines import MARKER_TEXT, LineWalker, Skip

MOST_INSIDE: Final = 8  # lines between the two halves of a torn one
_LOOKED_AT: Final = 1 << 16  # bytes of a block, to see whether few of its lines matter


class Stretches:
    """Finds what need not be read line by line."""

    def __init__(self, walker: LineWalker) -> None:
        self._walker = walker
        self._dense = self._engine = False  # of the present block

    def skip(self, block: bytes, at: int, *, careful: bool) -> Skip:
        """Find the next line of the server; what lies before are lines of the engine, and foreign ones.

        A block with few others, and a stretch with anything of interest in it, is left to `_take` line by line.
        """
        if at == 0:
            self._look_at(block)
        if self._dense:
            return Skip(at, 0, 0, len(block))
        if careful:
            return Skip(at, 0, 0, block.find(b"\n", at) + 1)
        found = block.find(grammar.SERVER, at)
        if self._walker.marked:
            marker = block.find(MARKER_TEXT, at)
            found = marker if marker >= 0 and (marker < found or found < 0) else found
        start = len(block) if found < 0 else block.rfind(b"\n", at, found) + 1 or at
        until = start if found < 0 else block.find(b"\n", found) + 1
        # Without a stamp: some lines before may be what it was cut from. So may the last ones, of what comes next.
        if found < 0 or block.startswith(grammar.SERVER, start):
            for _ in range(MOST_INSIDE + 1):
                start = block.rfind(b"\n", at, max(start - 1, at)) + 1 or at
        if start == at:
            return Skip(at, 0, 0, until)
        # To split is quicker than to count newlines (1.4 GB/s) and to look for two of them (1 GB/s).
        texts = block[at : start - 1].split(b"\n")
        if b"" in texts:
            return Skip(at, 0, 0, until)
        lines = len(texts)
        unknown = lines if not self._engine else self._foreign(block, at, start, lines)
        if unknown is None or (unknown and self._walker.tally.wants_examples):
            return Skip(at, 0, 0, until)
        return Skip(start, lines, unknown, until)

    def _look_at(self, block: bytes) -> None:
        """See what is not in a block at all, and need not be looked for in its parts."""
        head = min(len(block), _LOOKED_AT)
        many = 4 * block.count(grammar.SERVER, 0, head) > block.count(b"\n", 0, head)
        self._dense = many or self._walker.odd or b"\x1b" in block
        self._engine = not self._dense and grammar.ENGINE in block

    @staticmethod
    def _foreign(block: bytes, at: int, end: int, lines: int) -> int | None:
        """Return how many of the lines are foreign, the others being the engine's; None when they must be read."""
        engine = block.count(b"\nds4: ", at, end) + block.startswith(grammar.ENGINE, at)
        if engine and any(block.find(word, at, end) >= 0 for word in grammar.ENGINE_WORDS):
            return None
        torn = engine < lines and block.count(grammar.ENGINE, at, end) != engine  # there is one within a line
        return None if torn else lines - engine
