"""Which events does a run leave in events.jsonl, and which marker in markers.jsonl, each with which fields?

One model an event, told apart by `event`; a line that is none of them is an error that names it. Every writer's fields
stand here: an event with a new field or of a new kind needs its line here first.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from agentload.artifacts.strict import Count, Millis, Ns, Ours, Tokens
from agentload.core.records import AnswerPhases, Marker, ServerTimings, Usage

_Bytes = Annotated[int, Field(ge=0, le=10**15)]  # of memory: machines with more than 10^12 exist
_MOST_VALUE: Final = 1e18  # of one quantity of /metrics
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


class PhasesFields(Ours):
    """core.records.AnswerPhases, as an event holds it."""

    queue_ms: Millis | None
    prefill_ms: Millis
    decode_ms: Millis

    def record(self) -> AnswerPhases:
        """Return the record."""
        return AnswerPhases(**self.__dict__)


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
    phases: PhasesFields | None = None  # of vLLM, where its answers tell them

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        stamps = (self.t_sent, self.t_first_byte, self.t_first_token, self.t)
        known = [stamp for stamp in stamps if stamp is not None]
        if known != sorted(known):
            raise ValueError(f"expected t_sent <= t_first_byte <= t_first_token <= t, got {', '.join(map(str, known))}")
        if self.chunk_ns != sorted(self.chunk_ns):
            raise ValueError("expected chunk_ns in the order of time, got a stamp before the one that it follows")
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


class DeviceFields(Ours):
    """The memory of one device at one moment."""

    index: Count
    name: str
    free_bytes: _Bytes
    total_bytes: _Bytes


class Sampled(_Event):
    """What the server's process used so far, and how much memory is free."""

    event: Literal["sample"]
    where: Literal["begin", "periodic", "end"]  # periodic: also when less memory is free than ever before
    # None: a server on this host whose process is not known
    cpu_s: Annotated[float, Field(ge=0)] | None
    rss_bytes: _Bytes | None
    processes: Count | None
    host_busy_s: Annotated[float, Field(ge=0)]
    host_free_bytes: _Bytes
    # Nobody looked, before 2026-11-30:
    host_total_bytes: _Bytes | None = None
    devices: list[DeviceFields] | None = None  # []: none tells its memory


class MetricsSeen(_Event):
    """What a server's /metrics told at one moment; quantities and units are servers.metrics_names.UNITS."""

    event: Literal["metrics"]
    segment: str
    where: Literal["begin", "periodic", "end"]
    software: str
    values: dict[str, Annotated[float, Field(ge=-_MOST_VALUE, le=_MOST_VALUE)]]
    accepted_at: list[Annotated[float, Field(ge=0, le=_MOST_VALUE)]]  # draft tokens accepted at each position
    began_s: Annotated[float, Field(ge=0, le=_MOST_VALUE)] | None  # of its process, Unix seconds
    took_ns: Ns  # to look


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


class ProbeTry(_Event):
    """A try of a prompt's length, before the first begin marker, has ended: nothing of it is counted."""

    event: Literal["probe_try"]
    request: str
    what: str  # which prompt: "prompt", "context"
    text_bytes: Count
    t_sent: Ns
    t_first_token: Ns | None
    usage: UsageFields | None
    error: str | None


class ProbeSized(_Event):
    """The length of the probe's cold prompts is settled, by the server's own count."""

    event: Literal["probe_sized"]
    asked_tokens: Tokens  # new ones, as the scenario has it
    tokens: Tokens  # aimed at: less than asked for where the context is too small
    counted_tokens: Tokens | None  # at the last try; None: the server tells no usage
    at_context_tokens: Tokens  # aimed at: that a cache has before them
    at_context_counted: Tokens | None
    tries: Count  # of both
    text_bytes: Count  # of the body of a cold prompt
    words: Count  # made up at its end, a token each
    context_tokens: Tokens | None  # of the server, where it is known
    why_capped: str | None  # None: it is not


class ProbePrimed(_Event):
    """A request between two segments of the probe has ended, which leaves something in a cache; it is not counted."""

    event: Literal["probe_primed"]
    segment: str  # the one it makes ready
    request: str
    agent: str
    t_sent: Ns
    usage: UsageFields | None
    error: str | None


class PromptThrown(_Event):
    """The cold prompts of a segment are due: from here on they are sent."""

    event: Literal["prompt_thrown"]
    segment: str
    load: str
    prompts: list[str]  # their agents
    settled_from: Ns | None  # since when all decoders wrote, as the client saw it; None: there is none
    decoders: dict[str, Count]  # tokens of each one's present answer that the client has seen


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
    | MetricsSeen
    | AgentStarted
    | AgentDone
    | MarkerWritten
    | WarmupRequest
    | ProbeTry
    | ProbeSized
    | ProbePrimed
    | PromptThrown
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
