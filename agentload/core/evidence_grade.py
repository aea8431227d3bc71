"""How sure may a report sound about this number?

Every number that a report prints has a grade, and this is the only place that gives one (PROTOCOL section 5, after
table 12 of report A): confirmed (measured, repeated, order reversed), estimate (computed from measured values under a
stated assumption), judgement, hypothesis (consistent, not isolated). A quantity that has no line in `QUANTITIES` cannot
be printed. That repeating and reversing, and not the size of a number, is what confirms it, is the lesson of Mytkowicz
et al. 2009 and Duplyakin et al. 2023.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentload.core.separation import LEAST_RESTARTS, Outcome
from agentload.core.verdict import MetricVerdict


class Grade(StrEnum):
    """What a number rests on, best first."""

    CONFIRMED = "confirmed"
    ESTIMATE = "estimate"
    JUDGEMENT = "judgement"
    HYPOTHESIS = "hypothesis"


class Origin(StrEnum):
    """How a quantity comes about."""

    MEASURED = "measured"  # counts and times of one run or segment, and quotients of them
    COMPARED = "compared"  # two variants on one metric
    COMPUTED = "computed"  # from measured values, under an assumption
    CHOSEN = "chosen"  # a recommendation: numbers and somebody's weighing
    EXPLAINED = "explained"  # a cause that fits what is seen, and was not isolated


@dataclass(frozen=True, slots=True)
class Quantity:
    """How a quantity comes about and, where it is computed, what is assumed."""

    origin: Origin
    assumption: str | None = None


@dataclass(frozen=True, slots=True)
class Graded:
    """A grade, and the one line that says why; an estimate's line is its assumption."""

    grade: Grade
    reason: str


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often and in which order a number was measured. Counts are valid restarts of the variant it belongs to."""

    restarts: int
    order_reversed: bool  # each variant ran first at least once


_MEASURED: Final = Quantity(Origin.MEASURED)
_COMPARED: Final = Quantity(Origin.COMPARED)

QUANTITIES: Final[dict[str, Quantity]] = {
    # one variant: core.accounting
    **dict.fromkeys(
        (
            "requests",
            "tool_calls",
            "prompt_tokens",
            "cached_tokens",
            "new_prefill_tokens",
            "decoded_tokens",
            "reasoning_tokens",
            "prefill_busy_s",
            "decode_busy_s",
            "wall_s",
            "prefill_tok_s",
            "decode_tok_s",
            "prefill_tokens_per_cpu_s",
            "new_prefill_tokens_per_turn",
            "prefill_share",
            "decode_share",
            "overlap",
            "double_counting",
            "bucket_tok_s",
            "exposure",
            "ttft_s",
            "inter_token_gap_s",
            "decoder_gap_s",
            "decoder_gap_p99_s",
            "neighbour_tok_s",
            "ends_spread_s",
            "stall_s",
            "acceptance",
            "accepted_length",
            "smallest_free_vram_bytes",
        ),
        _MEASURED,
    ),
    "sampled_overlap": Quantity(Origin.COMPUTED, "a cell of 15 s counts as a whole when both phases occur in it"),
    "share_of_ceiling": Quantity(Origin.COMPUTED, "the fastest speed measured without interleaving is the ceiling"),
    "nominal_accepted_length": Quantity(Origin.COMPUTED, "every draft starts anew: 1 + the sum of the acceptances"),
    "equal_work_s": Quantity(Origin.COMPUTED, "phases laid end to end: an upper bound on wall time"),
    "expected_prefill_tok_s": Quantity(Origin.COMPUTED, "decode only takes prefill's time, it does not slow it down"),
    "cost_ms_per_token": Quantity(Origin.COMPUTED, "a decode step beside a prefill takes as long as one alone"),
    "tokens_from_text": Quantity(Origin.COMPUTED, "the server's tokenizer counts as tiktoken does"),
    "unique_experts": Quantity(Origin.COMPUTED, "every token chooses its experts independently and evenly"),
    "tokens_per_expert": Quantity(Origin.COMPUTED, "every token chooses its experts independently and evenly"),
    "twin_prediction": Quantity(Origin.COMPUTED, "the twin's cost model holds for this machine"),
    "restarts_needed": Quantity(
        Origin.COMPUTED, "further restarts are drawn from the same normal noise as those so far"
    ),
    # two variants: core.verdict
    **dict.fromkeys(("ratio", "lead", "difference", "bucket_ratio"), _COMPARED),
    "equal_work_ratio": Quantity(Origin.COMPUTED, "phases laid end to end: an upper bound on wall time"),
    "order_effect": Quantity(Origin.COMPUTED, "the place in a block adds the same to either variant"),
    "drift": Quantity(Origin.COMPUTED, "a straight line over the order of the runs"),
    "permutation_p": Quantity(Origin.COMPUTED, "without a difference, either label fits either run of a block"),
    "false_claim_rate": Quantity(Origin.COMPUTED, "noise of one shape and one spread on both sides"),
    # advice and causes
    **dict.fromkeys(("recommended_value", "recommended_quantum_tokens"), Quantity(Origin.CHOSEN)),
    "cause": Quantity(Origin.EXPLAINED),
}

_SIMULATED: Final = Graded(Grade.ESTIMATE, "simulated: if the twin's cost model holds for a machine")


def _measured(repetition: Repetition) -> Graded:
    if repetition.restarts < LEAST_RESTARTS:
        return Graded(Grade.ESTIMATE, f"measured, {repetition.restarts} restart stands for all of them")
    if not repetition.order_reversed:
        return Graded(Grade.ESTIMATE, "measured and repeated, taking it that the order of the runs did not matter")
    return Graded(Grade.CONFIRMED, f"measured in {repetition.restarts} restarts, order reversed")


def _reversed(verdict: MetricVerdict) -> bool:
    order = verdict.order
    return order is not None and min(order.blocks_first_side_first, order.blocks_second_side_first) > 0


def _compared(verdict: MetricVerdict) -> Graded:
    if verdict.refusals:
        return Graded(Grade.HYPOTHESIS, verdict.refusals[0].message)
    if verdict.outcome is not Outcome.DISTINGUISHED:
        return Graded(Grade.HYPOTHESIS, f"measured, {verdict.outcome.value}")
    restarts = min(len(verdict.first.values), len(verdict.second.values))
    if not _reversed(verdict):
        return Graded(
            Grade.ESTIMATE, f"{restarts} restarts a side, taking it that the order of the runs did not matter"
        )
    return Graded(Grade.CONFIRMED, f"distinguished at {restarts} restarts a side, order reversed")


def grade(
    quantity: str,
    *,
    repetition: Repetition | None = None,
    verdict: MetricVerdict | None = None,
    simulated: bool = False,
) -> Graded:
    """Return the grade of a number that a report is about to print (PROTOCOL section 5).

    A measured quantity needs its `repetition`, a compared one its `verdict`; the others need nothing. `simulated` says
    that it was measured on the twin: then it is an estimate at best. A difference that is not distinguished is a
    hypothesis, however large it looks.

    Raises:
        ValueError: the quantity has no line in QUANTITIES, or what its grade rests on is missing.
    """
    found = QUANTITIES.get(quantity)
    if found is None:
        raise ValueError(f"expected a quantity of evidence_grade.QUANTITIES, got {quantity!r}")
    match found.origin:
        case Origin.MEASURED:
            if repetition is None:
                raise ValueError(f"expected the repetition of the measured quantity {quantity!r}")
            return _SIMULATED if simulated else _measured(repetition)
        case Origin.COMPARED:
            if verdict is None:
                raise ValueError(f"expected the verdict of the compared quantity {quantity!r}")
            return _SIMULATED if simulated else _compared(verdict)
        case Origin.COMPUTED:
            return Graded(Grade.ESTIMATE, found.assumption or "")
        case Origin.CHOSEN:
            return Graded(Grade.JUDGEMENT, "a recommendation from the numbers beside it")
        case Origin.EXPLAINED:
            return Graded(Grade.HYPOTHESIS, "consistent with what was measured, not isolated")
