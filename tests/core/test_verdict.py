"""Does a verdict refuse what the order may have made, leave out what does not count, and not depend on names?"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.crossover import restart_order
from agentload.core.order_effects import (
    Placed,
    block_permutation,
    difference,
    drift,
    one_after_the_other,
    order_effect,
)
from agentload.core.records import Doubt
from agentload.core.separation import Outcome
from agentload.core.verdict import MetricVerdict, RunValue, judge, pooled

values = st.integers(1, 2_000).map(lambda hundredths: hundredths / 100)


def reversed_runs(**sides: list[float]) -> list[RunValue]:
    """Runs of two variants in blocks A B, B A, A B ...; `sides` gives each one's values in the order of its runs."""
    (first, one), (second, other) = sides.items()
    runs = []
    for block, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        pair = [(first, mine), (second, theirs)]
        for place, (name, value) in enumerate(pair if block % 2 == 0 else pair[::-1]):
            runs.append(RunValue(name, value, position=2 * block + place, block=block))
    return runs


def blocked_runs(**sides: list[float]) -> list[RunValue]:
    names = [(name, value) for name, its in sides.items() for value in its]
    return [RunValue(name, value, position=at) for at, (name, value) in enumerate(names)]


def placed(runs: list[RunValue], first: str) -> list[Placed]:
    return [Placed(run.variant == first, run.value or 0.0, run.position or 0, run.block) for run in runs]


def codes(verdict: MetricVerdict) -> list[str]:
    return [one.code for one in verdict.refusals]


# ---- order, drift, permutation ------------------------------------------------------------------------------------


def test_the_order_effect_is_found_beside_the_variant() -> None:
    # variant +20, first place +6: A first 110 + 3 and 90 - 3, B first 90 + 3 and 110 - 3
    effect = order_effect(placed(reversed_runs(A=[113, 107], B=[87, 93]), "A"))
    assert effect is not None
    assert effect.first_minus_second == pytest.approx(6)
    assert effect.share == pytest.approx(0.06)
    assert (effect.blocks_first_side_first, effect.blocks_second_side_first) == (1, 1)


def test_the_drift_is_found_beside_the_variant() -> None:
    # levels 100 and 80, and 2 more with each position: A at 0 and 3, B at 1 and 2
    found = drift(placed(reversed_runs(A=[100, 106], B=[82, 84]), "A"))
    assert found is not None
    assert [found.per_step, found.over_all] == pytest.approx([2, 6])
    assert found.share == pytest.approx(6 / 93)


def test_a_drift_is_seen_even_when_one_variant_ran_after_the_other() -> None:
    found = drift(placed(blocked_runs(A=[100, 102], B=[104, 106]), "A"))
    assert found is not None
    assert found.over_all == pytest.approx(6)
    for first in ("A", "B"):
        assert one_after_the_other(placed(blocked_runs(A=[1, 1], B=[1, 1]), first))
    assert not one_after_the_other(placed(reversed_runs(A=[1, 1], B=[1, 1]), "A"))


def test_a_drift_needs_a_side_with_two_values() -> None:
    assert drift([Placed(True, 5, 0), Placed(False, 6, 1)]) is None


def test_a_drift_around_zero_has_no_share() -> None:
    found = drift([Placed(True, -1, 0), Placed(True, 1, 1)])
    assert found is not None
    assert (found.over_all, found.share) == (2, None)


def test_the_permutation_test_counts_all_swaps_within_blocks() -> None:
    six = block_permutation(placed(reversed_runs(A=[2, 3, 4, 5, 6, 7], B=[1, 1, 1, 1, 1, 1]), "A"))
    assert six is not None
    assert (six.p, six.blocks, six.least_p) == (2 / 64, 6, 2 / 64)
    # differences 1 1 1 1 1 -1: sum 4 is reached by none negative (1) or one (6), and as often below
    one_against = block_permutation(placed(reversed_runs(A=[2, 2, 2, 2, 2, 1], B=[1, 1, 1, 1, 1, 2]), "A"))
    assert one_against is not None
    assert one_against.p == 14 / 64


def test_five_blocks_are_too_few_for_a_permutation_p() -> None:
    assert block_permutation(placed(reversed_runs(A=[9] * 5, B=[1] * 5), "A")) is None


def test_a_side_twice_in_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="once in block 0"):
        order_effect([Placed(True, 1, 0, 0), Placed(True, 2, 1, 0), Placed(False, 2, 2, 0)])


@given(st.lists(st.tuples(values, values), min_size=2, max_size=6))
def test_disjoint_ranges_in_complete_blocks_exceed_the_order_effect(pairs: list[tuple[float, float]]) -> None:
    runs = reversed_runs(A=[one + 30 for one, _ in pairs], B=[other for _, other in pairs])  # 30 is more than any range
    effect = order_effect(placed(runs, "A"))
    assert effect is not None
    assert effect.first_minus_second is not None
    assert abs(effect.first_minus_second) < difference(placed(runs, "A"))


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_a_drift_makes_a_winner_of_the_blocked_order_and_none_of_the_reversed() -> None:
    night = [100 * (1 + 0.1 * at / 7) for at in range(8)]  # 10 % from the first run to the last, no effect at all
    blocked = blocked_runs(A=night[:4], B=night[4:])
    without_places = [RunValue(run.variant, run.value) for run in blocked]
    assert judge("tok_s", without_places, "A", "B").outcome is Outcome.DISTINGUISHED
    refused = judge("tok_s", blocked, "A", "B")
    assert refused.decision.outcome is Outcome.DISTINGUISHED
    assert refused.outcome is Outcome.NO_VERDICT
    assert codes(refused) == ["order-not-reversed", "drift"]
    assert (refused.greater, refused.lead) == (None, None)
    order = restart_order(["A", "B"], 4, 0)
    runs = [RunValue(step.variant, night[step.position], position=step.position, block=step.block) for step in order]
    assert judge("tok_s", runs, "A", "B").outcome is Outcome.NOT_DISTINGUISHED


def test_a_claim_of_an_order_that_was_never_reversed_is_refused() -> None:
    runs = [
        RunValue(name, value, position=at, block=at // 2)
        for at, (name, value) in enumerate([("A", 10.0), ("B", 20.0), ("A", 10.1), ("B", 20.1)])
    ]
    verdict = judge("tok_s", runs, "A", "B")
    assert verdict.decision.outcome is Outcome.DISTINGUISHED
    assert (verdict.outcome, codes(verdict)) == (Outcome.NO_VERDICT, ["order-not-reversed"])


def test_a_drift_as_large_as_the_effect_refuses_a_claim() -> None:
    # Everything climbs by 1 a run, 7 from first to last, and B is better by 6.7: A 0 3 4 7, B 7.7 8.7 11.7 12.7.
    a, b = [0.0, 3.0, 4.0, 7.0], [7.7, 8.7, 11.7, 12.7]
    verdict = judge("tok_s", reversed_runs(A=a, B=b), "A", "B")
    assert verdict.decision.outcome is Outcome.DISTINGUISHED  # gap 0.7 of 7, c(4) = 0.07
    assert (verdict.outcome, codes(verdict)) == (Outcome.NO_VERDICT, ["drift"])
    more = judge("tok_s", reversed_runs(A=a, B=[one + 0.4 for one in b]), "A", "B")  # better by 7.1
    assert (more.outcome, codes(more)) == (Outcome.DISTINGUISHED, [])


def test_a_drift_refuses_a_consistent_direction_too() -> None:
    # 1 a run, and B is better by 2.5: A 0 3, B 3.5 4.5
    verdict = judge("tok_s", reversed_runs(A=[0.0, 3.0], B=[3.5, 4.5]), "A", "B")
    assert verdict.decision.outcome is Outcome.CONSISTENT_DIRECTION
    assert (verdict.outcome, codes(verdict)) == (Outcome.NO_VERDICT, ["drift"])


def test_an_order_effect_as_large_as_the_effect_refuses_a_direction() -> None:
    # Eight blocks. By ranks B is above A (U = 8), but A - B is -1 in all blocks but one, where B runs first: +30.
    # Place: (-1 - (-3 + 30) / 4) / 2 = -3.875; difference of the means: (-7 + 30) / 8 = 2.875.
    a, b = [1.0, 1.1, 1.2, 32.3, 1.4, 1.5, 1.6, 1.7], [2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7]
    verdict = judge("tok_s", reversed_runs(A=a, B=b), "A", "B")
    assert (verdict.decision.outcome, verdict.decision.direction) == (Outcome.CONSISTENT_DIRECTION, -1)
    assert verdict.order is not None
    assert verdict.order.first_minus_second == pytest.approx(-3.875)
    assert (verdict.outcome, codes(verdict)) == (Outcome.NO_VERDICT, ["order-effect"])


def test_a_flag_that_was_not_exercised_gets_no_verdict_whatever_the_values_say() -> None:
    why = Doubt("flag-not-exercised", "the flag applied to 3 % of the prefill time", "decode more while others prefill")
    for b in ([20, 20.2], [10, 10.2]):
        verdict = judge("tok_s", reversed_runs(A=[10, 10.2], B=b), "A", "B", barred=[why])
        assert (verdict.outcome, verdict.refusals, verdict.greater) == (Outcome.NO_VERDICT, (why,), None)


def test_where_nothing_is_claimed_nothing_is_refused() -> None:
    verdict = judge("tok_s", reversed_runs(A=[1, 10], B=[4, 7]), "A", "B")
    assert verdict.drift is not None
    assert (verdict.outcome, verdict.refusals) == (Outcome.NOT_DISTINGUISHED, ())


def test_without_places_the_verdict_says_that_the_order_was_not_checked() -> None:
    verdict = judge("tok_s", [RunValue("A", 1), RunValue("A", 2), RunValue("B", 9), RunValue("B", 9.1)], "A", "B")
    assert verdict.outcome is Outcome.DISTINGUISHED
    assert [doubt.code for doubt in verdict.doubts] == ["order-unknown"]
    assert (verdict.order, verdict.drift, verdict.permutation) == (None, None, None)


# ---- what counts ---------------------------------------------------------------------------------------------------


def test_invalid_runs_never_enter_and_are_counted() -> None:
    runs = reversed_runs(A=[10, 10.2], B=[20, 20.2])
    spoilt = [
        *runs,
        RunValue("A", 99.0, position=4, block=2, invalid="flag applied 128, requested 2048"),
        RunValue("B", math.nan, invalid="foreign traffic"),
    ]
    verdict, clean = judge("tok_s", spoilt, "A", "B"), judge("tok_s", runs, "A", "B")
    assert verdict.decision == clean.decision
    assert (verdict.order, verdict.drift, verdict.ratio) == (clean.order, clean.drift, clean.ratio)
    assert verdict.first.invalid == ("flag applied 128, requested 2048",)
    assert "2 invalid runs" in verdict.doubts[0].message


def test_a_run_without_the_metric_is_not_a_zero() -> None:
    verdict = judge("tok_s", [*reversed_runs(A=[10, 10.2], B=[20, 20.2]), RunValue("A")], "A", "B")
    assert (verdict.first.unmeasured, verdict.first.low) == (1, 10)
    assert [doubt.code for doubt in verdict.doubts] == ["unmeasured-runs"]


def test_other_variants_play_no_part() -> None:
    runs = reversed_runs(A=[10, 10.2], B=[20, 20.2])
    assert judge("m", [*runs, RunValue("C", 5, position=9)], "A", "B") == judge("m", runs, "A", "B")


def test_a_pooled_speed_is_a_quotient_of_sums() -> None:
    assert pooled([RunValue("A", amount=100, base=1), RunValue("A", amount=100, base=4)]) == (40, "sums")
    assert pooled([RunValue("A", 100), RunValue("A", amount=100, base=4), RunValue("A", 1)]) == (25, "median")
    assert pooled([]) == (None, "median")


def test_better_depends_on_the_metric() -> None:
    runs = reversed_runs(A=[10, 10.2], B=[20, 20.2])
    assert judge("tok_s", runs, "A", "B", higher_is_better=True).better == "B"
    assert judge("ttft_s", runs, "A", "B", higher_is_better=False).better == "A"
    assert judge("requests", runs, "A", "B").better is None


def test_values_without_spread_are_said_to_be_suspicious() -> None:
    verdict = judge("tok_s", reversed_runs(A=[10, 10], B=[20, 20]), "A", "B")
    assert verdict.outcome is Outcome.DISTINGUISHED
    assert [doubt.code for doubt in verdict.doubts] == ["no-spread"]


def test_a_metric_that_is_not_positive_has_no_ratio() -> None:
    verdict = judge("change", reversed_runs(A=[-1, -1.1], B=[1, 1.1]), "A", "B")
    assert (verdict.outcome, verdict.ratio, verdict.lead) == (Outcome.DISTINGUISHED, None, None)


def test_one_run_a_side_is_no_verdict_and_has_no_rate() -> None:
    verdict = judge("tok_s", [RunValue("A", 1, position=0, block=0), RunValue("B", 9, position=1, block=0)], "A", "B")
    assert (verdict.outcome, verdict.false_claims) == (Outcome.NO_VERDICT, None)
    assert verdict.ratio == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    "wrong", [{"amount": 1.0}, {"base": 1.0}, {"value": 1.0, "amount": 1.0, "base": 1.0}, {"amount": 1.0, "base": 0.0}]
)
def test_half_a_quotient_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        RunValue("A", **wrong)


def test_a_comparison_with_itself_or_of_two_runs_at_one_position_is_refused() -> None:
    runs = reversed_runs(A=[1, 2], B=[3, 4])
    with pytest.raises(ValueError, match="two variants"):
        judge("m", runs, "A", "A")
    with pytest.raises(ValueError, match="position of its own"):
        judge("m", [*runs, RunValue("A", 5, position=0)], "A", "B")


# ---- algebra -------------------------------------------------------------------------------------------------------

blocks = st.lists(st.tuples(values, values), min_size=1, max_size=8)


@given(blocks)
def test_a_verdict_is_symmetric_in_a_and_b(pairs: list[tuple[float, float]]) -> None:
    runs = reversed_runs(A=[one for one, _ in pairs], B=[other for _, other in pairs])
    one, other = judge("m", runs, "A", "B", higher_is_better=True), judge("m", runs, "B", "A", higher_is_better=True)
    assert (one.outcome, one.greater, one.better, one.lead) == (other.outcome, other.greater, other.better, other.lead)
    assert codes(one) == codes(other)
    assert (one.ratio or 0) * (other.ratio or 0) == pytest.approx(1)
    assert one.permutation == other.permutation


@given(blocks)
def test_a_verdict_does_not_depend_on_names(pairs: list[tuple[float, float]]) -> None:
    a, b = [one for one, _ in pairs], [other for _, other in pairs]
    one, other = judge("m", reversed_runs(A=a, B=b), "A", "B"), judge("m", reversed_runs(Z=a, Q=b), "Z", "Q")
    assert (one.outcome, one.decision, one.ratio, one.lead) == (other.outcome, other.decision, other.ratio, other.lead)
    assert one.greater == {"Z": "A", "Q": "B", None: None}[other.greater]
    assert (one.order, one.drift, codes(one)) == (other.order, other.drift, codes(other))


@given(blocks, st.integers(-20, 20))
def test_a_verdict_does_not_depend_on_the_unit(pairs: list[tuple[float, float]], power: int) -> None:
    unit = 2.0**power  # exact in floats, so that even a drift that equals the effect stays equal
    runs = reversed_runs(A=[one for one, _ in pairs], B=[other for _, other in pairs])
    scaled = reversed_runs(A=[one * unit for one, _ in pairs], B=[other * unit for _, other in pairs])
    here, there = judge("m", runs, "A", "B"), judge("m", scaled, "A", "B")
    assert (here.outcome, here.greater, here.lead, codes(here)) == (
        there.outcome,
        there.greater,
        there.lead,
        codes(there),
    )


@given(blocks, values)
def test_a_tie_between_sides_is_never_distinguished(pairs: list[tuple[float, float]], shared: float) -> None:
    runs = reversed_runs(A=[*(one for one, _ in pairs), shared], B=[*(other for _, other in pairs), shared])
    assert judge("m", runs, "A", "B").outcome is not Outcome.DISTINGUISHED
