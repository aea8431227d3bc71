"""What does the body of a chat request ask of the simulated server, and which JSON does its client get back?

The OpenAI chat API as ds4-server speaks it, in bytes: a body becomes an `Asked`, a `face.Reply` becomes the events of a
stream or one object. Nothing here reads a clock or a socket.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from agentload.core.records import ToolCall
from agentload.errors import InputError
from agentload.twin.events import Finished
from agentload.twin.face import Ask, Reply, usage
from agentload.twin.lengths import Draws
from agentload.twin.options import Options

MODEL: Final = "deepseek-v4-flash"
NAMES: Final = (MODEL, "deepseek-chat", "deepseek-reasoner")  # names that a request may use; any other is taken too
_MOST_TOKENS: Final = 393_216  # -n/--tokens
_CREATED: Final = 1_767_225_600
_NO_THINKING_MODEL: Final = "deepseek-chat"
_FIELDS: Final = ("thinking", "think", "reasoning_effort", "ignore_eos", "parallel_tool_calls")
_INVALID: Final = "invalid_request_error"
_SEEDS: Final = 1 << 53
_HELD: Final = 7  # characters of reasoning: one less than </think> has


class BadRequestError(InputError):
    """A body is no chat request; its text is what the client reads."""


# ---- what is asked -------------------------------------------------------------------------------------------------


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # the server skips fields that it does not know


class _Call(_Lenient):
    id: str | None = None
    function: dict[str, Any] | None = None


class _Message(_Lenient):
    role: str = "user"
    content: str | list[dict[str, Any] | str] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _StreamOptions(_Lenient):
    include_usage: bool = False


class _Body(_Lenient):
    messages: list[_Message]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    thinking: bool | dict[str, Any] | None = None
    think: bool | None = None
    reasoning_effort: str | None = None
    ignore_eos: bool | None = None
    parallel_tool_calls: bool | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A chat request, of which the server reads so much."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | None = None  # only "none" has an effect
    model: str = MODEL
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)  # thinking, ignore_eos, parallel_tool_calls, as they came

    def ask(self, request: str, seed: int) -> Ask:
        """Return it as the face takes it: `request` is its name there, `seed` its conversation's."""
        return Ask(request, self.messages, seed, self.tools, self.tool_choice, self.max_tokens, self.fields)


def parse_chat(body: bytes) -> Asked:
    """Return what a body of POST /v1/chat/completions asks; fields that the server does not know are skipped.

    Raises:
        BadRequestError: it is not JSON, or a field that is read has another shape.
    """
    try:
        raw = json.loads(body)
    except ValueError as error:  # also when it is not UTF-8
        raise BadRequestError(f"invalid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BadRequestError(f"expected a JSON object, got {type(raw).__name__}")
    return asked(raw)


def asked(raw: Mapping[str, Any]) -> Asked:
    """Return what the fields of a chat request ask.

    Raises:
        BadRequestError: a field that is read has another shape.
    """
    try:
        body = _Body.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadRequestError(f"invalid {where}: {first['msg']}") from error
    limit = body.max_completion_tokens if body.max_tokens is None else body.max_tokens
    choice = body.tool_choice
    off = {"think": False} if body.model == _NO_THINKING_MODEL else {}
    return Asked(
        messages=tuple(raw["messages"]),  # as they came: the renderer reads them by itself
        tools=tuple(raw.get("tools") or ()),
        tool_choice=choice if isinstance(choice, str) else None,
        model=body.model or MODEL,
        max_tokens=limit if limit is not None and limit > 0 else None,
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and body.stream_options.include_usage,
        fields={name: raw[name] for name in _FIELDS if name in raw} | off,
    )


class Conversations:
    """Whose is a request? Each conversation draws its words from a seed of its own.

    So two agents with the same task do not do the same work. A conversation is known again by the first tool-call id in
    it that this server gave; a request without one begins a new one.
    """

    def __init__(self, seed: int) -> None:
        """`seed` is the server's."""
        self._seed, self._begun = seed, 0
        self._seeds: dict[str, int] = {}  # by tool-call id

    def seed_of(self, messages: Iterable[Mapping[str, Any]]) -> int:
        """Return the seed of the conversation that `messages` are, a new one's where it is new."""
        for message in messages:
            for call in message.get("tool_calls") or ():
                known = self._seeds.get(str(call.get("id")))
                if known is not None:
                    return known
        self._begun += 1
        return Draws("conversation", self._seed, self._begun).below(_SEEDS)

    def gave(self, call_id: str, seed: int) -> None:
        """The conversation of that seed was given a call of that id."""
        self._seeds[call_id] = seed


# ---- the answer's JSON ---------------------------------------------------------------------------------------------


def error(message: str, kind: str = _INVALID) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    return {"error": {"message": message, "type": kind}}


def models(options: Options) -> dict[str, Any]:
    """Return the body of GET /v1/models."""
    return {"object": "list", "data": [model(options)]}


def model(options: Options) -> dict[str, Any]:
    """Return the one model."""
    return {
        "id": MODEL,
        "object": "model",
        "created": _CREATED,
        "owned_by": "ds4.c",
        "name": "DeepSeek V4 Flash (simulated by agentload)",
        "context_length": options.ctx,
        "top_provider": {
            "context_length": options.ctx,
            "max_completion_tokens": min(_MOST_TOKENS, options.ctx),
            "is_moderated": False,
        },
        "simulated": True,  # no field of the real server's
        "supported_parameters": ["max_tokens", "stream", "tool_choice", "tools", "reasoning_effort"],
    }


def whole(reply: Reply, done: Finished, model_name: str, created_s: int) -> dict[str, Any]:
    """Return the body of an answer that is not streamed."""
    said = reply.said
    message: dict[str, Any] = {"role": "assistant", "content": said.content}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.tool_calls:
        message["tool_calls"] = [_tool_call(call) for call in said.tool_calls]
    return {
        "id": reply.id,
        "object": "chat.completion",
        "created": created_s,
        "model": model_name,
        "choices": [{"index": 0, "message": message, "finish_reason": done.finish}],
        "usage": usage(done),
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


class Chunks:
    """An answer as a stream of events: what is sent at the end of prefill, for each token, and at the end.

    As the server does, the last 7 characters of reasoning are held back: the end of thinking might begin in them.
    """

    def __init__(self, reply: Reply, model_name: str, created_s: int, *, include_usage: bool) -> None:
        self._reply = reply
        self._head = {
            "id": reply.id,
            "object": "chat.completion.chunk",
            "created": created_s,
            "model": model_name,
        }
        self._include_usage = include_usage
        self._held = ""
        self._call = -1  # the place of the one that is being sent

    def role(self) -> bytes:
        """Return the first event: prefill is done."""
        return self._choice({"role": "assistant"})

    def token(self, index: int) -> bytes:
        """Return the events that token `index` (from 1 on, each once, in order) lets out; often none."""
        kind, text = self._reply.parts[index - 1]
        if kind == "reasoning":
            self._held += text
            ready, self._held = self._held[:-_HELD], self._held[-_HELD:]
            return self._reasoning(ready)
        out = self._flush()
        if kind == "content":
            return out + self._choice({"content": text})
        if kind == "name":
            self._call += 1
            call = _tool_call(self._reply.said.tool_calls[self._call])
            call["function"]["arguments"] = ""
            return out + self._choice({"tool_calls": [{"index": self._call, **call}]})
        if kind == "arguments":
            return out + self._choice({"tool_calls": [{"index": self._call, "function": {"arguments": text}}]})
        return out

    def end(self, done: Finished) -> bytes:
        """Return all events that are left."""
        out = self._flush() + self._choice({}, done.finish)
        if self._include_usage:
            out += self._event({"choices": [], "usage": usage(done)})
        return out + b"data: [DONE]\n\n"

    def _flush(self) -> bytes:
        ready, self._held = self._held, ""
        return self._reasoning(ready)

    def _reasoning(self, text: str) -> bytes:
        return self._choice({"reasoning_content": text}) if text else b""

    def _choice(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, fields: Mapping[str, Any]) -> bytes:
        return b"data: " + encode({**self._head, **fields}) + b"\n\n"


def error_event(message: str) -> bytes:
    """Return the event of a failure after the headers."""
    return b"event: error\ndata: " + encode(error(message, "server_error")) + b"\n\n"


def encode(value: Any) -> bytes:
    """Return JSON as the server writes it; half an emoji goes out as its escape."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
