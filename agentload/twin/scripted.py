"""What would a coding agent's model say next, if its work were drawn from published distributions?

`answer` is a pure function of the conversation, the seed and the settings: no clock, no state, the same in each
process. It thinks, makes one call that really runs (a listing first, then reads of files, ranges around a hit, searches
for names) and names only files that the conversation has shown; when the task's drawn number of calls is used up, or
it is told to stop, it answers with paths and lines it saw. A long message of the user's after that is another task, for
which a number of calls is drawn again. Asked for parallel calls it makes up to four in an answer. How much it reads and
writes is `lengths`; what it says between the names means nothing.

The seed is the run's (or the agent's), the same for each request of a conversation: the number of calls is drawn from
it once. A client's per-request seed will not do.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

from agentload.core.records import ToolCall
from agentload.twin.calls import Made, next_call
from agentload.twin.conversation import Call, Seen, see, text_of_message
from agentload.twin.lengths import AT_ONCE, DEFAULT, Draws, Lengths, Settings
from agentload.twin.rendering import Mark, ids_of_calls
from agentload.twin.vocabulary import FIRST_PIECE_ID, count, encode, text_of, text_of_id

# How a loop asks for the final answer; any wording that has both.
_FINISH: Final = ("final answer", "do not call a tool")
_AFTER: Final[Mapping[int, str]] = {  # what the tokens after a mark are
    Mark.THINK_END: "content",
    Mark.INVOKE: "name",
    Mark.ARGUMENTS: "arguments",
}
_NAMED: Final = 40  # places that a final answer names at most
_PLACE_TOKENS: Final = 60  # of text about each, about


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """What the model emits. Counts are of tokens of the twin's vocabulary, marks included in `output_tokens` only."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    finish: str  # stop | length | tool_calls
    reasoning_tokens: int
    content_tokens: int
    call_tokens: int  # of the calls, their marks included; also of those that were cut, which no client sees
    ids: tuple[int, ...]  # all of it, in order: what stays in the slot
    call_ids: tuple[tuple[int, ...], ...] = ()  # of each whole call, as a server remembers it

    @property
    def tool_call(self) -> ToolCall | None:
        """The first call."""
        return self.tool_calls[0] if self.tool_calls else None

    @property
    def output_tokens(self) -> int:
        """All tokens emitted: the three counts, and one for the end of thinking where there was thinking to end."""
        return len(self.ids)

    def named(self, name: Callable[[int], str]) -> "ScriptedAnswer":
        """Return it with the ids that a server gives its calls, by their places; without a call, itself."""
        named = tuple(replace(call, id=name(place)) for place, call in enumerate(self.tool_calls))
        return replace(self, tool_calls=named) if named else self


def answer(
    conversation: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    seed: int,
    settings: Settings = DEFAULT,
    *,
    max_tokens: int | None = None,
    tool_choice: str | None = None,
    thinking: bool = True,
    ignore_eos: bool = False,
    parallel: bool = False,
) -> ScriptedAnswer:
    """Return the model's answer to `conversation` (OpenAI chat messages, as sent).

    Args:
        tools: of the request; only `read` and `bash` are called.
        seed: the run's or the agent's; see above.
        settings: lengths and mix.
        max_tokens: cut after so many tokens, whatever they are; then the finish is "length" and a torn call is lost.
        tool_choice: "none" asks for the final answer.
        thinking: the prompt ends inside <think>, so that the first thing to emit is reasoning, or its end.
        ignore_eos: go on with text up to `max_tokens`, as a load generator asks.
        parallel: several calls may be made in one answer.
    """
    lengths = settings.lengths
    task, calls_made = _task(conversation, lengths.new_task_chars)
    last = conversation[-1] if conversation else {}
    now = (seed, task, len(conversation), str(last.get("role")), text_of_message(last))
    names = {str((tool.get("function") or tool).get("name")) for tool in tools} & {"read", "bash"}
    fill_up = ignore_eos and max_tokens is not None
    planned = _planned(seed, task, lengths)
    calls: list[tuple[str, str]] = []
    seen = see(conversation)
    if names and tool_choice != "none" and not fill_up and not _told_to_stop(conversation) and calls_made < planned:
        most = planned - calls_made
        wanted = min(most, 1 + Draws("at once", *now).index(list(AT_ONCE))) if parallel and seen.listed else 1
        calls = _calls(seen, names, planned, settings, now, wanted)
    words = Draws("words", *now)
    thought = ""
    if thinking and words.chance(lengths.thinking_share):
        thought = text_of(lengths.thinking_tokens.at(words.unit()), words)
    if not calls:
        wanted = lengths.final_tokens.at(words.unit())
        if fill_up and max_tokens is not None:
            wanted = max(0, max_tokens - count(thought) - thinking)
        return _finish(thought, _final(seen, wanted, words), (), max_tokens, thinking=thinking)
    said = lengths.turn_tokens.at(words.unit()) - sum(map(len, ids_of_calls(calls)))
    made = tuple(ToolCall(f"call_{_digest((*now, place) if place else now)}", *one) for place, one in enumerate(calls))
    return _finish(thought, text_of(said, words), made, max_tokens, thinking=thinking)


def _calls(
    seen: Seen, names: set[str], planned: int, settings: Settings, now: tuple[Any, ...], wanted: int
) -> list[tuple[str, str]]:
    """Return up to `wanted` calls, as names and arguments: each knows of those before it, none of their results."""
    made: list[tuple[str, str]] = []
    for place in range(wanted):
        draws = Draws("call", *now, place) if place else Draws("call", *now)
        call: Made | None = next_call(seen, names, planned, settings, draws)
        if call is None:
            break
        arguments = json.dumps(call[1], ensure_ascii=False, separators=(",", ":"))
        if (call[0], arguments) in made:
            break
        made.append((call[0], arguments))
        seen.calls.append(Call(*made[-1], None))
    return made


def deltas(said: ScriptedAnswer) -> list[tuple[str, str]]:
    """Cut an answer into one (kind, text) a token; kind: reasoning, content, name, arguments or mark.

    Texts of one kind joined are that part of the answer; a mark, and each token of a call that was cut, has none.
    """
    return list(_deltas(said))


def _deltas(said: ScriptedAnswer) -> Iterator[tuple[str, str]]:
    kind = "content" if said.reasoning_tokens == 0 else "reasoning"
    for token in said.ids:
        if token < FIRST_PIECE_ID:
            yield "mark", ""
            kind = _AFTER.get(token, kind)
        elif kind in ("name", "arguments") and not said.tool_calls:
            yield "mark", ""
        else:
            yield kind, text_of_id(token)


def _finish(
    thought: str, content: str, calls: tuple[ToolCall, ...], max_tokens: int | None, *, thinking: bool
) -> ScriptedAnswer:
    """Put the parts together, and cut them where the limit is."""
    reasoning, text = encode(thought), encode(content)
    by_call = tuple(ids_of_calls([(call.name, call.arguments) for call in calls]))
    called = tuple(chain.from_iterable(by_call))
    before = (*reasoning, Mark.THINK_END) if thinking else ()
    whole = (*before, *text, *called)
    if max_tokens is None or len(whole) <= max_tokens:
        finish = "tool_calls" if calls else "stop"
        return ScriptedAnswer(thought, content, calls, finish, len(reasoning), len(text), len(called), whole, by_call)
    ids = whole[:max_tokens]
    of_reasoning = min(len(reasoning), len(ids))
    of_text = min(len(text), max(0, len(ids) - len(before)))
    return ScriptedAnswer(
        "".join(map(text_of_id, reasoning[:of_reasoning])),
        "".join(map(text_of_id, text[:of_text])),
        (),
        "length",
        of_reasoning,
        of_text,
        max(0, len(ids) - len(before) - len(text)),
        ids,
    )


def _task(conversation: Sequence[Mapping[str, Any]], new_task_chars: int) -> tuple[str, int]:
    """Return a name of what the user asked last, and how many calls were made since.

    The first message of the user and each long one after an answer is a task; a short one asks for a little more.
    """
    task, calls, number = "", 0, 0
    for message in conversation:
        role = message.get("role")
        if role == "user":
            text = text_of_message(message)
            if not _asks_to_stop(text):
                kind = "task" if number == 0 or len(text) >= new_task_chars else "further"
                task, calls, number = f"{kind} {number} {text}", 0, number + 1
        elif role == "assistant":
            calls += len(message.get("tool_calls") or ())
    return task, calls


def _planned(seed: int, task: str, lengths: Lengths) -> int:
    spread = lengths.further_calls if task.startswith("further") else lengths.calls
    return spread.at(Draws("planned", seed, task).unit())


def _told_to_stop(conversation: Sequence[Mapping[str, Any]]) -> bool:
    last = conversation[-1] if conversation else {}
    return last.get("role") == "user" and _asks_to_stop(text_of_message(last))


def _asks_to_stop(text: str) -> bool:
    return all(words in text.lower() for words in _FINISH)


def _final(seen: Seen, tokens: int, draws: Draws) -> str:
    """Return an answer of exactly `tokens` tokens that names places it saw, one a paragraph."""
    if tokens <= 0:
        return ""
    parts: list[str] = []
    left = tokens
    for place in _places(seen, draws):
        head = f"\n- `{place}`:" if parts else f"What the code shows:\n- `{place}`:"
        body = _PLACE_TOKENS // 2 + draws.below(_PLACE_TOKENS)
        if count(head) + body > left:
            break
        parts += [head, text_of(body, draws, follows=True)]  # no part ends in a blank, so their tokens add up
        left -= count(head) + body
    return "".join((*parts, text_of(left, draws, follows=bool(parts))))


def _places(seen: Seen, draws: Draws) -> list[str]:
    """Return places as path:line, in order of first sight, drawn among all that were shown."""
    shown = list(seen.shown)
    keep = sorted({draws.below(len(shown)) for _ in range(_NAMED)}) if shown else []
    return [f"{shown[at][0]}:{shown[at][1]}" for at in keep]


def _digest(now: tuple[Any, ...]) -> str:
    return blake2b(repr(now).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
