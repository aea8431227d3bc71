"""How often is the verdict wrong, how often does it see a true effect, and what does a drift do to it?

    python -m tests.bench.bench_verdict [null|power|drift|strict|forecast] [DRAWS]

Prints tables: false claims between equals at 2 to 5 restarts a side (2,000 draws a cell), power and wrong signs,
blocked against reversed order under a drift of 10 %, what a stricter rule would cost, and whether the forecast of
further restarts keeps its promise. `rule` is on the values alone, `final` after the refusals for order and drift.
Spreads are standard deviations between restarts. Each part takes less than a minute.
"""

import sys
import time
import zlib

import numpy as np

from agentload.core.forecast import Prospect, restarts_needed
from agentload.core.separation import Outcome, decide, false_claims, needed_separation
from tests.core.simulated_runs import Noise, blocked_order, heavy, normal, slow_boots, tally

SPREADS = (0.02, 0.05, 0.15)
EFFECTS = (0.05, 0.20, 1.00)
RESTARTS = (2, 3, 4, 5)


def seed_of(*cell: object) -> int:
    """Return a seed that belongs to the cell alone."""
    return zlib.crc32(repr(cell).encode())


def null(draws: int) -> None:
    """False claims, counted and printed by the code."""
    noises: tuple[tuple[str, Noise], ...] = (("normal", normal), ("t, 3 d.f.", heavy), ("slow boots", slow_boots))
    sys.stdout.write("noise       n  spread   rule  final   code says   published rule, code says   (%)\n")
    for name, noise in noises:
        for restarts in RESTARTS:
            rates = false_claims(restarts, restarts)
            said = {"normal": rates.normal, "t, 3 d.f.": rates.heavy_tailed, "slow boots": rates.slow_boots or 0.0}[
                name
            ]
            for spread in SPREADS:
                got = tally(draws, restarts, seed_of("null", name, restarts, spread), spread=spread, noise=noise)
                sys.stdout.write(
                    f"{name:<11} {restarts} {spread:6.0%} {got.share(got.rule):7.2%} {got.share(got.final):6.2%} "
                    f"{said:8.2%} {got.share(got.published):12.2%} {rates.published_rule:8.2%}\n"
                )


def power(draws: int) -> None:
    """Share distinguished, and wrong signs."""
    sys.stdout.write("effect spread  share distinguished by rule/final at 2 3 4 5      wrong signs by rule/final\n")
    for effect in EFFECTS:
        for spread in SPREADS:
            got = [
                tally(draws, restarts, seed_of("power", effect, restarts, spread), effect=effect, spread=spread)
                for restarts in RESTARTS
            ]
            shares = "  ".join(f"{one.share(one.rule):5.1%}/{one.share(one.final):5.1%}" for one in got)
            wrong = "  ".join(f"{one.wrong_rule}/{one.wrong_final}" for one in got)
            sys.stdout.write(f"{effect:5.0%} {spread:5.0%}   {shares}   {wrong}\n")


def drifts(draws: int) -> None:
    """A drift of 10 % over the night and no effect: who claims a winner?"""
    sys.stdout.write("order     n  spread   disjoint   distinguished   final: any claim   distinguished\n")
    for restarts in RESTARTS:
        for spread in (0.0, 0.005, 0.02):
            for name, order in (("A A B B", blocked_order(restarts)), ("reversed", None)):
                count = 1 if spread == 0 else draws
                got = tally(
                    count, restarts, seed_of("drift", name, restarts, spread), spread=spread, drift=0.1, order=order
                )
                claims = sum(number for outcome, number in got.outcomes.items() if outcome.claims)
                sys.stdout.write(
                    f"{name:<9} {restarts} {spread:6.1%} {got.share(got.published):10.1%} {got.share(got.rule):15.1%} "
                    f"{got.share(claims):18.1%} {got.share(got.final):15.1%}\n"
                )


def strict(draws: int) -> None:
    """What would it take that no wrong sign is claimed in 2,000 at an effect of 5 % and a spread of 15 %?"""
    rng = np.random.default_rng(seed_of("strict"))
    size = 200 * draws
    sys.stdout.write("n   c   wrong signs in 2,000 at 5 %/15 %   power at 20 %/5 %   at 100 %/15 %   at 100 %/5 %\n")
    for restarts in RESTARTS:
        for factor in (needed_separation(restarts, restarts), 0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
            if factor < needed_separation(restarts, restarts):
                continue
            row = []
            for effect, spread in ((0.05, 0.15), (0.20, 0.05), (1.0, 0.15), (1.0, 0.05)):
                one = 1 + spread * rng.standard_normal((size, restarts))
                other = (1 + effect) * (1 + spread * rng.standard_normal((size, restarts)))
                wider = np.maximum(np.ptp(one, axis=1), np.ptp(other, axis=1))
                right = other.min(axis=1) - one.max(axis=1)
                wrong = one.min(axis=1) - other.max(axis=1)
                row.append([float(np.mean((gap > 0) & (gap >= factor * wider))) for gap in (right, wrong)])
            shares = "  ".join(f"{right:6.1%}" for right, _ in row[1:])
            sys.stdout.write(f"{restarts} {factor:5.2f}   {2000 * row[0][1]:8.2f}          {shares}\n")


def forecasts(draws: int) -> None:
    """Of two restarts a side that leave a consistent direction: what is promised, and what comes true?"""
    sys.stdout.write("effect spread   promised by the forecast   came true   of experiments with such a promise\n")
    for effect in EFFECTS:
        for spread in SPREADS:
            rng = np.random.default_rng(seed_of("forecast", effect, spread))
            promised, kept = [], 0
            for _ in range(draws):
                one = (1 + spread * rng.standard_normal(8)).tolist()
                other = ((1 + effect) * (1 + spread * rng.standard_normal(8))).tolist()
                found = restarts_needed(one[:2], other[:2], rng)
                if found.prospect is not Prospect.MORE or found.more is None:
                    continue
                promised.append(dict(found.chances)[found.more])
                upto = 2 + found.more
                kept += decide(one[:upto], other[:upto]).outcome is Outcome.DISTINGUISHED
            if promised:
                sys.stdout.write(
                    f"{effect:5.0%} {spread:5.0%} {np.mean(promised):22.1%} {kept / len(promised):14.1%} "
                    f"{len(promised):12d} of {draws}\n"
                )


def main() -> None:
    """Run the named part, or all of them."""
    parts = {"null": null, "power": power, "drift": drifts, "strict": strict, "forecast": forecasts}
    named = [one for one in sys.argv[1:] if one in parts] or list(parts)
    draws = next((int(one) for one in sys.argv[1:] if one.isdigit()), 2_000)
    for name in named:
        begin = time.perf_counter()
        sys.stdout.write(f"\n{name}, {draws} draws a cell, numpy {np.__version__}\n")
        parts[name](draws)
        sys.stdout.write(f"{time.perf_counter() - begin:.1f} s\n")


if __name__ == "__main__":
    main()
