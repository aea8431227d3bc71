"""What time is it, on a clock that cannot step back during a night?

Unix nanoseconds, read once and carried on by the monotonic clock: an NTP step in mid-run moves no interval. How far
the wall clock has moved away since is `drift_ns`, which the manifest states.
"""

import time

import anyio

# Of several readings the one with the least time between its two clocks is kept: a preemption there would be an error.
_READINGS = 9


class SystemClock:
    """core.ports.Clock on this machine's monotonic clock; safe to read from any thread."""

    def __init__(self) -> None:
        best: tuple[int, int, int] | None = None
        for _ in range(_READINGS):
            before = time.monotonic_ns()
            unix = time.time_ns()
            after = time.monotonic_ns()
            if best is None or after - before < best[0]:
                best = (after - before, unix, (before + after) // 2)
        assert best is not None
        self.anchor_error_ns, self.anchor_unix_ns, self.anchor_monotonic_ns = best
        self._shift = self.anchor_unix_ns - self.anchor_monotonic_ns

    def now_ns(self) -> int:
        """Return Unix ns; never smaller than a value returned before."""
        return time.monotonic_ns() + self._shift

    def drift_ns(self) -> int:
        """Return how far the wall clock stands ahead of this clock now (ns; a step or slew since the start)."""
        return time.time_ns() - self.now_ns()

    def describe(self) -> dict[str, int]:
        """Return what a manifest says of this clock, all in ns."""
        return {
            "anchor_unix_ns": self.anchor_unix_ns,
            "anchor_monotonic_ns": self.anchor_monotonic_ns,
            "anchor_error_ns": self.anchor_error_ns,
            "wall_drift_ns": self.drift_ns(),
        }

    async def sleep_until(self, t_ns: int) -> None:
        """Sleep until `t_ns`; at once when it has passed."""
        left = t_ns - self.now_ns()
        while left > 0:
            await anyio.sleep(left / 1e9)
            left = t_ns - self.now_ns()
