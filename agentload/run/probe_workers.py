"""Who is at work in a segment of the probe, and when is the cold prompt thrown in?

Sessions that write go on, turn by turn, until every cold prompt of the segment is answered; the turn in flight then
ends by itself. The prompt comes when all of them write and each has written `settle_tokens` since the last of them
began, so that their speed alone is known. Nobody waits for anybody but by looking now and then: in virtual time too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentload.agents.outcome import Doing, End, Outcome
from agentload.agents.sending import send
from agentload.core.ports import Clock, EventSink
from agentload.core.probe import Load
from agentload.core.records import CUT_OFF, ChatCall, Completion
from agentload.run.world import Line

DECODER: Final = "decoder"  # what events, the manifest and the views say that a worker is at
COLD_PROMPT: Final = "cold prompt"
_LOOK_NS: Final = 5_000_000  # the decode step of three sessions is 34 to 86 ms on the published machine
_RESTLESS_TURNS: Final = 20  # of one decoder, in which all never wrote at one time
_ROUNDS: Final = 4  # of whole turns of those that write, in which no further decoder began, and no more wrote at once


@dataclass(frozen=True, slots=True)
class Wire:
    """What a worker needs to send requests and to write down what came of them."""

    line: Line
    clock: Clock
    events: EventSink
    history: EventSink  # takes the exact conversation
    wall_s: float  # that a request may take

    def until_ns(self) -> int:
        """When a request that goes out now is cut off."""
        return self.clock.now_ns() + int(self.wall_s * 1e9)


class Worker:
    """What both kinds have in common: requests of their own, in turn. A `squad.Worker`."""

    def __init__(self, name: str, wire: Wire, stage: "Stage", task: str) -> None:
        """`stage` is that of its segment, `task` what it is at."""
        self.name = name
        self._wire, self._stage = wire, stage
        self._told = 0  # messages that the history has
        self.doing = Doing.WAITING
        self.request: str | None = None
        self.first_error: tuple[int, str] | None = None
        self.outcome = Outcome(name, task)

    @property
    def context_tokens(self) -> int:
        """How many tokens its context holds; 0 before."""
        return self.outcome.last_context_tokens or 0

    def flaw(self) -> str | None:
        """Why a run is not whole that had it; None when it came to its end."""
        outcome = self.outcome
        why = f": {outcome.why}" if outcome.why else ""
        return None if outcome.end is End.ANSWERED else f"{self.name} {outcome.end.value}{why}"

    async def _ask(self, call: ChatCall) -> Completion:
        """Send one request and count what came of it; the outcome's end is set when it failed."""
        outcome, wire = self.outcome, self._wire
        now_ns = wire.clock.now_ns()
        if len(call.messages) < self._told:  # another conversation
            self._told = 0
        for number, message in enumerate(call.messages[self._told :], self._told + 1):
            wire.history.emit("message", now_ns, number=number, message=message)
        self._told = len(call.messages)
        self.doing, self.request = Doing.REQUEST, call.request
        outcome.requests += 1
        try:
            answer = await send(call, wire.line, clock=wire.clock, events=wire.events, history=wire.history)
        finally:
            self.request = None
        usage = answer.usage
        if usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
            outcome.first_prompt_tokens = outcome.first_prompt_tokens or usage.prompt_tokens
            outcome.last_context_tokens = usage.prompt_tokens + usage.completion_tokens
        if answer.error is None:
            outcome.answers += 1
            return answer
        self.first_error, outcome.why = (answer.t_done, answer.error), answer.error
        if answer.error.startswith(CUT_OFF):
            outcome.cut_requests, outcome.end = 1, End.OUT_OF_TIME
        else:
            outcome.failed_requests, outcome.end = 1, End.FAILED
        return answer


class Decoder(Worker):
    """A session that writes."""

    def __init__(
        self, name: str, wire: Wire, stage: "Stage", call: Callable[[int, int], ChatCall], first_turn: int = 0
    ) -> None:
        """`call` makes the request of a turn (from `first_turn` on) that is cut off at a time."""
        super().__init__(name, wire, stage, DECODER)
        self._call, self._turn = call, first_turn
        self._turns = 0  # that have ended
        self.short: int | None = None  # tokens of the first answer that ended early, by its usage

    async def work(self) -> Outcome:
        """Write, turn by turn, until the prompts are answered; where it is nearly finished, one turn."""
        try:
            while await self._goes_on():
                self._turn += 1
        finally:
            self.doing = Doing.DONE
        return self.outcome

    async def _goes_on(self) -> bool:
        """Do a turn; return whether another follows."""
        stage = self._stage
        answer = await self._ask(self._call(self._turn, self._wire.until_ns()))
        if answer.error is not None:
            stage.give_up(f"{self.name}, which was to write meanwhile, {self.outcome.end.value}: {answer.error}")
            return False
        self._turns += 1
        decoded = None if answer.usage is None else answer.usage.completion_tokens
        if decoded is not None and decoded < stage.turn_tokens:
            self.short = decoded if self.short is None else self.short
        else:
            stage.whole_turn()
        if stage.load.nearly_finished is not None:
            stage.give_up(f"{self.name} had written all before it was seen to have so few tokens left")
        elif stage.thrown_ns is None and self._turns >= _RESTLESS_TURNS:
            stage.give_up(
                f"the decoders never wrote {stage.settle_tokens} tokens each at one time, in {self._turns} turns of "
                f"{self.name}: their answers end early, or do not come in as they are written"
            )
        if not stage.over and stage.why_not is None and stage.load.nearly_finished is None:
            return True
        self.outcome.end = End.ANSWERED
        return False


class ColdPrompt(Worker):
    """A cold prompt: it waits until it is due, is sent, and answered."""

    def __init__(self, name: str, wire: Wire, stage: "Stage", call: Callable[[int], ChatCall]) -> None:
        """`call` makes the request that is cut off at a time."""
        super().__init__(name, wire, stage, COLD_PROMPT)
        self._call = call

    async def work(self) -> Outcome:
        """Wait until the prompt is due, and send it."""
        try:
            if await self._is_due():
                answer = await self._ask(self._call(self._wire.until_ns()))
                if answer.error is None:
                    self.outcome.end = End.ANSWERED
        finally:
            self.doing = Doing.DONE
            self._stage.answered(self)
        return self.outcome

    async def _is_due(self) -> bool:
        """Return at the time of the throw; False when there is none."""
        wire, stage, outcome, until_ns = self._wire, self._stage, self.outcome, self._wire.until_ns()
        while (due_ns := stage.look(wire.line, now_ns := wire.clock.now_ns(), wire.events)) is None:
            if stage.why_not is None and now_ns >= until_ns:
                stage.give_up("the decoders were not ready in time")
            if stage.why_not is not None:
                outcome.end, outcome.why = End.FAILED, f"not sent: {stage.why_not}"
                return False
            await wire.clock.sleep_until(now_ns + _LOOK_NS)
        await wire.clock.sleep_until(due_ns)
        return True


@dataclass(slots=True, eq=False)
class Stage:
    """What the workers of one segment know of each other."""

    segment: str
    load: Load
    settle_tokens: int
    turn_tokens: int
    decoders: Sequence[Decoder] = ()
    prompts: Sequence[ColdPrompt] = ()
    thrown_ns: int | None = None  # when the prompts are sent, all at once
    why_not: str | None = None  # they never will be
    settled_from_ns: int | None = None
    say: Callable[[str], None] = lambda _: None  # takes a line for the person who waits
    _most: int = 0  # decoders that were seen to write at one time
    _begun: set[int] = field(default_factory=set)  # decoders that were ever seen to write
    _idle_turns: int = 0  # whole ones since one of these two grew
    _said: bool = False  # that the prompt waits
    _open: tuple[str, ...] = ()  # the requests that are written since then
    _before: tuple[int, ...] = ()  # tokens of each at that time
    _answered: set[str] = field(default_factory=set)

    @property
    def over(self) -> bool:
        """Whether all prompts are answered, or will not be."""
        return len(self._answered) == len(self.prompts)

    def answered(self, prompt: ColdPrompt) -> None:
        """Take note that a prompt is done."""
        self._answered.add(prompt.name)

    def give_up(self, why: str) -> None:
        """Take note of why the prompts cannot be thrown in; too late when they have been."""
        if self.thrown_ns is None and self.why_not is None:
            self.why_not = why

    def whole_turn(self) -> None:
        """Take note that a decoder has written a whole turn; wait no longer where others have no place to write.

        A server with fewer slots than there are decoders lets some of them wait at any time, and the prompt with them.
        Where prefills are slow, more and more of them write: that is no reason to give up.
        """
        most, of = self._most, len(self.decoders)
        if self.thrown_ns is not None or self.why_not is not None or not 0 < most < of:
            return
        self._idle_turns += 1
        turns = _ROUNDS * most
        if self._idle_turns == 1 and not self._said:
            self._said = True
            self.say(
                f"{self.segment}: {most} of {of} decoders write at one time: the prompt waits until all do, for at "
                f"most {turns} turns of them in which no further one begins"
            )
        if self._idle_turns >= turns:
            never = of - len(self._begun)
            what = (
                f"{never} of {of} decoders never began"
                if never
                else f"never more than {most} of {of} decoders wrote at one time"
            )
            self.give_up(f"{what}, in {self._idle_turns} turns of the others: does the server have fewer slots?")

    def look(self, line: Line, now_ns: int, events: EventSink) -> int | None:
        """Return when the prompts are due, and say so at the first look that finds it; None: not yet, or never."""
        if self.why_not is not None or self.thrown_ns is not None:
            return self.thrown_ns
        requests = tuple(one.request or "" for one in self.decoders)
        written = tuple(line.tokens(request) for request in requests)
        writing = {index for index, have in enumerate(written) if have}
        if len(writing) > self._most or not writing <= self._begun:
            self._most, self._idle_turns = max(self._most, len(writing)), 0
            self._begun |= writing
        if not all(written):
            self._open = ()
            return None
        if requests != self._open:
            self._open, self._before, self.settled_from_ns = requests, written, now_ns if requests else None
        left = self.load.nearly_finished
        alone = min((have - had for have, had in zip(written, self._before, strict=True)), default=self.settle_tokens)
        if alone < self.settle_tokens or (left is not None and written[0] < self.turn_tokens - left):
            return None
        # Those of several look one after the other: so they agree on a time at which all know of it.
        self.thrown_ns = now_ns if len(self.prompts) == 1 else now_ns + 2 * _LOOK_NS
        events.emit(
            "prompt_thrown",
            self.thrown_ns,
            segment=self.segment,
            load=self.load.name,
            prompts=[one.name for one in self.prompts],
            settled_from=self.settled_from_ns,
            decoders={one.name: have for one, have in zip(self.decoders, written, strict=True)},
        )
        return self.thrown_ns
