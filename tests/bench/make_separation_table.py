"""Which separation keeps false claims between equals at 2 %, and what are the rates? Writes core/separation_table.py.

    python tests/bench/make_separation_table.py > agentload/core/separation_table.py

About a minute on one core. The same seed gives the same table with the same numpy. Progress goes to stderr.

For each pair of restart counts: c is the 98 % quantile of gap / wider range over normal draws of one spread (an overlap
counts below 0), rounded up; at 2, 3 and 4 a side it is the value that the protocol fixes, and the script stops if the
simulation does not bear it out. Where disjoint ranges alone are rarer than 2 % (2 / binomial), c is 0. Rates are
measured on other draws than those which gave c.
"""

import math
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Draws = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int, int], tuple[Draws, Draws]]

SEED = 20_090_307
CHUNK, CALIBRATE_CHUNKS, RATE_CHUNKS = 100_000, 8, 4
PROTOCOL_C = {2: 3.2, 3: 0.55, 4: 0.07}
TARGET = 0.02
LARGEST = 8  # pairs up to here get simulated rates; beyond it c is 0, but for 2 against 9 to 12


def pairs() -> list[tuple[int, int]]:
    """Return the pairs of the table, the smaller count first."""
    return [(a, b) for a in range(2, LARGEST + 1) for b in range(a, LARGEST + 1)] + [(2, b) for b in range(9, 13)]


def normal(rng: np.random.Generator, size: int, a: int, b: int) -> tuple[Draws, Draws]:
    """Draw equal spreads: the noise that c is made for."""
    return rng.standard_normal((size, a)), rng.standard_normal((size, b))


def heavy(rng: np.random.Generator, size: int, a: int, b: int) -> tuple[Draws, Draws]:
    """Draw Student's t with 3 degrees of freedom: far outliers on both sides."""
    return rng.standard_t(3, (size, a)), rng.standard_t(3, (size, b))


def stalls(rng: np.random.Generator, size: int, a: int, b: int) -> tuple[Draws, Draws]:
    """Draw normal noise in which one restart of ten is slow by 8 standard deviations."""
    one, other = normal(rng, size, a, b)
    return one - 8 * (rng.random((size, a)) < 0.1), other - 8 * (rng.random((size, b)) < 0.1)


def unequal(rng: np.random.Generator, size: int, a: int, b: int) -> tuple[Draws, Draws]:
    """Draw normal noise, four times as wide on one side; each side in half of the draws."""
    one, other = normal(rng, size, a, b)
    one[: size // 2] *= 4
    other[size // 2 :] *= 4
    return one, other


def separations(one: Draws, other: Draws) -> Draws:
    """Return gap / wider range of each draw; negative where the ranges overlap."""
    gap = np.maximum(one.min(axis=1) - other.max(axis=1), other.min(axis=1) - one.max(axis=1))
    return np.asarray(gap / np.maximum(np.ptp(one, axis=1), np.ptp(other, axis=1)))


def rate(noise: Noise, rng: np.random.Generator, a: int, b: int, c: float) -> float:
    """Return the share of draws between equals that the rule calls distinguished."""
    claims = 0
    for _ in range(RATE_CHUNKS):
        found = separations(*noise(rng, CHUNK, a, b))
        claims += int(np.count_nonzero((found > 0) & (found >= c)))
    return claims / (RATE_CHUNKS * CHUNK)


def calibrated(rng: np.random.Generator, a: int, b: int) -> float:
    """Return c for a pair, rounded up to 0.01, or to 0.001 below 0.1."""
    if 2 / math.comb(a + b, a) <= TARGET:
        return 0.0
    draws = np.concatenate([separations(*normal(rng, CHUNK, a, b)) for _ in range(CALIBRATE_CHUNKS)])
    found = float(np.quantile(draws, 1 - TARGET))
    sys.stderr.write(f"{a} against {b}: 98 % quantile {found:.4f}\n")
    if a == b:
        fixed = PROTOCOL_C[a]
        claims = float(np.mean((draws > 0) & (draws >= fixed)))
        if abs(claims - TARGET) > 0.001:
            raise SystemExit(f"expected false claims of 2 % at c({a}) = {fixed}, got {claims:.2%}")
        return fixed
    step = 0.01 if found >= 0.1 else 0.001
    return round(math.ceil(found / step) * step, 3)


def looked(rng: np.random.Generator) -> dict[int, float]:
    """Return the share of equals called distinguished at least once when judged after each restart from 2 a side on."""
    size = CHUNK * RATE_CHUNKS
    one, other = normal(rng, size, 5, 5)
    claimed = np.zeros(size, dtype=np.bool_)
    rates = {}
    for n in range(2, 6):
        found = separations(one[:, :n], other[:, :n])
        claimed |= (found > 0) & (found >= PROTOCOL_C.get(n, 0.0))
        rates[n] = float(claimed.mean())
    return rates


def main() -> None:
    """Write the module to stdout."""
    rng = np.random.default_rng(SEED)
    lines = []
    for a, b in pairs():
        c = calibrated(rng, a, b)
        rates = [rate(noise, rng, a, b, c) for noise in (normal, heavy, stalls, unequal)]
        lines.append(f"    ({a}, {b}): ({c}, {', '.join(f'{one:.4f}' for one in rates)}),\n")
    decided = ", ".join(f"{n}: {one:.4f}" for n, one in looked(rng).items())
    sys.stdout.write(
        '"""What did the simulation of the separation rule give? Made by tests/bench/make_separation_table.py.\n\n'
        f"Seed {SEED}, {CHUNK * CALIBRATE_CHUNKS:_} draws for each c and {CHUNK * RATE_CHUNKS:_} others for each rate:"
        ' a rate of 2 % is good to 0.05 points\n(two standard errors). Nothing here is edited by hand.\n"""\n\n'
        "from typing import Final\n\n"
        "# (restarts on one side, on the other; the smaller first): c, then the share of equals called distinguished\n"
        "# when the noise is normal | Student's t of 3 d.f. | normal, 1 slow boot in 10 | normal, a side 4x as wide\n"
        "SEPARATION: Final[dict[tuple[int, int], tuple[float, float, float, float, float]]] = {\n"
        + "".join(lines)
        + "}\n\n"
        "# The share called distinguished at least once when one judges at 2 a side and after each further restart.\n"
        f"DECIDED_AFTER_EACH: Final[dict[int, float]] = {{{decided}}}\n"
    )


if __name__ == "__main__":
    main()
