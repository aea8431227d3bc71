"""Is what is drawn of a run right, does it fit the terminal, and who gets plain lines instead?"""

import io

import pytest
from rich.console import Console

from agentload.core.board import Board, Look
from agentload.report.live import LiveView, drawn, sums, wanted

AGENTS = (
    Look("a0", "decode", None, 5, 4, 6_240, "zone-lookup"),
    Look("a1", "prefill", None, 3, 2, 0, "a-task-with-a-name-of-thirty-eight-letter"),
    Look("a2", "waiting", 9.6, task="unsafe-layer"),
)
BOARD = Board(195.9, AGENTS, 705.0, 12, 1, 45_120, 31.24, 0.307)


def text(board: Board, width: int, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(drawn(board, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_each_agent_has_a_row_that_fits_the_terminal(width: int) -> None:
    lines = text(BOARD, width)
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["agent", "task", "state", "turn", "calls", "context"]
    assert lines[2].split() == ["a0", "zone-lookup", "decode", "5", "4", "6,240"]
    assert lines[3].split()[2:] == ["prefill", "3", "2", "?"]  # no answer yet: nobody knows the context
    assert lines[4].split() == ["a2", "unsafe-layer", "starts", "in", "10", "s"]
    assert " ".join(" ".join(lines[5:]).split()) == sums(BOARD)


def test_a_long_task_is_cut_short_in_80_columns_only_as_far_as_it_must() -> None:
    narrow, wide = text(BOARD, 80)[3], text(BOARD, 120)[3]
    assert narrow.split()[1] == "a-task-with-a-name-of-t…"  # 24 columns
    assert len(wide.split()[1]) == 40


def test_the_sums_say_the_time_what_is_left_and_what_has_ended() -> None:
    assert sums(BOARD) == (
        "3:15 · at most 11:45 left · 12 answered, 1 failed · new prefill 45,120 tok · decode 31.2 tok/s · "
        "overlap 31% (client)"
    )


def test_what_is_not_known_is_no_zero() -> None:
    assert sums(Board(4.0, (), segment="c4-r1")) == "c4-r1: 0:04 · 0 answered · new prefill ?"


def test_more_agents_than_lines_are_counted_by_what_they_are_at() -> None:
    agents = [Look(f"a{number}", "decode" if number < 20 else "queued") for number in range(30)]
    agents.append(Look("a30", "waiting", 2.0))
    lines = text(Board(1.0, agents), 80, height=20)
    assert len(lines) <= 20
    # 20 lines leave 13 rows: 12 agents and one that counts the other 19.
    assert [one.split()[0] for one in lines[2:14]] == [f"a{number}" for number in range(12)]
    assert " ".join(lines[14].split()) == "19 more 10 queued, 8 decode, 1 to start"


def test_text_of_a_task_is_no_markup() -> None:
    lines = text(Board(1.0, [Look("a0", "tool", task="[red]x[/red]")]), 80)
    assert "[red]x[/red]" in lines[2]


def test_it_is_drawn_in_a_terminal_and_nowhere_else() -> None:
    def at(terminal: bool, **env: str) -> bool:
        return wanted(Console(file=io.StringIO(), force_terminal=terminal, _environ=env), env)

    assert at(True, TERM="xterm-256color")
    assert not at(False, TERM="xterm-256color")
    assert not at(True, TERM="dumb")
    assert not at(True, TERM="xterm-256color", NO_COLOR="1")


def test_a_line_that_is_said_stays_and_the_table_goes() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, color_system=None, _environ={"TERM": "xterm"})
    with LiveView(console) as view:
        view.show(BOARD)
        view.say("a0 started [not markup]")
    written = out.getvalue()
    assert "a0 started [not markup]" in written
    assert written.rstrip().endswith("\x1b[2K")  # the last thing done is to wipe the table's lines
