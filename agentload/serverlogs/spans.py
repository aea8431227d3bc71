"""What does an OpenTelemetry span of vLLM tell of a request, and when was its prefill?

A span is read from OTLP's JSON, as an exporter or a collector writes it, or from the flat object that a run keeps
({scope, name, start, end, attrs, ...}, times in Unix ns).

vLLM makes one span `llm_request` of each request that has ended. Its start is the arrival by the wall clock; the rest
are durations of a monotonic clock. Only the first token is measured from the arrival on, so the phases are laid around
it: prefill ends at arrival + time to first token and began `time_in_model_prefill` before. Arrival + queue + prefill
would leave out what came before the queue (template, tokens, grammar): 87, 26 and 346 ms in three requests of a real
server. First token + decode met the end-to-end time within 0.05, 0.4 and 1.3 ms there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Span = dict[str, Any]
"""{"service", "scope", "name", "kind", "start", "end", "trace_id", "span_id", "parent", "attrs"}."""

_REQUEST: Final = "gen_ai.request.id"
_LATENCY: Final = "gen_ai.latency."
_FIRST_TOKEN: Final = f"{_LATENCY}time_to_first_token"  # since the arrival, waiting included
_QUEUE: Final = f"{_LATENCY}time_in_queue"
_PREFILL: Final = f"{_LATENCY}time_in_model_prefill"
_DECODE: Final = f"{_LATENCY}time_in_model_decode"
_WHOLE: Final = f"{_LATENCY}e2e"
_PROMPT: Final = "gen_ai.usage.prompt_tokens"
_DECODED: Final = "gen_ai.usage.completion_tokens"
MOST_S: Final = 10_000_000.0  # of a duration that can be true: 115 days
_MOST_NS: Final = 4_102_444_800_000_000_000  # 2100-01-01
_MOST_TOKENS: Final = 10**12
_LEAST_DIGITS_NS: Final = 10**18  # Unix ns since 2001: smaller numbers are no wall clock


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """One request as its span has it. Times are Unix ns of the server's wall clock."""

    rid: str  # the id that its answer has
    arrived: int
    ended: int
    prefill_start: int | None
    prefill_end: int | None
    decode_start: int | None
    decode_end: int | None
    finished: int | None  # by the end-to-end time
    prompt_tokens: int | None
    decoded_tokens: int | None
    by_first_token: bool  # else by arrival + queue + prefill, which is too early by what came before the queue
    off_ns: int | None  # by how much first token + decode and the end-to-end time disagree


def flattened(value: object) -> list[Span] | None:
    """Return the spans in one JSON value; None when it is neither OTLP nor a flat span.

    Raises:
        ValueError: it begins as OTLP does, and goes on as it must not.
    """
    if not isinstance(value, dict):
        return None
    if "resourceSpans" in value:
        return list(_of_otlp(value["resourceSpans"]))
    return [value] if isinstance(value.get("attrs"), dict) and {"name", "start", "end"} <= value.keys() else None


def _of_otlp(resources: object) -> Iterator[Span]:
    for resource in _objects(resources):
        held = resource.get("resource")
        about = _attributes(held.get("attributes")) if isinstance(held, dict) else {}
        for scope in _objects(resource.get("scopeSpans")):
            named = scope.get("scope")
            for span in _objects(scope.get("spans")):
                yield {
                    "service": _text(about.get("service.name")),
                    "scope": _text(named.get("name")) if isinstance(named, dict) else "",
                    "name": _text(span.get("name")),
                    "kind": _whole(span.get("kind")) or 0,
                    "start": _whole(span.get("startTimeUnixNano")) or 0,
                    "end": _whole(span.get("endTimeUnixNano")) or 0,
                    "trace_id": _text(span.get("traceId")),
                    "span_id": _text(span.get("spanId")),
                    "parent": _text(span.get("parentSpanId")),
                    "attrs": _attributes(span.get("attributes")),
                }


def _objects(value: object) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"expected a list of objects where OTLP has one, got {str(value)[:60]}")
    return value


def _attributes(value: object) -> dict[str, Any]:
    found = {}
    for one in _objects(value):
        held = one.get("value")
        found[_text(one.get("key"))] = _plain(held) if isinstance(held, dict) else None
    return found


def _plain(value: Mapping[str, Any]) -> Any:
    """Return an AnyValue of OTLP as JSON has it; lists and tables inside stay as they are."""
    if "intValue" in value:  # protobuf writes 64 bits as text
        return _whole(value["intValue"])
    return next(iter(value.values()), None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# ---- a request -------------------------------------------------------------------------------------------------------


def request_of(span: Span) -> RequestSpan | None:
    """Return the request that a span of vLLM is of; None when it is of none, or nothing in it can be true."""
    attrs = span["attrs"]
    rid, arrived, ended = attrs.get(_REQUEST), _whole(span["start"]), _whole(span["end"])
    if not isinstance(rid, str) or not rid or arrived is None or ended is None:
        return None
    if not _LEAST_DIGITS_NS <= arrived <= ended <= _MOST_NS or _PREFILL not in attrs:
        return None
    first, queue, prefill, decode, whole = (
        seconds_ns(attrs.get(name)) for name in (_FIRST_TOKEN, _QUEUE, _PREFILL, _DECODE, _WHOLE)
    )
    by_first_token = first is not None
    offset = first if first is not None else None if queue is None or prefill is None else queue + prefill
    prefill_end = None if offset is None else arrived + offset
    decode_end = None if prefill_end is None or decode is None else prefill_end + decode
    known = first is not None and decode is not None and whole is not None
    return RequestSpan(
        rid=rid,
        arrived=arrived,
        ended=ended,
        prefill_start=None if prefill_end is None or prefill is None else prefill_end - prefill,
        prefill_end=prefill_end,
        decode_start=None if decode_end is None else prefill_end,
        decode_end=decode_end,
        finished=None if whole is None else arrived + whole,
        prompt_tokens=tokens(attrs.get(_PROMPT)),
        decoded_tokens=tokens(attrs.get(_DECODED)),
        by_first_token=by_first_token,
        off_ns=abs((first or 0) + (decode or 0) - (whole or 0)) if known else None,
    )


def seconds_ns(value: object) -> int | None:
    """Return seconds as ns; None for what is no duration that can be true."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return round(value * 1e9) if 0 <= value <= MOST_S else None  # nor NaN, nor an integer that no float can hold


def tokens(value: object) -> int | None:
    """Return a count; None for what is none."""
    found = _whole(value)
    return found if found is not None and 0 <= found <= _MOST_TOKENS else None
