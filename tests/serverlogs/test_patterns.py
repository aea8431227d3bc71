"""Patterns that every supported Python reads alike."""

import re
from types import ModuleType

import pytest

from agentload.serverlogs import ds4_grammar, llamacpp_grammar, sglang_grammar, vllm_grammar


@pytest.mark.parametrize("grammar", [ds4_grammar, llamacpp_grammar, sglang_grammar, vllm_grammar])
def test_no_group_is_repeated_possessively(grammar: ModuleType) -> None:
    # Python 3.11.2, that of Debian 12, does not match `(?: [A-Z]+)*+` where it should: no decode line was understood.
    patterns = {name: value.pattern for name, value in vars(grammar).items() if isinstance(value, re.Pattern)}
    assert len(patterns) > 15
    assert [name for name, text in patterns.items() if re.search(rb"(?<!\\)\)(?:[*+?]|\{[\d,]*\})\+", text)] == []


def test_many_words_in_capitals_cost_no_more_than_their_length() -> None:
    line = b"0914 12:00:00 ds4-server: chat ctx=0..90:90" + 20_000 * b" AAAAAAAA" + b" nothing"
    assert ds4_grammar.DECODE.fullmatch(line) is None
