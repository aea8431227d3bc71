"""What was a simulated run's work, from its ground truth alone? Speeds, shares, overlap, exposure, context buckets.

Definitions are those of the measurement protocol: a speed is tokens over the union of the phase's intervals, never over
their sum; overlap is prefill while another request decodes; buckets go by the position at which a prefill starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from agentload.core.estimates import EqualWork, equal_work
from agentload.core.intervals import Intervals
from agentload.twin.agenda import SECOND_NS
from agentload.twin.events import Event, Quantum, Request

BUCKETS: Final = ((0, 30_000), (30_000, 60_000), (60_000, 100_000), (100_000, None))


@dataclass(frozen=True, slots=True)
class Measures:
    """Of one run, or of several of one condition pooled."""

    requests: int
    new_prefill_tokens: int
    decoded_tokens: int
    prefill_busy_s: float
    decode_busy_s: float
    wall_s: float
    overlap: float  # of prefill busy time: another request decodes
    double_counting: float
    exposed_quanta: float  # share of quanta in which the mixed quantum applied
    exposed_time: float  # share of the time of quanta, likewise
    bucket_tok_s: tuple[float | None, ...]  # median speed of the requests of each bucket
    most_context: int

    @property
    def prefill_tok_s(self) -> float:
        """New tokens over busy time."""
        return self.new_prefill_tokens / self.prefill_busy_s

    @property
    def decode_tok_s(self) -> float:
        """Decoded tokens over busy time."""
        return self.decoded_tokens / self.decode_busy_s


@dataclass(frozen=True, slots=True)
class RunTruth:
    """What one run leaves to measure."""

    requests: tuple[Request, ...]
    quanta: tuple[Quantum, ...]

    @classmethod
    def of(cls, events: Iterable[Event]) -> "RunTruth":
        """Keep what counts."""
        kept = [event for event in events if isinstance(event, Request | Quantum)]
        return cls(
            tuple(one for one in kept if isinstance(one, Request)),
            tuple(one for one in kept if isinstance(one, Quantum)),
        )


def _prefill(request: Request) -> tuple[int, int]:
    assert request.prefill_start_ns is not None
    assert request.prefill_end_ns is not None
    return request.prefill_start_ns, request.prefill_end_ns


def _decode(request: Request) -> tuple[int, int]:
    assert request.prefill_end_ns is not None
    assert request.decode_end_ns is not None
    return request.prefill_end_ns, request.decode_end_ns


def _overlap_ns(requests: Sequence[Request]) -> int:
    """Time in which one request prefills while another one decodes.

    A request does not decode while it prefills, so any decode that meets a prefill is another request's.
    """
    prefill = Intervals.of(map(_prefill, requests)).union()
    return prefill.intersection(Intervals.of(map(_decode, requests))).measure_ns()


def measure(runs: Sequence[RunTruth]) -> Measures:
    """Measure runs of one condition; of several, tokens and busy times are added up first."""
    prefill = [Intervals.of(map(_prefill, run.requests)) for run in runs]
    decode = [Intervals.of(map(_decode, run.requests)) for run in runs]
    requests = [request for run in runs for request in run.requests]
    quanta = [one for run in runs for one in run.quanta]
    busy = sum(one.measure_ns() for one in prefill)
    lasted = sum(one.end_ns - one.begin_ns for one in quanta)
    return Measures(
        requests=len(requests),
        new_prefill_tokens=sum(one.new_prefill_tokens or 0 for one in requests),
        decoded_tokens=sum(one.decoded_tokens for one in requests),
        prefill_busy_s=busy / SECOND_NS,
        decode_busy_s=sum(one.measure_ns() for one in decode) / SECOND_NS,
        wall_s=sum(_wall_ns(run) for run in runs) / SECOND_NS,
        overlap=sum(_overlap_ns(run.requests) for run in runs) / busy,
        double_counting=sum(one.summed_ns() for one in prefill) / busy,
        exposed_quanta=sum(one.mixed for one in quanta) / len(quanta),
        exposed_time=sum(one.end_ns - one.begin_ns for one in quanta if one.mixed) / lasted,
        bucket_tok_s=tuple(_bucket(requests, low, high) for low, high in BUCKETS),
        most_context=max(one.prompt_tokens + one.decoded_tokens for one in requests),
    )


def _wall_ns(run: RunTruth) -> int:
    return max(one.end_ns for one in run.requests) - min(one.arrival_ns for one in run.requests)


def _bucket(requests: Iterable[Request], low: int, high: int | None) -> float | None:
    speeds = [
        (one.new_prefill_tokens or 0) * SECOND_NS / (end - start)
        for one in requests
        for start, end in [_prefill(one)]
        if low <= (one.cached_tokens or 0) and (high is None or (one.cached_tokens or 0) < high) and end > start
    ]
    return median(speeds) if speeds else None


def equal_work_of(one: Measures) -> EqualWork:
    """Return the estimate for fixed work at the measured speeds."""
    found = equal_work(one.prefill_tok_s, one.decode_tok_s)
    assert found is not None
    return found
