"""When, on the client's clock, did the things happen that a log stamps with a clock of its own?

llama.cpp counts from each process start. Requests that an exact key joins (`core.evidence.exact_pairs`) were done on
the server at `t_end` of its clock and on the client at `t_done` of its own. For each boot

    offset = min over pairs of (t_done - t_end)

because what lies between is delay (the way to the client, its waiting for a core), and the least delayed pair has the
least of it. The error that is stated is the smaller of

* the scatter, max - min of those differences (3-68 ms seen on llama.cpp); it needs two pairs, and takes a delay that
  all pairs have for none;
* the causal room, min(t_done - t_end) - max(t_sent - start of the work): as far as the offset can be moved back until a
  request would begin before it was sent. A true bound, wide when all requests queued;

and never less than the log's own resolution, nor than what a request begun before it was sent proves (then the log's
last line came after the client's last byte).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentload.core.evidence import exact_pairs
from agentload.core.records import Completion, Doubt, LogFacts, LoggedRequest, Timeline


@dataclass(frozen=True, slots=True)
class Offset:
    """What to add to a boot's times to get the client's Unix ns, and how far off that may be."""

    offset_ns: int
    error_ns: int
    pairs: int


def _end(logged: LoggedRequest) -> int | None:
    return logged.decode_end if logged.t_end is None else logged.t_end


def _start(logged: LoggedRequest, end: int) -> int:
    """Return when work began as the log has it, else as the durations give it, else no earlier than the end."""
    known = [time for time in (logged.t_slot, logged.prefill_start) if time is not None]
    if known:
        return min(known)
    return end - round(((logged.prefill_ms or 0.0) + (logged.decode_ms or 0.0)) * 1e6)


def offset_of(pairs: Sequence[tuple[Completion, LoggedRequest]], resolution_ns: int) -> Offset | None:
    """Return the offset of one boot from its exactly joined pairs; None when none of them has an end in the log."""
    after: list[int] = []
    before: list[int] = []
    for sent, logged in pairs:
        end = _end(logged)
        if end is not None:
            after.append(sent.t_done - end)
            before.append(sent.t_sent - _start(logged, end))
    if not after:
        return None
    offset_ns = min(after)
    room_ns = offset_ns - max(before)
    bounds = [max(after) - offset_ns] if len(after) > 1 else []
    error_ns = min([*bounds, room_ns]) if room_ns >= 0 else max([*bounds, -room_ns])
    return Offset(offset_ns, max(error_ns, resolution_ns), len(after))


def _moved(time: int | None, by: int | None) -> int | None:
    return None if time is None or by is None else time + by


def _moved_request(logged: LoggedRequest, by: int | None) -> LoggedRequest:
    return replace(
        logged,
        t_slot=_moved(logged.t_slot, by),
        prefill_start=_moved(logged.prefill_start, by),
        prefill_end=_moved(logged.prefill_end, by),
        decode_start=_moved(logged.decode_start, by),
        decode_end=_moved(logged.decode_end, by),
        t_end=_moved(logged.t_end, by),
    )


def _boot_at(facts: LogFacts, line: int) -> int | None:
    """Return the boot that a line belongs to; lines before the first boot are the first one's."""
    started = [boot.index for boot in facts.boots if boot.first_line <= line]
    return started[-1] if started else min((boot.index for boot in facts.boots), default=None)


def align(facts: LogFacts, completions: Sequence[Completion]) -> LogFacts:
    """Return `facts` on the client's Unix timeline, with the error of it; facts that are there already as they are.

    Without an exactly joined pair they come back on their own timeline, with a doubt. A boot without one while others
    have theirs keeps its requests and loses their times, with a doubt.
    """
    if facts.timeline is Timeline.UNIX:
        return facts
    pairs: dict[int, list[tuple[Completion, LoggedRequest]]] = {}
    for left, right in exact_pairs(completions, facts.requests):
        logged = facts.requests[right]
        pairs.setdefault(logged.boot, []).append((completions[left], logged))
    offsets: dict[int, int] = {}
    error_ns = facts.resolution_ns
    for boot, found in pairs.items():
        offset = offset_of(found, facts.resolution_ns)
        if offset is not None:
            offsets[boot] = offset.offset_ns
            error_ns = max(error_ns, offset.error_ns)
    if not offsets:
        doubt = Doubt(
            "clock-not-aligned",
            f"no answer of {len(completions)} has an exact key in the log's {len(facts.requests)} requests: "
            f"its times stay on the {facts.timeline} timeline",
            "let agentload start the server, so that it stamps every line",
        )
        return replace(facts, doubts=(*facts.doubts, doubt))
    doubts = list(facts.doubts)
    suspects, lost = [], []
    for time, proof, why in facts.suspects:
        boot_at = _boot_at(facts, proof.line)
        if boot_at in offsets:
            suspects.append((time + offsets[boot_at], proof, why))
        else:
            lost.append(f"line {proof.line}: {why}")
    unplaced = sorted({logged.boot for logged in facts.requests if logged.boot not in offsets})
    if unplaced or lost:
        doubts.append(
            Doubt(
                "boot-not-aligned",
                f"{sum(logged.boot in unplaced for logged in facts.requests)} requests of boots {unplaced} have no "
                f"exactly joined answer beside them, so their times are unknown; suspect lines there: {lost}",
                "send at least one request to every server that is measured, and keep its log",
            )
        )
    return replace(
        facts,
        timeline=Timeline.UNIX,
        clock_error_ns=error_ns,
        requests=tuple(_moved_request(logged, offsets.get(logged.boot)) for logged in facts.requests),
        suspects=tuple(suspects),
        doubts=tuple(doubts),
    )
