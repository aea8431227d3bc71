"""Is what goes back to a client, piece by piece, the scripted answer, and which thinking does a request want?"""

from typing import Any

import pytest

from agentload.twin.events import Event, Finished, PrefillDone, Rejected, TokenOut
from agentload.twin.face import MODELS, Ask, Face, Reply, refusal, thinks, usage
from agentload.twin.lengths import DEFAULT
from agentload.twin.rendering import Renderer
from agentload.twin.scripted import deltas
from tests.twin.worlds import server

TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "bash", "description": "run", "parameters": {"type": "object"}}},
)
MESSAGES: tuple[dict[str, Any], ...] = ({"role": "user", "content": "Where does src/lexer.rs end a string?"},)


def ask(request: str = "r", **fields: Any) -> Ask:
    return Ask(request, MESSAGES, 5, TOOLS, **fields)


def played(asked: Ask, seed: int = 1, boot: int = 0, ctx: int = 262_144) -> tuple[Reply, list[Event], list[Event]]:
    """A reply at its end, what was told of it, and all that came out."""
    told: list[Event] = []
    out: list[Event] = []
    face = Face(server(ctx=ctx), DEFAULT, seed=seed, boot=boot, out=out.extend)
    reply = face.ask(asked, 1_000_000_000, lambda _reply, event: told.append(event))
    while (due := face.next_ns()) is not None:
        face.advance(due)
    return reply, told, out


def test_what_is_sent_is_the_scripted_answer_with_the_functions_name_in_one_piece() -> None:
    reply, _, _ = played(ask())
    sent = reply.sent()
    for kind in ("reasoning", "content", "arguments"):
        whole = "".join(text for one, text in deltas(reply.said) if one == kind)
        assert "".join(text for _, one, text in sent if one == kind) == whole
    assert [text for _, kind, text in sent if kind == "name"] == [call.name for call in reply.tool_calls]
    assert len(reply.tool_calls) == 1
    assert len(reply.parts) == len(reply.token_ns) == reply.said.output_tokens
    assert [at_ns for at_ns, _, _ in sent] == sorted(at_ns for at_ns, _, _ in sent)


def test_a_reply_is_told_of_each_of_its_events_in_order() -> None:
    reply, told, _ = played(ask())
    kinds = [type(one) for one in told]
    assert kinds == [PrefillDone, *[TokenOut] * reply.said.output_tokens, Finished]
    assert reply.finished is told[-1]


def test_all_that_comes_out_of_the_server_is_handed_on() -> None:
    _, told, out = played(ask())
    assert [one for one in out if isinstance(one, PrefillDone | TokenOut | Finished)] == told
    assert len(out) > len(told)


def test_ids_are_decided_by_seed_boot_and_request() -> None:
    def ids(request: str, seed: int, boot: int) -> tuple[str, str]:
        reply, _, _ = played(ask(request), seed, boot)
        return reply.id, reply.tool_calls[0].id

    assert ids("r", 1, 0) == ids("r", 1, 0)
    others = [ids("r", 1, 0), ids("q", 1, 0), ids("r", 2, 0), ids("r", 1, 1)]
    assert len({one for pair in others for one in pair}) == 8


def test_a_call_that_was_made_is_replayed_as_it_was_sampled_so_that_the_slot_goes_on() -> None:
    """Without the server's memory of a call its arguments would be rendered in another spelling."""
    out: list[Event] = []
    face = Face(server(), DEFAULT, seed=1, out=out.extend)

    def go(asked: Ask) -> Reply:
        reply = face.ask(asked, (face.next_ns() or 0) + 10**12 * len(asked.messages))
        while (due := face.next_ns()) is not None:
            face.advance(due)
        return reply

    first = go(ask())
    (call,) = first.tool_calls
    assert first.finished is not None
    function = {"name": call.name, "arguments": call.arguments}
    answered = {
        "role": "assistant",
        "content": first.said.content or None,
        "reasoning_content": first.said.reasoning,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": call.id, "content": "src/lexer.rs\n"}
    conversation = (*MESSAGES, answered, result)
    second = go(Ask("r2", conversation, 5, TOOLS))
    assert second.finished is not None
    assert second.finished.cached_tokens == first.finished.prompt_tokens + first.finished.decoded_tokens
    assert Renderer().render(conversation, TOOLS).tokens != second.finished.prompt_tokens


def test_the_client_of_a_request_that_goes_away_gets_nothing_more() -> None:
    out: list[Event] = []
    face = Face(server(), DEFAULT, seed=1, out=out.extend)
    reply = face.ask(ask(), 0)
    face.leave("r", 2_000_000_000)
    while (due := face.next_ns()) is not None:
        face.advance(due)
    assert reply.finished is not None
    assert (reply.finished.finish, reply.tool_calls) == ("cancelled", ())
    assert len(reply.token_ns) < reply.said.output_tokens
    assert {kind for _, kind, _ in reply.sent()} <= {"reasoning", "content"}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),
        ({"thinking": True}, True),
        ({"thinking": {"type": "enabled"}}, True),
        ({"reasoning_effort": "low"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, True),  # skipped silently, as upstream
        ({"thinking": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"think": False}, False),
        ({"reasoning_effort": "none"}, False),
    ],
)
def test_thinking_is_on_unless_a_field_of_the_request_turns_it_off(fields: dict[str, Any], wanted: bool) -> None:
    assert thinks(fields) is wanted


def test_usage_has_the_prefilled_tokens_as_ds4_names_them() -> None:
    finished = Finished(0, "r", "stop", prompt_tokens=900, cached_tokens=700, new_prefill_tokens=200, decoded_tokens=45)
    assert usage(finished) == {
        "prompt_tokens": 900,
        "completion_tokens": 45,
        "total_tokens": 945,
        "prompt_tokens_details": {"cached_tokens": 700, "cache_write_tokens": 200},
    }


def test_a_refusal_says_how_many_tokens_there_are_and_how_many_there_may_be() -> None:
    status, error = refusal(Rejected(0, "r", "context_length_exceeded", 5000), 4096)
    assert (status, error["n_prompt_tokens"], error["n_ctx"], error["code"]) == (
        400,
        5000,
        4096,
        "context_length_exceeded",
    )
    assert error["message"] == "Prompt has 5000 tokens, but the configured context size is 4096 tokens"
    assert refusal(Rejected(0, "r", "shutting_down", 10), 4096)[0] == 503


def test_the_models_that_are_served_differ_in_how_long_they_work() -> None:
    calls = {name: settings.lengths.calls for name, settings in MODELS.items()}
    assert {name: (spread.at(0.0), spread.at(0.999999)) for name, spread in calls.items()} == {
        "scripted": (3, 82),  # published: p10 7, p90 34; the ends chosen
        "scripted-field-report": (14, 28),  # published: 44 to 82 calls of three agents
        "scripted-long": (40, 50),
    }
