"""How does the simulated server answer over HTTP, in real time?

Virtual time is the real clock's: the face is driven to the present whenever something is due, and what comes out is
written at once, log lines to `log`, the answer's events to the sockets. A machine that is to be faster than its profile
has smaller costs, not a faster clock (`machine`), so that stamps and durations in the log stay a client's.

All that touches the scheduler runs on the event loop. Rendering a prompt and scripting its answer takes 5 to 150 ms, so
that is done in one thread, in order of arrival; the loop goes on writing tokens meanwhile.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from agentload.core.ports import Clock
from agentload.errors import ServerError
from agentload.twin import wire
from agentload.twin.events import Event, Finished, LogWrite, PrefillDone, Progress, Rejected, Stopped, TokenOut
from agentload.twin.face import Face, Reply, notice, refusal
from agentload.twin.http1 import EVENTS_TYPE, Exchange, Open, Received
from agentload.twin.lengths import DEFAULT, Settings
from agentload.twin.options import Options
from agentload.twin.profile import Profile
from agentload.twin.server import Server
from agentload.twin.slots import Job
from agentload.twin.truth import header, lines

_KEEPALIVE: Final = b": prefill\n\n"
_LAST_BYTES_S: Final = 2.0  # for clients to take what was written, at the end
_CHAT: Final = "/v1/chat/completions"
_MODELS: Final = "/v1/models"
_SECOND_NS: Final = 1_000_000_000

Lateness = Callable[[int, int], object]  # of a token's events: when it was decoded and when written, ns
_Made = tuple[Reply, Job]


class Out(Protocol):
    """Where an answer goes: an `http1.Exchange`."""

    @property
    def started(self) -> bool:
        """Whether something was written."""
        ...

    def head(self, status: int, content_type: str | None, length: int | None = None) -> None:
        """Write the head of an answer that goes on."""
        ...

    def write(self, data: bytes) -> None:
        """Write a piece of it."""
        ...

    def end(self) -> None:
        """It is whole."""
        ...

    def answer(self, status: int, body: bytes = b"") -> None:
        """Write a whole answer, of JSON."""
        ...


class Answer:
    """Writes what comes back of one request; it is told of each event of it."""

    def __init__(self, exchange: Out, asked: wire.Asked, ctx: int, clock: Clock, late: Lateness | None = None) -> None:
        self._exchange, self._asked, self._ctx = exchange, asked, ctx
        self._clock, self._late = clock, late
        self._chunks: wire.Chunks | None = None
        self._keepalives = 0

    def tell(self, reply: Reply, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, Rejected):
            status, error = refusal(event, self._ctx)
            self._exchange.answer(status, wire.encode({"error": error}))
        elif isinstance(event, Finished):
            self._finished(reply, event)
        elif self._asked.stream:
            self._streamed(reply, event)

    def _streamed(self, reply: Reply, event: Event) -> None:
        if isinstance(event, TokenOut):
            assert self._chunks is not None
            data = self._chunks.token(event.index)
            if data:
                self._exchange.write(data)
                if self._late is not None:
                    self._late(event.at_ns, self._clock.now_ns())
            return
        if not self._exchange.started:
            self._exchange.head(200, EVENTS_TYPE)
        if isinstance(event, Progress):
            if len(reply.keepalive_ns) > self._keepalives:
                self._keepalives += 1
                self._exchange.write(_KEEPALIVE)
        elif isinstance(event, PrefillDone):
            created_s = event.at_ns // _SECOND_NS
            usage = self._asked.include_usage
            self._chunks = wire.Chunks(reply, self._asked.model, created_s, include_usage=usage)
            self._exchange.write(self._chunks.role())

    def _finished(self, reply: Reply, event: Finished) -> None:
        exchange = self._exchange
        if self._chunks is not None:
            exchange.write(self._chunks.end(event))
            exchange.end()
        elif event.error is None:
            body = wire.whole(reply, event, self._asked.model, event.at_ns // _SECOND_NS)
            exchange.answer(200, wire.encode(body))
        elif exchange.started:
            exchange.write(wire.error_event(event.error))
            exchange.end()
        else:
            status = 503 if event.error.startswith("shutdown") else 500
            exchange.answer(status, wire.encode(wire.error(event.error, "server_error")))


class HttpFace:
    """One simulated server on a port; belongs to one asyncio loop.

    Args:
        options: of the launch; host and port are where it listens.
        profile: costs of the machine.
        seed: of noise, words and ids.
        clock: real time, Unix ns.
        log: takes each write of the log.
        truth: takes each line of ground truth, without its newline; None: nobody wants it.
        settings: lengths and mix of the scripted model.
        late: told of each token that was written.
    """

    def __init__(
        self,
        options: Options,
        profile: Profile,
        *,
        seed: int,
        clock: Clock,
        log: Callable[[bytes], object],
        truth: Callable[[str], object] | None = None,
        settings: Settings = DEFAULT,
        late: Lateness | None = None,
    ) -> None:
        self.options = options
        self._profile, self._seed, self._settings, self._clock = profile, seed, settings, clock
        self._log, self._truth, self._late = log, truth, late
        self._conversations = wire.Conversations(seed)
        self._face: Face | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._names: dict[Exchange, str] = {}  # of chat requests that are not answered
        self._count = 0
        self._open = Open()
        self._stopped = asyncio.Event()
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="twin-render")
        self._loop = asyncio.get_running_loop()

    async def serve(self, ready: Callable[[], object] = lambda: None) -> None:
        """Listen, answer, and return when `shutdown` was called and all is drained; `ready`: it listens.

        Raises:
            ServerError: the port cannot be had.
        """
        host, port = self.options.host, self.options.port
        try:
            listening = await self._loop.create_server(lambda: Exchange(self, self._open), host, port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ServerError(f"failed to listen on {host}:{port}: {why}") from error
        try:
            self._start()
            ready()
            await self._stopped.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            listening.close()
            await self._open.close(_LAST_BYTES_S)
            self._renderer.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        name = self._profile.name
        self._log(notice(name, self._seed))
        if self._truth is not None:
            self._truth(header(self.options, name, self._seed, 0))
        server = Server(self.options, self._profile, seed=self._seed, start_ns=self._clock.now_ns())
        self._face = Face(server, self._settings, seed=self._seed, out=self._out)
        self._drive()

    def shutdown(self) -> None:
        """Drain: what runs ends with an error, what comes is refused."""
        if self._face is None:
            self._stopped.set()
        else:
            self._face.shutdown(self._present())
            self._drive()

    # ---- what comes in ---------------------------------------------------------------------------------------------

    def received(self, exchange: Exchange, request: Received) -> None:
        """Handler: a request is here."""
        if request.method == "OPTIONS":
            exchange.answer(204)
        elif (request.method, request.path) == ("POST", _CHAT):
            self._count += 1
            self._names[exchange] = name = f"r{self._count}"
            making = self._renderer.submit(self._make, exchange, name, request.body)
            making.add_done_callback(partial(self._made_elsewhere, exchange))
        elif request.method == "GET" and request.path == _MODELS:
            exchange.answer(200, wire.encode(wire.models(self.options)))
        elif request.method == "GET" and request.path in {f"{_MODELS}/{known}" for known in wire.NAMES}:
            exchange.answer(200, wire.encode(wire.model(self.options)))
        else:
            exchange.answer(404, wire.encode(wire.error("unknown endpoint")))

    def refused(self, exchange: Exchange, status: int, why: str) -> None:
        """Handler: it is no request to be had."""
        exchange.answer(status, wire.encode(wire.error(why)))

    def gone(self, exchange: Exchange) -> None:
        """Handler: the client went away. The scheduler knows nothing of a request that is still being rendered."""
        name = self._names.pop(exchange, None)
        if name is not None and self._face is not None:
            self._face.leave(name, self._present())
            self._drive()

    def _make(self, exchange: Exchange, name: str, body: bytes) -> _Made:
        """In the renderer's thread."""
        asked = wire.parse_chat(body)
        seed = self._conversations.seed_of(asked.messages)
        assert self._face is not None
        answer = Answer(exchange, asked, self.options.ctx, self._clock, self._late)
        reply, job = self._face.prepare(asked.ask(name, seed), partial(self._tell, exchange, answer))
        for call in reply.said.tool_calls:
            self._conversations.gave(call.id, seed)
        return reply, job

    def _made_elsewhere(self, exchange: Exchange, making: "Future[_Made]") -> None:
        if not self._stopped.is_set() and not making.cancelled():
            self._loop.call_soon_threadsafe(self._made, exchange, making)

    def _made(self, exchange: Exchange, making: "Future[_Made]") -> None:
        if exchange.over:
            return
        try:
            reply, job = making.result()
        except wire.BadRequestError as error:
            del self._names[exchange]
            exchange.answer(400, wire.encode(wire.error(str(error))))
            return
        assert self._face is not None
        self._face.submit(reply, job, self._present())
        self._drive()

    def _tell(self, exchange: Exchange, answer: Answer, reply: Reply, event: Event) -> None:
        if isinstance(event, Finished | Rejected):
            self._names.pop(exchange, None)
        answer.tell(reply, event)

    # ---- time ------------------------------------------------------------------------------------------------------

    def _present(self) -> int:
        """Bring the face to the present, and return it."""
        assert self._face is not None
        now_ns = self._clock.now_ns()
        self._face.advance(now_ns)
        return now_ns

    def _drive(self) -> None:
        """Bring the face to the present, and come back when something is due."""
        self._present()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = None if self._face is None else self._face.next_ns()
        if due is not None and not self._stopped.is_set():
            self._timer = self._loop.call_later(max(0, due - self._clock.now_ns()) / _SECOND_NS, self._drive)

    # ---- what goes out ---------------------------------------------------------------------------------------------

    def _out(self, events: Sequence[Event]) -> None:
        """The face: all that came out, log and truth too."""
        for event in events:
            if isinstance(event, LogWrite):
                self._log(event.data)
            elif isinstance(event, Stopped):
                self._stopped.set()
        if self._truth is not None:
            for line in lines(events):
                self._truth(line)
