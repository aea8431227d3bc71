"""Is the system asked to stay awake, as long as we live and no longer, and is it said where it cannot be?"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from agentload.run.keep_awake import kept_awake
from tests.processes import gone, still_there
from tests.run.runs import ROOT


def program(folder: Path, name: str, script: str) -> Path:
    """A program that first writes down its process id and what it was given."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$$ $*" > {folder}/given\n{script}\n')
    path.chmod(0o755)
    return path


def given(folder: Path) -> tuple[int, str]:
    pid, _, words = (folder / "given").read_text().strip().partition(" ")
    return int(pid), words


# As systemd-inhibit does: its own options first, then the command, which it starts and waits for.
INHIBIT = 'while case "$1" in --*) true;; *) false;; esac; do shift; done\n"$@"'


def test_systemd_holds_while_the_block_lasts(tmp_path: Path) -> None:
    path = program(tmp_path, "systemd-inhibit", INHIBIT)
    said: list[str] = []
    with kept_awake(said.append, system="linux", which=lambda _: str(path)) as kept:
        pid, words = given(tmp_path)
        assert kept
        assert psutil.pid_exists(pid)
        assert words.startswith("--what=sleep:idle --who=agentload ")
    assert not psutil.pid_exists(pid)
    assert said == []


def test_caffeinate_watches_our_process_and_is_ended_with_the_block(tmp_path: Path) -> None:
    path = program(tmp_path, "caffeinate", "exec sleep 600")
    os.mkfifo(tmp_path / "given")  # read below: it is written once the program runs
    said: list[str] = []
    with kept_awake(said.append, system="darwin", which=lambda _: str(path)) as kept:
        pid, words = given(tmp_path)
        assert (kept, words) == (True, f"-i -w {os.getpid()}")
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)
    assert said == []


def test_a_system_that_refuses_is_told_with_its_words(tmp_path: Path) -> None:
    path = program(tmp_path, "systemd-inhibit", "echo 'Failed to connect to bus: No such file' >&2; exit 1")
    said: list[str] = []
    with kept_awake(said.append, system="linux", which=lambda _: str(path)) as kept:
        assert not kept
    (line,) = said
    assert line == (
        "the machine is not kept awake: systemd-inhibit: Failed to connect to bus: No such file; "
        "it must not go to sleep until the experiment ends"
    )


def test_a_system_that_does_not_answer_is_not_waited_for_long(tmp_path: Path) -> None:
    path = program(tmp_path, "systemd-inhibit", "exec cat")
    said: list[str] = []
    with kept_awake(said.append, system="linux", which=lambda _: str(path), answer_s=0.01):
        pass
    assert said[0].startswith("the machine is not kept awake: systemd-inhibit: no answer; ")


@pytest.mark.parametrize(("system", "name"), [("linux", "systemd-inhibit"), ("darwin", "caffeinate")])
def test_a_system_without_the_program_is_told_once(system: str, name: str) -> None:
    said: list[str] = []
    with kept_awake(said.append, system=system, which=lambda _: None) as kept:
        assert not kept
    assert said == [
        f"the machine is not kept awake: there is no {name}; it must not go to sleep until the experiment ends"
    ]


DIES = """
import os, signal, sys
from agentload.run.keep_awake import kept_awake
with kept_awake(print, system="linux", which=lambda _: sys.argv[1]) as kept:
    print(kept, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_of_ours_lets_the_system_go(tmp_path: Path) -> None:
    path = program(tmp_path, "systemd-inhibit", INHIBIT)
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "True\n")
    pid, _ = given(tmp_path)
    assert gone(*still_there([pid]))  # its cat reads the end of the pipe
