"""How long does a tool take in virtual time, in which it takes none?

It really runs, while virtual time stands, and how long that takes here is nobody's business: what it takes in virtual
time is drawn by the run's seed, the agent and the number of the call. The median of 1 s and the 90 % quantile of 5 s
are those of local tools of coding agents, from published traces.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from agentload.core.ports import Clock, Tool
from agentload.core.records import ToolResult
from agentload.twin.lengths import Draws, Lognormal

_SPREAD_NS: Final = Lognormal(1e9, 5e9, least=1_000_000, most=120_000_000_000)


class TimedTool:
    """A tool whose call ends so much later as was drawn for it."""

    def __init__(self, tool: Tool, clock: Clock, seed: int, agent: str, numbers: Iterator[int]) -> None:
        """`numbers` counts the calls of all tools of the agent."""
        self._tool, self._clock, self._seed, self._agent, self._numbers = tool, clock, seed, agent, numbers

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self._tool.name

    def schema(self) -> dict[str, Any]:
        """Return the tool's own."""
        return self._tool.schema()

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run it, and let its time pass."""
        took_ns = drawn_ns(self._seed, self._agent, next(self._numbers))
        begin_ns = self._clock.now_ns()
        result = await self._tool.call(arguments)
        await self._clock.sleep_until(begin_ns + took_ns)
        return result


def timed(tools: list[Tool], clock: Clock, seed: int, agent: str) -> list[Tool]:
    """Return the tools of one agent, with their times."""
    numbers = count()
    return [TimedTool(tool, clock, seed, agent, numbers) for tool in tools]


def drawn_ns(seed: int, agent: str, number: int) -> int:
    """Return what an agent's call takes in virtual time, ns."""
    return _SPREAD_NS.at(Draws("tool", seed, agent, number).unit())
