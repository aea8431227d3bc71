"""Who is at work between two markers: what does the run need to know of an agent, or of a single request?"""

from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentload.agents.outcome import Doing, Outcome
from agentload.agents.tasks import Task
from agentload.core.board import Look
from agentload.core.records import Doubt
from agentload.run.parts import Stretch
from agentload.run.record import agent_fields
from agentload.run.serving import Served
from agentload.run.world import Line


class Worker(Protocol):
    """An agent, or a request that stands for itself."""

    name: str
    doing: Doing
    request: str | None  # the one in flight
    first_error: tuple[int, str] | None  # of its requests: when it ended (ns), and why
    outcome: Outcome

    @property
    def context_tokens(self) -> int:
        """How many tokens its context holds; 0: not known yet."""
        ...


@dataclass(slots=True)
class Member:
    """One worker with its task."""

    worker: Worker
    work: Callable[[], Awaitable[Outcome]]
    task: Task | None
    why_not_whole: Callable[[], str | None]  # why a run is not whole that had this worker; None when it is
    start_ns: int = 0  # so long after the begin marker
    planned_ns: int = 0
    started_ns: int | None = None
    further: tuple[Task, ...] = ()  # the tasks after the first, in the same conversation

    def look(self, now_ns: int, line: Line, prefilling: Container[str] | None = None) -> Look:
        """What it is at; `prefilling`: of the requests without a token those that the server is at, where known."""
        worker, outcome = self.worker, self.worker.outcome
        state = worker.doing.value
        if worker.doing is Doing.REQUEST:
            state = _state(worker.request, line, prefilling)
        elif worker.doing is Doing.DONE:
            state = outcome.end.value
        left_s = None if self.started_ns is not None else max(0.0, (self.planned_ns - now_ns) / 1e9)
        task = self.task.id if self.task is not None else outcome.task
        return Look(worker.name, state, left_s, outcome.requests, outcome.tool_calls, worker.context_tokens, task)


def _state(request: str | None, line: Line, prefilling: Container[str] | None) -> str:
    if request is None or not line.decodes(request):
        if prefilling is None or request is None:
            return "waiting for the first token"
        return "prefill" if request in prefilling else "queued"
    return "decode"


@dataclass(slots=True)
class Squad:
    """All that are at work in one stretch; `files` holds what they write to, to be closed after it."""

    stretch: Stretch
    members: Sequence[Member]
    plan: Sequence[str]  # lines for the person at the terminal
    before: Callable[[Served], Awaitable[None]] | None = None  # what is done before the begin marker
    each_said: bool = True  # whether a line is said of each one's start and end
    said_after: Callable[[], Sequence[str]] = tuple
    doubts: Callable[[], Sequence[Doubt]] = tuple  # about what they did, when they are done
    files: ExitStack = field(default_factory=ExitStack)

    def fields(self) -> list[dict[str, Any]]:
        """What the manifest says of each worker; `segment` only where a run has several."""
        where = {"segment": self.stretch.segment} if self.stretch.prefix else {}
        return [
            agent_fields(
                one.worker.outcome,
                () if one.task is None else (one.task, *one.further),
                planned_ns=one.planned_ns,
                started_ns=one.started_ns,
            )
            | where
            for one in self.members
        ]

    @property
    def answered(self) -> bool:
        """Whether any request was answered whole."""
        return any(one.worker.outcome.answered_requests for one in self.members)

    def flaws(self) -> list[str]:
        """Why a run is not whole that had these."""
        return [f"{self.stretch.prefix}{why}" for one in self.members if (why := one.why_not_whole()) is not None]


# Makes ready all that are to work in a stretch: the kind of work of a run.
Prepare = Callable[[Stretch, Line], Awaitable[Squad]]
