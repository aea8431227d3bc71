"""Of which stretches does a run consist, each measured between two markers of its own under one start of the server?

A run of agents without parts is one, `s1`; with parts, one for each. A run of the fixed workload has one for each
number of requests at once and each round: `c1-r1`, `c1-r2`, `c4-r1`, ... One of the probe has one for each load and
each repeat, and the loads rotate, so that none always comes first: `d0-r1`, `d3-r1`, `d3-r2`, `d0-r2`, ...
"""

from dataclasses import dataclass, field
from typing import Any

from agentload.core.probe import Load
from agentload.run import texts
from agentload.run.scenario import Scenario
from agentload.run.workloads import Fixed, Probe

ONLY = "s1"


@dataclass(frozen=True, slots=True)
class Stretch:
    """One segment of a run, before it is measured."""

    segment: str
    condition: str
    request: dict[str, Any] = field(default_factory=dict)  # parameters of each of its requests
    at_once: int = 1  # agents, or requests of the fixed workload
    prefix: str = ""  # of the names of its folders and requests, where names come in several stretches
    load: Load | None = None  # of the probe
    repeat: int = 1  # of the probe's load
    salt: str = ""  # first line of its agents' system prompt, so that no cache has it from another stretch


def plan(scenario: Scenario) -> tuple[Stretch, ...]:
    """Return the stretches of a run, in their order; `scenario` is resolved."""
    if scenario.workload == "fixed":
        fixed = scenario.fixed or Fixed()
        names = [
            (at_once, f"c{at_once}-r{number + 1}") for at_once in fixed.concurrency for number in range(fixed.rounds)
        ]
        return tuple(
            Stretch(segment, scenario.condition, scenario.request, at_once, f"{segment}-") for at_once, segment in names
        )
    if scenario.workload == "probe":
        return _probes(scenario, scenario.probe or Probe())
    if not scenario.parts:
        return (Stretch(ONLY, scenario.condition, scenario.request, scenario.agents),)
    several = len(scenario.parts) > 1
    return tuple(
        Stretch(
            part.segment,
            part.condition,
            scenario.request | part.request,
            scenario.agents,
            prefix=f"{part.segment}-" if several else "",
            salt=texts.first_line("salt", scenario.seed, part.segment) if several else "",
        )
        for part in scenario.parts
    )


def _probes(scenario: Scenario, probe: Probe) -> tuple[Stretch, ...]:
    found = []
    for number in range(probe.repeats):
        first = number % len(probe.loads)
        for load in (*probe.loads[first:], *probe.loads[:first]):
            segment = f"{load.name}-r{number + 1}"
            at_once = load.decoders + load.prompts
            found.append(
                Stretch(
                    segment, scenario.condition, scenario.request, at_once, f"{segment}-", load=load, repeat=number + 1
                )
            )
    return tuple(found)
