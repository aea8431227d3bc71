"""Patterns that every supported Python reads alike."""

import re
from types import ModuleType

import pytest

from agentload.serverlogs import ds4_grammar, llamacpp_grammar, reprs, sglang_grammar, vllm_grammar


@pytest.mark.parametrize("grammar", [ds4_grammar, llamacpp_grammar, sglang_grammar, vllm_grammar])
def test_no_group_is_repeated_possessively(grammar: ModuleType) -> None:
    # Python 3.11.2, that of Debian 12, does not match `(?: [A-Z]+)*+` where it should: no decode line was understood.
    patterns = {name: value.pattern for name, value in vars(grammar).items() if isinstance(value, re.Pattern)}
    assert len(patterns) > 15
    assert [name for name, text in patterns.items() if re.search(rb"(?<!\\)\)(?:[*+?]|\{[\d,]*\})\+", text)] == []


def test_many_words_in_capitals_cost_no_more_than_their_length() -> None:
    line = b"0914 12:00:00 ds4-server: chat ctx=0..90:90" + 20_000 * b" AAAAAAAA" + b" nothing"
    assert ds4_grammar.DECODE.fullmatch(line) is None


@pytest.mark.parametrize("grammar", [llamacpp_grammar, sglang_grammar, vllm_grammar, reprs])
def test_no_group_is_repeated_as_often_as_a_line_of_16_mb_lets_it(grammar: ModuleType) -> None:
    # A group keeps 120 bytes of each of its rounds: a line of 16 MB of spaces took 2 GB.
    patterns = {name: value.pattern for name, value in vars(grammar).items() if isinstance(value, re.Pattern)}
    texts = {name: text if isinstance(text, str) else text.decode() for name, text in patterns.items()}
    assert len(patterns) > 5
    assert [name for name, text in texts.items() if re.search(r"(?<!\\)\)(?:[*+]|\{\d*,\})", text)] == []


@pytest.mark.parametrize(
    ("text", "is_art"),
    [
        (b"", True),
        (b" " * 100_000, True),
        ("  ▀▄ ▐█▟  ".encode(), True),
        ("▀".encode() * 100_000, True),
        (b"\xe2\x96\x7f", False),
        ("\u257f".encode(), False),
        ("\u25a0".encode(), False),
        (b"\xe2\x96", False),  # torn
        (b"\x80\x96\xe2", False),
        ("█ model".encode(), False),
    ],
)
def test_art_is_spaces_and_whole_block_elements(text: bytes, *, is_art: bool) -> None:
    assert vllm_grammar.is_art(text) is is_art
