"""When, on the client's clock, did the things happen that a log stamps with a clock of its own?

Receive stamps answer that best, and a log that has them is on the Unix timeline already (its reader states the error).

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

ds4-server's stamps are local wall time without year, rounded down to a second. There each request that a key or its
four counts tell allows a window: it began after it was sent and decoded its last token before the client had it, each
to half a second. So does each marker: the line before it was written before it, the one after it after it. What all
windows leave open is the offset (`core.clock_windows`); midnight and New Year are in the reader's times already, and a
jump of summer time that fell between two requests is found as a step of the offset.

Markers alone align a log that has no client beside it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from agentload.core.clock_windows import FAR, Window, offsets_of
from agentload.core.evidence import exact_pairs, telling_pairs, work_times
from agentload.core.packed import pack
from agentload.core.packed_statistics import pack as pack_statistics
from agentload.core.records import CacheEvent, Completion, Doubt, LogFacts, LoggedRequest, Marker, Statistic, Timeline

LATE_NS: Final = 100_000_000  # a line may be written so long after what it tells (as the ds4 reader allows)


@dataclass(frozen=True, slots=True)
class Offset:
    """What to add to a boot's times to get the client's Unix ns, and how far off that may be."""

    offset_ns: int
    error_ns: int
    pairs: int


def _end(logged: LoggedRequest) -> int | None:
    return logged.decode_end if logged.t_end is None else logged.t_end


def _when(logged: LoggedRequest) -> int:
    """Return the last time that the log has of it."""
    return max(work_times(logged), default=logged.t_arrived or 0)


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


# ---- windows -------------------------------------------------------------------------------------------------------


def _pair_window(sent: Completion, logged: LoggedRequest, slack_ns: int) -> Window:
    """What an answer and its request in the log allow: no work before it was sent, no token after it had come."""
    starts = [time for time in (logged.t_slot, logged.prefill_start, logged.t_arrived) if time is not None]
    end = logged.decode_end if logged.decode_end is not None else logged.prefill_end
    highs = [] if end is None else [sent.t_done - end]
    if logged.prefill_end is not None and sent.t_first_token is not None:
        highs.append(sent.t_first_token - logged.prefill_end)
    if logged.t_arrived is not None:
        highs.append((sent.t_done if sent.t_first_byte is None else sent.t_first_byte) - logged.t_arrived)
    return Window(
        at=_when(logged),
        low=sent.t_sent - min(starts) - slack_ns if starts else -FAR,
        high=min(highs) + slack_ns if highs else FAR,
    )


def _marker_windows(marker: Marker, resolution_ns: int) -> list[Window]:
    """What a marker between two lines allows; a stamp is rounded down, and a line may be written late."""
    found = []
    if marker.before_ns is not None:
        found.append(Window(marker.before_ns, high=marker.at_ns - marker.before_ns + LATE_NS))
    if marker.after_ns is not None:
        found.append(Window(marker.after_ns, low=marker.at_ns - marker.after_ns - resolution_ns - LATE_NS))
    return found


# ---- moving --------------------------------------------------------------------------------------------------------


def _by(time: int | None, by_ns: int | None) -> int | None:
    return None if time is None or by_ns is None else time + by_ns


def moved(logged: LoggedRequest, by_ns: int | None) -> LoggedRequest:
    """Return it with its times moved; without times when `by_ns` is None."""
    return replace(
        logged,
        t_slot=_by(logged.t_slot, by_ns),
        prefill_start=_by(logged.prefill_start, by_ns),
        prefill_end=_by(logged.prefill_end, by_ns),
        decode_start=_by(logged.decode_start, by_ns),
        decode_end=_by(logged.decode_end, by_ns),
        t_end=_by(logged.t_end, by_ns),
        t_arrived=_by(logged.t_arrived, by_ns),
    )


_OffsetAt = Callable[[int, int], int | None]  # (boot, time on the log's timeline) -> offset


def _boot_at(facts: LogFacts, line: int) -> int | None:
    """Return the boot that a line belongs to; lines before the first boot are the first one's."""
    started = [boot.index for boot in facts.boots if boot.first_line <= line]
    return started[-1] if started else min((boot.index for boot in facts.boots), default=None)


_Stamped = TypeVar("_Stamped", CacheEvent, Statistic)


def _moved(
    of: Iterable[_Stamped], offset_at: _OffsetAt, lost: list[str], name: Callable[[_Stamped], str]
) -> Iterator[_Stamped]:
    """Move what a log tells at a time of its own; what has no place on the other timeline is named in `lost`."""
    for one in of:
        by_ns = offset_at(one.boot, one.at)
        if by_ns is None:
            lost.append(f"line {one.proof.line}: {name(one)}")
        else:
            yield replace(one, at=one.at + by_ns)


def _on_unix(facts: LogFacts, offset_at: _OffsetAt, error_ns: int, doubts: list[Doubt]) -> LogFacts:
    suspects, lost = [], []
    for time, proof, why in facts.suspects:
        boot = _boot_at(facts, proof.line)
        by_ns = None if boot is None else offset_at(boot, time)
        if by_ns is None:
            lost.append(f"line {proof.line}: {why}")
        else:
            suspects.append((time + by_ns, proof, why))
    events = tuple(_moved(facts.cache_events, offset_at, lost, lambda one: f"cache {one.kind}"))
    statistics = pack_statistics(_moved(facts.statistics, offset_at, lost, lambda one: f"{one.kind} statistics"))
    by = [offset_at(one.boot, _when(one)) for one in facts.requests]
    unplaced = [one.boot for one, by_ns in zip(facts.requests, by, strict=True) if by_ns is None]
    if unplaced or lost:
        doubts.append(
            Doubt(
                "boot-not-aligned",
                f"{len(unplaced)} requests of boots {sorted(set(unplaced))} have no exactly joined answer and no "
                f"marker beside them, so their times are unknown; other lines there: {lost}",
                "send at least one request to every server that is measured, and keep its log",
            )
        )
    return replace(
        facts,
        timeline=Timeline.UNIX,
        clock_error_ns=error_ns,
        requests=pack(moved(one, by_ns) for one, by_ns in zip(facts.requests, by, strict=True)),
        suspects=tuple(suspects),
        cache_events=events,
        statistics=statistics,
        doubts=(*facts.doubts, *doubts),
    )


# ---- aligning ------------------------------------------------------------------------------------------------------


def _process(facts: LogFacts, completions: Sequence[Completion]) -> tuple[_OffsetAt, int, list[Doubt]] | None:
    """Each boot has a clock of its own, which runs evenly."""
    exact = set(exact_pairs(completions, facts.requests))
    sure: dict[int, list[tuple[Completion, LoggedRequest]]] = {}
    likely: dict[int, list[tuple[Completion, LoggedRequest]]] = {}
    for left, right in telling_pairs(completions, facts.requests):
        logged = facts.requests[right]
        (sure if (left, right) in exact else likely).setdefault(logged.boot, []).append((completions[left], logged))
    offsets: dict[int, int] = {}
    error_ns = facts.resolution_ns
    for boot in facts.boots:
        found = offset_of(sure.get(boot.index, likely.get(boot.index, ())), facts.resolution_ns)
        if found is not None:
            offsets[boot.index] = found.offset_ns
            error_ns = max(error_ns, found.error_ns)
            continue
        windows = [
            window
            for marker in facts.markers
            if marker.proof is not None and _boot_at(facts, marker.proof.line) == boot.index
            for window in _marker_windows(marker, facts.resolution_ns)
        ]
        by_markers = offsets_of(windows, wall=False)
        if by_markers is not None:
            offsets[boot.index] = by_markers.at(0)
            error_ns = max(error_ns, by_markers.error_ns)
    return None if not offsets else (lambda boot, _: offsets.get(boot), error_ns, [])


def _wall(facts: LogFacts, completions: Sequence[Completion]) -> tuple[_OffsetAt, int, list[Doubt]] | None:
    """All boots have one clock, which may jump."""
    slack_ns = facts.resolution_ns // 2 + LATE_NS
    windows = [
        _pair_window(completions[left], facts.requests[right], slack_ns)
        for left, right in telling_pairs(completions, facts.requests)
    ]
    windows += [window for marker in facts.markers for window in _marker_windows(marker, facts.resolution_ns)]
    found = offsets_of(windows, wall=True)
    if found is None:
        return None
    doubts = []
    if len(found.pieces) > 1:
        steps_s = [(one.offset - next_.offset) // 1_000_000_000 for one, next_ in itertools.pairwise(found.pieces)]
        jumps = ", ".join(f"{step_s:+d} s" for step_s in steps_s)
        doubts.append(
            Doubt(
                "wall-clock-jumped",
                f"the server's wall clock jumped by {jumps} while it wrote nothing; each time is taken as those of "
                "the request of ours or the marker nearest to it",
                "run the server with TZ=UTC, and let agentload start it: then each line has a receive stamp",
            )
        )
    if found.odd:
        doubts.append(
            Doubt(
                "clock-evidence-disagrees",
                f"{found.odd} of {len(windows)} facts about the server's clock contradict the others, so it is not "
                f"known better than to {found.error_ns / 1e9:.1f} s",
                "the machine's clock may have been set: let agentload start the server, so that it stamps every line",
            )
        )
    return lambda _, time: found.at(time), max(found.error_ns, facts.resolution_ns), doubts


def align(facts: LogFacts, completions: Sequence[Completion]) -> LogFacts:
    """Return `facts` on the client's Unix timeline, with the error of it; facts that are there already as they are.

    It can be called always: with no answers (a log alone) markers align what they can. Where nothing does, the facts
    come back on their own timeline, with a doubt if there was a client. A boot of which nothing is known while others
    are aligned keeps its requests and loses their times, with a doubt.
    """
    if facts.timeline is Timeline.UNIX:
        return facts
    found = (_process if facts.timeline is Timeline.PROCESS else _wall)(facts, completions)
    if found is not None:
        return _on_unix(facts, *found)
    if not completions and not facts.markers:
        return facts
    doubt = Doubt(
        "clock-not-aligned",
        f"no answer of {len(completions)} has a key of its own in the log's {len(facts.requests)} requests, and "
        f"{len(facts.markers)} markers do not bound the difference: its times stay on the {facts.timeline} timeline",
        "let agentload start the server, so that it stamps every line",
    )
    return replace(facts, doubts=(*facts.doubts, doubt))
