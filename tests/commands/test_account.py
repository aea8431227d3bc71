"""Does `agentload account` keep data on stdout, words for people on stderr, and its exit codes?"""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.program import program, started

TRUTH = Path(__file__).resolve().parents[1] / "serverlogs" / "ds4" / "truth_batched6_q128.log"


def test_a_logs_account_is_shown_and_how_to_get_its_tables_is_said(tmp_path: Path) -> None:
    done = program("account", str(TRUTH), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"log {TRUTH.name}: ds4 (detected), {TRUTH.stat().st_size:,} bytes\nlines 667 =")
    assert done.stderr.startswith("nothing was written; for the tables: agentload account ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "word"), [("-", "-"), ("./-x.log", "./-x.log"), ("two words.log", "'two words.log'")]
)
def test_the_command_for_the_tables_names_the_log_as_a_shell_takes_it(given: str, word: str, tmp_path: Path) -> None:
    if given != "-":
        (tmp_path / given).write_bytes(TRUTH.read_bytes())
    done = program("account", given, cwd=tmp_path, stdin=TRUTH.read_bytes() if given == "-" else b"")
    said = f"nothing was written; for the tables: agentload account {word} --out DIR, or agentload export"
    assert (done.returncode, done.stderr) == (0, f"{said}\n")


def test_json_has_the_keys_that_programs_count_on_and_nothing_else_is_on_stdout(tmp_path: Path) -> None:
    done = program("account", str(TRUTH), "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert found["schema"] == "agentload.log-account/1"
    assert [found["lines"][kind] for kind in ("understood", "ignored", "unknown")] == [667, 0, 0]
    assert [found["requests"][kind] for kind in ("total", "matched", "ambiguous")] == [30, 30, 0]
    assert {"settings", "segments", "clock"} <= set(found)


def test_out_writes_the_account_and_its_tables_and_never_twice(tmp_path: Path) -> None:
    done = program("account", str(TRUTH), "--out", "tables", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "tables"
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    stems = ("account", "phases", "requests", "segments")  # nobody looked at the server: there are no samples
    assert names == {"account.json", *(f"{one}.parquet" for one in stems[1:]), *(f"{one}.schema.json" for one in stems)}
    requests = pl.read_parquet(tmp_path / "tables" / "requests.parquet")
    # By grep: line 24 says of the request that starts at line 5 that its prompt was done after 52.076 s.
    assert requests.filter(prefill_proof_line=24)["prefill_time_ms"].to_list() == [52_076.0]
    assert requests.height == 30
    again = program("account", str(TRUTH), "--out", "tables", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == (
        "agentload: tables/account.json is there already: nothing is overwritten; name another folder with --out\n"
    )


def test_a_log_on_stdin_is_read(tmp_path: Path) -> None:
    for done in (one("account", "-", "--json", cwd=tmp_path, stdin=TRUTH.read_bytes()) for one in (program, started)):
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["log"] == {
            "name": "stdin",
            "bytes": TRUTH.stat().st_size,
            "format": "ds4",
            "named": False,
        }


@pytest.mark.parametrize(
    ("content", "stdout", "stderr"),
    [
        (b"", "log s.log: of no known format, 0 bytes", "no request found: s.log is empty"),
        (b"GET /\n", "  unknown, line 1: GET /", "none of its 1 lines is of a known format"),
        (
            b"0914 12:00:02 ds4-server: listening on http://127.0.0.1:8000\n",
            "listening",
            "no request found in s.log: 1 of 1 lines are of ds4, none of them of a request",
        ),
    ],
    ids=["empty", "another program's", "start only"],
)
def test_a_log_without_a_request_is_a_negative_finding(
    content: bytes, stdout: str, stderr: str, tmp_path: Path
) -> None:
    (tmp_path / "s.log").write_bytes(content)
    done = program("account", "s.log", cwd=tmp_path)
    assert done.returncode == 1
    assert stdout in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert stderr in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("s.log", "--format", "nope"), "--format: expected one of ds4, "),
        (("s.log", "--format", "llamacpp"), "--format llamacpp: none of the first "),
        (("t.log",), "there is no t.log; near it: s.log"),
        ((".",), "expected a run directory (with manifest.json), . is none; for a log in it name the file: s.log"),
        (
            ("new.log", "old.log"),
            "got 2: new.log, old.log; parts of one log, the oldest first: `cat OLDER NEWER | agentload account -`",
        ),
        (("s.log", "--out", "a" * 300), "aaa: cannot be written: File name too long"),
        (("s.log", "--segment", "s1"), "--segment: expected one that s.log has: log; got 's1'"),
        (("packed",), "packed: expected a log as text, it is packed (gzip): `zcat packed | agentload account -`"),
    ],
    ids=["unknown format", "wrong format", "missing", "directory", "two", "long name", "no such segment", "packed"],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "s.log").write_bytes(TRUTH.read_bytes())
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\x08")
    done = program("account", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_options_for_a_log_are_refused_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    done = program("account", ".", "--format", "ds4", cwd=tmp_path)
    assert done.returncode == 2
    assert "--format, --segment and --out are for a log; . is a run" in done.stderr


def test_the_help_names_the_formats_the_exit_codes_and_a_command_for_each_kind_of_log(tmp_path: Path) -> None:
    text = " ".join(program("account", "--help", cwd=tmp_path).stdout.replace("│", " ").split())
    assert "ds4, llamacpp, otlp, sglang, sglang-export, vllm" in text
    for command in ("cat server.log.1 server.log |", "zcat server.log.gz |", "ssh HOST tail -n +1 -f server.log |"):
        assert f"{command} agentload account -" in text
    assert "130 after Ctrl-C" in text
    exported = " ".join(program("export", "--help", cwd=tmp_path).stdout.replace("│", " ").split())
    assert "`agentload account LOG --out DIR` writes the same as --to parquet" in exported


@pytest.mark.parametrize("command", ["report", "diagnose"])
def test_commands_for_runs_name_the_one_for_logs(command: str, tmp_path: Path) -> None:
    (tmp_path / "s.log").write_bytes(TRUTH.read_bytes())
    done = program(command, "s.log", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "agentload: expected a run directory, s.log is a file: a server's log is read by `agentload account s.log`\n"
    )


def test_account_with_out_writes_the_files_that_export_to_parquet_writes(tmp_path: Path) -> None:
    program("account", str(TRUTH), "--out", "a", cwd=tmp_path)
    program("export", str(TRUTH), "--to", "parquet", "--out", "b", cwd=tmp_path)
    names = sorted(path.name for path in (tmp_path / "b").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 8
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
