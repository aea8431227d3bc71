"""Is a log behind other programs' prefixes never read silently, with the same exit codes as any unknown log?"""

from pathlib import Path

import pytest

from tests.program import program

DS4 = (Path(__file__).resolve().parents[1] / "serverlogs" / "ds4" / "single.log").read_bytes()
LINES = len(DS4.splitlines())


def write(folder: Path, prefix: bytes) -> bytes:
    data = b"".join(prefix + line + b"\n" for line in DS4.splitlines())
    (folder / "j.log").write_bytes(data)
    return data


JOURNAL = b"Nov 30 04:22:54 box ds4-server[812]: "
COMMAND = "sed -E 's/^[A-Z][a-z]{2} [ 0-9][0-9] [0-9:.]+ ([^ :]+ )?[^ ]+: //'"


@pytest.mark.parametrize("command", [("account",), ("export", "--to", "csv")], ids=["account", "export"])
def test_without_a_format_it_is_a_log_without_requests_and_the_command_is_said(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    write(tmp_path, JOURNAL)
    done = program(*command, "j.log", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("agentload: no request found in j.log: ")
    assert f"`{COMMAND} j.log | agentload account -`" in done.stderr
    assert "`journalctl -u UNIT -o cat`" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["j.log"]


@pytest.mark.parametrize("named", ["ds4", "llamacpp"])
def test_with_a_format_it_is_an_error_of_one_line_with_the_command(named: str, tmp_path: Path) -> None:
    write(tmp_path, JOURNAL)
    done = program("account", "--format", named, "j.log", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"agentload: --format {named}: none of the {LINES} lines of j.log is of it")
    assert f"`{COMMAND} j.log | agentload account -`" in done.stderr


@pytest.mark.parametrize("named", ["vllm", "sglang"])
def test_readers_that_ignore_what_they_do_not_know_at_a_servers_start_do_not_hide_it(
    named: str, tmp_path: Path
) -> None:
    write(tmp_path, JOURNAL)
    done = program("account", "--format", named, "j.log", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert f"`{COMMAND} j.log | agentload account -`" in done.stderr


def test_on_stdin_the_command_begins_with_what_wrote_it(tmp_path: Path) -> None:
    done = program("account", "-", cwd=tmp_path, stdin=write(tmp_path, b"ds4-1  | "))
    assert done.returncode == 1
    assert "`... | sed -E 's/^([0-9]+\\|)?[^ |]+ +\\| //' | agentload account -`" in done.stderr


def test_a_log_without_a_prefix_is_told_nothing_of_it(tmp_path: Path) -> None:
    done = program("account", "-", cwd=tmp_path, stdin=DS4)
    assert done.returncode == 0
    assert "behind" not in done.stdout + done.stderr


def test_a_log_of_json_is_a_log_without_requests_and_what_to_do_is_said(tmp_path: Path) -> None:
    (tmp_path / "j.log").write_bytes(b'{"levelname": "INFO", "message": "Application startup complete."}\n' * 5)
    done = program("account", "j.log", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("agentload: no request found in j.log: its lines are JSON, ")
