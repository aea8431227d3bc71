"""What do the requests that have ended amount to so far, for the eyes of somebody who waits?

By the client's clock and the answers' usage: a sight, no result. What counts is read from the server's log afterwards.
"""

from agentload.core.first_tokens import tokens_of_first_piece
from agentload.core.intervals import Intervals
from agentload.core.ports import Clock
from agentload.core.records import ChatCall, Completion
from agentload.run.world import Line


class SoFar:
    """Sums over completions, made anew only when one was added."""

    def __init__(self) -> None:
        self.answered = 0
        self.failed = 0
        self.new_prefill_tokens: int | None = None
        self._tokens = 0  # decoded in the windows below
        self._until_first: list[tuple[int, int]] = []
        self._decoding: list[tuple[int, int]] = []
        self._summed = 0  # windows that the two below are of
        self._overlap: float | None = None
        self._decode_tok_s: float | None = None

    def take(self, done: Completion) -> None:
        """Add one request that has ended."""
        if done.error is not None:
            self.failed += 1
        else:
            self.answered += 1
        usage = done.usage
        if usage is not None and usage.prompt_tokens is not None and usage.cached_tokens is not None:
            self.new_prefill_tokens = (self.new_prefill_tokens or 0) + usage.prompt_tokens - usage.cached_tokens
        if done.t_first_token is None:
            return
        self._until_first.append((done.t_sent, done.t_first_token))
        if usage is not None and usage.completion_tokens is not None:
            first = tokens_of_first_piece(done.token_ns, usage.completion_tokens)
            self._tokens += max(usage.completion_tokens - first, 0)
            self._decoding.append((done.t_first_token, done.t_done))

    @property
    def overlap(self) -> float | None:
        """Part of the time in which some request waits for its first token in which another one decodes."""
        self._sum()
        return self._overlap

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens that came after each answer's first one / time in which any request decodes."""
        self._sum()
        return self._decode_tok_s

    def _sum(self) -> None:
        if len(self._until_first) == self._summed:
            return
        self._summed = len(self._until_first)
        waiting, decoding = Intervals.of(self._until_first), Intervals.of(self._decoding)
        waited_ns, decoded_ns = waiting.measure_ns(), decoding.measure_ns()
        self._overlap = waiting.intersection(decoding).summed_ns() / waited_ns if waited_ns else None
        self._decode_tok_s = self._tokens * 1e9 / decoded_ns if decoded_ns else None


class Watched:
    """A way to the server that notes which requests are open, and what has ended; a `world.Line`."""

    def __init__(self, line: Line, clock: Clock, so_far: SoFar) -> None:
        self._line = line
        self._clock = clock
        self._so_far = so_far
        self.open: dict[str, int] = {}  # request -> when it was sent (ns), in that order

    async def complete(self, call: ChatCall) -> Completion:
        """See core.ports.Transport."""
        self.open[call.request] = self._clock.now_ns()
        try:
            done = await self._line.complete(call)
        finally:
            del self.open[call.request]
        self._so_far.take(done)
        return done

    def decodes(self, request: str) -> bool:
        """See `world.Line`."""
        return self._line.decodes(request)

    def tokens(self, request: str) -> int:
        """See `world.Line`."""
        return self._line.tokens(request)

    def prefilling(self, log_open: int | None) -> frozenset[str] | None:
        """Which of the open requests without a token the server is at, where its log shows so many that have not ended.

        Those that came first, as many as the log has beyond those that decode: the log names none of ours while it is
        open. None: no log tells.
        """
        if log_open is None:
            return None
        waiting = [name for name in self.open if not self._line.decodes(name)]
        begun = max(0, log_open - (len(self.open) - len(waiting)))
        return frozenset(waiting[:begun])
