"""Is a prompt rendered as ds4 does it, and does it go on from a slot exactly when the answer comes back as it was?"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents.actions import NativeActions
from agentload.core.records import Completion, ToolCall
from agentload.twin.lengths import Lengths, Settings, always
from agentload.twin.rendering import Block, Live, Mark, Prompt, Renderer, call_ids, common_tokens, go_on, live_after
from agentload.twin.scripted import answer
from agentload.twin.slots import common
from agentload.twin.vocabulary import count, encode

Message = dict[str, Any]
TOOLS = (
    {"type": "function", "function": {"name": "read", "description": "Read.", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}},
)
SYSTEM: Message = {"role": "system", "content": "You are a coding agent."}
TASK: Message = {"role": "user", "content": "Look at src/lib.rs. Where is the zone cache emptied?"}
MANY_CALLS = Settings(Lengths(calls=always(20), thinking_share=0.5))
ARGUMENTS = '{"path":"a.rs"}'


def flat(prompt: Prompt) -> list[int]:
    return [one for block in prompt.blocks for one in block.ids]


def called(arguments: str = ARGUMENTS, **fields: Any) -> Message:
    function = {"name": "read", "arguments": arguments}
    return {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        **fields,
    }


def result(text: str) -> Message:
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


# ---- the rendering -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("thinking", "mark"), [(True, Mark.THINK), (False, Mark.THINK_END)])
def test_a_first_prompt_ends_with_the_assistants_mark_and_how_it_is_to_think(thinking: bool, mark: Mark) -> None:
    prompt = Renderer().render([SYSTEM, TASK], thinking=thinking)
    wanted = [Mark.BEGIN, *encode(SYSTEM["content"]), Mark.USER, *encode(TASK["content"]), Mark.ASSISTANT, mark]
    assert flat(prompt) == wanted
    assert prompt.tokens == len(wanted)
    assert prompt.thinking is thinking
    assert prompt.anchor_tokens == 1 + count(SYSTEM["content"]) + 1  # up to and with the user's mark


def test_schemas_come_before_the_system_text_and_are_shared_by_all_agents() -> None:
    first = Renderer().render([SYSTEM, TASK], TOOLS)
    other = Renderer().render([SYSTEM, {"role": "user", "content": "Another one."}], TOOLS)
    assert flat(first)[0] == Mark.BEGIN
    assert first.anchor_tokens is not None
    head = flat(first)[1 : first.anchor_tokens - 1]
    assert head[-count("\n\n" + SYSTEM["content"]) :] == list(encode("\n\n" + SYSTEM["content"]))
    assert all(count(json.dumps(tool["function"])) < len(head) for tool in TOOLS)
    assert common_tokens(first.blocks, other.blocks) == first.anchor_tokens


def test_a_turn_with_a_call_is_thinking_text_call_end_and_result() -> None:
    prompt = Renderer().render([TASK, called(reasoning_content="Hm."), result("1\tfn x"), result("two")])
    user = [Mark.USER, *encode(TASK["content"])]
    said = [Mark.ASSISTANT, Mark.THINK, *encode("Hm."), Mark.THINK_END, *encode("I look.")]
    call = [Mark.CALLS, Mark.INVOKE, *encode("read"), Mark.ARGUMENTS, *encode('{"path": "a.rs"}')]
    ends = [Mark.INVOKE_END, Mark.CALLS_END, Mark.END]
    # Both results stand after one mark of the user.
    results = [
        Mark.USER,
        Mark.RESULT,
        *encode("1\tfn x"),
        Mark.RESULT_END,
        Mark.RESULT,
        *encode("two"),
        Mark.RESULT_END,
    ]
    assert flat(prompt) == [Mark.BEGIN, *user, *said, *call, *ends, *results, Mark.ASSISTANT, Mark.THINK]


def test_old_reasoning_is_left_out_without_tools_and_kept_with_them() -> None:
    said = {"role": "assistant", "content": "There.", "reasoning_content": "Hm."}
    talk = [TASK, said, {"role": "user", "content": "?"}]
    plain = flat(Renderer().render(talk))
    assert plain.count(Mark.THINK) == 1  # that of the answer to come
    assert plain.count(Mark.THINK_END) == 1
    with_tools = flat(Renderer().render(talk, TOOLS))
    assert with_tools.count(Mark.THINK) == 2
    assert with_tools[-len(encode("?")) - 3 - 1 - count("There.") - 1 :][0] == Mark.THINK_END


def test_thinking_off_renders_no_reasoning_at_all() -> None:
    prompt = Renderer().render([TASK, called(reasoning_content="Hm."), result("x")], TOOLS, thinking=False)
    assert Mark.THINK not in flat(prompt)
    assert flat(prompt).count(Mark.THINK_END) == 2


def test_content_in_parts_and_other_names_of_roles_are_the_same_text() -> None:
    parts = [{"type": "text", "text": "You are "}, {"type": "text", "text": "a coding agent."}]
    same = [{"role": "developer", "content": parts}, TASK, called(), {**result("x"), "role": "function"}]
    assert Renderer().render(same) == Renderer().render([SYSTEM, TASK, called(), result("x")])


def test_a_finished_conversation_asks_for_nothing() -> None:
    prompt = Renderer().render([TASK, {"role": "assistant", "content": "There."}])
    assert flat(prompt)[-1] == Mark.END
    assert not prompt.thinking


# ---- going on from a slot ------------------------------------------------------------------------------------------


def turn(renderer: Renderer, messages: list[Message], live: Live | None, *, thinking: bool) -> tuple[Message, Live]:
    """Let the scripted model answer and the agents' own code write the history."""
    served = go_on(renderer.render(messages, TOOLS, thinking=thinking), live)
    said = answer(messages, TOOLS, 7, MANY_CALLS, thinking=thinking)
    if said.tool_call is not None:
        renderer.remember(said.tool_call.id, said.call_ids[0])
    calls = () if said.tool_call is None else (said.tool_call,)
    completion = Completion("r", "a0", 0, 0, None, None, 0, 200, said.content, said.reasoning, calls, said.finish)
    return NativeActions().said(completion)[0], live_after(served, said.ids)


@pytest.mark.parametrize("thinking", [True, False])
def test_an_answer_sent_back_as_it_was_goes_on_exactly(thinking: bool) -> None:
    renderer, messages = Renderer(), [SYSTEM, TASK]
    live: Live | None = None
    for number in range(8):
        message, after = turn(renderer, messages, live, thinking=thinking)
        call = message["tool_calls"][0]
        text = (
            f"     1\tfn zone_{number}"
            if call["function"]["name"] == "read"
            else "src/a.rs\nsrc/b.rs\nsrc/c.rs\nsrc/d.rs"
        )
        messages = [*messages, message, NativeActions().result(ToolCall(call["id"], "x", ""), text)]
        served = go_on(renderer.render(messages, TOOLS, thinking=thinking), after)
        # What is new: end mark, user mark, the result between its two marks, the next answer's two marks.
        assert served.match == "memory-token"
        assert served.cached_tokens == after.tokens
        assert served.prompt.tokens - served.cached_tokens == 2 + 2 + count(text) + 2
        assert common(served.prompt.runs(), Prompt(after.blocks, after.tokens, None, False).runs()) == after.tokens
        live = after


def sampled(*, thinking: bool = True) -> tuple[Prompt, tuple[int, ...]]:
    prompt = Renderer().render([SYSTEM, TASK], TOOLS, thinking=thinking)
    thought = (*encode("Hm."), Mark.THINK_END) if thinking else ()
    return prompt, (*thought, *encode("I look."), *call_ids("read", ARGUMENTS))


def test_a_call_without_its_sampled_spelling_leaves_the_slot_where_the_spellings_part() -> None:
    prompt, ids = sampled()
    live = live_after(go_on(prompt, None), ids)
    history = [SYSTEM, TASK, called(reasoning_content="Hm."), result("x")]
    for renderer in (Renderer(), Renderer(exact=False)):
        served = go_on(renderer.render(history, TOOLS), live)
        # Sampled {"path":"a.rs"}, canonical {"path": "a.rs"}: alike up to the colon, three tokens.
        before = prompt.tokens + count("Hm.") + 1 + count("I look.") + 2 + count("read") + 1
        assert (served.match, served.cached_tokens, served.common_tokens) == (None, 0, before + 3)
    remembering = Renderer()
    remembering.remember("call_1", call_ids("read", ARGUMENTS))
    assert go_on(remembering.render(history, TOOLS), live).cached_tokens == live.tokens
    forgetful = Renderer(exact=False)
    forgetful.remember("call_1", call_ids("read", ARGUMENTS))
    assert go_on(forgetful.render(history, TOOLS), live).cached_tokens == 0


def test_reasoning_that_the_client_leaves_out_loses_the_slot_at_its_first_token() -> None:
    prompt, ids = sampled()
    renderer = Renderer()
    renderer.remember("call_1", call_ids("read", ARGUMENTS))
    served = go_on(renderer.render([SYSTEM, TASK, called(), result("x")], TOOLS), live_after(go_on(prompt, None), ids))
    assert (served.match, served.cached_tokens, served.common_tokens) == (None, 0, prompt.tokens)


def test_without_tools_a_slot_goes_on_by_what_its_answer_showed() -> None:
    renderer = Renderer()
    talk: list[Message] = [SYSTEM, TASK]
    live: Live | None = None
    for _ in range(3):
        served = go_on(renderer.render(talk), live)
        if live is not None:
            # The slot keeps its reasoning; new are the end mark, the user's mark and word, the answer's two marks.
            assert served.match == "visible-prefix"
            assert served.cached_tokens == live.tokens
            assert served.prompt.tokens == live.tokens + 2 + count("And?") + 2
            assert served.common_tokens == renderer.render([SYSTEM, TASK]).tokens - 1  # where thinking began
        live = live_after(served, (*encode("Hm, hm."), Mark.THINK_END, *encode("There.")), hidden=True)
        talk = [*talk, {"role": "assistant", "content": "There."}, {"role": "user", "content": "And?"}]


def test_forbidding_calls_takes_the_schemas_out_and_so_loses_the_whole_slot() -> None:
    prompt, ids = sampled()
    live = live_after(go_on(prompt, None), ids)
    history = [SYSTEM, TASK, called(reasoning_content="Hm."), result("x")]
    served = go_on(Renderer().render(history, TOOLS, tool_choice="none"), live)
    assert (served.cached_tokens, served.common_tokens) == (0, 1)  # the mark of the beginning
    assert flat(served.prompt).count(Mark.THINK) == 2  # calls in the history keep the reasoning


def test_a_prompt_shorter_than_the_slot_reuses_nothing() -> None:
    prompt, ids = sampled()
    served = go_on(prompt, live_after(go_on(prompt, None), ids))
    assert (served.match, served.cached_tokens, served.common_tokens) == (None, 0, prompt.tokens)


def test_the_call_used_longest_ago_is_forgotten_first() -> None:
    renderer = Renderer(max_ids=2)
    odd = (Mark.CALLS, *encode("odd"), Mark.CALLS_END)
    renderer.remember("call_1", odd)
    renderer.remember("call_2", odd)
    assert encode("odd")[0] in flat(renderer.render([TASK, called()]))  # used again
    renderer.remember("call_3", odd)
    assert encode("odd")[0] in flat(renderer.render([TASK, called()]))
    renderer.remember("call_4", odd)
    renderer.remember("call_5", odd)
    assert encode("odd")[0] not in flat(renderer.render([TASK, called()]))


@given(st.lists(st.integers(256, 259), max_size=12), st.lists(st.integers(256, 259), max_size=12), st.randoms())
def test_common_tokens_do_not_depend_on_how_the_two_are_cut(one: list[int], other: list[int], random: Any) -> None:
    def cut(ids: list[int]) -> list[Block]:
        at = sorted(random.randint(0, len(ids)) for _ in range(3))
        return [Block(tuple(ids[a:b])) for a, b in zip([0, *at], [*at, len(ids)], strict=True)]

    naive = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert common_tokens(cut(one), cut(other)) == naive
