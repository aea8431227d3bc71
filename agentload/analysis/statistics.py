"""What do the statistics lines of a server's log amount to, for each segment?

Of each quantity the least, the middle and the most value, and the sum where it is a count of what happened. A line of
vLLM tells of the interval before it: what it says of a segment's first seconds may be of what was before.

Speculation, as both are published (they differ by 2 % to 20 %):

* nominal length = 1 + sum of the acceptances of all positions, each weighted by the drafts of its line. vLLM does not
  write that number: accepted / (mean length - 1), or drafted / positions where that is within what rounding leaves.
* effective length = tokens emitted in decode steps / decode steps. SGLang's lines have it (mean over the decode lines,
  weighted by the requests that ran). Of vLLM it follows where the log has each step, the requests, and the throughput
  of generation (--enable-logging-iteration-details, --enable-log-requests). That is rounded to 0.1 tokens/s, so the
  error is stated. The server's counters have it without one (`servers.metrics`).
"""

import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, Final

from agentload.core.packed import Mapped
from agentload.core.records import LogFacts, Segment, Statistic, Timeline
from agentload.serverlogs.statistics import SUMMED, UNITS

_ROUNDED: Final = 0.05  # tokens/s: half of the last digit of vLLM's throughput
_LENGTH_ROUNDED: Final = 0.005  # tokens/step: the same of its mean length

Held = Callable[[Sequence[Statistic]], Sequence[Statistic]]  # those of a log's that are of one part of it


def of_run(facts: LogFacts | None, segments: Sequence[Segment]) -> dict[str, Any] | None:
    """Return account.json's `statistics` of a run; None when its log has none."""
    if facts is None or facts.timeline is not Timeline.UNIX:
        return None if facts is None else summary(facts, ())
    return summary(facts, [(one.segment, _within(one)) for one in segments])


def _within(segment: Segment) -> Held:
    begin_ns, end_ns = segment.begin_ns, segment.end_ns

    def held(found: Sequence[Statistic]) -> Sequence[Statistic]:
        inside = (at for at, one in enumerate(found) if begin_ns <= one.at and (end_ns is None or one.at < end_ns))
        return Mapped(found, lambda one: one, array("q", inside))

    return held


def summary(facts: LogFacts, parts: Sequence[tuple[str, Held]]) -> dict[str, Any] | None:
    """Return the same of a log, cut into named `parts`; of all of it, under the name null, where there are none."""
    if not facts.statistics and not facts.steps:
        return None
    held: Iterable[tuple[str | None, Sequence[Statistic]]] = (
        ((name, of(facts.statistics)) for name, of in parts) if parts else ((None, facts.statistics),)
    )
    return {
        "lines": len(facts.statistics),
        "repeated_by_ranks": facts.repeated,
        "parts": [
            {
                "segment": name,
                "lines": len(lines),
                "quantities": _quantities(lines),
                "speculation": _speculation(lines, None if parts else facts),
            }
            for name, lines in held
        ],
        "steps": [
            {
                "boot": one.boot,
                "steps": one.steps,
                "decode_steps": one.decode_steps,
                "prompt_tokens": one.prompt_tokens,
                "decode_tokens": one.decode_tokens,
                "elapsed_ns": one.elapsed_ns,
            }
            for one in facts.steps
        ],
    }


def _quantities(lines: Sequence[Statistic]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, array[float]]] = {}
    for one in lines:
        told = found.setdefault((one.kind, one.source), {})
        for name, value in one.values:
            if name not in told:
                told[name] = array("d")
            told[name].append(value)
    return [
        {
            "kind": kind,
            "source": source,
            "name": name,
            "unit": UNITS[name],
            "lines": len(values),
            "least": min(values),
            "median": median(values),
            "most": max(values),
            "sum": sum(values) if name in SUMMED else None,
        }
        for (kind, source), told in sorted(found.items())
        for name, values in sorted(told.items())
    ]


# ---- speculation -----------------------------------------------------------------------------------------------------


def _speculation(lines: Sequence[Statistic], facts: LogFacts | None) -> dict[str, Any] | None:
    """`facts`: of the whole log, where `lines` are all of it; the steps it counts are of no smaller part."""
    drafted = []
    weights, lengths = array("d"), array("d")
    for one in lines:
        if one.kind == "speculation":
            drafted.append((one, dict(one.values)))
        elif one.kind == "decode" and "accepted_length" in (values := dict(one.values)):
            weights.append(max(values["running"], 1.0))
            lengths.append(values["accepted_length"])
    if not drafted and not lengths:
        return None
    found: dict[str, Any] = {
        "lines": len(drafted) or len(lengths),
        "drafts": None,
        "drafted_tokens": None,
        "accepted_tokens": None,
        "acceptance_by_position": None,
        "nominal_length": None,
        "effective_length": None,
        "effective_error": None,
    }
    if not drafted:
        return found | {
            "effective_length": sum(map(_product, weights, lengths)) / sum(weights),
            "effective_error": _LENGTH_ROUNDED,
        }
    drafts = [_drafts(one, values) for one, values in drafted]
    places = max(len(one.positions) for one, _ in drafted)
    whole = sum(drafts)
    by_position = [
        sum(
            count * one.positions[at]
            for count, (one, _) in zip(drafts, drafted, strict=True)
            if at < len(one.positions)
        )
        for at in range(places)
    ]
    found |= {
        "drafts": whole,
        "drafted_tokens": int(sum(values["drafted_tokens"] for _, values in drafted)),
        "accepted_tokens": int(sum(values["accepted_tokens"] for _, values in drafted)),
    }
    if whole:
        acceptance = [one / whole for one in by_position]
        found |= {"acceptance_by_position": acceptance, "nominal_length": 1 + sum(acceptance)}
    effective = None if facts is None else _effective(facts)
    return found if effective is None else found | {"effective_length": effective[0], "effective_error": effective[1]}


def _product(one: float, other: float) -> float:
    return one * other


def _drafts(one: Statistic, values: dict[str, float]) -> int:
    """How many drafts a line of vLLM tells of."""
    accepted, drafted, more = values["accepted_tokens"], values["drafted_tokens"], values["mean_length"] - 1
    if one.positions and drafted % len(one.positions) == 0:  # as many as there are when each is as long as it can be
        full = round(drafted / len(one.positions))
        if full and abs(accepted / full - more) <= _LENGTH_ROUNDED:
            return full
    return round(accepted / more) if more > 0 else 0


def _effective(facts: LogFacts) -> tuple[float, float] | None:
    """Return vLLM's effective length and its error; None where the log does not tell enough."""
    steps = sum(one.decode_steps for one in facts.steps)
    engine = [one for one in facts.statistics if one.kind == "engine"]
    period_s = _period_s(engine)
    if len(facts.boots) != 1 or not steps or not facts.requests or period_s is None:
        return None
    rates = [rate for one in engine if (rate := dict(one.values)["generation_rate"]) > 0]
    emitted = sum(rates) * period_s - len(facts.requests)  # the first token of each comes from its prefill
    return (emitted / steps, _ROUNDED * period_s * len(rates) / steps) if emitted > 0 else None


def _period_s(engine: Sequence[Statistic]) -> float | None:
    """Return the time between two statistics lines, to a second: the least there is."""
    by_source: dict[str, list[int]] = {}
    for one in engine:
        by_source.setdefault(one.source, []).append(one.at)
    gaps = [
        round((late - early) / 1e9)
        for times in by_source.values()
        for early, late in itertools.pairwise(times)
        if late - early > 500_000_000
    ]
    return float(min(gaps)) if gaps else None
