"""How much text is a prompt of so many tokens, by the server's own count?

Found by tries before the first begin marker: a short one tells how long this server's tokens are, a long one where its
count comes out, and the rest is made up with words that are a token each. All tries begin alike, so that a cache makes
the later ones cheap where a server has one for beginnings.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from agentload.core.ports import Clock, EventSink, Transport
from agentload.core.probe import WITHIN_TOKENS
from agentload.core.records import ChatCall, Completion
from agentload.errors import EndpointError
from agentload.run import probe_text
from agentload.run.probe_text import Messages, Source

SIZER: Final = "size"  # who sends the tries
CLOSE_TOKENS: Final = 2  # a count so near is not bettered: first lines differ by as much
_TRIES: Final = 8
_SAMPLES: Final = 16  # places that the text of the first try comes from, which tells how long tokens are
_SAMPLE_CHARS: Final = 600  # of each place: about 2,700 tokens of all
_USUAL_CHARS: Final = 3.6  # a token of source code has about so many, where no server tells
_AIM: Final = 0.965  # of the wanted tokens are text, since a little too much could not be made up
_MOST_WORDS: Final = 0.07  # of the wanted tokens, or a few lines' worth
_LINES_TOKENS: Final = 96


@dataclass(frozen=True, slots=True)
class Fit:
    """A text of the wanted length."""

    text: str
    tokens: int  # wanted
    counted: int | None  # by the server; None: it tells no usage
    tries: int
    words: int  # of the text, made up
    close: int  # so far the count may be off for no further try

    @property
    def as_wanted(self) -> bool:
        """Whether the server counted about what was wanted."""
        return self.counted is not None and abs(self.counted - self.tokens) <= max(WITHIN_TOKENS, self.close)


class Sizer:
    """The tries of one run."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        events: EventSink,
        *,
        wall_s: float,
        temperature: float | None,
        extra: dict[str, Any],
    ) -> None:
        """`extra` holds further parameters of each request, each of which may take `wall_s`."""
        self._transport, self._clock, self._events = transport, clock, events
        self._wall_s, self._temperature, self._extra = wall_s, temperature, extra
        self.tries = 0

    async def count(self, what: str, messages: Messages) -> int | None:
        """Return how many tokens the server counts; None when it does not tell.

        Raises:
            EndpointError: the request failed.
        """
        answer = await self._try(what, messages)
        if answer.error is not None:
            raise EndpointError(f"probe: the length of a prompt could not be tried ({what}): {answer.error}")
        return None if answer.usage is None else answer.usage.prompt_tokens

    async def _try(self, what: str, messages: Messages) -> Completion:
        request = f"{SIZER}-{self.tries}"
        self.tries += 1
        answer = await self._transport.complete(
            ChatCall(
                request=request,
                agent=SIZER,
                turn=0,
                messages=messages,
                max_tokens=1,
                temperature=self._temperature,
                extra=self._extra,
                until_ns=self._clock.now_ns() + int(self._wall_s * 1e9),
            )
        )
        self._events.emit(
            "probe_try",
            answer.t_done,
            request=request,
            what=what,
            text_bytes=sum(len(str(one["content"]).encode("utf-8", "surrogatepass")) for one in messages),
            t_sent=answer.t_sent,
            t_first_token=answer.t_first_token,
            usage=None if answer.usage is None else asdict(answer.usage),
            error=answer.error,
        )
        return answer

    async def fit(
        self,
        what: str,
        source: Source,
        tokens: int,
        made: Callable[[str], Messages],
        *,
        before: int = 0,
        start: int = 0,
        close: int = CLOSE_TOKENS,
    ) -> Fit:
        """Find the text with which `made` gives a prompt of `tokens`, beside the `before` that it has without it.

        Args:
            what: of the try, as events name it.
            source: where text comes from, from `start` characters on.
            tokens: wanted.
            made: makes the messages of a text.
            before: tokens of the prompt that do not count.
            start: of the source.
            close: so far the count may be off.

        Raises:
            EndpointError: a try failed.
        """
        first = self.tries
        whole = int(tokens * _USUAL_CHARS)
        each = min(_SAMPLE_CHARS, whole // (2 * _SAMPLES))
        short = "".join(source.cut(each, start + number * whole // _SAMPLES) for number in range(_SAMPLES))
        of_short = await self._new(what, made(short), before)
        if of_short is None:
            text = source.cut(whole, start)
            return Fit(text, tokens, None, self.tries - first, 0, close)
        chars_each = len(short) / max(1, of_short)
        slack = max(_LINES_TOKENS, int(tokens * _MOST_WORDS))  # a little too little can be made up, too much cannot
        aim = tokens if close > slack // 2 else max(1, min(int(tokens * _AIM), tokens - _LINES_TOKENS // 4))
        text, words, counted = short, 0, of_short

        def missed() -> bool:
            return abs(tokens - counted) > close and self.tries - first < _TRIES

        while missed() and not 0 <= tokens - counted <= slack:
            text = source.cut(int(len(text) + (aim - counted) * chars_each), start)
            counted = await self._new(what, made(text), before) or 0
            if len(text) != len(short) and counted > of_short:
                chars_each = max(0.1, (len(text) - len(short)) / (counted - of_short))
                aim = max(1, tokens - _LINES_TOKENS // 2)  # the next one can come nearer
        while missed():
            words = max(0, words + tokens - counted)
            counted = await self._new(what, made(text + probe_text.words(words)), before) or 0
        return Fit(text + probe_text.words(words), tokens, counted, self.tries - first, words, close)

    async def _new(self, what: str, messages: Messages, before: int) -> int | None:
        counted = await self.count(what, messages)
        return None if counted is None else counted - before
