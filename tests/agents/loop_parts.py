"""What stands around an agent when a test decides everything: a clock, a model, tools and the recorded events."""

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio.lowlevel

from agentload.agents.actions import Actions, NativeActions
from agentload.agents.loop import Agent
from agentload.agents.outcome import AgentLimits, Sampling
from agentload.core.records import CUT_OFF, ChatCall, Completion, ToolCall, ToolResult, Usage

S = 1_000_000_000
_ROUNDS = 20


@dataclass
class ManualClock:
    """Stands still but for what the test and sleeps do: a sleep lets whoever can go on do so, then time is there."""

    at: int = 1_000 * S
    slept: list[int] = field(default_factory=list)  # ns, each sleep that was not broken off

    def now_ns(self) -> int:
        return self.at

    async def sleep_until(self, t_ns: int) -> None:
        for _ in range(_ROUNDS):
            await anyio.lowlevel.checkpoint()
        self.slept.append(t_ns - self.at)
        self.at = max(self.at, t_ns)


@dataclass
class Events:
    """An EventSink that keeps copies."""

    all: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        self.all.append((kind, t_ns, copy.deepcopy(fields)))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.all]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for one, _, fields in self.all if one == kind]


Reply = Callable[[ChatCall], Completion]


@dataclass
class Model:
    """A Transport that gives the next of its replies; each takes `takes_ns` of the clock's time."""

    clock: ManualClock
    replies: Sequence[Reply]
    takes_ns: int = S
    calls: list[ChatCall] = field(default_factory=list)

    async def complete(self, call: ChatCall) -> Completion:
        self.calls.append(copy.deepcopy(call))
        reply = self.replies[len(self.calls) - 1]
        if call.until_ns is not None and self.clock.at + self.takes_ns > call.until_ns:
            self.clock.at = call.until_ns
            return replace(reply(call), error=f"{CUT_OFF}: by the test", finish=None, usage=None)
        self.clock.at += self.takes_ns
        return reply(call)


def _completion(call: ChatCall, **fields: Any) -> Completion:
    """Sent at 7, first byte at 8, first token at 9, done at 10: times that no clock of the test shows."""
    values: dict[str, Any] = {"t_first_byte": 8, "t_first_token": 9, "t_done": 10, "status": 200, "finish": "stop"}
    return Completion(call.request, call.agent, call.turn, 7, **{**values, **fields})


def says(text: str, usage: tuple[int, int] | None = None, **fields: Any) -> Reply:
    """An answer; `usage` is (prompt, completion) tokens."""
    counted = None if usage is None else Usage(*usage)
    return lambda call: _completion(call, content=text, usage=counted, **fields)


def uses(
    *calls: tuple[str, str], usage: tuple[int, int] | None = None, ids: Sequence[str] | None = None, **fields: Any
) -> Reply:
    """An answer that calls tools: (name, arguments) each, with ids c<turn>-<place> unless given."""
    counted = None if usage is None else Usage(*usage)

    def reply(call: ChatCall) -> Completion:
        names = ids or [f"c{call.turn}-{place}" for place in range(len(calls))]
        made = tuple(ToolCall(name, *one) for name, one in zip(names, calls, strict=True))
        return _completion(call, tool_calls=made, finish="tool_calls", usage=counted, **fields)

    return reply


def fails(error: str) -> Reply:
    return lambda call: _completion(call, error=error, t_first_byte=None, t_first_token=None, status=None, finish=None)


@dataclass
class Echo:
    """A tool that gives its arguments back; `ok` and the text can be set."""

    name: str = "read"
    text: str | None = None
    ok: bool = True
    detail: dict[str, Any] = field(default_factory=dict)
    got: list[dict[str, Any]] = field(default_factory=list)
    before: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint

    def schema(self) -> dict[str, Any]:
        return {"description": f"{self.name} something", "parameters": {"type": "object", "properties": {}}}

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        await self.before()
        self.got.append(dict(arguments))
        text = f"got {sorted(arguments.items())}" if self.text is None else self.text
        return ToolResult(ok=self.ok, text=text, detail=self.detail)


FREE = AgentLimits(min_tool_calls=0, min_growth_tokens=0)  # no least amount of work


@dataclass
class Stage:
    """An agent with everything around it."""

    model: Model
    clock: ManualClock
    events: Events
    history: Events
    agent: Agent


def stage(
    *replies: Reply,
    limits: AgentLimits = FREE,
    actions: Actions | None = None,
    sampling: Sampling | None = None,
    takes_ns: int = S,
    known_paths: Sequence[str] = (),
    prompt: str = "  What does it do?\n",
) -> Stage:
    clock, events, history = ManualClock(), Events(), Events()
    model = Model(clock, replies, takes_ns)
    agent = Agent(
        "a0",
        "some-task",
        prompt,
        transport=model,
        actions=actions or NativeActions(),
        limits=limits,
        sampling=sampling or Sampling(),
        clock=clock,
        events=events,
        history=history,
        known_paths=known_paths,
    )
    return Stage(model, clock, events, history, agent)
