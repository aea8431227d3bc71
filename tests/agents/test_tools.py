"""Does the model read what is there, within its limit, and one clear line where there is nothing to read?"""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents.sandbox import Namespaces, Place, Shell
from agentload.agents.sandbox_run import Limits
from agentload.agents.tools.bash import BashTool
from agentload.agents.tools.output import HeadTail, cap
from agentload.agents.tools.read import ReadTool
from agentload.core.ports import Tool
from agentload.core.records import ToolResult
from agentload.errors import SandboxError

pytestmark = pytest.mark.anyio


class Limit:
    """The number that an agent sets before each call."""

    def __init__(self, value: int = 50_000) -> None:
        self.value = value

    def __call__(self) -> int:
        return self.value


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.rs").write_text("one\ntwo\nthree\n")
    (folder / "src" / "lib.rs").write_text("a\r\nlast without newline")
    (tmp_path / "secret").write_text("s3cret\n")
    return folder


@pytest.fixture
def limit() -> Limit:
    return Limit()


@pytest.fixture
def read(checkout: Path, limit: Limit) -> ReadTool:
    return ReadTool(checkout, limit)


@pytest.fixture
def bash(checkout: Path, tmp_path: Path, limit: Limit) -> BashTool:
    (tmp_path / "scratch").mkdir()
    limits = Limits(wall_s=60, flood_bytes=1_000_000)
    return BashTool(Shell(Namespaces()), Place(checkout, tmp_path / "scratch"), limit, limits)


async def failure(tool: Tool, **arguments: Any) -> str:
    result = await tool.call(arguments)
    assert not result.ok
    assert "\n" not in result.text
    return result.text


# output


def test_what_fits_is_left_as_it_is() -> None:
    assert cap("x" * 100, 100) == "x" * 100


def test_head_and_tail_are_kept_and_the_cut_is_counted() -> None:
    text = cap("A" * 500 + "B" * 500, 264)  # 64 bytes are set aside for the note, 100 stay on each side
    assert text == "A" * 100 + "\n[... 800 bytes cut here ...]\n" + "B" * 100


def test_a_character_is_never_cut_in_two() -> None:
    text = cap("ü" * 500, 265)  # 100 bytes on each side are 50 whole characters
    assert text == "ü" * 50 + "\n[... 800 bytes cut here ...]\n" + "ü" * 50
    text = cap("x" + "€" * 500, 264)  # head: x and 33 of 3 bytes, exactly 100; tail: 33 of them, 99
    assert text == "x" + "€" * 33 + "\n[... 1302 bytes cut here ...]\n" + "€" * 33


@given(st.lists(st.binary(max_size=200), max_size=30), st.integers(0, 400))
def test_the_limit_holds_for_any_bytes_in_pieces_of_any_size(pieces: list[bytes], limit_bytes: int) -> None:
    kept = HeadTail(limit_bytes)
    for piece in pieces:
        kept.feed(piece)
    whole = b"".join(pieces)
    assert kept.total == len(whole)
    assert kept.truncated == (len(whole) > limit_bytes)
    assert len(kept.text().encode()) <= limit_bytes


@given(st.text(alphabet="aüe€𝄞\n", max_size=400), st.integers(100, 400))
def test_cut_and_kept_add_up(text: str, limit_bytes: int) -> None:
    shown = cap(text, limit_bytes)
    if shown == text:
        return
    head, rest = shown.split("\n[... ")
    cut, tail = rest.split(" bytes cut here ...]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) + int(cut) + len(tail.encode()) == len(text.encode())


# read


async def test_a_file_is_read_with_its_line_numbers(read: ReadTool) -> None:
    result = await read.call({"path": "src/main.rs"})
    assert result == ToolResult(
        ok=True,
        text="     1\tone\n     2\ttwo\n     3\tthree\n",
        detail={"path": "src/main.rs", "first_line": 1, "last_line": 3, "bytes_out": 35},
    )


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (2, 2, "     2\ttwo\n"),
        ("2", "3", "     2\ttwo\n     3\tthree\n"),
        (2.0, None, "     2\ttwo\n     3\tthree\n"),
        (None, 1, "     1\tone\n"),
        (3, 9, "     3\tthree\n[end of file: it has 3 lines]\n"),
    ],
)
async def test_some_of_its_lines_both_ends_included(read: ReadTool, start: Any, end: Any, text: str) -> None:
    assert (await read.call({"path": "./src/../src/main.rs", "start_line": start, "end_line": end})).text == text


async def test_line_ends_of_another_system_and_a_last_line_without_one(read: ReadTool) -> None:
    assert (await read.call({"path": "src/lib.rs"})).text == "     1\ta\n     2\tlast without newline\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "read: path: expected a file's path, got nothing"),
        ({"path": 3}, "read: path: expected a file's path, got int '3'"),
        ({"path": ["a"]}, "read: path: expected a file's path, got list \"['a']\""),
        ({"path": "a\0b"}, "read: path: expected a file's path, got str 'a\\x00b'"),
        ({"path": "src/main.rs", "lines": 3}, "read: unknown argument 'lines'; it takes path, start_line, end_line"),
        ({"path": "src/main.rs", "start_line": "ten"}, "read: start_line: expected a whole number from 1, got 'ten'"),
        ({"path": "src/main.rs", "start_line": 0}, "read: start_line: expected a whole number from 1, got '0'"),
        ({"path": "src/main.rs", "start_line": True}, "read: start_line: expected a whole number from 1, got 'True'"),
        ({"path": "src/main.rs", "end_line": 1.5}, "read: end_line: expected a whole number from 1, got '1.5'"),
        (
            {"path": "src/main.rs", "end_line": float("inf")},
            "read: end_line: expected a whole number from 1, got 'inf'",
        ),
        (
            {"path": "src/main.rs", "start_line": 3, "end_line": 2},
            "read: expected end_line at or after start_line 3, got 2",
        ),
        ({"path": "src/main.rs", "start_line": 4}, "read: start_line 4: src/main.rs has 3 lines"),
        ({"path": "src/main.rs", "start_line": 900}, "read: start_line 900: src/main.rs has 3 lines"),
        ({"path": "src/lib.rs", "start_line": 3}, "read: start_line 3: src/lib.rs has 2 lines"),
        ({"path": "src"}, "read: src is a folder; it has lib.rs, main.rs"),
        ({"path": "."}, "read: . is a folder; it has src/"),
        ({"path": "src/mian.rs"}, "read: there is no file src/mian.rs; similar: src/main.rs"),
        ({"path": "main.rs"}, "read: there is no file main.rs; similar: src/main.rs"),
        ({"path": "zzz"}, "read: there is no file zzz"),
        ({"path": "src/main.rs/x"}, "read: src/main.rs/x: Not a directory"),
        (
            {"path": "/etc/passwd"},
            "read: path: expected a path relative to the repository's top folder, got /etc/passwd",
        ),
        ({"path": "../secret"}, "read: ../secret is outside the repository"),
        ({"path": "src/../../secret"}, "read: src/../../secret is outside the repository"),
        ({"path": "../checkout-2/x"}, "read: ../checkout-2/x is outside the repository"),
        ({"path": "a" * 300}, f"read: {'a' * 300}: File name too long"),
    ],
)
async def test_what_cannot_be_read_is_one_clear_line(read: ReadTool, arguments: dict[str, Any], said: str) -> None:
    assert await failure(read, **arguments) == said


async def test_a_link_may_lead_around_inside_but_not_out(read: ReadTool, checkout: Path) -> None:
    (checkout / "inside").symlink_to("src/main.rs")
    (checkout / "outside").symlink_to("../secret")
    (checkout / "folder").symlink_to("..")
    (checkout / "loop").symlink_to("loop")
    assert (await read.call({"path": "inside", "end_line": 1})).text == "     1\tone\n"
    assert await failure(read, path="outside") == "read: outside is outside the repository"
    assert await failure(read, path="folder/secret") == "read: folder/secret is outside the repository"
    assert (await failure(read, path="loop")).startswith("read: loop: ")


async def test_a_fifo_does_not_hang_the_agent(read: ReadTool, checkout: Path) -> None:
    os.mkfifo(checkout / "fifo")
    assert await failure(read, path="fifo") == "read: fifo is no regular file"


async def test_a_binary_file_is_not_shown(read: ReadTool, checkout: Path) -> None:
    (checkout / "program").write_bytes(b"\x7fELF\0\1")
    assert await failure(read, path="program") == "read: program is a binary file of 6 bytes"


async def test_bytes_that_are_no_text_are_shown_as_such(read: ReadTool, checkout: Path) -> None:
    (checkout / "latin").write_bytes(b"caf\xe9\n")
    assert (await read.call({"path": "latin"})).text == "     1\tcaf\ufffd\n"


async def test_an_empty_file_is_said_to_be_empty(read: ReadTool, checkout: Path) -> None:
    (checkout / "nothing").touch()
    assert (await read.call({"path": "nothing"})).text == "[nothing is empty]\n"
    assert await failure(read, path="nothing", start_line=2) == "read: start_line 2: nothing has 0 lines"


async def test_a_long_answer_says_where_to_read_on(read: ReadTool, checkout: Path, limit: Limit) -> None:
    (checkout / "long").write_text("".join(f"line {n:03d}\n" for n in range(1, 501)))
    limit.value = 120 + 16 * 10  # a numbered line is 16 bytes; 120 are set aside for the note
    result = await read.call({"path": "long", "start_line": 101})
    assert result.truncated
    lines = result.text.splitlines()
    assert lines[0] == "   101\tline 101"
    assert lines[9:] == ["   110\tline 110", "[this answer holds no more: go on with start_line 111]"]
    assert len(result.text.encode()) <= limit.value


@pytest.mark.parametrize("limit_bytes", [0, 50, 121, 500])
async def test_a_limit_below_one_line_holds_and_moves_on(
    read: ReadTool, checkout: Path, limit: Limit, limit_bytes: int
) -> None:
    (checkout / "wide").write_text("x" * 1_000 + "\nnext\n")
    limit.value = limit_bytes
    result = await read.call({"path": "wide"})
    assert result.truncated
    assert len(result.text.encode()) <= limit_bytes
    assert result.detail["last_line"] == 1


async def test_a_very_long_line_is_cut_and_the_next_one_is_still_right(read: ReadTool, checkout: Path) -> None:
    (checkout / "minified.js").write_text("y" * 3_000_000 + "\nnext\n")
    text = (await read.call({"path": "minified.js"})).text
    assert text == f"     1\t{'y' * 2000} [... 2998001 bytes of this line cut]\n     2\tnext\n"


async def test_a_file_of_200_mb_is_streamed(read: ReadTool, checkout: Path) -> None:
    with (checkout / "huge").open("wb") as file:
        file.write(b"0123456789abcde\n" * 1_000)  # 16,000 bytes of text; then a hole, one line without end
        file.truncate(200 << 20)
    tracemalloc.start()
    try:
        result = await read.call({"path": "huge", "start_line": 999, "end_line": 1_000})
        assert result.text == "   999\t0123456789abcde\n  1000\t0123456789abcde\n"
        assert await failure(read, path="huge", start_line=5_000) == "read: start_line 5000: huge has 1001 lines"
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    (checkout / "hole").touch()
    os.truncate(checkout / "hole", 2 << 30)
    assert await failure(read, path="hole") == "read: hole is a binary file of 2147483648 bytes"


async def test_known_paths_become_the_only_values_that_the_schema_allows(checkout: Path, limit: Limit) -> None:
    free = ReadTool(checkout, limit).schema()["parameters"]
    bound = ReadTool(checkout, limit, known_paths=["src/lib.rs", "src/main.rs"]).schema()["parameters"]
    assert "enum" not in free["properties"]["path"]
    assert bound["properties"]["path"]["enum"] == ["src/lib.rs", "src/main.rs"]
    assert bound["required"] == ["path"]


# bash


async def test_a_command_gives_its_output_and_its_facts(bash: BashTool) -> None:
    result = await bash.call({"command": "wc -l src/main.rs; echo problem >&2"})
    assert result == ToolResult(
        ok=True, text="3 src/main.rs\nproblem\n", detail={"exit_code": 0, "ended": "exit", "bytes_out": 22}
    )


async def test_an_exit_code_other_than_0_is_told(bash: BashTool) -> None:
    result = await bash.call({"command": "printf half; exit 3"})
    assert (result.ok, result.text, result.detail["exit_code"]) == (False, "half\n[exit code 3]", 3)


async def test_silence_is_told(bash: BashTool) -> None:
    assert (await bash.call({"command": "true"})).text == "[no output, exit code 0]"


async def test_a_command_that_was_killed_is_told(bash: BashTool) -> None:
    result = await bash.call({"command": "yes"})
    assert not result.ok
    assert result.truncated
    assert result.text.endswith("y\n[killed: it printed more than 1000000 bytes]")
    assert result.detail["ended"] == "flood"


async def test_a_command_over_its_time_is_told(checkout: Path, tmp_path: Path, limit: Limit) -> None:
    place = Place(checkout, tmp_path)

    def now_s() -> float:
        return 1000.0 if (tmp_path / "there").exists() else 0.0

    tool = BashTool(Shell(Namespaces(), now_s=now_s), place, limit, Limits(wall_s=600.5))
    result = await tool.call({"command": 'echo begun; : >"$HOME/there"; sleep 1000'})
    assert (result.ok, result.text) == (False, "begun\n[killed: it ran longer than 600.5 seconds]")
    assert result.detail["exit_code"] is None


async def test_files_whose_lines_a_command_shows_are_named_when_it_went_well(bash: BashTool) -> None:
    shown = await bash.call({"command": "head -n 1 src/main.rs | wc -l; ls src/main.rs"})
    assert shown.detail["paths"] == ["src/main.rs"]
    failed = await bash.call({"command": "grep no-such-word src/main.rs"})
    assert "paths" not in failed.detail


async def test_the_limit_is_asked_at_each_call(bash: BashTool, limit: Limit) -> None:
    for limit.value in (0, 100, 1_000):
        result = await bash.call({"command": "seq 10000; exit 1"})
        assert result.truncated
        assert len(result.text.encode()) <= limit.value
    limit.value = 3_000
    result = await bash.call({"command": "seq 10000; exit 1"})
    assert len(result.text.encode()) <= 3_000
    assert result.text.startswith("1\n2\n3\n")
    assert result.text.endswith("\n9999\n10000\n[exit code 1]")
    assert result.detail["bytes_out"] == 48_894  # 9*2 + 90*3 + 900*4 + 9000*5 + 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "bash: command: expected a string, got nothing"),
        ({"command": ["ls"]}, "bash: command: expected a string, got list \"['ls']\""),
        ({"command": "  "}, "bash: command: expected a command, got an empty string"),
        ({"command": "a\0b"}, "bash: command: expected text without NUL characters"),
        ({"command": "ls", "timeout": 3}, "bash: unknown argument 'timeout'; it takes command"),
        ({"command": "x" * 100_001}, "bash: command: expected at most 100000 bytes, got 100001"),
    ],
)
async def test_wrong_arguments_are_one_clear_line(bash: BashTool, arguments: dict[str, Any], said: str) -> None:
    assert await failure(bash, **arguments) == said


async def test_half_an_emoji_does_not_break_the_call(bash: BashTool) -> None:
    assert (await bash.call({"command": "echo '\ud83d'"})).text == "?\n"


async def test_a_broken_sandbox_is_no_result_of_the_command(checkout: Path, tmp_path: Path, limit: Limit) -> None:
    tool = BashTool(Shell(Namespaces(python="/bin/false")), Place(checkout, tmp_path), limit)
    with pytest.raises(SandboxError):
        await tool.call({"command": "true"})


@pytest.mark.parametrize("name", ["read", "bash"])
async def test_each_tool_describes_itself_for_a_function_definition(name: str, read: ReadTool, bash: BashTool) -> None:
    tools: dict[str, Tool] = {"read": read, "bash": bash}
    tool = tools[name]
    assert tool.name == name
    assert set(tool.schema()) == {"description", "parameters"}
    assert tool.schema()["parameters"]["type"] == "object"
    assert tool.schema()["parameters"]["additionalProperties"] is False
