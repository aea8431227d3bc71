"""Two real logs with what is awkward in them, beside grep's counts of their lines and the client's own numbers.

`three_agents`: default verbosity, -np 3 -c 3072 -b 128. Three agents of two turns, one client that leaves while
decoding, one while its prompt is prefilled, a prompt too long, one answer that the context's end cuts short. A print of
the launcher is in it. `small_batches`: six requests of that workload at verbosity 4, shortened; the print tore a line.

Times in the `.json` are stamps of the log in us.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentload.core.attribution import attribute
from agentload.core.clocks import align
from agentload.core.records import Completion, LogFacts, Match, ServerTimings, Source, Timeline, Usage
from agentload.serverlogs.llamacpp import FORMAT

HERE = Path(__file__).parent / "llamacpp"
NAMES = ("three_agents", "small_batches")


def beside(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return found


def raw(name: str) -> bytes:
    return (HERE / f"{name}.log").read_bytes()


def read(data: bytes, stamps: list[int] | None = None) -> LogFacts:
    reader = FORMAT.reader(stamps)
    reader.feed(data)
    assert reader.open_requests() == 0
    return reader.close()


def completions() -> list[Completion]:
    return [
        Completion(
            request=f"{one['agent']}/{one['turn']}",
            agent=one["agent"],
            turn=one["turn"],
            t_sent=one["t_sent"],
            t_first_byte=one["t_first_token"],
            t_first_token=one["t_first_token"],
            t_done=one["t_done"],
            status=None,
            finish=one["finish"],
            usage=Usage(one["prompt"], one["decoded"], one["cached"]) if "new" in one else None,
            timings=ServerTimings(one["cached"], one["new"], one["prompt_ms"], one["decoded"], one["decode_ms"])
            if "new" in one
            else None,
            error=one["error"],
        )
        for one in beside("three_agents")["client"]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_counted_as_grep_counts_them(name: str) -> None:
    lines, wanted = read(raw(name)).lines, beside(name)
    assert (lines.understood, lines.ignored, lines.unknown) == tuple(
        wanted[kind] for kind in ("understood", "ignored", "unknown")
    )
    assert {"LISTEN" in text or "127.0.0.1" in text for _, text in lines.examples} == {True}


@pytest.mark.parametrize("name", NAMES)
def test_each_request_is_what_the_client_was_told_and_what_its_stamps_say(name: str) -> None:
    facts = read(raw(name))
    found = {one.label: one for one in facts.requests}
    assert sorted(found) == sorted(wanted["label"] for wanted in beside(name)["requests"])
    assert facts.doubts == ()
    for wanted in beside(name)["requests"]:
        one = found[wanted["label"]]
        assert (one.finish, one.t_slot, one.t_end) == (
            wanted["finish"],
            wanted["t_slot_us"] * 1000,
            wanted["t_end_us"] * 1000,
        )
        if wanted["finish"] is None:
            assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == tuple(
                wanted[key] for key in ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
            )
            assert (one.prefill_ms, one.decode_ms) == (round(wanted["prefill_ms"], 2), round(wanted["decode_ms"], 2))
            end = wanted["decode_end_us"] * 1000
            middle = end - round(round(wanted["decode_ms"], 2) * 1e6)
            start = middle - round(round(wanted["prefill_ms"], 2) * 1e6)
            assert (one.decode_end, one.decode_start, one.prefill_end, one.prefill_start) == (
                end,
                middle,
                middle,
                start,
            )


def test_one_request_worked_out_by_hand() -> None:
    (one,) = [one for one in read(raw("three_agents")).requests if one.label == "slot 2 task 16"]
    # 0.04.371.851 less 947.86 ms is 3.423991 s; less 186.38 ms is 3.237611 s, 0.371 ms after its slot at 3.237240.
    assert (one.decode_end, one.decode_start) == (4_371_851_000, 3_423_991_000)
    assert (one.prefill_end, one.prefill_start, one.t_slot) == (3_423_991_000, 3_237_611_000, 3_237_240_000)
    # Released with 149 tokens: 149 - (12 - 1) - 28 = 110, all of its first turn.
    assert (one.cached_tokens, one.new_prefill_tokens, one.prompt_tokens, one.context_start) == (110, 28, 138, 110)


def test_clients_that_left_are_known_as_far_as_verbosity_four_tells() -> None:
    found = {one.label: one for one in read(raw("small_batches")).requests}
    decoding, prefilling, refused = (found[f"slot {label}"] for label in ("0 task 34", "2 task 41", "2 task 45"))
    assert (decoding.prompt_tokens, decoding.cached_tokens, decoding.new_prefill_tokens) == (32, 24, 8)
    assert (prefilling.prompt_tokens, prefilling.cached_tokens, prefilling.new_prefill_tokens) == (631, 24, None)
    assert (prefilling.prefill_start, prefilling.prefill_end) == (6_016_221_000, None)  # stamp of its `new prompt` line
    assert (refused.finish, refused.prefill_start, refused.new_prefill_tokens) == ("error", None, None)


def test_the_same_log_without_prefix_has_the_same_counts_and_no_times() -> None:
    prefix = rb"(?m)^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] "
    with_times, without = read(raw("small_batches")), read(re.sub(prefix, b"", raw("small_batches")))
    assert (without.lines.understood, without.lines.ignored) == (with_times.lines.understood, with_times.lines.ignored)
    for one, other in zip(without.requests, with_times.requests, strict=True):
        assert (one.label, one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (
            other.label,
            other.prompt_tokens,
            other.cached_tokens,
            other.new_prefill_tokens,
            other.decoded_tokens,
        )
        assert (one.t_slot, one.prefill_start, one.decode_end, one.t_end) == (None,) * 4
        assert one.prefill_ms == other.prefill_ms
    assert [(one.name, one.value) for one in without.settings] == [(one.name, one.value) for one in with_times.settings]


def test_log_and_client_join_one_to_one_and_their_sums_agree() -> None:
    facts = read(raw("three_agents"), beside("three_agents")["receive_stamps_ns"])
    assert facts.timeline is Timeline.UNIX
    joined = attribute("run", completions(), facts, ())
    assert joined.counts == {
        Match.EXACT: 10, Match.UNIQUE: 3, Match.AMBIGUOUS: 0, Match.CLIENT_ONLY: 0, Match.SERVER_ONLY: 0
    }  # fmt: skip
    labels = {wanted["client"]: wanted["label"] for wanted in beside("three_agents")["requests"]}
    assert {row.request: row.label for row in joined.requests} == labels
    whole = [row for row in joined.requests if row.error is None]
    for ours, theirs in (
        ("prompt_tokens", "usage_prompt_tokens"),
        ("cached_tokens", "usage_cached_tokens"),
        ("decoded_tokens", "usage_completion_tokens"),
    ):
        assert sum(getattr(row, ours) for row in whole) == sum(getattr(row, theirs) for row in whole)
    assert sum(row.new_prefill_tokens or 0 for row in whole) == 2143 - 871  # the client's prompt less cached tokens
    assert {row.prefill_source for row in whole} == {Source.LOG}


def test_without_receive_stamps_the_answers_align_the_log_within_its_error() -> None:
    stamped = read(raw("three_agents"), beside("three_agents")["receive_stamps_ns"])
    aligned = align(read(raw("three_agents")), completions())
    assert aligned.timeline is Timeline.UNIX
    assert aligned.clock_error_ns is not None
    assert stamped.clock_error_ns is not None
    room = aligned.clock_error_ns + stamped.clock_error_ns
    for one, other in zip(aligned.requests, stamped.requests, strict=True):
        assert one.t_end is not None
        assert other.t_end is not None
        assert abs(one.t_end - other.t_end) <= room


@pytest.mark.parametrize("name", NAMES)
def test_proofs_point_at_lines_that_hold_what_they_prove(name: str) -> None:
    data = raw(name)
    texts = {
        "t_slot": b"processing task",
        "prefill_start": b"prompt eval time",
        "prefill_end": b"prompt eval time",
        "new_prefill_tokens": b"prompt eval time",
        "decode_start": b"  eval time",
        "decode_end": b"  eval time",
        "decoded_tokens": b"  eval time",
        "t_end": b"stop processing",
    }
    checked = 0
    for one in read(data).requests:
        for field, proof in one.proofs:
            line = data[proof.offset :].split(b"\n", 1)[0]
            assert data.split(b"\n")[proof.line - 1] == line
            if field in texts and one.finish is None:
                assert texts[field] in line
                checked += 1
    assert checked >= 8 * 3
