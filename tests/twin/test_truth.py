"""A file of ground truth that is not one is refused with its line."""

import pytest

from agentload.errors import InputError
from agentload.twin.options import Options
from agentload.twin.truth import header, read

FIRST = header(Options(), "m3-ultra", 7, 2)


def test_the_first_line_says_what_was_played() -> None:
    first, events = read([FIRST])
    assert (first["schema"], first["simulated"], first["profile"], first["seed"], first["boot"]) == (
        "agentload.twin.truth/1",
        True,
        "m3-ultra",
        7,
        2,
    )
    assert first["options"]["mixed_prefill_quantum"] == 128
    assert events == []


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "line 1 of the truth: expected its schema, the file is empty"),
        (["{"], "line 1 of the truth: expected JSON"),
        (['{"schema":"other/1"}'], 'line 1 of the truth: expected "schema": "agentload.twin.truth/1"'),
        ([FIRST, '{"kind":"quantum"}'], "line 2 of the truth: expected an event"),
        ([FIRST, "[]"], "line 2 of the truth: expected an event"),
        ([FIRST, '{"kind":"other"}'], "line 2 of the truth: expected an event"),
    ],
)
def test_a_line_that_is_not_what_it_should_be_is_named(lines: list[str], told: str) -> None:
    with pytest.raises(InputError) as error:
        read(lines)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)
