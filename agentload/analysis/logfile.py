"""What does a server's log tell that agentload did not make?

No client's view: every request is one that the log alone shows. What it tells apart counts as matched, what it does not
as an ambiguous group whose sums are exact. Segments are what markers in the log enclose, by the place of each request's
first line between the markers' lines; without markers the log is one segment, from its first phase to its last.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

import polars as pl

from agentload.analysis import checks, sections, tables
from agentload.artifacts import schemas
from agentload.core import accounting, clocks
from agentload.core.attribution import Attribution, attribute
from agentload.core.markers import BEGIN
from agentload.core.records import Doubt, LogFacts, Marker, Match, Proof, Request, Segment, Setting, Timeline
from agentload.core.segments import segments_of
from agentload.errors import InputError, UsageError
from agentload.serverlogs import formats, simulated, unknown

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


@dataclass(frozen=True, slots=True)
class LogAccount:
    """A log's account, and what its tables are made of."""

    found: dict[str, Any]  # account.json's content
    requests: tuple[Request, ...]

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return the tables by name, with the columns of a run's."""
        return {
            "requests": tables.requests_table(self.requests),
            "phases": tables.phases_table(self.found["log"]["name"], self.requests),
            "segments": tables.segments_table(sections.segment_rows(self.found["segments"])),
            "samples": tables.samples_table(()),
        }


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


def _span(rows: Iterable[Request]) -> tuple[int, int] | None:
    times = [at_ns for row in rows for at_ns in _times(row)]
    return (min(times), max(times)) if times else None


def _on_own_timeline(segment: Segment, rows: Iterable[Request], markers: Sequence[Marker]) -> Segment:
    """Move a segment whose markers have the client's clock to the log's timeline; its length stays."""
    beside = (
        at_ns
        for one in markers
        if (one.run, one.segment, one.action, one.at_ns) == (segment.run, segment.segment, BEGIN, segment.begin_ns)
        for at_ns in (one.after_ns, one.before_ns)
    )
    span = _span(row for row in rows if (row.run, row.segment) == (segment.run, segment.segment))
    begin_ns = next((at_ns for at_ns in beside if at_ns is not None), span[0] if span else 0)
    length_ns = None if segment.end_ns is None else segment.end_ns - segment.begin_ns
    return replace(segment, begin_ns=begin_ns, end_ns=None if length_ns is None else begin_ns + length_ns)


def _by_markers(
    rows: Sequence[Request], facts: LogFacts, segments: Sequence[Segment]
) -> tuple[list[Request], list[Segment], list[Doubt]]:
    stretches = _stretches(segments, facts.markers)
    rows = [_placed(row, stretches) for row in rows]
    if facts.timeline is Timeline.UNIX:
        return rows, list(segments), []
    doubt = Doubt(
        "segments-by-place",
        "the log's clock could not be laid on that of the markers: a request belongs to the segment between whose "
        "marker lines it stands",
        "sums, busy times and lengths hold; where a segment begins is as exact as the line beside its marker",
    )
    return rows, [_on_own_timeline(one, rows, facts.markers) for one in segments], [doubt]


def _without_markers(rows: Sequence[Request], facts: LogFacts, run: str) -> tuple[list[Request], list[Segment]]:
    """One segment; one a server start where each counts its time from its own beginning."""
    boots = sorted({row.boot for row in rows if row.boot is not None})
    apart = facts.timeline is Timeline.PROCESS and len(boots) > 1
    if not rows:
        return [], []
    placed, segments = [], []
    for boot in boots if apart else [None]:
        name = WHOLE_LOG if boot is None else f"{WHOLE_LOG}-start{boot}"
        inside = [replace(row, segment=name) for row in rows if boot is None or row.boot == boot]
        span = _span(inside)
        segments.append(Segment(name, run, "", span[0] if span else 0, span[1] if span else None))
        placed += inside
    return placed, segments


# ---- the account ---------------------------------------------------------------------------------------------------


def _account(read: formats.Read, name: str, log_format: str | None, *, is_simulated: bool) -> LogAccount:
    facts = clocks.align(read.facts, ())
    segments, marker_doubts = segments_of(facts.markers)
    joined = attribute(name, (), facts, ())
    ordered, order_doubts = checks.phases_in_order(joined.requests)
    if segments:
        rows, spans, place_doubts = _by_markers(ordered, facts, segments)
    else:
        rows, spans = _without_markers(ordered, facts, name)
        place_doubts = []
    doubts = [
        *facts.doubts,
        *marker_doubts,
        *(one for one in joined.doubts if one.code != "no-log"),
        *(replace(one, message=one.message.replace("server.log:", f"{name}:")) for one in order_doubts),
        *place_doubts,
        *_doubts(read, facts, rows, log_format),
    ]
    found: dict[str, Any] = {
        "schema": schemas.LOG_ACCOUNT,
        "log": {"name": name, "bytes": facts.size, "format": facts.format, "named": log_format is not None},
        "simulated": is_simulated,
        "looks": {"best": read.looks.best, "lines": read.looks.lines, "scores": dict(read.looks.scores)},
        "lines": sections.lines(facts),
        "starts": _starts(facts, name),
        "requests": _requests(joined, rows, facts),
        "segments": [
            sections.segment(accounting.account_segment(rows, one)) | {"no_agent": None, "markers": bool(segments)}
            for one in spans
        ],
        "settings": [_setting(one, name) for one in facts.settings],
        "cache_events": _cache_events(facts),
        "decode_batches": [asdict(one) for one in facts.decode_batches],
        "suspects": [sections.suspect(one) for one in facts.suspects],
        "clock": sections.clock(facts, {}, None),
        "doubts": [asdict(one) for one in dict.fromkeys(doubts)],
    }
    return LogAccount(found, tuple(rows))


def _place(proof: Proof | None) -> dict[str, int | None]:
    return {"line": None if proof is None else proof.line, "offset": None if proof is None else proof.offset}


def _starts(facts: LogFacts, name: str) -> list[dict[str, Any]]:
    requests = Counter(one.boot for one in facts.requests)
    return [
        {
            "boot": one.index,
            "first_line": one.first_line,
            "ready": None if one.ready is None else _place(one.ready) | {"source": f"{name}:{one.ready.line}"},
            "requests": requests[one.index],
        }
        for one in facts.boots
    ]


def _requests(joined: Attribution, rows: Sequence[Request], facts: LogFacts) -> dict[str, Any]:
    """How many requests the log shows. Without a client, matched is: its lines can be of no other request."""
    ambiguous = sum(row.match is Match.AMBIGUOUS for row in rows)
    ended = [one for one in facts.requests if one.finish is not None or "t_end" in dict(one.proofs)]
    return {
        "total": len(rows),
        "matched": len(rows) - ambiguous,
        "ambiguous": ambiguous,
        "client_view": False,
        "without_end": len(rows) - len(ended),
        "outside_segments": sum(row.segment is None for row in rows),
        "finish": dict(sorted(Counter(one.finish or "not told" for one in ended).items())),
        "groups": [asdict(group) for group in joined.groups],
    }


def _setting(one: Setting, name: str) -> dict[str, Any]:
    """What is in force; what was asked for nobody has said."""
    return {
        "name": one.name,
        "requested": None,
        "applied": one.value,
        "source": f"{name}:{one.proof.line}",
        "verdict": None,
        "boot": one.boot,
        **_place(one.proof),
    }


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


def _doubts(read: formats.Read, facts: LogFacts, rows: Sequence[Request], log_format: str | None) -> Iterator[Doubt]:
    best, scores = read.looks.best, read.looks.scores
    if log_format is not None and best is not None and scores[best] > scores.get(log_format, 0):
        yield Doubt(
            "format-doubtful",
            f"of the first {read.looks.lines} lines {scores[log_format]} can only be of {log_format}, as was said, and "
            f"{scores[best]} only of {best}",
            "leave --format out, or split a log that two servers write into",
        )
    if facts.timeline is Timeline.WALL and rows:
        yield Doubt(
            "clock-without-year",
            "the log's stamps have neither year nor zone: times are ns since 1 January, 0:00 by the server's local "
            "clock, of the year in which the log begins",
            "durations and order hold; for times of day on a common clock let agentload start the server",
        )
    if rows and not any(_times(row) for row in rows):
        yield Doubt(
            "log-without-times",
            "the log's lines have no times: tokens are counted, busy times and speeds are not known",
            "let the server put times into its log (llama-server does, unless it is given --no-log-prefix)",
        )
