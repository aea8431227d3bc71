"""The disk cache, worked out by hand: 22.9 MiB and 0.01313 MiB a token; a store holds the engine at 1,795 MiB/s."""

import pytest

from agentload.twin.events import DiskWork, EngineCall, Quantum, Request, Stopped
from agentload.twin.slots import Job, Run
from agentload.twin.truth import log_bytes
from tests.twin.worlds import MS, after, job, only, server

SYSTEM = Run("system and tools", 5000)


def agent(name: str, tokens: int) -> Job:
    return Job(name, (SYSTEM, Run(f"task of {name}", tokens)), 1, anchor_tokens=5000)


def test_a_cold_prompt_is_run_to_its_anchor_stored_and_run_on() -> None:
    """Anchor 5000 less 32 is 4968, aligned to 2048 it is 4096."""
    one = server(kv_disk_dir="/kv")
    one.submit(agent("a", 700))
    events = one.run()
    assert [(each.start_tokens, each.target_tokens) for each in only(Quantum, events)] == [
        (0, 1000), (1000, 2000), (2000, 3000), (3000, 4000), (4000, 4096), (4096, 5096), (5096, 5700),
    ]  # fmt: skip
    (store,) = only(DiskWork, events)
    assert (store.operation, store.reason, store.tokens, store.begin_ns) == ("store", "cold", 4096, 4096 * MS)
    mib = 22.9 + 0.01313 * 4096
    assert store.end_ns - store.begin_ns == pytest.approx((mib / 5000 + mib / 2800) * 1e9, abs=2)
    line = (
        f"kv cache stored tokens=4096 trimmed=904 reason=cold key=token-text size={mib:.2f} MiB save={mib / 5:.1f} ms"
    )
    assert line.encode() in log_bytes(events)


def test_another_agent_overwrites_the_slot_and_finds_the_shared_prefix_on_disk() -> None:
    """b takes a's slot, with 5000 tokens in common; it is stored, and then what a stored of the prefix is read."""
    one = server(kv_disk_dir="/kv")
    one.submit(agent("a", 700))
    one.run()
    one.submit(agent("b", 900))
    events = one.run()
    found = {each.request: each for each in only(Request, events)}
    assert (found["b"].cached_tokens, found["b"].cache_source, found["b"].new_prefill_tokens) == (4096, "disk", 1804)
    log = log_bytes(events)
    assert b"live kv cache miss live=5701 prompt=5900 common=5000" in log
    assert b"reason=evict" in log
    assert log.index(b"cache miss live=5701") < log.index(b"reason=evict") < log.index(b"kv cache hit text tokens=4096")
    assert log.index(b"kv cache hit text tokens=4096") < log.index(b"ctx=4096..5900:1804 TOOLS prompt start")


def test_a_live_length_at_the_interval_is_stored_while_others_wait() -> None:
    """10,000 rounded up to a multiple of 2048 is 10,240: B 10,238 and two tokens."""
    one = server(kv_disk_dir="/kv")
    one.submit(job("a", 10_238, 5))
    (store,) = only(DiskWork, one.run())
    assert (store.reason, store.tokens) == ("continued", 10_240)


def test_a_prefix_that_is_there_already_is_not_stored_again() -> None:
    one = server(kv_disk_dir="/kv", batched_session=1)
    for name in ("a", "x", "b"):
        one.submit(Job(name, (SYSTEM, Run(f"task of {name}", 10)), 1, anchor_tokens=5000))
        one.run()
    one.submit(agent("c", 700))
    reasons = [(each.operation, each.reason, each.tokens) for each in only(DiskWork, one.run())]
    assert reasons == [("store", "evict", 5011), ("load", "hit", 4096)]


def test_a_long_prefix_is_taken_off_the_disk_when_it_is_read() -> None:
    """More than 30,000 tokens: consumed."""
    one = server(kv_disk_dir="/kv", batched_session=1)
    first = job("a", 31_000)
    one.submit(first)
    one.submit(job("b", 600))
    one.submit(after(first, "a2", 10))
    events = one.run()
    assert [(each.operation, each.reason, each.tokens) for each in only(DiskWork, events)] == [
        ("store", "evict", 31_001),
        ("store", "evict", 601),
        ("load", "hit", 31_001),
    ]
    assert b" consumed file=/kv/" in log_bytes(events)
    assert {each.request: each.cached_tokens for each in only(Request, events)}["a2"] == 31_001


def test_where_the_budget_is_full_the_file_with_the_lowest_score_goes() -> None:
    """(hits + 1) * tokens / size: a short prefix is worth less, since every file has 22.9 MiB of its own."""
    one = server(kv_disk_dir="/kv", batched_session=1, kv_disk_space_mb=100)
    for name, tokens in (("a", 1999), ("b", 599), ("c", 999), ("d", 10)):
        one.submit(job(name, tokens))
        one.run()
    # a 49.2 MiB, b 30.8 MiB, c 36.0 MiB: when c is stored b (19 tokens a MiB) goes, not a (41 tokens a MiB)
    one.submit(after(job("a", 1999), "a2", 10))
    one.submit(after(job("b", 599), "b2", 10))
    events = one.run()
    assert {each.request: each.cached_tokens for each in only(Request, events)} == {"a2": 2000, "b2": 0}


def test_every_slot_is_stored_at_the_end_and_its_line_names_it() -> None:
    one = server(kv_disk_dir="/kv")
    one.submit(job("a", 700))
    one.submit(job("b", 100))
    one.submit(job("c", 900))
    one.run()
    one.shutdown()
    events = one.run()
    assert [(each.reason, each.tokens) for each in only(DiskWork, events)] == [("shutdown", 701), ("shutdown", 901)]
    log = log_bytes(events)
    assert b"persisting resident KV cache before shutdown slot=0 tokens=701\n" in log
    assert b"persisting resident KV cache before shutdown slot=2 tokens=901\n" in log
    assert isinstance(events[-1], Stopped)


def test_a_server_stops_once_when_its_last_request_ends_with_the_signal() -> None:
    """b waits for its turn behind a, whose call runs to 1.0 s: it ends at once, a then, and slot 0 is stored."""
    one = server(kv_disk_dir="/kv")
    one.submit(job("a", 5000))
    one.submit(job("b", 5000))
    one.shutdown(300 * MS)
    events = one.run()
    assert [each.at_ns for each in only(Stopped, events)] == [only(DiskWork, events)[-1].end_ns]
    assert [(each.reason, each.tokens) for each in only(DiskWork, events)] == [("shutdown", 1000)]


def test_a_server_without_requests_stops_at_the_signal() -> None:
    one = server()
    one.shutdown(300 * MS)
    assert [each.at_ns for each in only(Stopped, one.run())] == [300 * MS]


def test_a_server_stops_when_the_only_request_was_waiting() -> None:
    one = server(batched_session=1)
    one.submit(job("a", 5000))
    one.submit(job("b", 5000))
    one.cancel("a", 0)
    one.shutdown(1000 * MS)
    events = one.run()
    assert len(only(Stopped, events)) == 1
    assert {each.request: each.finish for each in only(Request, events)} == {"a": "cancelled", "b": "error"}


def test_nothing_runs_on_the_model_while_a_slot_is_stored() -> None:
    """b's slot is stored for a third one, while a prefills: its next quantum is granted, and waits for the engine."""
    one = server(kv_disk_dir="/kv", batched_session=2)
    one.submit(job("b", 20_000))
    one.run()
    one.submit(job("a", 3_000))
    one.submit(job("c", 40, 3), one.now_ns + 10 * MS)
    events = one.run()
    runs = [(each.begin_ns, each.end_ns) for each in only(EngineCall, events)]
    for disk in only(DiskWork, events):
        assert all(end <= disk.begin_ns or begin >= disk.end_ns for begin, end in runs)
    assert [each.reason for each in only(DiskWork, events)] == ["evict"]


def test_without_a_directory_there_is_no_disk_cache() -> None:
    one = server()
    one.submit(agent("a", 700))
    one.submit(agent("b", 800))
    events = one.run()
    assert only(DiskWork, events) == []
    assert b"KV disk cache" not in log_bytes(events)
