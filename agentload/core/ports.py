"""Where are the seams? Protocols of at most four methods, implemented for real and by fakes and the twin."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentload.core.records import ChatCall, Completion, LogFacts, ToolResult


class Clock(Protocol):
    """A clock whose time is integer nanoseconds since the Unix epoch and never steps back."""

    def now_ns(self) -> int:
        """Return the present time."""
        ...

    async def sleep_until(self, t_ns: int) -> None:
        """Return at `t_ns` or as soon after it as the clock allows; at once when it has passed."""
        ...


class EventSink(Protocol):
    """Where the raw events of a run go (events.jsonl in a run directory)."""

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        """Record one event of `kind` at `t_ns`; `fields` are JSON values. It survives a kill of this process."""
        ...


class Transport(Protocol):
    """Sends one chat request to the model and brings the whole answer back with its time stamps."""

    async def complete(self, call: ChatCall) -> Completion:
        """Send `call` once (no retry). A failed request is a `Completion` with `error` set, not an exception.

        At `call.until_ns` the answer is cut off: its `error` begins with records.CUT_OFF, and what came stands in it.
        """
        ...


class Tool(Protocol):
    """A tool that an agent may call."""

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        ...

    def schema(self) -> dict[str, Any]:
        """What the model is told: {"description": str, "parameters": JSON Schema of the arguments (an object)}.

        The loop makes {"type": "function", "function": {"name": name, **schema()}} of it.
        """
        ...

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run it. A failure the model can act on is a `ToolResult` with `ok=False`."""
        ...


class LogReader(Protocol):
    """Reads one server's log: bytes in, in pieces of any size, facts out."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        ...

    def open_requests(self) -> int:
        """Requests that the log has shown starting and not ending so far."""
        ...

    def close(self) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        ...


class LogFormat(Protocol):
    """A log format that agentload understands; each module in `serverlogs` offers one as an entry point."""

    @property
    def name(self) -> str:
        """Its short name, as `--format` takes it."""
        ...

    def looks_like(self, lines: Sequence[bytes]) -> int:
        """How many of the given lines (without their newline) only this format would write."""
        ...

    def reader(self, stamps: Sequence[int] | None = None) -> LogReader:
        """Make a reader; `stamps[i]` is the receive time (Unix ns) of line i (0-based) where the pipe was owned."""
        ...
