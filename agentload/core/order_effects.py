"""Could the order of the runs, rather than the variant, have made the difference?

Three looks at two sides whose places in the order are known: the effect of running first in a block, the drift over the
whole experiment, and a permutation test within blocks. All are linear in the metric, so that they stand in its unit and
beside the difference of the sides' means. A setup that is left fixed can bias a result by more than the effect that is
looked for (Mytkowicz et al. 2009); the place in the order is such a setup (Duplyakin et al. 2023).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

LEAST_BLOCKS: Final = 6  # 2 / 2^6 = 3.1 %: with fewer blocks no result can reach 5 %
MOST_BLOCKS: Final = 20  # 2^20 sign choices are all counted; beyond that there is no p here
_SAME_SUM: Final = 1e-9  # of the sum of sizes: sign choices whose sums differ by rounding only are equal


@dataclass(frozen=True, slots=True)
class Placed:
    """One valid value of one of two sides, and where it stood; positions are unique."""

    first_side: bool
    value: float
    position: int
    block: int | None = None  # holds each variant at most once


@dataclass(frozen=True, slots=True)
class OrderEffect:
    """What running first in a block did, the variants taken out."""

    first_minus_second: float | None  # in the metric's unit; None: the order was never reversed, so it cannot be told
    share: float | None  # of the mean of all values
    blocks_first_side_first: int
    blocks_second_side_first: int


@dataclass(frozen=True, slots=True)
class Drift:
    """A straight line through the values over position, one slope for both sides, the variants taken out."""

    per_step: float  # in the metric's unit
    over_all: float  # from the first to the last position
    share: float | None  # `over_all` of the mean of all values


@dataclass(frozen=True, slots=True)
class BlockPermutation:
    """Exact p of swapping the two sides' labels within blocks, all choices counted. Secondary to the ranges."""

    p: float
    blocks: int
    least_p: float  # the smallest p that so many blocks can give


def _share(part: float, placed: Sequence[Placed]) -> float | None:
    mean = sum(one.value for one in placed) / len(placed)
    return part / abs(mean) if mean else None


def difference(placed: Sequence[Placed]) -> float:
    """Return the mean of the first side minus the mean of the second, which must both have values."""
    sides = [[one.value for one in placed if one.first_side is side] for side in (True, False)]
    return sum(sides[0]) / len(sides[0]) - sum(sides[1]) / len(sides[1])


def _blocks(placed: Sequence[Placed]) -> list[tuple[Placed, Placed]]:
    """Return (first side, second side) of each block that holds both once."""
    held: dict[int, list[Placed]] = defaultdict(list)
    for one in placed:
        if one.block is not None:
            held[one.block].append(one)
    pairs = []
    for _, both in sorted(held.items()):
        mine = [one for one in both if one.first_side]
        others = [one for one in both if not one.first_side]
        if len(mine) > 1 or len(others) > 1:
            raise ValueError(f"expected each variant once in block {both[0].block}, got {len(mine)} and {len(others)}")
        if mine and others:
            pairs.append((mine[0], others[0]))
    return pairs


def order_effect(placed: Sequence[Placed]) -> OrderEffect | None:
    """Return the effect of the first place in a block, or None where no block holds both sides.

    d = first side - second side of a block. Where the first side ran first, d is variant + place; where it ran second,
    variant - place. So place = (mean of the former - mean of the latter) / 2: the two-period crossover's period effect,
    the "order effect" of Duplyakin et al. 2023. Incomplete blocks are left out.

    When every block is complete and the ranges are disjoint, all d have one sign and the place is always smaller than
    the variant: it is the reversal that protects such a claim. It can exceed the variant only where ranges overlap.

    Raises:
        ValueError: a block holds a side twice.
    """
    leads: list[float] = []
    follows: list[float] = []
    for mine, other in _blocks(placed):
        (leads if mine.position < other.position else follows).append(mine.value - other.value)
    if not leads and not follows:
        return None
    if not leads or not follows:
        return OrderEffect(None, None, len(leads), len(follows))
    effect = (sum(leads) / len(leads) - sum(follows) / len(follows)) / 2
    return OrderEffect(effect, _share(effect, placed), len(leads), len(follows))


def drift(placed: Sequence[Placed]) -> Drift | None:
    """Return the common slope over position, or None where no side has two values.

    Least squares with one level for each side: slope = sum (x - mean x of its side) (y - mean y of its side) / sum
    (x - mean x of its side)^2. One side after the other (A A B B) is the bias of Mytkowicz et al. 2009: the drift looks
    like a variant, and this slope still sees it.
    """
    across = along = 0.0
    for side in (True, False):
        mine = [one for one in placed if one.first_side is side]
        if not mine:
            continue
        middle = sum(one.position for one in mine) / len(mine)
        level = sum(one.value for one in mine) / len(mine)
        across += sum((one.position - middle) * (one.value - level) for one in mine)
        along += sum((one.position - middle) ** 2 for one in mine)
    if not along:
        return None
    positions = [one.position for one in placed]
    over_all = across / along * (max(positions) - min(positions))
    return Drift(across / along, over_all, _share(over_all, placed))


def one_after_the_other(placed: Sequence[Placed]) -> bool:
    """Whether all of one side ran before all of the other, so that time and variant cannot be told apart."""
    mine = [one.position for one in placed if one.first_side]
    others = [one.position for one in placed if not one.first_side]
    return bool(mine) and bool(others) and (max(mine) < min(others) or max(others) < min(mine))


def block_permutation(placed: Sequence[Placed]) -> BlockPermutation | None:
    """Return the exact two-sided p of the sum of the blocks' differences, None outside 6 to 20 blocks.

    Under "no difference" either label fits either run of a block, so each difference is as likely as its negative:
    Fisher's randomisation test on pairs. It asks less than the ranges do, and is not corrected for looking twice.

    Raises:
        ValueError: a block holds a side twice.
    """
    differences = [mine.value - other.value for mine, other in _blocks(placed)]
    if not LEAST_BLOCKS <= len(differences) <= MOST_BLOCKS:
        return None
    sums = np.zeros(1)
    for one in differences:
        sums = np.concatenate((sums + one, sums - one))
    slack = _SAME_SUM * sum(abs(one) for one in differences)
    far = int(np.count_nonzero(np.abs(sums) >= abs(sum(differences)) - slack))
    return BlockPermutation(far / sums.size, len(differences), 2 / sums.size)
