"""Which events does a run leave in events.jsonl, and which marker in markers.jsonl, each with which fields?

One model an event, told apart by `event`; a line that is none of them is an error that names it. Every writer's fields
stand here: an event with a new field or of a new kind needs its line here first.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from agentload.artifacts.strict import Count, Millis, Ns, Ours, Tokens
from agentload.core.records import Marker, ServerTimings, Usage

_Bytes = Annotated[int, Field(ge=0, le=10**15)]  # of memory: machines with more than 10^12 exist
_ExitCode = Annotated[int, Field(ge=-(2**31), lt=2**32)]  # below 0: the signal


class _Event(Ours):
    t: Ns


class _OfRequest(_Event):
    request: str
    agent: str
    turn: Count


class RequestSent(_OfRequest):
    """A request was handed to the socket."""

    event: Literal["request_sent"]


class FirstByte(_OfRequest):
    """The first byte of its answer came."""

    event: Literal["first_byte"]


class FirstToken(_OfRequest):
    """The first token of its answer came."""

    event: Literal["first_token"]


class UsageFields(Ours):
    """core.records.Usage, as an event holds it."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None

    def record(self) -> Usage:
        """Return the record."""
        return Usage(**self.__dict__)  # dict(self) takes five times as long


class TimingsFields(Ours):
    """core.records.ServerTimings, as an event holds it."""

    cached_tokens: Tokens | None
    prompt_tokens: Tokens
    prompt_ms: Millis
    decoded_tokens: Tokens
    decode_ms: Millis

    def record(self) -> ServerTimings:
        """Return the record."""
        return ServerTimings(**self.__dict__)


class RequestDone(_OfRequest):
    """The answer has ended, whole or failed: core.records.Completion without its texts."""

    event: Literal["request_done"]
    t_sent: Ns
    t_first_byte: Ns | None
    t_first_token: Ns | None
    status: Count | None
    finish: str | None
    error: str | None
    server_id: str | None
    model: str | None
    chunk_ns: list[Ns]
    chunks_without_token: list[Count]  # indices into chunk_ns
    comments: Count
    tool_call_ids: list[str]
    usage: UsageFields | None
    timings: TimingsFields | None
    notes: list[str]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        stamps = (self.t_sent, self.t_first_byte, self.t_first_token, self.t)
        known = [stamp for stamp in stamps if stamp is not None]
        if known != sorted(known):
            raise ValueError(f"expected t_sent <= t_first_byte <= t_first_token <= t, got {', '.join(map(str, known))}")
        return self


class _OfTool(_Event):
    agent: str
    turn: Count
    call: str
    tool: str


class ToolStarted(_OfTool):
    """A tool call is run."""

    event: Literal["tool_started"]


class ToolDone(_OfTool):
    """A tool call has ended."""

    event: Literal["tool_done"]
    ok: bool
    text_bytes: Count
    truncated: bool
    detail: dict[str, Any]  # the tool's own


class Sampled(_Event):
    """What the server's process used so far."""

    event: Literal["sample"]
    where: Literal["begin", "periodic", "end"]
    cpu_s: Annotated[float, Field(ge=0)]
    rss_bytes: _Bytes
    processes: Count
    host_busy_s: Annotated[float, Field(ge=0)]
    host_free_bytes: _Bytes


class AgentStarted(_Event):
    """An agent began to work; `planned` is when it was meant to."""

    event: Literal["agent_started"]
    agent: str
    task: str
    planned: Ns


class AgentDone(_Event):
    """An agent has ended."""

    event: Literal["agent_done"]
    agent: str
    end: str


class MarkerWritten(_Event):
    """A marker was written; markers.jsonl says where."""

    event: Literal["marker_written"]
    action: Literal["begin", "end"]
    segment: str
    where: Literal["log", "sidecar"]


class WarmupRequest(_Event):
    """A request before the first begin marker has ended: nothing of it is counted."""

    event: Literal["warmup_request"]
    request: str
    concurrency: Count  # so many were sent together
    prompt_tokens: Tokens  # about so many were asked for; what the server counted is in `usage`
    t_sent: Ns
    t_first_token: Ns | None
    finish: str | None
    usage: UsageFields | None
    error: str | None


class ServerStarted(_Event):
    """The server's process was started."""

    event: Literal["server_started"]
    pid: Count
    argv: list[str]


class ServerReady(_Event):
    """The server takes requests."""

    event: Literal["server_ready"]
    pid: Count


class ServerStopped(_Event):
    """The server's process has ended."""

    event: Literal["server_stopped"]
    pid: Count
    exit_code: _ExitCode | None


Event = (
    RequestSent
    | FirstByte
    | FirstToken
    | RequestDone
    | ToolStarted
    | ToolDone
    | Sampled
    | AgentStarted
    | AgentDone
    | MarkerWritten
    | WarmupRequest
    | ServerStarted
    | ServerReady
    | ServerStopped
)
EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


class MarkerLine(Ours):
    """One line of markers.jsonl."""

    action: Literal["begin", "end"]
    segment: str
    run: str
    condition: str
    t: Ns
    where: Literal["log", "sidecar"]
    inode: Annotated[int, Field(ge=0, lt=2**64)] | None
    offset: _Bytes | None

    def record(self) -> Marker:
        """Return the record."""
        return Marker(
            self.action, self.segment, self.run, self.condition, self.t, None, log_offset=self.offset, inode=self.inode
        )


MARKER: TypeAdapter[MarkerLine] = TypeAdapter(MarkerLine)
