"""How long will an experiment take, and what will be done and needed? Said before anything starts.

A duration is a range: no server of the user's is known beforehand. Its upper end is what the limits allow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.artifacts.design import Design
from agentload.core import separation
from agentload.run import scenario
from agentload.run.designing import values
from agentload.run.scenario import Limits, Scenario
from agentload.run.workloads import EMBEDDED_PROMPT, Fixed, Probe

# Seconds, least and most, where nothing better is known.
_TWIN_AGENT: Final = (0.8, 6.0)  # 1.1 to 5.4 measured for each of three agents, on an idle machine and a busy one
_TWIN_REQUEST: Final = (0.005, 0.05)
_EMBEDDED_START: Final = (5.0, 60.0)
_EMBEDDED_AGENTS: Final = (150.0, 480.0)  # three agents with the standard limits: 4 to 7 minutes measured
_START: Final = (10.0, 300.0)  # a process that loads a model
_WARM: Final = (0.5, 10.0)  # each pair of a warm-up
_EMBEDDED_WARM: Final = (3.0, 40.0)  # 350 tokens on one thread
_AGENT_CALL: Final = 20.0  # a tool call with its turn: 17 to 25 minutes for 30 of them on the published machine
_DECODE_TOK_S: Final = (60.0, 5.0)  # of one of the fixed workload's requests
_TWIN_PROBE: Final = (0.3, 3.0)  # a segment
_PREFILL_TOK_S: Final = (3000.0, 150.0)  # of a cold prompt, others decoding or not: 220 to 559 on the published machine
_EMBEDDED_PREFILL_TOK_S: Final = (90.0, 35.0)  # a 135M model on one thread
_SIZINGS: Final = 3  # cold prompts that are tried before the first segment, at most
_STANDARD_AGENTS: Final = 3
_SECONDS: Final = 120  # from which on minutes are said
_MINUTES: Final = 7200


@dataclass(frozen=True, slots=True)
class Expected:
    """A foretold duration, all starts together."""

    low_s: float
    high_s: float
    basis: str

    @property
    def middle_s(self) -> float:
        """What is written down."""
        return (self.low_s + self.high_s) / 2


def expected(planned: Design) -> Expected:
    """Return how long it takes: starts x (start-up + warm-up + segments), and the cooldown between two."""
    chosen = scenario.resolve(scenario.from_fields(planned.variants[0].scenario))
    starts = len({step.run for step in planned.steps})
    segments = len(planned.steps) / starts
    start, start_basis = _start(chosen)
    work, work_basis = _WORK[planned.workload](chosen)
    pauses = (starts - 1) * planned.cooldown_s
    low, high = (starts * (start[end] + segments * work[end]) + pauses for end in (0, 1))
    run = "run" if segments == 1 else f"{segments:.0f} segments"
    pause = f", cooldown {duration(planned.cooldown_s)} between two" if planned.cooldown_s else ""
    return Expected(low, high, f"{starts} x ({start_basis} + {run}: {work_basis}){pause}")


def _start(chosen: Scenario) -> tuple[tuple[float, float], str]:
    warm_s = _warm_up_s(chosen)
    warm = ", with warm-up" if chosen.warmup is not None else ""
    if chosen.server.kind == "twin":
        return (0.0, 0.0), "start"
    if chosen.server.kind == "endpoint":
        return warm_s, "no start, the server runs" + warm
    known = _EMBEDDED_START if chosen.server.kind == "embedded" else _START
    low, high = known[0], min(known[1], max(known[0], chosen.server.ready_s))
    return (low + warm_s[0], high + warm_s[1]), f"start {duration(low)} to {duration(high)}{warm}"


def _warm_up_s(chosen: Scenario) -> tuple[float, float]:
    warmup = chosen.warmup
    requests = 0 if warmup is None else len(warmup.concurrency) * len(warmup.prompt_tokens)
    low, high = _EMBEDDED_WARM if chosen.server.kind == "embedded" else _WARM
    return requests * low, requests * high


def _agents(chosen: Scenario) -> tuple[tuple[float, float], str]:
    limits = chosen.limits or Limits()
    bound = limits.wall_s + chosen.stagger_s * (chosen.agents - 1)
    if chosen.server.kind == "twin":
        low, high = (chosen.agents * one for one in _TWIN_AGENT)
        return (low, high), f"virtual time, {_TWIN_AGENT[0]:g} to {_TWIN_AGENT[1]:g} s an agent"
    limit = f"the agents' limit of {duration(limits.wall_s)} (--wall) is an upper bound"
    if chosen.server.kind == "embedded":
        more = max(1.0, chosen.agents / _STANDARD_AGENTS) * limits.tool_calls / scenario.EMBEDDED_LIMITS.tool_calls
        low, high = (min(bound, one * more) for one in _EMBEDDED_AGENTS)
        return (low, high), f"about {duration(high)} on two cores; {limit}"
    low = min(bound, limits.tool_calls * _AGENT_CALL + chosen.stagger_s * (chosen.agents - 1))
    return (low, bound), f"{limit}; {limits.tool_calls} tool calls take {duration(low)} on a published machine"


def _fixed(chosen: Scenario) -> tuple[tuple[float, float], str]:
    fixed = chosen.fixed or Fixed()
    rounds = len(fixed.concurrency) * fixed.rounds
    if chosen.server.kind == "twin":
        low, high = (sum(fixed.concurrency) * fixed.rounds * one for one in _TWIN_REQUEST)
        return (low, high), "virtual time"
    low, high = (rounds * fixed.output_tokens / speed for speed in _DECODE_TOK_S)
    speeds = f"{_DECODE_TOK_S[1]:.0f} to {_DECODE_TOK_S[0]:.0f} tok/s a request"
    return (low, high), f"{rounds} rounds of {fixed.output_tokens} tokens at {speeds}"


def _probe(chosen: Scenario) -> tuple[tuple[float, float], str]:
    probe = chosen.probe or Probe()
    prompts = sum(load.prompts for load in probe.loads) * probe.repeats
    segments = len(probe.loads) * probe.repeats
    if chosen.server.kind == "twin":
        low, high = (segments * one for one in _TWIN_PROBE)
        return (low, high), "virtual time"
    embedded = chosen.server.kind == "embedded"
    tokens = min(probe.prompt_tokens, EMBEDDED_PROMPT) if embedded else probe.prompt_tokens
    speeds = _EMBEDDED_PREFILL_TOK_S if embedded else _PREFILL_TOK_S
    answers = sum(load.decoders > 0 for load in probe.loads) * probe.repeats
    contexts = probe.at_context * (prompts + _SIZINGS)
    low, high = (
        (tokens * (prompts + _SIZINGS) + contexts) / prefill + answers * probe.turn_tokens / decode
        for prefill, decode in zip(speeds, _DECODE_TOK_S, strict=True)
    )
    return (low, high), (
        f"{prompts} cold prompts of {tokens:,} tokens, and {_SIZINGS} to find their length, at {speeds[1]:.0f} to "
        f"{speeds[0]:.0f} tok/s, and the turns of those who decode"
    )


_WORK: Final = {"agents": _agents, "fixed": _fixed, "probe": _probe}


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < _SECONDS:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _MINUTES else f"{seconds / 3600:.1f} h"


def plan(planned: Design, told: Expected, warnings: Sequence[str] = ()) -> list[str]:
    """Return the lines that are said before the first start; `warnings` of what will make runs invalid among them."""
    lines = [_compared(planned), _order(planned), _proofs(planned)]
    lines += [f"WARNING: {one}" for one in warnings]
    lines += [_verdict(planned), _time(told)]
    return lines


def _compared(planned: Design) -> str:
    named = ", ".join(f"{one.name} is {one.label}" for one in planned.variants)
    simulated = "SIMULATED; " if planned.simulated else ""
    return f"experiment: {simulated}{values(planned)}; {named}; workload {planned.workload}, seed {planned.seed}"


def _order(planned: Design) -> str:
    names = " ".join(step.variant for step in planned.steps)
    starts = len({step.run for step in planned.steps})
    if planned.kind == "request":
        return (
            f"order: {names}, alternating inside {'one start' if starts == 1 else f'each of {starts} starts'} "
            f"({planned.sets} sets): request parameters need no restart, and what varies between restarts stays out"
        )
    return (
        f"order: {names}: {starts} starts of the server, each with a fresh process, {planned.repeats} of each variant"
    )


def _proofs(planned: Design) -> str:
    asked: dict[str, list[str]] = {}
    for one in planned.variants:
        for name, value in one.expected.items():
            asked.setdefault(name, []).append(f"{value} ({one.name})")
    if not asked:
        why = "they travel with each request" if planned.kind == "request" else "the variants ask for none by name"
        return f"settings that must be proven at each start: none, {why}"
    said = "; ".join(f"{name} = {', '.join(each)}" for name, each in asked.items())
    return f"settings that must be proven at each start: {said}"


def _verdict(planned: Design) -> str:
    least = min(Counter(step.variant for step in planned.steps).values())
    unit = "segments" if planned.kind == "request" else "starts"
    if least < separation.LEAST_RESTARTS:
        return f"verdict: none can come of one of the {unit} a side: a range needs two; give --repeat 3"
    c, wrong = separation.needed_separation(least, least), separation.false_claims(least, least)
    pairs = len(planned.variants) * (len(planned.variants) - 1) // 2
    needs = f"and a gap of {c:g} times the wider range" if c else "which is enough at so many"
    return (
        f"verdict: on {planned.metric}; {least} {unit} a side: ranges must be disjoint, {needs}; equals are called "
        f"distinguished in {wrong.normal:.1%} of such comparisons"
        + (f", and here are {pairs} pairs" if pairs > 1 else "")
        + f" (disjoint ranges alone: {wrong.published_rule:.1%})"
    )


def _time(told: Expected) -> str:
    low, high = duration(told.low_s), duration(told.high_s)
    return f"expected: {low if low == high else f'{low} to {high}'} ({told.basis})"
