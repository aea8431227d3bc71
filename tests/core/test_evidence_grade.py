"""Does every number get the grade that it deserves, and none a better one?"""

import pytest

from agentload.core.evidence_grade import QUANTITIES, Grade, Origin, Repetition, grade
from agentload.core.verdict import MetricVerdict, RunValue, judge

REPEATED = Repetition(restarts=2, order_reversed=True)


def compared(*values: tuple[str, float], blocks: bool = True) -> MetricVerdict:
    runs = [
        RunValue(name, value, position=at, block=at // 2 if blocks else None) for at, (name, value) in enumerate(values)
    ]
    return judge("prefill_tok_s", runs, "A", "B")


APART = compared(("A", 1.0), ("B", 2.0), ("B", 2.1), ("A", 1.1))


def test_measured_repeated_and_reversed_is_confirmed() -> None:
    assert grade("prefill_tok_s", repetition=REPEATED).grade is Grade.CONFIRMED
    assert grade("ratio", verdict=APART).grade is Grade.CONFIRMED


def test_a_single_run_is_an_estimate_of_the_others() -> None:
    assert grade("prefill_tok_s", repetition=Repetition(1, order_reversed=True)).grade is Grade.ESTIMATE


def test_repeats_in_one_order_are_an_estimate() -> None:
    assert grade("prefill_tok_s", repetition=Repetition(3, order_reversed=False)).grade is Grade.ESTIMATE
    known_positions_only = compared(("A", 1.0), ("B", 2.0), ("B", 2.1), ("A", 1.1), blocks=False)
    assert grade("ratio", verdict=known_positions_only).grade is Grade.ESTIMATE


def test_a_difference_that_is_not_distinguished_is_a_hypothesis() -> None:
    direction = compared(("A", 1.0), ("B", 2.0), ("B", 3.0), ("A", 1.1))
    overlapping = compared(("A", 1.0), ("B", 2.0), ("B", 3.0), ("A", 2.5))
    assert [grade("lead", verdict=one).grade for one in (direction, overlapping)] == [Grade.HYPOTHESIS] * 2
    assert grade("lead", verdict=direction).reason == "measured, consistent direction"


def test_a_refused_claim_is_a_hypothesis_with_the_reason() -> None:
    never_reversed = compared(("A", 1.0), ("B", 2.0), ("A", 1.1), ("B", 2.1))
    found = grade("ratio", verdict=never_reversed)
    assert found.grade is Grade.HYPOTHESIS
    assert "always ran before" in found.reason


def test_what_is_computed_carries_its_assumption() -> None:
    found = grade("equal_work_s")
    assert found.grade is Grade.ESTIMATE
    assert found.reason == "phases laid end to end: an upper bound on wall time"


def test_advice_is_a_judgement_and_a_cause_a_hypothesis() -> None:
    assert grade("recommended_quantum_tokens").grade is Grade.JUDGEMENT
    assert grade("cause").grade is Grade.HYPOTHESIS


def test_nothing_simulated_is_confirmed() -> None:
    for name in QUANTITIES:
        assert grade(name, repetition=REPEATED, verdict=APART, simulated=True).grade is not Grade.CONFIRMED


def test_only_what_is_measured_can_be_confirmed() -> None:
    best = {name for name in QUANTITIES if grade(name, repetition=REPEATED, verdict=APART).grade is Grade.CONFIRMED}
    assert best == {name for name, one in QUANTITIES.items() if one.origin in {Origin.MEASURED, Origin.COMPARED}}


def test_every_computed_quantity_states_what_it_assumes() -> None:
    assert [
        name for name, one in QUANTITIES.items() if (one.origin is Origin.COMPUTED) is not bool(one.assumption)
    ] == []


def test_a_number_nobody_has_graded_cannot_be_printed() -> None:
    with pytest.raises(ValueError, match="QUANTITIES"):
        grade("vibes")


@pytest.mark.parametrize("name", ["prefill_tok_s", "ratio"])
def test_a_grade_needs_what_it_rests_on(name: str) -> None:
    with pytest.raises(ValueError, match="expected the"):
        grade(name)
