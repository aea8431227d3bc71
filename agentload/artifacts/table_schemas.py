"""What does each column of each table mean, in which unit, and when is it null?

The one place that says so: `analysis.tables` has these columns, an export writes them, the README lists them; tests
hold all three against this file. Each table is one versioned JSON Schema (2020-12) whose properties carry `x-unit`.

Within one version a column keeps its name, type, unit and meaning, and stays. New columns may come: a reader takes the
columns it knows. Anything else is a new version, with another `$id`.

Columns with a formula are not stored: an export computes them. Where a field of the public schema PUBLIC means the
same, the column has its name and says so.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from agentload.artifacts import schemas

Kind = Literal["integer", "number", "string"]

PUBLIC: Final = "dynamo.request.trace.v1"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    unit: str  # "" where it counts nothing
    meaning: str
    null: str = ""  # when it is null; "" is never
    values: tuple[str, ...] = ()  # all there are; () when it is free
    formula: str = ""  # computed by an export from the stored ones; "" is stored
    public: bool = False  # the schema PUBLIC has a field of this name and meaning

    def schema(self) -> dict[str, Any]:
        """Its property in the table's JSON Schema."""
        allowed: dict[str, Any] = {"type": [self.kind, "null"] if self.null else self.kind}
        if self.values:
            allowed["enum"] = [*self.values, None] if self.null else list(self.values)
        if self.kind != "string" and self.name not in _SIGNED:
            allowed["minimum"] = 0
        same_as = PUBLIC if self.public else ""
        known = {"x-unit": self.unit, "x-null-when": self.null, "x-formula": self.formula, "x-same-as": same_as}
        return allowed | {"description": self.meaning} | {key: text for key, text in known.items() if text}


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    name: str
    id: str  # the version stands in it: agentload.requests/1
    row: str  # what a row is
    columns: tuple[Column, ...]

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one row."""
        return {
            "$schema": _DRAFT,
            "$id": self.id,
            "title": f"agentload: a row of {self.name}",
            "description": self.row,
            "type": "object",
            "properties": {column.name: column.schema() for column in self.columns},
            "required": [column.name for column in self.columns],
            "additionalProperties": False,
        }

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that derived/ holds: those without a formula."""
        return tuple(column for column in self.columns if not column.formula)


# Differences and times on a timeline may lie below 0: another clock, or a log that starts before its zero.
_SIGNED: Final = frozenset(
    {"start", "end", "begin_ns", "end_ns", "t_sent", "t_first_byte", "t_first_token", "t_done", "t_slot"}
    | {"prefill_start", "prefill_end", "decode_start", "decode_end", "t"}
    | {"prefill_wait_time_ms", "prefill_time_ms", "decode_time_ms", "ttft_ms", "total_time_ms"}
    | {"gap", "order_effect", "drift"}
)

_NO_CLIENT: Final = "the client did not send it, or did not get so far"
_NOT_LOGGED: Final = "the log does not tell"
_NOT_OF_LOG: Final = "the count is not the log's"
_UNSAID: Final = "no source reports it"
_LINE: Final = "1-based, all lines of the log counted"
_OFFSET: Final = "from the log's first byte to the first of that line"
_FINISH: Final = "stop, length, tool_calls, error, cancelled, or the server's own word"
_OUTSIDE: Final = "it lies outside every segment"


def _time(name: str, meaning: str, null: str = "") -> Column:
    return Column(name, "integer", "ns", meaning, null)


def _count(name: str, meaning: str, null: str = "", *, public: bool = False) -> Column:
    return Column(name, "integer", "tokens", meaning, null, public=public)


def _text(name: str, meaning: str, null: str = "", values: tuple[str, ...] = ()) -> Column:
    return Column(name, "string", "", meaning, null, values)


def _number(name: str, meaning: str, null: str = "") -> Column:
    return Column(name, "integer", "", meaning, null)


def _real(name: str, unit: str, meaning: str, null: str = "") -> Column:
    return Column(name, "number", unit, meaning, null)


def _place(name: str, what: str, null: str = _NOT_LOGGED) -> tuple[Column, Column]:
    return (
        Column(f"{name}_line", "integer", "line", f"the log line that proves {what}; {_LINE}", null),
        Column(f"{name}_offset", "integer", "bytes", f"{_OFFSET}", null),
    )


def _ms(name: str, meaning: str, null: str, formula: str) -> Column:
    return Column(name, "number", "ms", meaning, null, formula=formula, public=True)


_FROM: Final = ("log", "spans", "export", "usage", "metrics", "client")

REQUESTS: Final = Table(
    "requests",
    schemas.REQUESTS,
    "one request: the client's and the log's view of it joined",
    (
        _text("run", "the run; of a log alone the run its segment's markers name, else the log's file name"),
        _text("segment", "the measured stretch in which its prefill began", _OUTSIDE),
        _text("agent", "the agent that sent it", "no agent of ours is known to have sent it"),
        _number("turn", "the agent's turn, from 0", "as agent"),
        _text("request", "its name, unique in the run"),
        _text(
            "match",
            "how the client's and the log's request were joined; of a log alone: ambiguous where the log does not tell "
            "it apart, else server_only",
            values=("exact", "unique", "ambiguous", "client_only", "server_only"),
        ),
        _text("group", "its group of requests that cannot be told apart: sums over them are exact", "it is in none"),
        _number("boot", "which start of the server in this log, from 0", "the log does not have it"),
        _number("slot", "the server's slot", _NOT_LOGGED),
        _text("label", "what the log calls it, unique in the boot", "the log does not have it"),
        _time("t_sent", "just before it was handed to the socket, client's clock", _NO_CLIENT),
        _time("t_first_byte", "first byte of the answer, client's clock", _NO_CLIENT),
        _time("t_first_token", "first part of the answer that carries a token, client's clock", _NO_CLIENT),
        _time("t_done", "end of the answer or of the attempt, client's clock", _NO_CLIENT),
        _time("t_slot", "it got a slot, or came to a server that has none", _NOT_LOGGED),
        _time("prefill_start", "its prefill began", _UNSAID),
        _time("prefill_end", "its prefill ended", _UNSAID),
        _time("decode_start", "its decode began", _UNSAID),
        _time("decode_end", "its decode ended", _UNSAID),
        _count("prompt_tokens", "the whole prompt, cached tokens included", _UNSAID),
        _count("cached_tokens", "prompt tokens reused from a cache", _UNSAID, public=True),
        _count("new_prefill_tokens", "prompt tokens that were computed", _UNSAID),
        _count("decoded_tokens", "tokens that were generated, as the server counts them", _UNSAID),
        _count("reasoning_tokens", "of the generated tokens those of reasoning, by usage", "usage does not tell"),
        _count("rebuild_tokens", "tokens computed again to rebuild a tool checkpoint; in no other count", _NOT_LOGGED),
        _count("context_start", "context position at which its prefill starts", _UNSAID),
        _text("finish", _FINISH, "the log shows no end"),
        _text("prefill_source", "where the prefill times are from", "there are none", _FROM),
        _text("decode_source", "where the decode times are from", "there are none", _FROM),
        _count("usage_prompt_tokens", "as the client was told; never mixed into the log's count", _NO_CLIENT),
        _count("usage_cached_tokens", "as the client was told", _NO_CLIENT),
        _count("usage_completion_tokens", "as the client was told", _NO_CLIENT),
        *_place("prefill_proof", "prefill_end and new_prefill_tokens"),
        *_place("decode_proof", "decode_end and decoded_tokens"),
        _text("error", "why it failed, as the client saw it", "it did not"),
        _text("cached_source", "where cached_tokens is from", "it is null", _FROM),
        *_place("prefill_start_proof", "prefill_start"),
        *_place("decode_start_proof", "decode_start"),
        *_place("cached_proof", "cached_tokens", _NOT_OF_LOG),
        *_place("prompt_proof", "prompt_tokens", _NOT_OF_LOG),
        _real("prefill_logged_ms", "ms", "how long the log says that its prefill took", _NOT_LOGGED),
        _real("decode_logged_ms", "ms", "how long the log says that its decode took", _NOT_LOGGED),
        _count(
            "decode_untimed_tokens",
            "of decoded_tokens those not decoded between decode_start and decode_end: such as the first one, where "
            "that time begins with it",
            "there are no such times; or it is not known, and the request is in no decode speed",
        ),
        _ms(
            "prefill_wait_time_ms",
            "from sending to the start of the prefill",
            "the client did not send it; or the start of its prefill is not the log's, or by the log's clock before it",
            "(prefill_start - t_sent) / 1e6",
        ),
        _ms(
            "prefill_time_ms",
            "from the start of the prefill to its end, at which the first token is known",
            "the prefill's times are not the server's, and its log does not tell how long it took",
            "(prefill_end - prefill_start) / 1e6, or prefill_logged_ms",
        ),
        _ms(
            "ttft_ms",
            "from sending to the first token at the client",
            _NO_CLIENT,
            "(t_first_token - t_sent) / 1e6",
        ),
        _ms(
            "total_time_ms",
            "from sending to the end of the answer",
            _NO_CLIENT,
            "(t_done - t_sent) / 1e6",
        ),
        Column(
            "decode_time_ms",
            "number",
            "ms",
            "from the start of the decode to its end",
            "the decode's times are not the server's, and its log does not tell how long it took",
            formula="(decode_end - decode_start) / 1e6, or decode_logged_ms",
        ),
    ),
)

PHASES: Final = Table(
    "phases",
    schemas.PHASES,
    "one prefill or decode of one request, or one tool call between requests",
    (
        _text("run", "as in requests"),
        _text("segment", "that of its request; of a tool call the one in which it started", _OUTSIDE),
        _text("agent", "as in requests", "no agent of ours is known"),
        _text("request", "its request's name; of a tool call the request that asked for it"),
        _text("phase", "what was done", values=("prefill", "decode", "tool")),
        _time("start", "it began"),
        _time("end", "it ended: half-open, the first ns after it", "a tool call that the run's end broke off"),
        _count("tokens", "prefill: computed tokens; decode: generated tokens", "no source tells, or a tool call"),
        _count("context_start", "as in requests", "as there, or a tool call"),
        _text("source", "where its times are from", "a tool call", _FROM),
        *_place("start", "its start", "its times are not the log's"),
        *_place("end", "its end and tokens", "its times are not the log's"),
    ),
)

_NO_TIMES: Final = "no request there has such times"
_NO_DURATIONS: Final = f"{_NO_TIMES}, nor does the log say how long one took"
_NONE_REPORTS: Final = "no request there reports it"
_OF_BUCKET: Final = "the row is no bucket"
_NOT_IN_BUCKET: Final = "the row is a bucket"
_NO_OVERLAP: Final = f"no request there has prefill times, none decode times, or {_NOT_IN_BUCKET}"
_NO_SAMPLES: Final = f"the segment has fewer than 4 cells, {_NO_OVERLAP}"


def _busy(phase: str) -> tuple[Column, ...]:
    tokens = "computed prompt tokens" if phase == "prefill" else "generated tokens"
    less = ", less decode_untimed_tokens" if phase == "decode" else ""
    null = f"{_NO_TIMES}, or {_NOT_IN_BUCKET}" if phase == "decode" else _NO_TIMES
    return (
        _time(f"{phase}_union_ns", f"busy: the measure of the union of all {phase}s", null),
        _time(f"{phase}_sum_ns", f"durations of all {phase}s added up", f"{_NO_DURATIONS}, or {_NOT_IN_BUCKET}"),
        _count(
            f"{phase}_speed_tokens", f"{tokens} of the {phase}s whose tokens and times are known{less}", _NOT_IN_BUCKET
        ),
        _time(f"{phase}_speed_ns", "measure of the union of these", _NOT_IN_BUCKET),
    )


def _ratios(phase: str) -> tuple[Column, ...]:
    null = f"{_NO_TIMES}, or {_NOT_IN_BUCKET}"
    return (
        _real(f"{phase}_double_counting", "ratio", f"{phase}_sum_ns / {phase}_union_ns", null),
        _real(f"{phase}_tok_s", "tok/s", f"{phase}_speed_tokens / {phase}_speed_ns", null),
        _real(f"{phase}_share", "ratio", f"{phase}_union_ns / wall_ns", f"as wall_ns, {null}"),
    )


def _unknown(name: str, what: str) -> Column:
    return _number(f"unknown_{name}", f"requests whose {what} no source tells: what the sums leave out", _NOT_IN_BUCKET)


_SUMMED: Final = (
    ("prompt_tokens", "prompt tokens"),
    ("cached_tokens", "prompt tokens reused from a cache"),
    ("new_prefill_tokens", "computed prompt tokens"),
    ("decoded_tokens", "generated tokens"),
)

SEGMENTS: Final = Table(
    "segments",
    schemas.SEGMENTS,
    "one segment's whole, one agent in it, or one context bucket of it",
    (
        _text("run", "as in requests"),
        _text("segment", "its id, as its markers have it"),
        _text("condition", "what was under test, as its markers have it; empty without markers"),
        _text("scope", "what the row sums up", values=("whole", "agent", "bucket")),
        _text("name", "the agent or the bucket; empty for the whole"),
        _time("begin_ns", "the segment's begin"),
        _time("end_ns", "its end", "its end marker is missing"),
        _time("wall_ns", "between its markers", f"its end marker is missing, or {_NOT_IN_BUCKET}"),
        _count("from_tokens", "context position from which a prefill of the bucket starts", _OF_BUCKET),
        _count("to_tokens", "context position below which it does", f"the bucket is open, or {_OF_BUCKET}"),
        _number("requests", "requests in it"),
        _number("matched", "joined with a request of the client, exactly or uniquely", _NOT_IN_BUCKET),
        _number("ambiguous", "in groups that cannot be told apart", _NOT_IN_BUCKET),
        _number("client_only", "not in the log", _NOT_IN_BUCKET),
        _number("server_only", "in the log only", _NOT_IN_BUCKET),
        *(
            _count(name, f"sum of {what}", _NONE_REPORTS if name.startswith("new") else f"{_NONE_REPORTS}, or a bucket")
            for name, what in _SUMMED
        ),
        *(_unknown(name, what) for name, what in _SUMMED),
        _unknown("prefill_times", "prefill times"),
        _unknown("decode_times", "decode times"),
        *_busy("prefill"),
        *_busy("decode"),
        *_ratios("prefill"),
        *_ratios("decode"),
        _real("overlap", "ratio", "part of the prefill union in which another request decodes", _NO_OVERLAP),
        _real("sampled_overlap", "ratio", "the same, looked at in cells of 15 s", _NO_SAMPLES),
        _real("median_tok_s", "tok/s", "median of its requests' own prefill speeds", _OF_BUCKET),
        _real("union_tok_s", "tok/s", "computed prompt tokens / prefill_union_ns", _OF_BUCKET),
    ),
)

_NO_PROCESS: Final = "the server runs on this machine, its process is not known"
_NOT_LOOKED: Final = "the run is older than this column"
_NO_DEVICE: Final = "no device tells its memory"

SAMPLES: Final = Table(
    "samples",
    schemas.SAMPLES,
    "one look at the server's processes and the machine; a log alone has none",
    (
        _time("t", "when, client's clock"),
        _text("where", "at a segment's begin, between, at its end", values=("begin", "periodic", "end")),
        _real("cpu_s", "s", "CPU time of the server's processes so far", _NO_PROCESS),
        Column("rss_bytes", "integer", "bytes", "their resident memory", _NO_PROCESS),
        Column("processes", "integer", "", "how many they are", _NO_PROCESS),
        _real("host_busy_s", "s", "CPU time of everything on the machine so far"),
        Column("host_free_bytes", "integer", "bytes", "memory that is available on the machine"),
        Column("host_total_bytes", "integer", "bytes", "memory that the machine has", _NOT_LOOKED),
        Column("device_free_bytes", "integer", "bytes", "of the device with the least free memory", _NO_DEVICE),
        Column("device_index", "integer", "", "which one that is, as the driver counts", _NO_DEVICE),
    ),
)

_FEW: Final = "there are fewer than 2 valid runs on a side"
_NO_CLAIM: Final = "the outcome names no direction"


def _side(side: str, what: str) -> tuple[Column, ...]:
    null = "no valid run has it"
    return (
        _real(f"{side}_pooled", "of the metric", f"{what}: over its valid runs, sum / sum or else the median", null),
        _real(f"{side}_low", "of the metric", f"{what}: its smallest run", null),
        _real(f"{side}_high", "of the metric", f"{what}: its greatest run", null),
    )


_OUTCOMES: Final = ("distinguished", "consistent direction", "not distinguished", "no verdict")

COMPARISON: Final = Table(
    "comparison",
    schemas.COMPARISON,
    "two variants of an experiment on one metric",
    (
        _text("experiment", "its name"),
        _text("metric", "its name"),
        _text("unit", "of the metric's values"),
        _text("first", "one variant"),
        _text("first_label", "what it is"),
        _text("second", "the other variant"),
        _text("second_label", "what it is"),
        _number("simulated", "1: measured on the simulated server, 0: on a real one"),
        _number("deciding", "1: the metric that decides, 0: another"),
        _number("first_valid", "valid runs (or sets, of a request parameter) of the first with this metric"),
        _number("first_invalid", "its invalid ones, which are left out"),
        _number("second_valid", "as first_valid, of the second"),
        _number("second_invalid", "as first_invalid, of the second"),
        *_side("first", "the first"),
        *_side("second", "the second"),
        _text("outcome", "what may be said", values=_OUTCOMES),
        _text("published_outcome", "by the published rule, ranges apart or not", values=_OUTCOMES),
        _real("ratio", "ratio", "first_pooled / second_pooled", "one is missing or not above 0"),
        _real("lead", "ratio", "how far the greater pooled value is above the other", f"{_NO_CLAIM}, or by ranks"),
        _text("greater", "the variant with the greater values", _NO_CLAIM),
        _text("better", "the variant that is better", f"{_NO_CLAIM}, or the metric has no better side"),
        _real("gap", "of the metric", "between the ranges; below 0: by how much they overlap", _FEW),
        _real("wider_range", "of the metric", "of the two ranges", _FEW),
        _real("separation", "ratio", "gap / wider_range", f"{_FEW}, ranges overlap, or neither side spreads"),
        _real("needed_separation", "ratio", "what a claim needs at these counts", _FEW),
        _real("rank_p", "ratio", "exact two-sided p of the rank sum", "ranges are apart, or under 6 runs on a side"),
        _real("false_claims", "ratio", "how often equals are called distinguished at these counts", _FEW),
        _real("order_effect", "of the metric", "what running first in a block is worth", "it was never reversed"),
        _real("drift", "of the metric", "a straight line over the order, from the first run to the last", _FEW),
        _real("permutation_p", "ratio", "exact p of swapping labels within blocks", "fewer than 6 whole blocks"),
        _text("grade", "what the ratio rests on", values=("confirmed", "estimate", "judgement", "hypothesis")),
        _text("prospect", "what more restarts can do"),
        _number("more_restarts", "restarts a side that a verdict needs", "no number is likely to give one"),
    ),
)

EXPERIMENT_TABLES: Final[dict[str, Table]] = {COMPARISON.name: COMPARISON}
"""Tables of an experiment's derived/; those of a run are `TABLES`."""

TABLES: Final[dict[str, Table]] = {table.name: table for table in (REQUESTS, PHASES, SEGMENTS, SAMPLES)}
