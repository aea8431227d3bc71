"""Which tables does an account leave in derived/, and with which columns?

One row a request, a phase, a segment or agent or bucket, a sample. Times are Unix ns (int64), tokens are counts by the
server; null where a source did not say.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import polars as pl

from agentload.analysis.evidence import ToolUse
from agentload.artifacts import schemas
from agentload.artifacts.rundir import write_atomically
from agentload.core.records import Request, Segment, Source
from agentload.core.segments import segment_at
from agentload.errors import ArtifactError

_TEXT: Final = ("run", "segment", "agent", "request", "match", "group", "label", "finish", "error")
_PROOFS: Final = ("prefill_proof", "decode_proof", "prefill_start_proof", "decode_start_proof")
_PART: Final = 4_000  # rows
_SOURCES: Final = ("prefill_source", "decode_source", "cached_source")


def request_schema() -> dict[str, pl.DataType]:
    """Columns of requests.parquet, in order: those of core.records.Request, proofs as line and offset."""
    columns: dict[str, pl.DataType] = {}
    for one in fields(Request):
        if one.name in _PROOFS:
            columns[f"{one.name}_line"] = pl.Int64()
            columns[f"{one.name}_offset"] = pl.Int64()
        elif one.name in _TEXT or one.name in _SOURCES:
            columns[one.name] = pl.String()
        else:
            columns[one.name] = pl.Int64()
    return columns


def _frame(rows: Sequence[dict[str, Any]], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    try:
        return pl.DataFrame(rows, schema=columns, orient="row")
    except (pl.exceptions.PolarsError, OverflowError) as error:
        big = next(
            (f"{name} {value}" for row in rows for name, value in row.items() if _too_big(value)), "another value"
        )
        raise ArtifactError(
            f"expected numbers that fit 64 bits in the tables, got {big}: times or counts in the raw files are damaged"
        ) from error


def _too_big(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _in_parts(rows: Iterable[dict[str, Any]], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Make a frame of any number of rows: as objects a row takes 5 KB, of which there are a few thousand at a time."""
    left = iter(rows)
    parts = [_frame(list(islice(left, _PART)), columns)]
    while part := list(islice(left, _PART)):
        parts.append(_frame(part, columns))
    return pl.concat(parts)


def requests_table(requests: Iterable[Request]) -> pl.DataFrame:
    """requests.parquet."""
    return _in_parts(map(_request_row, requests), request_schema())


def _request_row(request: Request) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for one in fields(Request):
        value = getattr(request, one.name)
        if one.name in _PROOFS:
            row[f"{one.name}_line"] = value.line if value else None
            row[f"{one.name}_offset"] = value.offset if value else None
        elif one.name in _SOURCES or one.name == "match":
            row[one.name] = None if value is None else str(value.value)
        else:
            row[one.name] = value
    return row


PHASES: Final[dict[str, pl.DataType]] = {
    "run": pl.String(),
    "segment": pl.String(),
    "agent": pl.String(),
    "request": pl.String(),
    "phase": pl.String(),  # prefill | decode | tool
    "start": pl.Int64(),
    "end": pl.Int64(),
    "tokens": pl.Int64(),
    "context_start": pl.Int64(),
    "source": pl.String(),
    "start_line": pl.Int64(),  # of the server's log: the line that proves when the phase began
    "start_offset": pl.Int64(),  # bytes from the log's first to that line's first
    "end_line": pl.Int64(),
    "end_offset": pl.Int64(),
}


def phases_table(
    run: str, requests: Iterable[Request], tools: Sequence[ToolUse] = (), segments: Sequence[Segment] = ()
) -> pl.DataFrame:
    """phases.parquet: prefill and decode of every request, and the tool calls between.

    `segment` is that of the request; of a tool call the one of `segments` in which it started.
    """
    used = (
        {
            "run": run,
            "segment": segment_at(use.started, segments),
            "agent": use.agent,
            "request": f"{use.agent}-r{use.turn}",
            "phase": "tool",
            "start": use.started,
            "end": use.done,
        }
        for use in tools
    )
    rows = chain((row for one in requests for row in _phases(one)), used)
    found = _in_parts(({column: row.get(column) for column in PHASES} for row in rows), PHASES)
    return found.sort("start", "request", "phase", maintain_order=True)


def _phases(one: Request) -> Iterator[dict[str, Any]]:
    """Give the rows of a request: of phases of which both times are known."""
    spans = (
        ("prefill", (one.prefill_start, one.prefill_end), one.new_prefill_tokens),
        ("decode", (one.decode_start, one.decode_end), one.decoded_tokens),
    )
    for phase, span, tokens in spans:
        if None not in span:
            yield _phase(one, phase, span, tokens)


def _phase(one: Request, phase: str, span: tuple[int | None, int | None], tokens: int | None) -> dict[str, Any]:
    if phase == "prefill":
        source, began, ended = one.prefill_source, one.prefill_start_proof, one.prefill_proof
    else:
        source, began, ended = one.decode_source, one.decode_start_proof, one.decode_proof
    if source not in (None, Source.LOG):
        began = ended = None  # these times are not the log's, whatever it tells of the request
    return {
        "run": one.run,
        "segment": one.segment,
        "agent": one.agent,
        "request": one.request,
        "phase": phase,
        "start": span[0],
        "end": span[1],
        "tokens": tokens,
        "context_start": one.context_start,
        "source": None if source is None else source.value,
        "start_line": began.line if began else None,
        "start_offset": began.offset if began else None,
        "end_line": ended.line if ended else None,
        "end_offset": ended.offset if ended else None,
    }


_COUNTED: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
_BUSY: Final = ("union_ns", "sum_ns", "speed_tokens", "speed_ns")
_RATIOS: Final = ("double_counting", "tok_s", "share")
_BOTH: Final = ("prefill", "decode")

# core.accounting.Totals and Bucket, flat: a row has the columns of its scope, the others are null.
SEGMENTS: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("run", "segment", "condition", "scope", "name"), pl.String()),  # scope: whole | agent | bucket
    **dict.fromkeys(("begin_ns", "end_ns", "wall_ns", "from_tokens", "to_tokens", "requests"), pl.Int64()),
    **dict.fromkeys(("matched", "ambiguous", "client_only", "server_only"), pl.Int64()),
    **dict.fromkeys(_COUNTED, pl.Int64()),
    **{f"unknown_{name}": pl.Int64() for name in (*_COUNTED, "prefill_times", "decode_times")},
    **{f"{phase}_{name}": pl.Int64() for phase in _BOTH for name in _BUSY},
    **{f"{phase}_{name}": pl.Float64() for phase in _BOTH for name in _RATIOS},
    **dict.fromkeys(("overlap", "sampled_overlap", "median_tok_s", "union_tok_s"), pl.Float64()),
}


def segments_table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """segments.parquet: for each segment its whole, each agent and each context bucket; `scope` tells which."""
    flat = [
        {**row, **row.get("matches", {}), **{f"unknown_{name}": n for name, n in row.get("unknown", {}).items()}}
        for row in rows
    ]
    return _frame([{name: row.get(name) for name in SEGMENTS} for row in flat], SEGMENTS)


SAMPLES: Final[dict[str, pl.DataType]] = {
    "t": pl.Int64(),
    "where": pl.String(),
    "cpu_s": pl.Float64(),
    "rss_bytes": pl.Int64(),
    "processes": pl.Int64(),
    "host_busy_s": pl.Float64(),
    "host_free_bytes": pl.Int64(),
    "host_total_bytes": pl.Int64(),
    "device_free_bytes": pl.Int64(),
    "device_index": pl.Int64(),
}


COMPARISON: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("experiment", "metric", "unit", "first", "first_label", "second", "second_label"), pl.String()),
    **dict.fromkeys(("simulated", "deciding"), pl.Int64()),
    **dict.fromkeys(("first_valid", "first_invalid", "second_valid", "second_invalid"), pl.Int64()),
    **{f"{side}_{name}": pl.Float64() for side in ("first", "second") for name in ("pooled", "low", "high")},
    **dict.fromkeys(("outcome", "published_outcome"), pl.String()),
    **dict.fromkeys(("ratio", "lead"), pl.Float64()),
    **dict.fromkeys(("greater", "better"), pl.String()),
    **dict.fromkeys(("gap", "wider_range", "separation", "needed_separation", "rank_p"), pl.Float64()),
    **dict.fromkeys(("false_claims", "order_effect", "drift", "permutation_p"), pl.Float64()),
    **dict.fromkeys(("grade", "prospect"), pl.String()),
    "more_restarts": pl.Int64(),
}


def comparison_table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """comparison.parquet: one row for each pair of variants and each metric."""
    return _frame([{name: row.get(name) for name in COMPARISON} for row in rows], COMPARISON)


def samples_table(samples: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """samples.parquet: what the server's process used, and the memory that was free."""
    return _frame([{name: value.get(name) for name in SAMPLES} for value in map(_with_device, samples)], SAMPLES)


def _with_device(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sample, with the device that has the least free memory."""
    devices = sample.get("devices")
    if not devices:
        return sample
    fullest = min(devices, key=lambda one: one["free_bytes"])
    return {**sample, "device_free_bytes": fullest["free_bytes"], "device_index": fullest["index"]}


_SCHEMAS: Final = {
    "requests": schemas.REQUESTS,
    "phases": schemas.PHASES,
    "segments": schemas.SEGMENTS,
    "samples": schemas.SAMPLES,
    "comparison": schemas.COMPARISON,
}


def write(folder: Path, name: str, table: pl.DataFrame) -> None:
    """Write one table as FOLDER/NAME.parquet, the schema id in the file's metadata; the same bytes for the same rows.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    made = BytesIO()  # polars tells of a full disk in many ways, of which some are no OSError
    table.write_parquet(made, compression="zstd", statistics=True, metadata={"schema": _SCHEMAS[name]})
    write_atomically(folder / f"{name}.parquet", made.getbuffer())
