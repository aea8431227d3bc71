"""Schedules worked out by hand: 1 ms a token, 100 ms a decode step (200 ms after a quantum), 1 ms between tokens."""

import pytest

from agentload.twin.events import DecodeStep, EngineCall, Finished, Quantum, Rejected, Request, SlotGiven, TokenOut
from agentload.twin.slots import Job, Run
from agentload.twin.truth import log_bytes
from tests.twin.worlds import MS, SECOND, after, job, only, server


def test_the_quantum_is_chosen_before_the_wait_and_not_changed_by_what_happens_meanwhile() -> None:
    """All come at 0. a decodes from 0.5 s on, x runs until 1.5 s; steps of a, and of a and x, until 1.801 s: b's turn.

    Nobody was decoding when b chose: it has the idle quantum once, and only then the mixed one.
    """
    one = server()
    for name, tokens in (("a", 500), ("x", 1000), ("b", 1300)):
        one.submit(job(name, tokens, 30))
    quanta = [each for each in only(Quantum, one.run()) if each.request == "b"]
    assert (quanta[0].chosen_ns, quanta[0].begin_ns) == (0, 1801 * MS)
    assert [(each.quantum_tokens, each.mixed) for each in quanta] == [(1000, False)] + [(100, True)] * 3
    assert [each.done_tokens for each in quanta] == [1000, 1100, 1200, 1300]


def test_quanta_and_decode_batches_alternate_while_one_prefills_and_another_decodes() -> None:
    """a decodes from 0.01 s; b comes when a's first step runs, and then each has its turn: 0.1 s and 0.2 s."""
    one = server()
    one.submit(job("a", 10, 6))
    one.submit(job("b", 250, 1), 50 * MS)
    events = one.run()
    ran = sorted(
        [(each.begin_ns, each.end_ns, each.request) for each in only(Quantum, events)]
        + [(each.begin_ns, each.end_ns, "+".join(each.requests)) for each in only(DecodeStep, events)]
    )
    assert ran == [
        (0, 10 * MS, "a"),  # a's prompt
        (11 * MS, 211 * MS, "a"),  # its first step, after a quantum
        (211 * MS, 311 * MS, "b"),  # waiting since 50 ms: quicker than a, which needs 1 ms
        (311 * MS, 511 * MS, "a"),
        (511 * MS, 611 * MS, "b"),
        (611 * MS, 811 * MS, "a"),
        (811 * MS, 861 * MS, "b"),
        (861 * MS, 1061 * MS, "a"),  # pending since 812; b submits its first token at 862
        (1062 * MS, 1162 * MS, "a+b"),  # b waits 1 ms for a
        (1163 * MS, 1263 * MS, "a"),
    ]


def test_a_batch_waits_for_all_that_decode() -> None:
    """a submits at 11 ms, when it alone decodes and b's prompt runs; the next step ends at 230 ms, a is back at 231."""
    one = server()
    for name, tokens in (("a", 10), ("b", 20)):
        one.submit(job(name, tokens, 3))
    assert [(each.begin_ns // MS, each.requests) for each in only(DecodeStep, one.run())] == [
        (30, ("a",)),
        (231, ("a", "b")),
        (332, ("a", "b")),
        (433, ("b",)),
    ]


def test_a_batch_waits_2_ms_and_no_longer() -> None:
    """With 5 ms between two tokens, a cannot be back in time: its step ends at 230 ms, b goes alone at 232 ms."""
    one = server(token_ms=5.0)
    for name, tokens in (("a", 10), ("b", 20)):
        one.submit(job(name, tokens, 2))
    assert [(each.begin_ns // MS, each.requests) for each in only(DecodeStep, one.run())] == [
        (30, ("a",)),
        (232, ("b",)),
        (334, ("a",)),  # pending since 235 ms; b's step ends at 332 ms, and b is not back before 337 ms
        (434, ("b",)),  # a is through: all that decode are there
    ]


def test_prompts_take_turns_in_order_of_their_slots() -> None:
    one = server(prefill_quantum=100)
    for name in "abc":
        one.submit(job(name, 300))
    quanta = [each.request for each in only(Quantum, one.run())]
    assert quanta[:3] == ["a", "b", "c"]
    assert quanta[:9] == ["a", "b", "c"] * 3


def test_a_quantum_after_another_slots_costs_more_while_two_prefill() -> None:
    one = server(switch_s=0.05)
    one.submit(job("a", 2000))
    one.submit(job("b", 1500))
    quanta = only(Quantum, one.run())
    assert [(each.request, (each.end_ns - each.begin_ns) // MS) for each in quanta[:4]] == [
        ("a", 1000),
        ("b", 1050),
        ("a", 1050),
        ("b", 500),  # a is through: nobody else prefills
    ]


@pytest.mark.parametrize(
    ("start", "tokens", "chunk", "calls"),
    [
        (0, 8192, None, [1000] * 4 + [96, 904, 1000, 1000, 1000, 192]),
        (1539, 2048 * 2, None, [1000, 1000, 557, 443, 1000, 96]),
        (3000, 600, 1024, [72, 528]),
        (4096, 1000, None, [1000]),
    ],
)
def test_engine_calls_end_at_absolute_multiples_of_the_chunk_cap(
    start: int, tokens: int, chunk: int | None, calls: list[int]
) -> None:
    """Quantum 1000. Worked out by hand: a quantum that crosses a multiple of the cap is two calls."""
    one = server(prefill_chunk=chunk)
    first = job("a", start - 1) if start else None
    if first is not None:
        one.submit(first)
        one.run()
    one.submit(job("b", tokens) if first is None else after(first, "b", tokens))
    assert [each.tokens for each in only(EngineCall, one.run()) if each.request == "b"] == calls


def test_fewer_than_four_tokens_are_run_one_by_one_and_leave_no_chunk_line() -> None:
    one = server()
    first = job("a", 99)
    one.submit(first)
    one.run()
    one.submit(after(first, "b", 3))
    events = one.run()
    (call,) = only(EngineCall, events)
    assert (call.stepwise, call.tokens, call.end_ns - call.begin_ns) == (True, 3, 300 * MS)
    assert b"prefill chunk" not in log_bytes(events)
    assert b"ctx=100..103:3 TOOLS prompt done 0.300s" in log_bytes(events)


def test_a_prompt_that_is_cached_to_its_end_takes_a_turn_and_runs_nothing() -> None:
    one = server()
    first = job("a", 99)
    one.submit(first)
    one.run()
    one.submit(Job("b", (*first.prompt, Run("a", 1)), 2))
    events = one.run()
    assert only(EngineCall, events) == []
    assert [(each.start_tokens, each.target_tokens) for each in only(Quantum, events)] == [(100, 100)]
    assert [each.new_prefill_tokens for each in only(Request, events)] == [0]
    assert b"ctx=100..100:0 TOOLS prompt done 0.000s" in log_bytes(events)


# ---- admission -----------------------------------------------------------------------------------------------------


def test_requests_wait_for_a_slot_in_order_of_arrival() -> None:
    one = server(batched_session=1)
    for at_ms, name in ((0, "a"), (2, "c"), (1, "b")):
        one.submit(job(name, 100), at_ms * MS)
    events = one.run()
    assert [each.request for each in only(SlotGiven, events)] == ["a", "b", "c"]
    ended = {each.request: each for each in only(Request, events)}
    # a: 100 ms of prefill, 1 ms, a step of 200 ms, 2 ms to end
    assert (ended["a"].end_ns, ended["b"].slot_ns, ended["b"].arrival_ns) == (303 * MS, 303 * MS, 1 * MS)


def test_a_new_conversation_takes_an_idle_slot_that_shares_its_system_prompt_and_destroys_it() -> None:
    """As in the server's issue 1069: two slots are empty, and the third agent's first request still takes slot 0."""
    one = server()
    system = Run("system", 500)
    one.submit(Job("a", (system, Run("task a", 100)), 10))
    one.run()
    one.submit(Job("b", (system, Run("task b", 100)), 10))
    events = one.run()
    assert [(each.slot, each.cached_tokens) for each in only(Request, events)] == [(0, 0)]
    assert b"live kv cache miss live=610 prompt=600 common=500 vision=match reason=token-mismatch" in log_bytes(events)


def test_a_conversation_comes_back_to_its_slot_and_only_new_text_is_run() -> None:
    one = server()
    first, other = job("a", 700, 30), job("x", 900, 10)
    one.submit(first)
    one.submit(other)
    one.run()
    one.submit(after(other, "y", 40))
    one.submit(after(first, "b", 50))
    events = one.run()
    found = {each.request: (each.slot, each.cached_tokens, each.new_prefill_tokens) for each in only(Request, events)}
    assert found == {"b": (0, 730, 50), "y": (1, 910, 40)}
    assert b"cache miss" not in log_bytes(events)


def test_a_prompt_shorter_than_what_is_live_starts_from_nothing() -> None:
    one = server()
    first = job("a", 700, 30)
    one.submit(first)
    one.run()
    one.submit(Job("b", (Run("text of a", 600),), 1))
    events = one.run()
    assert [each.cached_tokens for each in only(Request, events)] == [0]
    assert b"common=600 vision=match reason=incoming-prompt-shorter-than-live-checkpoint" in log_bytes(events)


def test_a_prompt_that_fills_the_context_is_refused_and_what_is_written_ends_with_it() -> None:
    one = server(ctx=1000)
    one.submit(job("full", 1000))
    one.submit(job("near", 995, 50))
    events = one.run()
    assert [(each.request, each.reason) for each in only(Rejected, events)] == [("full", "context_length_exceeded")]
    assert [(each.finish, each.decoded_tokens) for each in only(Finished, events)] == [("length", 5)]
    assert b"1000..1000" not in log_bytes(events)
    assert b"0..1000:1000" not in log_bytes(events)


# ---- going away ----------------------------------------------------------------------------------------------------


def test_a_client_that_goes_away_while_its_prompt_runs_leaves_no_line_and_frees_the_slot_at_the_next_call() -> None:
    one = server(batched_session=1)
    first = job("a", 5000)
    one.submit(first)
    one.submit(job("b", 10))
    one.cancel("a", 1250 * MS)  # seen at 1.3 s; the quantum runs to 2.0 s
    events = one.run()
    ended = {each.request: each for each in only(Request, events)}
    assert (ended["a"].finish, ended["a"].end_ns, ended["a"].prefilled_tokens) == ("cancelled", 2 * SECOND, 2000)
    assert ended["b"].slot_ns == 2 * SECOND
    log = log_bytes(events)
    assert log.count(b"0..5000:5000 TOOLS prompt start") == 1
    assert b"0..5000:5000 TOOLS prompt done" not in log
    assert b"0..5000:5000 gen=" not in log


def test_what_a_cancelled_prompt_left_in_its_slot_is_used_again() -> None:
    one = server()
    first = job("a", 5000)
    one.submit(first)
    one.cancel("a", 1250 * MS)
    one.run()
    one.submit(Job("again", first.prompt, 1))
    assert [each.cached_tokens for each in only(Request, one.run())] == [2000]


def test_cancelled_in_the_queue_or_while_writing_a_request_is_dropped_within_100_ms_and_a_step() -> None:
    one = server(batched_session=1)
    one.submit(job("a", 10, 1000))
    one.submit(job("b", 10), 5 * MS)
    one.cancel("b", 130 * MS)
    one.cancel("a", 1150 * MS)
    events = one.run()
    ended = {each.request: each for each in only(Request, events)}
    assert (ended["b"].end_ns, ended["b"].slot_ns, ended["b"].finish) == (205 * MS, None, "cancelled")
    # a's steps end at 211, 312, 413, ... ms; its client is seen gone at 1200 ms: the one that ends at 1221 is its last
    assert (ended["a"].end_ns, ended["a"].decoded_tokens, ended["a"].finish) == (1221 * MS, 11, "cancelled")
    assert [each.finish for each in only(Finished, events)] == ["cancelled", "cancelled"]


def test_after_a_signal_to_stop_running_requests_end_with_an_error_and_nothing_new_is_taken() -> None:
    one = server(batched_session=2)
    one.submit(job("writes", 10, 1000))
    one.submit(job("reads", 9000), 5 * MS)
    one.submit(job("waits", 10), 6 * MS)
    one.shutdown(500 * MS)
    one.submit(job("late", 10), 600 * MS)
    events = one.run()
    assert [(each.request, each.finish, each.error) for each in only(Finished, events)] == [
        ("waits", "error", "shutdown requested"),
        ("reads", "error", "shutdown requested"),
        ("writes", "error", "shutdown requested"),
    ]
    assert [each.request for each in only(Rejected, events)] == ["late"]
    log = log_bytes(events)
    assert b"ds4-server: shutdown requested, draining requests\n" in log
    assert b'finish=error error="shutdown requested"' in log
    assert log.count(b"finish=") == 1


# ---- what a driver relies on ---------------------------------------------------------------------------------------


def test_a_driver_can_step_from_event_to_event_and_send_requests_in_between() -> None:
    one = server()
    one.submit(job("a", 100, 3))
    due, seen = one.next_ns(), []
    while due is not None:
        events = one.advance(due)
        assert one.now_ns == due
        seen += [(each.request, each.index, each.at_ns // MS) for each in only(TokenOut, events)]
        if only(Finished, events) and len(seen) == 3:
            one.submit(job("b", 10))
        due = one.next_ns()
    assert seen == [("a", 1, 301), ("a", 2, 402), ("a", 3, 503), ("b", 1, 716)]
    assert one.open_requests == 0


def test_a_request_name_is_taken_once_and_the_past_is_over() -> None:
    one = server()
    one.submit(job("a", 10))
    with pytest.raises(ValueError, match="again"):
        one.submit(job("a", 20))
    one.advance(SECOND)
    with pytest.raises(ValueError, match="later"):
        one.submit(job("b", 10), 5)


def test_where_prefill_gets_the_model_back_first_decoders_starve() -> None:
    """Issue 600 of the server: with `reacquire_p` 1 a's pending token waits until b's whole prompt is through."""
    one = server(reacquire_p=1.0)
    one.submit(job("a", 10, 4))
    one.submit(job("b", 1000), 50 * MS)
    tokens = [each.at_ns // MS for each in only(TokenOut, one.run()) if each.request == "a"]
    # b's ten quanta run from 211 ms to 1211 ms
    assert tokens[:2] == [211, 1411]
