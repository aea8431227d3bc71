"""What does a log of SGLang tell?

Its arguments as they are in force, each prefill batch, every 40th decode step, and with --log-requests each request at
its end, with tokens and with stamps of the server's clock. These are laid backwards from the time of the line. Of
requests the lines may be JSON; both kinds tell the same.

Ranks of one engine write the same line; one of them counts. A data-parallel rank (DP) has requests of its own, and
counts always.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from agentload.core.packed import Flat
from agentload.core.ports import LogReader
from agentload.core.records import LogFacts
from agentload.serverlogs import reprs, sglang_json
from agentload.serverlogs import sglang_grammar as grammar
from agentload.serverlogs.lines import Kind, uncoloured
from agentload.serverlogs.localtime import LocalClock
from agentload.serverlogs.servedlog import ARRIVED, LABEL, ServedLog, Value

_NAME: Final = "sglang"
_LOOKED_AT: Final = 2_000  # bytes of a text that is not known by its beginning: a request's line may hold a megabyte
_MS_NS: Final = 1_000_000
_US_NS: Final = 1_000
_LONGEST_S: Final = 7 * 86_400.0  # a request that took longer has times of a clock that stopped, or of none
_MOST_TRIES: Final = 4  # places where the server's part of a finish line may begin: a prompt can hold the same words
_DURATIONS: Final = ("e2e_latency", "queue_time", "inference_time", "prefill_waiting_latency", "prefill_launch_latency")
_FINISHES: Final = {"abort": "cancelled"}
_WORD: Final = re.compile(r"[a-z_]{1,40}")  # a reason that is none may be what no file can hold: half an emoji
_SHORT, _FIELDS = 64, 4_096  # bytes of a part of a batch's line that is kept, and how many: most come again and again


class Reader(ServedLog):
    """A `core.ports.LogReader` for one log."""

    name = _NAME

    def __init__(self, stamps: Sequence[int] | None = None) -> None:
        """`stamps[i]`: receive time (Unix ns) of line i."""
        super().__init__(stamps)
        self._clock = LocalClock()
        self._rank, self._engine = b"", ""
        self._stamped: int | None = None  # time of the present line
        self._finished = False  # a line with a request's tokens came
        self._awaited: set[str] = set()  # open requests whose last line will come

    # ---- the port --------------------------------------------------------------------------------------------------

    def open_requests(self) -> int:
        """Requests that came and have not ended, where the log tells both (--log-requests)."""
        return len(self._awaited)

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        if not self._finished:
            self._say(
                "requests-not-logged",
                "the log tells of no request by itself: of batches only",
                "start SGLang with --log-requests (--log-requests-target not only a directory): then each request's "
                "tokens and times stand in the log",
            )
        return self._facts(counts_requests=self._finished)

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _take(self, number: int, offset: int, raw: bytes) -> Kind:
        self._number, self._offset = number, offset
        text = uncoloured(raw)
        found = grammar.PREFIX.fullmatch(text)
        if found is None:
            self._rank, self._engine = b"", ""
            self._stamped = self._time(None)
            return self._without_prefix(text)
        stamp, millis, ranks, body = found.groups()
        at = self._clock.of_year(stamp)
        if at is None:
            return Kind.UNKNOWN
        self._stamped = self._time(at + int(millis or 0) * _MS_NS)
        data = grammar.DATA_RANK.search(ranks)
        self._rank, self._engine = ranks, "" if data is None else data[0].decode("ascii")
        return self._body(body)

    def _without_prefix(self, text: bytes) -> Kind:
        if text.startswith(sglang_json.BEGIN):
            return self._event(text, stamped=False)
        kind = self._request(text)
        if kind is not None:
            return kind
        if (found := grammar.UVICORN.fullmatch(text)) is not None:
            return self._uvicorn(found[1])
        return Kind.IGNORED if grammar.OTHER_NOISE.fullmatch(text[:_LOOKED_AT]) is not None else Kind.UNKNOWN

    def _uvicorn(self, text: bytes) -> Kind:
        found = grammar.ACCESS.fullmatch(text)
        if found is not None and found[1].startswith(b"5"):
            return self._suspect(text)
        return Kind.IGNORED

    def _body(self, text: bytes) -> Kind:
        if text.startswith(sglang_json.BEGIN):
            return self._event(text, stamped=True)
        for attempt in (self._batch, self._request, self._starting):
            kind = attempt(text)
            if kind is not None:
                return kind
        if (found := grammar.UVICORN.fullmatch(text)) is not None:
            return self._uvicorn(found[1])
        if grammar.OURS.match(text) is not None:
            return Kind.UNKNOWN
        start = self._start
        text = text[:_LOOKED_AT]
        if grammar.JIT.search(text) is not None:
            serves = start.ready is not None or start.served
            return self._suspect(text, self._rank) if serves else Kind.IGNORED
        if grammar.TROUBLE.fullmatch(text) is not None:
            return self._suspect(text, self._rank)
        starting = start.ready is None and not start.served and bool(start.opened)
        known = starting or grammar.START_NOISE.fullmatch(text) or grammar.NOISE.fullmatch(text)
        return Kind.IGNORED if known else Kind.UNKNOWN

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _batch(self, text: bytes) -> Kind | None:
        found = grammar.BATCH.fullmatch(text)
        if found is None:
            return None
        what, listed = found.groups()
        values: list[tuple[str, float]] = []
        for part in listed.rstrip(b", ").split(b", "):
            field = _field(part) if len(part) <= _SHORT else _field.__wrapped__(part)
            if field is None:
                return Kind.UNKNOWN
            values += field
        names = {name for name, _ in values}
        if len(names) < len(values) or not names >= grammar.NEEDED[what]:
            return Kind.UNKNOWN
        same = tuple([pair for pair in values if pair[0] not in grammar.RATES])
        if self._ranks.repeats((what, self._engine, same), self._at or 0, self._rank):
            return self._tell_ranks()
        return self._statistic(what.decode("ascii").lower(), self._engine, values)

    # ---- start-up --------------------------------------------------------------------------------------------------

    def _starting(self, text: bytes) -> Kind | None:
        if (found := grammar.ARGUMENTS.fullmatch(text)) is not None:
            return self._arguments(*found.groups())
        if grammar.CAPACITY.fullmatch(text) is not None:
            self._start.opened.add("capacity")
            for part in text.split(b", "):
                item = grammar.ITEM.fullmatch(part)
                name = None if item is None else grammar.CAPACITY_NAMES.get(item[1])
                if item is not None and name is not None:
                    self._state(name, int(item[2]))
            return Kind.UNDERSTOOD
        return self._is_ready() if grammar.READY.fullmatch(text) is not None else None

    def _arguments(self, printed: bytes | None, listed: bytes | None) -> Kind:
        values: Mapping[str, Value | None] | None
        if listed is None:
            pairs = reprs.pairs((printed or b"").decode("utf-8", "replace"))
            values = None if pairs is None else {name: reprs.plain(value) for name, value in pairs.items()}
        else:
            found = reprs.dictionary(listed.decode("utf-8", "replace"))
            values = None if found is None else {name: value for name, value in found.items() if _is_plain(value)}
        if values is None:
            return Kind.UNKNOWN
        self._opens("arguments")
        for name, value in values.items():
            if name in grammar.KEPT and value is not None:
                self._state(name, value)
        return Kind.UNDERSTOOD

    # ---- requests --------------------------------------------------------------------------------------------------

    def _request(self, text: bytes) -> Kind | None:
        if (found := grammar.FINISH.fullmatch(text)) is not None:
            return self._finish_line(found[1])
        if (found := grammar.RECEIVE.fullmatch(text)) is not None:
            names = [found[2]] if found[1] is None else grammar.LISTED.findall(found[1])
            return self._receive([name.decode("utf-8", "replace") for name in names])
        if grammar.RECEIVE_OPENAI.fullmatch(text) is not None:
            return Kind.IGNORED
        found = grammar.TIMES.fullmatch(text)
        return None if found is None else self._time_stats(found)

    def _event(self, text: bytes, *, stamped: bool) -> Kind:
        """Take a line of JSON; its own time is that of the line only where no stamp stands in front (`stamped`)."""
        event = sglang_json.event(text)
        if event is None:
            return Kind.UNKNOWN
        if not stamped:
            at = self._clock.of_year(event.stamp)
            if at is None:
                return Kind.UNKNOWN
            self._stamped = self._time(at + event.micros * _US_NS)
        if not event.names:
            return Kind.IGNORED
        return self._receive(event.names) if event.info is None else self._finish(event.names[0], event.info)

    def _receive(self, names: Sequence[str]) -> Kind:
        """Take requests that came: one, or those of a batch."""
        for name in names:
            self._begin(name, self._stamped)
            self._awaited.add(name)
        return Kind.UNDERSTOOD

    def _finish_line(self, text: bytes) -> Kind:
        rid = grammar.RID.match(text)
        name = "" if rid is None else rid[1].decode("utf-8", "replace")
        info = _server_part(text, name) if name else None
        return Kind.UNKNOWN if info is None else self._finish(name, info)

    def _finish(self, name: str, info: Mapping[str, Any]) -> Kind:
        self._finished = True
        self._begin(name, None)
        self._tell(name, self._told(info, arrives=self._open[name][ARRIVED] is None))
        self._end(self._open.pop(name))
        return Kind.UNDERSTOOD

    def _told(self, info: Mapping[str, Any], *, arrives: bool) -> dict[str, object]:
        """Return what a finish line tells of its request; when it came only if that is not known (`arrives`)."""
        prompt, cached = _count(info.get("prompt_tokens")), _count(info.get("cached_tokens"))
        if prompt is not None and cached is not None and cached > prompt:
            self._say(
                "cached-beyond-prompt",
                f"{cached} of {prompt} prompt tokens were cached: taken as all of them, which is not known",
                "the request was taken back and begun again (retracted): its cached tokens are counted twice",
            )
            cached = prompt
        reason = info.get("finish_reason")
        kind = reason.get("type") if isinstance(reason, dict) else reason
        times, odd = _times(info), _impossible(info)
        if times is None or odd:
            self._say(
                "impossible-times",
                f"times of a finished request cannot be: {odd or 'they contradict each other'}; these are not used",
                "SGLang writes such ones of requests that were aborted; see that few are",
            )
        end_ns = self._stamped
        placed = {
            name: end_ns + round(seconds * 1e9)
            for name, seconds in (times or {}).items()
            if end_ns is not None and (name != "t_arrived" or arrives)
        }
        return {
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "new_prefill_tokens": None if prompt is None or cached is None else prompt - cached,
            "decoded_tokens": _count(info.get("completion_tokens")),
            "finish": _FINISHES.get(kind, kind) if isinstance(kind, str) and _WORD.fullmatch(kind) else None,
            "t_end": end_ns,
            **placed,
        }

    def _end(self, one: Flat) -> None:
        self._awaited.discard(one[LABEL])
        super()._end(one)

    def _time_stats(self, found: re.Match[bytes]) -> Kind:
        """Take a line of --enable-request-time-stats-logging: it comes when the request's last token has."""
        name = found[1].decode("utf-8", "replace")
        counts = {key: int(number) for key, number in grammar.TIMES_ITEM.findall(found[2])}
        prompt, cached = counts.get(b"input_len"), counts.get(b"cached_input_len")
        forward_ns = round(float(found[4]) * _MS_NS) if _is_number(found[4]) else None
        at = self._stamped
        fields: dict[str, object] = {
            "prompt_tokens": prompt,
            "decoded_tokens": counts.get(b"output_len"),
            "prefill_start": None if at is None or forward_ns is None else at - forward_ns,
            "decode_end": at,
        }
        if prompt is not None and cached is not None and cached <= prompt:
            fields |= {"cached_tokens": cached, "new_prefill_tokens": prompt - cached}
        self._begin(name, None)
        self._tell(name, fields)
        return Kind.UNDERSTOOD


@lru_cache(_FIELDS)
def _field(part: bytes) -> tuple[tuple[str, float], ...] | None:
    """Return name and value of a part of a batch's line; none where it is passed over; None when it cannot be one."""
    head, _, told = part.partition(b": ")
    known = grammar.BATCH_KEYS.get(head)
    if known is None:
        return None if grammar.BATCH_OTHER.fullmatch(part) is None else ()
    pattern, name = known
    value = pattern.fullmatch(told)
    if value is None:
        return None
    return ((name, round(float(value[1]) * 100, 2) if name in grammar.SHARES else float(value[1])),)


def _server_part(text: bytes, rid: str) -> Mapping[str, Any] | None:
    """Return the `meta_info` that the server wrote behind a request; None when it is not whole, or another's."""
    places = list(_places(text))[-_MOST_TRIES:]
    for place in reversed(places):
        told = text[place + len(grammar.OUT) - 1 :]
        if grammar.CUT in told:
            told = grammar.CUT_TEXT.sub(b" ", told.replace(grammar.CUT_LIST, b", "))
        out = reprs.dictionary(told.decode("utf-8", "replace"))
        info = None if out is None else out.get("meta_info")
        if isinstance(info, dict) and info.get("id", rid) == rid:
            return info
    return None


def _places(text: bytes) -> Iterator[int]:
    at = text.find(grammar.OUT)
    while at >= 0:
        yield at
        at = text.find(grammar.OUT, at + 1)


def _times(info: Mapping[str, Any]) -> dict[str, float] | None:
    """Return times of a request in seconds from its end, all below 0; None when they contradict each other.

    `response_sent_to_client_ts` is that of the first token where `decode_throughput` says the same: of an answer that
    does not stream it is the end. A queue time of 0 is what an aborted request has, and tells nothing.
    """
    came, ended = _seconds(info.get("request_received_ts")), _seconds(info.get("request_finished_ts"))
    took = _seconds(info.get("e2e_latency"))
    if took is None and came is not None and ended is not None:
        took = ended - came
    if took is None:
        return {}
    if not 0 <= took <= _LONGEST_S or (came is not None and ended is not None and abs(ended - came - took) > 1.0):
        return None
    found = {"t_arrived": -took}
    if came is None or ended is None:
        return found
    begun, prefilled = _seconds(info.get("forward_entry_time")), _seconds(info.get("prefill_finished_time"))
    first = _seconds(info.get("response_sent_to_client_ts"))
    tokens, speed = _count(info.get("completion_tokens")), _seconds(info.get("decode_throughput"))
    if prefilled is None and first is not None and tokens and speed and first < ended:
        prefilled = first if abs(tokens / speed - (ended - first)) <= 0.02 * (ended - first) else None
    if begun is not None and came <= begun <= ended:
        found["prefill_start"] = begun - ended
    if (
        prefilled is not None
        and (begun if "prefill_start" in found and begun is not None else came) <= prefilled <= ended
    ):
        found |= {"prefill_end": prefilled - ended, "decode_start": prefilled - ended, "decode_end": 0.0}
    return found


def _impossible(info: Mapping[str, Any]) -> str:
    """Name the durations that no request can have had."""
    known = ((name, _seconds(info.get(name))) for name in _DURATIONS)
    return ", ".join(f"{name} {value:.1f} s" for name, value in known if value is not None and value > _LONGEST_S)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12 else None


def _seconds(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and isinstance(value, int | float) and 0 <= value < 1e11 else None


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _is_number(text: bytes) -> bool:
    return re.fullmatch(rb"\d{1,12}(?:\.\d{1,6})?", text) is not None


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = _NAME

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines that only SGLang writes: batches, arguments, requests, and what names a rank."""
        return sum(_is_ours(line) for line in map(uncoloured, lines))

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:
        """Make a reader; `stamps[i]` is the receive time (Unix ns) of line i."""
        return Reader(stamps)


def _is_ours(line: bytes) -> bool:
    found = grammar.PREFIX.fullmatch(line)
    text = line if found is None else found[4]
    if sglang_json.LINE.fullmatch(text) is not None:
        return True
    if found is None:
        return grammar.FINISH.fullmatch(line) is not None or grammar.RECEIVE.fullmatch(line) is not None
    return bool(found[3]) or grammar.OURS.match(text) is not None or grammar.READY.fullmatch(text) is not None


FORMAT: Final = Format()
