"""MoE arithmetic: small cases counted by hand, and its inverse. Report A's table 9 is in test_published_tables."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.moe import chunk_for, nearest_power_of_two, tokens_per_expert, unique_experts

_experts = st.integers(1, 512)


@pytest.mark.parametrize(("experts", "chosen", "chunk"), [(2, 1, 3), (3, 1, 4), (3, 2, 3), (4, 2, 2)])
def test_unique_experts_is_the_mean_over_every_possible_choice(experts: int, chosen: int, chunk: int) -> None:
    choices = list(itertools.combinations(range(experts), chosen))
    woken = [len(set().union(*picks)) for picks in itertools.product(choices, repeat=chunk)]
    assert unique_experts(chunk, experts, chosen) == pytest.approx(sum(woken) / len(woken))


def test_one_token_wakes_k_experts_and_no_token_wakes_none() -> None:
    assert unique_experts(1, 256, 6) == pytest.approx(6)
    assert unique_experts(0, 256, 6) == 0


def test_a_dense_layer_always_wakes_all_its_experts() -> None:
    assert unique_experts(1, 8, 8) == 8
    assert tokens_per_expert(100, 8, 8) == 100


@given(_experts, st.data(), st.integers(0, 10_000))
def test_never_more_experts_than_there_are_or_than_were_asked_for(
    experts: int, data: st.DataObject, chunk: int
) -> None:
    chosen = data.draw(st.integers(1, experts))
    unique = unique_experts(chunk, experts, chosen)
    assert 0 <= unique <= min(experts, chunk * chosen) + 1e-9 * experts


@given(_experts, st.data(), st.integers(1, 1_000))
def test_the_inverse_gives_back_the_target(experts: int, data: st.DataObject, target: int) -> None:
    chosen = data.draw(st.integers(1, experts))
    assert chunk_for(target, experts, chosen).raw_tokens * chosen / experts == pytest.approx(target)


@pytest.mark.parametrize(
    ("tokens", "nearest"),
    [(1, 1), (0.3, 1), (2, 2), (3, 4), (1448, 1024), (1449, 2048), (2048, 2048), (2896, 2048), (2897, 4096)],
)
def test_the_nearest_power_of_two_changes_over_at_the_geometric_middle(tokens: float, nearest: int) -> None:
    # 1024 x sqrt(2) = 1448.15 and 2048 x sqrt(2) = 2896.3
    assert nearest_power_of_two(tokens) == nearest


@pytest.mark.parametrize("tokens", [0, -1, math.inf, math.nan])
def test_a_chunk_that_is_no_positive_number_has_no_power_of_two(tokens: float) -> None:
    with pytest.raises(ValueError, match="positive number of tokens"):
        nearest_power_of_two(tokens)


@pytest.mark.parametrize(("experts", "chosen"), [(8, 0), (8, 9), (0, 0)])
def test_more_experts_a_token_than_there_are_is_refused(experts: int, chosen: int) -> None:
    for attempt in (
        lambda: unique_experts(1, experts, chosen),
        lambda: tokens_per_expert(1, experts, chosen),
        lambda: chunk_for(48, experts, chosen),
    ):
        with pytest.raises(ValueError, match="experts per token <= experts"):
            attempt()


def test_negative_chunks_and_targets_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or more tokens, got -1"):
        unique_experts(-1, 8, 2)
    with pytest.raises(ValueError, match="0 or more tokens, got -1"):
        tokens_per_expert(-1, 8, 2)
    with pytest.raises(ValueError, match="positive target"):
        chunk_for(0, 8, 2)
