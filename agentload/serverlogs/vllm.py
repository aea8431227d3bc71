"""What does a log of vLLM tell?

Settings, most of them from one line of 5 kB that the engine writes at its start; what was asked for, which proves
nothing; statistics every 10 s; with flags of its own the requests that came and each step of the engine; kernels that
were compiled while it served. Of a request it tells neither tokens nor times, but the id that its answer has. When one
has ended it tells only of aborted ones, and with --enable-log-outputs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.core.ports import LogReader
from agentload.core.records import LogFacts
from agentload.serverlogs import reprs
from agentload.serverlogs import vllm_grammar as grammar
from agentload.serverlogs.lines import Kind, uncoloured
from agentload.serverlogs.localtime import LocalClock
from agentload.serverlogs.servedlog import FINISH, ServedLog

_NAME: Final = "vllm"
_LOOKED_AT: Final = 2_000  # bytes of a text that is not known by its beginning: a request's line may hold a megabyte
_ENDS: Final = {b"aborted": "cancelled", b"failed": "error"}
_RANK: Final = re.compile(rb"_(?:TP|PP|EP|PCP|DCP|CP)\d+|^VllmWorker-\d+$")


class Reader(ServedLog):
    """A `core.ports.LogReader` for one log."""

    name = _NAME

    def __init__(self, stamps: Sequence[int] | None = None) -> None:
        """`stamps[i]`: receive time (Unix ns) of line i."""
        super().__init__(stamps)
        self._clock = LocalClock()
        self._level, self._process, self._pid = b"", b"", b""
        self._warned = False  # the source of a Python warning may follow
        self._failed: tuple[bytes, bytes] | None = None  # process and stamp of the error that is being told of
        self._requests_told = False

    # ---- the port --------------------------------------------------------------------------------------------------

    def open_requests(self) -> int:
        """None is known to be open: the log does not tell when a request has ended, so nothing more is to come."""
        return 0

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        if not self._requests_told:
            self._say(
                "requests-not-logged",
                "the log tells of no request: which of them ran, and when, is known from the answers alone",
                "start vLLM with --enable-log-requests: then it is seen whether each answer's request, and no other, "
                "was there",
            )
        return self._facts(counts_requests=False)

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _take(self, number: int, offset: int, raw: bytes) -> Kind:
        self._number, self._offset = number, offset
        text = uncoloured(raw) if b"\x1b" in raw else raw
        warned, self._warned = self._warned, False
        found = grammar.PREFIX.fullmatch(text)
        if found is None:
            return self._without_prefix(text, warned=warned)
        process, pid, level, stamp, body = found.groups()
        stamped = self._clock.without_year(stamp)
        if stamped is None:
            return Kind.UNKNOWN
        self._time(stamped)
        self._process, self._pid, self._level = process or b"", pid or b"", level
        failed = (self._pid, stamp) if level in (b"ERROR", b"CRITICAL") else None
        again, self._failed = failed is not None and failed == self._failed, failed
        return Kind.UNDERSTOOD if again else self._body(body or b"")

    def _without_prefix(self, text: bytes, *, warned: bool) -> Kind:
        if (found := grammar.TILELANG.fullmatch(text)) is not None:
            self._process, self._pid = found[1] or b"", found[2] or b""
            self._time(self._clock.without_year(found[3][5:]))
            return self._compiles(found[4])
        bare = grammar.PROCESS.sub(b"", text, count=1) if text.startswith(b"(") else text
        if (found := grammar.UVICORN.fullmatch(bare)) is not None:
            if self._stamps is not None:
                self._time(None)
            return self._uvicorn(found[1])
        if grammar.FOREIGN_NOISE.fullmatch(text[:_LOOKED_AT]) is not None:
            self._warned = grammar.WARNED.fullmatch(text[:_LOOKED_AT]) is not None
            return Kind.IGNORED
        return Kind.IGNORED if warned and text.startswith(b"  ") else Kind.UNKNOWN

    def _uvicorn(self, text: bytes) -> Kind:
        if text == grammar.UVICORN_READY:
            return self._is_ready()
        found = grammar.ACCESS.fullmatch(text)
        if found is not None and found[1].startswith(b"5"):
            return self._suspect(text)
        return Kind.IGNORED

    def _body(self, text: bytes) -> Kind:
        kind = self._serving(text)
        if kind is None:
            kind = self._starting(text)
        if kind is not None:
            return kind
        if grammar.OURS.match(text) is not None:
            return Kind.UNKNOWN
        # The banner has an empty line above its art. While a server serves, such a one is what is left of a torn line.
        serving = self._start.ready is not None or self._start.served
        if grammar.is_art(text) and (text.strip() or not serving):
            return Kind.IGNORED
        if self._failed is not None:
            return self._suspect(text, self._pid)
        starting = not serving and bool(self._start.opened)
        known = starting or self._level == b"DEBUG" or grammar.NOISE.fullmatch(text[:_LOOKED_AT]) is not None
        return Kind.IGNORED if known else Kind.UNKNOWN

    # ---- while it serves -------------------------------------------------------------------------------------------

    def _serving(self, text: bytes) -> Kind | None:
        if text.startswith(grammar.REQUEST_LINES):
            kind = self._of_request(text)
            if kind is not None:
                return kind
        elif text.startswith(grammar.ENGINE_LINE):
            if (found := grammar.ITERATION.fullmatch(text)) is not None:
                return self._iteration(*map(int, found.groups()[1:]))
            found = grammar.STATS.fullmatch(text)
            return None if found is None else self._stats(found[1].decode("ascii"), found[2])
        elif (found := grammar.STATS.fullmatch(text)) is not None:
            return self._stats(found[1].decode("ascii"), found[2])
        elif (found := grammar.SPECULATION.fullmatch(text)) is not None:
            return self._speculation(found)
        compiles = grammar.JIT.search(text[:_LOOKED_AT]) or grammar.COMPILES.search(text[:_LOOKED_AT])
        return self._compiles(text) if compiles else None

    def _of_request(self, text: bytes) -> Kind | None:
        if (found := grammar.RECEIVED.fullmatch(text)) is not None:
            return self._came(_text(found[1]))
        if (found := grammar.ADDED.fullmatch(text)) is not None:
            return self._came(self._outer(_text(found[1])))
        if (found := grammar.GENERATED.fullmatch(text)) is not None:
            return self._generated(_text(found[1]), found[2])
        if (found := grammar.ABORTED.fullmatch(text)) is not None:
            for rid in _text(found[1]).split(","):
                self._aborted(self._outer(rid.strip()))
            return Kind.UNDERSTOOD
        found = grammar.ABORTED_ONE.fullmatch(text)
        return None if found is None else self._aborted(_text(found[1]), _ENDS[found[2]])

    def _iteration(
        self, contexts: int, context_tokens: int, rows: int, tokens: int, millis: int, hundredths: int
    ) -> Kind:
        start, elapsed_ns = self._start, millis * 1_000_000 + hundredths * 10_000
        start.served = True
        for index, more in enumerate((1, rows, context_tokens, tokens, elapsed_ns)):
            start.counts[index] += more
        if rows and not contexts:
            batch = start.batches.setdefault(rows, [0, 0])
            batch[0] += 1
            batch[1] += elapsed_ns
        return Kind.UNDERSTOOD

    def _stats(self, source: str, text: bytes) -> Kind:
        values: dict[str, float] = {}
        for part in text.split(b", "):
            head, _, told = part.partition(b": ")
            known = grammar.STATS_KEYS.get(grammar.CACHE_USAGE if head.endswith(grammar.CACHE_USAGE) else head)
            if known is None:
                if grammar.STATS_OTHER.fullmatch(part) is None:
                    return Kind.UNKNOWN
                continue
            pattern, name = known
            value = pattern.fullmatch(told)
            if value is None or name in values:
                return Kind.UNKNOWN
            values[name] = float(value[1])
        if not values.keys() >= grammar.STATS_NEEDED or not text.endswith(b"%"):
            return Kind.UNKNOWN
        return self._statistic("engine", source, list(values.items()))

    def _speculation(self, found: re.Match[bytes]) -> Kind:
        length, accepted_rate, drafted_rate, accepted, drafted, positions, acceptance = found.groups()
        if int(accepted) > int(drafted):
            return Kind.UNKNOWN
        values = (
            ("mean_length", float(length)),
            ("accepted_rate", float(accepted_rate)),
            ("drafted_rate", float(drafted_rate)),
            ("accepted_tokens", float(accepted)),
            ("drafted_tokens", float(drafted)),
            ("acceptance", float(acceptance)),
        )
        return self._statistic("speculation", "", values, tuple(float(one) for one in positions.split(b", ")))

    def _compiles(self, text: bytes) -> Kind:
        """Kernels are compiled while the server starts, and should not be later."""
        serves = (
            grammar.JIT.search(text[:_LOOKED_AT]) is not None or self._start.ready is not None or self._start.served
        )
        if not serves:
            return Kind.IGNORED
        return self._suspect(text, self._pid if _RANK.search(self._process) else b"")

    # ---- requests --------------------------------------------------------------------------------------------------

    def _outer(self, name: str) -> str:
        """Return the request's own name for the one that the engine has for it."""
        found = None if name in self._open else grammar.INTERNAL.fullmatch(name.encode())
        return name if found is None else _text(found[1])

    def _came(self, rid: str) -> Kind:
        self._requests_told = True
        self._begin(rid, self._at)
        return Kind.UNDERSTOOD

    def _ended(self, rid: str, finish: str) -> Kind:
        self._came(rid)
        self._tell(rid, {"finish": finish, "t_end": self._at})
        return Kind.UNDERSTOOD

    def _generated(self, rid: str, reason: bytes) -> Kind:
        if reason in grammar.NOT_FINISHED:
            return self._came(rid)
        return self._ended(rid, "cancelled" if reason == b"abort" else reason.decode("ascii"))

    def _aborted(self, rid: str, finish: str = "cancelled") -> Kind:
        one = self._open.get(rid)
        return self._ended(rid, finish) if one is None or one[FINISH] is None else self._came(rid)

    # ---- start-up --------------------------------------------------------------------------------------------------

    def _starting(self, text: bytes) -> Kind | None:
        if (found := grammar.ASKED.fullmatch(text)) is not None:
            return self._asked_for(_text(found[1]))
        if (found := grammar.ENGINE.fullmatch(text)) is not None:
            return self._engine(_text(found[1]), _text(found[2]))
        text = text[:_LOOKED_AT]
        if (found := grammar.BANNER.fullmatch(text)) is not None:
            self._opens("banner")
            self._state("version", _text(found[1] or found[2]))
            return Kind.UNDERSTOOD
        if (found := grammar.BANNER_MODEL.fullmatch(text)) is not None:
            self._state("model", _text(found[1]))
            return Kind.UNDERSTOOD
        return self._setting(text)

    def _asked_for(self, text: str) -> Kind:
        values = reprs.dictionary(text)
        if values is None:
            return Kind.UNKNOWN
        self._opens("asked")
        for name, value in reprs.told(values):
            self._ask(name, value)
        return Kind.UNDERSTOOD

    def _engine(self, version: str, text: str) -> Kind:
        values = reprs.pairs(text)
        if values is None:
            return Kind.UNKNOWN
        if self._start.served or (self._start.ready is not None and not self._start.opened):
            self._opens("engine")
        self._state("version", version)
        for theirs, name in grammar.ENGINE_NAMES.items():
            value = reprs.plain(values.get(theirs, "None"))
            if value is not None:
                self._state(name, value.removeprefix("torch.") if isinstance(value, str) else value)
        speculation = reprs.inner(values.get("speculative_config", ""), "SpeculativeConfig") or {}
        for theirs, name in (("method", "speculative_method"), ("num_spec_tokens", "num_speculative_tokens")):
            value = reprs.plain(speculation.get(theirs, "None"))
            if value is not None:
                self._state(name, value)
        return Kind.UNDERSTOOD

    def _setting(self, text: bytes) -> Kind | None:
        kind: Kind | None = None
        if grammar.OVERRIDDEN.match(text) is not None:
            self._say(
                "setting-overridden",
                text[:200].decode("utf-8", "replace"),
                "the server has changed a setting by itself: see that it is the one you want to measure",
            )
            kind = Kind.UNDERSTOOD
        if grammar.SAMPLING.fullmatch(text) is not None:
            self._say(
                "sampling-by-model",
                "sampling parameters that a request leaves out come from the model's generation_config.json",
                "give temperature and top_p with every request, or start vLLM with --generation-config vllm",
            )
            return Kind.UNDERSTOOD
        for pattern, names in grammar.SETTINGS:
            found = pattern.fullmatch(text)
            if found is not None:
                for name, value in zip(names, found.groups(), strict=True):
                    self._state_once(name, value)
                if text.startswith(grammar.CHUNKED):
                    self._state("enable_chunked_prefill", value=True)
                return Kind.UNDERSTOOD
        for pattern, name, state in grammar.SWITCHES:
            if pattern.fullmatch(text) is not None:
                self._state(name, state)
                return Kind.UNDERSTOOD
        return kind

    def _state_once(self, name: str, text: bytes) -> None:
        """Keep a value; a second one is of the model that drafts, whose lines look alike."""
        value = reprs.plain(_text(text).replace(",", ""))
        if value is None:
            return
        if self._start.stated.get(name, value) != value:
            name = f"{name}#2"
        self._state(name, value)


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = _NAME

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines with vLLM's prefix; uvicorn's are everybody's."""
        return sum(grammar.PREFIX.fullmatch(line) is not None for line in map(uncoloured, lines))

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:
        """Make a reader; `stamps[i]` is the receive time (Unix ns) of line i."""
        return Reader(stamps)


FORMAT: Final = Format()
