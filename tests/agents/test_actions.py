"""Is what a model says read as the calls it meant, and kept as it said it?"""

import json

import pytest

from agentload.agents.actions import JsonActions, NativeActions, arguments_of
from agentload.core.records import Completion, ToolCall
from tests.agents.loop_parts import Echo


def answer(content: str = "", reasoning: str = "", *calls: ToolCall) -> Completion:
    return Completion("r", "a0", 0, 0, 1, 1, 2, 200, content=content, reasoning=reasoning, tool_calls=calls)


ACTION = {"tool": "bash", "arguments": {"command": "grep -n '{' src/lib.rs"}}
TEXT = json.dumps(ACTION)


@pytest.mark.parametrize(
    "said",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"Let me look for it.\n\n{TEXT}\n\nThen I will know.",
        f"In Rust a body is {{ ... }}; `{{}}` is empty. {TEXT}",  # braces that are no JSON, and JSON that is no action
        f'{{"thought": "none", "tool": 3}} {TEXT}',  # a tool that is no name
        f"{TEXT} {json.dumps({'tool': 'read', 'arguments': {}})}",  # the first counts
        f'{{"broken": {TEXT}',  # inside an object that never closes
        json.dumps({"action": ACTION}),  # wrapped
    ],
    ids=["bare", "fence", "prose", "braces", "no-name", "two", "unclosed", "wrapped"],
)
def test_a_json_action_is_found_whatever_stands_around_it(said: str) -> None:
    message, calls = JsonActions().said(answer(said))
    assert message == {"role": "assistant", "content": said}
    assert [(call.name, arguments_of(call)) for call in calls] == [("bash", ACTION["arguments"])]


@pytest.mark.parametrize("said", ["", "It is a clock.", "fn main() { {} }", '{"arguments": {}}', '["tool", "read"]'])
def test_text_without_an_action_is_an_answer(said: str) -> None:
    assert JsonActions().said(answer(said)) == ({"role": "assistant", "content": said}, ())


@pytest.mark.parametrize("depth", [940, 960, 980, 3000])
def test_an_action_that_nests_too_deep_is_none_or_has_bad_arguments(depth: int) -> None:
    nested = '{"tool": "read", "arguments": {"path": ' + "[" * depth + "]" * depth + "}}"
    message, calls = JsonActions().said(answer(nested))
    assert message == {"role": "assistant", "content": nested}
    assert len(calls) <= (0 if depth == 3000 else 1)  # below about 1,000 it depends on how deep the caller is
    assert [arguments_of(call) for call in calls] == [None] * len(calls)
    assert JsonActions().said(answer(f"{nested} {TEXT}"))[1][0].name in ("read", "bash")


def test_a_json_action_without_arguments_has_none_and_ids_count_up() -> None:
    actions = JsonActions()
    first = actions.said(answer('{"tool": "read"}'))[1][0]
    second = actions.said(answer('{"tool": "read", "arguments": "src/lib.rs"}'))[1][0]
    assert first == ToolCall("json-1", "read", "{}")
    assert (second.id, arguments_of(second)) == ("json-2", None)  # a text is no object: the loop says so to the model


def test_json_actions_tell_of_the_tools_in_the_system_prompt_and_not_in_the_request() -> None:
    actions, tools = JsonActions(), [Echo("read"), Echo("bash")]
    assert actions.request_tools(tools) == ()
    note = actions.system_note(tools)
    assert '- read: read something Arguments: {"type": "object", "properties": {}}' in note
    assert "- bash: bash something" in note
    assert actions.result(ToolCall("json-1", "read", "{}"), "text") == {
        "role": "user",
        "content": "Result of read:\ntext",
    }


def test_native_calls_are_kept_as_they_came_with_content_null_and_the_reasoning_beside() -> None:
    call = ToolCall("call-7", "read", '{ "path" : "é" }')
    message, calls = NativeActions().said(answer("", "I look first", call))
    assert message == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I look first",
        "tool_calls": [
            {"id": "call-7", "type": "function", "function": {"name": "read", "arguments": '{ "path" : "é" }'}}
        ],
    }
    assert calls == (call,)


@pytest.mark.parametrize(
    "broken",
    [
        '{"path": ',
        "[1]",
        '"text"',
        "null",
        "NaN",
        '{"limit": NaN}',
        '{"limit": 1e400}',
        '{"path": "a"} extra',
        pytest.param("[" * 1000, id="deep"),
        pytest.param('{"a":' + "[" * 50 + "]" * 50 + "}", id="51 deep"),
        pytest.param('{"a":' * 3000 + "1" + "}" * 3000, id="deep object"),
    ],
)
def test_native_arguments_that_are_no_object_become_one_in_the_history_only(broken: str) -> None:
    message, calls = NativeActions().said(answer("", "", ToolCall("c", "read", broken)))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"unparsed": broken}
    assert calls[0].arguments == broken


def test_arguments_50_deep_are_read() -> None:
    text = '{"a":' + "[" * 49 + "]" * 49 + "}"
    assert arguments_of(ToolCall("c", "read", text)) == json.loads(text)


def test_empty_arguments_are_an_empty_object_on_both_sides() -> None:
    call = ToolCall("c", "read", "")
    message, _ = NativeActions().said(answer("", "", call))
    assert arguments_of(call) == {}
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {}


def test_a_native_answer_has_text_even_when_it_is_empty() -> None:
    assert NativeActions().said(answer("")) == ({"role": "assistant", "content": ""}, ())
    assert NativeActions().said(answer("done")) == ({"role": "assistant", "content": "done"}, ())


def test_of_several_native_calls_the_first_is_kept() -> None:
    one, two = ToolCall("c1", "read", "{}"), ToolCall("c2", "read", "{}")
    message, calls = NativeActions().said(answer("", "", one, two))
    assert calls == (one,)
    assert [call["id"] for call in message["tool_calls"]] == ["c1"]
    assert NativeActions().parameters() == {"parallel_tool_calls": False}
    assert JsonActions().parameters() == {}


def test_native_tools_are_functions_with_their_schemas() -> None:
    assert NativeActions().request_tools([Echo("read")]) == (
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "read something",
                "parameters": {"type": "object", "properties": {}},
            },
        },
    )
    assert NativeActions().system_note([Echo()]) == ""
    assert NativeActions().result(ToolCall("c9", "read", "{}"), "text") == {
        "role": "tool",
        "tool_call_id": "c9",
        "content": "text",
    }
