"""What does a server itself tell of its requests, beside its log: vLLM's spans (RUN/spans.jsonl), SGLang's exports?

vLLM's log has a request's id, and neither its times nor its tokens; the spans have its phases on the server's wall
clock, which is that of this machine. The two are one request where their ids are equal; of a span whose answer is not
there, the tokens are the span's. SGLang's export file (RUN/exports) has phases, cached tokens and all.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agentload.artifacts import jsonlines, schemas
from agentload.core.records import Completion, Doubt, LogFacts, LoggedRequest, Match, Request, Source, Timeline
from agentload.errors import InputError
from agentload.serverlogs import formats, jsonrequests

_FORMAT: Final = "otlp"
_EXPORT: Final = "sglang-export"
_PLACED: Final = (
    *("t_arrived", "prefill_start", "prefill_end", "decode_start", "decode_end", "t_end"),
    "decode_untimed_tokens",  # it is of these times
)
_COUNTED: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
SOURCES: Final = {_FORMAT: Source.SPANS, _EXPORT: Source.EXPORT}
"""Format of a file that a server wrote beside its log -> what the times in it are from."""
_CLOSED: Final = b'{"closed":'
_NO_SPANS: Final = Doubt(
    "no-spans",
    "the server sent no span of a request",
    "see in server.log that it takes --otlp-traces-endpoint; a container must share the host's network",
)
_NO_EXPORTS: Final = Doubt(
    "no-exports",
    "the server wrote no file of its requests into {export_dir}",
    "start SGLang with --export-metrics-to-file --export-metrics-to-file-dir {export_dir}",
)


@dataclass(frozen=True, slots=True)
class Spans:
    """The requests of a run's spans, and what is to be said of them."""

    requests: tuple[LoggedRequest, ...]
    off_ns: int  # how far their times may be off
    source: Source
    doubts: tuple[Doubt, ...]


def read(path: Path, *, running: bool) -> Spans | None:
    """Return what the spans of a run tell; None where none were asked for.

    Raises:
        ArtifactError: the file cannot be read.
    """
    if not path.exists():
        return None
    reader = formats.by_name(_FORMAT).reader()
    closed: dict[str, int] | None = None
    for _, line in jsonlines.lines(path, schemas.SPANS):
        if line.startswith(_CLOSED):
            closed = (jsonrequests.decoded(line) or {}).get("closed")
        else:
            reader.feed(line + b"\n")
    facts = reader.close()
    more = []
    if facts.lines.unknown:
        more.append(
            Doubt(
                "spans-unknown",
                f"{facts.lines.unknown} lines of spans.jsonl are no spans: they are left out",
                "the file was changed, or cut off",
            )
        )
    if isinstance(closed, dict) and (closed.get("dropped") or closed.get("refused")):
        more.append(
            Doubt(
                "spans-lost",
                f"{closed.get('dropped')} spans had no room, {closed.get('refused')} exports could not be read",
                "phases of those requests are the client's",
            )
        )
    return _told(facts, Source.SPANS, None if running else _NO_SPANS, more)


def exported(folder: Path, *, running: bool) -> Spans | None:
    """Return what SGLang's export files in `folder` tell; None where none were asked for.

    Raises:
        InputError: a file cannot be read.
    """
    if not folder.is_dir():
        return None
    reader = formats.by_name(_EXPORT).reader()
    for path in sorted(folder.glob("sglang-request-metrics-*.log")):
        try:
            reader.feed(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return _told(reader.close(), Source.EXPORT, None if running else _NO_EXPORTS)


def _told(facts: LogFacts, source: Source, nothing: Doubt | None, more: Sequence[Doubt] = ()) -> Spans:
    """What a reader found; `nothing` is the doubt where that is no request at all, None while the run goes on."""
    missing = () if facts.requests or nothing is None else (nothing,)
    return Spans(tuple(facts.requests), facts.resolution_ns, source, (*facts.doubts, *missing, *more))


def laid_over(facts: LogFacts | None, found: Spans, completions: Sequence[Completion]) -> LogFacts | None:
    """Return the log's facts with the phases that the spans have of its requests.

    A log whose times are not on the client's clock gives its requests' names only. None where there is no log.
    """
    if facts is None:
        return None
    answered = {one.server_id for one in completions if one.server_id is not None}
    by_id = {one.server_id: one for one in found.requests}
    known: Counter[str | None] = Counter(one.server_id for one in facts.requests)
    unix = facts.timeline is Timeline.UNIX
    merged: list[LoggedRequest] = []
    for one in facts.requests:
        span = by_id.get(one.server_id) if one.server_id is not None and known[one.server_id] == 1 else None
        if span is not None:
            merged.append(_placed(one, span, answered))
        elif unix:
            merged.append(one)
    merged += [_placed(one, one, answered) for one in found.requests if not known[one.server_id]]
    return replace(
        facts,
        requests=tuple(merged),
        timeline=Timeline.UNIX,
        resolution_ns=max(facts.resolution_ns, found.off_ns) if unix else found.off_ns,
        clock_error_ns=facts.clock_error_ns if unix else 0,
    )


def _placed(one: LoggedRequest, span: LoggedRequest, answered: set[str]) -> LoggedRequest:
    """Give a request its span's phases; its tokens too, where no answer has them (which tells the cached ones too)."""
    told = span.server_id in answered and span.cached_tokens is None
    counts = {name: getattr(span, name) for name in _COUNTED} if not told else {}
    if told and one is span:
        counts = dict.fromkeys(_COUNTED)
    times = {name: getattr(span, name) for name in _PLACED} if span.prefill_end is not None else {}
    proofs = tuple(pair for pair in one.proofs if pair[0] not in {**counts, **times}) if one is not span else ()
    changed: dict[str, Any] = {**counts, **times}
    return replace(one, finish=span.finish or one.finish, proofs=proofs, **changed)


def from_file(file_format: str, row: Request) -> Request:
    """Say of a row of such a file, accounted for by itself, that its phases and counts are not a log's."""
    source = SOURCES[file_format]
    return replace(
        row,
        prefill_source=row.prefill_source and source,
        decode_source=row.decode_source and source,
        cached_source=row.cached_source and source,
    )


def sourced(rows: Sequence[Request], found: Spans) -> tuple[Request, ...]:
    """Say of each row whose phases are a span's that they are."""
    by_label = {one.label: one for one in found.requests}
    return tuple(_sourced(row, by_label[row.label], found) if row.label in by_label else row for row in rows)


def _sourced(row: Request, span: LoggedRequest, found: Spans) -> Request:
    named = found.source if span.prefill_end is not None else Source.LOG
    return replace(
        row,
        prefill_source=named if row.prefill_source is Source.LOG else row.prefill_source,
        decode_source=named if row.decode_source is Source.LOG else row.decode_source,
    )


def doubts(rows: Sequence[Request], found: Spans) -> tuple[Doubt, ...]:
    """Say where the spans and the answers' usage disagree, or whole answers have no span."""
    by_label = {one.label: one for one in found.requests}
    said = []
    pairs = [(row, by_label[row.label]) for row in rows if row.label in by_label and row.match is Match.EXACT]
    differing = [
        row
        for row, span in pairs
        if None not in (row.usage_prompt_tokens, span.prompt_tokens) and row.usage_prompt_tokens != span.prompt_tokens
    ]
    if differing:
        said.append(
            Doubt(
                "spans-differ",
                f"{len(differing)} requests have other prompt tokens in what the server told, first "
                f"{differing[0].request}",
                "the answers' usage is taken",
            )
        )
    without = [row for row in rows if row.t_sent is not None and row.error is None and row.label not in by_label]
    if without and found.requests:
        said.append(
            Doubt(
                "answers-without-span",
                f"{len(without)} whole answers have no {found.source.value}, the first is {without[0].request}",
                "their phases are the client's: a server that was killed sends no more of them",
            )
        )
    return tuple(said)
