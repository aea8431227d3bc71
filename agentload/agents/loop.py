"""How does one coding agent work on its task, from the first request to its final answer or a limit?

History is linear: a message once sent is never changed, so that what is saved is what the model saw. One tool call a
turn: further calls of the same answer are neither run nor kept in the history, which keeps requests = tool calls +
answers. A failed request is an event; the agent's own retry is a new request.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from agentload.agents.actions import Actions, arguments_of
from agentload.core.ports import Clock, EventSink, Tool, Transport
from agentload.core.records import ChatCall, Completion, ToolCall, ToolResult

SYSTEM: Final = (
    "You are a coding agent. You read a Rust repository and answer a question about it. "
    "Look at the files with your tools before you say anything; never guess. One tool call at a time."
)
FINISH: Final = "Stop reading now. Write your final answer from what you have seen; do not call a tool."
NUDGE: Final = "You have not looked at enough of the code yet."

REPEATED: Final = "[You made this very call before.]"
FRESH: Final = "You have not read these yet:"

_FRESH_PATHS: Final = 12
_HOTTER: Final = 0.2
_CAP_BYTES: Final = 50_000  # of one tool result (design, section 6)
_LEAST_CAP_BYTES: Final = 400
_BYTES_PER_TOKEN: Final = 3.0  # of numbered Rust source; low, so that an estimate errs towards fitting
_RETRY_AFTER_NS: Final = 1_000_000_000


class End(StrEnum):
    """How an agent ended."""

    ANSWERED = "answered"  # by its own decision
    WRAPPED_UP = "wrapped_up"  # it was asked for its final answer at a limit, and gave one
    NO_ANSWER = "no_answer"  # asked for it, it called a tool instead
    CONTEXT = "context"  # the context was full
    WALL_TIME = "wall_time"
    FAILED = "failed"  # requests failed, one after the other
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """What an agent may use, and what it should do at least. Tokens are the server's, from `usage`."""

    turns: int = 100  # requests, failed ones included
    tool_calls: int = 82
    wall_s: float = 3600.0
    context_tokens: int = 180_000  # prompt + answer of any request
    answer_tokens: int = 4096  # max_tokens of a request
    final_tokens: int = 8192  # and of the final answer
    min_tool_calls: int = 6
    min_growth_tokens: int = 3000
    nudges: int = 2  # how often an answer that comes too early is sent back
    resample: bool = False  # then leave it out of the history and ask again with another seed, instead of a message
    failures: int = 3  # this many failed requests in a row end the agent
    stop_at_minimum: bool = False  # ask for the final answer as soon as the least work is done


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
    answers: int = 0  # turns without a tool call, nudged ones included
    nudges: int = 0
    tool_calls: int = 0  # run
    calls_not_run: int = 0  # further calls of an answer, and calls instead of the final answer
    failed_calls: int = 0  # of the calls run, those whose result was not ok
    repeated_calls: int = 0  # of the calls run, those equal to an earlier one in name and arguments
    first_prompt_tokens: int | None = None
    last_context_tokens: int | None = None  # prompt + answer of the last request with usage
    paths_read: list[str] = field(default_factory=list)

    @property
    def growth_tokens(self) -> int | None:
        """By how much its context grew from the first prompt; None when the server reports no usage."""
        if self.first_prompt_tokens is None or self.last_context_tokens is None:
            return None
        return self.last_context_tokens - self.first_prompt_tokens


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of every request of a run."""

    seed: int = 0
    temperature: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Agent:
    """One agent: `work()` once."""

    def __init__(
        self,
        name: str,
        task: str,
        prompt: str,
        *,
        transport: Transport,
        actions: Actions,
        limits: AgentLimits,
        sampling: Sampling,
        clock: Clock,
        events: EventSink,
        history: EventSink,
        known_paths: Sequence[str] = (),
    ) -> None:
        """`events` takes the run's events, `history` the exact conversation, `known_paths` what a loop is shown."""
        self.name = name
        self._prompt = prompt
        self._transport = transport
        self._actions = actions
        self._limits = limits
        self._sampling = sampling
        self._clock = clock
        self._events = events
        self._history = history
        self._known_paths = known_paths
        self._tools: dict[str, Tool] = {}
        self._messages: list[dict[str, Any]] = []
        self._seen: set[tuple[str, str]] = set()
        self._used_tokens = 0
        self._resampled = 0  # early answers in a row, left out of the history
        self._deadline = 0
        self.outcome = Outcome(name, task)

    def output_limit(self) -> int:
        """Most bytes that the next tool result may have: an equal share of the context left, at most 50 kB."""
        limits, outcome = self._limits, self.outcome
        calls_left = max(1, limits.tool_calls - outcome.tool_calls)
        room = limits.context_tokens - self._used_tokens - limits.final_tokens - calls_left * 64
        share = int(room / calls_left * _BYTES_PER_TOKEN)
        return max(_LEAST_CAP_BYTES, min(_CAP_BYTES, share))

    async def work(self, tools: Sequence[Tool]) -> Outcome:
        """Work until an answer or a limit; the outcome is also in `self.outcome`, whole after a cancellation too."""
        self._tools = {tool.name: tool for tool in tools}
        self._deadline = self._clock.now_ns() + int(self._limits.wall_s * 1e9)
        request_tools = self._actions.request_tools(tools)
        self._history.emit("tools", self._clock.now_ns(), tools=list(request_tools))
        note = self._actions.system_note(tools)
        self._add({"role": "system", "content": f"{SYSTEM}\n\n{note}" if note else SYSTEM})
        self._add({"role": "user", "content": self._prompt.strip()})
        failures = 0
        finishing: End | None = None
        while self.outcome.requests < self._limits.turns + (finishing is not None):
            completion = await self._ask(request_tools, final=finishing is not None)
            if completion.error is not None:
                self.outcome.failed_requests += 1
                failures += 1
                if completion.error.startswith("context overflow"):
                    return self._end(End.CONTEXT, completion.error)
                if failures >= self._limits.failures:
                    return self._end(End.FAILED, completion.error)
                await self._clock.sleep_until(self._clock.now_ns() + _RETRY_AFTER_NS)
                continue
            failures = 0
            message, calls = self._actions.said(completion)
            if not calls and finishing is None and self._too_little() and self.outcome.nudges < self._limits.nudges:
                self.outcome.answers += 1
                self.outcome.nudges += 1
                self._resampled += self._limits.resample
                if not self._limits.resample:
                    self._add(message)
                    self._add({"role": "user", "content": self._nudge()})
                continue
            self._resampled = 0
            self._add(message)
            if not calls:
                self.outcome.answers += 1
                self.outcome.answer = completion.content
                return self._end(finishing or End.ANSWERED, None)
            # A JSON action is in the text: the answer's own list of calls is empty then.
            self.outcome.calls_not_run += max(0, len(completion.tool_calls) - len(calls))
            if finishing is not None:
                self.outcome.calls_not_run += len(calls)
                return self._end(End.NO_ANSWER, f"asked for its final answer, it called {calls[0].name}")
            await self._run(calls[0], completion.turn)
            finishing = self._time_to_finish()
            if finishing is not None:
                self._add({"role": "user", "content": FINISH})
        return self._end(End.NO_ANSWER, f"{self._limits.turns} turns were used up")

    def _end(self, end: End, why: str | None) -> Outcome:
        self.outcome.end, self.outcome.why = end, why
        return self.outcome

    def _add(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._history.emit("message", self._clock.now_ns(), number=len(self._messages), message=message)

    def _too_little(self) -> bool:
        growth = self.outcome.growth_tokens
        return self.outcome.tool_calls < self._limits.min_tool_calls or (
            growth is not None and growth < self._limits.min_growth_tokens
        )

    def _time_to_finish(self) -> End | None:
        limits, outcome = self._limits, self.outcome
        if self._clock.now_ns() >= self._deadline:
            return End.WALL_TIME
        if self._used_tokens + limits.answer_tokens + limits.final_tokens >= limits.context_tokens:
            return End.CONTEXT
        at_minimum = limits.stop_at_minimum and not self._too_little()
        if at_minimum or outcome.tool_calls >= limits.tool_calls or outcome.requests >= limits.turns:
            return End.WRAPPED_UP
        return None

    async def _ask(self, request_tools: tuple[dict[str, Any], ...], *, final: bool) -> Completion:
        turn = self.outcome.requests
        self.outcome.requests += 1
        call = ChatCall(
            request=f"{self.name}-r{turn}",
            agent=self.name,
            turn=turn,
            messages=tuple(self._messages),
            tools=request_tools,
            tool_choice="none" if final and request_tools else None,
            max_tokens=self._limits.final_tokens if final else self._limits.answer_tokens,
            # The same seed would let a small model repeat itself to the letter.
            seed=self._sampling.seed * 1000 + turn,
            temperature=self._temperature(),
            extra=self._actions.parameters() | self._sampling.extra,
        )
        sent = {
            "request": call.request,
            "agent": call.agent,
            "turn": turn,
            "messages": len(call.messages),
            "tool_choice": call.tool_choice,
            "max_tokens": call.max_tokens,
            "seed": call.seed,
            "temperature": call.temperature,
            "extra": call.extra,
        }
        now = self._clock.now_ns()
        self._history.emit("request", now, **sent)
        self._events.emit("request_sent", now, request=call.request, agent=self.name, turn=turn)
        completion = await self._transport.complete(call)
        self._record(completion)
        usage = completion.usage
        if usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
            self._used_tokens = usage.prompt_tokens + usage.completion_tokens
            if self.outcome.first_prompt_tokens is None:
                self.outcome.first_prompt_tokens = usage.prompt_tokens
            self.outcome.last_context_tokens = self._used_tokens
        return completion

    def _temperature(self) -> float | None:
        """The run's temperature; while early answers are sampled again, a step hotter each time, at most by 1.

        At one temperature a model of 135M parameters gave six early answers in a row.
        """
        base = self._sampling.temperature
        if base is None or self._resampled == 0:
            return base
        return round(base + min(1.0, _HOTTER * self._resampled), 2)

    def _record(self, completion: Completion) -> None:
        who = {"request": completion.request, "agent": self.name, "turn": completion.turn}
        if completion.t_first_byte is not None:
            self._events.emit("first_byte", completion.t_first_byte, **who)
        if completion.t_first_token is not None:
            self._events.emit("first_token", completion.t_first_token, **who)
        self._events.emit("request_done", completion.t_done, **who, **request_done_fields(completion))
        self._history.emit(
            "answer",
            completion.t_done,
            **who,
            content=completion.content,
            reasoning=completion.reasoning,
            tool_calls=[{"id": one.id, "name": one.name, "arguments": one.arguments} for one in completion.tool_calls],
            finish=completion.finish,
            usage=completion.raw_usage,
            timings=completion.raw_timings,
            error=completion.error,
        )

    async def _run(self, call: ToolCall, turn: int) -> None:
        result = await self._run_one(call, turn)
        self._add(self._actions.result(call, result.text))
        # Until the next usage, what was just added counts by estimate.
        self._used_tokens += int(len(result.text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)

    async def _run_one(self, call: ToolCall, turn: int) -> ToolResult:
        outcome = self.outcome
        outcome.tool_calls += 1
        repeated = (call.name, call.arguments) in self._seen
        self._seen.add((call.name, call.arguments))
        who = {"agent": self.name, "turn": turn, "call": call.id, "tool": call.name}
        self._events.emit("tool_started", self._clock.now_ns(), **who)
        result = await self._call(call)
        outcome.repeated_calls += repeated
        outcome.failed_calls += not result.ok
        if notes := self._notes(result, repeated=repeated):
            result = replace(result, text=f"{result.text}\n{notes}")
        if result.ok and isinstance(path := result.detail.get("path"), str):
            outcome.paths_read.append(path)
        self._events.emit(
            "tool_done",
            self._clock.now_ns(),
            **who,
            ok=result.ok,
            text_bytes=len(result.text.encode("utf-8", "replace")),
            truncated=result.truncated,
            detail=result.detail,
        )
        return result

    def _unread(self) -> list[str]:
        """Known paths not read yet: those that the task names first, then the others, each in its order."""
        paths = [path for path in self._known_paths if path not in self.outcome.paths_read]
        return sorted(paths, key=lambda path: path not in self._prompt)

    def _nudge(self) -> str:
        # A small model does not follow "call a tool", but it does follow a file's name.
        unread = self._unread()
        return f"{NUDGE} Read {unread[0]}." if unread else f"{NUDGE} Call read or bash."

    def _notes(self, result: ToolResult, *, repeated: bool) -> str:
        """What a model is told that makes the same call again, or one that failed; empty for any other call."""
        fresh = self._unread()[:_FRESH_PATHS] if repeated or not result.ok else []
        paths = f"{FRESH} {', '.join(fresh)}." if fresh else ""
        return " ".join(filter(None, (REPEATED if repeated else "", paths)))

    async def _call(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            names = " and ".join(sorted(self._tools))
            return ToolResult(ok=False, text=f"there is no tool {call.name[:60]!r}: there are {names}")
        arguments = arguments_of(call)
        if arguments is None:
            return ToolResult(
                ok=False, text=f"{call.name}: expected arguments as a JSON object, got {call.arguments[:80]!r}"
            )
        return await tool.call(arguments)


def request_done_fields(completion: Completion) -> dict[str, Any]:
    """Return what a `request_done` event holds besides its time and who sent it: times in Unix ns, null as it came."""
    usage, timings = completion.usage, completion.timings
    return {
        "t_sent": completion.t_sent,
        "t_first_byte": completion.t_first_byte,
        "t_first_token": completion.t_first_token,
        "status": completion.status,
        "finish": completion.finish,
        "error": completion.error,
        "server_id": completion.server_id,
        "model": completion.model,
        "chunk_ns": list(completion.chunk_ns),
        "chunks_without_token": _without_token(completion),
        "comments": completion.comments,
        "tool_call_ids": [call.id for call in completion.tool_calls],
        "usage": None
        if usage is None
        else {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
        "timings": None
        if timings is None
        else {
            "cached_tokens": timings.cached_tokens,
            "prompt_tokens": timings.prompt_tokens,
            "prompt_ms": timings.prompt_ms,
            "decoded_tokens": timings.decoded_tokens,
            "decode_ms": timings.decode_ms,
        },
        "notes": list(completion.notes),
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
