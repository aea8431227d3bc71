"""The program in this process: what its `main` prints and how it ends, without half a second to start it each time.

That a process of its own does the same is tested once for each command, where `started` is used; so is what only a
process can show (streams that are closed or full, signals, what is imported).
"""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload import cli

PROGRAM: Final = Path(sys.executable).with_name("agentload")
# As a pipe's reader gets it: no colours, and lines of a known width.
ENV: Final = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
_NOT_OURS: Final = ("OPENAI_BASE_URL", "OPENAI_API_KEY")


@dataclass(frozen=True)
class Done:
    """How the program ended, and what it printed; each line is what `main` wrote, decoded as UTF-8."""

    returncode: int
    stdout: str
    stderr: str


def program(*arguments: str, cwd: Path | None = None, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
    """Call `main` with these arguments, standard input, folder and environment (beside this process' own)."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: int | str | None = None
    with _as_if(arguments, io.TextIOWrapper(io.BytesIO(stdin), "utf-8"), cwd, env):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                cli.main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)  # `main` always says
    return Done(code, _written(out), _written(err))


def started(
    *arguments: str, cwd: Path | None = None, stdin: bytes | None = None, env: Mapping[str, str] | None = None
) -> Done:
    """Start the program that was installed, as a user would."""
    ours = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    done = subprocess.run(
        [PROGRAM, *arguments], cwd=cwd, input=stdin, env=ours | ENV | dict(env or {}), capture_output=True, check=False
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def _as_if(
    arguments: tuple[str, ...], stdin: io.TextIOWrapper, cwd: Path | None, env: Mapping[str, str] | None
) -> Iterator[None]:
    before = dict(os.environ), sys.argv, sys.stdin
    sys.argv, sys.stdin = [str(PROGRAM), *arguments], stdin
    os.environ.update(ENV | dict(env or {}))
    for name in _NOT_OURS:
        if name not in (env or {}):
            os.environ.pop(name, None)
    try:
        with contextlib.chdir(cwd if cwd is not None else Path.cwd()):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.argv, sys.stdin = before[1], before[2]


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")
