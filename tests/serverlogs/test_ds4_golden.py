"""Does the ds4 reader tell of small logs what a person reads out of them?

Expected values in ds4/*.json were worked out by hand from ds4/*.log: t0 is the middle of what all `stamp - elapsed` of
a request leave open.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agentload.core.records import LogFacts, LoggedRequest, Timeline
from agentload.serverlogs.ds4 import FORMAT

DATA = Path(__file__).parent / "ds4"
NAMES = ("single", "disk", "tools", "equal", "start", "cut", "second_pass")
TIMES = ("prefill_start", "prefill_end", "decode_start", "decode_end", "t_end")
DAY_NS = 86_400_000_000_000


def _read(name: str, piece: int) -> tuple[LogFacts, int, dict[str, Any]]:
    data = (DATA / f"{name}.log").read_bytes()
    reader = FORMAT.reader()
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    still = reader.open_requests()
    return reader.close(), still, json.loads((DATA / f"{name}.json").read_text())


def _field(one: LoggedRequest, name: str, day: int) -> object:
    value = getattr(one, name)
    if name in TIMES and value is not None:
        return pytest.approx((value - day * DAY_NS) / 1e9, abs=1e-6)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("piece", [1 << 20, 7])
@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_an_excerpt_is_counted_as_what_it_is(name: str, piece: int) -> None:
    facts, still, told = _read(name, piece)
    lines = facts.lines
    assert (lines.understood, lines.ignored, lines.unknown, lines.markers) == (
        told["understood"],
        told["ignored"],
        told["unknown"],
        0,
    )
    assert still == told["open"]
    assert facts.timeline is Timeline.WALL
    assert [one.kind for one in facts.cache_events] == told["cache"]
    assert sorted(one.code for one in facts.doubts) == sorted(told["doubts"])
    assert [proof.line for _, proof, _ in facts.suspects] == told.get("suspects", [])


@pytest.mark.parametrize("name", NAMES)
def test_requests_of_an_excerpt_are_those_worked_out_by_hand(name: str) -> None:
    facts, _, told = _read(name, 1 << 20)
    for expected, one in zip(told.get("requests", facts.requests), facts.requests, strict=True):
        if isinstance(expected, LoggedRequest):
            continue
        wanted = {key: value for key, value in expected.items() if key not in ("ctx", "line", "proofs")}
        assert one.label == f"ctx {expected['ctx']} line {expected['line']}"
        assert {key: _field(one, key, told["midnight_day"]) for key in wanted} == wanted
        proofs = {key: proof.line for key, proof in one.proofs}
        assert {key: proofs[key] for key in expected.get("proofs", {})} == expected.get("proofs", {})
    for key, total in told.get("sums", {}).items():
        assert sum(getattr(one, key) or 0 for one in facts.requests) == total
    groups: dict[str, list[str]] = {}
    for one in facts.requests:
        if one.group is not None:
            groups.setdefault(one.group, []).append(one.label.split(" ", 2)[2])
    assert list(groups.values()) == told.get("groups", [])


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_an_excerpt_have_the_line_that_proves_them(name: str) -> None:
    facts, _, told = _read(name, 1 << 20)
    for boot, expected in ((0, told["settings"]), (1, told.get("second", {}))):
        found = {one.name: [one.value, one.proof.line] for one in facts.settings if one.boot == boot}
        assert {key: found[key] for key in expected} == expected
    batches = [[one.rows, one.steps, one.failed, one.elapsed_ns] for one in facts.decode_batches]
    assert batches == told.get("batches", [])


def test_two_starts_in_one_log_are_two_boots_and_engine_lines_belong_to_the_next_one() -> None:
    facts, _, told = _read("start", 1 << 20)
    assert [[one.first_line, one.ready.line] for one in facts.boots if one.ready] == told["boots"]


def test_every_proof_leads_back_to_its_line() -> None:
    data = (DATA / "tools.log").read_bytes()
    facts, _, _ = _read("tools", 1 << 20)
    lines = data.split(b"\n")
    for one in facts.requests:
        for _, proof in one.proofs:
            assert data[proof.offset :].startswith(lines[proof.line - 1])
            assert (b"%d" % (one.prompt_tokens or 0)) in lines[proof.line - 1] or b"gen=" in lines[proof.line - 1]


def test_only_lines_that_ds4_would_write_speak_for_the_format() -> None:
    assert FORMAT.name == "ds4"
    lines = (DATA / "start.log").read_bytes().splitlines()
    assert FORMAT.looks_like(lines) == len(lines)
    assert FORMAT.looks_like([b"0.00.035.060 I srv    load_model: loading model", b"", b"INFO: ds4 is nice"]) == 0
