"""How much CPU does a simulated minute cost?

`python tests/bench/bench_twin.py` plays 45 simulated minutes of three agents (run 2 q128 of report A, made longer) five
times, and prints CPU seconds, events and events a second; the limit is 3 s. It ends with 1 when that is not held.
"""

import statistics
import sys
import time

from agentload.twin import profile as profiles
from agentload.twin.options import Options
from agentload.twin.replay import draw_plan, minutes, play
from agentload.twin.truth import lines, log_bytes

_LIMIT_S = 3.0
_MINUTES = 45


def main() -> int:
    """Run it."""
    profile = profiles.load("m3-ultra")
    plan = draw_plan((34, 34, 34), 345_000, 44_000, (0.4, 0.3, 0.3), seed=7)
    took: list[float] = []
    shown = ""
    for _ in range(5):
        begin = time.process_time()
        events = play(plan, Options(mixed_prefill_quantum=128), profile, seed=7)
        log = log_bytes(events)
        rows = sum(1 for _ in lines(events))
        took.append(time.process_time() - begin)
        shown = (
            f"{minutes(events):.1f} simulated minutes, {len(events):,} events, {len(log):,} bytes of log, "
            f"{rows:,} rows of truth"
        )
        if minutes(events) < _MINUTES:
            raise SystemExit(f"expected {_MINUTES} simulated minutes, got {minutes(events):.1f}")
    middle = statistics.median(took)
    sys.stdout.write(f"{shown}\nCPU {middle:.2f} s (median of 5), limit {_LIMIT_S:.0f} s\n")
    return 0 if middle < _LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
