"""Are prompts about as long as asked for, made again by their name, and different from the first word on?"""

from itertools import pairwise, product

import pytest

from agentload.run import texts
from agentload.twin.vocabulary import count


def test_ten_thousand_names_have_as_many_first_lines() -> None:
    names = list(product(range(10), ("c1-r1", "c8-r2"), range(500)))
    assert len({texts.first_line(*name) for name in names}) == len(names) == 10_000


def test_a_first_line_is_made_of_eight_tokens_and_no_line_end() -> None:
    lines = [texts.first_line("salt", seed, "s1") for seed in range(200)]
    assert {count(line) for line in lines} == {8}
    assert not any("\n" in line for line in lines)
    # Drawn from 256 words: two in a row seldom begin alike.
    assert sum(a.split()[0] == b.split()[0] for a, b in pairwise(lines)) < 10


@pytest.mark.parametrize("tokens", [100, 350, 351, 2000, 30_000])
def test_a_prompt_has_about_as_many_tokens_as_asked_for(tokens: int) -> None:
    said = sum(count(message["content"]) for message in texts.prompt(tokens, "fixed", 1))
    # Without the chat template's own, which are 12 of them.
    assert tokens - 16 <= said <= tokens + 4


def test_a_prompt_with_room_for_nothing_still_asks_for_a_long_answer() -> None:
    system, user = texts.prompt(1, "warmup", 1)
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"].startswith("The notes above are in no order.")


def test_the_same_name_gives_the_same_prompt_and_another_one_another() -> None:
    one, same, other = texts.prompt(350, "a", 1), texts.prompt(350, "a", 1), texts.prompt(350, "a", 2)
    assert one == same
    assert [message["content"] for message in one] != [message["content"] for message in other]
    assert one[0]["content"] != other[0]["content"]
