"""How far is a run? One plain line now and then, made of counters that are there anyway.

Nothing is tokenised, serialised or asked of the server for it: what an agent is at, and how much its context holds by
the server's last count.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from agentload.core.board import Board, Look, clock_time
from agentload.core.ports import Clock

PERIOD_S: Final = 20.0
_EMBEDDED: Final = "with the embedded server three agents took 5 to 7 minutes on two cores"  # set-up included
_SHOWN: Final = 6  # agents on a line; of more, how many are at what


def line(elapsed_s: float, agents: Sequence[Look], segment: str = "") -> str:
    """Return the line, such as `  1:20  a0 decode, turn 5, 4 calls, 6.2k | a2 starts in 10 s`.

    `segment` is named where a run has several: a load of the probe, d0, is called as its first decoder.
    """
    parts = [_agent(one) for one in agents[:_SHOWN]]
    if rest := Counter(_state(one) for one in agents[_SHOWN:]):
        parts.append(f"{rest.total()} more: {', '.join(f'{count} {state}' for state, count in rest.most_common())}")
    where = f"{segment}: " if segment else ""
    return f"{clock_time(elapsed_s):>6}  {where}{' | '.join(parts)}"


def bound(last_start_s: float, wall_s: float, *, embedded: bool) -> str:
    """Say how long the agents take at most, and what was measured with the embedded server."""
    likely = f"; {_EMBEDDED}" if embedded else ""
    return (
        f"the agents take at most {clock_time(last_start_s + wall_s)}: {clock_time(last_start_s)} until the last one "
        f"starts, {clock_time(wall_s)} for its work (--wall){likely}"
    )


async def report(
    clock: Clock, show: Callable[[Board], None], look: Callable[[], Awaitable[Board]], begin_ns: int, period_s: float
) -> None:
    """Show how it stands every `period_s` after `begin_ns`, until cancelled; what was missed is left out."""
    period_ns = int(period_s * 1e9)
    while True:
        done = (clock.now_ns() - begin_ns) // period_ns
        await clock.sleep_until(begin_ns + (done + 1) * period_ns)
        show(await look())


def _state(one: Look) -> str:
    return one.state if one.starts_in_s is None else "to start"


def _agent(one: Look) -> str:
    if one.starts_in_s is not None:
        return f"{one.name} starts in {one.starts_in_s:.0f} s"
    context = f"{one.context_tokens / 1000:.1f}k" if one.context_tokens else "?"
    calls = f"{one.tool_calls} call{'s' * (one.tool_calls != 1)}"
    return f"{one.name} {one.state}, turn {one.turn}, {calls}, {context}"
