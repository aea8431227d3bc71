"""How does a model say what it wants to do, and how is the result handed back?

Two protocols. Native tool calls, for servers and templates that know them. JSON actions, for models without: the
system prompt asks for one JSON object an answer, and results come back as user messages. In both, what is kept in the
history is what the model saw and said, so that the server's prefix cache can hold.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, Protocol

from agentload.agents.answer import MAX_DEPTH, is_deeper
from agentload.core.ports import Tool
from agentload.core.records import Completion, ToolCall


class Actions(Protocol):
    """One way to exchange tool calls with a model."""

    parallel: bool  # whether an answer may hold several calls

    def request_tools(self, tools: Sequence[Tool]) -> tuple[dict[str, Any], ...]:
        """Return the `tools` of every request: the same each time, since a change would undo the prefix cache."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return further request parameters."""
        ...

    def system_note(self, tools: Sequence[Tool]) -> str:
        """Return what the system prompt must add; empty when nothing."""
        ...

    def said(self, completion: Completion, most: int = 1) -> tuple[dict[str, Any], tuple[ToolCall, ...]]:
        """Return the assistant's message for the history, and at most `most` calls in it; none: it is an answer."""
        ...

    def result(self, call: ToolCall, text: str) -> dict[str, Any]:
        """Return the message that hands a call's result back."""
        ...


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Decode a call's arguments; None when they are no JSON object, or one nested more than 50 deep."""
    try:
        value = json.loads(call.arguments or "{}", parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):  # the latter: nested about 1,000 deep
        return None
    return value if isinstance(value, dict) and not is_deeper(value, MAX_DEPTH) else None


def _refuse(constant: str) -> None:
    """NaN and Infinity are Python's, not JSON's: a server that parses the history refuses them."""
    raise ValueError(f"expected JSON, got {constant}")


def _finite(digits: str) -> float:
    """1e400 is JSON, but no number that a tool, or a line of the run's files, can hold."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {digits[:40]}")
    return value


class NativeActions:
    """OpenAI tool calls."""

    def __init__(self, *, parallel: bool = False) -> None:
        """`parallel`: ask for several calls in one answer, and take them."""
        self.parallel = parallel

    def request_tools(self, tools: Sequence[Tool]) -> tuple[dict[str, Any], ...]:
        """Return the tools' schemas."""
        return tuple({"type": "function", "function": {"name": tool.name, **tool.schema()}} for tool in tools)

    def parameters(self) -> dict[str, Any]:
        """Whether an answer may hold several calls; llama.cpp's and ds4's servers do not heed it, so `said` does."""
        return {"parallel_tool_calls": self.parallel}

    def system_note(self, tools: Sequence[Tool]) -> str:  # noqa: ARG002 - the other protocol needs it
        """Nothing: the template shows the tools."""
        return ""

    def said(self, completion: Completion, most: int = 1) -> tuple[dict[str, Any], tuple[ToolCall, ...]]:
        """Return the answer as a message, with the first `most` calls; of two with one id only the first is kept.

        Arguments that are no JSON object would make a server refuse every later request (llama.cpp: HTTP 500), so
        the history holds them as text under one key, `unparsed`, and none at all as an empty object; the call itself
        keeps what the model wrote.
        """
        by_id: dict[str, ToolCall] = {}
        for call in completion.tool_calls:
            by_id.setdefault(call.id, call)
        calls = tuple(by_id.values())[:most]
        message: dict[str, Any] = {"role": "assistant", "content": completion.content or None}
        if completion.reasoning:
            message["reasoning_content"] = completion.reasoning
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": (call.arguments or "{}")
                        if arguments_of(call) is not None
                        else json.dumps({"unparsed": call.arguments}, ensure_ascii=False),
                    },
                }
                for call in calls
            ]
        elif message["content"] is None:
            message["content"] = ""
        return message, calls

    def result(self, call: ToolCall, text: str) -> dict[str, Any]:
        """Return a tool message."""
        return {"role": "tool", "tool_call_id": call.id, "content": text}


class JsonActions:
    """One JSON object an answer, for models and servers without tool calls."""

    parallel = False

    def __init__(self) -> None:
        self._calls = 0

    def request_tools(self, tools: Sequence[Tool]) -> tuple[dict[str, Any], ...]:  # noqa: ARG002 - as above
        """Nothing: the system prompt tells of them."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def system_note(self, tools: Sequence[Tool]) -> str:
        """Return the description of the tools and of the form of an action."""
        described = "\n".join(
            f"- {tool.name}: {tool.schema()['description']} Arguments: "
            f"{json.dumps(tool.schema()['parameters'], ensure_ascii=False)}"
            for tool in tools
        )
        return (
            f"Tools:\n{described}\n"
            'To use one, answer with one JSON object and nothing else: {"tool": "NAME", "arguments": {...}}. '
            "Its result comes back as the next message. Any other answer is taken as your final one."
        )

    def said(
        self,
        completion: Completion,
        most: int = 1,  # noqa: ARG002 - the other protocol needs it
    ) -> tuple[dict[str, Any], tuple[ToolCall, ...]]:
        """Return the answer as it came, and the first action in it."""
        message = {"role": "assistant", "content": completion.content}
        action = _first_action(completion.content)
        if action is None:
            return message, ()
        self._calls += 1
        name, arguments = action
        return message, (ToolCall(f"json-{self._calls}", name, arguments),)

    def result(self, call: ToolCall, text: str) -> dict[str, Any]:
        """Return a user message."""
        return {"role": "user", "content": f"Result of {call.name}:\n{text}"}


def _first_action(text: str) -> tuple[str, str] | None:
    """Return (tool, arguments as JSON) of the first JSON object in `text` that names a tool.

    Fences and words around it do not matter. One that nests about 1,000 deep is none: it can be read by nobody.
    """
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
            if isinstance(value, dict) and isinstance(value.get("tool"), str):
                return value["tool"], json.dumps(value.get("arguments", {}), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # braces that are no JSON
        at = text.find("{", at + 1)
    return None
