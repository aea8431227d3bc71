"""Are the twin's tokens exact, the same everywhere, and about as long as a real vocabulary's?"""

import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents import workspace
from agentload.twin.lengths import Draws
from agentload.twin.vocabulary import FIRST_PIECE_ID, count, decode, encode, pieces, text_of, text_of_id

TEXTS = st.text(alphabet=st.sampled_from('ab_Z9 0\n\t\r.:"{}()é€𝄞\ud800\u2003'), max_size=80) | st.text(max_size=80)


def test_an_id_is_the_bytes_of_its_piece() -> None:
    assert encode("a fn") == (0x0161, 0x0120666E)  # a 1 before them, then "a" and " fn"
    assert encode("") == ()


def test_words_signs_blanks_and_numbers_are_cut_as_said() -> None:
    text = '    fn parse_zone(key: &str) -> Option<u1234>  {\n        "é"'
    assert pieces(text) == [
        *("    ", "fn", " parse", "_zone", "(key", ":", " ", "&str", ")", " ", "->", " Option", "<u", "123", "4"),
        *(">", "  ", "{", "\n        ", '"é', '"'),
    ]
    assert pieces("identifier") == ["identi", "fier"]


@given(TEXTS)
def test_tokens_turn_back_into_their_text(text: str) -> None:
    ids = encode(text)
    assert decode(ids) == text
    assert "".join(pieces(text)) == text
    assert count(text) == len(ids)
    assert all(one >= FIRST_PIECE_ID for one in ids)


@given(TEXTS)
def test_the_first_pieces_of_a_text_are_the_pieces_of_their_own_text(text: str) -> None:
    ids = encode(text)
    for end, start in enumerate(accumulate(map(text_of_id, ids), initial="")):
        assert encode(start) == ids[:end]


@given(st.integers(0, 600), st.integers(), st.booleans())
def test_any_number_of_tokens_can_be_written(tokens: int, seed: int, follows: bool) -> None:
    text = text_of(tokens, Draws(seed), follows=follows)
    assert count(text) == tokens
    before = "See `src/tz/store.rs:109`."
    if follows:
        assert count(before + text) == count(before) + tokens


def test_what_is_written_looks_like_sentences() -> None:
    text = text_of(2000, Draws("sentences"))
    words = text.split()
    assert all(word.strip(".").isalpha() for word in words)
    assert 7 <= len(words) / text.count(".") <= 18
    assert len(set(words)) > 150


def test_a_mark_has_no_text() -> None:
    assert decode((5, *encode("x"), 6)) == "x"


def test_ids_are_the_same_in_processes_that_hash_differently() -> None:
    code = (
        "from agentload.twin.vocabulary import encode, text_of; from agentload.twin.lengths import Draws; "
        "print(encode('let x = Größe::new(1_000);\\n'), text_of(50, Draws('s', 1)))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert said == {f"{encode('let x = Größe::new(1_000);' + chr(10))} {text_of(50, Draws('s', 1))}\n"}


@pytest.fixture(scope="session")
def sources(standard: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("sources") / "repo"
    workspace.checkout(standard.path, standard.commit, folder)
    return [path.read_text("utf-8") for path in sorted(Path(folder).rglob("*.rs"))]


def test_a_token_of_rust_source_has_as_many_bytes_as_one_of_a_real_vocabulary(sources: list[str]) -> None:
    # o200k_base has about 3.6 on Rust source.
    size = sum(len(text.encode()) for text in sources)
    assert 3.3 <= size / sum(map(count, sources)) <= 3.6
    numbered = [
        "".join(f"{number:6d}\t{line}\n" for number, line in enumerate(text.splitlines(), 1)) for text in sources
    ]
    size = sum(len(text.encode()) for text in numbered)
    assert 3.2 <= size / sum(map(count, numbered)) <= 3.6
