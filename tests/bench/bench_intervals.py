"""What does the union of 10 million unsorted intervals cost, beside one sort of their starts?

    python tests/bench/bench_intervals.py [COUNT]

Prints one line a figure: seconds (the best of five) and the multiple of np.sort. Sort and union take turns, so that a
machine that slows down slows both. The limits are 5 s and 3 sorts.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from agentload.core.intervals import Intervals, Times

DAY_NS = 24 * 3_600_000_000_000
BEGIN_NS = 1_795_958_524_123_456_789
LIMIT_S, LIMIT_SORTS = 5.0, 3.0


def seconds(work: Callable[[Times, Times], object], starts: Times, ends: Times) -> float:
    """Return how long one call takes."""
    begin = time.perf_counter()
    work(starts, ends)
    return time.perf_counter() - begin


def main() -> None:
    """Measure three densities: all in one piece, about a third of the pieces left, nearly all apart."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    rng = np.random.default_rng(7)
    starts = BEGIN_NS + rng.integers(0, DAY_NS, count)
    sys.stdout.write(f"numpy {np.__version__}, {count} intervals\n")
    for name, spacings in (("dense", 30.0), ("middling", 1.0), ("sparse", 0.02)):
        ends = starts + rng.integers(0, max(1, int(2 * spacings * (DAY_NS // count))), count)
        pieces = len(Intervals(starts, ends).union())
        sorts, unions = [], []
        for _ in range(5):
            sorts.append(seconds(lambda begin, _: np.sort(begin), starts, ends))
            unions.append(seconds(lambda begin, end: Intervals(begin, end).union(), starts, ends))
        sort_s, union_s = min(sorts), min(unions)
        verdict = "ok" if union_s < min(LIMIT_S, LIMIT_SORTS * sort_s) else "TOO SLOW"
        sys.stdout.write(
            f"{name:<9} np.sort {sort_s:6.3f} s  union {union_s:6.3f} s  {union_s / sort_s:5.2f} x np.sort  "
            f"{pieces} pieces  {verdict}\n"
        )


if __name__ == "__main__":
    main()
