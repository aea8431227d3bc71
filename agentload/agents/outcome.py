"""What may an agent use, what is it at, and what came of it?"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from agentload.core.records import REQUEST_DONE_FIELDS, Completion


class End(StrEnum):
    """How an agent ended."""

    ANSWERED = "answered"  # by its own decision
    WRAPPED_UP = "wrapped_up"  # it was asked for its final answer at a limit, and gave one
    NO_ANSWER = "no_answer"  # asked for it, it called a tool instead
    CONTEXT = "context"  # the context was full
    OUT_OF_TIME = "out_of_time"  # its wall time was over: what it was at was cut off
    FAILED = "failed"  # requests failed, one after the other
    CANCELLED = "cancelled"


class Doing(StrEnum):
    """What an agent is at, for whoever looks at it now and then."""

    WAITING = "waiting"  # for its start
    REQUEST = "request"
    TOOL = "tool"
    PAUSE = "pause"  # before a failed request is tried again
    DONE = "done"


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """What an agent may use, and what it should do at least. Tokens are the server's, from `usage`."""

    turns: int = 100  # requests, failed ones included; the one for the final answer comes on top
    tool_calls: int = 34  # p90 of 55 published Explore sub-agents; more would leave each result a few kB of the context
    wall_s: float = 3600.0
    context_tokens: int = 180_000  # prompt + answer of any request
    answer_tokens: int = 4096  # max_tokens of a request
    final_tokens: int = 8192  # and of the final answer
    min_tool_calls: int = 6
    min_growth_tokens: int = 3000
    nudges: int = 2  # how often an answer that comes too early is sent back
    resample: bool = False  # then leave it out of the history and ask again with another seed, instead of a message
    failures: int = 3  # this many failed requests in a row end the agent
    # Ask for the final answer with tool_choice "none", for models that do not follow the words alone. ds4-server leaves
    # the tools out of the prompt then: its cache holds no prefix of it, and all of the context is prefilled again.
    final_without_tools: bool = False
    stop_at_minimum: bool = False  # ask for the final answer as soon as the least work is done


@dataclass(slots=True)
class Part:
    """One task of a conversation, as far as it came: a conversation has one, where tasks are chained several."""

    task: str
    first_turn: int  # the first request that has its prompt
    end: End | None = None  # None: it goes on
    answer: str = ""
    requests: int = 0
    tool_calls: int = 0
    paths_read: int = 0  # so many of the agent's had been read when it ended
    paths_shown: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of an agent's work."""

    agent: str
    task: str
    end: End = End.CANCELLED
    why: str | None = None
    answer: str = ""
    requests: int = 0
    failed_requests: int = 0
    cut_requests: int = 0  # at the end of its wall time: 0 or 1, and no failed one
    answers: int = 0  # turns without a tool call, nudged ones included
    nudges: int = 0
    tool_calls: int = 0  # run
    tool_turns: int = 0  # turns in which they were run: fewer than calls where several of one answer are
    calls_not_run: int = 0  # further calls of an answer, and calls instead of the final answer
    failed_calls: int = 0  # of the calls run, those whose result was not ok
    repeated_calls: int = 0  # of the calls run, those equal to an earlier one in name and arguments
    first_prompt_tokens: int | None = None
    last_context_tokens: int | None = None  # prompt + answer of the last request with usage
    paths_read: list[str] = field(default_factory=list)
    paths_shown: list[str] = field(default_factory=list)  # by the shell commands that name them
    parts: list[Part] = field(default_factory=list)  # the tasks that were begun, in order

    @property
    def growth_tokens(self) -> int | None:
        """By how much its context grew from the first prompt; None when the server reports no usage."""
        if self.first_prompt_tokens is None or self.last_context_tokens is None:
            return None
        return self.last_context_tokens - self.first_prompt_tokens

    @property
    def answered_requests(self) -> int:
        """Requests that were answered whole."""
        return self.requests - self.failed_requests - self.cut_requests


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of every request of a run."""

    seed: int = 0
    temperature: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def request_done_fields(completion: Completion) -> dict[str, Any]:
    """Return what a `request_done` event holds besides its time and who sent it: times in Unix ns, null as it came."""
    usage, timings = completion.usage, completion.timings
    return {
        **{name: getattr(completion, name) for name in REQUEST_DONE_FIELDS},
        "chunk_ns": list(completion.chunk_ns),
        "chunks_without_token": _without_token(completion),
        "tool_call_ids": [call.id for call in completion.tool_calls],
        "usage": None if usage is None else asdict(usage),
        "timings": None if timings is None else asdict(timings),
        "notes": list(completion.notes),
        **({} if completion.phases is None else {"phases": asdict(completion.phases)}),
    }


def _without_token(completion: Completion) -> list[int]:
    """Indices into `chunk_ns` of the events that carry no token (role, finish, usage, progress).

    Events that came in one piece have one stamp: of those, as many are left out as carry a token.
    """
    tokens = Counter(completion.token_ns)
    without = []
    for index, stamp in enumerate(completion.chunk_ns):
        if tokens[stamp] > 0:
            tokens[stamp] -= 1
        else:
            without.append(index)
    return without
