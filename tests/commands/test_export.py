"""Does `agentload export` write where it says, name it on the last line, and refuse what it cannot do?"""

import json
from pathlib import Path

import pytest

from tests.analysis.test_account import answered, make, mark
from tests.analysis.test_evidence import events
from tests.program import program, started

TRUTH = Path(__file__).resolve().parents[1] / "serverlogs" / "ds4" / "truth_batched6_q128.log"
TABLES = ("requests", "phases", "segments")  # of a log


@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_a_log_is_exported_to_a_folder_named_after_it(to: str, tmp_path: Path) -> None:
    done = program("export", str(TRUTH), "--to", to, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["requests: 30 rows, agentload.requests/1", "phases: 60 rows, agentload.phases/1"]
    folder = tmp_path / lines[-1]
    assert folder == tmp_path / "exports" / f"{TRUTH.name}-{to}"
    expected = {f"{name}.{ending}" for name in TABLES for ending in (to, "schema.json")}
    assert {path.name for path in folder.iterdir()} == expected | {"account.json", "account.schema.json"}


def test_a_run_is_exported_with_its_own_account(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2_000_000_000))
    done = program("export", str(run.path), "--to", "jsonl", "--out", "here", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["folder"], told["rows"]["requests"], told["rows"]["phases"]) == ("here", 1, 2)
    assert all((tmp_path / name).is_file() for name in told["files"])
    row = json.loads((tmp_path / "here" / "requests.jsonl").read_text(encoding="utf-8"))
    # Sent at 100 ms, first token at 600 ms, done at 1,100 ms; by the answer's timings 200 ms of prefill.
    assert (row["run"], row["ttft_ms"], row["total_time_ms"], row["prefill_time_ms"]) == (run.name, 500, 1000, 200)
    account = json.loads((tmp_path / "here" / "account.json").read_text(encoding="utf-8"))
    assert account["run"] == run.name


def test_a_log_on_stdin_is_exported(tmp_path: Path) -> None:
    done = started("export", "-", "--to", "jsonl", cwd=tmp_path, stdin=TRUTH.read_bytes())
    assert done.stdout.splitlines()[-1] == "exports/stdin-jsonl"
    assert len((tmp_path / "exports" / "stdin-jsonl" / "requests.jsonl").read_bytes().splitlines()) == 30


def test_a_log_without_a_request_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.log").touch()
    done = program("export", "s.log", "--to", "jsonl", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "agentload: no request found: s.log is empty\n"
    assert [path.name for path in tmp_path.iterdir()] == ["s.log"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((str(TRUTH), "--to", "xlsx"), "--to: expected one of csv, jsonl, parquet, got 'xlsx'"),
        ((str(TRUTH),), "Missing option '--to'"),
        (("none", "--to", "jsonl"), "there is no none"),
        ((str(TRUTH), "--to", "jsonl", "--out", "taken"), "phases.jsonl is there already: nothing is overwritten"),
    ],
    ids=["unknown format", "no format", "missing", "taken"],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "phases.jsonl").touch()
    done = program("export", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_tables_that_are_gone_are_made_anew(tmp_path: Path) -> None:
    run = make(tmp_path)
    events(run, answered())
    mark(run, ("begin", 0), ("end", 2_000_000_000))
    program("account", str(run.path), cwd=tmp_path)
    before = (run.derived / "phases.parquet").read_bytes()
    (run.derived / "phases.parquet").unlink()
    done = program("export", str(run.path), "--to", "jsonl", cwd=tmp_path)
    assert done.returncode == 0
    assert (run.derived / "phases.parquet").read_bytes() == before
