"""A log with many segments: each has its own request, and a terminal is not filled with all of them."""

import io

from agentload.analysis import logfile
from agentload.core import markers
from agentload.report import logfile_terminal

BEGIN_NS, STEP_NS = 1_790_000_000_000_000_000, 4_000_000_000
SERVER = "ds4-server: chat ctx=0.."


def mark(action: str, number: int) -> str:
    at_ns = BEGIN_NS + number * STEP_NS + (3_000_000_000 if action == markers.END else 0)
    return markers.render(action, f"s{number}", "r1", "a", at_ns).decode()


def stamp(second: int) -> str:
    return f"0914 12:{second // 60:02d}:{second % 60:02d}"


def test_each_of_many_segments_has_its_request_and_the_first_fifty_are_shown() -> None:
    lines = []
    for number in range(52):
        tokens, second = 100 + number, 4 * number
        lines += [
            mark(markers.BEGIN, number),
            f"{stamp(second)} {SERVER}{tokens}:{tokens} prompt start",
            f"{stamp(second + 1)} {SERVER}{tokens}:{tokens} prompt done 1.000s",
            f"{stamp(second + 2)} {SERVER}{tokens}:{tokens} gen=0 finish=stop 2.000s",
            mark(markers.END, number),
        ]
    found = logfile.read_stream(io.BytesIO("".join(f"{line}\n" for line in lines).encode()), "serve.log").found
    assert [(one["segment"], one["whole"]["new_prefill_tokens"]) for one in found["segments"]] == [
        (f"s{number}", 100 + number) for number in range(52)
    ]
    assert found["requests"]["outside_segments"] == 0
    shown = logfile_terminal.render(found).splitlines()
    headed = [line.split()[1] for line in shown if line.startswith("segment ")]
    assert headed == [f"s{number}" for number in range(50)]
    assert "  and 2 more segments, in --json; one alone: --segment ID" in [f"  {line.strip()}" for line in shown]
