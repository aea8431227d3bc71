"""What does a log of ds4-server tell?

Its lines carry no request id, stamps without year or zone and with a resolution of one second, and each is three
writes, so that other lines can stand inside. Lines are matched whole (`ds4_grammar`) and given to the requests that are
open (`ds4_requests`); one that another write has cut in two is put together again only when both halves prove it.

Without receive stamps times are the server's local wall clock (`ds4_clock` says from when they count), durations
inside the lines give the ms. With receive stamps each line's time is when it was received.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.core import markers
from agentload.core.ports import LogReader
from agentload.core.records import DecodeBatches, LogFacts, Proof, Timeline
from agentload.serverlogs import ds4_grammar as grammar
from agentload.serverlogs.ds4_clock import SECOND_NS
from agentload.serverlogs.ds4_usual import SMALL_BYTES, UsualLines
from agentload.serverlogs.lines import MARKER_TEXT, Kind, LineWalker, uncoloured
from agentload.serverlogs.stamps import MIN_ERROR_NS

_MS_NS: Final = 1_000_000
_MARKER_STAMP: Final = 31  # bytes of a marker before that text
_STAMP: Final = 14  # bytes of a stamp and the space after it
_MOST_INSIDE: Final = 8  # lines between the two halves of a torn one
_BODY: Final = _STAMP + len(grammar.SERVER)


class Reader(UsualLines):
    """A `core.ports.LogReader` for one log."""

    def __init__(self, stamps: Sequence[int] | None = None, year: int | None = None, small: int = SMALL_BYTES) -> None:
        """`stamps[i]`: receive time (Unix ns) of line i; `year`: that of the log's first line, if it is known.

        Pieces of fewer than `small` bytes are read line by line.
        """
        super().__init__(LineWalker(self._take, self._bulk, self._mark), stamps, year, small)
        self._torn: bytes | None = None  # a stamp whose text has not come
        self._inside = 0  # lines that came instead
        self._decode, self._chunk = grammar.DECODE.fullmatch, grammar.CHUNK.fullmatch
        self._batch = grammar.BATCH.fullmatch

    # ---- the port --------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        self._walker.feed(data)

    def open_requests(self) -> int:
        """Requests that have begun and not ended so far, as far as the log tells: cancelled ones leave no line."""
        return self._starts.present.book.open_requests()

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        self._walker.close()
        self._doubts.compare(self._walker.lines, self._stamps)
        boots, settings = self._starts.close()
        received = self._stamps is not None
        return LogFacts(
            format=FORMAT.name,
            timeline=Timeline.UNIX if received else Timeline.WALL,
            resolution_ns=_MS_NS if received else SECOND_NS,
            clock_error_ns=max(MIN_ERROR_NS, self._starts.late_ns) if received else None,
            size=self._walker.size,
            lines=self._walker.tally.count(),
            boots=boots,
            settings=settings,
            requests=self._done.close(),
            markers=self._neighbours.placed(self._walker.markers),
            suspects=tuple(self._texts.suspects),
            doubts=self._doubts.all(),
            cache_events=tuple(self._texts.cache),
            cache_sums=self._texts.cache_sums(),
            decode_batches=tuple(
                DecodeBatches(boot, int(rows), steps, failed, took_us * 1000)
                for boot, of_start in enumerate(self._batches)
                for rows, (steps, failed, took_us) in sorted(of_start.items(), key=lambda each: int(each[0]))
            ),
        )

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _mark(self, index: int) -> None:
        if self._stamps is None:
            self._neighbours.mark(index, self._at)
            self._careful = True

    def _take(self, number: int, offset: int, raw: bytes) -> Kind:
        return self._carefully(number, offset, raw) if self._careful else self._line(number, offset, raw)

    def _carefully(self, number: int, offset: int, raw: bytes) -> Kind:
        """Take a line that may be half of one, or be quoted in another."""
        kind: Kind | None = None
        if offset < self._texts.quoted_to:
            kind = self._line(number, offset, raw, known=True)
            if kind is Kind.UNKNOWN:
                self._doubts.add(
                    "model-text-in-log",
                    number,
                    "it stands where the server quotes what a model wrote, and is not used",
                    "compare with the client's view, should a request be missing there",
                )
        elif self._torn is not None and grammar.STAMPED.fullmatch(raw) is None:
            kind = self._second_half(number, offset, raw)
        else:
            self._torn = None
        self._careful = self._torn is not None or offset + len(raw) + 1 < self._texts.quoted_to
        kind = self._line(number, offset, raw) if kind is None else kind
        if self._neighbours.waiting:
            if kind is not Kind.UNKNOWN and self._at is not None and grammar.STAMPED.fullmatch(raw) is not None:
                self._neighbours.line(self._at)
            else:
                self._careful = True
        return kind

    def _second_half(self, number: int, offset: int, raw: bytes) -> Kind | None:
        """Put it behind the stamp that was cut off; None when it does not belong there."""
        self._inside += 1
        head, text = self._torn or b"", uncoloured(raw)
        if self._inside > _MOST_INSIDE:
            self._torn = None
        if not text.startswith(grammar.SERVER) or grammar.UNSTAMPED.fullmatch(text) is not None:
            return None
        self._torn = None
        kind = self._line(number, offset, head + b" " + text)
        if kind is not Kind.UNKNOWN:
            self._tell_torn(number)
        return kind

    def _tell_torn(self, number: int) -> None:
        self._doubts.add(
            "torn-lines",
            number,
            "another write stood inside a line; the line was put together again",
            "let agentload own the server's output, so that markers are written between lines only",
        )

    def _line(self, number: int, offset: int, raw: bytes, *, known: bool = False, whole: bool = True) -> Kind:
        """Take a line of any shape. `known`: only if it continues a request; `whole`: it is no part of a torn line."""
        text = uncoloured(raw)
        if (found := self._decode(text)) is not None:
            stamp, start, end, count, gen, seconds, millis = found.groups()
            at = self._time(stamp, number)
            if at is None:
                return Kind.UNKNOWN
            took_ns = int(seconds + millis) * _MS_NS
            return self._decode_line(number, offset, (start, end, count, gen), took_ns, at, known=known)
        if (found := self._chunk(text)) is not None:
            return self._chunk_line(number, offset, found, known=known)
        return self._rest(number, offset, text, known=known, whole=whole)

    def _rest(self, number: int, offset: int, text: bytes, *, known: bool = False, whole: bool = True) -> Kind:
        """Take a line without colours that is neither of decoding nor of a chunk."""
        if text.startswith(grammar.ENGINE):
            return Kind.UNKNOWN if known else self._unstamped(number, offset, text)
        if not known and text.startswith(grammar.BATCH_TEXT, _BODY):
            return self._batch_line(text)
        found = grammar.STAMPED.fullmatch(text)
        if found is None:
            return Kind.UNKNOWN if known else self._unstamped(number, offset, text)
        stamp, rest = found.groups()
        if rest.startswith(grammar.SERVER):
            at = self._time(stamp, number)
            if at is None:
                return Kind.UNKNOWN
            kind = Kind.UNKNOWN
            if whole and not known and MARKER_TEXT in rest:
                kind = self._first_half(number, offset, text, text.rfind(MARKER_TEXT) - _MARKER_STAMP)
            if kind is Kind.UNKNOWN:
                kind = self._texts.take(number, offset, rest.removeprefix(grammar.SERVER), at, known=known)
                self._careful = self._careful or offset < self._texts.quoted_to
            if kind is Kind.UNKNOWN and whole and not known:
                kind = self._first_half(number, offset, text, text.find(grammar.ENGINE, _STAMP))
            return kind
        return self._cut_stamp(number, offset, stamp, rest) if whole and not known else Kind.UNKNOWN

    def _first_half(self, number: int, offset: int, text: bytes, cut: int) -> Kind:
        """Read what stands before `cut` as a line whose newline another write came before."""
        if cut <= _STAMP or not self._inside_line(number, offset + cut, text[cut:], keep=False):
            return Kind.UNKNOWN
        kind = self._line(number, offset, text[:cut], whole=False)
        if kind is Kind.UNDERSTOOD:
            self._inside_line(number, offset + cut, text[cut:], keep=True)
            self._tell_torn(number)
            return kind
        return Kind.UNKNOWN

    def _inside_line(self, number: int, offset: int, text: bytes, *, keep: bool) -> bool:
        """Whether it is a marker or a line of the engine; keep what it says."""
        marker = markers.parse(text, Proof(number, offset))
        if marker is not None:
            if keep:
                self._walker.markers.append(marker)
            return True
        if not text.startswith(grammar.ENGINE):
            return False
        if keep:
            self._unstamped(number, offset, text)
        return True

    def _cut_stamp(self, number: int, offset: int, stamp: bytes, rest: bytes) -> Kind:
        """A stamp without a text of the server's: keep it for the text, which may follow."""
        self._torn, self._inside, self._careful = stamp, 0, True
        return Kind.UNDERSTOOD if self._inside_line(number, offset + _STAMP, rest, keep=True) else Kind.UNKNOWN

    def _unstamped(self, number: int, offset: int, text: bytes) -> Kind:
        if text.startswith(grammar.ENGINE):
            proof = Proof(number, offset)
            if grammar.ENGINE_TROUBLE.fullmatch(text) is not None:
                self._texts.suspect(number, offset, self._now(number), text)
                return Kind.UNDERSTOOD
            return Kind.UNDERSTOOD if self._starts.engine(text, proof) else Kind.IGNORED
        if (found := grammar.UNSTAMPED.fullmatch(text)) is None:
            return Kind.UNKNOWN
        body = found[0].removeprefix(grammar.SERVER)
        return self._texts.take(number, offset, body, self._now(number), known=False)

    def _now(self, number: int) -> int:
        """Return the time of a line without a stamp: when it was received, else that of the line before."""
        return (self._at or 0) if self._stamps is None else self._time(b"", number) or 0

    # ---- what they say ---------------------------------------------------------------------------------------------

    def _batch_line(self, text: bytes) -> Kind:
        found = self._batch(text)
        if found is None:
            return Kind.UNKNOWN
        rows, millis, micros, status = found.groups()
        counts = self._batches[-1][rows]
        counts[0] += 1
        counts[1] += status not in grammar.BATCH_OK
        counts[2] += int(millis + micros)
        return Kind.UNDERSTOOD

    def _decode_line(
        self,
        number: int,
        offset: int,
        numbers: tuple[bytes, bytes, bytes, bytes],
        took_ns: int,
        at: int,
        *,
        known: bool,
    ) -> Kind:
        start, end, count, gen = (int(text) for text in numbers)
        if count != end - start:
            return Kind.UNKNOWN
        used = self._starts.present.book.decode(start, end, gen, took_ns, at, (number, offset), known=known)
        return self._texts.used(number, used=used)

    def _chunk_line(self, number: int, offset: int, found: re.Match[bytes], *, known: bool = False) -> Kind:
        stamp, ctx, phase, tokens, of, seconds, millis = found.groups()
        at = self._time(stamp, number)
        if at is None:
            return Kind.UNKNOWN
        book, where = self._starts.present.book, (number, offset)
        if phase != b"prefill":
            return self._texts.used(number, used=book.rebuilds.chunk(ctx, int(tokens), where))
        took_ns = int(seconds + millis) * _MS_NS
        return self._texts.used(number, used=book.chunk(ctx, int(tokens), int(of), took_ns, at, where, known=known))


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = "ds4"

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines that begin as those of the server or its engine do."""
        return sum(grammar.OURS.match(line) is not None for line in map(uncoloured, lines))

    def reader(self, stamps: Sequence[int] | None = None, year: int | None = None) -> LogReader:
        """Make a reader; `stamps[i]` is the receive time (Unix ns) of line i, `year` that of the first line."""
        return Reader(stamps, year)


FORMAT: Final = Format()
