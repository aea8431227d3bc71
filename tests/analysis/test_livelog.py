"""Does Ctrl-C end a log that does not end by itself, and is what came before it kept?"""

import io
import signal
import subprocess
import sys
from pathlib import Path

from agentload.analysis import logfile
from agentload.analysis.livelog import UntilInterrupted, until_interrupted

TRUTH = Path(__file__).resolve().parents[1] / "serverlogs" / "ds4" / "truth_batched6_q128.log"
# A test run may be started with SIGINT ignored, and a child would inherit that.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from agentload.cli import main
sys.argv = ["agentload", *sys.argv[1:]]
main()
"""
FILLER = b"filler\n" * 20_000  # 140,000 bytes: a pipe holds 65,536


class Pieces:
    """Gives pieces as a pipe does; None is Ctrl-C while it is waited for."""

    def __init__(self, *pieces: bytes | None) -> None:
        self._pieces = list(pieces)

    def read1(self, size: int, /) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if piece is None:
            raise KeyboardInterrupt
        if rest := piece[size:]:
            self._pieces.insert(0, rest)
        return piece[:size]


def test_pieces_are_gathered_until_there_are_as_many_bytes_as_wanted() -> None:
    stream = UntilInterrupted(Pieces(b"abc", b"defg", b"h"))
    assert [stream.read(5), stream.read(5), stream.read(5)] == [b"abcde", b"fgh", b""]
    assert not stream.interrupted


def test_what_came_before_ctrl_c_is_given_and_then_the_stream_has_ended() -> None:
    stream = UntilInterrupted(Pieces(b"abc", b"de", None, b"late"))
    assert [stream.read(100), stream.read(100)] == [b"abcde", b""]
    assert stream.interrupted


def test_a_file_on_a_disk_is_read_as_it_is() -> None:
    with TRUTH.open("rb") as file:
        assert until_interrupted(file) is file
    held = io.BytesIO(b"x")
    assert until_interrupted(held) is held


def test_an_account_that_was_interrupted_is_of_what_came_and_says_so_first() -> None:
    data = TRUTH.read_bytes()
    stream = UntilInterrupted(Pieces(data[:5_000], None))
    found = logfile.read_stream(stream, "stdin").found
    assert (found["interrupted"], found["log"]["bytes"]) == (True, 5_000)
    assert found["doubts"][0]["code"] == "log-interrupted"
    assert "after 5,000 bytes" in found["doubts"][0]["message"]
    assert logfile.read_stream(io.BytesIO(data), "stdin").found["interrupted"] is False


def test_ctrl_c_shows_what_a_live_pipe_gave_so_far_and_ends_as_interrupted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "account", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        # When all of the filler is written, what the pipe still holds is filler: the log has been read.
        process.stdin.write(TRUTH.read_bytes() + FILLER)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    text = " ".join(stdout.decode().split())
    assert process.returncode == 130, stderr.decode()
    assert "requests 30: told apart by the log 30" in text
    assert "doubt (log-interrupted): reading was interrupted after " in text
    (line,) = stderr.decode().splitlines()
    assert line.startswith("agentload: interrupted: this is of the ")
