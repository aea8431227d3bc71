"""Do the raw files fit one another, and what is said where they do not?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentload.analysis.evidence import Evidence
from agentload.core.records import Doubt, LogFacts, Request


def exit_code(found: dict[str, Any]) -> int:
    """0 for an account of a run that ended well, 1 for one that failed, was cut short, or has not ended."""
    return 0 if found["status"] == "success" else 1


def markers_lost(evidence: Evidence, facts: LogFacts) -> list[Doubt]:
    """Hold the markers that were written into the log against those found there."""
    found = {(one.action, one.segment, one.run, one.at_ns) for one in facts.markers}
    ours = {(one.action, one.segment, one.run, one.at_ns) for one in evidence.markers}
    lost = len(ours - found) if evidence.markers_in_log else 0
    if lost == 0:
        return []
    return [
        Doubt(
            "markers-lost",
            f"{lost} of {counted(evidence.markers_in_log, 'marker')} that "
            f"{'was' if evidence.markers_in_log == 1 else 'were'} written into the server's log cannot be found in it",
            "another process writes this log without O_APPEND; markers.jsonl was used instead",
        )
    ]


def phases_in_order(requests: Sequence[Request]) -> tuple[tuple[Request, ...], list[Doubt]]:
    """Take away the times of phases that end before they start: a clock was set back, or the log is damaged.

    Returns:
        All requests, in their order, and a doubt when there was such a phase.
    """
    kept = []
    odd: list[str] = []
    for one in requests:
        row = one
        if _backwards(one.prefill_start, one.prefill_end):
            odd.append(f"the prefill of {one.request}" + _where(one, "prefill_proof"))
            row = replace(row, prefill_start=None, prefill_end=None, prefill_source=None)
        if _backwards(one.decode_start, one.decode_end):
            odd.append(f"the decode of {one.request}" + _where(one, "decode_proof"))
            row = replace(row, decode_start=None, decode_end=None, decode_source=None)
        kept.append(row)
    if not odd:
        return tuple(kept), []
    doubt = Doubt(
        "phases-backwards",
        f"{counted(len(odd), 'phase')} would end before starting, the first is {odd[0]}: such times are left out",
        "look at that line: the clock was set back, or the log was changed afterwards",
    )
    return tuple(kept), [doubt]


def _backwards(start: int | None, end: int | None) -> bool:
    return start is not None and end is not None and start > end


def _where(request: Request, name: str) -> str:
    proof = getattr(request, name)
    return "" if proof is None else f" (server.log:{proof.line})"


def counted(number: int, what: str) -> str:
    """Return "1 marker", "2 markers"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
