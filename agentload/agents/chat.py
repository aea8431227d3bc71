"""What did the endpoint answer to one chat request, and when did each part of it arrive?

The only importer of openai. A request goes out once (no retry), as a stream with its usage asked for, through a
transport of our own that stamps every piece on receipt; events are cut and decoded after the last byte has come, a few
at a time, so that reading one answer does not delay the stamps of another.

The SDK's typed `chat.completions.create` walks the whole history on the event loop for each request: 126 ms for 645 kB
of JSON (282 messages, about 150,000 tokens), of which 118 ms are its parameter transformation and 5 ms the encoding.
So the body is encoded here, in slices of 64 kB between which other tasks run, and posted as bytes (0.5 ms). A worker
thread would not help: the encoder holds the interpreter lock.

How a request can fail (`Completion.error`, one line; the first words are stable):
* `connection failed`: refused, unknown host, TLS, or no connection in time;
* `stall`: the server took the request too slowly, or sent nothing for the read timeout;
* `broken answer`: the connection was lost, or what came is not HTTP, before the answer's end;
* `HTTP <status>`: 300 and above, with the server's message;
* `not an event stream`: HTML, plain JSON or a compressed body;
* `server error`, `bad event`: from inside the stream; also finish_reason "error";
* `unfinished answer`: the stream ended properly, but the server never said finish_reason;
* `context overflow: ...`: before any of these, when the server says that the prompt does not fit;
* `cut off`: at the call's own `until_ns`, which is no failure of the server.

A stream that ends properly after a finish_reason but without [DONE] is whole, with a note; so is one whose connection
breaks after [DONE]. One that breaks between the two is an error: its usage may be lost.
"""

import json
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio.lowlevel
import httpx2
import openai

from agentload.agents.answer import SERVER_SAID, Answer, explain, one_line
from agentload.agents.connection import Exchange
from agentload.agents.deadline import cut_at
from agentload.agents.sse import Event, SseParser
from agentload.agents.transport import EXCHANGE, StampingTransport
from agentload.core.ports import Clock
from agentload.core.records import CUT_OFF, ChatCall, Completion
from agentload.errors import EndpointError, UsageError

CONNECTION_FAILED: Final = "connection failed"
STALL: Final = "stall"
BROKEN: Final = "broken answer"
NOT_A_STREAM: Final = "not an event stream"
UNFINISHED: Final = "unfinished answer"

NO_KEY: Final = "none"  # sent as the bearer token where a server wants no key: the SDK refuses to send none at all

_END_MARKS: Final = (b"[DONE]\n\n", b"[DONE]\r\n\r\n")  # JSON holds no raw newline, so these end the stream
_SLICE_BYTES: Final = 64 * 1024  # encoded in about 0.5 ms
_SLICE_PIECES: Final = 64  # cut and decoded in about 0.5 ms
_OURS: Final = frozenset(("messages", "model", "stream", "stream_options", "tools"))


async def encode_body(model: str, call: ChatCall) -> bytes:
    """The JSON body of `call`, UTF-8; other tasks run after every 64 kB of messages.

    Raises:
        UsageError: `call.extra` holds a parameter that is set here.
    """
    clash = _OURS & call.extra.keys()
    if clash:
        raise UsageError(f"extra request parameters must not hold {', '.join(sorted(clash))}: agentload sets them")
    fields: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    if call.tools:
        fields["tools"] = call.tools
    optional = {
        "tool_choice": call.tool_choice,
        "max_tokens": call.max_tokens,
        "seed": call.seed,
        "temperature": call.temperature,
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    fields |= call.extra
    messages: list[bytes] = []
    encoded = 0
    for message in call.messages:
        messages.append(_json(message))
        encoded += len(messages[-1])
        if encoded >= _SLICE_BYTES:
            encoded = 0
            await anyio.lowlevel.checkpoint()
    return b'{"messages":[' + b",".join(messages) + b"]," + _json(fields)[1:]


def _json(value: Any) -> bytes:
    # Half an emoji, out of a model's JSON, has no UTF-8: it goes out as the escape that JSON has for it.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "backslashreplace"
    )


def _client(
    base_url: str, api_key: str, timeout: httpx2.Timeout, transport: httpx2.AsyncBaseTransport
) -> openai.AsyncOpenAI:
    url = httpx2.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"expected a base URL such as http://127.0.0.1:8080/v1, got {base_url!r}")
    client = openai.AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        admin_api_key="",
        organization="",  # an argument, even empty, keeps the SDK from asking the environment
        project="",
        webhook_secret="",
        timeout=timeout,
        max_retries=0,
        # A compressed body would come in pieces that have nothing to do with tokens.
        default_headers={"Accept-Encoding": "identity"},
        http_client=httpx2.AsyncClient(
            transport=transport, trust_env=False, timeout=timeout, event_hooks={"response": [_read_plain]}
        ),
    )
    client.organization = client.project = None  # and None keeps it from sending an empty header
    return client


async def _read_plain(answer: httpx2.Response) -> None:
    """Read an answer that is no stream, so that nothing in its body can raise more than a DecodingError.

    Text is UTF-8 whatever the head says: a charset such as rot13 is a codec of Python's, but none for text.
    """
    answer.encoding = "utf-8"
    if answer.is_success and answer.request.method != "GET":
        return
    try:
        await answer.aread()
    except httpx2.DecodingError as error:
        raise httpx2.DecodingError(f"HTTP {answer.status_code}: (its body cannot be decoded)") from error


async def list_models(
    base_url: str,
    clock: Clock,
    *,
    api_key: str = NO_KEY,
    timeout_s: float = 10.0,
    ssl_context: ssl.SSLContext | None = None,
) -> list[str]:
    """Ids of the models that GET `base_url`/models lists, in the server's order, at least one.

    Raises:
        EndpointError: the endpoint does not answer, or not with a list of models; what may help is said of a missing
            /v1 (found out by one more request) and of a key that the server wants.
        UsageError: `base_url` is no http or https URL.
    """
    transport = StampingTransport(clock, ssl_context=ssl_context)
    client = _client(base_url, api_key, httpx2.Timeout(timeout_s), transport)
    where = f"{base_url.rstrip('/')}/models"
    async with client:
        try:
            answer: object = await client.get("/models", cast_to=httpx2.Response)
        except (openai.OpenAIError, httpx2.TransportError) as error:
            hint = await _hint(client, base_url.rstrip("/"), error)
            raise EndpointError(f"{where}: expected a list of models: {_failure(error)}{hint}") from error
    assert isinstance(answer, httpx2.Response)
    try:
        listed = json.loads(answer.content)
    except (ValueError, RecursionError):  # the latter: nested about 1,000 deep
        listed = None
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list) or not all(isinstance(model, dict) for model in data):
        raise EndpointError(f"{where}: expected a list of models, got {one_line(answer.text)}")
    if not data:
        raise EndpointError(f"{where}: expected at least one model, the list is empty")
    names = [model.get("id") for model in data]
    if not all(isinstance(name, str) and name for name in names):
        raise EndpointError(f"{where}: expected a list of models with an id each, got {one_line(answer.text)}")
    return names


async def _hint(client: openai.AsyncOpenAI, base_url: str, error: Exception) -> str:
    """What may help against `error`, in brackets; nothing when nothing is known."""
    if isinstance(error, (openai.AuthenticationError, openai.PermissionDeniedError)):
        return " (set OPENAI_API_KEY to the server's key)"
    if isinstance(error, openai.APIStatusError) and (there := error.response.headers.get("location")):
        return f" (it points to {one_line(there)}: no redirect is followed, give the address itself)"
    if isinstance(error, openai.NotFoundError) and not base_url.endswith("/v1"):
        with suppress(openai.OpenAIError, httpx2.TransportError):
            await client.get(f"{base_url}/v1/models", cast_to=httpx2.Response)
            return f" (did you mean {base_url}/v1?)"
    return ""


class OpenAITransport:
    """Chat requests to one model of one OpenAI-compatible endpoint (`core.ports.Transport`).

    One HTTP client for all requests; use it as an async context manager, or call `aclose`. Belongs to one asyncio loop.

    Args:
        base_url: up to and with `/v1`.
        model: name of the model, sent as it is.
        clock: gives the stamps.
        api_key: the bearer token.
        connect_timeout_s: for a connection to stand.
        read_timeout_s: longest silence in an answer. A server may stay silent while a request waits for a slot.
        write_timeout_s: for the server to take the whole request.
        ssl_context: for an https endpoint; None: the default one is made here when the URL is https (50 ms, once).
        keepalive_s: reuse of connections, which can fail requests: see `transport`; 0: none.
        keep_raw: give `Completion.raw_request` and `raw_answer`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        clock: Clock,
        *,
        api_key: str = NO_KEY,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 1800.0,
        write_timeout_s: float = 60.0,
        ssl_context: ssl.SSLContext | None = None,
        keepalive_s: float = 0.0,
        keep_raw: bool = False,
    ) -> None:
        timeout = httpx2.Timeout(connect=connect_timeout_s, read=read_timeout_s, write=write_timeout_s, pool=None)
        if ssl_context is None and base_url.startswith("https:"):
            ssl_context = httpx2.create_ssl_context(trust_env=False)
        self._clock = clock
        self._model = model
        self._keep_raw = keep_raw
        self._open: dict[str, Exchange] = {}
        transport = StampingTransport(clock, ssl_context=ssl_context, keepalive_s=keepalive_s)
        self._client = _client(base_url, api_key, timeout, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def complete(self, call: ChatCall) -> Completion:
        """Send `call` once. A failed request is a `Completion` with `error` set; cancelling closes its connection.

        So does `call.until_ns`, and then the answer so far is given back. One that was whole by then is not cut off.

        Raises:
            UsageError: `call.extra` holds a parameter that is set here.
        """
        body = await encode_body(self._model, call)
        exchange = Exchange(end_marks=_END_MARKS)
        started = self._clock.now_ns()
        failure = None
        self._open[call.request] = exchange
        try:
            async with cut_at(self._clock, call.until_ns) as scope:
                failure = await self._exchange(exchange, body)
        finally:
            del self._open[call.request]
        ended = exchange.t_end if exchange.t_end is not None else self._clock.now_ns()
        parser, answer = SseParser(), Answer()
        if failure is None:
            await _read(exchange, parser, answer)
            if not scope.cancelled_caught:
                failure = _verdict(exchange, answer)
            elif answer.t_done is None:
                failure = _cut_off(exchange, started, ended)
        calls = answer.tool_calls(call.request)
        return Completion(
            request=call.request,
            agent=call.agent,
            turn=call.turn,
            t_sent=started if exchange.t_sent is None else exchange.t_sent,
            t_first_byte=exchange.t_first_byte,
            t_first_token=answer.t_first_token,
            t_done=ended if answer.t_done is None else answer.t_done,
            status=exchange.status,
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=calls,
            finish=answer.finish,
            usage=answer.usage(),
            timings=answer.timings(),
            phases=answer.phases(),
            server_id=answer.server_id,
            model=answer.model,
            chunk_ns=tuple(answer.chunk_ns),
            error=failure,
            raw_usage=answer.raw_usage,
            raw_timings=answer.raw_timings,
            token_ns=tuple(answer.token_ns),
            comments=parser.comments,
            notes=tuple(answer.notes),
            raw_extra=tuple(answer.raw_extra),
            raw_request=body if self._keep_raw else None,
            raw_answer=b"".join(exchange.pieces) if self._keep_raw else None,
        )

    def decodes(self, request: str) -> bool:
        """Whether the answer to `request` is coming in: cheap, for a look now and then; False when it is not open.

        The first event of a stream carries a role and no token, so it takes two. Where a server sends both in one
        piece, or progress while it prefills, this is a guess.
        """
        return self.tokens(request) > 0

    def tokens(self, request: str) -> int:
        """How many tokens of the answer to `request` have come: its events without the first; 0 when it is not open.

        Where a server puts several tokens into one event, there are more.
        """
        exchange = self._open.get(request)
        return 0 if exchange is None else max(0, exchange.events - 1)

    async def _exchange(self, exchange: Exchange, body: bytes) -> str | None:
        """Send `body` and wait for the answer's end; what went wrong before there was a stream to read."""
        token = EXCHANGE.set(exchange)
        try:
            answer: object = await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,  # with `stream` the SDK hands it over unread
                content=body,
                options={"headers": {"Accept": "text/event-stream", "Content-Type": "application/json"}},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
        except (openai.OpenAIError, httpx2.TransportError) as error:
            return _failure(error)
        finally:
            EXCHANGE.reset(token)
        assert isinstance(answer, httpx2.Response)
        try:
            await exchange.wait_end()
        finally:
            await answer.aclose()
        kind = answer.headers.get("content-type", "text/event-stream")
        coding = answer.headers.get("content-encoding", "identity")
        if kind.partition(";")[0].strip().lower() != "text/event-stream" or coding.lower() != "identity":
            got = f"{NOT_A_STREAM}: expected text/event-stream, got {one_line(kind)} (coding {one_line(coding)})"
            if coding.lower() != "identity":  # its bytes would tell nobody anything
                return got
            shown = one_line(b"".join(exchange.pieces)[:1000].decode("utf-8", "replace"))
            return f"{got}: {shown}"
        return None


async def _read(exchange: Exchange, parser: SseParser, answer: Answer) -> None:
    """Cut and decode all pieces, letting other tasks run after every 64."""
    for number, (stamp, piece) in enumerate(zip(exchange.stamps, exchange.pieces, strict=True), start=1):
        for event in parser.feed(stamp, piece):
            answer.add(event)
        if number % _SLICE_PIECES == 0:
            await anyio.lowlevel.checkpoint()
    rest = parser.rest.strip()
    if rest == b"data: [DONE]":
        answer.add(Event(exchange.stamps[-1], "message", b"[DONE]"))
    elif rest and not rest.startswith(b":"):
        shown = one_line(rest.decode("utf-8", "replace"))
        answer.notes.append(f"the stream ended inside an event, which is left out: {shown}")
    answer.ended()


def _verdict(exchange: Exchange, answer: Answer) -> str | None:
    """Why a stream that was read is not a whole answer; None when it is."""
    if answer.problem is not None:
        return answer.problem
    if exchange.error is not None:
        if answer.t_done is None:
            return _transport_failure(exchange.error)
        answer.notes.append(f"after [DONE]: {one_line(str(exchange.error))}")
    if answer.finish is None:
        until = "with [DONE]" if answer.t_done is not None else "without [DONE]"
        return f"{UNFINISHED}: expected a finish_reason, the stream ended {until} after {len(answer.chunk_ns)} events"
    if answer.finish == "error":
        return f'{SERVER_SAID}: the answer ended with finish_reason "error"'
    if answer.t_done is None:
        answer.notes.append("the stream ended after its finish_reason, without [DONE]")
    return None


def _cut_off(exchange: Exchange, started: int, ended: int) -> str:
    """What came before the call's own time was over, and how long nothing had come then: a stream may have stalled."""
    came = sum(map(len, exchange.pieces))
    last = exchange.stamps[-1] if exchange.stamps else exchange.t_first_byte or exchange.t_sent or started
    silent_s = (ended - last) / 1e9
    return f"{CUT_OFF}: its time was over after {came} bytes of the answer's body, none for {silent_s:.1f} s"


def _failure(error: openai.OpenAIError | httpx2.TransportError) -> str:
    if isinstance(error, openai.APIStatusError):
        said = error.body if error.body is not None else error.response.text
        return explain(said or error.response.reason_phrase, f"HTTP {error.status_code}")
    cause = error.__cause__
    if isinstance(error, httpx2.TransportError):
        return _transport_failure(error)
    if isinstance(cause, httpx2.TransportError):
        return _transport_failure(cause)
    if isinstance(cause, httpx2.DecodingError):
        return one_line(str(cause))  # from `_read_plain`
    return f"{BROKEN}: {one_line(str(error))}"


def _transport_failure(error: httpx2.TransportError) -> str:
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol)):
        kind = CONNECTION_FAILED
    elif isinstance(error, httpx2.TimeoutException):
        kind = STALL
    else:
        kind = BROKEN
    return f"{kind}: {one_line(str(error))}"
