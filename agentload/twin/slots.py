"""Which slot does a request get, and how much of its prompt is there already?

A prompt is a row of runs: `Run(key, tokens)` is so many tokens of a text of that name. Equal keys are equal texts, so
a common prefix is found without the tokens themselves; two lengths of one key have the shorter one in common.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Run:
    """So many tokens of one text."""

    key: Hashable
    tokens: int


Runs = tuple[Run, ...]


def total(runs: Iterable[Run]) -> int:
    """Return the number of tokens."""
    return sum(run.tokens for run in runs)


def common(first: Sequence[Run], second: Sequence[Run]) -> int:
    """Return how many leading tokens are the same."""
    same = 0
    for one, other in zip(first, second, strict=False):
        if one.key != other.key:
            break
        same += min(one.tokens, other.tokens)
        if one.tokens != other.tokens:
            break
    return same


def cut(runs: Sequence[Run], tokens: int) -> Runs:
    """Return the first `tokens` of it."""
    kept: list[Run] = []
    for run in runs:
        if tokens <= 0:
            break
        kept.append(run if run.tokens <= tokens else Run(run.key, tokens))
        tokens -= run.tokens
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Job:
    """A request as it arrives: what is asked, and what the model will write."""

    request: str  # unique within a server
    prompt: Runs
    output_tokens: int
    output: Hashable = None  # key of what it writes; None: the request's name
    reasoning_tokens: int = 0  # of those, the first so many are inside <think>
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    tool_calls: tuple[tuple[str, str], ...] = ()  # (id, name)
    tools: bool = True  # the request carries tools
    anchor_tokens: int | None = None  # end of system and tools: where a cold prompt is stored
    kind: Literal["chat", "completion"] = "chat"

    @property
    def written(self) -> Hashable:
        """The key of what it writes."""
        return self.request if self.output is None else self.output


@dataclass(slots=True, eq=False)
class Slot:
    """One resident session."""

    id: int
    live: Runs = ()  # what its KV cache holds
    live_tokens: int = 0
    work: Any = None  # the request in it (lifecycle.Work); None: idle
    stored: set[int] = field(default_factory=set)

    def keep(self, runs: Runs) -> None:
        """Let this be what is live."""
        self.live, self.live_tokens = runs, total(runs)


def choose(slots: Sequence[Slot], prompt: Runs) -> Slot | None:
    """Return the idle slot that has most leading tokens in common, the lowest id of equals; None when all are busy.

    Any common prefix wins over an empty slot, and what the slot holds is overwritten unless all of it is common:
    a new conversation so destroys an idle one that shares its system prompt (ds4 issue 1069).
    """
    best, most = None, -1
    for slot in slots:
        if slot.work is None and (same := common(slot.live, prompt)) > most:
            best, most = slot, same
    return best
