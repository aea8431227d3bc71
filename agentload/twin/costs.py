"""How long does one engine call, decode step, store or load take under a profile?

An engine call of n tokens at position s takes n * scale * (f(n) + c * (s + n/2 - s0)) ms, f linear in log2 of n: what a
token costs when its call reads all experts for n tokens, and attention over what is before it. Noise multiplies: once a
boot, once a call, and a drift with the time since the start.
"""

from bisect import bisect_left
from math import log2
from typing import Final

import numpy as np

from agentload.twin.agenda import MS_NS, SECOND_NS
from agentload.twin.profile import Profile

_HOUR_NS: Final = 3600 * SECOND_NS
_LEAST_FACTOR: Final = 0.5  # whatever the noise draws, nothing takes less than half its time


class Costs:
    """Times in ns of one boot of a server. `noise=False` leaves all of it out: the profile's expected values."""

    def __init__(self, profile: Profile, seed: int, start_ns: int, *, boot: int = 0, noise: bool = True) -> None:
        """`boot`: number of this start; each draws its own speed from the seed."""
        self._start_ns = start_ns
        prefill, decode, spread = profile.prefill, profile.decode, profile.noise
        self._curve = tuple(
            (log2(at), ms) for at, ms in zip(prefill.per_token_ms.at_tokens, prefill.per_token_ms.value, strict=True)
        )
        self._logs = [at for at, _ in self._curve]
        self._per_token: dict[int, float] = {}
        self._scale, self._context = prefill.scale.value, prefill.context_ms_per_token2.value
        self._zero = prefill.context_zero_tokens.value
        self._switch_ns = prefill.switch_s.value * SECOND_NS
        self._idle = (decode.idle_s.value * SECOND_NS, decode.idle_row_s.value * SECOND_NS)
        self._after = (decode.after_quantum_s.value * SECOND_NS, decode.after_quantum_row_s.value * SECOND_NS)
        self._reacquire_p = decode.reacquire_p.value
        self._disk = profile.disk
        self.token_ns = round(profile.host.token_ms.value * MS_NS)
        self.answer_end_ns = round(profile.host.answer_end_ms.value * MS_NS)
        self._draw = np.random.default_rng([seed, boot]) if noise else None
        self._boot = 1.0 if self._draw is None else 1.0 + spread.boot_sd.value * float(self._draw.standard_normal())
        self._call_sd = spread.call_sd.value
        self._drift = spread.drift_per_hour.value if noise else 0.0
        self._some: list[float] = []
        self._chance = np.random.default_rng([seed, boot, 1])

    def _noisy(self, ns: float, at_ns: int) -> int:
        if self._draw is None:
            return max(0, round(ns))
        if not self._some:  # one draw of many is 50 times cheaper than many of one
            self._some = self._draw.standard_normal(1024).tolist()
        drift = self._drift * (at_ns - self._start_ns) / _HOUR_NS
        factor = self._boot * (1.0 + self._call_sd * self._some.pop() + drift)
        return max(0, round(ns * max(_LEAST_FACTOR, factor)))

    def token_ms(self, tokens: int) -> float:
        """What one token of a call of so many costs, without context: linear in log2, and on below the first point."""
        found = self._per_token.get(tokens)
        if found is None:
            at = log2(tokens)
            right = min(max(bisect_left(self._logs, at), 1), len(self._logs) - 1)
            (x0, y0), (x1, y1) = self._curve[right - 1], self._curve[right]
            found = y0 + (y1 - y0) * (min(at, self._logs[-1]) - x0) / (x1 - x0)
            self._per_token[tokens] = found
        return found

    def engine_call_ns(self, position: int, tokens: int, at_ns: int) -> int:
        """Of `tokens` new ones behind `position` others."""
        if tokens == 0:
            return 0
        context = self._context * (position + tokens / 2 - self._zero)
        return self._noisy(tokens * self._scale * (self.token_ms(tokens) + context) * MS_NS, at_ns)

    def switch_ns(self, at_ns: int) -> int:
        """Of a quantum that follows another slot's while two or more prefill, before its first call."""
        return self._noisy(self._switch_ns, at_ns)

    def decode_step_ns(self, rows: int, at_ns: int, *, after_quantum: bool) -> int:
        """Of a decode batch of `rows`."""
        base, row = self._after if after_quantum else self._idle
        return self._noisy(base + row * rows, at_ns)

    def prefill_first(self) -> bool:
        """Whether a waiting prefill gets the model again before waiting decodes do."""
        return self._reacquire_p > 0 and float(self._chance.random()) < self._reacquire_p

    def file_mib(self, tokens: int) -> float:
        """Return the size of a stored prefix."""
        return self._disk.base_mib.value + self._disk.mib_per_token.value * tokens

    def store_ns(self, tokens: int) -> tuple[int, int]:
        """Return how long a store holds the engine, and the part of it that the log's `save=` tells."""
        mib = self.file_mib(tokens)
        save = mib / self._disk.save_mib_s.value * SECOND_NS
        return round(save + mib / self._disk.staging_mib_s.value * SECOND_NS), round(save)

    def load_ns(self, tokens: int) -> int:
        """Return how long a load holds the engine."""
        return round(self.file_mib(tokens) / self._disk.load_mib_s.value * SECOND_NS)
