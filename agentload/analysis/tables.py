"""Which tables does an account leave in derived/, and with which columns?

One row a request, a phase, a segment or agent or bucket, a sample. Times are Unix ns (int64), tokens are counts by the
server; null where a source did not say.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from agentload.analysis.evidence import ToolUse
from agentload.artifacts import rowgroups, schemas
from agentload.artifacts.rundir import written_atomically
from agentload.core.records import Request, Segment, Source
from agentload.core.segments import segment_at
from agentload.errors import ArtifactError

_TEXT: Final = ("run", "segment", "agent", "request", "match", "group", "label", "finish", "error")
_PROOFS: Final = (
    *("prefill_proof", "decode_proof", "prefill_start_proof", "decode_start_proof"),
    *("cached_proof", "prompt_proof"),
)
_DURATIONS: Final = ("prefill_logged_ms", "decode_logged_ms")
_PART: Final = 4_000  # rows
_EVERY: Final = 16  # of the starts of phases
_FIELDS: Final = tuple(one.name for one in fields(Request))
_BOTH: Final = ("prefill", "decode")
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
        elif one.name in _DURATIONS:
            columns[one.name] = pl.Float64()
        else:
            columns[one.name] = pl.Int64()
    return columns


def _frame(rows: Sequence[dict[str, Any]] | dict[str, list[Any]], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Make a frame of rows, or of columns."""
    try:
        return pl.DataFrame(rows, schema=columns, orient=None if isinstance(rows, dict) else "row")
    except (pl.exceptions.PolarsError, OverflowError, TypeError) as error:
        named = (
            rows.items() if isinstance(rows, dict) else ((name, [value]) for row in rows for name, value in row.items())
        )
        big = next(
            (f"{name} {value}" for name, values in named for value in values if _too_big(value)), "another value"
        )
        raise ArtifactError(
            f"expected numbers that fit 64 bits in the tables, got {big}: times or counts in the raw files are damaged"
        ) from error


def _too_big(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def requests_table(requests: Iterable[Request]) -> pl.DataFrame:
    """requests.parquet."""
    return pl.concat(request_parts(requests))


def request_parts(requests: Iterable[Request]) -> Iterator[pl.DataFrame]:
    """Yield the same a few thousand rows at a time: as objects a row takes 2 KB. Without rows it is one empty frame.

    Raises:
        ArtifactError: a number has more than 64 bits.
    """
    left = iter(requests)
    yield _requests_frame(list(islice(left, _PART)))
    while part := list(islice(left, _PART)):
        yield _requests_frame(part)


def _requests_frame(requests: Sequence[Request]) -> pl.DataFrame:
    columns: dict[str, list[Any]] = {}
    for name in _FIELDS:
        values = list(map(attrgetter(name), requests))
        if name in _PROOFS:
            columns[f"{name}_line"] = [None if one is None else one.line for one in values]
            columns[f"{name}_offset"] = [None if one is None else one.offset for one in values]
        elif name in _SOURCES or name == "match":
            columns[name] = [None if one is None else str(one.value) for one in values]
        else:
            columns[name] = values
    return _frame(columns, request_schema())


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


_IN_ORDER: Final = ("start", "request", "phase")


def phases_table(
    run: str, requests: pl.DataFrame, tools: Sequence[ToolUse] = (), segments: Sequence[Segment] = ()
) -> pl.DataFrame:
    """phases.parquet: prefill and decode of each row of `requests_table`, and the tool calls between.

    `segment` is that of the request; of a tool call the one of `segments` in which it started.
    """
    used = [
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
    ]
    called = _frame([{column: row.get(column) for column in PHASES} for row in used], PHASES)
    found = pl.concat([*(_phases(requests.lazy(), phase) for phase in _BOTH), called.lazy()])
    return found.sort(_IN_ORDER, maintain_order=True).collect()


def phase_parts(stored: Path, rows: int = rowgroups.ROWS, own: Source = Source.LOG) -> Iterator[pl.DataFrame]:
    """Yield the same, without tool calls, of a requests.parquet of any number of rows, about `rows` at a time.

    Each part has the phases that start in one stretch of time, of which the file tells where to look: a log's requests
    stand there in order of time, or nearly so. Without rows it is one empty frame.
    """
    requests = pl.scan_parquet(stored)
    phases = [_phases(requests, phase, own) for phase in _BOTH]
    # Of every 16th only, and read in parts: all of a million requests at once are 60 MB that polars keeps.
    some = [np.empty(0, np.int64)]
    for at in range(0, rowgroups.rows(stored), rowgroups.ROWS):
        part = requests.slice(at, rowgroups.ROWS)
        starts = pl.concat([_phases(part, phase, own).select("start") for phase in _BOTH]).collect()["start"]
        some.append(starts.to_numpy()[::_EVERY])
    bounds = np.unique(np.sort(np.concatenate(some))[:: max(rows // _EVERY, 1)]).tolist()[1:]
    start = pl.col("start")
    for low, high in pairwise((None, *bounds, None)):
        within = [start >= low] if low is not None else []
        within += [start < high] if high is not None else []
        yield pl.concat([one.filter(*within) for one in phases]).sort(_IN_ORDER, maintain_order=True).collect()


def _phases(requests: pl.LazyFrame, phase: str, own: Source = Source.LOG) -> pl.LazyFrame:
    """One phase of each request of which both of its times are known; the lines that prove times are those of `own`."""
    source = pl.col(f"{phase}_source")
    logged = source.is_null() | (source == own.value)  # else its times are not the log's, whatever that tells
    columns = {
        "phase": pl.lit(phase),
        "start": pl.col(f"{phase}_start"),
        "end": pl.col(f"{phase}_end"),
        "tokens": pl.col("new_prefill_tokens" if phase == "prefill" else "decoded_tokens"),
        "source": source,
        "start_line": pl.when(logged).then(pl.col(f"{phase}_start_proof_line")),
        "start_offset": pl.when(logged).then(pl.col(f"{phase}_start_proof_offset")),
        "end_line": pl.when(logged).then(pl.col(f"{phase}_proof_line")),
        "end_offset": pl.when(logged).then(pl.col(f"{phase}_proof_offset")),
    }
    timed = requests.filter(pl.col(f"{phase}_start").is_not_null(), pl.col(f"{phase}_end").is_not_null())
    return timed.select(columns.get(name, pl.col(name)).alias(name) for name in PHASES)


_COUNTED: Final = ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
_BUSY: Final = ("union_ns", "sum_ns", "speed_tokens", "speed_ns")
_RATIOS: Final = ("double_counting", "tok_s", "share")

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
    write_parts(folder, name, (table,))


def write_parts(folder: Path, name: str, parts: Iterable[pl.DataFrame]) -> None:
    """Write the same of frames that follow each other, which need not be in memory all at once.

    Raises:
        ArtifactError: as `write`; or what making the frames raised.
    """
    with written_atomically(folder / f"{name}.parquet") as file:
        rowgroups.write(file, parts, _SCHEMAS[name])
