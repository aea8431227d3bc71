"""What is there to be seen of a run at one moment?

Plain facts for whoever shows them: a line of text now and then, or a table in a terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """One agent as it is now."""

    name: str
    state: (
        str  # queued | prefill | decode | tool | waiting for the first token (where no log tells them apart) | its end
    )
    starts_in_s: float | None = None  # None: it has started
    turn: int = 0  # requests so far, the one in flight included
    tool_calls: int = 0
    context_tokens: int = 0  # 0: not known before the first answer
    task: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """The whole run as it is now. What is summed is of the requests that have ended, by the client's clock."""

    elapsed_s: float  # since the begin marker
    agents: Sequence[Look]
    left_s: float | None = None  # at most so long from now; None: nobody knows
    answered: int = 0  # requests whose answer came whole
    failed: int = 0
    new_prefill_tokens: int | None = None  # None: no answer so far said both its prompt's and its cached tokens
    decode_tok_s: float | None = None
    overlap: float | None = None  # part of the time to first token of some request in which another one decoded
    segment: str = ""  # where a run has several


def clock_time(seconds: float) -> str:
    """Return `m:ss`, from an hour on `h:mm:ss`; parts of a second are dropped."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
