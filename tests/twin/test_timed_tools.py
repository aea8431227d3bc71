"""Does a tool really run, and take in virtual time what was drawn for it?"""

import statistics
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from agentload.core.records import ToolResult
from agentload.twin.timed_tools import drawn_ns, timed
from agentload.twin.virtual_clock import VirtualClock
from tests.twin.test_virtual_clock import Bells, live

pytestmark = pytest.mark.anyio

SECOND = 1_000_000_000


class Echo:
    """A tool that gives back what it was given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def schema(self) -> dict[str, Any]:
        return {"description": f"echo of {self.name}", "parameters": {"type": "object"}}

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        await anyio.lowlevel.checkpoint()
        return ToolResult(ok=True, text=f"{self.name} {arguments['x']}")


async def test_each_call_ends_as_much_later_as_was_drawn_for_its_number() -> None:
    clock = VirtualClock(0)
    read, bash = timed([Echo("read"), Echo("bash")], clock, 7, "a1")
    assert (read.name, bash.schema()["description"]) == ("read", "echo of bash")
    seen: list[tuple[str, int]] = []

    async def life() -> None:
        for tool, x in ((read, 1), (bash, 2), (read, 3)):
            begin_ns = clock.now_ns()
            result = await tool.call({"x": x})
            seen.append((result.text, clock.now_ns() - begin_ns))

    await live(clock, Bells(), life)
    assert seen == [
        ("read 1", drawn_ns(7, "a1", 0)),
        ("bash 2", drawn_ns(7, "a1", 1)),
        ("read 3", drawn_ns(7, "a1", 2)),
    ]


def test_the_times_have_the_published_median_and_ninetieth_percentile() -> None:
    drawn = sorted(drawn_ns(3, f"a{agent}", number) for agent in range(40) for number in range(100))
    assert statistics.median(drawn) == pytest.approx(1 * SECOND, rel=0.06)
    assert drawn[3600] == pytest.approx(5 * SECOND, rel=0.10)
    assert drawn[-1] <= 120 * SECOND


def test_seed_agent_and_number_each_give_other_times() -> None:
    assert len({drawn_ns(3, "a0", 0), drawn_ns(4, "a0", 0), drawn_ns(3, "a1", 0), drawn_ns(3, "a0", 1)}) == 4
    assert drawn_ns(3, "a0", 0) == drawn_ns(3, "a0", 0)
