"""On which numbers can two variants be compared, and which way is better?

A metric takes one value from a segment of account.json. A speed is an amount over a base, so that runs of a variant can
be pooled: sum of amounts / sum of bases (PROTOCOL section 1). Total time is not among them: runs do different amounts
of work. A new metric is one line of `METRICS` (its grade: core.evidence_grade).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agentload.core.accounting import NS_PER_S
from agentload.core.estimates import equal_work
from agentload.core.probe import Load

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
    load: str | None = None  # of the probe: of its segments under that load

    @property
    def plain(self) -> str:
        """Its name among the quantities that have a grade: decode_tok_s of decode_tok_s_c8, ttft_s of ttft_s_d3."""
        if self.load is not None:
            return self.name.removesuffix(f"_{self.load}")
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
            "tokens decoded in the time in which any request decodes / that time",
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


def _of_probe(name: str) -> Reader:
    def read(segment: Mapping[str, Any]) -> float | None:
        found: float | None = (segment.get("probe") or {}).get(name)
        return found

    return read


PROBE: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            "prefill_tok_s",
            "tok/s",
            "prefill speed",
            "new tokens of the cold prompts / time in which any of them is computed",
            higher_is_better=True,
            value=_of_probe("prefill_tok_s"),
        ),
        Metric(
            "ttft_s",
            "s",
            "time to first token",
            "of a cold prompt, by the client's clock: network, queue and prefill",
            higher_is_better=False,
            value=_of_probe("ttft_s"),
        ),
        Metric(
            "decoder_gap_s",
            "s",
            "gap between two tokens of a decoder",
            "median while the cold prompt is computed, by the client's clock",
            higher_is_better=False,
            value=_of_probe("gap_s"),
        ),
        Metric(
            "decoder_gap_p99_s",
            "s",
            "99th percentile of the decoders' gaps",
            "nearest rank, while the cold prompt is computed, by the client's clock",
            higher_is_better=False,
            value=_of_probe("gap_p99_s"),
        ),
        Metric(
            "neighbour_tok_s",
            "tok/s",
            "speed of the neighbours",
            "tokens of all decoders while the cold prompt is computed / that time",
            higher_is_better=True,
            value=_of_probe("neighbour_tok_s"),
        ),
        Metric(
            "cost_ms_per_token",
            "ms",
            "cost of a prompt token",
            "ESTIMATE: (prefill time - decode steps in it x the time of one alone) / new tokens",
            higher_is_better=False,
            value=_of_probe("cost_ms_per_token"),
        ),
        Metric(
            "ends_spread_s",
            "s",
            "spread of the ends",
            "first to last end of cold prompts that came together: 0 is fair",
            higher_is_better=False,
            value=_of_probe("ends_spread_s"),
        ),
    )
}
"""Those of the probe, each under each load: prefill_tok_s_d3; a run's value is the median of its repeats."""

_ALWAYS: Final = frozenset({"prefill_tok_s", "ttft_s"})  # the others need somebody who decodes
_TOGETHER: Final = "ends_spread_s"  # needs several prompts at once


def _under(load: Load) -> Iterable[Metric]:
    for one in PROBE.values():
        if load.prompts > 1 if one.name == _TOGETHER else load.decoders or one.name in _ALWAYS:
            name, shown = f"{one.name}_{load.name}", f"{one.shown} with {load.shown}"
            yield replace(one, name=name, shown=shown, load=load.name)


def at_concurrency(name: str, concurrency: int) -> str:
    """Return the name of a metric at one concurrency of the fixed workload."""
    return f"{name}_c{concurrency}"


def metrics_of(workload: str, concurrencies: Iterable[int] = (), loads: Iterable[Load] = ()) -> dict[str, Metric]:
    """Return the metrics of a workload ("agents", "fixed" or "probe"), by name."""
    if workload == "probe":
        return {metric.name: metric for load in loads for metric in _under(load)}
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


def heaviest(loads: Iterable[Load]) -> Load | None:
    """Return the load with the most decoders, and of these with the fewest prompts; None of none.

    One decoder that is nearly finished is none that goes on.
    """
    return max(loads, key=lambda one: (one.nearly_finished is None, one.decoders, -one.prompts), default=None)


def deciding(name: str | None, workload: str, concurrencies: Iterable[int] = (), loads: Iterable[Load] = ()) -> str:
    """Return the name of the metric that decides, `name` or by default the first one.

    A plain name of the fixed workload (decode_tok_s) means that at the highest concurrency; one of the probe
    (prefill_tok_s) that under its heaviest load of one prompt.

    Raises:
        ValueError: there is none of that name.
    """
    numbers, under = tuple(concurrencies), tuple(loads)
    known = metrics_of(workload, numbers, under)
    if name is None:
        name = FIXED[0] if workload == "fixed" else next(iter(PROBE if workload == "probe" else known))
    if workload == "probe" and name in PROBE and (load := heaviest(under)) is not None:
        name = f"{name}_{load.name}"
    if workload == "fixed" and name in FIXED and numbers:
        name = at_concurrency(name, max(numbers))
    if name not in known:
        raise ValueError(f"expected a metric: {', '.join(known)}; got {name!r}")
    return name
