"""What does the file tell that SGLang exports of each request (--export-metrics-to-file)?

A line is the `meta_info` of one finished request, beside its parameters, which may hold the prompt and are not looked
at. forward_entry_time and prefill_finished_time are the prefill by the wall clock, where the server was started with
--enable-metrics; where they do not lie within the request's own beginning and end they are of another clock, or
nonsense, and are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentload.core.ports import LogReader
from agentload.serverlogs import spans
from agentload.serverlogs.jsonrequests import JsonRequests, decoded, in_order
from agentload.serverlogs.lines import Kind

_NAME: Final = "sglang-export"
_PARAMETERS: Final = b'{"request_parameters":'
_LEAST_S: Final = 1e9  # Unix seconds since 2001
_MOST_S: Final = 4.1e9


class Reader(JsonRequests):
    """A `core.ports.LogReader` for one file."""

    name = _NAME

    def _line(self, value: dict[str, Any]) -> Kind:
        rid, prompt = value.get("id"), spans.tokens(value.get("prompt_tokens"))
        if "request_parameters" not in value or not isinstance(rid, str) or not rid or prompt is None:
            return Kind.UNKNOWN
        received, finished = _wall_ns(value.get("request_received_ts")), _wall_ns(value.get("request_finished_ts"))
        whole = spans.seconds_ns(value.get("e2e_latency"))
        if finished is None and received is not None and whole is not None:
            finished = received + whole
        begun, done = _wall_ns(value.get("forward_entry_time")), _wall_ns(value.get("prefill_finished_time"))
        if None in (begun, done, finished) or not in_order(received, finished, begun, done, finished):
            if value.get("forward_entry_time") or value.get("prefill_finished_time"):
                self._impossible(rid)
            begun = done = None
        cached = spans.tokens(value.get("cached_tokens"))
        if cached is not None and cached > prompt:  # after a retraction
            self._say(
                "cached-above-prompt",
                f"request {rid}: {cached:,} cached tokens of {prompt:,}",
                "nothing: how many of them were cached is not known",
            )
            cached = None
        self._told(
            rid,
            received,
            finished,
            prompt_tokens=prompt,
            cached_tokens=cached,
            new_prefill_tokens=None if cached is None else prompt - cached,
            decoded_tokens=spans.tokens(value.get("completion_tokens")),
            prefill_start=begun,
            prefill_end=done,
            decode_start=done,
            decode_end=None if done is None else finished,
            finish=_finish(value.get("finish_reason")),
        )
        return Kind.UNDERSTOOD


def _wall_ns(value: object) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not _LEAST_S <= value <= _MOST_S:
        return None
    return round(value * 1_000_000) * 1_000  # a float of Unix seconds holds no more than 0.2 us


def _finish(value: object) -> str | None:
    """Return the reason; SGLang writes {"type": "stop", ...}."""
    kind = value.get("type") if isinstance(value, dict) else value
    return {"abort": "cancelled"}.get(kind, kind) if isinstance(kind, str) else None


@dataclass(frozen=True, slots=True)
class Format:
    """A `core.ports.LogFormat`."""

    name: str = _NAME

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """Count lines that are one request's export."""
        return sum(_is_export(line) for line in lines)

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:  # noqa: ARG002 - the protocol
        """Make a reader; `stamps` are of no use to it."""
        return Reader()


def _is_export(line: bytes) -> bool:
    return line.startswith(_PARAMETERS) and (value := decoded(line)) is not None and "prompt_tokens" in value


FORMAT: Final = Format()
