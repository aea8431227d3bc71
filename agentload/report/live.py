"""What does somebody at a terminal see while agents work?

A table that is drawn over itself: an agent a row. The event loop only hands over what there is to show; drawing and
writing are done by a thread of rich's, so that a terminal that stands still delays no stamp.
"""

from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentload.core.board import Board, Look, clock_time

PERIOD_S: Final = 1.0  # how often there is something new to draw
_PER_SECOND: Final = 2.0
_AROUND: Final = 7  # lines of a terminal that are no agent's row: the table's head and edges, sums, a line to spare
_LEAST_ROWS: Final = 3
_STYLES: Final = {"decode": "green", "prefill": "yellow", "queued": "red", "tool": "cyan"}
_NARROW: Final = 100  # columns; below that a task's name is cut short


def wanted(console: Console, env: Mapping[str, str]) -> bool:
    """Whether there is somebody to draw for: a terminal that can move its cursor, and nobody who wants plain text."""
    return console.is_terminal and not console.is_dumb_terminal and not env.get("NO_COLOR")


class LiveView:
    """A drawn table under the lines that are said; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console,
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(Text(line), soft_wrap=True)

    def show(self, board: Board) -> None:
        """Have this drawn next."""
        self._live.update(drawn(board, self._console.width, self._console.height))


def drawn(board: Board, width: int, height: int) -> RenderableType:
    """Return the table of agents and the line of sums for a terminal of `width` columns and `height` lines."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("agent", no_wrap=True)
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=24 if width < _NARROW else 40)
    table.add_column("state", no_wrap=True, overflow="ellipsis", min_width=12)
    for name in ("turn", "calls", "context"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = max(_LEAST_ROWS, height - _AROUND)
    shown = board.agents if len(board.agents) <= rows else board.agents[: rows - 1]
    for one in shown:
        table.add_row(
            one.name,
            Text(one.task),
            Text(_state(one), style=_STYLES.get(one.state, "")),
            *(("", "", "") if one.starts_in_s is not None else (str(one.turn), str(one.tool_calls), _context(one))),
        )
    if rest := board.agents[len(shown) :]:
        states = Counter("to start" if one.starts_in_s is not None else one.state for one in rest)
        counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
        table.add_row("", Text(f"{len(rest)} more"), Text(counted))
    return Group(table, Text(sums(board), overflow="fold"))


def sums(board: Board) -> str:
    """Return the line under the table: time, and what the requests that have ended amount to."""
    parts = [f"{board.segment}: {clock_time(board.elapsed_s)}" if board.segment else clock_time(board.elapsed_s)]
    if board.left_s is not None:
        parts.append(f"at most {clock_time(board.left_s)} left")
    parts.append(f"{board.answered} answered" + (f", {board.failed} failed" if board.failed else ""))
    unknown = board.new_prefill_tokens is None
    parts.append("new prefill ?" if unknown else f"new prefill {board.new_prefill_tokens:,} tok")
    if board.decode_tok_s is not None:
        parts.append(f"decode {board.decode_tok_s:.1f} tok/s")
    if board.overlap is not None:
        parts.append(f"overlap {board.overlap:.0%} (client)")
    return " · ".join(parts)


def _state(one: Look) -> str:
    return one.state if one.starts_in_s is None else f"starts in {one.starts_in_s:.0f} s"


def _context(one: Look) -> str:
    return f"{one.context_tokens:,}" if one.context_tokens else "?"
