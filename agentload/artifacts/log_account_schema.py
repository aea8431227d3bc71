"""What does each key of a log's account.json mean, in which unit, when is it null, and may a program count on it?

The one place that says so: an export writes it as a versioned JSON Schema beside account.json, its page in docs/
lists it, and tests hold both, and real accounts, against this file. A run's account.json has another schema.

Within one version a promised key keeps its name, type, unit and meaning, and stays; new ones may come. Not promised are
words for people, and what only a run has.
"""

from dataclasses import dataclass
from typing import Any, Final

from agentload.artifacts import schemas
from agentload.artifacts.table_schemas import SEGMENTS, Column

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALAR: Final = ("string", "number", "boolean")  # of a setting: as the server has it


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `a.b[].c` is c of each item of the list b of a, `*` any name."""

    path: str
    kind: str | tuple[str, ...]
    unit: str  # "" where it counts nothing
    meaning: str
    null: str = ""  # when it is null; "" is never
    promised: bool = True
    values: tuple[str, ...] = ()  # all there are; () when it is free
    signed: bool = False  # it may be below 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Its types but null."""
        return (self.kind,) if isinstance(self.kind, str) else self.kind

    def schema(self) -> dict[str, Any]:
        """Its part of the JSON Schema, without what it holds."""
        found: dict[str, Any] = {"type": [*self.kinds, "null"] if self.null else self.kind}
        if self.values:
            found["enum"] = [*self.values, None] if self.null else list(self.values)
        if self.kind in ("integer", "number") and not self.signed:
            found["minimum"] = 0
        known = {"x-unit": self.unit, "x-null-when": self.null}
        return (
            found | {"description": self.meaning, "x-promised": self.promised} | {k: v for k, v in known.items() if v}
        )


def _text(path: str, meaning: str, null: str = "", values: tuple[str, ...] = ()) -> Key:
    return Key(path, "string", "", meaning, null, values=values)


def _words(path: str, meaning: str, null: str = "") -> Key:
    return Key(path, "string", "", meaning, null, promised=False)


def _number(path: str, meaning: str, null: str = "", unit: str = "") -> Key:
    return Key(path, "integer", unit, meaning, null)


def _real(path: str, unit: str, meaning: str, null: str = "") -> Key:
    return Key(path, "number", unit, meaning, null)


def _flag(path: str, meaning: str) -> Key:
    return Key(path, "boolean", "", meaning)


def _time(path: str, meaning: str, null: str = "") -> Key:
    return Key(path, "integer", "ns", meaning, null, signed=True)


def _count(path: str, meaning: str, null: str = "") -> Key:
    return _number(path, meaning, null, "tokens")


def _place(path: str, what: str, null: str = "") -> tuple[Key, Key]:
    return (
        _number(f"{path}line", f"line of the log that {what}, from 1", null, "line"),
        _number(f"{path}offset", "bytes from the log's first to the first of that line", null, "bytes"),
    )


_UNTOLD: Final = "the log does not tell"
_OF_RUN: Final = "always: only a run has it"
_NO_SPECULATION: Final = "no line tells of it"
_NOT_OF_BUCKET: Final = frozenset(
    {"run", "segment", "condition", "scope", "name", "begin_ns", "end_ns", "from_tokens", "to_tokens"}
    | {"median_tok_s", "union_tok_s"}
)
_MATCHES: Final = frozenset({"matched", "ambiguous", "client_only", "server_only"})
_IN_BUCKET: Final = "the row is a bucket"


def _whole(column: Column) -> Key:
    """A column of the table segments, where it stands in the account."""
    name = f"matches.{column.name}" if column.name in _MATCHES else column.name.replace("unknown_", "unknown.")
    null = column.null.replace(f", or {_IN_BUCKET}", "").replace(f" or {_IN_BUCKET}", "").removesuffix(",")
    null = null.replace(_IN_BUCKET, "").removesuffix(", or a bucket").replace(", none", " or none").strip(", ")
    return Key(f"segments[].whole.{name}", column.kind, column.unit, column.meaning, null)


_WHOLE: Final = tuple(_whole(column) for column in SEGMENTS.columns if column.name not in _NOT_OF_BUCKET)

KEYS: Final = (
    _text("schema", "which schema this follows, with its version", values=(schemas.LOG_ACCOUNT,)),
    _text("log.name", "the file's name, or stdin"),
    _number("log.bytes", "bytes read", unit="bytes"),
    _text("log.format", "its format, or unknown"),
    _flag("log.named", "whether --format named it"),
    _words(
        "behind",
        "why no line is of a known format, and what helps: a program put something in front of each, they are JSON, or "
        "none ends with a newline",
        "some are, or it cannot be told",
    ),
    Key(
        "undated",
        "object",
        "",
        "lines of ds4 whose stamp has lost its date",
        "all have theirs, or it is another format",
    ),
    _number("undated.lines", "how many such lines"),
    _number("undated.of_bytes", "in so many of the first bytes", unit="bytes"),
    _words("undated.command", "how to read it with 1 January as their date", "they have no time of day either"),
    _flag("simulated", "whether the log says that a simulated server wrote it"),
    _flag("interrupted", "whether Ctrl-C ended the reading"),
    _text("looks.best", "the format that most of the first lines can only be of", "no line is of any"),
    _number("looks.lines", "first lines that were looked at for that: of 16 MiB, at most 262,144 that are not blank"),
    _number("looks.scores.*", "of these, those that can only be of the format of that name"),
    _text("lines.format", "as log.format"),
    _number("lines.total", "lines of the log: understood + ignored + unknown + markers"),
    _number("lines.understood", "lines of which something was taken"),
    _number("lines.ignored", "lines that are known to carry nothing that is used"),
    _number("lines.unknown", "lines of no known form"),
    _number("lines.markers", "lines that are agentload's markers"),
    _flag("lines.counts_requests", "whether this format tells the tokens of each request"),
    *_place("lines.examples[].", "is unknown; the first five"),
    _words("lines.examples[].text", "its first 200 characters"),
    _number("starts[].boot", "a start of the server, from 0"),
    _number("starts[].first_line", "the line from which on it is that start's log", unit="line"),
    Key("starts[].ready", "object", "", "the line after which it takes requests", "no line says that"),
    *_place("starts[].ready.", "says that it is ready"),
    _text("starts[].ready.source", "the log's name and that line"),
    _number("starts[].requests", "requests of that start"),
    _number("requests.total", "requests that the log shows"),
    _number("requests.matched", "of these, those that it tells apart"),
    _number("requests.ambiguous", "of these, those that it does not"),
    _flag("requests.client_view", "whether clients' answers were read too: false"),
    _number("requests.without_end", "requests whose end is not in the log"),
    _number("requests.outside_segments", "requests between no markers, where there are markers"),
    _number("requests.finish.*", "requests that ended so; `not told`: the log has their end, not its reason"),
    _text("requests.groups[].name", "an ambiguous group, as in the table requests"),
    Key("requests.groups[].requests[]", "string", "", "names of its requests, as there, in order of their lines"),
    _number("requests.groups[].sent", "of these, those that a client sent: 0"),
    _number("requests.groups[].logged", "how many they are"),
    Key(
        "only", "object", "", "set by --segment: `segments`, `listed` and `statistics.parts` are of it alone", "all are"
    ),
    _text("only.segment", "what --segment named"),
    _number("only.of", "segments of the log"),
    _text("segments[].segment", "id of the segment; log without markers, log-startN for each start of its own clock"),
    _text("segments[].run", "the run that its markers name, else the log's name"),
    _text("segments[].condition", "what was under test, as its markers have it; empty without markers"),
    _flag("segments[].markers", "whether markers in the log enclose it"),
    _time("segments[].begin_ns", "its begin: the marker's, else the first time of its requests"),
    _time("segments[].end_ns", "its end, likewise", "its end marker is missing, or there are no times"),
    *_WHOLE,
    _number("segments[].whole.prefill_left_out", "requests of which prefill tokens or times are known, not both"),
    _number(
        "segments[].whole.decode_left_out",
        "requests of which decode tokens or times are known, not both, or not which tokens the times are of",
    ),
    _text("segments[].buckets[].name", "range of context positions at which prefills start"),
    _count("segments[].buckets[].from_tokens", "its first position"),
    _count("segments[].buckets[].to_tokens", "the first position behind it", "it is open"),
    _number("segments[].buckets[].requests", "requests in it"),
    _count("segments[].buckets[].new_prefill_tokens", "sum of computed prompt tokens", "no request there reports it"),
    _real("segments[].buckets[].median_tok_s", "tok/s", "median of its requests' own prefill speeds", "there are none"),
    _time("segments[].buckets[].prefill_union_ns", "measure of the union of its prefills", "no request has times"),
    _real("segments[].buckets[].union_tok_s", "tok/s", "computed prompt tokens / prefill_union_ns", "either is null"),
    _number("segments[].unknown_context", "requests whose context position is not known: in no bucket"),
    Key("segments[].straddles_begin[]", "string", "", "requests that were at work when it began, and count elsewhere"),
    Key("segments[].straddles_end[]", "string", "", "requests of it that were still at work when it ended"),
    Key("segments[].phases", "object", "", "where the times of its phases are from", "it is a log: they are its own"),
    _number("segments[].phases.prefill.*", "requests whose prefill times are from that source, as in the tables"),
    _number("segments[].phases.decode.*", "requests whose decode times are"),
    _words("segments[].phases.said", "the same in words", "no request has times"),
    Key("segments[].agents", "object", "", "empty: only a run has it", promised=False),
    *(
        Key(f"segments[].{name}", kind, unit, "only a run has it", _OF_RUN, promised=False)
        for name, kind, unit in (
            ("no_agent", "object", ""),
            ("memory", "object", ""),
            ("server_cpu_s", "number", "s"),
            ("host_other_cpu_s", "number", "s"),
            ("sampled_ns", "integer", "ns"),
        )
    ),
    _text("listed.by", "by what the costliest were chosen", values=("time", "tokens", "order")),
    _number("listed.left_out", "requests that are not listed: the tables have all"),
    _text("listed.rows[].request", "a request's name, as in the table requests; at most 20, in order of their starts"),
    _number("listed.rows[].boot", "the start of the server that it is of"),
    _text("listed.rows[].group", "its ambiguous group", "it is in none"),
    _time("listed.rows[].start", "its prefill began; else it got a slot, or came", _UNTOLD),
    _count("listed.rows[].prompt_tokens", "the whole prompt, cached tokens included", _UNTOLD),
    _count("listed.rows[].cached_tokens", "prompt tokens reused from a cache", _UNTOLD),
    _count("listed.rows[].new_prefill_tokens", "prompt tokens that were computed", _UNTOLD),
    _count("listed.rows[].decoded_tokens", "tokens that were generated", _UNTOLD),
    _time("listed.rows[].prefill_ns", "how long its prefill took", _UNTOLD),
    _time("listed.rows[].decode_ns", "how long its decode took", _UNTOLD),
    _text("listed.rows[].finish", "stop, length, tool_calls, error, cancelled, or the server's own word", _UNTOLD),
    _number("listed.rows[].first_line", "the first line that proves something of it", _UNTOLD, "line"),
    _number("listed.rows[].last_line", "the last one", _UNTOLD, "line"),
    _text("settings[].name", "a setting, as this format's server calls it"),
    Key("settings[].applied", _SCALAR, "", "the value in force that the line states", "no line does"),
    Key("settings[].requested", _SCALAR, "", "the value that the log repeats of the command line", "none"),
    _text("settings[].verdict", "what became of it", "it was not requested", ("applied", "mismatch", "unproven")),
    _number("settings[].boot", "the start of the server that it is of"),
    _text("settings[].source", "the log's name and that line"),
    *_place("settings[].", "states it"),
    Key("statistics", "object", "", "what the server's statistics lines amount to", "it has none"),
    _number("statistics.lines", "statistics lines, all there are"),
    _number("statistics.repeated_by_ranks", "further lines in which other ranks say the same"),
    _text("statistics.parts[].segment", "the segment", "the part is the whole log"),
    _number("statistics.parts[].lines", "statistics lines in it"),
    _text("statistics.parts[].quantities[].kind", "engine, speculation, prefill or decode"),
    _text("statistics.parts[].quantities[].source", "the engine or scheduler as the log names it, or empty"),
    _text("statistics.parts[].quantities[].name", "the quantity"),
    _text("statistics.parts[].quantities[].unit", "its unit"),
    _number("statistics.parts[].quantities[].lines", "lines that have it"),
    *(
        Key(f"statistics.parts[].quantities[].{name}", "number", "its unit", what, signed=True)
        for name, what in (("least", "the least value"), ("median", "the median"), ("most", "the greatest"))
    ),
    Key("statistics.parts[].quantities[].sum", "number", "its unit", "all added up", "it is no count", signed=True),
    Key("statistics.parts[].speculation", "object", "", "speculative decoding", _NO_SPECULATION),
    _number("statistics.parts[].speculation.lines", "lines that tell of it"),
    _number("statistics.parts[].speculation.drafts", "drafts made", _UNTOLD),
    _count("statistics.parts[].speculation.drafted_tokens", "tokens in them", _UNTOLD),
    _count("statistics.parts[].speculation.accepted_tokens", "of these, those accepted", _UNTOLD),
    Key(
        "statistics.parts[].speculation.acceptance_by_position",
        "array",
        "ratio",
        "share of drafts accepted at each position",
        _UNTOLD,
    ),
    Key("statistics.parts[].speculation.acceptance_by_position[]", "number", "ratio", "of one position"),
    _real("statistics.parts[].speculation.nominal_length", "tokens/step", "1 + the sum of these", _UNTOLD),
    _real("statistics.parts[].speculation.effective_length", "tokens/step", "emitted tokens / decode steps", _UNTOLD),
    _real("statistics.parts[].speculation.effective_error", "tokens/step", "what rounding leaves of it", "nothing"),
    _number("statistics.steps[].boot", "the start of the server"),
    _number("statistics.steps[].steps", "steps of the engine"),
    _number("statistics.steps[].decode_steps", "those in which a request decoded, for each request that did"),
    _count("statistics.steps[].prompt_tokens", "computed in them"),
    _count("statistics.steps[].decode_tokens", "scheduled to be decoded, with all drafts"),
    _time("statistics.steps[].elapsed_ns", "how long they took"),
    _text("cache_events[].kind", "what the log tells of its prompt caches, such as live-miss, hit, stored, evicted"),
    _text("cache_events[].reason", "why", _UNTOLD),
    _number("cache_events[].events", "how often, all there are"),
    _count("cache_events[].tokens", "of all of these"),
    _number("decode_batches[].boot", "the start of the server"),
    _number("decode_batches[].rows", "requests that decoded together"),
    _number("decode_batches[].steps", "decode steps of so many"),
    _number("decode_batches[].failed", "of these, those that failed"),
    _time("decode_batches[].elapsed_ns", "compute time of all of them"),
    _time("suspects[].t", "when something happened that slows requests down, such as a compilation"),
    *_place("suspects[].", "tells of it"),
    _words("suspects[].why", "what it was"),
    _text(
        "clock.log_timeline",
        "what times are counted from: unix: 1970, UTC; process: that start of the server; wall: 1 January, 0:00, local "
        "time, of the year in which the log begins, or 1970 where it writes the year",
        "no request has times",
        ("unix", "process", "wall"),
    ),
    _number("clock.log_resolution_ns", "by which the log's own times step", "as log_timeline", "ns"),
    _time("clock.log_alignment_error_ns", "as error_ns", "as error_ns"),
    Key("clock.pump_worst_pause_ns", "integer", "ns", "only a run has it", _OF_RUN, promised=False),
    _time("clock.error_ns", "how far times can be from the client's clock", "they are laid on no other clock"),
    _text("doubts[].code", "a doubt: what makes a number less sure; a code keeps its meaning"),
    _words("doubts[].message", "what it is about"),
    _words("doubts[].advice", "what to do"),
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a log's account.json."""
    root = _object({})
    for key in KEYS:
        _put(root, key.path.split("."), key.schema())
    head = {"$schema": _DRAFT, "$id": schemas.LOG_ACCOUNT, "title": "agentload: account.json of a log"}
    return head | root


def _object(found: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object"} | found | {"properties": {}, "required": [], "additionalProperties": False}


def _put(node: dict[str, Any], parts: list[str], leaf: dict[str, Any]) -> None:
    """Put a key's schema where its path leads, and what is on the way."""
    name, rest = parts[0], parts[1:]
    bare = name.removesuffix("[]")
    if bare == "*":
        node["additionalProperties"] = leaf
        return
    if "properties" not in node:
        node |= _object(node)
    if bare not in node["required"]:
        node["required"].append(bare)
    if name == bare and not rest:
        node["properties"][bare] = _object(leaf) if "object" in leaf["type"] else leaf
        return
    child = node["properties"].setdefault(bare, {"type": "array"} if name != bare else _object({}))
    if name != bare:
        child = child.setdefault("items", {})
        if not rest:
            child |= leaf
            return
    _put(child, rest, leaf)
