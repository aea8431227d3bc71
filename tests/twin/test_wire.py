"""Does a chat body ask what ds4-server would read in it, and is what comes back the JSON that its API has?"""

import json
from typing import Any

import pytest

from agentload.core.records import ToolCall
from agentload.twin import wire
from agentload.twin.events import Finished, Rejected
from agentload.twin.face import Reply, refusal
from agentload.twin.options import Options
from agentload.twin.rendering import Mark, call_ids
from agentload.twin.scripted import ScriptedAnswer
from agentload.twin.vocabulary import encode

THOUGHT, SAID, NAME, ARGUMENTS = "Look at the lock.", "I read it.", "read", '{"path":"src/a.rs"}'
CALL = ToolCall("call_0123456789abcdef0123456789abcdef", NAME, ARGUMENTS)
DONE = Finished(1, "r1", "tool_calls", prompt_tokens=120, cached_tokens=100, new_prefill_tokens=20, decoded_tokens=25)


def asked(**fields: Any) -> wire.Asked:
    return wire.parse_chat(json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def reply() -> Reply:
    called = call_ids(NAME, ARGUMENTS)
    ids = (*encode(THOUGHT), Mark.THINK_END, *encode(SAID), *called)
    counts = len(encode(THOUGHT)), len(encode(SAID)), len(called)
    said = ScriptedAnswer(THOUGHT, SAID, (CALL,), "tool_calls", *counts, ids, (called,))
    parts = (
        *[("reasoning", piece) for piece in ("Look", " at", " the", " lock", ".")],
        ("mark", ""),
        *[("content", piece) for piece in ("I", " read", " it", ".")],
        ("mark", ""),
        ("mark", ""),
        ("name", NAME),
        ("mark", ""),
        *[("arguments", piece) for piece in ('{"', "path", '":', '"src/a', ".rs", '"}')],
        ("mark", ""),
        ("mark", ""),
    )
    return Reply("r1", "chatcmpl-0", said, parts, lambda _reply, _event: None)


def events(data: bytes) -> list[Any]:
    blocks = data.decode().split("\n\n")
    assert blocks.pop() == ""
    return [block if block == "data: [DONE]" else json.loads(block.removeprefix("data: ")) for block in blocks]


def chunks(*, include_usage: bool = True) -> wire.Chunks:
    return wire.Chunks(reply(), "deepseek-v4-flash", 1_796_000_000, include_usage=include_usage)


# ---- what is asked -------------------------------------------------------------------------------------------------


def test_fields_that_the_server_does_not_know_are_skipped() -> None:
    fields = {"logprobs": True, "n": 4, "response_format": {"type": "json_object"}, "metadata": {"agentload_id": "x"}}
    assert asked(**fields, chat_template_kwargs={"enable_thinking": False}) == asked()


def test_max_tokens_wins_over_its_newer_name_and_0_means_none() -> None:
    assert asked(max_tokens=5, max_completion_tokens=9).max_tokens == 5
    assert asked(max_completion_tokens=9).max_tokens == 9
    assert asked(max_tokens=0).max_tokens is None


def test_usage_is_asked_for_by_the_stream_options() -> None:
    assert asked(stream=True, stream_options={"include_usage": True}).include_usage
    assert not asked(stream=True).include_usage
    assert not asked(stream=True, stream_options=None).include_usage


def test_the_chat_model_asks_for_no_thinking() -> None:
    assert asked(model="deepseek-chat").fields == {"think": False}
    assert asked(model="another", reasoning_effort="none").fields == {"reasoning_effort": "none"}


def test_a_tool_choice_that_names_a_function_has_no_effect() -> None:
    assert asked(tool_choice={"type": "function", "function": {"name": "read"}}).tool_choice is None
    assert asked(tool_choice="none").tool_choice == "none"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "invalid JSON"),
        (b"{", "invalid JSON"),
        (b'{"messages": "\xff"}', "invalid JSON"),
        (b"[]", "expected a JSON object, got list"),
        (b"{}", "invalid messages: Field required"),
        (b'{"messages": "hi"}', "invalid messages: Input should be a valid list"),
        (b'{"messages": [7]}', "invalid messages.0"),
        (b'{"messages": [{"role": "user", "content": 7}]}', "invalid messages.0.content"),
        (b'{"messages": [], "max_tokens": "many"}', "invalid max_tokens"),
        (b'{"messages": [{"role": "assistant", "tool_calls": [7]}]}', "invalid messages.0.tool_calls.0"),
    ],
)
def test_a_body_that_is_none_is_refused_with_what_was_wrong(body: bytes, said: str) -> None:
    with pytest.raises(wire.BadRequestError, match=f"^{said}"):
        wire.parse_chat(body)


# ---- conversations -------------------------------------------------------------------------------------------------


def test_two_conversations_with_the_same_words_have_two_seeds_and_each_is_known_again_by_its_calls() -> None:
    conversations = wire.Conversations(7)
    start = [{"role": "user", "content": "Look at it"}]
    first, second = conversations.seed_of(start), conversations.seed_of(start)
    assert first != second
    conversations.gave("call_a", first)
    conversations.gave("call_b", second)
    called = {"role": "assistant", "tool_calls": [{"id": "call_b", "function": {"name": "read", "arguments": "{}"}}]}
    assert conversations.seed_of([*start, called]) == second


def test_the_seeds_of_conversations_are_the_servers_seed_and_their_order() -> None:
    assert wire.Conversations(7).seed_of([]) == wire.Conversations(7).seed_of([])
    assert wire.Conversations(7).seed_of([]) != wire.Conversations(8).seed_of([])


# ---- the answer's JSON ---------------------------------------------------------------------------------------------


def test_a_stream_begins_with_a_role_and_ends_with_finish_usage_and_done() -> None:
    made = chunks()
    (role,) = events(made.role())
    assert role == {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": 1_796_000_000,
        "model": "deepseek-v4-flash",
        "choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}],
    }
    finish, usage, done = events(made.end(DONE))
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 120,
        "completion_tokens": 25,
        "total_tokens": 145,
        "prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 20},
    }
    assert done == "data: [DONE]"
    assert len(events(chunks(include_usage=False).end(DONE))) == 2


def test_seven_characters_of_reasoning_are_held_back_until_it_ends() -> None:
    """`Look at the lock.` has 17: after ` lock` 16 are there and 9 sent, and the end of thinking lets the rest out."""
    made = chunks()
    sent = [
        "".join(one["choices"][0]["delta"]["reasoning_content"] for one in events(made.token(at))) for at in range(1, 7)
    ]
    assert sent == ["", "", "Look", " at t", "h", "e lock."]


def test_a_call_is_named_first_and_its_arguments_follow_in_pieces() -> None:
    made = chunks()
    deltas = [one["choices"][0]["delta"] for at in range(1, len(reply().parts) + 1) for one in events(made.token(at))]
    assert "".join(delta.get("content", "") for delta in deltas) == SAID
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0] == {
        "index": 0,
        "id": CALL.id,
        "type": "function",
        "function": {"name": "read", "arguments": ""},
    }
    assert "".join(call["function"]["arguments"] for call in calls) == ARGUMENTS
    assert all("id" not in call for call in calls[1:])


def test_an_answer_in_one_piece_has_all_of_it() -> None:
    found = wire.whole(reply(), DONE, "some-model", 5)
    message = found["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (SAID, THOUGHT)
    call = {"id": CALL.id, "type": "function", "function": {"name": NAME, "arguments": ARGUMENTS}}
    assert message["tool_calls"] == [call]
    assert (found["model"], found["created"], found["usage"]["total_tokens"]) == ("some-model", 5, 145)


def test_a_prompt_that_is_too_long_is_a_400_with_both_numbers() -> None:
    status, error = refusal(Rejected(1, "r1", "context_length_exceeded", 70_000), 65_536)
    assert (status, error["code"], error["n_prompt_tokens"], error["n_ctx"]) == (
        400,
        "context_length_exceeded",
        70_000,
        65_536,
    )


def test_the_model_says_its_context_and_that_it_is_simulated() -> None:
    (model,) = wire.models(Options(ctx=65_536))["data"]
    assert (model["id"], model["context_length"], model["simulated"]) == ("deepseek-v4-flash", 65_536, True)
    assert model["top_provider"]["max_completion_tokens"] == 65_536
    assert wire.model(Options(ctx=1_000_000))["top_provider"]["max_completion_tokens"] == 393_216


def test_half_an_emoji_goes_out_as_its_escape() -> None:
    assert wire.encode({"text": "\ud83d"}) == b'{"text":"\\ud83d"}'
