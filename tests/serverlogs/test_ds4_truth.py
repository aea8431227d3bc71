"""Are six concurrent requests told apart, with nothing but integers and stamps of one second?

ds4/truth_*.log were written by a model of the server's scheduler, which kept the truth beside them.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentload.core.records import LogFacts, LoggedRequest, Timeline
from agentload.serverlogs.ds4 import Reader

DATA = Path(__file__).parent / "ds4"
NOON_NS = int(datetime(2026, 9, 14, 12, tzinfo=UTC).timestamp()) * 1_000_000_000
SECOND_NS = 1_000_000_000
BOUNDARIES = (
    ("prefill_start", "t0"),
    ("prefill_end", "t1"),
    ("decode_start", "t1"),
    ("decode_end", "t2"),
    ("t_end", "t2"),
)


def _pairs(facts: LogFacts, name: str) -> list[tuple[LoggedRequest, dict[str, Any]]]:
    truth = {(one["A"], one["B"], one["G"]): one for one in json.loads((DATA / f"{name}.json").read_text())}
    assert len(truth) == len(facts.requests) == 30
    return [
        (one, truth[one.cached_tokens or 0, one.prompt_tokens or 0, one.decoded_tokens or 0]) for one in facts.requests
    ]


def _read(name: str, stamps: list[int] | None) -> LogFacts:
    reader = Reader(stamps, year=2026)
    reader.feed((DATA / f"{name}.log").read_bytes())
    assert reader.open_requests() == 0
    return reader.close()


@pytest.mark.parametrize("name", ["truth_batched6_q128", "truth_batched6_q2048"])
def test_every_boundary_is_within_the_logs_resolution_and_every_attribution_right(name: str) -> None:
    facts = _read(name, None)
    assert (facts.timeline, facts.resolution_ns) == (Timeline.WALL, SECOND_NS)
    assert (facts.lines.unknown, facts.doubts) == (0, ())
    for one, truth in _pairs(facts, name):
        assert one.group is None
        assert one.tool_call_ids == (() if truth["tool"] is None else (truth["tool"],))
        assert one.new_prefill_tokens == truth["B"] - truth["A"]
        for field, key in BOUNDARIES:
            assert abs(getattr(one, field) - NOON_NS - truth[key] * 1e9) < SECOND_NS, (one.label, field)


def _received(name: str) -> list[int]:
    """Return when each line would be received: when its request has come so far, and up to 4 ms late."""
    truths = json.loads((DATA / f"{name}.json").read_text())
    stamps: list[int] = []
    for number, line in enumerate((DATA / f"{name}.log").read_text().splitlines()):
        span = re.search(r" ctx=(\d+)\.\.(\d+):", line)
        gen = re.search(r" gen=(\d+).* decoding ", line)
        took = re.search(r" ([\d.]+)s$", line)
        at = 0.0
        if span is not None:
            cached, end = int(span[1]), int(span[2])
            of = [one for one in truths if (one["A"], one["B"]) == (cached, end)]
            if gen is not None:  # equal prompts happen: the one that would have been written at the stamp
                of = [one for one in truths if one["B"] == end - int(gen[1])]
                clock = datetime.strptime("2026" + line[:13] + "+0000", "%Y%m%d %H:%M:%S%z").timestamp() - NOON_NS / 1e9
                of = [one for one in of if -0.1 < one["t1"] + float(took[1] if took else 0) - clock < 1.1]
            begin = of[0]["t2" if " tool calls " in line else "t0" if gen is None else "t1"]
            at = begin + (0.0 if took is None else float(took[1]))
        late_ns = (0, 300_000, 90_000, 4_000_000)[number % 4]
        stamps.append(max([NOON_NS + round(at * 1e9) + late_ns, *stamps[-1:]]))
    return stamps


@pytest.mark.parametrize("name", ["truth_batched6_q128", "truth_batched6_q2048"])
def test_with_receive_stamps_boundaries_are_within_milliseconds(name: str) -> None:
    facts = _read(name, _received(name))
    assert (facts.timeline, facts.resolution_ns) == (Timeline.UNIX, 1_000_000)
    assert facts.doubts == ()
    assert facts.clock_error_ns is not None
    for one, truth in _pairs(facts, name):
        for field, key in BOUNDARIES:
            off_ns = abs(getattr(one, field) - NOON_NS - truth[key] * 1e9)
            assert off_ns < 1_000_000 + facts.clock_error_ns, (one.label, field)
