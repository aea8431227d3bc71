"""Which tables does an account leave in derived/, and with which columns?

One row a request, a phase, a segment or agent or bucket, a sample. Times are Unix ns (int64), tokens are counts by the
server; null where a source did not say.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import polars as pl

from agentload.analysis.evidence import Evidence
from agentload.artifacts import schemas
from agentload.artifacts.rundir import write_atomically
from agentload.core.records import Proof, Request
from agentload.errors import ArtifactError

_TEXT: Final = ("run", "segment", "agent", "request", "match", "group", "label", "finish", "error")
_PROOFS: Final = ("prefill_proof", "decode_proof")
_SOURCES: Final = ("prefill_source", "decode_source")


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


def requests_table(requests: Sequence[Request]) -> pl.DataFrame:
    """requests.parquet."""
    return pl.DataFrame([_request_row(one) for one in requests], schema=request_schema(), orient="row")


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
    "proof_line": pl.Int64(),  # of server.log: the line that proves the phase
    "proof_offset": pl.Int64(),
}


def phases_table(requests: Sequence[Request], evidence: Evidence) -> pl.DataFrame:
    """phases.parquet: prefill and decode of every request, and the tool calls between."""
    rows: list[dict[str, Any]] = []
    for one in requests:
        rows += [
            _phase(one, "prefill", one.prefill_start, one.prefill_end, one.new_prefill_tokens, one.prefill_proof),
            _phase(one, "decode", one.decode_start, one.decode_end, one.decoded_tokens, one.decode_proof),
        ]
    rows = [row for row in rows if row["start"] is not None and row["end"] is not None]
    rows += [
        {
            "agent": use.agent,
            "request": f"{use.agent}-r{use.turn}",
            "phase": "tool",
            "start": use.started,
            "end": use.done,
        }
        for use in evidence.tools
    ]
    name = evidence.manifest.run
    rows = [{column: row.get(column) for column in PHASES} | {"run": name} for row in rows]
    rows.sort(key=lambda row: (row["start"], row["request"], row["phase"]))
    return pl.DataFrame(rows, schema=PHASES, orient="row")


def _phase(
    one: Request, phase: str, start: int | None, end: int | None, tokens: int | None, proof: Proof | None
) -> dict[str, Any]:
    source = one.prefill_source if phase == "prefill" else one.decode_source
    return {
        "segment": one.segment,
        "agent": one.agent,
        "request": one.request,
        "phase": phase,
        "start": start,
        "end": end,
        "tokens": tokens,
        "context_start": one.context_start,
        "source": None if source is None else source.value,
        "proof_line": proof.line if proof else None,
        "proof_offset": proof.offset if proof else None,
    }


def segments_table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """segments.parquet: for each segment its whole, each agent and each context bucket; `scope` tells which."""
    flat = [{name: value for name, value in row.items() if not isinstance(value, dict | list)} for row in rows]
    columns = sorted({name for row in flat for name in row} - {"segment", "scope", "name"})
    schema: dict[str, pl.DataType] = {"segment": pl.String(), "scope": pl.String(), "name": pl.String()}
    for column in columns:
        whole = column.endswith(("_ns", "_tokens", "requests")) or column.startswith(("from_", "to_"))
        schema[column] = pl.Int64() if whole else pl.Float64()
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in flat], schema=schema, orient="row")


SAMPLES: Final[dict[str, pl.DataType]] = {
    "t": pl.Int64(),
    "where": pl.String(),
    "cpu_s": pl.Float64(),
    "rss_bytes": pl.Int64(),
    "processes": pl.Int64(),
    "host_busy_s": pl.Float64(),
    "host_free_bytes": pl.Int64(),
}


def samples_table(samples: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """samples.parquet: what the server's process used."""
    return pl.DataFrame([{name: one.get(name) for name in SAMPLES} for one in samples], schema=SAMPLES, orient="row")


_SCHEMAS: Final = {
    "requests": schemas.REQUESTS,
    "phases": schemas.PHASES,
    "segments": schemas.SEGMENTS,
    "samples": schemas.SAMPLES,
}


def write(folder: Path, name: str, table: pl.DataFrame) -> None:
    """Write one table as FOLDER/NAME.parquet, the schema id in the file's metadata; the same bytes for the same rows.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    target = folder / f"{name}.parquet"
    temporary = folder / f".{name}.parquet.tmp"
    try:
        table.write_parquet(temporary, compression="zstd", statistics=True, metadata={"schema": _SCHEMAS[name]})
        write_atomically(target, temporary.read_bytes())
    except OSError as error:
        raise ArtifactError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
