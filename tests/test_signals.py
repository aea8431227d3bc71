"""Do SIGTERM and SIGHUP end each command as Ctrl-C does: tidied up, in one line, and with the exit code of the signal?

The program is a process of its own with plugins of a user's distribution, which say where it stands and wait there.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.processes import WAIT_S, gone, still_there
from tests.program import ENV, program

LOG: Final = Path(__file__).resolve().parent / "serverlogs" / "ds4" / "truth_batched6_q128.log"
# A test run may be started with some signals ignored, and a child would inherit that.
PROGRAM: Final = """
import signal
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from agentload.cli import main
main()
"""
# An export that writes a byte, says so, and goes on when a line comes on stdin; a command that gets signals.
PLUGIN: Final = r"""
import os, signal, sys

class Slow:
    suffix = ".slow"

    def write(self, path, parts, table):
        with path.open("xb") as file:
            file.write(b"x")
            os.write(2, b"writing\n")  # a stream that a signal interrupts may write twice
            sys.stdin.readline()

SLOW = Slow()

def thrice():
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.raise_signal(signal.SIGHUP)
        print("tidied", flush=True)
        signal.raise_signal(signal.SIGTERM)
        print("not reached", flush=True)
"""
ENTRY_POINTS: Final = (
    "[agentload.exports]\nslow = slow_plugin:SLOW\n[agentload.commands]\nthrice = slow_plugin:thrice\n"
)
SIGNALS: Final = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """With the plugins, a cache and a folder for temporary files."""
    plugins = tmp_path / "plugins"
    (plugins / "slow-1.0.dist-info").mkdir(parents=True)
    (plugins / "slow_plugin.py").write_text(PLUGIN)
    (plugins / "slow-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (plugins / "slow-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "tmp").mkdir()
    there = {"PYTHONPATH": str(plugins), "TMPDIR": str(tmp_path / "tmp"), "AGENTLOAD_CACHE": str(tmp_path / "cache")}
    return dict(os.environ) | ENV | there


@contextmanager
def running(env: dict[str, str], *arguments: str, before: tuple[str, ...] = ()) -> Iterator["subprocess.Popen[str]"]:
    """The program, which is killed should the test fail."""
    command = [*before, sys.executable, "-c", PROGRAM, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def exporting(env: dict[str, str], out: Path) -> Iterator["subprocess.Popen[str]"]:
    """An export that has begun to write its first table."""
    with running(env, "export", str(LOG), "--to", "slow", "--out", str(out)) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "writing\n"
        yield process


def export(env: dict[str, str], out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "export", str(LOG), "--to", "jsonl", "--out", str(out)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


TABLES: Final = ["requests", "phases", "segments", "samples"]


def written(folder: Path) -> list[str]:
    """What an export of a log leaves in `folder`, by its account: that, each of the tables in it, and their schemas."""
    there = [name for name in TABLES if (folder / f"{name}.jsonl").exists()]
    tables = [f"{name}{ending}" for name in there for ending in (".jsonl", ".schema.json")]
    return sorted(["account.json", "account.schema.json", *tables])


# ---- a git server that says nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_a_corpus_add_and_the_git_that_waits_for_its_server(
    number: int, code: int, env: dict[str, str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_S)
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/x.git"
        with running(env, "corpus", "add", url, "--name", "x", "--to", str(tmp_path / "pins")) as process:
            git, _ = silent.accept()
            with git:
                git.settimeout(WAIT_S)
                with git.makefile("rb") as said:
                    asked = said.read(int(said.read(4), 16) - 4)
                assert asked.startswith(b"git-upload-pack /x.git\0")
                process.send_signal(number)
                told = process.communicate()
                assert git.recv(1) == b""  # whoever held its end of the connection is gone
    assert (process.returncode, *told) == (code, "", "agentload: interrupted\n")
    assert names(tmp_path / "cache" / "fetching") == []
    assert names(tmp_path / "pins") == []


def test_a_signal_in_the_very_moment_of_its_start_ends_git_too(env: dict[str, str], tmp_path: Path) -> None:
    real, number = shutil.which("git"), tmp_path / "number"
    script = (
        '#!/bin/sh\ncase "$*" in *ls-remote*)\n'
        f'  echo $$ >"{number}"; kill -TERM $PPID; exec sleep 1000;;\nesac\nexec "{real}" "$@"\n'
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(script)
    (tmp_path / "bin" / "git").chmod(0o755)
    env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
    with running(env, "corpus", "add", "git://127.0.0.1:9/x.git", "--to", str(tmp_path / "pins")) as process:
        told = process.communicate()
    assert (process.returncode, *told) == (143, "", "agentload: interrupted\n")
    assert gone(*still_there([int(number.read_text())]))
    assert names(tmp_path / "cache" / "fetching") == []


# ---- tables that are being written ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_tables_are_written_leaves_nothing(
    number: int, code: int, env: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with exporting(env, out) as process:
        (hidden,) = names(out)
        (temporary,) = names(tmp_path / "tmp")
        assert hidden.startswith(".agentload-")
        assert temporary.startswith("agentload-")
        process.send_signal(number)
        told = process.communicate()
    assert (process.returncode, *told) == (code, "", "agentload: interrupted\n")
    assert not out.exists()
    assert names(tmp_path / "tmp") == []


def test_what_a_killed_export_left_goes_with_the_next_one(env: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with exporting(env, out) as process:
        process.kill()
        process.wait()
    assert (len(names(out)), len(names(tmp_path / "tmp"))) == (1, 1)
    done = export(env, out)
    assert (done.returncode, done.stderr) == (0, "")
    assert names(out) == written(out)
    assert (out / "requests.jsonl").read_bytes().count(b"\n") == 30  # as many as the log was made with
    assert names(tmp_path / "tmp") == []


def test_what_a_living_export_is_writing_stays_while_another_one_writes_there(
    env: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with exporting(env, out) as process:
        (hidden,) = names(out)
        (temporary,) = names(tmp_path / "tmp")
        assert export(env, out).returncode == 0
        assert names(out) == sorted([hidden, *written(out)])
        assert (out / hidden / "requests.slow").is_file()
        assert names(tmp_path / "tmp") == [temporary]
        assert (tmp_path / "tmp" / temporary / "requests.parquet").is_file()
        told = process.communicate("\n" * len(TABLES))
    assert process.returncode == 2
    assert told[1].splitlines()[-1] == (
        f"agentload: {out / 'account.json'} is there already: nothing is overwritten; name another folder with --out"
    )
    assert names(out) == written(out)
    assert names(tmp_path / "tmp") == []


# ---- how signals are heard -----------------------------------------------------------------------------------------


def test_a_hangup_that_nohup_has_ignored_stays_ignored(env: dict[str, str], tmp_path: Path) -> None:
    # As under nohup, which would also write of its own on stderr.
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    plain = "from agentload.cli import main; main()"
    command = [sys.executable, "-c", ignoring, sys.executable, "-c", plain]
    pipe = subprocess.PIPE
    export_slowly = ("export", str(LOG), "--to", "slow", "--out", str(tmp_path / "out"))
    with subprocess.Popen([*command, *export_slowly], env=env, stdin=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "writing\n"
        process.send_signal(signal.SIGHUP)
        process.communicate("\n" * len(TABLES))
    assert process.returncode == 0
    assert (tmp_path / "out" / "account.json").is_file()


def test_a_second_signal_lets_the_tidying_be_and_a_third_one_ends_it(env: dict[str, str]) -> None:
    with running(env, "thrice") as process:
        told = process.communicate()
    assert (process.returncode, *told) == (-signal.SIGTERM, "tidied\n", "")


def test_a_signal_ends_a_log_that_does_not_end_and_what_came_is_shown(env: dict[str, str]) -> None:
    filler = "filler\n" * 20_000  # 140,000 bytes: a pipe holds 65,536
    with running(env, "account", "-") as process:
        assert process.stdin is not None
        # When all of the filler is written, what the pipe still holds is filler: the log has been read.
        process.stdin.write(LOG.read_text() + filler)
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate()
    assert process.returncode == 143
    assert "requests 30: told apart by the log 30" in " ".join(stdout.split())
    assert stderr.startswith("agentload: interrupted: this is of the ")


def test_what_was_set_for_the_signals_is_so_again_after_the_program() -> None:
    def stop(number: int, frame: object) -> None:
        raise AssertionError((number, frame))

    before = [
        signal.signal(number, handler) for number, handler in ((signal.SIGTERM, stop), (signal.SIGHUP, signal.SIG_DFL))
    ]
    try:
        assert program("--version").returncode == 0
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == [stop, signal.SIG_DFL]
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)


def test_the_program_can_be_called_in_a_thread_which_may_set_no_handler() -> None:
    codes: list[int] = []
    caller = threading.Thread(target=lambda: codes.append(program("--version").returncode))
    caller.start()
    caller.join()
    assert codes == [0]
