"""What are the facts, and in which units?

Frozen, slotted dataclasses; nothing here computes. Times are integer nanoseconds, intervals half-open, tokens counted
by the server. A count that the server did not report is None, never 0. Fields that reach a table carry their unit in
the name or in the comment beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class Match(StrEnum):
    """How a request of the client and one of the server's log were joined."""

    EXACT = "exact"  # an exact key (server timings to the microsecond, tool-call ids) is equal on both sides
    UNIQUE = "unique"  # no exact key, but only one pairing fits counts and times
    AMBIGUOUS = "ambiguous"  # several pairings fit: sums over the group are exact, members are not told apart
    CLIENT_ONLY = "client_only"  # the client sent it; the log has no trace of it
    SERVER_ONLY = "server_only"  # the log has it; none of our agents sent it (foreign traffic)


class Source(StrEnum):
    """Where a time or a count comes from, best first (design, section 5)."""

    LOG = "log"
    SPANS = "spans"  # what the server sent by OpenTelemetry
    EXPORT = "export"  # the file that SGLang writes of its requests
    USAGE = "usage"  # usage or timing fields of the answer
    METRICS = "metrics"
    CLIENT = "client"  # the client's clock: network + queue + work


# ---- the log -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proof:
    """The log line that proves a fact."""

    line: int  # 1-based, markers and unknown lines counted
    offset: int  # bytes from the start of the file to the line's first byte


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a server as its log states it."""

    name: str
    value: str | int | float | bool
    boot: int  # index of the server start in this log
    proof: Proof


@dataclass(frozen=True, slots=True)
class Marker:
    """A segment marker: written into the server's log, or beside it."""

    action: str  # begin | end
    segment: str
    run: str
    condition: str
    at_ns: int  # written by the client's clock, inside the marker
    proof: Proof | None  # None: a sidecar marker, whose place in the log is `log_offset`
    log_offset: int | None = None  # bytes of the log that were there when it was written
    inode: int | None = None
    before_ns: int | None = None  # of the last line before it and the first one after it, on the log's timeline;
    after_ns: int | None = None  # None where there is none, or the lines have receive stamps


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of the server inside a log."""

    index: int
    first_line: int
    ready: Proof | None  # the line after which it takes requests


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """All that a server's log tells of one request. Times are on the log's timeline (see `LogFacts.timeline`)."""

    boot: int
    label: str  # what the log calls it, such as "slot 2 task 37"; unique within a boot
    slot: int | None
    prompt_tokens: int | None  # all tokens of the prompt, cached ones included
    cached_tokens: int | None
    new_prefill_tokens: int | None  # prompt tokens minus tokens reused from cache
    decoded_tokens: int | None
    t_slot: int | None  # a slot was given to it
    prefill_start: int | None
    prefill_end: int | None
    decode_start: int | None
    decode_end: int | None
    t_end: int | None  # the server was done with it
    prefill_ms: float | None  # as the server wrote it: the exact key towards the answer's timing fields
    decode_ms: float | None
    finish: str | None  # stop | length | tool_calls | error | cancelled | None when the log does not say
    tool_call_ids: tuple[str, ...] = ()
    rebuild_tokens: int | None = None
    context_start: int | None = None  # context position at which its prefill starts
    truncated: bool = False
    proofs: tuple[tuple[str, Proof], ...] = ()  # field name -> the line that proves it
    group: str | None = None  # the log does not tell it apart from others of that name: only sums over them are sure
    server_id: str | None = None  # the id that its answer has too: an exact key
    t_arrived: int | None = None  # the server took it; it may have waited for a slot since
    # Of decoded_tokens those that were not decoded between decode_start and decode_end, such as a first one that is
    # there when that time begins: they are in no speed. None: how many is not known, and the request is in none.
    decode_untimed_tokens: int | None = 0


@dataclass(frozen=True, slots=True)
class LineCount:
    """Nothing is dropped silently: every line of a log is in exactly one of these counts."""

    understood: int
    ignored: int  # known, and known to carry nothing we use
    unknown: int
    markers: int = 0
    examples: tuple[tuple[Proof, str], ...] = ()  # of unknown lines, the first few, at most 200 characters each

    @property
    def total(self) -> int:
        """All lines of the log."""
        return self.understood + self.ignored + self.unknown + self.markers


@dataclass(frozen=True, slots=True)
class CacheEvent:
    """One line about the server's prompt caches: it names no request."""

    boot: int
    at: int  # on the log's timeline
    kind: str  # live-miss | live-hit | hit | stored | evicted | skipped | store-failed | ...
    reason: str | None
    tokens: int | None
    took_ms: float | None  # of loading or saving
    proof: Proof


@dataclass(frozen=True, slots=True)
class DecodeBatches:
    """Decode steps of one batch size, where a log tells of each."""

    boot: int
    rows: int
    steps: int
    failed: int  # of these
    elapsed_ns: int  # compute time of all of them


@dataclass(frozen=True, slots=True)
class Statistic:
    """One line of a server's log about all its requests: of an interval, or of the moment at which it was written."""

    boot: int
    at: int  # on the log's timeline
    kind: str  # engine | speculation | prefill | decode
    source: str  # the engine or scheduler that wrote it, as the log names it; empty when it names none
    values: tuple[tuple[str, float], ...]  # name -> value as it stands there; units are serverlogs.statistics.UNITS
    proof: Proof
    positions: tuple[float, ...] = ()  # of speculation: the share of drafts accepted at each draft position


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of the engine, where a log tells of each: what was computed in them, all of one server start together."""

    boot: int
    steps: int
    decode_steps: int  # those in which a request decoded, for each request that did
    prompt_tokens: int  # computed in them: tokens reused from a cache are none of these
    decode_tokens: int  # scheduled: one and the drafts, accepted or not
    elapsed_ns: int


class Timeline(StrEnum):
    """What a log's times are counted from."""

    UNIX = "unix"  # aligned by receive stamps: Unix ns on the client's clock
    PROCESS = "process"  # ns since each boot's process start
    WALL = "wall"  # the server's local wall clock


@dataclass(frozen=True, slots=True)
class Doubt:
    """A doubt is a value with advice, not a print."""

    code: str  # stable, kebab-case
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log told, all of it."""

    format: str
    timeline: Timeline
    resolution_ns: int  # of the log's own times
    clock_error_ns: int | None  # bound of the alignment with the client's clock; None when it is not aligned
    size: int  # bytes read
    lines: LineCount
    boots: tuple[Boot, ...]
    settings: tuple[Setting, ...]
    requests: Sequence[LoggedRequest]  # a tuple, or of very many a sequence that keeps them packed
    markers: tuple[Marker, ...]
    suspects: tuple[tuple[int, Proof, str], ...] = ()  # (time, line, why): compilation during serving, errors, ...
    doubts: tuple[Doubt, ...] = ()
    cache_events: tuple[CacheEvent, ...] = ()  # the first ones; `cache_sums` are of all
    cache_sums: tuple[tuple[str, str | None, int, int], ...] = ()  # kind, reason, events, tokens: of all lines of these
    decode_batches: tuple[DecodeBatches, ...] = ()
    asked: tuple[Setting, ...] = ()  # settings that the log repeats from the command line, which proves none of them
    statistics: Sequence[Statistic] = ()  # in the order of the log: a tuple, or of very many packed
    steps: tuple[Steps, ...] = ()
    repeated: int = 0  # lines that several ranks of one server wrote of one thing: counted as understood, used once
    counts_requests: bool = True  # it tells the tokens of each request; else those of the answers are all there is


class Verdict(StrEnum):
    """Whether a setting that was asked for is in force."""

    APPLIED = "applied"
    DEFAULTED = "defaulted"  # not asked for; the server's own value
    MISMATCH = "mismatch"
    UNPROVEN = "unproven"  # asked for, but the server states it nowhere
    DUPLICATE = "duplicate"  # given more than once on the command line: the last one wins silently


@dataclass(frozen=True, slots=True)
class Applied:
    """A setting requested, and what the server says is in force."""

    name: str
    requested: str | int | float | bool | None
    applied: str | int | float | bool | None
    source: str  # "server.log:12", "GET /props total_slots", "pid 71 argv"; empty when unproven
    verdict: Verdict
    given: tuple[str | int | float | bool, ...] = ()  # of a duplicate: all its values, in order
    where: str = ""  # the command line that gave a duplicate or another value: "argv" (ours) or "pid 71 argv"


# ---- the client ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call as the model made it. `arguments` is the raw text: it may be broken JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back. `text` is what the model reads, after the output cap."""

    ok: bool
    text: str
    truncated: bool = False
    detail: dict[str, Any] = field(default_factory=dict)  # exit code, bytes, path read, ...: goes into the event


@dataclass(frozen=True, slots=True)
class ChatCall:
    """One request to the model."""

    request: str  # unique in the run, "a0-t3-r1"
    agent: str
    turn: int
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # further request parameters, passed through
    until_ns: int | None = None  # then the answer is cut off, its connection closed; what came so far is given back


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage block of an answer. None means that the server did not report it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ServerTimings:
    """llama.cpp's `timings` of an answer; the same numbers stand in its log."""

    cached_tokens: int | None
    prompt_tokens: int  # newly prefilled
    prompt_ms: float
    decoded_tokens: int
    decode_ms: float


@dataclass(frozen=True, slots=True)
class AnswerPhases:
    """What vLLM's answers tell in `metrics`, with --enable-per-request-metrics: durations, without a place in time."""

    queue_ms: float | None
    prefill_ms: float  # first scheduled to first token
    decode_ms: float  # first token to last


CUT_OFF: Final = "cut off"  # first words of the error of a request that its own time limit ended: no failure
TEXTLESS: Final = "the answer's only token has no text: it counts as come with the finish"
"""A note of a completion: its server sent no text for the one token that its usage counts."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer with its client-side stamps (Unix ns), or the failure it ended in."""

    request: str
    agent: str
    turn: int
    t_sent: int  # just before the request is handed to the socket
    t_first_byte: int | None  # first byte of the response
    t_first_token: int | None  # first delta that carries a token: reasoning, content or tool call; a role is not one
    t_done: int  # the stream has ended, or failed
    status: int | None  # HTTP
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    timings: ServerTimings | None = None
    server_id: str | None = None  # the answer's id
    model: str | None = None
    chunk_ns: tuple[int, ...] = ()  # receive stamp of each event of the stream, the closing [DONE] left out
    error: str | None = None  # one line; None when the answer is whole
    raw_usage: dict[str, Any] | None = None  # as received, unknown fields kept
    raw_timings: dict[str, Any] | None = None
    token_ns: tuple[int, ...] = ()  # those of chunk_ns whose event carries a token
    comments: int = 0  # keepalive comments in the stream
    notes: tuple[str, ...] = ()  # oddities that leave the answer whole
    raw_extra: tuple[tuple[int, str, Any], ...] = ()  # (stamp, field, value) of fields we do not know; repeats left out
    raw_request: bytes | None = None  # the body as sent, when it was asked for
    raw_answer: bytes | None = None  # the body as received, when it was asked for
    phases: AnswerPhases | None = None
    ended: bool = True  # False: nobody saw its end, and t_done is t_sent


# Fields of Completion that a `request_done` event holds as they are, under the same names: the list that its writer and
# its reader (analysis.evidence) share. Chunks, tool calls, usage and timings need more than a copy.
REQUEST_DONE_FIELDS: Final = (
    *("t_sent", "t_first_byte", "t_first_token"),
    *("status", "finish", "error", "server_id", "model", "comments"),
)

# ---- joined --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """A measured stretch between two markers: half-open [begin_ns, end_ns)."""

    segment: str
    run: str
    condition: str
    begin_ns: int
    end_ns: int | None  # None: the end marker is missing


@dataclass(frozen=True, slots=True)
class Request:
    """One request, joined: a row of requests.parquet. The schema there lists each column's meaning."""

    run: str
    segment: str | None  # None: outside every segment
    agent: str | None
    turn: int | None
    request: str
    match: Match
    group: str | None  # name of its ambiguous group
    boot: int | None
    slot: int | None
    label: str | None
    t_sent: int | None
    t_first_byte: int | None
    t_first_token: int | None
    t_done: int | None
    t_slot: int | None
    prefill_start: int | None
    prefill_end: int | None
    decode_start: int | None
    decode_end: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    new_prefill_tokens: int | None
    decoded_tokens: int | None
    reasoning_tokens: int | None
    rebuild_tokens: int | None
    context_start: int | None
    finish: str | None
    prefill_source: Source | None
    decode_source: Source | None
    usage_prompt_tokens: int | None  # as the client was told: compared with the log, never mixed into it
    usage_cached_tokens: int | None
    usage_completion_tokens: int | None
    prefill_proof: Proof | None
    decode_proof: Proof | None
    error: str | None
    cached_source: Source | None = None  # usage: the log does not tell cached_tokens, the answer's timings do
    prefill_start_proof: Proof | None = None  # `prefill_proof` and `decode_proof` are those of the ends
    decode_start_proof: Proof | None = None
    cached_proof: Proof | None = None
    prompt_proof: Proof | None = None
    prefill_logged_ms: float | None = None  # durations as they stand in the log: they need no clock
    decode_logged_ms: float | None = None
    decode_untimed_tokens: int | None = 0  # as in LoggedRequest, of the times that are here
