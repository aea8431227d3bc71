"""Does agentload's reader find in the twin's log what the twin knows to be true? Writer and reader share no code.

20 seeds, 3 to 6 slots, more agents than slots in some, all quanta, with and without a disk cache and batch lines.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from agentload.core import markers
from agentload.core.accounting import total
from agentload.core.attribution import attribute
from agentload.core.records import LogFacts, LoggedRequest, Segment
from agentload.serverlogs.ds4 import Reader
from agentload.twin import profile as profiles
from agentload.twin.events import DecodeStep, Event, LogWrite, Request
from agentload.twin.measure import RunTruth, measure
from agentload.twin.options import Options
from agentload.twin.replay import draw_plan, play
from agentload.twin.truth import line_times, log_bytes
from tests.twin.worlds import MS, SECOND, only

NOON_NS = 1_795_953_600 * SECOND  # 2026-11-29 12:00:00 UTC
SEEDS = range(20)
BOUNDARIES = (
    ("prefill_start", "prefill_start_ns"),
    ("prefill_end", "prefill_end_ns"),
    ("decode_start", "prefill_end_ns"),
    ("decode_end", "decode_end_ns"),
    ("t_end", "end_ns"),
)
each_seed = pytest.mark.parametrize("seed", SEEDS)


@dataclass(frozen=True)
class Played:
    slots: int
    events: tuple[Event, ...]

    @property
    def truth(self) -> dict[tuple[int | None, int | None, int | None, tuple[str, ...]], Request]:
        """By the integers of a request, which are its own in these runs."""
        requests = only(Request, self.events)
        found: dict[tuple[int | None, int | None, int | None, tuple[str, ...]], Request] = {
            (r.cached_tokens, r.prompt_tokens, r.decoded_tokens, r.tool_call_ids): r for r in requests
        }
        assert len(found) == len(requests)
        return found


@cache
def played(seed: int) -> Played:
    draw = np.random.default_rng(seed)
    slots = 3 + seed % 4
    agents = int(draw.integers(2, slots + 3))
    counts = [int(count) for count in draw.integers(3, 9, agents)]
    shares = [float(share) for share in draw.uniform(0.5, 2, agents)]
    plan = draw_plan(counts, sum(counts) * 2500, sum(counts) * 150, shares, seed)
    options = Options(
        batched_session=slots,
        mixed_prefill_quantum=(128, 2048, 512)[seed % 3],
        kv_disk_dir="/kv" if seed % 4 == 1 else None,
        batch_log=seed % 5 == 0,
    )
    profile = profiles.load(("m3-ultra", "m3-ultra-agents")[seed % 2])
    start_ns = NOON_NS + seed * 377_123_457
    return Played(slots, tuple(play(plan, options, profile, seed=seed, start_ns=start_ns, stagger_s=4)))


def facts(one: Played, *, stamped: bool) -> LogFacts:
    reader = Reader(line_times(one.events) if stamped else None, year=2026)
    reader.feed(log_bytes(one.events))
    assert reader.open_requests() == 0
    return reader.close()


def pairs(one: Played, found: LogFacts) -> list[tuple[LoggedRequest, Request]]:
    truth = one.truth
    return [(r, truth[r.cached_tokens, r.prompt_tokens, r.decoded_tokens, r.tool_call_ids]) for r in found.requests]


@each_seed
@pytest.mark.parametrize("stamped", [False, True], ids=["log alone", "pumped"])
def test_every_line_is_understood_and_every_count_and_attribution_exact(seed: int, stamped: bool) -> None:
    one = played(seed)
    found = facts(one, stamped=stamped)
    assert (found.lines.unknown, found.doubts) == (0, ())
    assert len({id(truth) for _, truth in pairs(one, found)}) == len(found.requests) == len(one.truth)
    for logged, truth in pairs(one, found):
        assert logged.group is None
        assert (logged.new_prefill_tokens, logged.finish) == (truth.new_prefill_tokens, truth.finish)


@each_seed
def test_from_the_log_alone_every_boundary_is_within_its_resolution_of_a_second(seed: int) -> None:
    one = played(seed)
    found = facts(one, stamped=False)
    assert found.resolution_ns == SECOND
    for logged, truth in pairs(one, found):
        for name, of_truth in BOUNDARIES:
            assert abs(getattr(logged, name) - getattr(truth, of_truth)) < SECOND, (logged.label, name)


@each_seed
def test_with_the_pumps_stamps_every_boundary_is_within_a_millisecond(seed: int) -> None:
    one = played(seed)
    for logged, truth in pairs(one, facts(one, stamped=True)):
        for name, of_truth in BOUNDARIES:
            assert abs(getattr(logged, name) - getattr(truth, of_truth)) <= MS, (logged.label, name)


@each_seed
def test_the_account_of_the_log_is_that_of_the_truth(seed: int) -> None:
    """Tokens exact; unions, speeds and overlap within 0.1 % of what the ground truth gives."""
    one = played(seed)
    found = facts(one, stamped=True)
    ends = max(request.end_ns for request in only(Request, one.events)) + SECOND
    segment = Segment("s1", "run", "twin", NOON_NS - SECOND, ends)
    got = total(attribute("run", (), found, (segment,)).requests, segment)
    want = measure([RunTruth.of(one.events)])
    assert (got.requests, got.new_prefill_tokens) == (want.requests, want.new_prefill_tokens)
    assert got.decoded_tokens == want.decoded_tokens
    assert got.prefill_union_ns is not None
    assert got.prefill_union_ns / SECOND == pytest.approx(want.prefill_busy_s, rel=1e-3)
    assert got.decode_union_ns is not None
    assert got.decode_union_ns / SECOND == pytest.approx(want.decode_busy_s, rel=1e-3)
    assert got.prefill_tok_s == pytest.approx(want.prefill_tok_s, rel=1e-3)
    assert got.overlap == pytest.approx(want.overlap, abs=2e-3)


@pytest.mark.parametrize("seed", [0, 5, 10, 15])
def test_decode_batches_are_counted_by_their_rows(seed: int) -> None:
    one = played(seed)
    steps: dict[int, int] = {}
    for step in only(DecodeStep, one.events):
        steps[len(step.requests)] = steps.get(len(step.requests), 0) + 1
    assert {batch.rows: batch.steps for batch in facts(one, stamped=False).decode_batches} == steps


def test_markers_between_the_writes_of_a_line_do_not_change_what_is_read() -> None:
    """As on a real log that others append to: each line is three writes, and a marker stands behind a stamp."""
    one = played(3)
    marker = markers.render("begin", "s1", "run", "twin", NOON_NS) + b"\n"
    parts: list[bytes] = []
    torn = 0
    for number, write in enumerate(only(LogWrite, one.events)):
        parts.append(write.data)
        if number > 40 and number % 97 == 0 and write.data.endswith(b" "):  # a stamp and a space: the text comes next
            parts.append(marker)
            torn += 1
    reader = Reader(None, year=2026)
    reader.feed(b"".join(parts))
    found = reader.close()
    assert torn > 10
    assert (len(found.markers), found.lines.markers + found.lines.unknown) == (torn, 0)
    assert len({id(truth) for _, truth in pairs(one, found)}) == len(one.truth)


def test_these_runs_have_queues_misses_disk_hits_and_all_numbers_of_slots() -> None:
    """What the tests above are worth: the log lines that they read."""
    assert {played(seed).slots for seed in SEEDS} == {3, 4, 5, 6}
    waited = [
        request
        for seed in SEEDS
        for request in only(Request, played(seed).events)
        if request.slot_ns is not None and request.slot_ns > request.arrival_ns
    ]
    assert len(waited) > 20
    kinds = {event.kind for seed in SEEDS for event in facts(played(seed), stamped=False).cache_events}
    assert {"live-miss", "hit", "stored"} <= kinds
