"""On which numbers can two variants be compared, and which way is better?

A metric takes one value from a segment of account.json. A speed is an amount over a base, so that runs of a variant can
be pooled: sum of amounts / sum of bases (PROTOCOL section 1). Total time is not among them: runs do different amounts
of work. A new metric is one line of `METRICS` (its grade: core.evidence_grade).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentload.core.accounting import NS_PER_S
from agentload.core.estimates import equal_work

Reader = Callable[[Mapping[str, Any]], float | None]  # of a segment of account.json; None: not known


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric of one segment: a value, or an amount with its base; all None where it is not known."""

    value: float | None = None
    amount: float | None = None
    base: float | None = None

    @property
    def number(self) -> float | None:
        """The value, or amount / base."""
        if self.amount is None or self.base is None:
            return self.value
        return self.amount / self.base


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that variants are compared on."""

    name: str
    unit: str
    shown: str  # as a sentence says it: prefill speed
    meaning: str
    higher_is_better: bool | None  # None: neither; it describes the load
    amount: Reader | None = None
    base: Reader | None = None  # with `amount`
    value: Reader | None = None  # without `amount`
    concurrency: int | None = None  # of the fixed workload: of its segments with so many requests at once

    @property
    def plain(self) -> str:
        """Its name among the quantities that have a grade: decode_tok_s of decode_tok_s_c8."""
        return self.name if self.concurrency is None else self.name.removesuffix(f"_c{self.concurrency}")

    def measure(self, segment: Mapping[str, Any]) -> Measured:
        """Return what a segment of account.json says of it."""
        if self.amount is None or self.base is None:
            return Measured(value=None if self.value is None else self.value(segment))
        amount, base = self.amount(segment), self.base(segment)
        return Measured() if amount is None or base is None or base <= 0 else Measured(amount=amount, base=base)


def _whole(name: str, scale: float = 1) -> Reader:
    def read(segment: Mapping[str, Any]) -> float | None:
        found = segment["whole"][name]
        return None if found is None else found * scale

    return read


def _speed_tokens(phase: str) -> Reader:
    """Tokens of the requests whose tokens and times are known; a phase that nobody timed has no speed, not 0."""

    def read(segment: Mapping[str, Any]) -> float | None:
        whole = segment["whole"]
        found: float | None = whole[f"{phase}_speed_tokens"] if whole[f"{phase}_tok_s"] is not None else None
        return found

    return read


def _cpu_s(segment: Mapping[str, Any]) -> float | None:
    found: float | None = segment["server_cpu_s"]
    return found


def _turns(segment: Mapping[str, Any]) -> float:
    whole = segment["whole"]
    return float(whole["requests"] - whole["unknown"]["new_prefill_tokens"])


def _first_token_s(segment: Mapping[str, Any]) -> float | None:
    waits = (segment.get("first_token") or {}).get("whole")
    return None if waits is None else waits["median_ns"] / NS_PER_S


def _equal_work_s(segment: Mapping[str, Any]) -> float | None:
    whole = segment["whole"]
    found = equal_work(whole["prefill_tok_s"], whole["decode_tok_s"])
    return None if found is None else found.total_s


METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            "prefill_tok_s",
            "tok/s",
            "prefill speed",
            "new prefill tokens / time in which any request prefills",
            higher_is_better=True,
            amount=_speed_tokens("prefill"),
            base=_whole("prefill_speed_ns", 1 / NS_PER_S),
        ),
        Metric(
            "decode_tok_s",
            "tok/s",
            "decode speed",
            "decoded tokens / time in which any request decodes",
            higher_is_better=True,
            amount=_speed_tokens("decode"),
            base=_whole("decode_speed_ns", 1 / NS_PER_S),
        ),
        Metric(
            "prefill_tokens_per_cpu_s",
            "tok/CPU-s",
            "prefill for each CPU-second of the server",
            "new prefill tokens / CPU time of the server's processes: what others on the machine take stays out",
            higher_is_better=True,
            amount=_whole("new_prefill_tokens"),
            base=_cpu_s,
        ),
        Metric(
            "new_prefill_tokens_per_turn",
            "tok",
            "new prefill tokens a turn",
            "tokens that were computed and not reused / requests: what a prompt cache saves",
            higher_is_better=False,
            amount=_whole("new_prefill_tokens"),
            base=_turns,
        ),
        Metric(
            "ttft_s",
            "s",
            "time to first token",
            "median over requests, by the client's clock: network, queue and prefill",
            higher_is_better=False,
            value=_first_token_s,
        ),
        Metric(
            "equal_work_s",
            "s",
            "time of equal work",
            "ESTIMATE: 165,000 new prefill and 20,000 decoded tokens at the measured speeds, laid end to end",
            higher_is_better=False,
            value=_equal_work_s,
        ),
        Metric(
            "prefill_share",
            "ratio",
            "prefill share",
            "time in which any request prefills / wall time",
            higher_is_better=None,
            value=_whole("prefill_share"),
        ),
        Metric(
            "decode_share",
            "ratio",
            "decode share",
            "time in which any request decodes / wall time",
            higher_is_better=None,
            value=_whole("decode_share"),
        ),
        Metric(
            "overlap",
            "ratio",
            "overlap",
            "part of the prefill time in which another request decodes: the exposure of what works only then",
            higher_is_better=None,
            value=_whole("overlap"),
        ),
    )
}
"""Of a workload of agents, by name; the first one decides where none is named."""

FIXED: Final = ("decode_tok_s", "ttft_s", "prefill_tok_s")
"""Those of the fixed workload, each at each concurrency: decode_tok_s_c8; the first one decides."""


def at_concurrency(name: str, concurrency: int) -> str:
    """Return the name of a metric at one concurrency of the fixed workload."""
    return f"{name}_c{concurrency}"


def metrics_of(workload: str, concurrencies: Iterable[int] = ()) -> dict[str, Metric]:
    """Return the metrics of a workload ("agents" or "fixed"), by name."""
    if workload != "fixed":
        return METRICS
    return {
        at_concurrency(name, number): Metric(
            at_concurrency(name, number),
            *(one.unit, f"{one.shown} at concurrency {number}", one.meaning, one.higher_is_better),
            *(one.amount, one.base, one.value),
            concurrency=number,
        )
        for name in FIXED
        for one in (METRICS[name],)
        for number in concurrencies
    }


def deciding(name: str | None, workload: str, concurrencies: Iterable[int] = ()) -> str:
    """Return the name of the metric that decides, `name` or by default the first one.

    A plain name of the fixed workload (decode_tok_s) means that at the highest concurrency.

    Raises:
        ValueError: there is none of that name.
    """
    numbers = tuple(concurrencies)
    known = metrics_of(workload, numbers)
    if name is None:
        name = FIXED[0] if workload == "fixed" else next(iter(known))
    if workload == "fixed" and name in FIXED and numbers:
        name = at_concurrency(name, max(numbers))
    if name not in known:
        raise ValueError(f"expected a metric: {', '.join(known)}; got {name!r}")
    return name
