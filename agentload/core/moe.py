"""How many experts does a prefill chunk wake, and which chunk size keeps them busy?

A mixture-of-experts layer has E experts, of which each token uses k. The estimate takes every token's choice as
independent and uniform (PROTOCOL section 3, report A). The more tokens share one expert's weights, the cheaper a token.
"""

import math
from dataclasses import dataclass


def _check_experts(experts: int, experts_per_token: int) -> None:
    if not 1 <= experts_per_token <= experts:
        raise ValueError(f"expected 1 <= experts per token <= experts, got {experts_per_token} of {experts}")


def _check_chunk(chunk_tokens: int) -> None:
    if chunk_tokens < 0:
        raise ValueError(f"expected a chunk of 0 or more tokens, got {chunk_tokens}")


def unique_experts(chunk_tokens: int, experts: int, experts_per_token: int) -> float:
    """Expected number of different experts that a chunk of Q tokens wakes: E x (1 - (1 - k/E)^Q).

    Raises:
        ValueError: not 1 <= k <= E, or a negative chunk.
    """
    _check_experts(experts, experts_per_token)
    _check_chunk(chunk_tokens)
    missed_by_one = 1 - experts_per_token / experts
    return float(experts * (1 - missed_by_one**chunk_tokens))


def tokens_per_expert(chunk_tokens: int, experts: int, experts_per_token: int) -> float:
    """Mean number of tokens of a chunk that meet in one expert: Q x k / E.

    Raises:
        ValueError: not 1 <= k <= E, or a negative chunk.
    """
    _check_experts(experts, experts_per_token)
    _check_chunk(chunk_tokens)
    return chunk_tokens * experts_per_token / experts


def nearest_power_of_two(tokens: float) -> int:
    """Return the power of two (1 or more) nearest to `tokens` in log2, so that 1536 gives 2048 and 1448 gives 1024.

    Raises:
        ValueError: `tokens` is not positive and finite.
    """
    if not (tokens > 0 and math.isfinite(tokens)):
        raise ValueError(f"expected a positive number of tokens, got {tokens}")
    return 1 << max(0, round(math.log2(tokens)))


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """A chunk size that reaches a wanted number of tokens per expert."""

    raw_tokens: float  # Q = target x E / k
    power_of_two_tokens: int  # what to set: other values pay at the engine's chunk boundary


def chunk_for(target_tokens_per_expert: float, experts: int, experts_per_token: int) -> ChunkSize:
    """Return the chunk that gives each expert `target_tokens_per_expert` on average: Q = target x E / k.

    Raises:
        ValueError: not 1 <= k <= E, or the target is not positive.
    """
    _check_experts(experts, experts_per_token)
    if not (target_tokens_per_expert > 0 and math.isfinite(target_tokens_per_expert)):
        raise ValueError(f"expected a positive target of tokens per expert, got {target_tokens_per_expert}")
    raw = target_tokens_per_expert * experts / experts_per_token
    return ChunkSize(raw, nearest_power_of_two(raw))
