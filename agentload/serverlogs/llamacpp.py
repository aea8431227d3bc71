"""What does a log of llama.cpp's server tell? (llama-server, and the server inside the xllamacpp wheel)

Lines are matched whole and by their text only (`llamacpp_grammar`); those of one request come together in
`llamacpp_requests`, those of the server in `llamacpp_server`. What looks like a line of a request and cannot be one is
counted as unknown, with a doubt.

Times are those of the log's prefix, from process start, and with receive stamps on the Unix timeline (`stamps`). A log
without prefix has no times; with receive stamps those of the lines themselves are taken.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.core.clocks import moved
from agentload.core.packed import pack
from agentload.core.ports import LogReader
from agentload.core.records import Boot, LogFacts, Timeline
from agentload.serverlogs import llamacpp_columns as columns
from agentload.serverlogs import llamacpp_grammar as grammar
from agentload.serverlogs.lines import Kind, LineWalker, Skip, uncoloured
from agentload.serverlogs.llamacpp_bulk import LEAST_BYTES, Block
from agentload.serverlogs.llamacpp_server import ServerLines, Start
from agentload.serverlogs.words import CrowdedError

_RESOLUTION_NS: Final = 1_000
SMALL_BYTES: Final = 1 << 14  # a block that is smaller is read line by line: to look at it takes 0.5 ms
_PREFIX_BYTES: Final = 24  # none is longer
_DEBUG_ENTRY: Final = b"\n"  # what ends it: no line, but the next one with a prefix
_PROMPT, _EVAL, _TOTAL, _RELEASE, _CACHED, _NEW, _LAUNCH = (
    columns.PROMPT, columns.EVAL, columns.TOTAL, columns.RELEASE, columns.CACHED, columns.NEW, columns.LAUNCH
)  # fmt: skip


@dataclass(slots=True)
class _Timings:
    """Timings that are one entry of several lines, begun by a line that names the request only."""

    slot: int
    task: int
    at: int | None
    head: tuple[int, int, bytes]
    told: bool = False  # a line of them came


@dataclass(slots=True)
class _Context:
    """Where one server's lines stand, while another's are read: several may write into one log, each with a tag."""

    start: Start | None = None
    stamped: re.Match[bytes] | None = None
    early: int | None = None
    torn: tuple[int, int, bytes] | None = None
    entry: bytes | None = None
    timings: _Timings | None = None


class Reader(ServerLines):
    """A `core.ports.LogReader` for one log."""

    def __init__(self, stamps: Sequence[int] | None = None, small: int = SMALL_BYTES) -> None:
        """`stamps[i]`: receive time (Unix ns) of line i. Pieces of fewer than `small` bytes are read line by line."""
        super().__init__(stamps)
        # With stamps each line tells of the clock, so none is read in bulk.
        self._walker = LineWalker(self._take, self._bulk if stamps is None else None, self._mark)
        self._small = max(small, LEAST_BYTES)
        self._block: Block | None = None
        self._first, self._base = 1, 0  # number and offset of the present block's first line
        self._next = 0  # line of the block up to which all was told
        self._torn: tuple[int, int, bytes] | None = None  # a prefix whose text another write cut off
        self._timings: _Timings | None = None
        self._tag = b""
        self._contexts: dict[bytes, _Context] = {}

    # ---- the port --------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        self._walker.feed(data)

    def open_requests(self) -> int:
        """Requests that were launched and not released so far."""
        return sum(start.requests.open_requests() for start in self._starts)

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        self._walker.close()
        for tag in [self._tag, *self._contexts]:
            self._switch(tag)
            if self._torn is not None:
                self._walker.tally.add(Kind.UNKNOWN, *self._torn)
                self._torn = None
            self._end_timings()
        for start in self._starts:
            start.requests.end()
        stamped = self._stamps is not None
        self._doubts.compare(self._walker.lines, self._stamps)
        shifts = [self._shift(start) for start in self._starts]
        errors = [self._error(start) for start in self._starts]
        requests = self._done.close()
        known = [error for error in errors if error is not None]
        return LogFacts(
            format=FORMAT.name,
            timeline=Timeline.UNIX if stamped else Timeline.PROCESS,
            resolution_ns=_RESOLUTION_NS,
            clock_error_ns=max(known, default=None) if stamped else None,
            size=self._walker.size,
            lines=self._walker.tally.count(),
            boots=tuple(Boot(start.index, start.first_line, start.ready) for start in self._starts),
            settings=tuple(self._settings),
            requests=pack(moved(one, shifts[one.boot]) for one in requests) if stamped else requests,
            markers=self._neighbours.placed(self._walker.markers),
            suspects=tuple(
                (at + shift, proof, why)
                for boot, at, proof, why in self._suspects
                if (shift := shifts[boot]) is not None
            ),
            doubts=self._doubts.all(),
        )

    # ---- starts and times ------------------------------------------------------------------------------------------

    def _switch(self, tag: bytes) -> None:
        """Go on with the lines of the server of that tag."""
        start = self._start
        self._contexts[self._tag] = _Context(start, self._stamped, self._early, self._torn, self._entry, self._timings)
        self._tag = tag
        other = self._contexts.get(tag) or _Context()
        if other.start is None:
            fresh = start.prefixed is None and not start.opened and not start.requests.begun
            other.start = start if fresh else self._new_start(self._number)
        self._start, self._stamped, self._early = other.start, other.stamped, other.early
        self._torn, self._entry, self._timings = other.torn, other.entry, other.timings

    def _mark(self, index: int) -> None:
        if self._stamps is None:
            self._neighbours.mark(index, None if self._stamped is None else grammar.stamp_ns(self._stamped))

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _bulk(self, block: bytes, at: int) -> Skip:
        """Take what is usual from a place in a block on, up to what is to be handed over."""
        plain = self._start.prefixed is True and not self._tag  # else lines may mean something else
        if at == 0:
            if len(block) < self._small:
                return Skip(0, 0, 0, len(block))
            try:
                self._block = Block(block, debug=plain and self._entry == _DEBUG_ENTRY and self._torn is None)
            except CrowdedError:
                return Skip(0, 0, 0, len(block))
            self._first, self._base, self._next = self._walker.lines + 1, self._walker.offset, 0
        if not plain:
            return Skip(at, 0, 0, block.find(b"\n", at + self._small) + 1 or len(block))
        if self._torn is not None or self._early or self._timings is not None or self._neighbours.waiting:
            return Skip(at, 0, 0, block.find(b"\n", at) + 1)
        looked_at = self._block
        assert looked_at is not None  # the walker asks about each block from its beginning on
        starts, first = looked_at.starts, self._next
        if at != starts[first]:  # lines were handed over one by one
            first = int(starts.searchsorted(at))
        until, after = looked_at.stretch(first)
        self._next = after
        if until == first:
            return Skip(at, 0, 0, int(starts[after]))
        known, unknown, exact = self._usual(looked_at, block, first, until)
        self._walker.tally.understood += known
        head, normal = looked_at.last(first, until)
        if normal != exact:
            self._stand_at(block, int(starts[normal]))
        if head >= 0:
            self._entry = _DEBUG_ENTRY if head != normal else None
        return Skip(int(starts[until]), until - first, 0, int(starts[after]), known + unknown)

    def _stand_at(self, block: bytes, begins: int) -> None:
        """Let a line of a block be the last one with a time."""
        self._stamped = grammar.PREFIX.match(block[begins : begins + _PREFIX_BYTES])

    def _usual(  # noqa: C901, PLR0912, PLR0915  # a call for each line would take as long as the rest of it
        self, block: Block, text: bytes, first: int, until: int
    ) -> tuple[int, int, int]:
        """Take what lines [first, until) of a block say.

        Returns:
            How many were understood, how many were not, and the last one that was read line by line, or -1.
        """
        # Most lines of a busy log come here: what follows does without calls and look-ups where it can.
        first_line, base, requests = self._first, self._base, self._start.requests
        tasks, known, unknown, exact = requests.open, 0, 0, -1
        understood = Kind.UNDERSTOOD  # to look up a member of an enum costs 0.1 us
        for line, begins, kind, slot, number, at_us, hundredths, tokens in block.events(first, until):
            task = tasks.get(number)
            # A line of an open request that has not been told it yet.
            if task is not None and task.slot == slot:
                if kind == _CACHED:
                    if task.first_cached is None or at_us * 1000 < (task.t_cached or 0):
                        task.first_cached, task.t_cached = tokens, at_us * 1000
                        task.cached_line = first_line + line, base + begins
                    known += 1
                    continue
                if kind == _NEW and task.prompt_line is None:
                    task.t_prompt, task.task_tokens = at_us * 1000, tokens
                    task.prompt_line = first_line + line, base + begins
                    known += 1
                    continue
                if kind == _EVAL and task.decode_line is None:
                    task.decode_ms, task.decoded_tokens = hundredths / 100, tokens
                    task.t_eval, task.decode_line = at_us * 1000, (first_line + line, base + begins)
                    known += 1
                    continue
                if kind == _PROMPT and task.prefill_line is None:
                    task.prefill_ms, task.new_tokens = hundredths / 100, tokens
                    task.prefill_line = first_line + line, base + begins
                    known += 1
                    continue
                if kind == _TOTAL and task.total_line is None:
                    task.total, task.total_line = (hundredths / 100, tokens), (first_line + line, base + begins)
                    known += 1
                    continue
                if kind == _RELEASE and task.end_line is None:
                    task.n_tokens, task.truncated = tokens, hundredths == 1
                    task.t_end, task.end_line = at_us * 1000, (first_line + line, base + begins)
                    requests.release(task)
                    known += 1
                    continue
            where, said = (first_line + line, base + begins), None
            if kind == _LAUNCH:
                said = requests.launch(slot, number, at_us * 1000, where, child=False)
                if said is understood:
                    known += 1
                    continue
            _, normal = block.last(first, line)
            if normal not in (-1, exact):
                self._stand_at(text, int(block.starts[normal]))
            said, exact = said or self._line(*where, block.line(text, line)), line
            if said is understood:
                known += 1
            else:
                unknown += 1
                self._walker.tally.add(said, *where, block.line(text, line))
        return known, unknown, exact

    def _take(self, number: int, offset: int, raw: bytes) -> Kind | None:
        if b"\x1b" in raw:
            raw = uncoloured(raw)
            if not raw:  # what ends a colour stands behind the newline of warnings: alone after the last one
                return Kind.IGNORED
        tag, raw = grammar.parted(raw)
        if tag != self._tag:
            self._number, self._offset = number, offset
            self._switch(tag)
        if self._torn is not None:
            head, self._torn = self._torn, None
            joined = None if grammar.PREFIX.match(raw) else self._line(head[0], head[1], head[2] + raw)
            if joined is not None and joined is not Kind.UNKNOWN:
                self._walker.tally.add(joined, *head)
                return joined
            self._walker.tally.add(Kind.UNKNOWN, *head)
        if len(raw) < _PREFIX_BYTES and grammar.TORN_PREFIX.fullmatch(raw):
            self._torn = (number, offset, raw)
            return None
        return self._line(number, offset, raw)

    def _line(self, number: int, offset: int, raw: bytes) -> Kind:
        self._number, self._offset = number, offset
        self._prefix = prefix = grammar.PREFIX.match(raw)
        if prefix is None:
            return self._without_prefix(raw)
        self._entry = None
        self._end_timings()
        if prefix[5] == grammar.DEBUG_LEVEL:  # it may hold prompts and answers, line by line: up to the next prefix
            self._entry = _DEBUG_ENTRY
            return Kind.IGNORED
        body = raw[prefix.end() :]
        if self._start.prefixed is False and not grammar.opens(body):  # a log is written with or without, not both
            return Kind.UNKNOWN
        kind = self._body(body, prefix[5])
        if kind is not Kind.UNKNOWN and self._early is None:
            if kind is Kind.UNDERSTOOD:
                self._start.prefixed = True
            self._stamped = prefix
            if self._neighbours.waiting:
                self._neighbours.line(grammar.stamp_ns(prefix))
            received = self._received()
            if received is not None:
                self._start.clock.add(received, grammar.stamp_ns(prefix))
        return kind

    def _without_prefix(self, raw: bytes) -> Kind:
        early = grammar.OVERWRITTEN.fullmatch(raw)
        if early is not None:
            return self._overwritten(early)
        if self._timings is not None:
            kind = self._timing(raw, self._timings)
            if kind is not None:
                return kind
            self._end_timings()
        if self._entry is not None and (self._start.prefixed or not grammar.begins_entry(raw)):
            if raw.endswith(self._entry):
                self._entry = None
            return Kind.IGNORED
        if grammar.SAMPLER_PARAMS.fullmatch(raw):
            return Kind.IGNORED
        if self._start.prefixed and not grammar.opens(raw):
            return Kind.UNKNOWN
        kind = self._body(raw, b"")
        if kind is Kind.UNDERSTOOD and self._early is None:
            self._start.prefixed = False
        return kind

    def _timing(self, raw: bytes, entry: _Timings) -> Kind | None:
        """Take a line of timings that are one entry, at the time of its first line; None when it is none of them."""
        said = self._start.requests.match(raw.lstrip(b" "))
        if said is None or said[0] not in grammar.TIMINGS_WORDS:
            return None
        entry.told = True
        return self._start.requests.take(entry.slot, entry.task, said, entry.at, (self._number, self._offset))

    def _end_timings(self) -> None:
        """The entry is over; without any timings its first line was the beginning of some line that was cut."""
        entry, self._timings = self._timings, None
        if entry is not None and not entry.told:
            self._walker.tally.understood -= 1
            self._walker.tally.add(Kind.UNKNOWN, *entry.head)

    def _body(self, body: bytes, level: bytes) -> Kind:
        slot = grammar.SLOT.fullmatch(body)
        if slot is not None:
            self._early = None
            return self._slot(int(slot[1]), int(slot[2]), slot[3], level)
        other = grammar.OTHER.fullmatch(body)
        if other is not None:
            kind = self._other(other[1], level)
            self._early = None
            return kind
        twice = grammar.TWICE.fullmatch(body)
        if twice is not None:
            return self._given_twice(twice)
        head = grammar.TIMINGS_HEAD.fullmatch(body)
        if head is not None:
            self._early = None
            self._timings = _Timings(int(head[1]), int(head[2]), self._at(), (self._number, self._offset, body))
            return Kind.UNDERSTOOD
        if (build := grammar.BUILD.fullmatch(body)) is not None:
            kind = self._boot(b"build")
            self._early = None
            self._set(("build",), (build[1],))
            return kind
        if grammar.BARE_NOISE.fullmatch(body) is not None:
            return Kind.IGNORED
        self._early = None
        library = grammar.LIBRARY.fullmatch(body)
        return self._error_line(body, level) if library is None else self._library(library[1], library[2], level)

    def _slot(self, slot: int, task: int, text: bytes, level: bytes) -> Kind:
        if grammar.SLOT_NOISE.fullmatch(text):
            return Kind.IGNORED
        said = self._start.requests.match(text)
        if said is not None:
            return self._start.requests.take(slot, task, said, self._at(), (self._number, self._offset))
        if grammar.SUSPECT.fullmatch(text):
            return self._suspect(text)
        return self._error_line(text, level)


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = "llamacpp"

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines with llama.cpp's prefix and a body, or with its way to name slot and task, behind a tag too."""
        return sum(
            grammar.PREFIX.match(line) is not None
            or grammar.SLOT.fullmatch(line) is not None
            or (line.startswith(b"llama_context: ") and grammar.LIBRARY_SETTING.fullmatch(line[15:]) is not None)
            for _, line in map(grammar.parted, map(uncoloured, lines))
        )

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:
        """Make a reader; `stamps[i]` is the receive time (Unix ns) of line i (0-based)."""
        return Reader(stamps)


FORMAT: Final = Format()
