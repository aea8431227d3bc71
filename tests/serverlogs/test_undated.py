"""Are lines of ds4-server counted whose date was cut off, and no others, and does a date make them readable?"""

import subprocess
from pathlib import Path

import pytest

from agentload.serverlogs import undated
from tests.program import program

POSTED = b"""20:01:23 ds4-server: chat ctx=41448..42379:931 TOOLS prompt start
20:01:40 ds4-server: chat ctx=41448..42379:931 TOOLS prefill chunk 931/931 (100.0%) chunk=0.00 t/s avg=54.91 t/s 16.955s
20:01:40 ds4-server: chat ctx=41448..42379:931 TOOLS prompt done 16.988s
"""


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        (b"20:01:23 ds4-server: chat ctx=0..59:59 prompt start", (1, 1)),
        (b"ds4-server: batched mode enabled resident_sessions=3", (1, 0)),
        (b"chat ctx=0..59:59 prompt done 26.461s", (1, 0)),
        (b"0914 20:01:23 ds4-server: chat ctx=0..59:59 prompt start", (0, 0)),  # whole
        (b"ds4: Metal device Apple M3 Ultra, 512.00 GiB RAM", (0, 0)),  # the engine writes no stamp
        (b"ds4-server: out of memory", (0, 0)),  # nor does the server there
        (b"20:01:23 nginx: chat", (0, 0)),
        (b"say chat ctx=0..59:59 to me", (0, 0)),
    ],
)
def test_a_line_is_counted_when_its_date_is_cut_off(line: bytes, counted: tuple[int, int]) -> None:
    assert undated.count(b"hello\n" + line + b"\r\n\n") == counted


def test_one_line_says_how_many_lines_lost_their_date_and_how_to_read_them(tmp_path: Path) -> None:
    (tmp_path / "posted.log").write_bytes(POSTED)
    done = program("account", "posted.log", cwd=tmp_path)
    assert done.returncode == 1
    assert "  3 lines of ds4 without the date of a stamp, not used: a copy lost it\n" in done.stdout
    assert done.stderr == (
        "agentload: no request found in posted.log: 3 lines of ds4 without the date of a stamp, not used: a copy "
        "lost it; with 1 January as their date: "
        "`sed -E 's/^[0-9:]{8} ds4-server: /0101 &/' posted.log | agentload account -`\n"
    )


def test_with_the_date_that_the_command_gives_them_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "posted.log").write_bytes(POSTED)
    command = f"{undated.COMMAND} posted.log"
    dated = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True, cwd=tmp_path).stdout
    done = program("account", "-", cwd=tmp_path, stdin=dated)
    assert done.returncode == 0
    assert "lines 3 = understood 3 + ignored on purpose 0 + markers 0 + unknown 0\n" in done.stdout
    # 42,379 tokens of prompt, of which 41,448 stood there; 931 / 16.988 s = 54.8
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("all")][:2] == [
        ["all", "1", "42,379", "41,448", "931", "0", "0"],
        ["all", "17.0", "17.0", "1.00", "54.8", "100.0", "%"],
    ]


def test_the_half_of_a_line_that_was_put_together_again_lost_no_date(tmp_path: Path) -> None:
    torn = b"0914 20:01:22 \nds4-server: listening on http://127.0.0.1:8000\nforeign\n"
    done = program("account", "-", cwd=tmp_path, stdin=torn)
    assert "doubt (torn-lines)" in done.stdout
    assert "without the date" not in done.stdout
    cut = program("account", "-", cwd=tmp_path, stdin=torn + POSTED)
    assert "  3 lines of ds4 without the date of a stamp" in cut.stdout


def test_beside_lines_that_are_whole_the_others_are_told_of(tmp_path: Path) -> None:
    whole = b"0914 20:01:22 ds4-server: batched mode enabled resident_sessions=3 prefill_quantum=2048 "
    whole += b"mixed_prefill_quantum=128 decode_coalesce_us=2000\n"
    (tmp_path / "mixed.log").write_bytes(whole + b"chat ctx=0..59:59 prompt done 26.461s\n")
    done = program("account", "mixed.log", cwd=tmp_path)
    assert "  1 line of ds4 without the date of a stamp, not used: a copy lost it\n" in done.stdout
    assert "of ds4 without" not in program("account", "-", cwd=tmp_path, stdin=whole).stdout
