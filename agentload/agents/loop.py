"""How does one coding agent work on its task, from the first request to its final answer or a limit?

History is linear: a message once sent is never changed, so that what is saved is what the model saw. One tool call a
turn: further calls of the same answer are neither run nor kept in the history, which keeps requests = tool calls +
answers. Where several are asked for, those of one answer run at once, and their results come in the order of the calls.
A failed request is an event; the agent's own retry is a new request.

Chained tasks are one conversation: after the final answer the next one comes as a message of the user's, and nothing
is dropped. The limits are the conversation's; of the least work each task so far is to have brought its share.

The wall time is a bound, not a wish: at its end the request in flight is cut off, a tool that runs is killed, and the
agent has ended. The other limits ask for a final answer first.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from agentload.agents.actions import Actions, arguments_of
from agentload.agents.deadline import cut_at
from agentload.agents.outcome import AgentLimits, Doing, End, Outcome, Part, Sampling
from agentload.agents.sending import send
from agentload.agents.together import Job, Together, at_once
from agentload.agents.tools.output import cap
from agentload.core.ports import Clock, EventSink, Tool, Transport
from agentload.core.records import CUT_OFF, ChatCall, Completion, ToolCall, ToolResult

_SYSTEM: Final = (
    "You are a coding agent. You read a Rust repository and answer a question about it. "
    "Look at the files with your tools before you say anything; never guess. "
)
SYSTEM: Final = f"{_SYSTEM}One tool call at a time."
SYSTEM_PARALLEL: Final = f"{_SYSTEM}Make calls that do not depend on each other together, in one answer."
FINISH: Final = "Stop reading now. Write your final answer from what you have seen; do not call a tool."
NUDGE: Final = "You have not looked at enough of the code yet."

REPEATED: Final = "[You made this very call before.]"
FRESH: Final = "You have not read these yet:"
KILLED: Final = "[killed: the agent's time was over]"

_FRESH_PATHS: Final = 12
_HOTTER: Final = 0.2
_CAP_BYTES: Final = 50_000  # of one tool result (design, section 6)
_LEAST_CAP_BYTES: Final = 400
_BYTES_PER_TOKEN: Final = 3.0  # of numbered Rust source; low, so that an estimate errs towards fitting
_RETRY_AFTER_NS: Final = 1_000_000_000


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
        prefix: str = "",
        salt: str = "",
        further: Sequence[tuple[str, str]] = (),
        together: Together = at_once,
    ) -> None:
        """`events` takes the run's events, `history` the exact conversation, `known_paths` what a loop is shown.

        The names of its requests begin with `prefix`, where another agent of the run has its name too. `salt` is the
        first line of its system prompt: no cache then holds more of it than what stands before that. `further` are
        names and prompts of the tasks after the first; `together` runs several calls of one answer.
        """
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
        self._prefix = prefix
        system = SYSTEM_PARALLEL if actions.parallel else SYSTEM
        self._system = f"{salt}\n{system}" if salt else system
        self._tasks = ((task, prompt), *further)
        self._together = together
        self._running = 1  # calls of the answer at hand
        self._tools: dict[str, Tool] = {}
        self._messages: list[dict[str, Any]] = []
        self._seen: set[tuple[str, str]] = set()
        self._used_tokens = 0
        self._resampled = 0  # early answers in a row, left out of the history
        self._deadline = 0
        self.doing = Doing.WAITING
        self.request: str | None = None  # the one in flight
        self.first_error: tuple[int, str] | None = None  # of its requests: when it ended (ns), and why
        self.outcome = Outcome(name, task)

    @property
    def context_tokens(self) -> int:
        """How many tokens its context holds by the server's last count: what came since is not in it; 0: none yet."""
        return self.outcome.last_context_tokens or 0

    @property
    def too_little(self) -> bool:
        """Whether it has done less than the least work that counts; growth that is not known does not count."""
        return self._less_than(len(self._tasks))

    def _less_than(self, tasks: int) -> bool:
        """Whether it has done less than `tasks` of its tasks should have brought: equal shares of the least work."""
        limits, outcome, of = self._limits, self.outcome, len(self._tasks)
        growth = outcome.growth_tokens
        return outcome.tool_calls * of < limits.min_tool_calls * tasks or (
            growth is not None and growth * of < limits.min_growth_tokens * tasks
        )

    @property
    def _too_little_yet(self) -> bool:
        return self._less_than(len(self.outcome.parts))

    def output_limit(self) -> int:
        """Most bytes that the next tool result may have: an equal share of the context left, at most 50 kB."""
        limits, outcome = self._limits, self.outcome
        calls_left = max(self._running, limits.tool_calls - outcome.tool_calls + self._running - 1)
        room = limits.context_tokens - self._used_tokens - limits.final_tokens - calls_left * 64
        share = int(room / calls_left * _BYTES_PER_TOKEN)
        return max(_LEAST_CAP_BYTES, min(_CAP_BYTES, share))

    async def work(self, tools: Sequence[Tool]) -> Outcome:
        """Work until an answer or a limit; the outcome is also in `self.outcome`, whole after a cancellation too."""
        try:
            return await self._work(tools)
        finally:
            self._close(self.outcome.end)
            self.doing, self.request = Doing.DONE, None

    async def _work(self, tools: Sequence[Tool]) -> Outcome:
        self._tools = {tool.name: tool for tool in tools}
        self._deadline = self._clock.now_ns() + int(self._limits.wall_s * 1e9)
        request_tools = self._actions.request_tools(tools)
        self._history.emit("tools", self._clock.now_ns(), tools=list(request_tools))
        note = self._actions.system_note(tools)
        self._add({"role": "system", "content": f"{self._system}\n\n{note}" if note else self._system})
        self._begin()
        failures = 0
        finishing: End | None = None
        while self._clock.now_ns() < self._deadline:
            completion = await self._ask(request_tools, final=finishing is not None)
            if completion.error is not None:
                if completion.error.startswith(CUT_OFF):
                    return self._out_of_time(completion.error)
                failures += 1
                if self._is_last(failures, completion.error, finishing):
                    return self.outcome
                await self._pause()
            else:
                failures = 0
                over, finishing = await self._take(completion, finishing)
                if over:
                    return self.outcome
            if finishing is None and (finishing := self._time_to_finish()) is not None:
                self._add({"role": "user", "content": FINISH})
        return self._out_of_time("its time was over between two requests")

    async def _take(self, completion: Completion, finishing: End | None) -> tuple[bool, End | None]:
        """Run an answer's calls, or let its task end; return whether all is over, and why an end was asked for."""
        message, calls = self._actions.said(completion, self._most_calls())
        early = finishing is None and self._too_little_yet and self.outcome.nudges < self._limits.nudges
        if early and not calls:
            self._send_back(message)
            return False, None
        self._resampled = 0
        self._add(message)
        # A JSON action is in the text: the answer's own list of calls is empty then.
        self.outcome.calls_not_run += max(0, len(completion.tool_calls) - len(calls))
        if not calls:
            self.outcome.answers += 1
            self.outcome.answer = completion.content
            return not self._goes_on(finishing or End.ANSWERED), None
        if finishing is not None:
            self.outcome.calls_not_run += len(calls)
            full = " because its context was nearly full" if finishing is End.CONTEXT else ""
            self._end(End.NO_ANSWER, f"asked for its final answer{full}, it called {calls[0].name}")
        elif (killed := await self._run(calls, completion.turn)) is not None:
            self._out_of_time(f"{CUT_OFF}: its time was over while {killed.name} ran")
        else:
            return False, None
        return True, finishing

    def _begin(self) -> None:
        """Give it the next task."""
        outcome = self.outcome
        name, prompt = self._tasks[len(outcome.parts)]
        outcome.parts.append(Part(name, outcome.requests))
        self._prompt = prompt
        self._add({"role": "user", "content": prompt.strip()})

    def _close(self, end: End) -> None:
        """Write down what came of the task at hand; of one that has been closed nothing changes."""
        outcome = self.outcome
        if outcome.parts and (part := outcome.parts[-1]).end is None:
            before = outcome.parts[:-1]
            part.end, part.answer = end, outcome.answer if end in (End.ANSWERED, End.WRAPPED_UP) else ""
            part.requests = outcome.requests - part.first_turn
            part.tool_calls = outcome.tool_calls - sum(one.tool_calls for one in before)
            part.paths_read, part.paths_shown = len(outcome.paths_read), len(outcome.paths_shown)

    def _goes_on(self, end: End) -> bool:
        """After a task's final answer: begin the next one and say so, or end where none is left or a limit forbids."""
        done, of = len(self.outcome.parts), len(self._tasks)
        self._close(end)
        if done == of:
            self._end(end, None)
            return False
        self._used_tokens += int(len(self._tasks[done][1].encode("utf-8", "replace")) / _BYTES_PER_TOKEN)
        if (limit := self._limit_reached()) is not None:
            self._end(limit, f"its limits were reached after {done} of {of} tasks")
            return False
        self._begin()
        return True

    def _most_calls(self) -> int:
        left = self._limits.tool_calls - self.outcome.tool_calls
        return max(1, left) if self._actions.parallel else 1

    def _is_last(self, failures: int, error: str, finishing: End | None) -> bool:
        """Whether a failed request ends the agent; the outcome says how then."""
        if error.startswith("context overflow"):
            self._end(End.CONTEXT, error)
        elif failures >= self._limits.failures:
            self._end(End.FAILED, error)
        elif finishing is not None and self.outcome.requests > self._limits.turns:
            self._end(End.NO_ANSWER, f"{self._limits.turns} turns were used up, and its final answer failed: {error}")
        else:
            return False
        return True

    async def _pause(self) -> None:
        self.doing = Doing.PAUSE
        await self._clock.sleep_until(min(self._clock.now_ns() + _RETRY_AFTER_NS, self._deadline))

    def _send_back(self, message: dict[str, Any]) -> None:
        """An answer that came too early: say so, or leave it out and ask again."""
        self.outcome.answers += 1
        self.outcome.nudges += 1
        self._resampled += self._limits.resample
        if not self._limits.resample:
            self._add(message)
            if self._time_to_finish() is None:  # otherwise its final answer is asked for instead
                self._add({"role": "user", "content": self._nudge()})

    def _out_of_time(self, what: str) -> Outcome:
        return self._end(End.OUT_OF_TIME, f"{what} (wall time {self._limits.wall_s:g} s)")

    def _end(self, end: End, why: str | None) -> Outcome:
        self.outcome.end, self.outcome.why = end, why
        return self.outcome

    def _add(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._history.emit("message", self._clock.now_ns(), number=len(self._messages), message=message)

    def _time_to_finish(self) -> End | None:
        if (limit := self._limit_reached()) is not None:
            return limit
        # Of chained tasks one may have done the next one's share too: each is begun with a request all the same.
        asked = len(self.outcome.parts) == 1 or self.outcome.requests > self.outcome.parts[-1].first_turn
        return End.WRAPPED_UP if self._limits.stop_at_minimum and asked and not self._too_little_yet else None

    def _limit_reached(self) -> End | None:
        limits, outcome = self._limits, self.outcome
        if self._used_tokens + limits.answer_tokens + limits.final_tokens >= limits.context_tokens:
            return End.CONTEXT
        if outcome.tool_calls >= limits.tool_calls or outcome.requests >= limits.turns:
            return End.WRAPPED_UP
        return None

    async def _ask(self, request_tools: tuple[dict[str, Any], ...], *, final: bool) -> Completion:
        turn = self.outcome.requests
        self.outcome.requests += 1
        call = ChatCall(
            request=f"{self._prefix}{self.name}-r{turn}",
            agent=self.name,
            turn=turn,
            messages=tuple(self._messages),
            tools=request_tools,
            tool_choice="none" if final and request_tools and self._limits.final_without_tools else None,
            max_tokens=self._limits.final_tokens if final else self._limits.answer_tokens,
            # The same seed would let a small model repeat itself to the letter.
            seed=self._sampling.seed * 1000 + turn,
            temperature=self._temperature(),
            extra=self._actions.parameters() | self._sampling.extra,
            until_ns=self._deadline,
        )
        self.doing, self.request = Doing.REQUEST, call.request
        completion = await send(call, self._transport, clock=self._clock, events=self._events, history=self._history)
        self.request = None
        if completion.error is not None:
            cut = completion.error.startswith(CUT_OFF)
            self.outcome.cut_requests += cut
            self.outcome.failed_requests += not cut
            self.first_error = self.first_error or (completion.t_done, completion.error)
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

    async def _run(self, calls: Sequence[ToolCall], turn: int) -> ToolCall | None:
        """Run the calls of an answer and add their results; return one that was killed at the end of its time."""
        self.outcome.tool_turns += 1
        self.outcome.tool_calls += len(calls)
        self._running = len(calls)
        self.doing = Doing.TOOL
        results: dict[int, tuple[ToolResult, bool]] = {}

        async def run(place: int, *, repeated: bool) -> None:
            results[place] = await self._run_one(calls[place], turn, repeated=repeated)

        jobs: list[Job] = []
        for place, call in enumerate(calls):
            jobs.append(partial(run, place, repeated=(call.name, call.arguments) in self._seen))
            self._seen.add((call.name, call.arguments))
        if len(jobs) == 1:
            await jobs[0]()
        else:
            await self._together(jobs)
        killed: ToolCall | None = None
        for place, call in enumerate(calls):
            result, whole = results[place]
            self._add(self._actions.result(call, result.text))
            # Until the next usage, what was just added counts by estimate.
            self._used_tokens += int(len(result.text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)
            killed = killed or (None if whole else call)
        return killed

    async def _run_one(self, call: ToolCall, turn: int, *, repeated: bool) -> tuple[ToolResult, bool]:
        outcome = self.outcome
        who = {"agent": self.name, "turn": turn, "call": call.id, "tool": call.name}
        limit_bytes = self.output_limit()
        self._events.emit("tool_started", self._clock.now_ns(), **who)
        result = ToolResult(ok=False, text=KILLED, detail={"ended": "out of time"})  # unless it ends before
        async with cut_at(self._clock, self._deadline) as scope:
            result = self._with_notes(await self._call(call), limit_bytes, repeated=repeated)
        whole = not scope.cancelled_caught
        outcome.repeated_calls += repeated
        outcome.failed_calls += not result.ok
        if result.ok and isinstance(path := result.detail.get("path"), str):
            outcome.paths_read.append(path)
        if result.ok and isinstance(paths := result.detail.get("paths"), list):
            outcome.paths_shown += paths
        self._events.emit(
            "tool_done",
            self._clock.now_ns(),
            **who,
            ok=result.ok,
            text_bytes=len(result.text.encode("utf-8", "replace")),
            truncated=result.truncated,
            detail=result.detail,
        )
        return result, whole

    def _with_notes(self, result: ToolResult, limit_bytes: int, *, repeated: bool) -> ToolResult:
        """Add what a model is told that repeats or fails a call: within the cap, of which it takes half at most."""
        notes = cap(self._notes(result, repeated=repeated), limit_bytes // 2)
        if not notes:
            return result
        room = limit_bytes - len(notes.encode("utf-8", "replace")) - 1
        text = cap(result.text, room)
        return replace(result, text=f"{text}\n{notes}", truncated=result.truncated or text != result.text)

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
