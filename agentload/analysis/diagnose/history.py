"""What did each request send beyond the one before it in its conversation, to the message?

Read from agents/*/messages.jsonl, which holds exactly what was sent and received. A history that only grows leaves the
server all that it has in its cache; a message that was changed, a tool list that was swapped, or an answer that goes
back without its reasoning does not.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.rundir import RunDir

AS_WRITTEN: Final = "as written"
LEFT_OUT: Final = "left out"
_SHOWN: Final = 160  # characters of a proving line


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a file of the run that shows something."""

    file: str  # relative to the run
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its messages beside those of the request before it."""

    conversation: str  # the folder below agents/
    messages: int
    before: int | None  # messages of the request before; None: it is the first of its conversation
    common: int | None  # of these, how many leading ones were sent again as they were
    changed: str | None  # what differs of what was sent before, in words
    answer: str | None  # how the answer before stands in it: as written, left out, or what differs, in words
    proofs: tuple[Said, ...]  # of `changed` and `answer`, where they are not as a history grows


def read(run: RunDir) -> dict[str, Sent]:
    """Return what each request sent, by its name.

    Raises:
        ArtifactError: a conversation does not follow its schema.
    """
    found: dict[str, Sent] = {}
    for path in sorted((run.path / "agents").glob("*/messages.jsonl")):
        found |= dict(_conversation(path, path.relative_to(run.path).as_posix()))
    return found


@dataclass(frozen=True, slots=True)
class _Message:
    line: int
    digest: bytes
    role: str
    fields: Mapping[str, Any] | None  # of an assistant's


@dataclass(slots=True)
class _Before:
    """The request before: what it sent, and what came back."""

    messages: tuple[_Message, ...]
    tools: tuple[int, bytes] | None
    choice: Any
    answer: tuple[int, Mapping[str, Any]] | None = None


def _conversation(path: Path, name: str) -> Iterator[tuple[str, Sent]]:
    messages: dict[int, _Message] = {}
    tools: tuple[int, bytes] | None = None
    before: _Before | None = None
    for number, event in jsonlines.read(path, schemas.MESSAGES):
        kind = event.get("event")
        if kind == "tools":
            tools = number, _digest(event.get("tools"))
        elif kind == "message" and isinstance(event.get("message"), dict):
            message = event["message"]
            role = str(message.get("role"))
            fields = message if role == "assistant" else None
            messages[int(event.get("number") or 0)] = _Message(number, _digest(message), role, fields)
        elif kind == "request":
            count = event.get("messages")
            count = max(messages, default=0) if not isinstance(count, int) else count
            now = tuple(messages[at] for at in range(1, count + 1) if at in messages)
            present = _Before(now, tools, event.get("tool_choice"))
            yield str(event.get("request")), _sent(path.parent.name, name, number, present, before)
            before = present
        elif kind == "answer" and before is not None and event.get("error") is None:
            before.answer = number, event


def _digest(value: Any) -> bytes:
    return blake2b(json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _sent(conversation: str, name: str, line: int, now: _Before, before: _Before | None) -> Sent:
    if before is None:
        return Sent(conversation, len(now.messages), None, None, None, None, ())
    common = 0
    for one, other in zip(now.messages, before.messages, strict=False):
        if one.digest != other.digest:
            break
        common += 1
    of = len(before.messages)
    if common == 0 and len(now.messages) <= 2:  # a system prompt and a task: another conversation in the same file
        return Sent(conversation, len(now.messages), None, None, None, None, ())
    changed, proofs = _changed(name, line, now, before, common)
    answer = None
    if common == of and before.answer is not None:
        answer, more = _answered(name, now.messages[of : of + 1], *before.answer)
        proofs += more
    return Sent(conversation, len(now.messages), of, common, changed, answer, proofs)


def _changed(name: str, line: int, now: _Before, before: _Before, common: int) -> tuple[str | None, tuple[Said, ...]]:
    of = len(before.messages)
    if common < min(of, len(now.messages)):
        was, turned = before.messages[common], now.messages[common]
        what = f"message {common + 1} of {of} ({turned.role}) was sent with another content than before"
        return what, (_said(name, was.line, f"{was.role}: as sent before"), _said(name, turned.line, "as sent now"))
    if common < of:
        return f"{of - common} of {of} messages sent before were left out", (_said(name, line, "the request"),)
    if now.tools != before.tools and now.tools is not None:
        return "the list of tools was changed", (_said(name, now.tools[0], "the tools sent now"),)
    if now.choice != before.choice:
        what = f"tool_choice was changed from {json.dumps(before.choice)} to {json.dumps(now.choice)}"
        return what, (_said(name, line, f"tool_choice {json.dumps(now.choice)}"),)
    return None, ()


def _answered(
    name: str, following: tuple[_Message, ...], line: int, answer: Mapping[str, Any]
) -> tuple[str, tuple[Said, ...]]:
    """How the answer before stands in what is sent now."""
    if not following or following[0].fields is None:
        return LEFT_OUT, (_said(name, line, "the answer, which was not sent back"),)
    sent = following[0]
    fields = sent.fields or {}
    differs = []
    if answer.get("reasoning") and (fields.get("reasoning_content") or fields.get("reasoning")) != answer["reasoning"]:
        differs.append("without its reasoning" if not fields.get("reasoning_content") else "with other reasoning")
    if (fields.get("content") or "") != (answer.get("content") or ""):
        differs.append("with another text")
    kept, made = _calls(fields.get("tool_calls")), _calls(answer.get("tool_calls"))
    if kept != made:
        fewer = kept == made[: len(kept)]
        differs.append(f"with {len(kept)} of its {len(made)} tool calls" if fewer else "with other tool calls")
    if not differs:
        return AS_WRITTEN, ()
    proofs = (_said(name, line, "the answer"), _said(name, sent.line, "as it was sent back"))
    return f"sent back {' and '.join(differs)}", proofs


def _calls(calls: Any) -> list[tuple[str, str]]:
    """Names and arguments; a message has them under `function`."""
    each = [one.get("function", one) for one in calls or () if isinstance(one, dict)]
    return [(str(one.get("name")), str(one.get("arguments"))) for one in each]


def _said(name: str, line: int, text: str) -> Said:
    return Said(name, line, text[:_SHOWN])
