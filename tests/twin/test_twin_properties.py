"""What holds for every schedule: one thing at a time, every token once, nothing lost, and the same again."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.core.intervals import Intervals
from agentload.twin import profile as profiles
from agentload.twin.events import (
    DecodeStep,
    DiskWork,
    EngineCall,
    Event,
    Finished,
    LogWrite,
    Quantum,
    Request,
    SlotGiven,
    TokenOut,
)
from agentload.twin.options import Options
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run
from agentload.twin.truth import header, line_times, lines, log_bytes, read
from tests.twin.worlds import MS, only

PROFILE = profiles.load("m3-ultra")


@dataclass(frozen=True)
class Sent:
    at_ms: int
    conversation: int
    new_tokens: int
    output_tokens: int
    cancel_after_ms: int | None


SENT = st.builds(
    Sent,
    at_ms=st.integers(0, 20_000),
    conversation=st.integers(0, 3),
    new_tokens=st.integers(1, 6_000),
    output_tokens=st.integers(0, 60),
    cancel_after_ms=st.one_of(st.none(), st.none(), st.integers(0, 30_000)),
)
OPTIONS = st.builds(
    Options,
    batched_session=st.integers(1, 4),
    mixed_prefill_quantum=st.sampled_from([128, 700, 2048]),
    prefill_chunk=st.sampled_from([None, 1024, 2560]),
    kv_disk_dir=st.sampled_from([None, "/kv"]),
)


def jobs_of(sent: list[Sent]) -> list[Job]:
    """Requests of a few conversations that share a system prompt; each goes on from the one before it."""
    said: dict[int, tuple[Run, ...]] = {}
    jobs = []
    for number, one in enumerate(sent):
        before = said.get(one.conversation, (Run("system", 700),))
        prompt = (*before, Run(f"text {number}", one.new_tokens))
        jobs.append(Job(f"r{number}", prompt, one.output_tokens, anchor_tokens=700))
        said[one.conversation] = (*prompt, Run(f"r{number}", max(1, one.output_tokens)))
    return jobs


def played(options: Options, sent: list[Sent], seed: int) -> list[Event]:
    server = Server(options, PROFILE, seed=seed, start_ns=0)
    for one, job in zip(sent, jobs_of(sent), strict=True):
        server.submit(job, one.at_ms * MS)
        if one.cancel_after_ms is not None:
            server.cancel(job.request, (one.at_ms + one.cancel_after_ms) * MS)
    return server.run()


@settings(max_examples=30, deadline=None)
@given(OPTIONS, st.lists(SENT, min_size=1, max_size=9), st.integers(0, 5))
def test_whatever_is_sent_the_model_does_one_thing_at_a_time_and_all_of_it(
    options: Options, sent: list[Sent], seed: int
) -> None:
    events = played(options, sent, seed)
    runs = [(each.begin_ns, each.end_ns) for each in only(EngineCall, events)]
    steps = [(each.begin_ns, each.end_ns) for each in only(DecodeStep, events)]
    disk = [(each.begin_ns, each.end_ns) for each in only(DiskWork, events)]
    together = Intervals.of(runs + steps + disk)
    assert together.summed_ns() == together.measure_ns()

    ended = {each.request: each for each in only(Request, events)}
    assert len(ended) == len(sent) == len(only(Finished, events))
    tokens = Counter(each.request for each in only(TokenOut, events))
    rows = Counter(name for each in only(DecodeStep, events) for name in each.requests)
    assert tokens == rows
    for name, one in ended.items():
        assert one.decoded_tokens == tokens[name]
        mine = [each for each in only(Quantum, events) if each.request == name]
        calls = [each for each in only(EngineCall, events) if each.request == name]
        assert sum(each.done_tokens - each.start_tokens for each in mine) == one.prefilled_tokens
        assert sum(each.tokens for each in calls) == one.prefilled_tokens
        if one.finish != "cancelled":
            assert one.prefilled_tokens == one.new_prefill_tokens
            assert one.arrival_ns <= (one.slot_ns or 0) <= (one.prefill_start_ns or 0) <= (one.prefill_end_ns or 0)
            assert (one.prefill_end_ns or 0) <= (one.decode_end_ns or 0) <= one.end_ns


@settings(max_examples=20, deadline=None)
@given(OPTIONS, st.lists(SENT, min_size=1, max_size=9), st.integers(0, 5))
def test_no_call_crosses_the_chunk_cap_and_no_quantum_is_larger_than_the_one_chosen(
    options: Options, sent: list[Sent], seed: int
) -> None:
    events = played(options, sent, seed)
    cap = options.chunk_cap
    for call in only(EngineCall, events):
        first, last = call.position_tokens // cap, (call.position_tokens + call.tokens - 1) // cap
        assert call.stepwise or first == last
    decoding = Intervals.of(
        (each.prefill_end_ns, each.decode_end_ns)
        for each in only(Request, events)
        if each.prefill_end_ns is not None and each.decode_end_ns is not None
    )
    for one in only(Quantum, events):
        assert one.target_tokens - one.start_tokens <= one.quantum_tokens
        assert one.quantum_tokens == (options.mixed_prefill_quantum if one.mixed else options.prefill_quantum)
        assert one.chosen_ns <= one.begin_ns
        inside = decoding.clip(one.chosen_ns - 1, one.chosen_ns + 1).measure_ns()
        if inside == 2:  # others decode just before and just after the choice
            assert one.mixed


@settings(max_examples=20, deadline=None)
@given(OPTIONS, st.lists(SENT, min_size=1, max_size=9), st.integers(0, 5))
def test_quanta_and_decode_batches_alternate_wherever_a_decode_waits(
    options: Options, sent: list[Sent], seed: int
) -> None:
    """Two quanta in a row: nobody has been decoding at the first one's end, for longer than a thread takes."""
    events = played(options, sent, seed)
    waits = Intervals.of(
        (each.prefill_end_ns + MS, each.decode_end_ns)
        for each in only(Request, events)
        if each.prefill_end_ns is not None
        and each.decode_end_ns is not None
        and each.decode_end_ns > each.prefill_end_ns + MS
    )
    ran: list[Quantum | DecodeStep] = [*only(Quantum, events), *only(DecodeStep, events)]
    order = sorted(ran, key=lambda each: (each.begin_ns, each.end_ns))
    busy_disk = bool(only(DiskWork, events))
    for one, other in pairwise(order):
        if isinstance(one, Quantum) and isinstance(other, Quantum) and one.end_ns > one.begin_ns and not busy_disk:
            assert waits.clip(one.end_ns - 1, one.end_ns + 1).measure_ns() < 2


@settings(max_examples=12, deadline=None)
@given(OPTIONS, st.lists(SENT, min_size=1, max_size=9), st.integers(0, 5))
def test_the_same_seed_gives_the_same_bytes_and_the_truth_comes_back_from_its_file(
    options: Options, sent: list[Sent], seed: int
) -> None:
    events, again = played(options, sent, seed), played(options, sent, seed)
    assert log_bytes(events) == log_bytes(again)
    text = [header(options, "m3-ultra", seed, 0), *lines(events)]
    assert text == [header(options, "m3-ultra", seed, 0), *lines(again)]
    first, back = read(text)
    assert first["options"] == options.model_dump()
    kept = (EngineCall, Quantum, DecodeStep, DiskWork, Request)
    assert back == [each for each in events if isinstance(each, kept)]
    stamps = [each.at_ns for each in only(LogWrite, events)]
    assert stamps == sorted(stamps)
    assert len(line_times(events)) == log_bytes(events).count(b"\n")


@settings(max_examples=12, deadline=None)
@given(OPTIONS, st.lists(SENT, min_size=1, max_size=9))
def test_slots_are_given_in_order_of_arrival(options: Options, sent: list[Sent]) -> None:
    events = played(options, [Sent(one.at_ms, one.conversation, one.new_tokens, 3, None) for one in sent], 0)
    arrived = {each.request: each.arrival_ns for each in only(Request, events)}
    given_ns = [arrived[each.request] for each in only(SlotGiven, events)]
    assert given_ns == sorted(given_ns)


def test_another_seed_gives_other_times_and_another_boot_too() -> None:
    sent = [Sent(0, 0, 3000, 30, None)]
    ends = set()
    for seed, boot in ((0, 0), (1, 0), (0, 1)):
        server = Server(Options(), PROFILE, seed=seed, start_ns=0, boot=boot)
        server.submit(jobs_of(sent)[0])
        ends.add(only(Request, server.run())[0].end_ns)
    assert len(ends) == 3
