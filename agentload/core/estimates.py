"""What would follow from measured speeds, if nothing else mattered? Estimates, never measurements; each says so."""

from dataclasses import dataclass
from typing import Final

from agentload.core.accounting import ratio

EQUAL_WORK_PREFILL_TOKENS: Final = 165_000  # report A, table 6
EQUAL_WORK_DECODED_TOKENS: Final = 20_000


def expected_under_time_sharing(ceiling_tok_s: float, decode_utilisation: float) -> float:
    """Prefill speed to expect if decode only took its time: ceiling x (1 - decode utilisation), in tok/s.

    Utilisation is the decoders' tok/s while the prefill runs / their tok/s alone; not the decode share. A speed far
    below what is expected means that prefill itself got slower.

    Raises:
        ValueError: the utilisation is outside 0..1.
    """
    if not 0 <= decode_utilisation <= 1:
        raise ValueError(f"expected a decode utilisation from 0 to 1, got {decode_utilisation}")
    return ceiling_tok_s * (1 - decode_utilisation)


@dataclass(frozen=True, slots=True)
class EqualWork:
    """An ESTIMATE: fixed work at measured speeds, its phases laid end to end; an upper bound on wall time."""

    new_prefill_tokens: int
    decoded_tokens: int
    prefill_s: float
    decode_s: float
    total_s: float
    evidence: str = "estimate"  # the grade of PROTOCOL section 5, which every showing of it must carry


def equal_work(
    prefill_tok_s: float | None,
    decode_tok_s: float | None,
    new_prefill_tokens: int = EQUAL_WORK_PREFILL_TOKENS,
    decoded_tokens: int = EQUAL_WORK_DECODED_TOKENS,
) -> EqualWork | None:
    """Estimate the time of equal work from two measured speeds; None when one of them is unknown or 0."""
    prefill_s, decode_s = ratio(new_prefill_tokens, prefill_tok_s), ratio(decoded_tokens, decode_tok_s)
    if prefill_s is None or decode_s is None:
        return None
    return EqualWork(new_prefill_tokens, decoded_tokens, prefill_s, decode_s, prefill_s + decode_s)
