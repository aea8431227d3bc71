"""What has a server counted between two looks at its /metrics?

`parse` turns the text into named quantities (`metrics_names.UNITS`), `delta` takes the difference of two. Nothing is
fetched here. What a server does not export is absent, and its difference None, never 0. A counter that is lower than
before, or whose process began at another time, means that the server was restarted in between: then no difference is
known.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from agentload.core.records import Doubt
from agentload.errors import InputError
from agentload.servers.metrics_names import GAUGES, KNOWN, Software, Source

_CREATED: Final = "_created"
_PROCESS: Final = "process_start_time_seconds"
_SAME_S: Final = 1.0  # counters of one process are made within that of each other
_RANK_0: Final = "0"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a server's metrics."""

    software: str  # vllm | sglang | llamacpp | ds4
    at_ns: int  # when it was taken
    values: Mapping[str, float]  # quantity -> value, in the unit of metrics_names.UNITS; absent: not exported
    accepted_at: tuple[float, ...] = ()  # draft tokens accepted at each position since the server's start
    began_s: float | None = None  # when its process began, Unix seconds, if it tells

    def value(self, quantity: str) -> float | None:
        """Return a quantity; None when the server does not export it."""
        return self.values.get(quantity)


@dataclass(frozen=True, slots=True)
class Delta:
    """What happened between two looks."""

    software: str
    begin_ns: int
    end_ns: int
    restarted: bool  # the server was restarted in between: nothing below is known
    values: Mapping[str, float]  # counters only; absent: not known
    accepted_at: tuple[float, ...] = ()

    def value(self, quantity: str) -> float | None:
        """Return how much it rose; None when that is not known."""
        return self.values.get(quantity)

    @property
    def prompt_tokens(self) -> float | None:
        """Tokens of all prompts: as counted, else computed and cached ones together."""
        whole = self.value("prompt_tokens")
        if whole is not None:
            return whole
        return _plus(self.value("prompt_tokens_computed"), self.value("prompt_tokens_cached"))

    @property
    def new_prefill_tokens(self) -> float | None:
        """Prompt tokens that were computed here: as counted, else what is not cached of all."""
        computed = self.value("prompt_tokens_computed")
        if computed is not None:
            return computed
        whole, cached = self.value("prompt_tokens"), self.value("prompt_tokens_cached")
        return None if whole is None or cached is None or cached > whole else whole - cached

    @property
    def unfinished_tokens(self) -> tuple[float | None, float | None]:
        """Prompt and generated tokens of requests that were aborted, or had not ended at the second look.

        Below 0 when more requests that began before the first look ended since than were left open at the second.
        """
        return (
            _plus(self.value("prompt_tokens"), self.value("finished_prompt_tokens"), -1),
            _plus(self.value("generation_tokens"), self.value("finished_generation_tokens"), -1),
        )

    @property
    def acceptance_at(self) -> tuple[float, ...] | None:
        """Share of drafts whose token at each position was accepted: of all drafts, those that were shorter too."""
        drafts = self.value("drafts")
        return tuple(one / drafts for one in self.accepted_at) if drafts and self.accepted_at else None

    @property
    def nominal_length(self) -> float | None:
        """Tokens a draft gives, its own last one included: 1 + accepted tokens / drafts. None without drafts.

        It counts accepted tokens behind the end of an answer too, and leaves steps without a draft out.
        """
        drafts, accepted = self.value("drafts"), self.value("accepted_tokens")
        return None if not drafts or accepted is None else 1 + accepted / drafts

    @property
    def effective_length(self) -> float | None:
        """Tokens that were emitted in decode steps / those steps, of one request each. None when not known.

        vLLM: the first token of a request comes from its prefill, and is left out. SGLang: its own definition,
        all tokens / steps of verification.
        """
        emitted, steps = self.value("generation_tokens"), self.value("decode_steps")
        first = self.value("first_token_requests")
        if emitted is not None and steps and first is not None:
            return (emitted - first) / steps
        verified = self.value("verify_steps")
        return None if emitted is None or not verified else emitted / verified

    def doubts(self) -> tuple[Doubt, ...]:
        """Say what does not add up."""
        found = []
        if self.restarted:
            found.append(
                Doubt(
                    "metrics-restarted",
                    "the server's counters began anew between two looks: what it counted in between is not known",
                    "find out why it was restarted, and measure again",
                )
            )
        parts = [self.value(f"prompt_tokens_{name}") for name in ("computed", "cached", "transferred")]
        whole = self.value("prompt_tokens")
        known = [one for one in parts if one is not None]
        if whole is not None and len(known) == len(parts) and sum(known) != whole:
            found.append(
                Doubt(
                    "metrics-do-not-add-up",
                    f"computed, cached and transferred prompt tokens are {sum(known):,.0f}, all are {whole:,.0f}",
                    "requests were preempted, or a version counts wrongly: trust the log or the answers' usage instead",
                )
            )
        if self.value("preemptions"):
            found.append(
                Doubt(
                    "preemptions",
                    f"{self.value('preemptions'):,.0f} requests were thrown out of the cache and computed again",
                    "give the server more memory for its cache, or let fewer agents work at once",
                )
            )
        return tuple(found)


def parse(text: str, at_ns: int) -> Snapshot | None:
    """Return what a server's metrics say; None when they are of no known kind of server.

    Args:
        text: Prometheus' text format, version 0.0.4.
        at_ns: when it was received.

    Raises:
        InputError: it is not in that format.
    """
    try:
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    except (ValueError, KeyError, IndexError) as error:
        raise InputError(f"/metrics: expected Prometheus' text format, version 0.0.4: {error}") from error
    software = next((one for one in KNOWN if any(each.name.startswith(one.prefix) for each in samples)), None)
    if software is None:
        return None
    ours = [one for one in samples if one.name.startswith(software.prefix) and _counts(software, one)]
    by_name: dict[str, list[Sample]] = {}
    for one in ours:
        by_name.setdefault(one.name, []).append(one)
    values = {}
    for source in software.sources:
        told = list(_told(source, by_name.get(source.sample, ())))
        if told:
            # Engines share neither cache nor requests: shares are averaged, all else is added up.
            values[source.quantity] = sum(told) * source.times / (len(told) if source.times != 1.0 else 1)
    return Snapshot(
        software.name, at_ns, MappingProxyType(values), _positions(software, by_name), _began(software, samples)
    )


def _counts(software: Software, sample: Sample) -> bool:
    """Whether it is of the first rank, or of no rank, and a number."""
    return math.isfinite(sample.value) and all(
        sample.labels.get(label, _RANK_0) in (_RANK_0, "") for label in software.rank_labels
    )


def _told(source: Source, samples: list[Sample] | tuple[()]) -> Iterator[float]:
    for one in samples:
        if not source.label or one.labels.get(source.label) in source.values:
            yield one.value


def _positions(software: Software, by_name: Mapping[str, list[Sample]]) -> tuple[float, ...]:
    found: dict[int, float] = {}
    for one in by_name.get(software.positions, ()):
        place = one.labels.get(software.position_label, "")
        if place.isdecimal() and len(place) < 4:
            found[int(place)] = found.get(int(place), 0.0) + one.value
    return tuple(found.get(place, 0.0) for place in range(max(found, default=-1) + 1))


def _began(software: Software, samples: list[Sample]) -> float | None:
    """Return when the process began: as it says, else when the first of its counters was made."""
    process = next((one.value for one in samples if one.name == _PROCESS), None)
    made = [one.value for one in samples if one.name.startswith(software.prefix) and one.name.endswith(_CREATED)]
    return process if process is not None else min(made, default=None)


def delta(before: Snapshot, after: Snapshot) -> Delta:
    """Return what happened between two looks at one server.

    A counter that the first look has not, and the second has, was made in between, and began at 0.

    Raises:
        ValueError: they are of different software, or in the wrong order.
    """
    if before.software != after.software or before.at_ns > after.at_ns:
        raise ValueError(
            f"expected two looks at one server in order of time, got {before.software} at {before.at_ns} and "
            f"{after.software} at {after.at_ns}"
        )
    counters = {name: value for name, value in after.values.items() if name not in GAUGES}
    rose = {name: value - before.values.get(name, 0.0) for name, value in counters.items()}
    places = len(after.accepted_at)
    earlier = (*before.accepted_at, *(0.0 for _ in range(places - len(before.accepted_at))))
    accepted = tuple(now - then for now, then in zip(after.accepted_at, earlier, strict=False))
    gone = any(name not in counters for name in before.values if name not in GAUGES)
    restarted = (
        gone
        or places < len(before.accepted_at)
        or any(value < 0 for value in (*rose.values(), *accepted))
        or (before.began_s is not None and after.began_s is not None and abs(after.began_s - before.began_s) > _SAME_S)
    )
    if restarted:
        rose, accepted = {}, ()
    return Delta(after.software, before.at_ns, after.at_ns, restarted, MappingProxyType(rose), accepted)


def from_start(first: Snapshot) -> Delta:
    """Return what happened from the server's start to a look at it."""
    nothing = Snapshot(first.software, first.at_ns, MappingProxyType({}), (), first.began_s)
    return delta(nothing, first)


def _plus(one: float | None, other: float | None, sign: int = 1) -> float | None:
    return None if one is None or other is None else one + sign * other
