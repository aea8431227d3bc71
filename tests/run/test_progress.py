"""Is what a run says of its progress right, in time, and short for many agents?"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from agentload.core.board import Board, Look, clock_time
from agentload.run.progress import bound, line, report

S = 1_000_000_000
BEGIN = 5_000 * S


@dataclass
class JumpingClock:
    """Each sleep is over at once, `late_ns` later than asked for; `until_ns` ends the test's run."""

    until_ns: int
    at: int = BEGIN
    late_ns: Sequence[int] = ()
    slept: list[int] = field(default_factory=list)

    def now_ns(self) -> int:
        return self.at

    async def sleep_until(self, t_ns: int) -> None:
        if t_ns > self.until_ns:
            await anyio.sleep_forever()
        late = self.late_ns[len(self.slept)] if len(self.slept) < len(self.late_ns) else 0
        self.slept.append(t_ns)
        self.at = max(self.at, t_ns) + late


def test_a_line_tells_of_each_agent_what_it_is_at() -> None:
    agents = [
        Look("a0", "decode", None, 5, 4, 6_240),
        Look("a1", "tool", None, 1, 1, 980),
        Look("a2", "waiting", 9.6),
    ]
    assert line(80.4, agents) == (
        "  1:20  a0 decode, turn 5, 4 calls, 6.2k | a1 tool, turn 1, 1 call, 1.0k | a2 starts in 10 s"
    )


def test_a_line_names_the_segment_where_a_run_has_several() -> None:
    agents = [Look("d0", "decode", None, 1), Look("p0", "prefill", None, 1)]
    assert (
        line(20.0, agents, "d1-r1") == "  0:20  d1-r1: d0 decode, turn 1, 0 calls, ? | p0 prefill, turn 1, 0 calls, ?"
    )


def test_of_many_agents_the_line_counts_those_it_does_not_show() -> None:
    agents = [Look(f"a{index}", "decode" if index < 9 else "tool") for index in range(10)]
    agents.append(Look("a10", "waiting", 3.0))
    shown = line(3_725, agents)
    assert shown.startswith("1:02:05  a0 decode, turn 0, 0 calls, ? | ")
    assert shown.endswith(" | a5 decode, turn 0, 0 calls, ? | 5 more: 3 decode, 1 tool, 1 to start")


def test_a_context_is_not_known_before_the_first_answer() -> None:
    agents = [Look("a0", "waiting for the first token", None, 1)]
    assert line(20.0, agents) == "  0:20  a0 waiting for the first token, turn 1, 0 calls, ?"


def test_the_bound_is_the_last_start_and_its_work_and_with_the_embedded_server_what_was_measured_is_said() -> None:
    most = "the agents take at most 15:30: 0:30 until the last one starts, 15:00 for its work (--wall)"
    assert bound(30.0, 900.0, embedded=False) == most
    assert bound(30.0, 900.0, embedded=True).startswith(f"{most}; with the embedded server three agents took 5 to 7 ")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.99, "0:59"), (600, "10:00"), (36_061, "10:01:01")])
def test_times_are_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.anyio
async def test_it_is_shown_each_period_how_it_stands_and_what_was_missed_is_left_out() -> None:
    shown: list[float] = []
    # The second sleep ends 45 s late, at 85 s: the lines of 60 s and 80 s are left out.
    clock = JumpingClock(BEGIN + 130 * S, late_ns=(0, 45 * S))

    async def look() -> Board:
        return Board((clock.at - BEGIN) / S, [Look("a0", "tool")])

    async with anyio.create_task_group() as group:
        group.start_soon(report, clock, lambda board: shown.append(board.elapsed_s), look, BEGIN, 20.0)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert clock.slept == [BEGIN + at * S for at in (20, 40, 100, 120)]
    assert shown == [20.0, 85.0, 100.0, 120.0]
