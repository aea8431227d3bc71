"""What does one cold prompt cost, thrown in while others write? The synthetic probe (report A, PROTOCOL section 2).

A segment for each load and repeat, with the decoders `d0 d1 ...` and the cold prompts `p0 p1 ...`. Before the first
begin marker the prompt's length is fitted to the server's own count; where prompts come after a context, requests of
`h0 h1 ...` leave it in the server's cache before each segment. Who does what when is in `probe_workers`.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import anyio

from agentload.artifacts import schemas
from agentload.artifacts.rundir import EventLog
from agentload.core.probe import WITHIN_TOKENS
from agentload.core.records import ChatCall, Doubt
from agentload.errors import EndpointError, UsageError
from agentload.run import probe_text, texts
from agentload.run.parts import Stretch
from agentload.run.probe_sizing import CLOSE_TOKENS, Fit, Sizer
from agentload.run.probe_text import Messages, Source
from agentload.run.probe_workers import ColdPrompt, Decoder, Stage, Wire
from agentload.run.scenario import Scenario
from agentload.run.serving import Served, Session
from agentload.run.squad import Member, Squad
from agentload.run.workloads import EMBEDDED_PROMPT, LEAST_PROMPT, Probe
from agentload.run.world import Line, World

PROMPT_OUTPUT: Final = 1  # tokens of a cold prompt's answer: its prefill is the question
_APART_TOKENS: Final = WITHIN_TOKENS - CLOSE_TOKENS + 1  # all are as long as asked for, within what a prompt may be off
_RESERVE_OUTPUT: Final = 64  # of what keeps a slot for a decoder: so long that it is open when the last one arrives
_MARGIN_TOKENS: Final = 32  # of the server's context, for the answer and for first lines that are a little longer
_CONTEXT_PART: Final = 100  # a context may be so long but for one part of so many: each try of it is expensive
_CONTEXT_FIELDS: Final = ("n_ctx", "max_model_len", "context_length")  # of a request, as servers' APIs call it
# llama.cpp keeps what a slot had in common with a prompt, were it only the template's first words.
_NO_CACHE: Final[dict[str, dict[str, Any]]] = {"llamacpp": {"cache_prompt": False}}


class Probes:
    """The probe; its `prepare` is a `squad.Prepare`."""

    def __init__(self, world: World, session: Session, scenario: Scenario, source: Source) -> None:
        """`scenario` is resolved; `source` is what prompts are made of."""
        assert scenario.limits is not None
        self._world, self._session, self._scenario, self._source = world, session, scenario, source
        self._probe = scenario.probe or Probe()
        self._wall_s = scenario.limits.wall_s
        # Of this run alone: a server that runs on has the prompts of the one before in its cache.
        self._name = (scenario.seed, session.clock.now_ns())
        self._fit: Fit | None = None
        self._context: Fit | None = None
        self._no_cache: dict[str, Any] = {}
        self._said: dict[str, str] = {}  # of a primer's name: what the assistant answered
        self._doubts: list[Doubt] = []

    async def prepare(self, stretch: Stretch, line: Line) -> Squad:
        """Make the sessions and the cold prompts of one segment."""
        load, probe = stretch.load, self._probe
        assert load is not None
        stage = Stage(stretch.segment, load, probe.settle_tokens, probe.turn_tokens, say=self._session.say)
        with ExitStack() as files:
            stage.decoders = [
                Decoder(name, self._wire(name, stretch, line, files), stage, partial(self._writing, stretch, name),
                        1 if probe.at_context else 0)
                for name in (f"d{index}" for index in range(load.decoders))
            ]  # fmt: skip
            stage.prompts = [
                ColdPrompt(name, self._wire(name, stretch, line, files), stage, partial(self._cold, stretch, index))
                for index, name in enumerate(f"p{index}" for index in range(load.prompts))
            ]
            kept = files.pop_all()
        decoders = [Member(one, one.work, None, one.flaw) for one in stage.decoders]
        prompts = [Member(one, one.work, None, one.flaw) for one in stage.prompts]
        return Squad(
            stretch,
            [*decoders, *prompts],
            (),
            before=partial(self._make_ready, stretch, line),
            each_said=False,
            said_after=partial(self._summary, stage),
            doubts=partial(self._doubts_of, stage),
            files=kept,
        )

    # ---- what is sent ----------------------------------------------------------------------------------------------

    def _wire(self, name: str, stretch: Stretch, line: Line, files: ExitStack) -> Wire:
        session = self._session
        path = session.run.messages_path(stretch.prefix + name)
        path.parent.mkdir()
        history = EventLog(path, schemas.MESSAGES)
        files.callback(history.close)
        return Wire(line, session.clock, session.events, history, self._wall_s)

    def _call(
        self, stretch: Stretch, agent: str, turn: int, messages: Messages, max_tokens: int, until_ns: int
    ) -> ChatCall:
        scenario = self._scenario
        return ChatCall(
            request=f"{stretch.prefix}{agent}-t{turn}",
            agent=agent,
            turn=turn,
            messages=messages,
            max_tokens=max_tokens,
            seed=texts.seed(scenario.seed, stretch.segment, agent, turn),
            temperature=scenario.temperature,
            extra=stretch.request,
            until_ns=until_ns,
        )

    def _writing(self, stretch: Stretch, name: str, turn: int, until_ns: int) -> ChatCall:
        return self._call(stretch, name, turn, self._asked_of(stretch, name, turn), self._probe.turn_tokens, until_ns)

    def _asked_of(self, stretch: Stretch, name: str, turn: int) -> Messages:
        conversation = turn // probe_text.MOST_TURNS
        return probe_text.writing(self._first_line(stretch.segment, name, conversation), turn, int(name[1:]))

    def _cold(self, stretch: Stretch, index: int, until_ns: int) -> ChatCall:
        assert self._fit is not None
        text, primer = self._fit.text + _apart(index), f"h{index}"
        if self._context is None:
            messages = probe_text.cold(self._first_line(stretch.segment, f"p{index}"), text)
        else:
            said = self._said.get(stretch.prefix + primer, "")
            messages = probe_text.behind(self._left_by(stretch, primer), said, text)
        call = self._call(stretch, f"p{index}", 0, messages, PROMPT_OUTPUT, until_ns)
        return call if self._context is not None else replace(call, extra={**self._no_cache, **call.extra})

    def _left_by(self, stretch: Stretch, primer: str) -> Messages:
        assert self._context is not None
        text = self._context.text + _apart(int(primer[1:]))
        return probe_text.context(self._first_line(stretch.segment, primer), text)

    def _first_line(self, *name: str | int) -> str:
        return probe_text.first_line(*self._name, *name)

    # ---- before a begin marker -------------------------------------------------------------------------------------

    async def _make_ready(self, stretch: Stretch, line: Line, served: Served) -> None:
        if self._fit is None:
            await self._size(line, served)
        if self._context is not None:
            await self._prime(stretch, line)

    async def _size(self, line: Line, served: Served) -> None:
        """Fit the prompt's length, and that of the context before it, to the server's count."""
        probe, session, scenario = self._probe, self._session, self._scenario
        software = served.facts.software if served.facts is not None else scenario.server.software
        self._no_cache = _NO_CACHE.get(software or "", {})
        context, tokens, why = self._room(served)
        if why is not None:
            self._doubt(
                Doubt("probe-capped", why, "the speed of a shorter prompt is another one: compare like with like")
            )
        sizer = Sizer(
            line,
            session.clock,
            session.events,
            wall_s=self._wall_s,
            temperature=scenario.temperature,
            extra=dict(scenario.request),
        )
        session.say(f"finding the text of {tokens:,} tokens by the server's own count")
        source = self._source
        first = self._first_line("size")
        async with self._world.turn(0):
            if not probe.at_context:
                self._fit = await sizer.fit("prompt", source, tokens, partial(probe_text.cold, first))
            else:
                make = partial(probe_text.context, first)
                close = max(CLOSE_TOKENS, probe.at_context // _CONTEXT_PART)
                self._context = await sizer.fit("context", source, probe.at_context, make, close=close)
                short = probe_text.context(self._first_line("size", "short"), "")
                before = await sizer.count("before", short) or 0
                make = partial(probe_text.behind, short, probe_text.NOTHING_SAID)
                behind = len(self._context.text)
                self._fit = await sizer.fit("prompt", source, tokens, make, before=before, start=behind)
        self._tell(context, tokens, why, sizer.tries)

    def _tell(self, context: int | None, tokens: int, why: str | None, tries: int) -> None:
        assert self._fit is not None
        session, fit, before = self._session, self._fit, self._context
        session.events.emit(
            "probe_sized",
            session.clock.now_ns(),
            asked_tokens=self._probe.prompt_tokens,
            tokens=tokens,
            counted_tokens=fit.counted,
            at_context_tokens=self._probe.at_context,
            at_context_counted=None if before is None else before.counted,
            tries=tries,
            text_bytes=len(fit.text.encode()),
            words=fit.words,
            context_tokens=context,
            why_capped=why,
        )
        counted = "does not say how many it counted" if fit.counted is None else f"counted {fit.counted:,}"
        session.say(f"a prompt of {tokens:,} new tokens: the server {counted}, after {tries} tries")
        for one in (fit, before):
            if one is not None and not one.as_wanted:
                self._doubt(_inexact(one))

    def _room(self, served: Served) -> tuple[int | None, int, str | None]:
        """Return the server's context where it is known, the tokens of the prompt, and why they are fewer than asked.

        Raises:
            UsageError: there is no room for a prompt.
        """
        probe, server = self._probe, self._scenario.server
        context = _context_of(served)
        room = None if context is None else context - _MARGIN_TOKENS - probe.at_context
        if server.kind == "embedded":
            room = min(EMBEDDED_PROMPT, probe.prompt_tokens if room is None else room)
        if room is None or probe.prompt_tokens <= room:
            return context, probe.prompt_tokens, None
        if room < LEAST_PROMPT:
            raise UsageError(
                f"probe.at_context: expected room for a prompt behind it in the server's {context:,} tokens of "
                f"context, got {probe.at_context:,}"
            )
        behind = f" behind {probe.at_context:,}" if probe.at_context else ""
        of = "" if context is None else f" with {context:,} tokens of context"
        asked = f"not the {probe.prompt_tokens:,} asked for"
        return context, room, f"the cold prompt is capped at {room:,} tokens{behind}, {asked}: this is a server{of}"

    async def _prime(self, stretch: Stretch, line: Line) -> None:
        """Leave a context in the cache for each cold prompt, and keep a slot for each decoder.

        All together: a server with slots may give an idle one to whoever has a word in common with what it holds (ds4),
        and a template's first word is one.

        Raises:
            EndpointError: a request failed.
        """
        load = stretch.load
        assert load is not None
        names = [*(f"h{index}" for index in range(load.prompts)), *(f"d{index}" for index in range(load.decoders))]
        self._session.say(f"{stretch.segment}: {self._probe.at_context:,} tokens of context come first")
        failed: list[str] = []

        async def one(index: int, name: str) -> None:
            messages = self._left_by(stretch, name) if name.startswith("h") else self._asked_of(stretch, name, 0)
            output = PROMPT_OUTPUT if name.startswith("h") else min(_RESERVE_OUTPUT, self._probe.turn_tokens)
            async with self._world.turn(index, len(names)):
                until_ns = self._session.clock.now_ns() + int(self._wall_s * 1e9)
                answer = await line.complete(self._call(stretch, name, 0, messages, output, until_ns))
                self._session.events.emit(
                    "probe_primed",
                    answer.t_done,
                    segment=stretch.segment,
                    request=answer.request,
                    agent=name,
                    t_sent=answer.t_sent,
                    usage=None if answer.usage is None else asdict(answer.usage),
                    error=answer.error,
                )
            if answer.error is not None:
                failed.append(answer.error)
            self._said[stretch.prefix + name] = answer.content

        async with anyio.create_task_group() as group:
            for index, name in enumerate(names):
                group.start_soon(one, index, name)
        if failed:
            raise EndpointError(f"probe: segment {stretch.segment} could not be made ready: {failed[0]}")

    # ---- what is said ----------------------------------------------------------------------------------------------

    def _doubt(self, doubt: Doubt) -> None:
        self._doubts.append(doubt)

    def _summary(self, stage: Stage) -> Sequence[str]:
        answered = sum(one.outcome.answers for one in stage.prompts)
        turns = sum(one.outcome.answers for one in stage.decoders)
        beside = f", {turns} turns of {len(stage.decoders)} decoders" if stage.decoders else ", no load"
        prompts = f"{answered} of {len(stage.prompts)} cold prompts answered"
        return [f"{stage.segment}: {prompts}{beside}"]

    def _doubts_of(self, stage: Stage) -> Sequence[Doubt]:
        found, self._doubts = list(self._doubts), []
        short = [one.short for one in stage.decoders if one.short is not None]
        if short:
            wanted = stage.turn_tokens
            found.append(
                Doubt(
                    "short-output",
                    f"segment {stage.segment}: {len(short)} of {len(stage.decoders)} decoders had an answer that "
                    f"ended before {wanted:,} tokens, after {min(short):,}: nothing was written until their next turn",
                    "the server does not know ignore_eos, or the request forbids it: ask for fewer decode_tokens",
                )
            )
        return found


def _apart(index: int) -> str:
    """Make one of several prompts a little longer, so that a log which tells tokens alone can still be joined."""
    return probe_text.words(index % _APART_TOKENS)


def _inexact(fit: Fit) -> Doubt:
    if fit.counted is None:
        return Doubt(
            "probe-length",
            f"the server tells no usage: the text of {fit.tokens:,} tokens is guessed by its length",
            "a speed for each token is then a guess too: have the server report usage in its stream",
        )
    return Doubt(
        "probe-length",
        f"{fit.tokens:,} tokens were asked for, and the server counts {fit.counted:,} after {fit.tries} tries",
        "the speed is that of the counted tokens",
    )


def _context_of(served: Served) -> int | None:
    """Return how many tokens one request may fill, where the server says so."""
    if served.simulated is not None:
        return int(served.simulated["options"]["ctx"])
    if served.facts is None:
        return None
    found = [
        value
        for fields in served.facts.api.values()
        for field, value in fields.items()
        if field.rpartition(".")[2] in _CONTEXT_FIELDS and isinstance(value, int) and value > 0
    ]
    return min(found, default=None)
