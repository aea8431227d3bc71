"""How does a simulated comparison of 2048 and 128 stand beside the one that was published (report A, tables 4 to 7)?

What the profile was fitted to says nothing for the twin when it comes out again; published numbers that contradict each
other are named as misfits, in the words of `agentload twin tables`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any, Final

from agentload.artifacts.design import Design
from agentload.core.accounting import ratio
from agentload.twin import published
from agentload.twin.published import Agents
from agentload.twin.rows import Evidence, Row, Shown, free
from agentload.twin.tables import AGENTS_PROFILE, SOURCE
from agentload.twin.tables_agents import bucket_misfit, share_misfit

FACTOR: Final = "mixed_prefill_quantum"
LARGE: Final = 2048
SMALL: Final = 128


def of_design(design: Design) -> dict[int, str] | None:
    """Return quantum -> variant where the design compares the two published quanta on the twin; None: it does not."""
    if not design.simulated or design.kind != "restart" or design.workload != "agents":
        return None
    quanta = {one.expected.get(FACTOR): one.name for one in design.variants}
    if set(quanta) != {LARGE, SMALL}:
        return None
    return {LARGE: quanta[LARGE], SMALL: quanta[SMALL]}


def beside(
    quanta: Mapping[int, str], sides: Mapping[str, Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], profile: str
) -> dict[str, Any] | None:
    """Return tables 4, 5, 6 and 7 with the simulated numbers beside them, and misfits; None without valid runs.

    Args:
        quanta: quantum -> variant.
        sides: the variants of comparison.json, by name.
        runs: its table of runs.
        profile: of the twin.
    """
    of = published.load().agents
    pooled = {quantum: sides[name]["pooled"] for quantum, name in quanta.items()}
    if any(one is None or one["prefill_tok_s"] is None for one in pooled.values()):
        return None
    rows = _Rows(of, Evidence.FITTED if profile == AGENTS_PROFILE else Evidence.FREE)
    for quantum, name in quanta.items():
        rows.runs(quantum, [one for one in runs if one["variant"] == name and one["valid"]])
    rows.speeds(pooled)
    for quantum, name in quanta.items():
        if (work := sides[name]["equal_work"]) is not None:
            rows.add("6", f"q{quantum}, equal work (an estimate), s", of.equal_work_s[quantum], work["total_s"])
    ratios = rows.buckets({quantum: sides[name]["buckets"] for quantum, name in quanta.items()})
    misfits = [bucket_misfit(of, ratios)]
    for quantum, got in pooled.items():
        shares = (got["prefill_share"], got["decode_share"], got["overlap"])
        if None not in shares:
            misfits.append(share_misfit(of, quantum, *shares))
    return {
        "source": SOURCE,
        "profile": profile,
        "rows": [asdict(one) for one in rows.all],
        "misfits": [asdict(one) for one in misfits],
    }


class _Rows:
    def __init__(self, of: Agents, evidence: Evidence) -> None:
        """`evidence` is that of what the agents' profile was fitted to."""
        self._of = of
        self._evidence = evidence
        self.all: list[Row] = []

    def add(
        self, table: str, quantity: str, told: Shown | None, simulated: float | None, *, fitted: bool = False
    ) -> None:
        """Add a row where there is a simulated number."""
        if simulated is not None:
            self.all.append(free(table, quantity, told, simulated, self._evidence if fitted else Evidence.FREE))

    def runs(self, quantum: int, mine: Sequence[Mapping[str, Any]]) -> None:
        """Table 4, run beside run: they did different work, as the published ones did."""
        theirs = [one for one in self._of.runs if one.quantum == quantum]
        for one, other in zip_longest(mine, theirs[: len(mine)]):
            title = f"{one['run']}, q{quantum}" + (f" beside {other.name}" if other is not None else "")
            told = (None, None, None) if other is None else (other.requests, other.new_tokens, other.tok_s)
            self.add("4", f"{title}, requests", told[0], one["requests"])
            self.add("4", f"{title}, new tokens", told[1], one["new_prefill_tokens"])
            self.add("4", f"{title}, tok/s", told[2], one["prefill_tok_s"], fitted=True)

    def speeds(self, pooled: Mapping[int, Mapping[str, Any]]) -> None:
        """The end of table 4, and table 5."""
        of = self._of
        for quantum, got in pooled.items():
            self.add("4", f"all runs, q{quantum}, tok/s", of.speed_tok_s[quantum], got["prefill_tok_s"], fitted=True)
        both = ratio(pooled[LARGE]["prefill_tok_s"], pooled[SMALL]["prefill_tok_s"])
        self.add("4", "all runs, ratio", of.ratio, both, fitted=True)
        for quantum, got in pooled.items():
            self.add("5", f"q{quantum}, decode tok/s", of.decode_tok_s[quantum], got["decode_tok_s"])
            self.add("5", f"q{quantum}, prefill share", of.prefill_share[quantum], got["prefill_share"])
            self.add("5", f"q{quantum}, decode share", of.decode_share[quantum], got["decode_share"])
            self.add("5", f"q{quantum}, overlap", of.overlap[quantum], got["overlap"])

    def buckets(self, got: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[float]:
        """Table 7; returns the simulated ratios."""
        of, ratios = self._of, []
        for number, (large, small) in enumerate(zip(got[LARGE], got[SMALL], strict=True)):
            name = large["name"]
            for quantum, one in ((LARGE, large), (SMALL, small)):
                told = of.bucket_tok_s[quantum][number]
                self.add("7", f"{name}, q{quantum}, median tok/s", told, one["median_tok_s"], fitted=True)
            both = ratio(large["median_tok_s"], small["median_tok_s"])
            self.add("7", f"{name}, ratio", of.bucket_ratio[number], both, fitted=True)
            if both is not None:
                ratios.append(both)
        return ratios
