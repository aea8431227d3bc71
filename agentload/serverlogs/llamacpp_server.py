"""What do lines of llama.cpp's server tell of itself: when it started, with which settings, and what went wrong?

A start is seen by its first line; warnings about its command line come before that. Times count from there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentload.core.packed import Packer
from agentload.core.records import Proof, Setting
from agentload.serverlogs import llamacpp_grammar as grammar
from agentload.serverlogs.doubts import MOST_SUSPECTS, Doubts
from agentload.serverlogs.lines import Kind
from agentload.serverlogs.llamacpp_requests import Requests
from agentload.serverlogs.marks import Neighbours
from agentload.serverlogs.stamps import MIN_ERROR_NS, ReceiveClock


@dataclass(slots=True)
class Start:
    """One start of the server."""

    index: int
    first_line: int
    requests: Requests
    prefixed: bool | None = None  # not known yet
    opened: set[bytes] = field(default_factory=set)  # first lines it had: builds differ in which one they write
    ready: Proof | None = None
    clock: ReceiveClock = field(default_factory=ReceiveClock)
    settings: dict[str, str | int | bool] = field(default_factory=dict)


class ServerLines:
    """The part of a reader that knows the server's own lines, and where in the log it is."""

    def __init__(self, stamps: Sequence[int] | None) -> None:
        self._stamps = stamps
        self._neighbours = Neighbours()
        self._starts: list[Start] = []
        self._done = Packer()
        self._settings: list[Setting] = []
        self._suspects: list[tuple[int, int, Proof, str]] = []  # boot, time, line, why
        self._doubts = Doubts()
        self._number, self._offset = 1, 0  # of the present line
        self._prefix: re.Match[bytes] | None = None
        self._stamped: re.Match[bytes] | None = None  # prefix of the last line of this start that has one
        self._early: int | None = None  # first of the lines just read that come before "initializing"
        self._entry: bytes | None = None  # an entry goes on over several lines: what its last one ends with
        self._start = self._new_start(1)
        self._events: tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], Kind]], ...] = (
            (grammar.BOOT, lambda found: self._boot(found[0])),
            (grammar.READY, self._ready),
            (grammar.CANCEL, self._cancel),
            (grammar.REFUSED, self._refuse),
            (grammar.SUSPECT, lambda found: self._suspect(found[0])),
        )

    # ---- starts and times ------------------------------------------------------------------------------------------

    def _new_start(self, first_line: int) -> Start:
        index = len(self._starts)
        self._starts.append(Start(index, first_line, Requests(index, self._doubts.add, self._done)))
        return self._starts[-1]

    def _boot(self, how: bytes) -> Kind:
        start = self._start
        begun = start.requests.begun or start.ready is not None
        if begun or how in start.opened or (not start.opened and start.prefixed is not None):
            start.requests.end()
            self._start = self._new_start(self._early or self._number)
            self._stamped = None  # its times count from another beginning
            self._neighbours.waiting.clear()
        self._start.requests.whole = True
        self._start.opened.add(how)
        return Kind.UNDERSTOOD

    def _shift(self, start: Start) -> int | None:
        """What to add to a start's times; None when they are on no timeline."""
        if self._stamps is None or start.prefixed is not True:
            return 0
        return start.clock.offset_ns()

    def _error(self, start: Start) -> int | None:
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

    def _error_line(self, text: bytes, level: bytes) -> Kind:
        return self._suspect(text) if level == b"E" else Kind.UNKNOWN

    def _suspect(self, text: bytes) -> Kind:
        at = self._at()
        if len(self._suspects) >= MOST_SUSPECTS:
            self._doubts.left_out(self._number, "suspect lines", MOST_SUSPECTS)
        elif at is not None:
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
        if grammar.CHAT_EXAMPLE.fullmatch(text) or grammar.CHAT_TEMPLATE.fullmatch(text):
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
        self._start.requests.cancel(int(found[1]), (self._number, self._offset))
        return Kind.UNDERSTOOD

    def _refuse(self, found: re.Match[bytes]) -> Kind:
        self._start.requests.refuse(int(found[1]), (self._number, self._offset))
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
        if head == b"main" and (kind := self._known_other(text)) is not None:
            return kind
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
