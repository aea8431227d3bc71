"""How does the machine stay awake while an experiment works, also when nobody touches it all night?

A child of ours asks the system for it, as long as we live: `caffeinate` on macOS (it watches our process), else
`systemd-inhibit`, which holds while a `cat` reads a pipe whose other end only we have. A kill -9 of ours ends both.
"""

import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_ANSWER_S: Final = 10.0  # for the system's consent: over D-Bus it takes some ms
_END_S: Final = 5.0
_HELD: Final = "held"

Which = Callable[[str], str | None]


@contextmanager
def kept_awake(
    say: Callable[[str], None], *, system: str = sys.platform, which: Which = shutil.which, answer_s: float = _ANSWER_S
) -> Iterator[bool]:
    """Keep the machine awake during the block; where that cannot be, say why, once. Yields whether it is kept awake.

    Args:
        say: takes one line.
        system: sys.platform.
        which: finds a program: shutil.which.
        answer_s: how long the system may take to consent.
    """
    child, trouble = _start(system, which, answer_s)
    if trouble is not None:
        say(f"the machine is not kept awake: {trouble}; it must not go to sleep until the experiment ends")
    try:
        yield trouble is None
    finally:
        if child is not None:
            _end(child)


def _start(system: str, which: Which, answer_s: float) -> tuple[subprocess.Popen[bytes] | None, str | None]:
    """Return the child that keeps it awake, or why there is none."""
    if system == "darwin":
        return _caffeinate(which)
    program = which("systemd-inhibit")
    if program is None:
        return None, "there is no systemd-inhibit"
    argv = [program, "--what=sleep:idle", "--who=agentload", "--why=an experiment is running", "--mode=block"]
    argv += ["sh", "-c", f"echo {_HELD}; exec cat"]
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # without a terminal nobody is asked for a password; Ctrl-C is for us alone
        )
    except OSError as error:
        return None, f"{program}: {error.strerror}"
    said = _first_line(child, answer_s)
    if said == _HELD:
        return child, None
    _end(child)
    return None, f"systemd-inhibit: {said or 'no answer'}"


def _caffeinate(which: Which) -> tuple[subprocess.Popen[bytes] | None, str | None]:
    program = which("caffeinate")
    if program is None:
        return None, "there is no caffeinate"
    try:
        child = subprocess.Popen(
            [program, "-i", "-w", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return None, f"{program}: {error.strerror}"
    return child, None


def _first_line(child: subprocess.Popen[bytes], answer_s: float) -> str:
    """What it says first; empty when it says nothing in time."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if not selector.select(answer_s):
            return ""
    return os.read(child.stdout.fileno(), 400).decode(errors="replace").partition("\n")[0].strip()


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if child.stdin is not None:
            child.stdin.close()
        else:
            child.terminate()
    try:
        child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()
