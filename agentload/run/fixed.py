"""How fast does a server write when so many equal requests are open at once?

The fixed workload (report B, PROTOCOL 4): short prompts, long outputs, no tools and no corpus. All requests of a
segment go out together, right after its begin marker; it ends when the last one is answered. Each stands for itself
and is joined and counted as an agent of one turn, r0, r1, ...

How long an answer gets is decided by `max_tokens` from above. A model that ends by itself is given its way, and it is
said: ds4, llama.cpp, vLLM and SGLang go on for `ignore_eos`, where a scenario asks for it in `request`.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from agentload.agents.outcome import Doing, End, Outcome
from agentload.agents.sending import send
from agentload.artifacts import schemas
from agentload.artifacts.rundir import EventLog
from agentload.core.ports import Clock, EventSink, Transport
from agentload.core.records import CUT_OFF, ChatCall, Doubt
from agentload.run import texts
from agentload.run.parts import Stretch
from agentload.run.scenario import Scenario
from agentload.run.serving import Session
from agentload.run.squad import Member, Squad
from agentload.run.workloads import Fixed
from agentload.run.world import Line

TASK: Final = "fixed"  # what events and the manifest say that such a request is at


class OneRequest:
    """One request that stands for itself: `work()` once. A `squad.Worker`."""

    def __init__(
        self,
        name: str,
        call: ChatCall,
        wall_s: float,
        *,
        transport: Transport,
        clock: Clock,
        events: EventSink,
        history: EventSink,
    ) -> None:
        """`call` has no time limit yet: it is `wall_s` after its start. `history` takes the exact conversation."""
        self.name = name
        self._call = call
        self._wall_s = wall_s
        self._transport = transport
        self._clock = clock
        self._events = events
        self._history = history
        self.doing = Doing.WAITING
        self.request: str | None = None
        self.first_error: tuple[int, str] | None = None
        self.outcome = Outcome(name, TASK)
        self.decoded_tokens: int | None = None  # by the answer's usage

    @property
    def context_tokens(self) -> int:
        """How many tokens its context holds in the end; 0 before."""
        return self.outcome.last_context_tokens or 0

    async def work(self) -> Outcome:
        """Send it and wait for its answer."""
        try:
            return await self._work()
        finally:
            self.doing, self.request = Doing.DONE, None

    async def _work(self) -> Outcome:
        outcome, call, now_ns = self.outcome, self._call, self._clock.now_ns()
        for number, message in enumerate(call.messages, 1):
            self._history.emit("message", now_ns, number=number, message=message)
        self.doing, self.request = Doing.REQUEST, call.request
        outcome.requests = 1
        call = replace(call, until_ns=now_ns + int(self._wall_s * 1e9))
        completion = await send(call, self._transport, clock=self._clock, events=self._events, history=self._history)
        usage = completion.usage
        if usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
            self.decoded_tokens = usage.completion_tokens
            outcome.first_prompt_tokens = usage.prompt_tokens
            outcome.last_context_tokens = usage.prompt_tokens + usage.completion_tokens
        if completion.error is None:
            outcome.answers, outcome.end = 1, End.ANSWERED
            return outcome
        self.first_error = completion.t_done, completion.error
        outcome.why = completion.error
        if completion.error.startswith(CUT_OFF):
            outcome.cut_requests, outcome.end = 1, End.OUT_OF_TIME
        else:
            outcome.failed_requests, outcome.end = 1, End.FAILED
        return outcome

    def flaw(self) -> str | None:
        """Why a run is not whole that had it; None when it was answered."""
        outcome = self.outcome
        why = f": {outcome.why}" if outcome.why else ""
        return None if outcome.end is End.ANSWERED else f"{self.name} {outcome.end.value}{why}"


class Batches:
    """The fixed workload; its `prepare` is a `squad.Prepare`."""

    def __init__(self, session: Session, scenario: Scenario) -> None:
        """`scenario` is resolved."""
        self._session = session
        self._scenario = scenario
        self._fixed = scenario.fixed or Fixed()

    async def prepare(self, stretch: Stretch, line: Line) -> Squad:
        """Make the requests of one segment."""
        fixed = self._fixed
        with ExitStack() as files:
            requests = [self._request(index, stretch, line, files) for index in range(stretch.at_once)]
            kept = files.pop_all()
        plan = (
            f"{stretch.segment}: {stretch.at_once} at once, prompts of about {fixed.prompt_tokens:,} tokens, "
            f"at most {fixed.output_tokens:,} tokens of output each"
        )
        return Squad(
            stretch,
            [Member(one, one.work, None, one.flaw) for one in requests],
            [plan],
            each_said=False,
            said_after=partial(self._summary, stretch, requests),
            doubts=partial(self._doubts, stretch, requests),
            files=kept,
        )

    def _request(self, index: int, stretch: Stretch, line: Line, files: ExitStack) -> OneRequest:
        scenario, session = self._scenario, self._session
        assert scenario.limits is not None
        name = f"r{index}"
        path = session.run.messages_path(stretch.prefix + name)
        path.parent.mkdir()
        history = EventLog(path, schemas.MESSAGES)
        files.callback(history.close)
        call = ChatCall(
            request=stretch.prefix + name,
            agent=name,
            turn=0,
            # A word longer than the one before it: a log that tells no more than tokens can still be joined.
            messages=texts.prompt(self._fixed.prompt_tokens + index, "fixed", scenario.seed, stretch.segment, index),
            max_tokens=self._fixed.output_tokens,
            seed=texts.seed(scenario.seed, stretch.segment, index),
            temperature=scenario.temperature,
            extra=stretch.request,
        )
        return OneRequest(
            name,
            call,
            scenario.limits.wall_s,
            transport=line,
            clock=session.clock,
            events=session.events,
            history=history,
        )

    def _summary(self, stretch: Stretch, requests: Sequence[OneRequest]) -> list[str]:
        answered = sum(one.outcome.answers for one in requests)
        tokens = sum(one.decoded_tokens or 0 for one in requests)
        return [f"{stretch.segment}: {answered} of {len(requests)} answered, {tokens:,} tokens of output"]

    def _doubts(self, stretch: Stretch, requests: Sequence[OneRequest]) -> list[Doubt]:
        """Say where answers ended early: the longer they are, the longer they share the server."""
        wanted = self._fixed.output_tokens
        told = [one.decoded_tokens for one in requests if one.outcome.answers and one.decoded_tokens is not None]
        short = [tokens for tokens in told if tokens < wanted]
        if not short:
            return []
        return [
            Doubt(
                "short-output",
                f"segment {stretch.segment}: {len(short)} of {len(requests)} answers ended before {wanted:,} tokens, "
                f"the first after {min(short):,}: fewer than {stretch.at_once} were open at once from there on",
                "where the server knows it, forbid the end: request = { ignore_eos = true }; or ask for fewer tokens",
            )
        ]
