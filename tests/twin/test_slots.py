"""Which slot, and how much of a prompt is there already?"""

from hypothesis import given
from hypothesis import strategies as st

from agentload.twin.slots import Run, Runs, Slot, choose, common, cut, total

KEYS = st.sampled_from("abc")
RUNS = st.lists(st.builds(Run, KEYS, st.integers(1, 9)), max_size=6).map(tuple)


def spelt(runs: Runs) -> list[tuple[object, int, int]]:
    """Every token by itself: which text, which occurrence of it, which place in it."""
    return [(run.key, number, place) for number, run in enumerate(runs) for place in range(run.tokens)]


def slot(number: int, *runs: Run, busy: bool = False) -> Slot:
    made = Slot(number, work=object() if busy else None)
    made.keep(runs)
    return made


@given(RUNS, RUNS)
def test_a_common_prefix_is_that_of_the_tokens_spelt_out(first: Runs, second: Runs) -> None:
    same = 0
    for one, other in zip(spelt(first), spelt(second), strict=False):
        if one != other:
            break
        same += 1
    assert common(first, second) == common(second, first) == same


@given(RUNS, st.integers(0, 60))
def test_a_cut_prompt_is_a_prefix_of_that_length(runs: Runs, tokens: int) -> None:
    kept = cut(runs, tokens)
    assert total(kept) == min(tokens, total(runs))
    assert common(kept, runs) == total(kept)


def test_the_slot_with_most_in_common_is_taken_and_the_lowest_of_equals() -> None:
    prompt = (Run("system", 10), Run("task", 5))
    chosen = choose([slot(0), slot(1, Run("system", 10)), slot(2, *prompt), slot(3, *prompt)], prompt)
    assert chosen is not None
    assert chosen.id == 2


def test_of_empty_slots_the_first_is_taken_and_a_busy_one_never() -> None:
    prompt = (Run("task", 5),)
    chosen = choose([slot(0, *prompt, busy=True), slot(1), slot(2)], prompt)
    assert chosen is not None
    assert chosen.id == 1
    assert choose([slot(0, busy=True)], prompt) is None


def test_a_warm_slot_of_another_wins_over_an_empty_one() -> None:
    chosen = choose([slot(0), slot(1, Run("system", 3), Run("other", 9))], (Run("system", 3), Run("mine", 2)))
    assert chosen is not None
    assert chosen.id == 1
