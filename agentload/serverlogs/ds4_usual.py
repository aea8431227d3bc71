"""What do the usual lines of a ds4 log, read a block at a time, do to the requests that are open?

The part of a reader that keeps the log's time, and takes what `ds4_bulk` has found. A line that goes on where the
lines of its request left off is taken here without calls; any other goes to the book of requests, as it would line by
line.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Final

from agentload.core.packed import Packer
from agentload.serverlogs import ds4_columns as columns
from agentload.serverlogs.doubts import Doubts
from agentload.serverlogs.ds4_bulk import BY_HAND, FEW, LEAST_BYTES, Block, Event
from agentload.serverlogs.ds4_clock import HALF_HOUR_S, SECOND_NS, WallClock
from agentload.serverlogs.ds4_request import LATE_NS, Where
from agentload.serverlogs.ds4_requests import Book
from agentload.serverlogs.ds4_starts import Starts
from agentload.serverlogs.ds4_texts import Texts
from agentload.serverlogs.lines import Kind, LineWalker, Skip
from agentload.serverlogs.marks import Neighbours
from agentload.serverlogs.words import CrowdedError

SMALL_BYTES: Final = 1 << 14  # a block that is smaller is read line by line: to look at it takes 0.5 ms
_STAMP: Final = 13  # bytes
_FAR_S: Final = 1 << 40
_NEVER_NS: Final = 1 << 79  # no time at all is as late as that
_LET_IT: Final = "run the server with TZ=UTC, and let agentload start it: then each line has a receive stamp"
_DECODE, _CHUNK, _CTX = columns.DECODE, columns.CHUNK, columns.CTX


class UsualLines:
    """A reader's time, and the lines of it that are read in bulk."""

    def __init__(self, walker: LineWalker, stamps: Sequence[int] | None, year: int | None, small: int) -> None:
        """Blocks of fewer than `small` bytes are read line by line; with 0 all that can be is read in bulk."""
        self._walker = walker
        self._stamps = stamps
        self._small, self._few = max(small, LEAST_BYTES), FEW if small else 0
        self._step_ns = SECOND_NS if stamps is None else 0
        self._slack_ns = self._step_ns + LATE_NS
        self._neighbours = Neighbours()
        self._doubts = Doubts()
        self._clock = WallClock(year, self._say)
        self._stamp = b""  # of the last line with another one
        self._at: int | None = None
        self._number = 0
        self._batches: list[dict[bytes, list[int]]] = []  # a start: decode steps, failed ones and us by rows
        self._done = Packer()
        self._starts = Starts(self._book, self._doubts.add)
        self._texts = Texts(self._starts, self._doubts)
        self._careful = False  # a torn line, or model output that is being quoted, or a marker just before
        self._block: Block | None = None
        self._one_by_one = False  # the next lines of the block are no runs
        self._first, self._base = 1, 0  # number and offset of the present block's first line
        self._next = 0  # line of the block up to which all was told
        self._steps_from = 0  # line of the block from which decode steps are not added up
        self._steps_of = self._batches[0]

    # ---- times -----------------------------------------------------------------------------------------------------

    def _book(self, boot: int) -> Book:
        self._batches.append(defaultdict(lambda: [0, 0, 0]))
        return Book(boot, self._step_ns, self._doubts.add, self._jumped, self._done)

    def _say(self, code: str, what: str, advice: str) -> None:
        self._doubts.add(code, self._number, what, advice)

    def _time(self, stamp: bytes, number: int) -> int | None:
        """Return the time of a line; None when its stamp is none."""
        if self._stamps is not None:
            if number <= len(self._stamps):
                self._at = self._stamps[number - 1]
            return self._at or 0
        if stamp != self._stamp:
            self._number = number
            at = self._clock.at(stamp, number)
            if at is None:
                return None
            self._stamp, self._at = stamp, at
        return self._at

    def _jumped(self, off_ns: int, last_line: int) -> int:
        """Return how much later than they were all times were since the wall clock jumped; 0 if none is known to.

        So says a request that was last read in a line and is `off_ns` off now.
        """
        late_ns, gap = self._clock.jumped(off_ns, last_line), self._clock.gap_line
        if not late_ns or gap is None:
            return 0
        since_ns = self._clock.gap_ns
        self._clock.move(-late_ns // SECOND_NS)
        self._starts.present.book.explain(-late_ns, gap, since_ns)
        self._texts.move(-late_ns, since_ns)
        self._neighbours.move(-late_ns, since_ns)
        self._stamp, self._at = b"", (self._at or 0) - late_ns
        by_s, back_s = late_ns // SECOND_NS, self._clock.back_s
        told = "a request that was running says that the wall clock"
        if back_s:
            told += f" was set back by {back_s - by_s} s: so much is added, not {back_s} s"
            self._doubts.add("clock-set-back-by", gap, told, _LET_IT)
        else:
            told += f" jumped ahead by {by_s} s: they are taken off from here on"
            self._doubts.add("clock-set-ahead", gap, told, _LET_IT)
        return late_ns

    # ---- blocks ----------------------------------------------------------------------------------------------------

    def _bulk(self, block: bytes, at: int) -> Skip:
        if at == 0:
            if len(block) < self._small:
                return Skip(0, 0, 0, len(block))
            together = self._stamps is None and self._may_be_calm()
            self._block = None  # its memory is taken for the next one, while it is in the cache still
            try:
                self._block = Block(block, examples=self._walker.tally.wants_examples, together=together, few=self._few)
            except CrowdedError:
                return Skip(0, 0, 0, len(block))
            self._first, self._base = self._walker.lines + 1, self._walker.offset
            self._next = self._steps_from = 0
            self._steps_of = self._batches[-1]
        looked_at = self._block
        assert looked_at is not None  # the walker asks about each block from its beginning on
        starts = looked_at.starts
        if at != starts[self._next]:  # lines were handed over one by one
            self._next = self._steps_from = int(starts.searchsorted(at))
            self._one_by_one = True
        if self._careful or self._batches[-1] is not self._steps_of:
            self._add_steps(looked_at, self._next)
        if self._careful:
            return Skip(at, 0, 0, block.find(b"\n", at) + 1)
        first = self._next
        following = looked_at.next_read(first)
        calm = following is not None and self._is_calm(block, *following)
        if following is not None:
            if looked_at.has_runs and (self._one_by_one or not calm):
                looked_at.apart(first)
            self._one_by_one = False
        until, after, known, unknown = self._usual(looked_at, block, first, calm=calm)
        known += looked_at.step_lines(first, until)
        self._walker.tally.understood += known
        self._next = after
        if after == looked_at.count:
            self._add_steps(looked_at, until)
        foreign = looked_at.foreign(first, until)
        return Skip(int(starts[until]), until - first, foreign, int(starts[after]), known + unknown)

    def _is_calm(self, text: bytes, line: int, begins: int) -> bool:
        """Whether each line from there on, up to one handed over or a jump of the clock, tells of one request only."""
        if self._stamps is not None:
            return False
        at = self._time(text[begins : begins + _STAMP], self._first + line)
        return at is not None and self._may_be_calm()

    def _may_be_calm(self) -> bool:
        return self._clock.plain and not self._starts.present.book.may_move(self._clock.gap_line)

    def _add_steps(self, block: Block, after: int) -> None:
        """Add up the decode steps before a line."""
        for rows, steps, took_us in block.steps(self._steps_from, after):
            counts = self._steps_of[b"%d" % rows]
            counts[0] += steps
            counts[2] += took_us
        self._steps_from = after
        self._steps_of = self._batches[-1]

    def _usual(  # noqa: C901, PLR0912, PLR0915  # a call for each line would take as long as the rest of it
        self, block: Block, text: bytes, first: int, *, calm: bool
    ) -> tuple[int, int, int, int]:
        """Take what was read from a line on, up to the next lines that are to be handed over.

        Args:
            block: what was read.
            text: the block itself.
            first: the line.
            calm: `_is_calm`; then the clock hears of a stretch's first line and of its last.

        Returns:
            The first of those and the line after them; how many lines here were understood, and how many were not.
        """
        # Most lines of a busy log come here: what follows does without calls and look-ups where it can.
        first_line, base, slack_ns, step_ns = self._first, self._base, self._slack_ns, self._step_ns
        book, received = self._starts.present.book, self._stamps is not None
        by_base, by_ctx, clock = book.by_base, book.by_ctx, self._clock
        known = unknown = 0
        again, at = True, self._at  # whether the time must be looked up
        # Within half an hour stamps only go on: then the clock hears of the last one when somebody may ask.
        last_s, since_ns, told = _FAR_S, 0, -1
        back, block.back = block.back, []
        for event in chain(back, block.events):
            line, begins, kind, ctx_end, start, end, gen, tokens, of, took_ns, year_s, opens, run = event
            if line < first:
                if kind == BY_HAND and ctx_end > first:
                    line = first
                    break
                continue
            if kind == BY_HAND:
                break
            if calm and not again:
                if opens:
                    block.back, ctx_end = [event], line
                    break
                at = since_ns + year_s * SECOND_NS
            elif again or received or year_s < 0 or not 0 <= year_s - last_s < HALF_HOUR_S:
                if told >= 0 and at is not None:
                    told = self._catch_up(text, told, at)
                at, again = self._time(text[begins : begins + _STAMP], first_line + line), False
                last_s = year_s if at is not None and not received and year_s >= 0 and clock.plain else _FAR_S
                since_ns = (at or 0) - last_s * SECOND_NS
            else:
                at = since_ns + year_s * SECOND_NS
                last_s, told = year_s, begins
            if at is not None:
                begin = at - took_ns
                if kind == _DECODE:
                    same = by_base.get(end - gen)
                    if same is not None and len(same) == 1:
                        one = same[0]
                        anchor = one.decode
                        # The next tokens of the only request there that decodes from that position.
                        if (
                            start == one.end_at
                            and gen - one.gen == tokens
                            and not one.gone
                            and one.group is None
                            and anchor.most - slack_ns <= begin <= anchor.least + slack_ns
                            and (anchor.least < _NEVER_NS or one.begin.fits(begin - (one.done_ns or 0), step_ns))
                            and (run is None or anchor.takes(run, since_ns, slack_ns))
                        ):
                            if run is not None:
                                number, line, begins, end, gen, _, took_ns, _, _, count = run
                                block.taken.append(number)
                                known += count - 1
                            else:
                                anchor.most = max(anchor.most, begin)
                                if begin < anchor.least:
                                    anchor.least, anchor.second = begin, anchor.least
                                elif begin < anchor.second:
                                    anchor.second = begin
                            one.gen, one.decode_ns, one.end_at = gen, took_ns, end
                            one.decoded = first_line + line, base + begins
                            known += 1
                            continue
                elif kind == _CHUNK:
                    same = by_ctx.get(text[begins + _CTX : ctx_end])
                    if same is not None and len(same) == 1:
                        one = same[0]
                        anchor = one.begin
                        if (
                            (one.chunk < tokens or one.chunked is None)
                            and tokens <= of == one.new
                            and one.done_ns is None
                            and not one.gone
                            and one.group is None
                            and anchor.most - slack_ns <= begin <= anchor.least + slack_ns
                            and (run is None or anchor.takes(run, since_ns, slack_ns))
                        ):
                            if run is not None:
                                number, line, begins, _, _, tokens, took_ns, _, _, count = run
                                block.taken.append(number)
                                known += count - 1
                            else:
                                anchor.most = max(anchor.most, begin)
                                if begin < anchor.least:
                                    anchor.least, anchor.second = begin, anchor.least
                                elif begin < anchor.second:
                                    anchor.second = begin
                            one.chunk, one.chunk_ns, one.chunked = tokens, took_ns, (first_line + line, base + begins)
                            known += 1
                            continue
                if run is not None:
                    self._one_by_one, ctx_end = True, line
                    break
                where = first_line + line, base + begins
                if told >= 0:
                    told = self._catch_up(text, told, at)
                if self._request_line(book, text[begins + _CTX : ctx_end], event, at, where):
                    known, again = known + 1, not calm
                    continue
            again = not calm
            unknown += 1
            if at is not None and (kind != _DECODE or tokens == end - start):
                self._texts.used(first_line + line, used=False)
            self._walker.tally.add(Kind.UNKNOWN, first_line + line, base + begins, block.line(text, line))
        else:
            line = ctx_end = block.count
        if calm and not again and last_s < _FAR_S:
            told, year_s = block.last_read(first, line)
            at = since_ns + year_s * SECOND_NS
        if told >= 0 and at is not None:
            self._catch_up(text, told, at)
        return line, ctx_end, known, unknown

    def _catch_up(self, text: bytes, begins: int, at: int) -> int:
        """Let the clock stand at the stamp of a line."""
        self._stamp, self._at = text[begins : begins + _STAMP], at
        self._clock.stand_at(at)
        return -1

    def _request_line(self, book: Book, ctx: bytes, event: Event, at: int, where: Where) -> bool:
        """Give a line to the book; False when no request can use it."""
        _, _, kind, _, start, end, gen, tokens, of, took_ns, *_ = event
        if kind == _DECODE:
            return tokens == end - start and book.decode(start, end, gen, took_ns, at, where, known=False)
        if kind == _CHUNK:
            return book.chunk(ctx, tokens, of, took_ns, at, where, known=False)
        if kind == columns.START:
            return book.start(ctx, at, where)
        if kind == columns.DONE:
            return book.done(ctx, took_ns, at, where, known=False)
        return book.finish(ctx, gen, columns.REASONS[tokens], took_ns, at, where, known=False)
