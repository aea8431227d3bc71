"""Do the tables keep what is known, and null where a source did not say?"""

import random
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agentload.analysis import tables
from agentload.analysis.evidence import ToolUse
from agentload.core.records import Match, Proof, Request, Segment, Source
from agentload.errors import ArtifactError
from tests.confined import UNCOMPILED


def request(**known: Any) -> Request:
    """A request of which nothing is known but what is given."""
    values: dict[str, Any] = {one.name: None for one in fields(Request)}
    return Request(**{**values, "run": "r", "request": "a0-r0", "match": Match.EXACT, **known})


def test_a_request_is_a_row_with_its_proofs_as_line_and_offset() -> None:
    one = request(
        agent="a0", prefill_source=Source.LOG, prefill_proof=Proof(12, 900), cached_tokens=0, match=Match.AMBIGUOUS
    )
    row = tables.requests_table([one]).row(0, named=True)
    assert (row["prefill_proof_line"], row["prefill_proof_offset"], row["prefill_source"]) == (12, 900, "log")
    assert (row["match"], row["agent"], row["cached_tokens"]) == ("ambiguous", "a0", 0)
    assert (row["decode_proof_line"], row["decode_source"], row["prompt_tokens"], row["t_sent"]) == (None,) * 4


def test_columns_are_those_of_the_record_in_its_order_and_are_there_without_rows() -> None:
    names = list(tables.request_schema())
    assert names[:3] == ["run", "segment", "agent"]
    assert len(names) == len(fields(Request)) + 6  # six proofs, two columns each
    assert tables.requests_table([]).columns == names
    assert tables.phases_table("r", tables.requests_table([])).columns == list(tables.PHASES)
    assert tables.samples_table([]).columns == list(tables.SAMPLES)
    assert tables.segments_table([]).columns == list(tables.SEGMENTS)


def test_phases_are_in_order_of_their_start_and_those_without_times_are_left_out() -> None:
    whole = request(
        agent="a0",
        prefill_start=10,
        prefill_end=20,
        decode_start=20,
        decode_end=50,
        new_prefill_tokens=7,
        decoded_tokens=3,
        decode_proof=Proof(4, 99),
    )
    half = request(request="a1-r0", prefill_start=5, prefill_end=None, decode_start=15, decode_end=16)
    tools = (ToolUse("a0", 0, "bash", 60, 70, ok=True), ToolUse("a1", 0, "read", 17, None, ok=None))
    table = tables.phases_table("r", tables.requests_table([whole, half]), tools)
    rows = table.select("request", "phase", "start", "end", "tokens", "end_offset").rows()
    assert rows == [
        ("a0-r0", "prefill", 10, 20, 7, None),
        ("a1-r0", "decode", 15, 16, None, None),
        ("a1-r0", "tool", 17, None, None, None),
        ("a0-r0", "decode", 20, 50, 3, 99),
        ("a0-r0", "tool", 60, 70, None, None),
    ]


def test_a_phase_is_in_its_requests_segment_a_tool_call_in_that_of_its_start_and_outside_is_null() -> None:
    inside = request(segment="s1", prefill_start=10, prefill_end=20)
    outside = request(request="log boot 0 x", prefill_start=1, prefill_end=2)
    tools = (ToolUse("a0", 0, "bash", 29, 40, ok=True), ToolUse("a0", 1, "bash", 30, 40, ok=True))
    table = tables.phases_table("r", tables.requests_table([inside, outside]), tools, [Segment("s1", "r", "c", 10, 30)])
    assert table.select("phase", "start", "segment").rows() == [
        ("prefill", 1, None),
        ("prefill", 10, "s1"),
        ("tool", 29, "s1"),
        ("tool", 30, None),
    ]


def scattered(count: int) -> list[Request]:
    """Requests that do not stand in order of time, some without times, some of several that start at the same ns."""
    mixed = random.Random(20260915)
    found = []
    for number in range(count):
        start = mixed.randrange(0, 40) if number % 3 else None
        sources = (Source.LOG, Source.CLIENT, None)
        found.append(
            request(
                request=f"r{number}",
                prefill_start=start,
                prefill_end=None if start is None else start + 3,
                decode_start=mixed.randrange(0, 40),
                decode_end=60 if number % 5 else None,
                new_prefill_tokens=number,
                prefill_source=sources[number % 3],
                decode_source=sources[number % 2],
                prefill_start_proof=Proof(number, 10 * number),
                decode_proof=Proof(number + 1, 10 * number + 5),
            )
        )
    return found


def test_phases_made_in_parts_are_those_made_whole_in_any_order_of_the_requests(tmp_path: Path) -> None:
    requests = scattered(200)
    tables.write(tmp_path, "requests", tables.requests_table(requests))
    parts = list(tables.phase_parts(tmp_path / "requests.parquet", rows=25))
    whole = tables.phases_table("r", tables.requests_table(requests))
    assert len(parts) > 5
    assert pl.concat(parts).equals(whole)
    told = [
        (start, one.request, phase)
        for one in requests
        for phase, start, end in (
            ("prefill", one.prefill_start, one.prefill_end),
            ("decode", one.decode_start, one.decode_end),
        )
        if start is not None and end is not None
    ]
    assert whole.select("start", "request", "phase").rows() == sorted(told)


def test_phases_of_requests_without_times_are_one_part_without_rows(tmp_path: Path) -> None:
    tables.write(tmp_path, "requests", tables.requests_table([request()]))
    (part,) = tables.phase_parts(tmp_path / "requests.parquet")
    assert (part.height, part.columns) == (0, list(tables.PHASES))


def test_requests_made_in_parts_are_those_made_whole() -> None:
    requests = scattered(9_001)
    parts = list(tables.request_parts(iter(requests)))
    assert len(parts) > 2
    assert pl.concat(parts).equals(tables.requests_table(requests))
    assert [row["new_prefill_tokens"] for part in parts for row in part.iter_rows(named=True)] == list(range(9_001))


def test_a_number_that_no_table_can_hold_is_named() -> None:
    with pytest.raises(
        ArtifactError, match="expected numbers that fit 64 bits in the tables, got prompt_tokens 9223372"
    ):
        tables.requests_table([request(prompt_tokens=2**63)])
    assert tables.requests_table([request(prompt_tokens=2**63 - 1)])["prompt_tokens"].to_list() == [2**63 - 1]


def test_samples_of_a_newer_version_keep_their_known_columns() -> None:
    table = tables.samples_table([{"t": 5, "where": "begin", "cpu_s": 1.5, "gpu_s": 9.0}])
    assert table.row(0) == (5, "begin", 1.5, *[None] * 7)


def test_a_table_names_its_schema_and_is_the_same_bytes_for_the_same_rows(tmp_path: Path) -> None:
    table = tables.requests_table([request(agent="é", prompt_tokens=5)])
    tables.write(tmp_path, "requests", table)
    path = tmp_path / "requests.parquet"
    first = path.read_bytes()
    tables.write(tmp_path, "requests", table)
    assert path.read_bytes() == first
    assert pl.read_parquet_metadata(path)["schema"] == "agentload.requests/1"
    assert pl.read_parquet(path).equals(table)
    assert [one.name for one in tmp_path.iterdir()] == ["requests.parquet"]


TABLE_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from agentload.analysis import tables
from agentload.artifacts.table_schemas import TABLES
from agentload.errors import ArtifactError
from agentload.report.export.parquet import EXPORT
rows = tables.samples_table([{"t": 5, "where": "begin"}])
for bytes_left in (0, 4, 100, 1000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, 1000))
    try:
        tables.write(Path(), "samples", rows)
    except ArtifactError as error:
        print(error)
    try:
        EXPORT.write(Path("exported"), [rows], TABLES["samples"])
    except OSError as error:
        print(error.strerror)
    Path("exported").unlink()
"""


def test_a_table_that_finds_no_room_is_one_error_wherever_in_the_file_the_disk_is_full(tmp_path: Path) -> None:
    """Polars, writing itself, told of some of these places with an error of its own: a traceback."""
    done = subprocess.run(
        [*UNCOMPILED, "-c", TABLE_ON_A_FULL_DISK], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    told = done.stdout.splitlines()
    assert told == ["samples.parquet: cannot be written: File too large", "File too large"] * 4
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"requests\.parquet: cannot be written"):
        tables.write(tmp_path / "none", "requests", tables.requests_table([]))
