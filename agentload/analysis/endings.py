"""What does the way a run ended do to its numbers: are its events whole, and does its last wait thin its shares?"""

from collections.abc import Sequence
from typing import Final

from agentload.analysis.evidence import Evidence
from agentload.core.intervals import Intervals
from agentload.core.records import Doubt, Request, Segment
from agentload.core.work import decode_of, prefill_of

LEAST_WAIT_NS: Final = 1_000_000_000  # a server's last lines come 3-68 ms after the last byte
KILLED: Final = "agentload was killed, or had no room left for its last manifest"  # of a run without an end
LEAST_SHARE: Final = 0.01  # of the wall: a share of 50.0 % of what was worked is one of 49.5 % then


def status(evidence: Evidence, segments: Sequence[Segment]) -> tuple[str, str | None]:
    """Return how the run ended and why: as its manifest says, but no success whose evidence breaks off before its end.

    Such a run was whole when its manifest was written, and files of it were cut off or copied in part since then.
    """
    manifest = evidence.manifest
    if manifest.status == "started" and not evidence.running:
        return "started", KILLED
    if manifest.status != "success":
        return manifest.status, manifest.why
    if evidence.cut_off is not None:
        return "partial", f"events.jsonl is not whole: {evidence.cut_off}"
    endless = [one.segment for one in segments if one.end_ns is None]
    return ("partial", f"segment {endless[0]} has no end marker") if endless else ("success", manifest.why)


def last_waits(rows: Sequence[Request], segments: Sequence[Segment], agents_done: Sequence[int]) -> list[Doubt]:
    """Say which segments end with a wait that their shares of the wall include, and what these were until it began.

    The end marker waits up to 10 s for requests that the log shows open. After a signal, or where agents were cut off
    at their time, a server that logs no end of such requests makes it wait all of it, and nobody is at work.

    Args:
        rows: the requests.
        segments: the run's.
        agents_done: when agents ended, Unix ns.
    """
    doubts = []
    for one in segments:
        done = [at for at in agents_done if one.begin_ns <= at and (one.end_ns is None or at <= one.end_ns)]
        if one.end_ns is None or not done:
            continue
        last, wall_ns = max(done), one.end_ns - one.begin_ns
        waited_ns = one.end_ns - last
        if waited_ns < LEAST_WAIT_NS or waited_ns < LEAST_SHARE * wall_ns:
            continue
        ours = [row for row in rows if (row.run, row.segment) == (one.run, one.segment)]
        shares = [
            f"{name} {_share(phases, one.begin_ns, last)}"
            for name, phase_of in (("prefill", prefill_of), ("decode", decode_of))
            if (phases := [span for row in ours if (span := phase_of(row)) is not None]) and last > one.begin_ns
        ]
        said = f": of the {(last - one.begin_ns) / 1e9:.1f} s until then {' and '.join(shares)}" if shares else ""
        doubts.append(
            Doubt(
                "wait-at-the-end",
                f"segment {one.segment}: the last {waited_ns / 1e9:.1f} s of its {wall_ns / 1e9:.1f} s are the wait "
                f"for open requests after its last agent had ended; shares of the wall include it{said}",
                "compare shares with those of runs that ended alike, or these",
            )
        )
    return doubts


def _share(phases: Sequence[tuple[int, int]], begin_ns: int, end_ns: int) -> str:
    part = Intervals.of(phases).clip(begin_ns, end_ns).measure_ns() / (end_ns - begin_ns)
    return f"{part * 100:.1f} %"
