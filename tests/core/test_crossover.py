"""Are orders what they promise: each variant as often, and no linear drift left where none need be?"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.crossover import Step, drift_left, request_order, restart_order

NAMES = ["a", "b", "c", "d", "e", "f"]
variant_counts = st.integers(2, 6)
repeat_counts = st.integers(1, 8)
seeds = st.integers(0, 2**32)


def names(order: tuple[Step, ...]) -> str:
    return "".join(step.variant for step in order)


def test_two_variants_run_in_reversed_blocks() -> None:
    assert {names(restart_order(["A", "B"], 2, seed)) for seed in range(20)} == {"ABBA", "BAAB"}


def test_four_blocks_are_reversed_so_that_warming_up_cancels_too() -> None:
    order = restart_order(["A", "B"], 4, 0)
    assert names(order) in {"ABBABAAB", "BAABABBA"}
    # 1 + 16 + 36 + 49 = 4 + 9 + 25 + 64, counted from 1
    squares = {name: sum((step.position + 1) ** 2 for step in order if step.variant == name) for name in "AB"}
    assert squares == {"A": 102, "B": 102}


def test_the_seed_decides_who_begins_and_both_do() -> None:
    first = [restart_order(["A", "B"], 2, seed)[0].variant for seed in range(200)]
    assert 60 < first.count("A") < 140  # fair: 100 +- 7


@given(variant_counts, repeat_counts, seeds)
def test_every_block_holds_every_variant_once(count: int, repeats: int, seed: int) -> None:
    order = restart_order(NAMES[:count], repeats, seed)
    assert [step.position for step in order] == list(range(count * repeats))
    assert [step.boot for step in order] == list(range(count * repeats))
    for block in range(repeats):
        steps = [step for step in order if step.block == block]
        assert sorted(step.variant for step in steps) == NAMES[:count]
        assert [step.place for step in steps] == list(range(count))


@given(variant_counts, repeat_counts, seeds)
def test_an_order_is_a_pure_function_and_names_play_no_part(count: int, repeats: int, seed: int) -> None:
    order = restart_order(NAMES[:count], repeats, seed)
    assert order == restart_order(NAMES[:count], repeats, seed)
    renamed = restart_order([name.upper() for name in NAMES[:count]], repeats, seed)
    assert names(renamed) == names(order).upper()


@given(variant_counts, st.integers(1, 4), seeds)
def test_an_even_number_of_rounds_cancels_a_linear_drift(count: int, pairs: int, seed: int) -> None:
    assert drift_left(restart_order(NAMES[:count], 2 * pairs, seed)) == 0


@given(variant_counts, st.integers(1, 2), seeds)
def test_as_many_rounds_as_variants_put_each_at_each_place(count: int, cycles: int, seed: int) -> None:
    order = restart_order(NAMES[:count], count * cycles, seed)
    for name in NAMES[:count]:
        assert sorted(step.place for step in order if step.variant == name) == sorted([*range(count)] * cycles)


@given(st.sampled_from([1, 3, 5, 7]), seeds)
def test_an_odd_number_of_blocks_leaves_the_least_there_is(repeats: int, seed: int) -> None:
    # 1 + ... + 2n is odd for odd n, so the two sums of positions differ by at least 1
    assert drift_left(restart_order(["A", "B"], repeats, seed)) == Fraction(1, repeats)


def test_three_rounds_of_five_are_better_balanced_than_by_plain_rotation() -> None:
    # plain rotation abcde bcdea cdeab: sums of places 7, 5, 3, 6, 9 (a to e) and so 6 / 3 = 2 steps between the means
    assert drift_left(restart_order(NAMES[:5], 3, 1)) == Fraction(4, 3)


def test_a_request_parameter_alternates_inside_one_boot() -> None:
    order = request_order(["off", "max"], 3, 1)
    assert {step.boot for step in order} == {0}
    assert [step.block for step in order] == [0, 0, 1, 1, 2, 2]
    assert order[0].variant == order[3].variant != order[1].variant


def test_a_second_boot_goes_on_with_the_next_sets() -> None:
    order = request_order(["off", "high", "max"], 3, 5, boots=2)
    assert [step.boot for step in order] == [0] * 9 + [1] * 9
    assert drift_left(order) == 0


def test_blocked_runs_leave_half_of_the_night() -> None:
    order = [Step(at, at, 0, at, name) for at, name in enumerate("AABB")]
    assert drift_left(order) == 2


@pytest.mark.parametrize(("variants", "repeats"), [(["A"], 2), (["A", "A"], 2), (["A", "B"], 0)])
def test_an_order_that_makes_no_comparison_is_refused(variants: list[str], repeats: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        restart_order(variants, repeats, 0)


def test_no_boots_are_refused() -> None:
    with pytest.raises(ValueError, match="boots"):
        request_order(["A", "B"], 3, 0, boots=0)
