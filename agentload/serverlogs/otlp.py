"""What does a file of OpenTelemetry spans tell of vLLM's requests?

Each line is one span as a run keeps it (RUN/spans.jsonl), or one export as OTLP's file exporter writes it. Spans of
loading a model carry nothing that is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agentload.core.ports import LogReader
from agentload.serverlogs import spans
from agentload.serverlogs.jsonrequests import JsonRequests, decoded, in_order
from agentload.serverlogs.lines import Kind

_NAME: Final = "otlp"
_LOOKED_AT: Final = 4_096  # bytes of a line that may be a whole export
_OURS: Final = (b'{"schema":"agentload.spans/', b'{"closed":')
_EXPORT: Final = b'{"resourceSpans"'
_FLAT: Final = (b'{"scope":', b'{"t":')


class Reader(JsonRequests):
    """A `core.ports.LogReader` for one file."""

    name = _NAME

    def _line(self, value: dict[str, Any]) -> Kind:
        if value.keys() <= {"schema"} or "closed" in value:
            return Kind.IGNORED
        try:
            found = spans.flattened(value)
        except ValueError:
            return Kind.UNKNOWN
        if found is None:
            return Kind.UNKNOWN
        told = [one for one in map(spans.request_of, found) if one is not None]
        for one in told:
            self._request(one)
        return Kind.UNDERSTOOD if told else Kind.IGNORED

    def _request(self, one: spans.RequestSpan) -> None:
        phases = in_order(one.arrived, one.ended, one.prefill_start, one.prefill_end, one.decode_end)
        if not phases or not in_order(one.prefill_end, one.ended, one.finished):
            self._impossible(one.rid)
            one = replace(one, prefill_start=None, prefill_end=None, decode_start=None, decode_end=None, off_ns=None)
        if not one.by_first_token:
            self._say(
                "placed-by-queue",
                f"the span of {one.rid} has no time to first token: its prefill is laid behind arrival and queue",
                "it may be too early, by what was done before the queue: template, tokens, grammar",
            )
        self._off_ns = max(self._off_ns, one.off_ns or 0)
        self._told(
            one.rid,
            one.arrived,
            one.ended,
            prompt_tokens=one.prompt_tokens,
            decoded_tokens=one.decoded_tokens,
            prefill_start=one.prefill_start,
            prefill_end=one.prefill_end,
            decode_start=one.decode_start,
            decode_end=one.decode_end,
            decode_untimed_tokens=1,  # the first one: the time is from there to the last
        )


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = _NAME

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines that are spans, or begin as an export does."""
        return sum(_is_span(line) for line in lines)

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:  # noqa: ARG002 - the protocol
        """Make a reader; `stamps` are of no use to it."""
        return Reader()


def _is_span(line: bytes) -> bool:
    if line.startswith((*_OURS, _EXPORT)):
        return True
    if not line.startswith(_FLAT) or b'"attrs"' not in line[:_LOOKED_AT]:
        return False
    value = decoded(line)
    return value is not None and spans.flattened(value) is not None


FORMAT: Final = Format()
