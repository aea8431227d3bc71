"""Is what stands on disk taken for no more than it is, and every complaint one line?"""

import json
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from agentload.artifacts.strict import MAX_NS, Count, Ns, Ours, parse, validated


class Line(Ours):
    t: Ns
    name: str
    share: Annotated[float, Field(ge=0)] | None = None
    counts: list[Count] = Field(default_factory=list)


LINE: TypeAdapter[Line] = TypeAdapter(Line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"t":1}', "expected a field name, there is none"),
        (b'{"t":-1,"name":"x"}', "t: expected greater than or equal to 0, got -1"),
        (b'{"t":"1","name":"x"}', "t: expected a valid integer, got '1'"),
        (b'{"t":true,"name":"x"}', "t: expected a valid integer, got True"),
        (b'{"t":1.0,"name":"x"}', "t: expected a valid integer, got 1.0"),
        (b'{"t":NaN,"name":"x"}', "t: expected a valid integer, got nan"),
        (b'{"t":1,"name":"x","share":1e999}', "share: expected a finite number, got inf"),
        (b'{"t":1,"name":"x","share":NaN}', "share: expected a finite number, got nan"),
        (b'{"t":1,"name":["x"]}', "name: expected a valid string, got ['x']"),
        (b'{"t":1,"name":"x","counts":[0,-2]}', "counts.1: expected greater than or equal to 0, got -2"),
        (b'{"t":1,"name":"x","nmae":5}', "expected no field nmae, got 5"),
        (b"[1]", "expected an object, got [1]"),
        (b"", "expected JSON, got b'': Expecting value: line 1 column 1 (char 0)"),
        (b'{"t":1', "expected JSON, got b'{\"t\":1': Expecting ',' delimiter: line 1 column 7 (char 6)"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected_and_what_there_is(line: bytes, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        validated(LINE, line)
    assert str(caught.value) == message


def test_a_time_after_2100_is_damage() -> None:
    """Sums of such times would not fit 64 bits."""
    assert MAX_NS == 130 * 365 * 86_400 * 10**9 + 32 * 86_400 * 10**9  # 1970 to 2100 has 32 leap days
    assert validated(LINE, b'{"t":%d,"name":"x"}' % MAX_NS).t == MAX_NS
    with pytest.raises(ValueError, match="t: expected less than or equal to"):
        validated(LINE, b'{"t":%d,"name":"x"}' % (MAX_NS + 1))


def test_half_a_surrogate_pair_becomes_its_escape_as_text() -> None:
    """The writer keeps one, out of a model's answer, as JSON's escape; no table takes it as it is."""
    assert validated(LINE, b'{"t":1,"name":"a\\ud83d"}').name == "a\\ud83d"
    assert validated(LINE, '{"t":1,"name":"\\ud83d\\ude00 \u2603"}'.encode()).name == "\U0001f600 \u2603"


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[" * 61 + b"]" * 61, b'{"a":' * 61 + b"1" + b"}" * 61])
def test_bottomless_nesting_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^expected values nested at most 60 deep$"):
        parse(data)


@pytest.mark.parametrize(
    "data", [b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"\xff", b"1 2", b"9" * 5000, b"{'a':1}"], ids=repr
)
def test_what_json_does_not_have_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^expected ") as caught:
        parse(data)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_every_json_value_is_read_as_it_was_written(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"got 'x{59}\.\.\.$"):
        validated(LINE, b'{"t":"%s","name":"x"}' % (b"x" * 10_000))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"agents":[{"a":1},{"started":1e400}]}', "agents.1.started"),
        (b'{"x":-1e999}', "x"),
        (b"[[0.5,1e309]]", "0.1"),
    ],
)
def test_a_number_that_becomes_infinite_is_refused_with_its_place(text: bytes, place: str) -> None:
    with pytest.raises(ValueError, match=f"^expected finite numbers, got a number beyond 1.8e308 in {place}$"):
        parse(text)
