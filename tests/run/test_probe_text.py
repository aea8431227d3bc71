"""Is a prompt's text made of whole lines of source, however long it is to be, and are its words a token each?"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import InputError
from agentload.run import probe_text
from agentload.run.probe_text import MOST_TURNS, Source, source_of
from agentload.twin import vocabulary

LINES = ["fn main() {\n", "    let x = 1;\n", "\n", "    // a comment that is rather longer than the others\n", "}\n"]
SOURCE = Source("".join(LINES))


@given(chars=st.integers(1, 500), start=st.integers(0, 400))
def test_a_cut_is_whole_lines_in_their_order_and_goes_on_at_the_begin(chars: int, start: int) -> None:
    text = SOURCE.cut(chars, start)
    assert 0 < len(text) <= chars
    found = text.splitlines(keepends=True)
    if not text.endswith("\n"):  # shorter than its first line
        assert len(found) == 1
        assert any(line.startswith(text) for line in LINES)
        return
    first = next(at for at in range(5) if [LINES[(at + n) % 5] for n in range(len(found))] == found)
    if start % len(SOURCE.text) == 0:
        assert first == 0


def test_a_text_that_is_too_short_comes_again() -> None:
    whole = SOURCE.text
    assert SOURCE.cut(3 * len(whole)) == 3 * whole


def test_files_are_read_in_the_order_of_their_paths_and_only_rust_where_there_is_some(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "z.rs").write_text("z", encoding="utf-8")
    (tmp_path / "a.rs").write_text("a\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("read me\n", encoding="utf-8")
    assert source_of(tmp_path).text == "a\nz\n"


def test_a_checkout_without_rust_gives_all_that_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n", encoding="utf-8")
    (tmp_path / "b.bin").write_bytes(b"\0\1\2")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref\n", encoding="utf-8")
    (tmp_path / "c.txt").write_text("c\n", encoding="utf-8")
    assert source_of(tmp_path).text == "a\nc\n"


def test_a_checkout_with_nothing_to_read_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^corpus: expected source files for the text of a prompt, there is none in "):
        source_of(tmp_path)


def test_words_are_a_token_each_and_first_lines_are_all_as_long() -> None:
    assert [vocabulary.count(probe_text.words(number)) for number in (0, 1, 25)] == [0, 1, 25]
    lines = {probe_text.first_line("run", number) for number in range(200)}
    assert len(lines) == 200
    assert {vocabulary.count(line) for line in lines} == {15}  # eight numbers and the seven blanks between them


def test_a_conversation_of_a_session_that_writes_begins_anew_after_forty_turns() -> None:
    lengths = [len(probe_text.writing("1", turn)) for turn in (0, 1, MOST_TURNS - 1, MOST_TURNS)]
    assert lengths == [2, 4, 2 * MOST_TURNS, 2]
