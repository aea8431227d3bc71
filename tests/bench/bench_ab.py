"""How often does `agentload ab` call equals distinguished? Whole experiments on the twin, 2048 against 2048.

    python tests/bench/bench_ab.py [SEEDS] [RESTARTS] [FOLDER]

Each seed is an experiment of its own: agents with tools, a run directory for each restart, accounts, comparison. Prints
a line a seed and the counts. The rule's rate is 2 % at 3 restarts a side: of 50 experiments at most 3 may be
distinguished (one in fifty such series has 4 or more by chance alone).
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import anyio

from agentload.analysis import compare
from agentload.artifacts.design import ExperimentDir
from agentload.clock import SystemClock
from agentload.run import designing, experiment, experiment_file

MOST: Final = 3  # of 50
_OPTION: Final = {"mixed_prefill_quantum": 2048}


def one(folder: Path, seed: int, restarts: int) -> tuple[str, float, int]:
    """Return (outcome on the deciding metric, ratio, valid runs) of one experiment between equals."""
    fields = {
        "schema": "agentload.experiment/1",
        "name": f"null-{seed}",
        "seed": seed,
        "repeats": restarts,
        "scenario": {
            "agents": 2,
            "stagger_s": 5.0,
            "server": {"kind": "twin"},
            "limits": {"tool_calls": 3},
        },
        "variant": [{"label": "2048", "set": _OPTION}, {"label": "2048 again", "set": _OPTION}],
    }
    design = designing.design(experiment_file.from_fields(fields), expected_s=None)
    place = ExperimentDir(folder / f"null-{seed}")
    place.runs.mkdir(parents=True)
    place.write_design(design)

    async def night() -> None:
        await experiment.carry_out(design, place, dict(os.environ), lambda _: None, clock=SystemClock())

    anyio.run(night)
    found = compare.compare(place)
    decides = found["pairs"][0]["metrics"][0]
    valid = len(decides["first"]["values"]) + len(decides["second"]["values"])
    return decides["outcome"], decides["ratio"], valid


def main() -> None:
    """Run all seeds; exit 1 when too many were distinguished or a run did not count."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    restarts = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    counts: Counter[str] = Counter()
    lost = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(made)
        for seed in range(seeds):
            outcome, ratio, valid = one(folder, seed, restarts)
            counts[outcome] += 1
            lost += 2 * restarts - valid
            sys.stdout.write(f"seed {seed:>3}  {outcome:<22} ratio {ratio:.5f}  {valid} of {2 * restarts} runs count\n")
            sys.stdout.flush()
    sys.stdout.write(f"{seeds} experiments: {dict(counts)}, {lost} runs that do not count\n")
    sys.exit(1 if counts["distinguished"] > MOST * max(1, seeds // 50) or lost else 0)


if __name__ == "__main__":
    main()
