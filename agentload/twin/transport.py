"""How does an agent in this process talk to the simulated server, in virtual time?

core.ports.Transport without a socket: what a client would see of the server's stream, stamped as it would arrive, with
the same errors. Between the two lies a way of 50 us each direction, as over a loopback device: so no client knows of a
thing at the very instant at which it happened, and the log's line of an answer's end is whole when the client has it.
"""

from bisect import bisect_right
from typing import Final

from agentload.core.records import CUT_OFF, TEXTLESS, ChatCall, Completion, Usage
from agentload.twin.events import Event, Finished, Rejected
from agentload.twin.face import Ask, Face, Reply, refusal, usage
from agentload.twin.lengths import Draws
from agentload.twin.virtual_clock import VirtualClock

WAY_NS: Final = 50_000
_SEEDS: Final = 1 << 53


class TwinTransport:
    """Chat requests of members of a virtual clock to one simulated server."""

    def __init__(self, face: Face, clock: VirtualClock, *, model: str, seed: int) -> None:
        """`seed` is the run's: each agent has one of its own from it, so that two of one task do not do the same."""
        self._face, self._clock, self._model, self._seed = face, clock, model, seed
        self._open: dict[str, Reply] = {}

    async def complete(self, call: ChatCall) -> Completion:
        """Send `call` once: see core.ports.Transport. Cancelling goes away from it."""
        gate = self._clock.gate()

        def tell(_reply: Reply, event: Event) -> None:
            if isinstance(event, Finished | Rejected):
                gate.open(event.at_ns + WAY_NS)

        sent_ns = self._clock.now_ns()
        ask = Ask(
            call.request,
            call.messages,
            Draws("agent", self._seed, call.agent).below(_SEEDS),
            call.tools,
            call.tool_choice,
            call.max_tokens,
            call.extra,
        )
        reply = self._open[call.request] = self._face.ask(ask, sent_ns + WAY_NS, tell)
        came = False
        try:
            came = await self._clock.wait_at(gate, call.until_ns)
        finally:
            del self._open[call.request]
            if not came:
                self._face.leave(call.request, self._clock.now_ns() + WAY_NS)
        return self._completion(call, reply, sent_ns, came=came)

    def decodes(self, request: str) -> bool:
        """Whether the answer to `request` is coming in; False when it is not open."""
        reply = self._open.get(request)
        return reply is not None and reply.role_ns is not None

    def tokens(self, request: str) -> int:
        """How many tokens of the answer to `request` have come; 0 when it is not open."""
        reply, last_ns = self._open.get(request), self._clock.now_ns() - WAY_NS
        return 0 if reply is None else bisect_right(reply.token_ns, last_ns)

    def _completion(self, call: ChatCall, reply: Reply, sent_ns: int, *, came: bool) -> Completion:
        done_ns = self._clock.now_ns()
        if came and reply.rejected is not None:
            status, why = _refused(reply.rejected, self._face.ctx)
            return Completion(call.request, call.agent, call.turn, sent_ns, done_ns, None, done_ns, status, error=why)
        last_ns = done_ns - WAY_NS  # what the server sent later has not come
        pieces = [piece for piece in reply.sent() if piece[0] <= last_ns]
        token_ns = tuple(at_ns + WAY_NS for at_ns, _, _ in pieces)
        headers_ns, role_ns = _come(reply.headers_ns, last_ns), _come(reply.role_ns, last_ns)
        finished = reply.finished if came else None
        whole = finished is not None and finished.error is None
        raw = usage(finished) if finished is not None and whole else None
        textless = not token_ns and raw is not None and finished is not None and finished.decoded_tokens == 1
        first_ns = done_ns if textless else token_ns[0] if token_ns else None
        error = None if finished is None or whole else f"server error: {finished.error}"
        if finished is None:
            error = f"{CUT_OFF}: its time was over after {len(pieces)} tokens of the answer"
        return Completion(
            request=call.request,
            agent=call.agent,
            turn=call.turn,
            t_sent=sent_ns,
            t_first_byte=headers_ns,
            t_first_token=first_ns,
            t_done=done_ns,
            status=None if headers_ns is None else 200,
            content="".join(text for _, kind, text in pieces if kind == "content"),
            reasoning="".join(text for _, kind, text in pieces if kind == "reasoning"),
            tool_calls=reply.tool_calls if came else (),
            finish=None if finished is None else finished.finish,
            usage=None if finished is None or raw is None else _counts(finished),
            server_id=None if role_ns is None else reply.id,
            model=None if role_ns is None else self._model,
            # The end and the usage come with the last byte.
            chunk_ns=(*(() if role_ns is None else (role_ns,)), *token_ns, *((done_ns, done_ns) if raw else ())),
            error=error,
            raw_usage=raw,
            token_ns=(done_ns,) if textless else token_ns,
            notes=(TEXTLESS,) if textless else (),
            comments=sum(at_ns <= last_ns for at_ns in reply.keepalive_ns),
        )


def _come(at_ns: int | None, last_ns: int) -> int | None:
    """When something came that the server sent at `at_ns`; None when it had not come at the end."""
    return None if at_ns is None or at_ns > last_ns else at_ns + WAY_NS


def _counts(finished: Finished) -> Usage:
    return Usage(finished.prompt_tokens, finished.decoded_tokens, finished.cached_tokens)


def _refused(rejected: Rejected, ctx: int) -> tuple[int, str]:
    """Return the HTTP status and the one line that agents.answer makes of such an answer."""
    status, error = refusal(rejected, ctx)
    what = f"HTTP {status}: {error['message']} ({error.get('code', error['type'])})"
    return status, f"context overflow: {what}" if status == 400 else what
