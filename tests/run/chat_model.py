"""What does a chat model do whose every call, count and log line is written down beforehand?

`ChatModel` is a `ScriptedServer` (tests/agents) that plays one script to each conversation: an agent is known by its
first user message, its turn by the assistant messages that its history holds. Usage follows from both, so that a test
can add it up by hand. With `log` it writes the lines that llama.cpp writes for each request, with its own durations,
and the same durations in the answer's `timings`.

As a program (`python -m tests.run.chat_model`) it is a server process for --launch and for attaching to:
`--tell PATH` names a FIFO to which it writes "listening PORT", "hanging PID" when it plays HANG, and "loading PID"
when it is never ready.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agents.scripted_server import (
    CLOSE,
    DONE,
    HANG,
    RESET,
    STREAM_HEAD,
    ScriptedServer,
    Seen,
    Step,
    chunked,
    delta,
    event,
)

Call = tuple[str, dict[str, Any]]
FINAL = "PyInit__whenever hands MODULE_DEF to PyModuleDef_Init."
SCRIPT: tuple[Call | str, ...] = (
    ("read", {"path": "Cargo.toml"}),
    ("bash", {"command": "wc -l src/lib.rs"}),
    FINAL,
)


def prompt_tokens(agent: int, turn: int) -> int:
    return 1000 + 100 * agent + 300 * turn


def cached_tokens(agent: int, turn: int) -> int:
    """Nothing at first; then the former prompt."""
    return prompt_tokens(agent, turn - 1) if turn else 0


def decoded_tokens(agent: int, turn: int) -> int:
    return 20 + agent + 2 * turn


@dataclass
class Answered:
    """One request as the model counted and timed it."""

    agent: int
    turn: int
    prompt_ms: float
    decode_ms: float


@dataclass
class ChatModel:
    """Use as an async context manager: `server` listens in it."""

    script: Sequence[Call | str] = SCRIPT
    hang_at: int | None = None  # from this request (counted over all agents from 0) on, HANG
    die_at: int | None = None  # from this one on, every connection is torn and none is taken any more
    break_at: int | None = None  # from this one on, every connection is torn, and more are taken
    log: Callable[[str], None] | None = None
    on_hang: Callable[[], None] = lambda: None
    on_break: Callable[[], object] = lambda: None
    port: int = 0
    timings: bool = True
    requests: list[Seen] = field(default_factory=list)  # chat requests only
    answered: list[Answered] = field(default_factory=list)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    _agents: list[str] = field(default_factory=list)

    async def __aenter__(self) -> "ChatModel":
        self._born = time.monotonic()
        self.server = ScriptedServer(play=self._play, port=self.port, hangs_up_on_tls=True)
        if self.log is not None:
            self._line("srv          init: initializing ...")
            self._line("srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'false'")
        await self.server.__aenter__()
        if self.log is not None:
            self._line("srv          init: model loaded")
            self._line(f"srv          init: listening on http://127.0.0.1:{self.server.port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.__aexit__(None, None, None)

    @property
    def url(self) -> str:
        return self.server.url

    def _line(self, text: str) -> None:
        assert self.log is not None
        micros = int((time.monotonic() - self._born) * 1e6)
        minutes, rest = divmod(micros, 60_000_000)
        self.log(f"{minutes}.{rest // 1_000_000:02d}.{rest // 1000 % 1000:03d}.{rest % 1000:03d} I {text}\n")

    def _play(self, seen: Seen) -> Sequence[Step]:
        if seen.line.startswith("GET /v1/models "):
            body = json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            return (head + body, CLOSE)
        if not seen.line.startswith("POST "):  # /health, which not every server has
            return (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", CLOSE)
        number = len(self.requests)
        self.requests.append(seen)
        if self.die_at is not None and number >= self.die_at:
            self.server._server.close()
            return (RESET,)
        if self.break_at is not None and number >= self.break_at:
            self.on_break()
            return (RESET,)
        if self.hang_at is not None and number >= self.hang_at:
            self.hanging.set()
            self.on_hang()
            return (STREAM_HEAD + chunked(b": keepalive\n\n", end=False), HANG)
        messages = seen.json()["messages"]
        question = next(one["content"] for one in messages if one["role"] == "user")
        if question not in self._agents:
            self._agents.append(question)
        agent, turn = self._agents.index(question), sum(one["role"] == "assistant" for one in messages)
        return self._answer(agent, turn, number)

    def _answer(self, agent: int, turn: int, task: int) -> Sequence[Step]:
        now = time.monotonic
        marks: list[float] = []

        async def prefill() -> bytes:
            if self.log is not None:
                self._line(f"slot launch_slot_: id  {agent} | task {task} | processing task, is_child = 0")
            marks.append(now())
            await asyncio.sleep(0.002 + 0.0001 * task)
            marks.append(now())
            said = self.script[turn]
            if isinstance(said, str):
                return STREAM_HEAD + chunked(delta(role="assistant", content=said), end=False)
            name, arguments = said
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": f"call-{agent}-{turn}", "type": "function", "function": function}
            return STREAM_HEAD + chunked(delta(role="assistant", tool_calls=[call]), end=False)

        async def decode() -> bytes:
            await asyncio.sleep(0.002)
            marks.append(now())
            one = Answered(agent, turn, round((marks[1] - marks[0]) * 1e3, 3), round((marks[2] - marks[1]) * 1e3, 3))
            self.answered.append(one)
            prompt, cached = prompt_tokens(agent, turn), cached_tokens(agent, turn)
            decoded = decoded_tokens(agent, turn)
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": decoded,
                "total_tokens": prompt + decoded,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            timings = {
                "cache_n": cached,
                "prompt_n": prompt - cached,
                "prompt_ms": one.prompt_ms,
                "predicted_n": decoded,
                "predicted_ms": one.decode_ms,
            }
            finish = "stop" if isinstance(self.script[turn], str) else "tool_calls"
            last = event(id="chatcmpl-1", choices=[], usage=usage, **({"timings": timings} if self.timings else {}))
            return chunked(delta(finish=finish), last, DONE)

        async def release() -> bytes:
            """After the client's last byte, as the real server: the end marker has to wait for these lines."""
            if self.log is not None:
                one = next(each for each in self.answered if (each.agent, each.turn) == (agent, turn))
                new = prompt_tokens(agent, turn) - cached_tokens(agent, turn)
                got = decoded_tokens(agent, turn)
                who = f"id  {agent} | task {task} |"
                rates = "(    1.00 ms per token,  1000.00 tokens per second)"
                self._line(
                    f"slot print_timing: {who} prompt eval time = {one.prompt_ms:10.2f} ms / {new:5d} tokens {rates}"
                )
                self._line(
                    f"slot print_timing: {who}        eval time = {one.decode_ms:10.2f} ms / {got:5d} tokens {rates}"
                )
                total_ms = one.prompt_ms + one.decode_ms
                self._line(f"slot print_timing: {who}       total time = {total_ms:10.2f} ms / {new + got:5d} tokens")
                held = prompt_tokens(agent, turn) + got - 1
                self._line(f"slot      release: {who} stop processing: n_tokens = {held}, truncated = 0")
            return b""

        return (prefill, decode, release, CLOSE)


@contextmanager
def in_a_thread(model: ChatModel) -> Iterator[ChatModel]:
    """The model in a loop of its own, for a test whose main thread is the program under test."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(model.__aenter__(), loop).result()
        yield model
        asyncio.run_coroutine_threadsafe(model.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tell", type=Path)
    parser.add_argument("--hang-at", type=int)
    parser.add_argument("--break-at", type=int, help="tear the connections, and be killed 0.3 s later")
    parser.add_argument("--quiet", action="store_true", help="write no log")
    parser.add_argument("--stubborn", action="store_true", help="take no notice of SIGTERM")
    parser.add_argument("--never-ready", action="store_true", help="load for ever, deaf to SIGTERM meanwhile")
    options = parser.parse_args()

    def write(line: str) -> None:
        os.write(sys.stdout.fileno(), line.encode())

    tell = os.open(options.tell, os.O_WRONLY) if options.tell else None

    def say(what: str) -> None:
        if tell is not None:
            os.write(tell, what.encode() + b"\n")

    if options.never_ready:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say(f"loading {os.getpid()}")
        await asyncio.Event().wait()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if options.stubborn else ended.set)
    model = ChatModel(
        hang_at=options.hang_at,
        log=None if options.quiet else write,
        on_hang=lambda: say(f"hanging {os.getpid()}"),
        break_at=options.break_at,
        on_break=lambda: loop.call_later(0.3, os.kill, os.getpid(), signal.SIGKILL),
        port=options.port,
    )
    async with model:
        say(f"listening {model.server.port}")
        await ended.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main())
