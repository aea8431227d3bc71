"""Waits that are over when the test says so: an event loop whose time can be put forward.

A limit of half an hour decides then what comes out, and not how fast this machine is today.
"""

import asyncio


class SkippingLoop(asyncio.SelectorEventLoop):
    """Time as ever, and what was skipped."""

    skipped_s = 0.0

    def time(self) -> float:
        """See asyncio."""
        return super().time() + self.skipped_s

    def skip(self, seconds: float) -> None:
        """Have all that waits for less than that be due, at the loop's next look."""
        self.skipped_s += seconds


def skip(seconds: float) -> None:
    """Skip so much of the running loop's time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skip(seconds)
