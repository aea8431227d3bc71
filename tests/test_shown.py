"""Names of files that hold newlines and what a terminal obeys."""

import shlex
from pathlib import Path

import pytest

from agentload.analysis import source
from agentload.errors import InputError
from agentload.shown import encodable, in_shell, shown
from tests.program import program


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("server.log", "server.log"),
        ("a b ä 日本\u3000.log", "a b ä 日本\u3000.log"),
        ("a\nb.log", r"a\nb.log"),
        ("a\x1b[2J\x07\x7f", r"a\x1b[2J\x07\x7f"),
        ("\u202egol", r"\u202egol"),  # turns the writing around
        ("a\udcff", r"a\udcff"),  # a byte that is no UTF-8
    ],
)
def test_what_does_not_print_is_shown_as_its_escape(name: str, line: str) -> None:
    assert shown(name) == line


def test_what_has_no_utf_8_is_kept_as_its_escape_wherever_it_stands() -> None:
    held = {"a\ud83d": ["\udc00", 1, None, {"b": "\ud83d\ude00"}], "c": ("\U0001f600", {"\udfff"}, 1.5, True)}
    assert encodable(held) == {
        r"a\ud83d": [r"\udc00", 1, None, {"b": r"\ud83d\ude00"}],  # JSON makes one sign of a pair
        "c": ("\U0001f600", {r"\udfff"}, 1.5, True),
    }


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("runs/a-1/server.log", "runs/a-1/server.log"),
        ("my log;rm x.gz", "'my log;rm x.gz'"),
        ("it's", "'it'\"'\"'s'"),
        ("-rf", "./-rf"),
        ("-a b", "'./-a b'"),
        ("", "''"),
    ],
)
def test_a_path_is_one_word_of_a_command(path: str, word: str) -> None:
    assert in_shell(path) == word
    assert shlex.split(word) == [f"./{path}" if path[:1] == "-" else path]


def test_a_link_to_nothing_is_said_to_be_one_and_is_not_near_itself(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("no\nwhere")
    (tmp_path / "loop").symlink_to("loop")
    for name, target in (("dangling", r"no\\nwhere"), ("loop", "loop")):
        with pytest.raises(InputError, match=rf"/{name} is a link to {target}, where nothing is$"):
            source.is_run(tmp_path / name)


@pytest.mark.parametrize("content", ["no log\n", None])
def test_a_name_with_a_newline_and_an_escape_sign_is_one_line_and_obeyed_by_no_terminal(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "a\nb\x1b[2J.log"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    done = program("account", str(path), cwd=tmp_path)
    assert done.returncode == (2 if content is None else 1)
    assert r"a\nb\x1b[2J.log" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stdout + done.stderr
