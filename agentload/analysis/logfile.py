"""What does a server's log tell that agentload did not make?

No client's view: every request is one that the log alone shows. What it tells apart counts as matched, what it does not
as an ambiguous group whose sums are exact. Segments are what markers in the log enclose, by the place of each request's
first line between the markers' lines; without markers the log is one segment, from its first phase to its last.
"""

import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from agentload import heap
from agentload.analysis import checks, logclock, logged_settings, notalog, places, sections, statistics, tables
from agentload.analysis.listed import listed
from agentload.analysis.livelog import UntilInterrupted, size_now, until_interrupted
from agentload.analysis.spans import SOURCES, from_file
from agentload.artifacts import schemas
from agentload.core import accounting, clocks, log_alone
from agentload.core.attribution import Attribution
from agentload.core.packed import mapped, values
from agentload.core.records import Doubt, LogFacts, LoggedRequest, Match, Proof, Request, Segment, Source, Timeline
from agentload.core.segments import segments_of
from agentload.errors import InputError, UsageError
from agentload.serverlogs import formats, simulated, unknown, wrapped

WHOLE_LOG: Final = "log"  # the segment's name where there are no markers
TABLES: Final = ("requests", "phases", "segments")  # of a log: nobody looked at its server

_PHASES: Final = ("prefill_start", "prefill_end", "decode_start", "decode_end")
_NAMED: Final = 20  # segments, in the error that says which there are


@dataclass(frozen=True, slots=True)
class LogAccount:
    """A log's account, and what its tables are made of."""

    found: dict[str, Any]  # account.json's content
    requests: Sequence[Request]

    @property
    def _own(self) -> Source:
        """What the times are from whose lines are proven."""
        return SOURCES.get(self.found["log"]["format"], Source.LOG)

    def write(self, folder: Path) -> None:
        """Write its tables into `folder`, with the columns of a run's; no table is ever whole in memory.

        Raises:
            ArtifactError: the disk is full or the folder cannot be written.
        """
        heap.give_back()
        tables.write_parts(folder, "requests", tables.request_parts(self.requests))
        heap.give_back()
        tables.write_parts(folder, "phases", tables.phase_parts(folder / "requests.parquet", own=self._own))
        tables.write(folder, "segments", tables.segments_table(sections.segment_rows(self.found["segments"])))


def read_file(path: Path, log_format: str | None = None, only: str | None = None, *, wait: bool = False) -> LogAccount:
    """Account for the log at `path`: a file, a FIFO or a device; nothing is written.

    Args:
        path: where it is.
        log_format: its format; None: detected.
        only: account for this segment alone, `SEGMENT` or `RUN/SEGMENT`; what is said of the whole log stays.
        wait: Ctrl-C ends a pipe that does not end by itself, and what came before it is accounted for.

    Raises:
        InputError: it cannot be read, or is no log (packed, binary).
        UsageError: `log_format` is no format, or its lines are all of another one; there is no segment `only`.
    """
    try:
        with path.open("rb") as file:
            stream = until_interrupted(file) if wait else file
            return read_stream(stream, _text(path.name), log_format, only, where=str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def read_stream(
    file: formats.Readable,
    name: str,
    log_format: str | None = None,
    only: str | None = None,
    *,
    where: str | None = None,
) -> LogAccount:
    """Account for the log that `file` gives, read once and in order; `name` is what its rows are of.

    Memory is what the requests and the statistics lines need, whatever the log's size.

    Raises:
        InputError, UsageError: as `read_file`; they name it as `where`.
    """
    is_file, where = where is not None, name if where is None else where
    there = size_now(file)
    blocks = formats.blocks(file)
    first = next(blocks, b"")
    path = where if is_file else None
    notalog.check_unpacked(first, where, path)
    if log_format is None:
        notalog.check_begin(first, where)
    read = formats.read(chain((first,), blocks), log_format)
    notalog.check_format(read.looks, log_format, where)
    lines = read.facts.lines
    none_known = lines.understood + lines.ignored + lines.markers == 0
    if read.facts.format == unknown.NAME or none_known:
        notalog.check_text(first, where)
    hint = wrapped.why_unknown(first, path) if read.looks.best is None else None
    if hint is None and none_known:
        hint = notalog.one_line(first, path)
    if log_format is not None and none_known and lines.total:
        raise UsageError(
            f"--format {log_format}: none of the {lines.total:,} lines of {where} is of it, nor of another known format"
            + ("" if hint is None else f"; {hint}")
        )
    made = _account(read, name, log_format, only)
    made.found["simulated"] = simulated.says_so(first[: simulated.HEAD_BYTES])
    made.found["behind"] = hint
    made.found["undated"] = notalog.undated(first, path, read.facts)
    if isinstance(file, UntilInterrupted) and file.interrupted:
        made.found["interrupted"] = True
        made.found["doubts"].insert(0, asdict(_interrupted(read.facts.size)))
    if there is not None and read.facts.size < there:
        made.found["doubts"].insert(0, asdict(_truncated(read.facts.size, there)))
    return made


def _text(name: str) -> str:
    """Return a file's name as text that can be written: bytes that are none as their escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _interrupted(size: int) -> Doubt:
    return Doubt(
        "log-interrupted",
        f"reading was interrupted after {size:,} bytes: all of this is of what came before",
        "requests that were at work then have no end here; for all of them let the log end by itself",
    )


def _truncated(size: int, there: int) -> Doubt:
    return Doubt(
        "log-truncated",
        f"the log had {there:,} bytes when it was opened, and ended after {size:,}: it was truncated while it was read",
        "what stood in the rest is missing from all numbers: account for the rotated copy",
    )


# ---- segments ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """How many requests, and the first and the last time of any of them."""

    requests: int = 0
    span: tuple[int, int] | None = None

    def add(self, times: Iterable[int | None]) -> None:
        self.requests += 1
        if known := [at_ns for at_ns in times if at_ns is not None]:
            low, high = self.span or (known[0], known[0])
            self.span = min(low, *known), max(high, *known)


def _seen_by_start(requests: Sequence[LoggedRequest]) -> tuple[dict[int, _Seen], bool]:
    """Return what each server start has, but the times of phases that end before they start; and whether any does.

    Of the times alone: to make all rows for it, once to look at their phases and once more for this, was a third of the
    account of a log of 100 MB.
    """
    found: dict[int, _Seen] = defaultdict(_Seen)
    backwards = False
    for boot, slot, arrived, *phases in values(requests, "boot", "t_slot", "t_arrived", *_PHASES):
        times = [arrived if slot is None else slot]
        for start, end in (phases[:2], phases[2:]):
            if checks.is_backwards(start, end):
                backwards = True
            else:
                times += start, end
        found[boot].add(times)
    return found, backwards


def _by_markers(
    rows: Sequence[Request], facts: LogFacts, segments: Sequence[Segment]
) -> tuple[Sequence[Request], list[Segment], list[Doubt]]:
    rows = mapped(rows, places.Places(places.stretches(segments, facts.markers)).placed)
    if facts.timeline is Timeline.UNIX:
        return rows, list(segments), []
    doubt = Doubt(
        "segments-by-place",
        "the log's clock could not be laid on that of the markers: a request belongs to the segment between whose "
        "marker lines it stands",
        "sums, busy times and lengths hold; where a segment begins is as exact as the line beside its marker",
    )
    seen: dict[tuple[str, str | None], _Seen] = defaultdict(_Seen)
    for row in rows:
        seen[row.run, row.segment].add((row.t_slot, *(getattr(row, name) for name in _PHASES)))
    first_ns = {name: one.span[0] for name, one in seen.items() if one.span is not None}
    return rows, places.on_own_timeline(segments, first_ns, facts.markers), [doubt]


def _names_by_start(facts: LogFacts) -> dict[int, str]:
    """Name the segment of each server start that has requests: one of its own where it counts time from its beginning.

    Without markers, that is.
    """
    boots = sorted({boot for boot, _ in values(facts.requests, "boot", "slot")})
    apart = facts.timeline is Timeline.PROCESS and len(boots) > 1
    return {boot: f"{WHOLE_LOG}-start{boot}" if apart else WHOLE_LOG for boot in boots}


def _without_markers(
    rows: Sequence[Request], seen: Mapping[int, _Seen], names: Mapping[int, str], run: str
) -> tuple[Sequence[Request], list[Segment]]:
    """Return the rows by segment, and the segments, from first phase to last; `seen`, `names`: by server start."""
    if WHOLE_LOG in names.values():
        spans = [one.span for one in seen.values() if one.span is not None]
        whole = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else (0, None)
        return rows, [Segment(WHOLE_LOG, run, "", *whole)]
    of = np.array([row.boot for row in rows], np.int64)
    ordered = mapped(rows, lambda row: row, array("q", np.argsort(of, kind="stable").tobytes()))
    return ordered, [Segment(name, run, "", *(seen[boot].span or (0, None))) for boot, name in names.items()]


# ---- the account ---------------------------------------------------------------------------------------------------


def _account(read: formats.Read, name: str, log_format: str | None, only: str | None) -> LogAccount:
    facts = clocks.align(read.facts, ())
    segments, marker_doubts = segments_of(facts.markers)
    names = {} if segments else _names_by_start(facts)
    joined = log_alone.attribute(name, facts, names.get)
    heap.give_back()
    seen, backwards = _seen_by_start(facts.requests)
    ordered, order_doubts = checks.phases_in_order(joined.requests) if backwards else (joined.requests, [])
    ordered = mapped(ordered, partial(from_file, facts.format)) if facts.format in SOURCES else ordered
    if segments:
        rows, spans, place_doubts = _by_markers(ordered, facts, segments)
    else:
        rows, spans = _without_markers(ordered, seen, names, name)
        place_doubts = []
    settings = logged_settings.rows(facts, name)
    doubts = [
        *facts.doubts,
        *logged_settings.doubts(settings),
        *marker_doubts,
        *(one for one in joined.doubts if one.code != "no-log"),
        *(replace(one, message=one.message.replace("server.log:", f"{name}:")) for one in order_doubts),
        *place_doubts,
        *_doubts(read, facts, seen, log_format),
    ]
    shown = spans if only is None else _only(spans, only, name)
    kept = rows if only is None else _inside(rows, shown)
    found: dict[str, Any] = {
        "schema": schemas.LOG_ACCOUNT,
        "log": {"name": name, "bytes": facts.size, "format": facts.format, "named": log_format is not None},
        "simulated": False,
        "interrupted": False,
        "looks": {"best": read.looks.best, "lines": read.looks.lines, "scores": dict(read.looks.scores)},
        "lines": sections.lines(facts),
        "starts": _starts(facts, seen, name),
        "requests": _requests(joined, rows if segments else (), facts),
        "segments": [
            sections.segment(one) | {"no_agent": None, "markers": bool(segments)} | _phases(kept, one.segment, facts)
            for one in accounting.account_segments(kept, shown)
        ],
        "only": None if only is None else {"segment": only, "of": len(spans)},
        "settings": settings,
        "statistics": _statistics(facts, segments, shown),
        "listed": listed(
            facts.requests, joined.groups, None if only is None else {(one.boot, one.label) for one in kept}
        ),
        "cache_events": [
            dict(zip(("kind", "reason", "events", "tokens"), one, strict=True)) for one in facts.cache_sums
        ],
        "decode_batches": [asdict(one) for one in facts.decode_batches],
        "suspects": [sections.suspect(one) for one in facts.suspects],
        "clock": logclock.of(facts, _begins(seen)),
        "doubts": [asdict(one) for one in dict.fromkeys(doubts)],
    }
    return LogAccount(found, kept)


def _only(segments: Sequence[Segment], wanted: str, name: str) -> list[Segment]:
    """Return the segments that are called so, with or without their run; a log may have several runs' of one name."""
    full = {one: one.segment if one.run == name else f"{one.run}/{one.segment}" for one in segments}
    found = [one for one in segments if wanted in (one.segment, full[one])]
    if not found:
        there = ", ".join(list(full.values())[:_NAMED]) + (", ..." if len(full) > _NAMED else "")
        raise UsageError(f"--segment: expected one that {name} has: {there or 'it has none'}; got {wanted!r}")
    return found


def _inside(rows: Sequence[Request], segments: Sequence[Segment]) -> Sequence[Request]:
    names = {(one.run, one.segment) for one in segments}
    kept = [index for index, row in enumerate(rows) if (row.run, row.segment) in names]
    return mapped(rows, lambda row: row, array("q", kept))


def _phases(rows: Sequence[Request], segment: Segment, facts: LogFacts) -> dict[str, Any]:
    """Where the phases are from, of a file that is no log: those of a log are its own."""
    return {"phases": sections.phases(rows, segment, counters=False)} if facts.format in SOURCES else {"phases": None}


def _place(proof: Proof | None) -> dict[str, int | None]:
    return {"line": None if proof is None else proof.line, "offset": None if proof is None else proof.offset}


def _starts(facts: LogFacts, seen: Mapping[int, _Seen], name: str) -> list[dict[str, Any]]:
    return [
        {
            "boot": one.index,
            "first_line": one.first_line,
            "ready": None if one.ready is None else _place(one.ready) | {"source": f"{name}:{one.ready.line}"},
            "requests": seen[one.index].requests if one.index in seen else 0,
        }
        for one in facts.boots
    ]


def _requests(joined: Attribution, placed: Iterable[Request], facts: LogFacts) -> dict[str, Any]:
    """How many requests the log shows. Without a client, matched is: its lines can be of no other request.

    `placed`: with the segments that they stand in, where there are markers.
    """
    total, ambiguous = len(joined.requests), joined.counts[Match.AMBIGUOUS]
    ended: Counter[str] = Counter()
    for index, (finish, _) in enumerate(values(facts.requests, "finish", "boot")):
        if finish is not None or "t_end" in dict(facts.requests[index].proofs):
            ended[finish or "not told"] += 1
    return {
        "total": total,
        "matched": total - ambiguous,
        "ambiguous": ambiguous,
        "client_view": False,
        "without_end": total - ended.total(),
        "outside_segments": sum(row.segment is None for row in placed),
        "finish": dict(sorted(ended.items())),
        "groups": [asdict(group) for group in joined.groups],
    }


def _statistics(facts: LogFacts, segments: Sequence[Segment], shown: Sequence[Segment]) -> dict[str, Any] | None:
    """By the place of each line between the markers' lines, as requests are; of the segments that are shown."""
    names = {(one.run, one.segment) for one in shown}
    stretches = places.stretches(segments, facts.markers)
    parts = [(one.segment.segment, one.held) for one in stretches if (one.segment.run, one.segment.segment) in names]
    return statistics.summary(facts, parts)


def _doubts(read: formats.Read, facts: LogFacts, seen: Mapping[int, _Seen], log_format: str | None) -> Iterator[Doubt]:
    best, scores = read.looks.best, read.looks.scores
    if log_format is not None and best is not None and scores[best] > scores.get(log_format, 0):
        yield Doubt(
            "format-doubtful",
            f"of the first {read.looks.lines} lines {scores[log_format]} can only be of {log_format}, as was said, and "
            f"{scores[best]} only of {best}",
            "leave --format out, or split a log that two servers write into",
        )
    yield from logclock.doubts(facts, _begins(seen))


def _begins(seen: Mapping[int, _Seen]) -> list[int]:
    return [one.span[0] for one in seen.values() if one.span is not None]
