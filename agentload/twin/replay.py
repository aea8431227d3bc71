"""What do three coding agents do to the simulated server, given only the sizes of their requests?

A plan is a row of turns an agent: so many new tokens, so many written, so long a tool. Agents start 15 s apart; each
sends its next request when the tool is done. Totals are a report's; how they fall on agents and turns is drawn, since
no report says.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.twin.agenda import SECOND_NS, to_ns
from agentload.twin.events import Event, Finished
from agentload.twin.options import Options
from agentload.twin.profile import Profile
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run

STAGGER_S: Final = 15.0
_NEW_SIGMA: Final = 0.9  # of a lognormal: appended tokens a turn, p90 about 3 times the median
_WRITTEN_SIGMA: Final = 0.5
_TOOL_P50_S: Final = 4.0  # traces of 55 exploring sub-agents: from one request's end to the next, p50 4 s, p90 29 s
_TOOL_SIGMA: Final = 1.546
_LEAST_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of an agent, and the tool after it."""

    new_tokens: int
    written_tokens: int
    tool_ns: int


Plan = tuple[tuple[Turn, ...], ...]  # one row an agent


def _parts(total: int, weights: npt.NDArray[np.float64], turns: Sequence[int]) -> list[int]:
    """Split `total` into whole parts as the weights say, each with the least that so many turns need."""
    free = total - _LEAST_TOKENS * sum(turns)
    if free < 0:
        raise ValueError(f"expected {_LEAST_TOKENS} tokens or more a turn, got {total} for {sum(turns)}")
    ends = np.round(np.cumsum(weights) / weights.sum() * free).astype(int)
    return [int(part) + _LEAST_TOKENS * count for part, count in zip(np.diff(ends, prepend=0), turns, strict=True)]


def draw_plan(
    requests: Sequence[int], new_tokens: int, written_tokens: int, shares: Sequence[float], seed: int
) -> Plan:
    """Draw a plan of exactly `new_tokens` and `written_tokens` in all.

    `requests` are those of each agent, `shares` its part of the new tokens.

    Raises:
        ValueError: there are not enough tokens for so many turns.
    """
    draw = np.random.default_rng(seed)
    new_of = _parts(new_tokens, np.array(shares, dtype=float), requests)
    written_of = _parts(written_tokens, np.array(requests, dtype=float), requests)
    plan: list[tuple[Turn, ...]] = []
    for count, new, written in zip(requests, new_of, written_of, strict=True):
        news = _parts(new, draw.lognormal(0.0, _NEW_SIGMA, count), (1,) * count)
        writes = _parts(written, draw.lognormal(0.0, _WRITTEN_SIGMA, count), (1,) * count)
        tools = draw.lognormal(float(np.log(_TOOL_P50_S)), _TOOL_SIGMA, count)
        plan.append(tuple(Turn(n, w, to_ns(float(t))) for n, w, t in zip(news, writes, tools, strict=True)))
    return tuple(plan)


def _job(agent: int, turn: int, plan: Sequence[Turn]) -> Job:
    """Return the request of a turn: everything before it, word for word, and new text."""
    prompt: list[Run] = []
    for number in range(turn + 1):
        prompt.append(Run(f"a{agent}-t{number}-new", plan[number].new_tokens))
        if number < turn:
            prompt.append(Run(f"a{agent}-t{number}", plan[number].written_tokens))
    last = turn == len(plan) - 1
    return Job(
        f"a{agent}-t{turn}",
        tuple(prompt),
        plan[turn].written_tokens,
        finish="stop" if last else "tool_calls",
        tool_calls=() if last else ((f"call_{agent:08x}{turn:024x}", "read"),),
    )


def play(
    plan: Plan, options: Options, profile: Profile, *, seed: int, start_ns: int = 0, boot: int = 0, noise: bool = True,
    stagger_s: float = STAGGER_S,
) -> list[Event]:  # fmt: skip
    """Play a plan and return all that came out."""
    server = Server(options, profile, seed=seed, start_ns=start_ns, boot=boot, noise=noise)
    due = [(start_ns + to_ns(stagger_s * agent), agent, 0) for agent in range(len(plan))]
    heapq.heapify(due)
    events: list[Event] = []
    while due or server.open_requests or server.next_ns() is not None:
        following = server.next_ns()
        while due and (following is None or due[0][0] <= following):
            at_ns, agent, turn = heapq.heappop(due)
            server.submit(_job(agent, turn, plan[agent]), at_ns)
            following = server.next_ns()
        assert following is not None
        new = server.advance(following)
        events += new
        for agent, turn, at_ns in _ended(new):
            if turn + 1 < len(plan[agent]):
                heapq.heappush(due, (at_ns + plan[agent][turn].tool_ns, agent, turn + 1))
    return events


def _ended(events: Iterable[Event]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for event in events:
        if isinstance(event, Finished):
            agent, turn = event.request.removeprefix("a").split("-t")
            found.append((int(agent), int(turn), event.at_ns))
    return found


def minutes(events: Sequence[Event]) -> float:
    """Return how much virtual time a run took."""
    ends = [event.at_ns for event in events if isinstance(event, Finished)]
    return max(ends) / SECOND_NS / 60
