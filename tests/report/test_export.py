"""Does an export hold what the account holds, follow its own schemas, and lead back to the log's bytes?"""

import json
import random
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest

from agentload.analysis import account as accounts
from agentload.analysis import logfile, tables
from agentload.artifacts.table_schemas import TABLES
from agentload.commands.logtables import write_tables
from agentload.core.records import Match, Proof, Request, Source
from agentload.errors import ArtifactError, UsageError
from agentload.report import export as exports
from tests.analysis.test_account import answered, make, mark
from tests.analysis.test_evidence import events
from tests.analysis.test_tables import request

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "serverlogs"
DS4 = LOGS / "ds4" / "truth_batched6_q2048.log"
LLAMA = LOGS / "llamacpp" / "three_agents.log"
VERSIONS = {"requests": 1, "phases": 1, "segments": 1, "samples": 2}
MS = 1_000_000
S = 1_000_000_000


def export(folder: Path, path: Path, to: str) -> tuple[Path, ...]:
    return write_tables(logfile.read_file(path), folder, to).files


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ---- the walk back to the bytes ------------------------------------------------------------------------------------


def line_at(data: bytes, number: int, offset: int) -> bytes:
    """The line that begins at a byte; it must be the one with that number."""
    assert data.count(b"\n", 0, offset) == number - 1
    assert offset == 0 or data[offset - 1 : offset] == b"\n"
    return data[offset:].partition(b"\n")[0]


def ds4_stamp_ns(line: bytes) -> int:
    """Its stamp, in ns since 1 January of a year that is no leap year."""
    at = datetime.strptime("2026" + line[:13].decode(), "%Y%m%d %H:%M:%S").replace(tzinfo=UTC)
    return round((at - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds()) * S


def check_ds4(row: dict[str, Any], side: str, line: bytes) -> str:
    """Hold what one row says of one boundary against the line; returns which kind of line it was."""
    took_ns = row["end"] - row["start"]
    stamp_ns = ds4_stamp_ns(line)
    if started := re.fullmatch(rb".* chat ctx=(\d+)\.\.\d+:(\d+) (?:TOOLS )?prompt start", line):
        assert (row["phase"], side) == ("prefill", "start")
        assert (row["context_start"], row["tokens"]) == (int(started[1]), int(started[2]))
        assert abs(row["start"] - stamp_ns) <= S
        return "prompt start"
    if done := re.fullmatch(rb".* chat ctx=(\d+)\.\.\d+:(\d+) (?:TOOLS )?prompt done (\d+)\.(\d{3})s", line):
        assert row["context_start"] == int(done[1])
        if row["phase"] == "prefill":
            assert row["tokens"] == int(done[2])
            assert took_ns == int(done[3] + done[4]) * MS
        assert abs(row["start" if row["phase"] == "decode" else "end"] - stamp_ns) <= S
        return "prompt done"
    decoded = re.fullmatch(rb".* gen=(\d+)[A-Z_ ]* decoding chunk=.* (\d+)\.(\d{3})s", line)
    assert decoded is not None, line
    assert (row["phase"], side, row["tokens"]) == ("decode", "end", int(decoded[1]))
    assert took_ns == int(decoded[2] + decoded[3]) * MS
    assert abs(row["end"] - stamp_ns) <= S
    return "decoding"


def check_llama(row: dict[str, Any], side: str, line: bytes) -> str:
    found = re.fullmatch(
        rb"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) I slot print_timing: id +\d+ \| task \d+ \| +(prompt )?eval time = +"
        rb"(\d+)\.(\d\d) ms / +(\d+) tokens .*",
        line,
    )
    assert found is not None, line
    assert row["phase"] == ("prefill" if found[5] else "decode")
    assert row["tokens"] == int(found[8])
    assert abs(row["end"] - row["start"] - int(found[6] + found[7]) * MS // 100) <= MS // 100
    if row["phase"] == "decode" and side == "end":
        assert row["end"] == ((int(found[1]) * 60 + int(found[2])) * 1000 + int(found[3])) * MS + int(found[4]) * 1000
    return "eval time"


@pytest.mark.parametrize(
    ("path", "check", "kinds"),
    [
        (DS4, check_ds4, {"prompt start", "prompt done", "decoding"}),
        (LLAMA, check_llama, {"eval time"}),
    ],
    ids=["ds4", "llamacpp"],
)
def test_ten_random_boundaries_lead_back_to_the_bytes_that_prove_them(
    path: Path, check: Any, kinds: set[str], tmp_path: Path
) -> None:
    export(tmp_path, path, "jsonl")
    data = path.read_bytes()
    phases = rows(tmp_path / "phases.jsonl")
    boundaries = [(row, side) for row in phases for side in ("start", "end")]
    seen = set()
    for row, side in random.Random(20260914).sample(boundaries, 10):
        line = line_at(data, row[f"{side}_line"], row[f"{side}_offset"])
        seen.add(check(row, side, line))
    assert seen == kinds


@pytest.mark.parametrize("path", [DS4, LLAMA], ids=["ds4", "llamacpp"])
def test_every_boundary_of_a_log_has_a_proof(path: Path, tmp_path: Path) -> None:
    export(tmp_path, path, "jsonl")
    data = path.read_bytes()
    for row in rows(tmp_path / "phases.jsonl"):
        for side in ("start", "end"):
            line_at(data, row[f"{side}_line"], row[f"{side}_offset"])


def test_times_that_are_not_the_logs_have_no_proof_in_it() -> None:
    one = request(
        prefill_start=1, prefill_end=2, prefill_source=Source.CLIENT, prefill_proof=Proof(3, 40), match=Match.EXACT
    )
    (row,) = tables.phases_table("r", tables.requests_table([one])).rows(named=True)
    assert (row["source"], row["end_line"], row["start_offset"]) == ("client", None, None)


# ---- schemas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [DS4, LLAMA, LOGS / "ds4" / "equal.log"], ids=["ds4", "llamacpp", "ambiguous"])
def test_each_row_follows_the_schema_beside_it(path: Path, tmp_path: Path) -> None:
    export(tmp_path, path, "jsonl")
    for name in logfile.TABLES:
        schema = json.loads((tmp_path / f"{name}.schema.json").read_bytes())
        assert schema["$id"] == f"agentload.{name}/{VERSIONS[name]}"
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for row in rows(tmp_path / f"{name}.jsonl"):
            validator.validate(row)
            assert list(row) == list(schema["properties"])


def test_a_runs_tables_follow_the_schemas_too(tmp_path: Path) -> None:
    run = make(tmp_path)
    sample = {"where": "begin", "cpu_s": 0.5, "rss_bytes": 5, "processes": 1, "host_busy_s": 2.0, "host_free_bytes": 9}
    tool = {"agent": "a0", "turn": 0, "call": "c1", "tool": "bash"}
    events(run, ("sample", 50, sample), answered(), ("tool_started", 1200 * MS, tool))
    mark(run, ("begin", 0), ("end", 2000 * MS))
    found = accounts.account(run.path)
    exported = exports.write(tmp_path / "out", exports.by_name("jsonl"), run.derived, accounts.text(found))
    counts = {}
    for name, table in TABLES.items():
        written = rows(tmp_path / "out" / f"{name}.jsonl")
        counts[name] = len(written)
        for row in written:
            jsonschema.validate(row, table.json_schema(), jsonschema.Draft202012Validator)
    # A request, its prefill and decode and a tool call that was broken off, the whole and one agent and four buckets.
    assert counts == exported.rows == {"requests": 1, "phases": 3, "segments": 6, "samples": 1}
    assert (tmp_path / "out" / "account.json").read_text(encoding="utf-8") == accounts.text(found)


def test_a_row_that_breaks_the_schema_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    """The schemas must be able to say no."""
    export(tmp_path, DS4, "jsonl")
    first = rows(tmp_path / "phases.jsonl")[0]
    validator = jsonschema.Draft202012Validator(TABLES["phases"].json_schema())
    assert validator.is_valid(first)
    for wrong in ({"tokens": -1}, {"phase": "idle"}, {"start": None}, {"start_line": 1.5}, {"new": 1}):
        assert not validator.is_valid({**first, **wrong}), wrong
    assert not validator.is_valid({name: value for name, value in first.items() if name != "end_line"})


def test_columns_and_types_of_the_tables_are_those_of_the_schemas() -> None:
    kinds = {pl.Int64: "integer", pl.Float64: "number", pl.String: "string"}
    stored = {
        "requests": tables.request_schema(),
        "phases": tables.PHASES,
        "segments": tables.SEGMENTS,
        "samples": tables.SAMPLES,
    }
    for name, columns in stored.items():
        assert [(one.name, one.kind) for one in TABLES[name].stored] == [
            (column, kinds[type(kind)]) for column, kind in columns.items()
        ]


def test_every_column_has_a_meaning_and_those_with_a_unit_in_their_name_that_unit() -> None:
    endings = {"_ns": "ns", "_ms": "ms", "_tokens": "tokens", "_tok_s": "tok/s", "_bytes": "bytes", "_offset": "bytes"}
    for table in TABLES.values():
        assert len({column.name for column in table.columns}) == len(table.columns)
        for column in table.columns:
            assert len(column.meaning) > 4, column.name
            ending = next((end for end in endings if column.name.endswith(end)), None)
            if ending is not None and not column.name.startswith("unknown_"):
                assert column.unit == endings[ending], column.name


# ---- what an export computes ---------------------------------------------------------------------------------------


def computed(**known: Any) -> dict[str, Any]:
    one: Request = request(**known)
    (row,) = exports.complete(TABLES["requests"], tables.requests_table([one])).rows(named=True)
    names = ("prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms")
    return {name: row[name] for name in names}


def test_public_names_hold_milliseconds_from_sending() -> None:
    whole = computed(
        t_sent=1_000 * MS,
        prefill_start=1_250 * MS,
        prefill_end=2_250 * MS + 500_000,
        t_first_token=2_300 * MS,
        t_done=5_000 * MS,
        prefill_source=Source.LOG,
    )
    assert whole == {
        "prefill_wait_time_ms": 250.0,
        "prefill_time_ms": 1000.5,
        "ttft_ms": 1300.0,
        "total_time_ms": 4000.0,
    }


def test_a_window_of_the_clients_clock_is_no_prefill_time() -> None:
    known = {"t_sent": 0, "prefill_start": 0, "prefill_end": 9 * MS, "t_first_token": 9 * MS}
    window = computed(**known, prefill_source=Source.CLIENT)
    assert (window["prefill_wait_time_ms"], window["prefill_time_ms"], window["ttft_ms"]) == (None, None, 9.0)
    by_usage = computed(**known, prefill_source=Source.USAGE)
    assert (by_usage["prefill_wait_time_ms"], by_usage["prefill_time_ms"]) == (None, 9.0)


def test_a_prefill_that_would_begin_before_it_was_sent_has_no_wait() -> None:
    """A log of whole seconds: the wait is not known, what the prefill took is."""
    early = computed(t_sent=1_000 * MS, prefill_start=927 * MS, prefill_end=1_927 * MS, prefill_source=Source.LOG)
    assert (early["prefill_wait_time_ms"], early["prefill_time_ms"]) == (None, 1000.0)
    at_once = computed(t_sent=1_000 * MS, prefill_start=1_000 * MS, prefill_source=Source.LOG)
    assert at_once["prefill_wait_time_ms"] == 0.0


def test_what_only_the_log_knows_has_no_time_from_sending() -> None:
    alone = computed(prefill_start=5, prefill_end=MS + 5, prefill_source=Source.LOG)
    assert alone == {
        "prefill_wait_time_ms": None,
        "prefill_time_ms": 1.0,
        "ttft_ms": None,
        "total_time_ms": None,
    }


# ---- files ---------------------------------------------------------------------------------------------------------


def test_both_formats_hold_the_same_rows(tmp_path: Path) -> None:
    export(tmp_path / "a", DS4, "jsonl")
    export(tmp_path / "b", DS4, "parquet")
    for name in logfile.TABLES:
        assert pl.read_parquet(tmp_path / "b" / f"{name}.parquet").rows(named=True) == rows(
            tmp_path / "a" / f"{name}.jsonl"
        )
        assert (
            pl.read_parquet_metadata(tmp_path / "b" / f"{name}.parquet")["schema"]
            == f"agentload.{name}/{VERSIONS[name]}"
        )


@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_the_same_log_is_exported_as_the_same_bytes(to: str, tmp_path: Path) -> None:
    first, second = export(tmp_path / "a", DS4, to), export(tmp_path / "b", DS4, to)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in first)


def test_nothing_is_overwritten_and_nothing_is_left_half_done(tmp_path: Path) -> None:
    (tmp_path / "phases.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"phases\.jsonl is there already: nothing is overwritten"):
        export(tmp_path, DS4, "jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["phases.jsonl"]
    assert (tmp_path / "phases.jsonl").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_made_is_an_artifact_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot be written"):
        export(tmp_path / "file" / "out", DS4, "jsonl")


def test_a_table_of_an_older_account_is_refused_with_its_missing_column(tmp_path: Path) -> None:
    logfile.read_file(DS4).write(tmp_path)
    tables.write(tmp_path, "phases", pl.read_parquet(tmp_path / "phases.parquet").drop("start_line"))
    with pytest.raises(ArtifactError, match=r"phases: expected the columns of agentload\.phases/1, start_line is not"):
        exports.write(tmp_path / "out", exports.by_name("jsonl"), tmp_path, "{}")
    assert not (tmp_path / "out").exists()


def test_an_unknown_format_is_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"there is csv, jsonl, parquet"):
        exports.by_name("xlsx")


def test_every_export_is_one_file_and_one_line_in_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["entry-points"]["agentload.exports"]
    assert exports.names() == sorted(wanted)
    modules = {path.stem for path in (ROOT / "agentload" / "report" / "export").glob("*.py")} - {"__init__"}
    assert {value.partition(":")[0].rpartition(".")[2] for value in wanted.values()} == modules
