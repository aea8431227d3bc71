"""A chat server over real sockets whose habits the test decides: its usage, its stream, what it heeds."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.agents.scripted_server import CLOSE, DONE, STREAM_HEAD, ScriptedServer, Seen, Step, chunked, delta, event

TOKEN_S = 0.01
OWN_LENGTH = 5  # of an answer to a short question, when nothing forbids its end
PATH = "README.md"


def reply(status: str, body: bytes, kind: str = "application/json") -> Sequence[Step]:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head.encode() + body, CLOSE)


@dataclass
class ChatServer:
    """Use with `serving`; `requests` holds the bodies of chat requests."""

    usage: bool = True
    cached: bool = True  # whether usage has the cached count
    buffers: bool = False  # sends all at once when all is made
    heeds_ignore_eos: bool = True
    tool_calls: bool = True
    owned_by: str = "vllm"
    busy: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)  # conversation -> its tokens

    def play(self, seen: Seen) -> Sequence[Step]:
        path = seen.line.split(" ")[1]
        if path == "/v1/models":
            model = {"id": "m", "object": "model", "owned_by": self.owned_by, "max_model_len": 262_144}
            return reply("200 OK", json.dumps({"object": "list", "data": [model]}).encode())
        if path == "/metrics":
            text = f'# HELP x y\nvllm:num_requests_running{{engine="0"}} {self.busy}.0\nvllm:num_requests_waiting 0.0\n'
            return reply("200 OK", text.encode(), "text/plain")
        if path != "/v1/chat/completions":
            return reply("404 Not Found", b'{"detail":"Not Found"}')
        body = seen.json()
        self.requests.append(body)
        return self._answer(body)

    def _answer(self, body: dict[str, Any]) -> Sequence[Step]:
        prompt, cached = self._count(body["messages"])
        if "tools" in body and self.tool_calls:
            function = {"name": "read", "arguments": json.dumps({"path": PATH})}
            call = {"index": 0, "id": "call-1", "type": "function", "function": function}
            return self._stream([delta(tool_calls=[call])], "tool_calls", prompt, cached, 12)
        long = len(body["messages"][-1]["content"]) > 200 or (body.get("ignore_eos") and self.heeds_ignore_eos)
        tokens = body["max_tokens"] if long else min(OWN_LENGTH, body["max_tokens"])
        events = [delta(content=f"w{number} ") for number in range(tokens)]
        return self._stream(events, "length" if tokens == body["max_tokens"] else "stop", prompt, cached, tokens)

    def _count(self, messages: list[dict[str, Any]]) -> tuple[int, int]:
        """Tokens of a prompt, and how many of them an earlier one had: all but one, as servers compute one anew."""
        prompt = len(json.dumps(messages)) // 4
        shared = [
            self._known[text]
            for end in range(len(messages), 0, -1)
            if (text := json.dumps(messages[:end])) in self._known
        ]
        self._known[json.dumps(messages)] = prompt
        return prompt, min(shared[0], prompt - 1) if shared else 0

    def _stream(self, events: list[bytes], finish: str, prompt: int, cached: int, tokens: int) -> Sequence[Step]:
        details = {"prompt_tokens_details": {"cached_tokens": cached} if self.cached else None}
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens, **details}
        last = [delta(finish=finish), *([event(id="x", choices=[], usage=usage)] if self.usage else []), DONE]

        async def wait() -> bytes:
            await asyncio.sleep(TOKEN_S * len(events))
            return b""

        def paced(one: bytes) -> Step:
            async def send() -> bytes:
                await asyncio.sleep(TOKEN_S)
                return chunked(one, end=False)

            return send

        if self.buffers:
            return (STREAM_HEAD, wait, chunked(b"".join([delta(role="assistant"), *events, *last])), CLOSE)
        return (STREAM_HEAD, chunked(delta(role="assistant"), end=False), *map(paced, events), chunked(*last), CLOSE)


@contextmanager
def serving(server: ScriptedServer) -> Iterator[ScriptedServer]:
    """The server in a loop of its own, for a test whose main thread is the program under test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
