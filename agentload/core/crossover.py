"""In which order do the variants run, so that the night's drift settles on none of them?

Two variants run in reversed blocks (A B, then B A); three or more in rounds that rotate. Setups that look harmless,
the order of runs among them, move results by more than the effects people publish (Mytkowicz et al. 2009, "Producing
Wrong Data Without Doing Anything Obviously Wrong!", ASPLOS), and trials change the system for those that follow, so
that a fixed order biases a comparison (Duplyakin et al. 2023, "Avoiding the Ordering Trap in Systems Performance
Measurement", USENIX ATC).

Orders are plain data, the same for the same arguments on every machine: the seed is mixed by SHA-256, because numpy
does not promise the same stream in every version.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_SEARCHED_ROUNDS = 3  # an odd number of rounds cannot be paired: three of them are chosen together


@dataclass(frozen=True, slots=True)
class Step:
    """One run of an order. All counts start at 0."""

    position: int  # in the whole order
    block: int  # a block (or round) holds each variant once
    place: int  # within the block
    boot: int  # the server start it belongs to; the restart is the washout
    variant: str


def _checked(variants: Sequence[str], repeats: int) -> None:
    if len(variants) < 2 or len(set(variants)) != len(variants):
        raise ValueError(f"expected two or more variants with different names, got {list(variants)}")
    if repeats < 1:
        raise ValueError(f"expected 1 or more repeats, got {repeats}")


def _shuffled(count: int, seed: int) -> tuple[int, ...]:
    """Return 0 .. count - 1 in an order that only the seed decides."""
    return tuple(sorted(range(count), key=lambda index: hashlib.sha256(f"{seed}/{index}".encode()).digest()))


def _reversed_blocks(repeats: int) -> list[tuple[int, ...]]:
    """Return AB BA BA AB BA AB AB BA ...: block i is turned round when i has an odd number of 1 bits.

    That is the Thue-Morse order: any two blocks (2i, 2i + 1) cancel a linear drift, any four a quadratic one as well
    (a machine that warms up and settles). With an odd number of blocks one position is left over, the least there is.
    """
    return [(0, 1) if block.bit_count() % 2 == 0 else (1, 0) for block in range(repeats)]


def _rotated(count: int, by: int) -> tuple[int, ...]:
    return tuple((index + by) % count for index in range(count))


def _imbalance(rounds: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    """Return (how far apart the variants' sums of places are, how often a variant stands at a place again)."""
    count = len(rounds[0])
    sums = [sum(one.index(variant) for one in rounds) for variant in range(count)]
    repeated = sum(len(rounds) - len({one.index(variant) for one in rounds}) for variant in range(count))
    return max(sums) - min(sums), repeated


def _rotated_rounds(count: int, repeats: int) -> list[tuple[int, ...]]:
    """Return rounds that are rotations of the variants, or of the variants backwards.

    A multiple of `count` rounds: each variant stands at each place equally often, which cancels an effect of the place
    and a linear drift. An even number: each round is followed by itself backwards, which cancels a linear drift. An odd
    number: the first three are the rotations that come nearest to balance, the rest are such pairs.
    """
    if repeats % count == 0:
        return [_rotated(count, by) for _ in range(repeats // count) for by in range(count)]
    rounds: list[tuple[int, ...]] = []
    if repeats % 2:
        rounds.append(_rotated(count, 0))
        if repeats >= _SEARCHED_ROUNDS:
            forward = [_rotated(count, by) for by in range(count)]
            choices = forward + [one[::-1] for one in forward]
            best = min(
                itertools.product(choices, repeat=_SEARCHED_ROUNDS - 1), key=lambda two: _imbalance([*rounds, *two])
            )
            rounds.extend(best)
    for pair in range((repeats - len(rounds)) // 2):
        one = _rotated(count, len(rounds) // 2 + pair)
        rounds.extend((one, one[::-1]))
    return rounds


def _rounds(variants: Sequence[str], repeats: int, seed: int) -> list[list[str]]:
    _checked(variants, repeats)
    start = _shuffled(len(variants), seed)
    plan = _reversed_blocks(repeats) if len(variants) == 2 else _rotated_rounds(len(variants), repeats)
    return [[variants[start[index]] for index in one] for one in plan]


def restart_order(variants: Sequence[str], repeats: int, seed: int) -> tuple[Step, ...]:
    """Return the order of a comparison whose variants need a restart: every step is a boot of its own.

    A pure function of its arguments. The seed decides which variant stands where; names play no part in it.
    Reversed blocks after Mytkowicz et al. 2009 (randomise or balance the setup) and Duplyakin et al. 2023 (the order is
    a factor of its own); rotated rounds as PROTOCOL section 4, report B.

    Raises:
        ValueError: fewer than two variants, two of one name, or no repeats.
    """
    rounds = _rounds(variants, repeats, seed)
    count = len(variants)
    return tuple(
        Step(block * count + place, block, place, block * count + place, variant)
        for block, names in enumerate(rounds)
        for place, variant in enumerate(names)
    )


def request_order(variants: Sequence[str], sets: int, seed: int, boots: int = 1) -> tuple[Step, ...]:
    """Return the order for a setting that a request carries: the variants alternate inside one boot, `sets` times.

    The variation between restarts then stays out of the comparison (PROTOCOL section 4: three sets). Each further boot
    goes on with the sets that follow, so that no variant is always the first after a start (Duplyakin et al. 2023).

    Raises:
        ValueError: as `restart_order`, or no boots.
    """
    if boots < 1:
        raise ValueError(f"expected 1 or more boots, got {boots}")
    rounds = _rounds(variants, sets * boots, seed)
    count = len(variants)
    return tuple(
        Step(block * count + place, block, place, block // sets, variant)
        for block, names in enumerate(rounds)
        for place, variant in enumerate(names)
    )


def drift_left(order: Sequence[Step]) -> Fraction:
    """Return how far apart the variants' mean positions are, in steps: 0 means that a linear drift cancels out.

    A drift of d per step biases the difference of two variants' means by at most this times d.
    """
    positions: dict[str, list[int]] = {}
    for step in order:
        positions.setdefault(step.variant, []).append(step.position)
    means = [Fraction(sum(one), len(one)) for one in positions.values()]
    return max(means) - min(means) if means else Fraction(0)
