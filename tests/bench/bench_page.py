"""How long do account and page of 5,000 requests take, how much memory, and how large is the page?

    python tests/bench/bench_page.py [REQUESTS] [RUNS]

Makes an experiment of two variants by hand (32 agents; RUNS is 4 unless told), then accounts, compares and writes the
page of one run and of the experiment, each in a process of its own. Prints seconds, peak MB and KB. Exits with 1 where
the page of the experiment is larger than 3 MB for six such runs.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from agentload.analysis import account as accounts
from agentload.analysis import compare
from agentload.artifacts.design import ExperimentDir
from agentload.report.html import render
from tests.analysis.experiments import Ran, design, ds4_log, whole
from tests.report.test_page import many

MOST_BYTES: Final = 500_000  # a run: 3 MB for six
AGENTS: Final = 32
_STEPS: Final = ("account", "page of a run", "compare", "page of the experiment")


def step(name: str, path: Path) -> int:
    """Do one step; returns the bytes of its page, or 0."""
    folder = ExperimentDir(path)
    first = folder.runs / "01-A"
    if name == "account":
        for run in sorted(folder.runs.iterdir()):
            accounts.account(run)
        return 0
    if name == "page of a run":
        return len(render.run_page(first, accounts.load(first)).encode())
    if name == "compare":
        compare.compare(folder)
        return 0
    return len(render.experiment_page(compare.compare(folder), folder.runs.joinpath).encode())


def main() -> None:
    """Run all steps on one experiment."""
    if sys.argv[1:2] == ["step"]:
        began = time.perf_counter()
        size = step(sys.argv[2], Path(sys.argv[3]))
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(f"{sys.argv[2]:24} {seconds:7.1f} s {peak:7.0f} MB {size / 1000:9,.0f} kB\n")
        sys.exit(int(size > MOST_BYTES * max(1, len(list(ExperimentDir(Path(sys.argv[3])).runs.iterdir())))))
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    planned = design(2048, 128, repeats=runs // 2)
    quanta = {"A": 2048, "B": 128}
    with tempfile.TemporaryDirectory() as out:
        made = {one.run: Ran({"s1": many(requests, AGENTS)}, ds4_log(quanta[one.variant])) for one in planned.steps}
        folder = whole(planned, Path(out) / "bench", made)
        sys.stdout.write(f"{len(made)} runs of {requests:,} requests and {AGENTS} agents\n")
        sys.stdout.flush()
        codes = [
            subprocess.run([sys.executable, __file__, "step", name, str(folder.path)], check=False).returncode
            for name in _STEPS
        ]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
