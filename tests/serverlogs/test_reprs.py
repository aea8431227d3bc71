"""What is read out of a configuration that a Python program printed?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.serverlogs import reprs

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_what_was_printed_comes_back_whatever_commas_quotes_and_brackets_it_holds(values: dict[str, Any]) -> None:
    text = ", ".join(f"{name}={value!r}" for name, value in values.items())
    assert reprs.pairs(text) == {name: repr(value) for name, value in values.items()}
    assert reprs.dictionary(repr(values)) == values


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=6), st.data())
def test_what_was_cut_off_inside_a_bracket_or_a_text_is_nothing(values: dict[str, Any], data: st.DataObject) -> None:
    text = "a=[" + ", ".join(f"{name}={value!r}" for name, value in values.items())
    assert reprs.pairs(text[: data.draw(st.integers(3, len(text)))]) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("None", None),
        ("-5", -5),
        ("0.92", 0.92),
        ("1e-05", 1e-05),
        ("'a b'", "a b"),
        ('"it\'s"', "it's"),
        ("auto", "auto"),
        ("torch.bfloat16", "torch.bfloat16"),
        ("[1, 2]", None),
        ("Kind(a=1)", None),
        ("9" * 40, "9" * 40),
    ],
)
def test_a_plain_value_is_told_from_text_and_from_what_is_none(text: str, value: object) -> None:
    found = reprs.plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["[1]", "{1: 2}", "{'a': b}", "{'a': 1", "{'a': " + "[" * 5000 + "]" * 5000 + "}", "__import__('os')"]
)
def test_what_is_no_dict_of_plain_values_is_none(text: str) -> None:
    assert reprs.dictionary(text) is None


@pytest.mark.parametrize("name", ["api_key", "api_keys", "hf_token", "ssl_password", "admin_api_key", "token"])
def test_keys_and_passwords_are_not_told(name: str) -> None:
    assert dict(reprs.told({name: "secret", "max_tokens": 5, "tokenizer": "t", "nothing": None, "many": [1]})) == {
        "max_tokens": 5,
        "tokenizer": "t",
        "many": "[1]",
    }


@pytest.mark.parametrize("text", ["{[1]: 2}", "{'a': {{}: 1}}", "{'a': {[]}}", "{1: 2}", "[1]", "{'a': b}"])
def test_what_no_printed_dict_of_names_can_be_is_none(text: str) -> None:
    assert reprs.dictionary(text) is None


def test_half_a_surrogate_pair_in_a_printed_dict_is_its_escape() -> None:
    told = r"{'a\ud83d': ['\udc00', ('\U0000d800', 1)], 'b': {'\udfff'}, 'c': '\u00e4 \\ud83d'}"
    assert reprs.dictionary(told) == {
        r"a\ud83d": [r"\udc00", (r"\ud800", 1)],
        "b": {r"\udfff"},
        "c": r"ä \ud83d",  # of these one is a letter, and the other was the escape
    }


def test_ids_of_a_hundred_thousand_tokens_are_read() -> None:
    found = reprs.dictionary("{'ids': [" + "12345, " * 100_000 + "6], 'text': '" + r"\n, \'" * 100_000 + "'}")
    assert found == {"ids": [12345] * 100_000 + [6], "text": "\n, '" * 100_000}


@pytest.mark.parametrize(
    "text",
    [
        "{'a': [" + "1," * 140_000 + "]}",  # 280,000 signs of a program's text: 500 bytes each
        "{'a': " + "'' " * 270_000 + "}",
        "{'a': f'" + "{1}" * 100_000 + "'}",  # text of a program inside a quoted one
        "{#'\r 'a': [" + "1," * 140_000 + "]#'\r}",
    ],
)
def test_a_dict_that_takes_more_memory_to_read_than_a_log_may_is_none(text: str) -> None:
    assert len(text) < reprs.MOST_CHARS
    assert reprs.dictionary(text) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (r"a='b\', c', d=1", {"a": r"'b\', c'", "d": "1"}),
        (r"a='b\\', c=1", {"a": r"'b\\'", "c": "1"}),
        (r"""a="it's, so", c=[1, '],']""", {"a": '"it\'s, so"', "c": "[1, '],']"}),
        (r"a='b\', c=1", None),
        (r"a=\', c=1", None),  # outside a text a backslash is nothing
    ],
)
def test_a_quoted_text_ends_at_the_quote_that_no_backslash_is_before(text: str, parts: dict[str, str] | None) -> None:
    assert reprs.pairs(text) == parts
