"""What does a server do that answers a probe, one way or another, whose every token is a word?

A `ScriptedServer`: a session that writes gets a word every 4 ms, a cold prompt its one word after 20 ms. Usage counts
the words of the prompt, so that a test can count them too.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.agents.scripted_server import (
    CLOSE,
    DONE,
    RESET,
    STREAM_HEAD,
    ScriptedServer,
    Seen,
    Step,
    chunked,
    delta,
    event,
)

FRAME = 7  # tokens of the template
WORD_S = 0.004
PREFILL_S = 0.02


def words(messages: Sequence[dict[str, Any]]) -> int:
    """The prompt's tokens, as this server counts them."""
    return FRAME + sum(len(str(one["content"]).split()) for one in messages)


def writes(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether this is a session that writes: only those are asked for a handbook."""
    return "handbook" in str(messages[1]["content"])


@dataclass
class ProbeServer:
    """Use as an async context manager."""

    torn: Callable[[int], bool] = lambda _: False  # whether the request of a session that writes, by number, is torn
    most: int = 10**9  # words after which the model ends, whatever it was asked
    deaf: bool = False  # whatever asks for one token is torn
    usage: bool = True
    waits: bool = False  # a cold prompt, beside one who writes, is answered when a request has been torn
    lump: bool = False  # all words of an answer come at once, at its end
    slots: int = 10**9  # sessions that write at one time; further ones wait for one that ends
    textless: bool = False  # the word of a cold prompt is one without letters, as a mark of the end is
    props: dict[str, Any] | None = None  # what GET /props says
    models: dict[str, Any] = field(default_factory=lambda: {"id": "words", "object": "model"})
    requests: list[dict[str, Any]] = field(default_factory=list)
    _writers: int = 0
    _torn: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> "ProbeServer":
        self._free = asyncio.Semaphore(self.slots)
        self.server = ScriptedServer(play=self._play)
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.__aexit__(None, None, None)

    @property
    def url(self) -> str:
        return self.server.url

    def _play(self, seen: Seen) -> Sequence[Step]:
        if not seen.line.startswith("POST "):
            body = json.dumps({"object": "list", "data": [self.models]}).encode()
            if self.props is not None and seen.line.startswith("GET /props "):
                body = json.dumps(self.props).encode()
            elif not seen.line.startswith("GET /v1/models "):
                return (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", CLOSE)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            return (head + body, CLOSE)
        request = seen.json()
        self.requests.append(request)
        messages = request["messages"]
        if self.deaf and request["max_tokens"] == 1:
            return (RESET,)
        if not writes(messages):
            first = (self._torn,) if self.waits and self._writers else ()
            return (*first, *self._answer(words(messages), 1, PREFILL_S))
        number, self._writers = self._writers, self._writers + 1
        if self.torn(number):
            self._torn.set()
            return (RESET,)
        return self._in_a_slot(self._answer(words(messages), min(self.most, request["max_tokens"]), 0.001, b""))

    def _in_a_slot(self, steps: Sequence[Step]) -> Sequence[Step]:
        async def enter() -> bytes:
            await self._free.acquire()
            return STREAM_HEAD

        async def leave() -> bytes:
            self._free.release()
            return b""

        return (enter, *steps[:-2], leave, *steps[-2:])

    def _answer(self, prompt: int, output: int, first_s: float, head: bytes = STREAM_HEAD) -> Sequence[Step]:
        async def after(seconds: float, piece: bytes) -> bytes:
            await asyncio.sleep(seconds)
            return piece

        word = "" if self.textless and output == 1 else " word"
        said = [chunked(delta(content=word), end=False) for _ in range(output)]
        steps: list[Step] = [partial(after, first_s, head + chunked(delta(role="assistant"), end=False))]
        if self.lump:
            steps.append(partial(after, WORD_S, b"".join(said)))
        else:
            steps += [partial(after, WORD_S, piece) for piece in said]
        counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        usage = [event(id="chatcmpl-1", choices=[], usage=counts)] if self.usage else []
        return (*steps, chunked(delta(finish="length"), *usage, DONE), CLOSE)
