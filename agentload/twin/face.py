"""What does the simulated server's API make of a chat request, and what goes back to the client, when?

The one place where a request in the chat API's terms becomes a job of the scheduler (rendered prompt, scripted answer,
the server's own ids), and where the scheduler's events become an answer again: headers at the first progress of its
prefill, a role when the prompt is done, one piece a token, the end with its usage. A transport in this process and an
HTTP server both stand on it; neither time nor sockets are its business.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from agentload.core.records import ToolCall
from agentload.twin.events import Event, Finished, PrefillDone, Progress, Rejected, TokenOut
from agentload.twin.lengths import DEFAULT, FIELD_REPORT, Draws, Quantiles, Settings
from agentload.twin.rendering import Renderer
from agentload.twin.scripted import ScriptedAnswer, answer, deltas
from agentload.twin.server import Server
from agentload.twin.slots import Job

# The models it serves, by name.
# "scripted-long" works on twice as long as the published agents did: all of them come beyond 100,000 tokens of context.
_LONG: Final = replace(FIELD_REPORT, lengths=replace(FIELD_REPORT.lengths, calls=Quantiles(((0, 40), (1, 50)))))
MODELS: Final[Mapping[str, Settings]] = {
    "scripted": DEFAULT,
    "scripted-field-report": FIELD_REPORT,
    "scripted-long": _LONG,
}

_KEEPALIVE_NS: Final = 5_000_000_000
_FINISHES: Final[Mapping[str, Literal["stop", "length", "tool_calls"]]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
}
_CALL: Final = frozenset(("name", "arguments"))


def notice(profile: str, seed: int) -> bytes:
    """The first line of a simulated server's log: a log outlives its run's manifest."""
    return f"ds4: simulated by agentload: profile {profile}, seed {seed}; no machine is measured\n".encode()


@dataclass(frozen=True, slots=True)
class Ask:
    """A chat request, as far as the server reads it."""

    request: str  # what the ground truth calls it; no client and no log sees it
    messages: Sequence[Mapping[str, Any]]
    seed: int  # of the scripted model: the same in all requests of a conversation
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None
    # Further ones: thinking, ignore_eos, parallel_tool_calls; others mean nothing.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Reply:
    """What has come back so far. Times are the server's, ns; None: not yet."""

    request: str
    id: str
    said: ScriptedAnswer  # what the model will have said, if nothing cuts it off
    parts: tuple[tuple[str, str], ...]  # (kind, text) of each token; kind "mark": nothing is sent for it
    tell: Callable[["Reply", Event], None]  # is told of each event of it, after it has been taken in
    headers_ns: int | None = None
    keepalive_ns: list[int] = field(default_factory=list)
    role_ns: int | None = None
    token_ns: list[int] = field(default_factory=list)
    finished: Finished | None = None
    rejected: Rejected | None = None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, once they are whole and the answer has ended with them."""
        return self.said.tool_calls if self.finished is not None and self.finished.finish == "tool_calls" else ()

    def sent(self) -> list[tuple[int, str, str]]:
        """Return (time, kind, text) of each piece sent so far: of a call that was cut off, nothing."""
        whole = self.finished is None or self.finished.finish == "tool_calls"
        return [
            (at_ns, kind, text)
            for at_ns, (kind, text) in zip(self.token_ns, self.parts, strict=False)
            if kind != "mark" and (whole or kind not in _CALL)
        ]


class Face:
    """One server with its model behind an API. A `virtual_clock.Source`."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        *,
        seed: int,
        boot: int = 0,
        out: Callable[[Sequence[Event]], None],
    ) -> None:
        """`seed` and `boot` decide the ids that the server gives; `out` takes all that comes out, log and truth too."""
        self._server, self._settings, self._out = server, settings, out
        self._name = (seed, boot)
        self._renderer = Renderer()
        self._open: dict[str, Reply] = {}

    @property
    def ctx(self) -> int:
        """Tokens of context that a request may fill."""
        return self._server.options.ctx

    def ask(self, ask: Ask, at_ns: int, tell: Callable[[Reply, Event], None] = lambda _reply, _event: None) -> Reply:
        """Let a request arrive at `at_ns`, now or later; return where its answer will stand."""
        reply, job = self.prepare(ask, tell)
        self.submit(reply, job, at_ns)
        return reply

    def prepare(self, ask: Ask, tell: Callable[[Reply, Event], None]) -> tuple[Reply, Job]:
        """Render a request and script its answer: 5 to 150 ms, in any thread; nothing has arrived yet."""
        thinking = thinks(ask.fields)
        prompt = self._renderer.render(ask.messages, ask.tools, thinking=thinking, tool_choice=ask.tool_choice)
        room = max(1, self.ctx - prompt.tokens)
        said = answer(
            ask.messages,
            ask.tools,
            ask.seed,
            self._settings,
            max_tokens=room if ask.max_tokens is None else min(room, ask.max_tokens),
            tool_choice=ask.tool_choice,
            thinking=prompt.thinking,
            ignore_eos=ask.max_tokens is not None and ask.fields.get("ignore_eos") is True,
            parallel=ask.fields.get("parallel_tool_calls") is True,
        ).named(lambda place: f"call_{_id('call', *self._name, ask.request + (f' {place}' if place else ''))}")
        calls = tuple((call.id, call.name) for call in said.tool_calls)
        reply = Reply(ask.request, answer_id(*self._name, ask.request), said, tuple(_parts(said)), tell)
        job = Job(
            ask.request,
            prompt.runs(),
            said.output_tokens,
            output=said.ids,
            reasoning_tokens=said.reasoning_tokens,
            finish=_FINISHES[said.finish],
            tool_calls=calls,
            tools=bool(ask.tools),
            anchor_tokens=prompt.anchor_tokens,
        )
        return reply, job

    def submit(self, reply: Reply, job: Job, at_ns: int) -> None:
        """Let what was prepared arrive."""
        self._open[reply.request] = reply
        self._server.submit(job, at_ns)

    def leave(self, request: str, at_ns: int) -> None:
        """Let the client of a request go away."""
        self._server.cancel(request, at_ns)

    def shutdown(self, at_ns: int) -> None:
        """Send the signal to stop."""
        self._server.shutdown(at_ns)

    def next_ns(self) -> int | None:
        """When something happens next."""
        return self._server.next_ns()

    def advance(self, to_ns: int) -> None:
        """Let it happen."""
        events = self._server.advance(to_ns)
        if events:
            self._out(events)
            for event in events:
                self._take(event)

    def _take(self, event: Event) -> None:
        if not isinstance(event, Progress | PrefillDone | TokenOut | Finished | Rejected):
            return
        reply = self._open.get(event.request)
        if reply is None:
            return
        if isinstance(event, TokenOut):
            reply.token_ns.append(event.at_ns)
        elif isinstance(event, Progress):
            _progress(reply, event.at_ns)
        elif isinstance(event, PrefillDone):
            reply.headers_ns = reply.headers_ns or event.at_ns
            reply.role_ns = event.at_ns
        else:
            del self._open[event.request]
            if isinstance(event, Rejected):
                reply.rejected = event
            else:
                reply.finished = event
                for call, ids in zip(reply.tool_calls, reply.said.call_ids, strict=False):
                    self._renderer.remember(call.id, ids)
        reply.tell(reply, event)


def answer_id(seed: int, boot: int, request: str) -> str:
    """Return the id of the answer to a request: `seed` and `boot` as the face has them."""
    return f"chatcmpl-{_id('answer', seed, boot, request)[:24]}"


def _id(what: str, seed: int, boot: int, request: str) -> str:
    return Draws(what, seed, boot, request).bytes(16).hex()


def _progress(reply: Reply, at_ns: int) -> None:
    if reply.headers_ns is None:
        reply.headers_ns = at_ns
    elif at_ns - (reply.keepalive_ns[-1] if reply.keepalive_ns else reply.headers_ns) >= _KEEPALIVE_NS:
        reply.keepalive_ns.append(at_ns)


def _parts(said: ScriptedAnswer) -> Iterable[tuple[str, str]]:
    """One (kind, text) a token; a function's name is sent whole, with its last token."""
    parts = deltas(said)
    name: list[str] = []
    for at, (kind, text) in enumerate(parts):
        if kind != "name":
            yield kind, text
            continue
        name.append(text)
        if at + 1 < len(parts) and parts[at + 1][0] == "name":
            yield "mark", ""
        else:
            yield kind, "".join(name)


def thinks(fields: Mapping[str, Any]) -> bool:
    """Whether a request wants thinking: it is on unless one of three fields turns it off."""
    thinking = fields.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, Mapping) else None
    off = thinking is False or kind == "disabled" or fields.get("think") is False
    return not off and fields.get("reasoning_effort") != "none"


def usage(finished: Finished) -> dict[str, Any]:
    """Return the usage block of an answer."""
    return {
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.decoded_tokens,
        "total_tokens": finished.prompt_tokens + finished.decoded_tokens,
        "prompt_tokens_details": {
            "cached_tokens": finished.cached_tokens,
            "cache_write_tokens": finished.new_prefill_tokens,
        },
    }


def refusal(rejected: Rejected, ctx: int) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status of a refused request, and the error object of its body."""
    if rejected.reason == "shutting_down":
        return 503, {"message": "server is shutting down", "type": "server_error"}
    prompt = rejected.prompt_tokens
    return 400, {
        "message": f"Prompt has {prompt} tokens, but the configured context size is {ctx} tokens",
        "type": "invalid_request_error",
        "param": "messages",
        "code": rejected.reason,
        "n_prompt_tokens": prompt,
        "n_ctx": ctx,
    }
