"""How far is a log's clock from ours, when we know when each of its lines reached us?

A line is stamped by the server when it is queued, written by another thread, and stamped by us when it comes out of
the pipe: receive = log + offset + delay, delay >= 0. So

    offset = min over lines of (receive - log)

which is late by the least delay of all. How much that can be is judged from how well the minimum repeats: the lines
are cut into windows of consecutive ones, and the error is the largest difference between a window's own minimum and
the least of all. It covers the varying part of the delay and a drift between the clocks (llama.cpp on two busy cores:
28 windows of 16 lines within 0.24 ms, while single lines came up to 3.2 ms late). What no one-sided stamps can show is
a part of the delay that every line has: waking the writer and us, tens of microseconds.
"""

from typing import Final

_WINDOW: Final = 16  # lines, to begin with
_MOST: Final = 256  # windows, before neighbours are joined: flat memory however long the log is


class ReceiveOffset:
    """The offset of one boot, from a pass over its lines."""

    def __init__(self) -> None:
        self._windows: list[int] = []
        self._size = _WINDOW
        self._count = 0
        self._least = 0
        self._most = 0
        self._now = 0

    def add(self, received_ns: int, logged_ns: int) -> None:
        """Take one line's receive stamp and its own stamp."""
        late = received_ns - logged_ns
        if not self._count:
            self._least = self._most = late
        self._least = min(self._least, late)
        self._most = max(self._most, late)
        self._now = min(self._now, late) if self._count % self._size else late
        self._count += 1
        if self._count % self._size == 0:
            self._windows.append(self._now)
            if len(self._windows) == _MOST:
                self._windows = [min(self._windows[i : i + 2]) for i in range(0, _MOST, 2)]
                self._size *= 2

    @property
    def offset_ns(self) -> int | None:
        """What to add to the log's stamps; None when no line had both stamps."""
        return self._least if self._count else None

    @property
    def error_ns(self) -> int | None:
        """How far off the offset may be (module docstring); of fewer than two windows, the scatter of all lines.

        A last window that is not full does not count: a few lines of one burst share their delay.
        """
        if not self._count:
            return None
        if len(self._windows) < 2:
            return self._most - self._least
        return max(self._windows) - self._least
