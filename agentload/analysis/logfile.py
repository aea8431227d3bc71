"""What does a server's log tell that agentload did not make?

No client's view: every request is one that the log alone shows. What it tells apart counts as matched, what it does not
as an ambiguous group whose sums are exact. Segments are what markers in the log enclose, by the place of each request's
first line between the markers' lines; without markers the log is one segment, from its first phase to its last.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import polars as pl

from agentload.analysis import checks, logged_settings, sections, statistics, tables
from agentload.artifacts import schemas
from agentload.core import accounting, clocks, log_alone
from agentload.core.attribution import Attribution
from agentload.core.markers import BEGIN
from agentload.core.packed import mapped, values
from agentload.core.records import Doubt, LogFacts, Marker, Match, Proof, Request, Segment, Timeline
from agentload.core.segments import segments_of
from agentload.errors import InputError, UsageError
from agentload.serverlogs import formats, simulated, unknown
from agentload.serverlogs.localtime import YEAR_NS

WHOLE_LOG: Final = "log"  # the segment's name where there are no markers

_PACKED: Final = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ\x00", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
)
_TAR_AT: Final = 257  # where the first header of a tar archive has its magic (POSIX.1, ustar interchange format)
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\x1b"))
_BINARY_SHARE: Final = 0.05  # of control bytes; text has none, compiled code and models 10 % and more
_LOOKED_AT: Final = 1 << 16  # bytes, for that
_LISTED: Final = 50  # requests with their intervals; the tables have all


@dataclass(frozen=True, slots=True)
class LogAccount:
    """A log's account, and what its tables are made of."""

    found: dict[str, Any]  # account.json's content
    requests: Sequence[Request]

    def tables(self) -> dict[str, Callable[[], pl.DataFrame]]:
        """Return what makes each table, by name, with the columns of a run's: of a long log all at once are large."""
        return {
            "requests": lambda: tables.requests_table(self.requests),
            "phases": lambda: tables.phases_table(self.found["log"]["name"], self.requests),
            "segments": lambda: tables.segments_table(sections.segment_rows(self.found["segments"])),
            "samples": lambda: tables.samples_table(()),
        }

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return all the tables by name."""
        return {name: make() for name, make in self.tables().items()}


def read_file(path: Path, log_format: str | None = None) -> LogAccount:
    """Account for the log at `path`: a file, a FIFO or a device; nothing is written.

    Raises:
        InputError: it cannot be read, or is no log (packed, binary).
        UsageError: `log_format` is no format, or its lines are all of another one.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, path.name, log_format, where=str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def read_stream(file: IO[bytes], name: str, log_format: str | None = None, *, where: str | None = None) -> LogAccount:
    """Account for the log that `file` gives, read once and in order; `name` is what its rows are of.

    Memory is what the requests need, whatever the log's size.

    Raises:
        InputError, UsageError: as `read_file`; they name it as `where`.
    """
    where = name if where is None else where
    blocks = formats.blocks(file)
    first = next(blocks, b"")
    _check_unpacked(first, where)
    read = formats.read(chain((first,), blocks), log_format)
    _check_format(read.looks, log_format, where)
    lines = read.facts.lines
    none_known = lines.understood + lines.ignored + lines.markers == 0
    if read.facts.format == unknown.NAME or none_known:
        _check_text(first, where)
    if log_format is not None and none_known and lines.total:
        raise UsageError(
            f"--format {log_format}: none of the {lines.total:,} lines of {where} is of it, nor of another known format"
        )
    return _account(read, name, log_format, is_simulated=simulated.says_so(first[: simulated.HEAD_BYTES]))


# ---- what is no log ------------------------------------------------------------------------------------------------


def _check_unpacked(first: bytes, where: str) -> None:
    for magic, kind, unpacker in _PACKED:
        if first.startswith(magic):
            raise InputError(
                f"{where}: expected a log as text, it is packed ({kind}): `{unpacker} {where} | agentload account -`"
            )
    if first[_TAR_AT : _TAR_AT + 5] == b"ustar":
        raise InputError(
            f"{where}: expected a log as text, it is packed (tar): `tar -xOf {where} NAME | agentload account -`"
        )
    if first.startswith(_UTF16):
        raise InputError(
            f"{where}: expected a log as bytes or UTF-8, it is UTF-16: "
            f"`iconv -f UTF-16 -t UTF-8 {where} | agentload account -`"
        )


def _check_text(first: bytes, where: str) -> None:
    head = first[:_LOOKED_AT].lstrip(b"\0")  # a log that was truncated under its writer begins with a hole
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls > _BINARY_SHARE * len(head) or (first and not first.strip(b"\0")):
        raise InputError(f"{where}: expected a server's log, it is binary (no text, and no line of a known format)")


def _check_format(looks: formats.Detected, log_format: str | None, where: str) -> None:
    if log_format is not None and looks.best is not None and not looks.scores.get(log_format):
        raise UsageError(
            f"--format {log_format}: none of the first {looks.lines} lines of {where} is of it, "
            f"{looks.scores[looks.best]} can only be of {looks.best}: say --format {looks.best}, or leave it out"
        )


# ---- segments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A segment, and between which lines of the log it stands."""

    segment: Segment
    after: int
    before: int | None

    def holds(self, line: int) -> bool:
        return self.after < line and (self.before is None or line < self.before)


def _stretches(segments: Iterable[Segment], markers: Sequence[Marker]) -> list[_Stretch]:
    # A marker that stands there twice counts at its first place.
    lines = {
        (one.run, one.segment, one.action == BEGIN, one.at_ns): one.proof.line
        for one in reversed(markers)
        if one.proof is not None
    }
    return [
        _Stretch(
            one,
            lines[one.run, one.segment, True, one.begin_ns],
            None if one.end_ns is None else lines[one.run, one.segment, False, one.end_ns],
        )
        for one in segments
    ]


def _first_line(row: Request) -> int | None:
    proofs = (row.prefill_start_proof, row.prefill_proof, row.decode_start_proof, row.decode_proof)
    return min((proof.line for proof in proofs if proof is not None), default=None)


def _placed(row: Request, stretches: Sequence[_Stretch]) -> Request:
    """Give a row the segment that its first line stands in; of several the one that begun last."""
    line = _first_line(row)
    holding = [] if line is None else [one for one in stretches if one.holds(line)]
    if not holding:
        return row
    segment = max(holding, key=lambda one: one.after).segment
    return replace(row, run=segment.run, segment=segment.segment)


def _times(row: Request) -> list[int]:
    known = (row.t_slot, row.prefill_start, row.prefill_end, row.decode_start, row.decode_end)
    return [at_ns for at_ns in known if at_ns is not None]


@dataclass(slots=True)
class _Seen:
    """How many rows, and the first and the last time of any of them."""

    rows: int = 0
    span: tuple[int, int] | None = None

    def add(self, row: Request) -> None:
        self.rows += 1
        if times := _times(row):
            low, high = self.span or (times[0], times[0])
            self.span = min(low, *times), max(high, *times)


def _seen_by(rows: Iterable[Request], key: Callable[[Request], Hashable]) -> dict[Any, _Seen]:
    found: dict[Hashable, _Seen] = defaultdict(_Seen)
    for row in rows:
        found[key(row)].add(row)
    return found


def _on_own_timeline(segment: Segment, span: tuple[int, int] | None, markers: Sequence[Marker]) -> Segment:
    """Move a segment whose markers have the client's clock to the log's timeline; its length stays.

    `span`: from the first time of its requests to the last.
    """
    beside = (
        at_ns
        for one in markers
        if (one.run, one.segment, one.action, one.at_ns) == (segment.run, segment.segment, BEGIN, segment.begin_ns)
        for at_ns in (one.after_ns, one.before_ns)
    )
    begin_ns = next((at_ns for at_ns in beside if at_ns is not None), span[0] if span else 0)
    length_ns = None if segment.end_ns is None else segment.end_ns - segment.begin_ns
    return replace(segment, begin_ns=begin_ns, end_ns=None if length_ns is None else begin_ns + length_ns)


def _by_markers(
    rows: Sequence[Request], facts: LogFacts, segments: Sequence[Segment]
) -> tuple[Sequence[Request], list[Segment], list[Doubt]]:
    stretches = _stretches(segments, facts.markers)
    rows = mapped(rows, lambda row: _placed(row, stretches))
    if facts.timeline is Timeline.UNIX:
        return rows, list(segments), []
    doubt = Doubt(
        "segments-by-place",
        "the log's clock could not be laid on that of the markers: a request belongs to the segment between whose "
        "marker lines it stands",
        "sums, busy times and lengths hold; where a segment begins is as exact as the line beside its marker",
    )
    seen = _seen_by(rows, lambda row: (row.run, row.segment))
    return rows, [_on_own_timeline(one, seen[one.run, one.segment].span, facts.markers) for one in segments], [doubt]


def _names_by_start(facts: LogFacts) -> dict[int | None, str]:
    """Name the segment of each server start that has requests: one of its own where it counts time from its beginning.

    Without markers, that is.
    """
    boots = sorted({boot for boot, _ in values(facts.requests, "boot", "slot")})
    apart = facts.timeline is Timeline.PROCESS and len(boots) > 1
    return {boot: f"{WHOLE_LOG}-start{boot}" if apart else WHOLE_LOG for boot in boots}


def _without_markers(
    rows: Sequence[Request], seen: Mapping[int | None, _Seen], names: Mapping[int | None, str], run: str
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


def _account(read: formats.Read, name: str, log_format: str | None, *, is_simulated: bool) -> LogAccount:
    facts = clocks.align(read.facts, ())
    segments, marker_doubts = segments_of(facts.markers)
    names = {} if segments else _names_by_start(facts)
    joined = log_alone.attribute(name, facts, names.get)
    ordered, order_doubts = checks.phases_in_order(joined.requests)
    seen = _seen_by(ordered, lambda row: row.boot)
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
    found: dict[str, Any] = {
        "schema": schemas.LOG_ACCOUNT,
        "log": {"name": name, "bytes": facts.size, "format": facts.format, "named": log_format is not None},
        "simulated": is_simulated,
        "looks": {"best": read.looks.best, "lines": read.looks.lines, "scores": dict(read.looks.scores)},
        "lines": sections.lines(facts),
        "starts": _starts(facts, seen, name),
        "requests": _requests(joined, rows if segments else (), facts),
        "segments": [
            sections.segment(one) | {"no_agent": None, "markers": bool(segments)}
            for one in accounting.account_segments(rows, spans)
        ],
        "settings": settings,
        "statistics": _statistics(facts, segments),
        "intervals": _intervals(rows, facts),
        "cache_events": _cache_events(facts),
        "decode_batches": [asdict(one) for one in facts.decode_batches],
        "suspects": [sections.suspect(one) for one in facts.suspects],
        "clock": sections.clock(facts, {}, None),
        "doubts": [asdict(one) for one in dict.fromkeys(doubts)],
    }
    return LogAccount(found, rows)


def _place(proof: Proof | None) -> dict[str, int | None]:
    return {"line": None if proof is None else proof.line, "offset": None if proof is None else proof.offset}


def _starts(facts: LogFacts, seen: Mapping[int | None, _Seen], name: str) -> list[dict[str, Any]]:
    return [
        {
            "boot": one.index,
            "first_line": one.first_line,
            "ready": None if one.ready is None else _place(one.ready) | {"source": f"{name}:{one.ready.line}"},
            "requests": seen[one.index].rows if one.index in seen else 0,
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


def _statistics(facts: LogFacts, segments: Sequence[Segment]) -> dict[str, Any] | None:
    """By the place of each line between the markers' lines, as requests are."""
    stretches = _stretches(segments, facts.markers)
    return statistics.summary(facts, [(one.segment.segment, _holds(one)) for one in stretches])


def _holds(stretch: _Stretch) -> statistics.Holds:
    return lambda one: stretch.holds(one.proof.line)


def _intervals(rows: Sequence[Request], facts: LogFacts) -> dict[str, Any] | None:
    """When each request was prefilled and decoded, Unix ns, of the first ones; None where no clock tells the date."""
    if facts.timeline is not Timeline.UNIX:
        return None
    names = ("prefill_start", "prefill_end", "decode_start", "decode_end")
    listed = [{"request": row.label, **{name: getattr(row, name) for name in names}} for row in rows[:_LISTED]]
    return {"listed": listed, "left_out": len(rows) - len(listed)}


def _cache_events(facts: LogFacts) -> list[dict[str, Any]]:
    kinds: dict[tuple[str, str | None], list[int]] = {}
    for one in facts.cache_events:
        counts = kinds.setdefault((one.kind, one.reason), [0, 0])
        counts[0] += 1
        counts[1] += one.tokens or 0
    return [
        {"kind": kind, "reason": reason, "events": events, "tokens": tokens}
        for (kind, reason), (events, tokens) in kinds.items()
    ]


def _doubts(read: formats.Read, facts: LogFacts, seen: Mapping[Any, _Seen], log_format: str | None) -> Iterator[Doubt]:
    best, scores = read.looks.best, read.looks.scores
    if log_format is not None and best is not None and scores[best] > scores.get(log_format, 0):
        yield Doubt(
            "format-doubtful",
            f"of the first {read.looks.lines} lines {scores[log_format]} can only be of {log_format}, as was said, and "
            f"{scores[best]} only of {best}",
            "leave --format out, or split a log that two servers write into",
        )
    begins = [one.span[0] for one in seen.values() if one.span is not None]
    if facts.timeline is Timeline.WALL and min(begins, default=YEAR_NS) < YEAR_NS:
        yield Doubt(
            "clock-without-year",
            "the log's stamps have neither year nor zone: times are ns since 1 January, 0:00 by the server's local "
            "clock, of the year in which the log begins",
            "durations and order hold; for times of day on a common clock let agentload start the server",
        )
    if seen and not begins and facts.counts_requests:
        yield Doubt(
            "log-without-times",
            "the log's lines have no times: tokens are counted, busy times and speeds are not known",
            "let the server put times into its log (llama-server does, unless it is given --no-log-prefix)",
        )
