"""What did the model answer, put together from the events of one stream?

Pure: events in, one answer out. Follows the chat completion chunks of the OpenAI API, with what servers add or leave
out: `reasoning_content` (llama.cpp, ds4, SGLang) or `reasoning` (vLLM), llama.cpp's `timings` and `prompt_progress`,
tool-call fragments without an id or an index, errors as events. A token is a non-empty reasoning or content text or a
tool-call fragment with a name or arguments; a role, an empty text, a progress report and a usage block are not. Where
the usage counts one token and none of these came, its text was empty, and it came with the finish.
"""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from agentload.agents.sse import ERROR, Event
from agentload.core.records import TEXTLESS, AnswerPhases, ServerTimings, ToolCall, Usage

# First words of an error, stable: callers tell failures apart by them.
CONTEXT_OVERFLOW: Final = "context overflow"  # the prompt does not fit the server's context
SERVER_SAID: Final = "server error"  # the server reported a failure inside the stream
BAD_EVENT: Final = "bad event"  # an event is not what a chat completion stream may hold

_DONE: Final = b"[DONE]"
_TOP_KNOWN: Final = frozenset(("choices", "id", "model", "object", "created", "usage", "timings", "error"))
_CHOICE_KNOWN: Final = frozenset(("index", "delta", "finish_reason"))
_DELTA_KNOWN: Final = frozenset(("role", "content", "reasoning_content", "reasoning", "tool_calls"))
_OVERFLOW_KEYS: Final = frozenset(("context_length_exceeded", "exceed_context_size_error"))
_OVERFLOW_WORDS: Final = re.compile(
    r"(maximum|model'?s) context length|context (size|window)|context length is", re.IGNORECASE
)
_SHOWN_CHARS: Final = 300  # of a server's text in a one-line error
# What a terminal would obey (category Cc), and half an emoji, which cannot be printed.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# What is kept of an event is written to the run's files, whose readers take 60 levels, 10**12 tokens and 1e10 ms.
MAX_DEPTH: Final = 50
_MAX_COUNT: Final = 10**12
_MAX_MS: Final = 1e10


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


# NaN, Infinity and 1e400 are numbers that nobody knows, and no JSON to write: null.
_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite)


def _decoded(data: bytes) -> Any:
    try:
        value = _DECODER.decode(data.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError(f"nested at most {MAX_DEPTH} deep") from None
    # Fewer brackets than that, as nearly always, cannot nest deeper.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise ValueError(f"nested at most {MAX_DEPTH} deep")
    return value


def is_deeper(value: Any, left: int) -> bool:
    """Whether lists and objects nest more than `left` deep in `value`."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return left == 0 or any(is_deeper(one, left - 1) for one in inner)


def _text(value: Any) -> str:
    """`value` as it is when it is text, else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(deeply nested JSON)"


def one_line(text: str) -> str:
    """`text` on one line, at most 300 characters; control characters as their escapes."""
    flat = _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], " ".join(text.split()))
    return flat if len(flat) <= _SHOWN_CHARS else flat[: _SHOWN_CHARS - 3] + "..."


def explain(error: Any, prefix: str) -> str:
    """One line for a server's error object, text or None; begins with CONTEXT_OVERFLOW where it is one, else `prefix`.

    Recognised by code or type (ds4 `context_length_exceeded`, llama.cpp `exceed_context_size_error`), else by the
    words that vLLM and SGLang use.
    """
    inner = error.get("error", error) if isinstance(error, dict) else error
    kind, message = "", inner
    if isinstance(inner, dict):
        code, called = _text(inner.get("code") or ""), _text(inner.get("type") or "")
        kind = code or called
        message = inner.get("message", inner)
        overflow = not _OVERFLOW_KEYS.isdisjoint((code, called))
    else:
        overflow = False
    text = _text(message)
    overflow = overflow or _OVERFLOW_WORDS.search(text) is not None
    said = one_line(f"{text} ({kind})" if kind else text)
    return f"{CONTEXT_OVERFLOW}: {prefix}: {said}" if overflow else f"{prefix}: {said}"


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """The answer so far. `problem` is the first thing that makes it no answer; parsing goes on after it."""

    finish: str | None = None
    t_done: int | None = None  # stamp of [DONE]
    t_first_token: int | None = None
    chunk_ns: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)
    server_id: str | None = None
    model: str | None = None
    raw_usage: dict[str, Any] | None = None
    raw_timings: dict[str, Any] | None = None
    raw_extra: list[tuple[int, str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str | None = None
    _finish_ns: int | None = None  # stamp of the event with the finish
    _content: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: dict[int, _Call] = field(default_factory=dict)
    _last_extra: dict[str, Any] = field(default_factory=dict)

    # ---- in

    def add(self, event: Event) -> None:
        """Take the next event."""
        if event.data.strip() == _DONE:
            self.t_done = self.t_done or event.t_ns
            return
        self.chunk_ns.append(event.t_ns)
        try:
            chunk = _decoded(event.data)
        except ValueError as error:  # also when it is not UTF-8
            shown = one_line(event.data.decode("utf-8", "replace"))
            if event.name == ERROR:
                self._fail(explain(shown, SERVER_SAID))
            else:
                self._fail(f"{BAD_EVENT}: event {len(self.chunk_ns)}: expected JSON ({error}), got {shown}")
            return
        if event.name == ERROR or (isinstance(chunk, dict) and chunk.get("error")):
            self._fail(explain(chunk, SERVER_SAID))
        elif isinstance(chunk, dict):
            self._chunk(event.t_ns, chunk)
        else:
            self._odd("a chat completion chunk", chunk)

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _odd(self, expected: str, got: Any) -> None:
        shown = one_line(json.dumps(got, ensure_ascii=False))
        self._fail(f"{BAD_EVENT}: event {len(self.chunk_ns)}: expected {expected}, got {shown}")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _chunk(self, t_ns: int, chunk: dict[str, Any]) -> None:
        if isinstance(chunk.get("id"), str):
            self.server_id = self.server_id or chunk["id"]
        if isinstance(chunk.get("model"), str):
            self.model = self.model or chunk["model"]
        if isinstance(chunk.get("timings"), dict):
            self.raw_timings = chunk["timings"]
        if isinstance(chunk.get("usage"), dict):
            if self.raw_usage is not None and self.raw_usage != chunk["usage"]:
                self._note("usage came more than once: the last one counts")
            self.raw_usage = chunk["usage"]
        self._keep(t_ns, "", chunk, _TOP_KNOWN)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            self._odd("a list of choices", choices)
            return
        for choice in choices:
            if not isinstance(choice, dict):
                self._odd("a choice object", choice)
            elif choice.get("index", 0) == 0:
                self._choice(t_ns, choice)
            else:
                self._note("the answer has more than one choice: only the first is read")

    def _keep(self, t_ns: int, where: str, found: dict[str, Any], known: frozenset[str]) -> None:
        if known.issuperset(found):  # nearly always
            return
        for name in sorted(found.keys() - known):
            key = where + name
            if key not in self._last_extra or self._last_extra[key] != found[name]:
                self._last_extra[key] = found[name]
                self.raw_extra.append((t_ns, key, found[name]))

    def _choice(self, t_ns: int, choice: dict[str, Any]) -> None:
        if choice.get("finish_reason") is not None:
            self.finish = str(choice["finish_reason"])
            self._finish_ns = t_ns
        self._keep(t_ns, "choices.", choice, _CHOICE_KNOWN)
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            self._odd("a delta object", delta)
            return
        self._keep(t_ns, "choices.delta.", delta, _DELTA_KNOWN)
        # Some servers send both names with the same text: the first that is not empty is taken.
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        content = delta.get("content") or ""
        if not isinstance(reasoning, str) or not isinstance(content, str):
            self._odd("text in a delta", delta)
            return
        self._reasoning.append(reasoning)
        self._content.append(content)
        fragments = delta.get("tool_calls") or []
        if not isinstance(fragments, list) or not all(isinstance(fragment, dict) for fragment in fragments):
            self._odd("a list of tool-call fragments", fragments)
            return
        in_calls = [self._fragment(fragment) for fragment in fragments]
        if reasoning or content or any(in_calls):
            self.token_ns.append(t_ns)
            if self.t_first_token is None:
                self.t_first_token = t_ns

    def _fragment(self, fragment: dict[str, Any]) -> bool:
        """Add a tool-call fragment to its call; whether it carries a token."""
        function = fragment.get("function") or {}
        if not isinstance(function, dict):
            self._odd("a function in a tool-call fragment", fragment)
            return False
        call_id, name, arguments = fragment.get("id") or "", function.get("name") or "", function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
            self._note("a tool call's arguments came as JSON, not as text")
        call = self._call(fragment.get("index"), str(call_id))
        call.id = call.id or str(call_id)
        if name and call.name and name != call.name:
            self._note(f"a tool call changed its name from {call.name!r} to {name!r}: the first counts")
        call.name = call.name or str(name)
        call.arguments.append(arguments)
        return bool(name or arguments)

    def _call(self, index: Any, call_id: str) -> _Call:
        """The call a fragment belongs to: by index; without one, or when its id is another call's, by id."""
        last = max(self._calls, default=-1)
        if not isinstance(index, int):
            self._note("tool-call fragments without an index: told apart by their ids")
            index = last + 1 if last < 0 or (call_id and self._calls[last].id) else last
            by_id = [key for key, call in self._calls.items() if call_id and call.id == call_id]
            index = by_id[0] if by_id else index
        elif call_id and index in self._calls and self._calls[index].id not in ("", call_id):
            self._note("tool calls that share an index: told apart by their ids")
            by_id = [key for key, call in self._calls.items() if call.id == call_id]
            index = by_id[0] if by_id else last + 1
        return self._calls.setdefault(index, _Call())

    def ended(self) -> None:
        """Take note that no event follows: an only token without a text was not seen until now.

        Of several such tokens nobody knows when the first one came.
        """
        usage = self.usage()
        if self.token_ns or self._finish_ns is None or usage is None or usage.completion_tokens != 1:
            return
        self.token_ns.append(self._finish_ns)
        self.t_first_token = self._finish_ns
        self._note(TEXTLESS)

    # ---- out

    @property
    def content(self) -> str:
        """The text that is the answer."""
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        """The text that came before it as reasoning."""
        return "".join(self._reasoning)

    def tool_calls(self, request: str) -> tuple[ToolCall, ...]:
        """The calls in the order of their indexes; one without an id gets one from `request` and its position."""
        calls = []
        for position, (_, call) in enumerate(sorted(self._calls.items())):
            if not call.id:
                self._note("a tool call came without an id: one was made up")
            calls.append(ToolCall(call.id or f"{request}-call{position}", call.name, "".join(call.arguments)))
        return tuple(calls)

    def usage(self) -> Usage | None:
        """The usage block; a count that is absent, null or impossible is None."""
        raw = self.raw_usage
        if raw is None:
            return None
        prompt, completion = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
        return Usage(
            prompt_tokens=self._count(raw, "prompt_tokens"),
            completion_tokens=self._count(raw, "completion_tokens"),
            cached_tokens=self._count(prompt, "cached_tokens"),
            reasoning_tokens=self._count(completion, "reasoning_tokens"),
        )

    def timings(self) -> ServerTimings | None:
        """llama.cpp's timings; None without all of prompt_n, prompt_ms, predicted_n, predicted_ms."""
        raw = self.raw_timings
        prompt, decoded = self._count(raw, "prompt_n"), self._count(raw, "predicted_n")
        prompt_ms, decode_ms = self._ms(raw, "prompt_ms"), self._ms(raw, "predicted_ms")
        if prompt is None or decoded is None or prompt_ms is None or decode_ms is None:
            return None
        return ServerTimings(self._count(raw, "cache_n"), prompt, prompt_ms, decoded, decode_ms)

    def phases(self) -> AnswerPhases | None:
        """The `metrics` that vLLM sends with its last usage; None without those of prefill and decode."""
        raw = self._last_extra.get("metrics")
        prefill_ms, decode_ms = self._ms(raw, "time_to_first_token_ms"), self._ms(raw, "generation_time_ms")
        if prefill_ms is None or decode_ms is None:
            return None
        return AnswerPhases(self._ms(raw, "queue_time_ms"), prefill_ms, decode_ms)

    def _count(self, raw: Any, name: str) -> int | None:
        value = self._known(raw, name, _MAX_COUNT)
        return value if isinstance(value, int) else None

    def _ms(self, raw: Any, name: str) -> float | None:
        value = self._known(raw, name, _MAX_MS)
        return None if value is None else float(value)

    def _known(self, raw: Any, name: str, most: float) -> int | float | None:
        """A number from 0 to `most`; any other is as if it were not there, with a note."""
        value = raw.get(name) if isinstance(raw, dict) else None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        if not 0 <= value <= most:
            self._note(one_line(f"{name}: expected 0 to {most:.0e}, got {str(value)[:40]}: not known"))
            return None
        return value
