"""Does the simulated model make several calls in an answer only when asked, and does its server know them again?"""

import json
from collections import Counter
from math import sqrt
from typing import Any

import pytest

from agentload.agents.actions import NativeActions
from agentload.core.records import Completion, ToolCall
from agentload.twin import wire
from agentload.twin.events import Event
from agentload.twin.face import Ask, Face, Reply
from agentload.twin.lengths import Lengths, Settings, always
from agentload.twin.rendering import Mark, ids_of_calls
from agentload.twin.scripted import answer, deltas
from tests.twin.worlds import server

Message = dict[str, Any]
TOOLS = tuple({"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "bash"))
PATHS = [f"src/{folder}/{name}.rs" for folder in ("tz", "py", "domain") for name in ("store", "refs", "mod", "date")]
MANY = Settings(Lengths(thinking_share=0.0, calls=always(60)))


def listed() -> list[Message]:
    """A conversation in which all files have been listed."""
    command = json.dumps({"command": "find . -type f -not -path './.git/*' | sort | head -n 400"})
    call = {"id": "call_0", "type": "function", "function": {"name": "bash", "arguments": command}}
    return [
        {"role": "user", "content": "How does `ZoneStore` empty its zone cache?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "".join(f"./{path}\n" for path in PATHS)},
    ]


def test_several_calls_come_only_when_they_are_asked_for_and_in_the_published_shares() -> None:
    seeds = range(800)
    assert {len(answer(listed(), TOOLS, seed, MANY).tool_calls) for seed in seeds} == {1}
    counts = Counter(len(answer(listed(), TOOLS, seed, MANY, parallel=True).tool_calls) for seed in seeds)
    for calls, share in ((1, 0.642), (2, 0.213), (3, 0.094), (4, 0.052)):
        assert abs(counts[calls] - len(seeds) * share) <= 4 * sqrt(len(seeds) * share * (1 - share))
    assert set(counts) == {1, 2, 3, 4}


def test_the_first_call_is_the_same_as_where_one_is_made_alone_and_none_comes_twice() -> None:
    for seed in range(60):
        one, several = (answer(listed(), TOOLS, seed, MANY, parallel=parallel) for parallel in (False, True))
        assert several.tool_calls[0] == one.tool_calls[0]
        made = [(call.name, call.arguments) for call in several.tool_calls]
        assert len(set(made)) == len(made)
        assert len({call.id for call in several.tool_calls}) == len(made)
        assert several == answer(json.loads(json.dumps(listed())), TOOLS, seed, MANY, parallel=True)


def test_there_are_no_more_calls_than_the_task_is_to_have_and_the_first_is_one_listing() -> None:
    few = Settings(Lengths(thinking_share=0.0, calls=always(3)))
    assert max(len(answer(listed(), TOOLS, seed, few, parallel=True).tool_calls) for seed in range(200)) == 2
    start = listed()[:1]
    assert {len(answer(start, TOOLS, seed, MANY, parallel=True).tool_calls) for seed in range(50)} == {1}
    # Two calls in one answer are two of the three.
    twice = listed()
    twice[1]["tool_calls"].append({**twice[1]["tool_calls"][0], "id": "call_1"})
    twice.append({**twice[2], "tool_call_id": "call_1"})
    assert {len(answer(twice, TOOLS, seed, few, parallel=True).tool_calls) for seed in range(50)} == {1}


def test_each_token_is_one_piece_and_a_cut_loses_all_calls() -> None:
    seed = next(seed for seed in range(99) if len(answer(listed(), TOOLS, seed, MANY, parallel=True).tool_calls) == 3)
    said = answer(listed(), TOOLS, seed, MANY, parallel=True)
    assert said.output_tokens == said.reasoning_tokens + 1 + said.content_tokens + said.call_tokens
    parts = deltas(said)
    assert len(parts) == said.output_tokens
    assert "".join(text for kind, text in parts if kind == "arguments") == "".join(
        call.arguments for call in said.tool_calls
    )
    assert [said.ids.count(mark) for mark in (Mark.CALLS, Mark.INVOKE, Mark.CALLS_END)] == [1, 3, 1]
    cut = answer(listed(), TOOLS, seed, MANY, parallel=True, max_tokens=said.output_tokens - 1)
    assert (cut.tool_calls, cut.finish) == ((), "length")


def test_the_calls_of_one_answer_are_opened_and_closed_once() -> None:
    first, second = ids_of_calls([("read", "{}"), ("bash", "{}")])
    assert (first[0], first[-1], second[0], second[-1]) == (Mark.CALLS, Mark.INVOKE_END, Mark.INVOKE, Mark.CALLS_END)
    (alone,) = ids_of_calls([("read", "{}")])
    assert (alone[0], alone[-1]) == (Mark.CALLS, Mark.CALLS_END)


# ---- the server around it ------------------------------------------------------------------------------------------


class Played:
    """A server, and replies of it one after the other."""

    def __init__(self) -> None:
        self._out: list[Event] = []
        self._at = 0
        self._face = Face(server(), MANY, seed=1, out=self._out.extend)

    def go(self, request: str, messages: list[Message], seed: int) -> Reply:
        self._at += 10**12
        reply = self._face.ask(Ask(request, messages, seed, TOOLS, fields={"parallel_tool_calls": True}), self._at)
        while (due := self._face.next_ns()) is not None:
            self._face.advance(due)
        return reply


def several(played: Played) -> tuple[Reply, int]:
    for seed in range(99):
        reply = played.go(f"r{seed}", listed(), seed)
        if len(reply.tool_calls) > 1:
            return reply, seed
    raise AssertionError("expected an answer with several calls")


def said(reply: Reply, most: int) -> list[Message]:
    """The history after a reply as the agents' own code writes it, with results in the order of the calls."""
    actions = NativeActions(parallel=True)
    completion = Completion(
        *("r", "a0", 0, 0, None, None, 0, 200, reply.said.content, reply.said.reasoning),
        reply.tool_calls,
        "tool_calls",
    )
    message, calls = actions.said(completion, most)
    return [*listed(), message, *(actions.result(call, "src/lexer.rs\n") for call in calls)]


def test_an_answer_with_several_calls_that_comes_back_whole_goes_on_in_its_slot() -> None:
    played = Played()
    reply, seed = several(played)
    assert reply.finished is not None
    again = played.go("next", said(reply, 9), seed)
    assert again.finished is not None
    assert again.finished.cached_tokens == reply.finished.prompt_tokens + reply.finished.decoded_tokens


def test_an_answer_of_which_the_client_keeps_one_call_leaves_the_slot() -> None:
    played = Played()
    reply, seed = several(played)
    again = played.go("next", said(reply, 1), seed)
    assert again.finished is not None
    assert again.finished.cached_tokens == 0


def test_the_calls_have_ids_of_the_servers_each_another() -> None:
    reply, _ = several(Played())
    again, _ = several(Played())
    assert [call.id for call in reply.tool_calls] == [call.id for call in again.tool_calls]
    assert len({call.id for call in reply.tool_calls}) == len(reply.tool_calls)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_over_http_gets_each_call_with_its_place(stream: bool) -> None:
    reply, _ = several(Played())
    assert reply.finished is not None
    expected = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    if not stream:
        body = wire.whole(reply, reply.finished, "m", 0)
        calls = body["choices"][0]["message"]["tool_calls"]
        assert [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls] == expected
        return
    chunks = wire.Chunks(reply, "m", 0, include_usage=False)
    sent = b"".join(chunks.token(index) for index in range(1, len(reply.parts) + 1)).decode()
    got: dict[int, ToolCall] = {}
    for block in filter(None, sent.split("\n\n")):
        for one in json.loads(block.removeprefix("data: "))["choices"][0]["delta"].get("tool_calls", ()):
            before = got.get(one["index"], ToolCall("", "", ""))
            function = one["function"]
            got[one["index"]] = ToolCall(
                one.get("id", before.id),
                function.get("name", before.name),
                before.arguments + function.get("arguments", ""),
            )
    assert [(one.id, one.name, one.arguments) for _, one in sorted(got.items())] == expected
    assert list(got) == list(range(len(expected)))


def test_the_field_of_a_body_reaches_the_model() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "parallel_tool_calls": True}
    assert wire.parse_chat(json.dumps(body).encode()).fields == {"parallel_tool_calls": True}
