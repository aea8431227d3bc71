"""How long is what a coding agent's model writes, and what does it call?

Distributions with their sources, and the draws from them. A draw is a pure function of a name: no generator whose
stream may change with a library's version, and no `hash()`.

Sources, as numbers with their names here:
* W: 710 anonymised Claude Code traces of the `kv-cache-tester` corpus; rows of its 55 to 62 sub-agents of type Explore,
  the closest public relative of these agents.
* P: the Pi transcripts of `swe-bench-pro-cost-token-time-analysis`, their phase of understanding only.
* M: 42,847 turns with tool calls of one user's Claude Code logs (`cc-multi`).
"""

from dataclasses import dataclass, field
from hashlib import blake2b, shake_128
from itertools import pairwise
from math import exp, log
from statistics import NormalDist
from typing import Final, Protocol

from agentload.errors import UsageError

_MASK: Final = (1 << 64) - 1
_NORMAL: Final = NormalDist()
_Z90: Final = _NORMAL.inv_cdf(0.9)


class Draws:
    """A stream of random numbers that its name decides: splitmix64 (Steele, Lea, Flood 2014) from a BLAKE2 digest."""

    __slots__ = ("_state",)

    def __init__(self, *name: str | int) -> None:
        """The stream called `name`: other names give streams that have nothing to do with each other."""
        said = "\x1f".join(f"{type(part).__name__}:{part}" for part in name).encode("utf-8", "surrogatepass")
        self._state = int.from_bytes(blake2b(said, digest_size=8).digest(), "big")

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def unit(self) -> float:
        """Return the next number in [0, 1)."""
        return (self._next() >> 11) * 2.0**-53

    def below(self, end: int) -> int:
        """Return the next whole number in [0, end)."""
        return (self._next() * end) >> 64

    def bytes(self, count: int) -> bytes:
        """Return `count` random bytes, at the price of one draw; none for less than one."""
        return shake_128(self._next().to_bytes(8, "big")).digest(max(0, count))

    def chance(self, probability: float) -> bool:
        """Return whether something of this probability happens."""
        return self.unit() < probability

    def index(self, weights: list[float]) -> int:
        """Return an index, each with a probability in proportion to its weight; not all weights may be 0."""
        at = self.unit() * sum(weights)
        for number, weight in enumerate(weights):
            at -= weight
            if at < 0:
                return number
        return max(number for number, weight in enumerate(weights) if weight > 0)


class Spread(Protocol):
    """A distribution of whole numbers."""

    def at(self, unit: float) -> int:
        """Return its quantile at `unit`, in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Straight lines between known quantiles: `points` are (share, value), from share 0 to share 1, both rising."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(self.points))
        if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1 or not rising:
            raise UsageError(f"quantiles: expected rising (share, value) from share 0 to 1, got {self.points}")

    def at(self, unit: float) -> int:
        """Return its quantile at `unit`, rounded."""
        for (low, first), (high, last) in pairwise(self.points):
            if unit <= high:
                return round(first + (last - first) * (unit - low) / (high - low))
        return round(self.points[-1][1])


def always(value: int) -> Quantiles:
    """Return the distribution that is nothing but `value`."""
    return Quantiles(((0.0, value), (1.0, value)))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal by its median and its 90 % quantile, kept within `least` and `most`."""

    p50: float
    p90: float
    least: int = 1
    most: int = 1 << 31

    def __post_init__(self) -> None:
        if not 0 < self.p50 <= self.p90 or self.least > self.most:
            raise UsageError(f"lognormal: expected 0 < p50 <= p90 and least <= most, got {self}")

    def at(self, unit: float) -> int:
        """Return its quantile at `unit`, rounded: exp(ln p50 + z(unit) x ln(p90 / p50) / z(0.9))."""
        z = _NORMAL.inv_cdf(min(max(unit, 1e-9), 1 - 1e-9))
        return min(self.most, max(self.least, round(exp(log(self.p50) + z * log(self.p90 / self.p50) / _Z90))))


@dataclass(frozen=True, slots=True)
class Mix:
    """Which calls a task is made of. Sources: P, its read-only calls; shares of Opus and of gpt-5.4 in the comments."""

    read: float = 0.60  # of all calls; the rest is bash (0.54, 0.66)
    whole: float = 0.55  # of the reads are of a whole file, the rest of some of its lines (0.49, 0.63)
    # Of the bash calls, which sum to 1:
    grep: float = 0.80  # 0.77 to 0.82
    listing: float = 0.07  # ls, tree: at most 0.08
    find: float = 0.05  # 0.04 to 0.06
    page: float = 0.05  # cat, sed, head: 0.02 to 0.08
    measure: float = 0.03  # wc, stat: at most 0.09

    def __post_init__(self) -> None:
        inside = (self.grep, self.listing, self.find, self.page, self.measure)
        if any(not 0 <= share <= 1 for share in (self.read, self.whole, *inside)):
            raise UsageError(f"mix: expected shares from 0 to 1, got {self}")
        if abs(sum(inside) - 1) > 1e-9:
            raise UsageError(f"mix: expected the shares of bash calls to sum to 1, got {sum(inside):g}")


# Calls of an answer, where several may be made: 64.2, 21.3, 9.4 and 5.2 % have 1, 2, 3, and 4 or more (M), here 4.
AT_ONCE: Final = (0.642, 0.213, 0.094, 0.052)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many calls a task takes, and how many tokens or lines each part has.

    Where a source gives four quantiles or more they are met exactly, with straight lines between; where it gives two,
    a lognormal goes through both. Tokens are the twin's own (`vocabulary`).
    """

    # Tool calls of a task. W: p10/25/50/75/90/99 = 7/13/21/27/34/55, mean 21; ends chosen (82: a published run).
    calls: Spread = field(
        default=Quantiles(((0, 3), (0.1, 7), (0.25, 13), (0.5, 21), (0.75, 27), (0.9, 34), (0.99, 55), (1, 82)))
    )
    # Tool calls after a further message of the user that is no new task (a nudge, a question): chosen.
    further_calls: Spread = field(default=Quantiles(((0, 1), (0.5, 4), (1, 8))))
    # Text and call of a turn with a tool call. W: p10/50/90/99 = 125/228/340/520; ends chosen.
    turn_tokens: Spread = field(default=Quantiles(((0, 60), (0.1, 125), (0.5, 228), (0.9, 340), (0.99, 520), (1, 900))))
    # Final answer. W: p10/50/90/99 = 1,899/3,093/4,765/9,829; ends chosen.
    final_tokens: Spread = field(
        default=Quantiles(((0, 700), (0.1, 1899), (0.5, 3093), (0.9, 4765), (0.99, 9829), (1, 10_000)))
    )
    # W: 39 % of the main conversations' turns think. No distribution of an open reasoning model's thinking is public:
    # median 250 and p90 1,500 are a guess, cut so that a turn of 4,096 tokens holds it and its call.
    thinking_share: float = 0.39
    thinking_tokens: Spread = field(default=Lognormal(250, 1500, most=2500))
    # No source. Chosen so that a call's result has 2,600 to 3,000 tokens where up to 50 kB are shown (W: about 2,600 a
    # call; a published run: 2,900 to 4,000 a request), a search about 1,000.
    range_lines: Spread = field(default=Lognormal(240, 600, least=20, most=2000))
    grep_lines: Spread = field(default=Lognormal(60, 120, least=20, most=200))
    new_task_chars: int = 300  # a further message of the user this long is a new task (shipped tasks: 336 and more)

    def __post_init__(self) -> None:
        if not 0 <= self.thinking_share <= 1:
            raise UsageError(f"thinking_share: expected 0 to 1, got {self.thinking_share:g}")


@dataclass(frozen=True, slots=True)
class Settings:
    """All that decides a scripted model beside the conversation and the seed."""

    lengths: Lengths = field(default_factory=Lengths)
    mix: Mix = field(default_factory=Mix)


DEFAULT: Final = Settings()
# Fitted to the published run of three agents, so no independent evidence: 14 to 28 calls an agent (44 to 82 a run), no
# thinking. Measured over three tasks of the standard corpus, 18 agents: 2,560 new tokens a request (2,210, 2,720
# and 3,030 by task; published 2,900 to 4,000) and 0.135 decoded tokens beside each (published 0.12).
FIELD_REPORT: Final = Settings(
    Lengths(
        calls=Quantiles(((0, 14), (0.5, 18), (1, 28))),
        thinking_share=0.0,
        range_lines=Lognormal(450, 900, least=50, most=2000),
        grep_lines=Lognormal(120, 240, least=30, most=400),
    ),
    Mix(whole=0.70),
)
