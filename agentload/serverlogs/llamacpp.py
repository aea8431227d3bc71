"""What does a log of llama.cpp's server tell? (llama-server, and the server inside the xllamacpp wheel)

Lines are matched whole and by their text only (`llamacpp_grammar`); those of one request come together in
`llamacpp_requests`. What looks like a line of a request and cannot be one is counted as unknown, with a doubt.

Times are those of the log's prefix, from process start, and with receive stamps on the Unix timeline (`stamps`). A log
without prefix has no times; with receive stamps those of the lines themselves are taken.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agentload.core.ports import LogReader
from agentload.core.records import Boot, LogFacts, LoggedRequest, Proof, Setting, Timeline
from agentload.serverlogs import llamacpp_grammar as grammar
from agentload.serverlogs.doubts import Doubts
from agentload.serverlogs.lines import Kind, LineWalker
from agentload.serverlogs.llamacpp_requests import Requests
from agentload.serverlogs.stamps import MIN_ERROR_NS, ReceiveClock

_RESOLUTION_NS: Final = 1_000
_TORN_BYTES: Final = 24  # no prefix alone is longer


@dataclass(slots=True)
class _Start:
    """One start of the server."""

    index: int
    first_line: int
    requests: Requests
    prefixed: bool | None = None  # not known yet
    ready: Proof | None = None
    clock: ReceiveClock = field(default_factory=ReceiveClock)
    settings: dict[str, str | int | bool] = field(default_factory=dict)


class Reader:
    """A `core.ports.LogReader` for one log."""

    def __init__(self, stamps: Sequence[int] | None = None) -> None:
        self._stamps = stamps
        # With stamps each line tells of the clock, so none is counted in bulk.
        self._walker = LineWalker(self._take, grammar.NOISE_LINES if stamps is None else None)
        self._starts: list[_Start] = []
        self._settings: list[Setting] = []
        self._suspects: list[tuple[int, int, Proof, str]] = []  # boot, time, line, why
        self._doubts = Doubts()
        self._number, self._offset = 1, 0  # of the present line
        self._prefix: re.Match[bytes] | None = None
        self._early: int | None = None  # first of the lines just read that come before "initializing"
        self._torn: tuple[int, int, bytes] | None = None  # a prefix whose text another write cut off
        self._entry: bytes | None = None  # an entry goes on over several lines: what its last one ends with
        self._start = self._new_start(1)
        self._events: tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], Kind]], ...] = (
            (grammar.BOOT, self._boot),
            (grammar.READY, self._ready),
            (grammar.CANCEL, self._cancel),
            (grammar.REFUSED, self._refuse),
            (grammar.SUSPECT, lambda found: self._suspect(found[0])),
        )

    # ---- the port --------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        self._walker.feed(data)

    def open_requests(self) -> int:
        """Requests that were launched and not released so far."""
        return self._start.requests.open_requests()

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        self._walker.close()
        if self._torn is not None:
            self._walker.tally.add(Kind.UNKNOWN, *self._torn)
            self._torn = None
        self._end_start()
        lines = self._walker.lines
        stamped = self._stamps is not None
        if self._stamps is not None and abs(len(self._stamps) - lines) > 1:  # a kill may tear the last one off
            self._doubts.add(
                "stamps-do-not-fit",
                min(lines, len(self._stamps)),
                f"there are {lines} lines and {len(self._stamps)} receive stamps",
                "the log was changed after it was received, or its stamps are of another log: times may be wrong",
            )
        shifts = [self._shift(start) for start in self._starts]
        errors = [self._error(start) for start in self._starts]
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
            requests=tuple(
                _moved(request, shift)
                for start, shift in zip(self._starts, shifts, strict=True)
                for request in start.requests.done
            ),
            markers=tuple(self._walker.markers),
            suspects=tuple(
                (at + shift, proof, why)
                for boot, at, proof, why in self._suspects
                if (shift := shifts[boot]) is not None
            ),
            doubts=self._doubts.all(),
        )

    # ---- starts and times ------------------------------------------------------------------------------------------

    def _new_start(self, first_line: int) -> _Start:
        index = len(self._starts)
        return _Start(index, first_line, Requests(index, self._say))

    def _end_start(self) -> None:
        self._start.requests.end()
        if self._starts[-1:] != [self._start]:
            self._starts.append(self._start)

    def _boot(self, _: re.Match[bytes]) -> Kind:
        if self._start.requests.whole or self._start.prefixed is not None:
            self._end_start()
            self._start = self._new_start(self._early or self._number)
        self._start.requests.whole = True
        return Kind.UNDERSTOOD

    def _shift(self, start: _Start) -> int | None:
        """What to add to a start's times; None when they are on no timeline."""
        if self._stamps is None or start.prefixed is not True:
            return 0
        return start.clock.offset_ns()

    def _error(self, start: _Start) -> int | None:
        """Bound of the alignment; without a prefix, what was seen of how late lines are received."""
        return start.clock.error_ns() if start.prefixed else max(MIN_ERROR_NS, start.requests.jitter_ns)

    def _received(self) -> int | None:
        """When the present line was received."""
        if self._stamps is None or self._number > len(self._stamps):
            return None
        return int(self._stamps[self._number - 1])  # it may be a numpy integer: those must not get into the facts

    def _at(self) -> int | None:
        """Time of the present line: its prefix's, else when it was received."""
        return self._received() if self._prefix is None else grammar.stamp_ns(self._prefix)

    def _proof(self) -> Proof:
        return Proof(self._number, self._offset)

    def _say(self, code: str, what: str, advice: str) -> None:
        self._doubts.add(code, self._number, what, advice)

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _take(self, number: int, offset: int, raw: bytes) -> Kind | None:
        if self._torn is not None:
            head, self._torn = self._torn, None
            joined = None if grammar.PREFIX.match(raw) else self._line(head[0], head[1], head[2] + raw)
            if joined is not None and joined is not Kind.UNKNOWN:
                self._walker.tally.add(joined, *head)
                return joined
            self._walker.tally.add(Kind.UNKNOWN, *head)
        if len(raw) < _TORN_BYTES and grammar.TORN_PREFIX.fullmatch(raw):
            self._torn = (number, offset, raw)
            return None
        return self._line(number, offset, raw)

    def _line(self, number: int, offset: int, raw: bytes) -> Kind:
        self._number, self._offset = number, offset
        self._prefix = prefix = grammar.PREFIX.match(raw)
        if prefix is None:
            return self._without_prefix(raw)
        self._entry = None
        if prefix[5] == grammar.DEBUG_LEVEL:  # it may hold prompts and answers, line by line: up to the next prefix
            self._entry = b"\n"
            return Kind.IGNORED
        body = raw[prefix.end() :]
        if self._start.prefixed is False and not grammar.opens(body):  # a log is written with or without, not both
            return Kind.UNKNOWN
        kind = self._body(body, prefix[5])
        if kind is not Kind.UNKNOWN and self._early is None:
            if kind is Kind.UNDERSTOOD:
                self._start.prefixed = True
            received = self._received()
            if received is not None:
                self._start.clock.add(received, grammar.stamp_ns(prefix))
        return kind

    def _without_prefix(self, raw: bytes) -> Kind:
        early = grammar.OVERWRITTEN.fullmatch(raw)
        if early is not None:
            return self._overwritten(early)
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
        self._early = None
        library = grammar.LIBRARY.fullmatch(body)
        return self._error_line(body, level) if library is None else self._library(library[1], library[2], level)

    def _slot(self, slot: int, task: int, text: bytes, level: bytes) -> Kind:
        if grammar.SLOT_NOISE.fullmatch(text):
            return Kind.IGNORED
        said = self._start.requests.match(text)
        if said is not None:
            return self._start.requests.take(slot, task, said, self._at(), self._proof())
        if grammar.SUSPECT.fullmatch(text):
            return self._suspect(text)
        return self._error_line(text, level)

    def _error_line(self, text: bytes, level: bytes) -> Kind:
        return self._suspect(text) if level == b"E" else Kind.UNKNOWN

    def _suspect(self, text: bytes) -> Kind:
        at = self._at()
        if at is not None:
            why = text[:200].decode("utf-8", "replace")
            self._suspects.append((self._start.index, at, self._proof(), why))
        return Kind.UNDERSTOOD

    # ---- the server ------------------------------------------------------------------------------------------------

    def _given_twice(self, found: re.Match[bytes]) -> Kind:
        self._early = self._early or self._number
        self._say(
            "flag-given-twice",
            f"the server was given {found[1].decode('utf-8', 'replace')} more than once: the last one won",
            "remove one of them from the launch command; two spellings of one flag overwrite without any warning",
        )
        return Kind.UNDERSTOOD

    def _overwritten(self, found: re.Match[bytes]) -> Kind:
        self._early = self._early or self._number
        name, flag = (part.decode("utf-8", "replace") for part in found.groups())
        self._say(
            "environment-overwritten",
            f"{name} is set and {flag} on the command line wins",
            "remove one of the two, so that what is asked for is said once",
        )
        return Kind.UNDERSTOOD

    def _other(self, text: bytes, level: bytes) -> Kind:
        inner = grammar.INNER_NAME.fullmatch(text)
        for each in (text,) if inner is None else (text, inner[1]):
            kind = self._known_other(each)
            if kind is not None:
                return kind
        return self._error_line(text, level)

    def _known_other(self, text: bytes) -> Kind | None:
        if grammar.OTHER_NOISE.fullmatch(text):
            return Kind.IGNORED
        if grammar.CHAT_EXAMPLE.fullmatch(text):
            self._entry = None if text.endswith(grammar.CHAT_EXAMPLE_END) else grammar.CHAT_EXAMPLE_END
            return Kind.IGNORED
        for event, action in self._events:
            found = event.fullmatch(text)
            if found is not None:
                return action(found)
        for setting, names in grammar.SETTINGS:
            found = setting.fullmatch(text)
            if found is not None:
                return self._set(names, found.groups())
        return None

    def _ready(self, _: re.Match[bytes]) -> Kind:
        self._start.ready = self._proof()
        return Kind.UNDERSTOOD

    def _cancel(self, found: re.Match[bytes]) -> Kind:
        self._start.requests.cancel(int(found[1]), self._proof())
        return Kind.UNDERSTOOD

    def _refuse(self, found: re.Match[bytes]) -> Kind:
        self._start.requests.refuse(int(found[1]), self._proof())
        return self._suspect(found[0])

    def _library(self, head: bytes, text: bytes, level: bytes) -> Kind:
        if (found := grammar.LIBRARY_SETTING.fullmatch(text)) is not None:
            return self._set((found[1].decode("ascii"),), (found[2],))
        if (found := grammar.KV_CACHE.fullmatch(text)) is not None:
            return self._set(("cache_type_k", "cache_type_v"), found.groups())
        if (found := grammar.FLASH_ATTENTION.fullmatch(text)) is not None:
            return self._set(("flash_attn_resolved",), found.groups())
        if (found := grammar.ROUNDED.fullmatch(text)) is not None:
            self._say(
                "context-size-rounded",
                f"the context asked for is no multiple of the slots: it became {int(found[1])} tokens",
                "ask for a context size that the number of slots divides",
            )
            return Kind.UNDERSTOOD
        known = grammar.LIBRARY_HEAD.fullmatch(head) is not None
        return Kind.IGNORED if known and level != b"E" else self._error_line(text, level)

    def _set(self, names: Sequence[str], values: Sequence[bytes]) -> Kind:
        """Keep settings; a second context (draft model, sliding window) that has another value gets a number."""
        known = self._start.settings
        for base, text in zip(names, values, strict=True):
            name, value, number = base, grammar.value(text), 1
            while name in known and known[name] != value:
                number += 1
                name = f"{base}#{number}"
            if name not in known:
                known[name] = value
                self._settings.append(Setting(name, value, self._start.index, self._proof()))
        return Kind.UNDERSTOOD


def _by(at: int | None, shift: int | None) -> int | None:
    return None if at is None or shift is None else at + shift


def _moved(request: LoggedRequest, shift: int | None) -> LoggedRequest:
    """Return it with its times moved; without times when `shift` is None."""
    if shift == 0:
        return request
    return replace(
        request,
        t_slot=_by(request.t_slot, shift),
        prefill_start=_by(request.prefill_start, shift),
        prefill_end=_by(request.prefill_end, shift),
        decode_start=_by(request.decode_start, shift),
        decode_end=_by(request.decode_end, shift),
        t_end=_by(request.t_end, shift),
    )


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = "llamacpp"

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines with llama.cpp's prefix and a body, or with its way to name slot and task."""
        return sum(
            grammar.PREFIX.match(line) is not None
            or grammar.SLOT.fullmatch(line) is not None
            or (line.startswith(b"llama_context: ") and grammar.LIBRARY_SETTING.fullmatch(line[15:]) is not None)
            for line in lines
        )

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:
        """Make a reader; `stamps[i]` is the receive time (Unix ns) of line i (0-based)."""
        return Reader(stamps)


FORMAT: Final = Format()
