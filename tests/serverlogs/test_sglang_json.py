"""Do requests that SGLang writes as JSON tell the same as those it writes as text, in whatever mix they stand?

sglang/requests_*.log: SGLang's own RequestLogger wrote the lines of requests, of one schedule with a clock of ours:
0.5.23 at level 2 as JSON and as text, 0.5.10 at level 1 as JSON (no stamp in front then). The start, the batch and the
access line are ours. What stands there of each request was worked out by hand.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.core.records import LogFacts, LoggedRequest, Proof, Timeline
from agentload.serverlogs import formats, wrapped
from agentload.serverlogs.sglang import FORMAT
from tests.serverlogs.served import check_detected, counted, data_of, read_by

DATA = Path(__file__).parent / "sglang"
S = 1_000_000_000
AT = "[2026-10-06 11:00:38] "
T0 = 1_791_284_438 * S  # that time, as if it were UTC
BEGIN = '{"timestamp": "2026-10-06T11:00:38.250000", "event": '
INFO: dict[str, Any] = {
    "id": "r1", "finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": 100, "cached_tokens": 64,
    "completion_tokens": 50, "e2e_latency": 6.0, "request_received_ts": 1000.0, "response_sent_to_client_ts": 1001.0,
    "request_finished_ts": 1006.0, "decode_throughput": 10.0,
}  # fmt: skip


def received(rid: object, **obj: object) -> str:
    return f'{BEGIN}"request.received", "rid": {json.dumps(rid)}, "obj": {json.dumps({"rid": rid, **obj})}}}'


def finished(info: object, rid: object = "r1", text: str = "") -> str:
    out = json.dumps({"text": text, "meta_info": info}, ensure_ascii=False)
    return f'{BEGIN}"request.finished", "rid": {json.dumps(rid)}, "obj": {{}}, "out": {out}}}'


def received_text(rid: object, **obj: object) -> str:
    return f"Receive: obj=GenerateReqInput(rid={rid!r}{''.join(f', {key}={obj[key]!r}' for key in obj)}, stream=True)"


def finished_text(info: object, rid: object = "r1", text: str = "") -> str:
    return f"Finish: obj=GenerateReqInput(rid={rid!r}, stream=True), out={ {'text': text, 'meta_info': info}!r}"


def read(*lines: str, stamps: list[int] | None = None) -> LogFacts:
    return read_by(FORMAT, list(lines), stamps)


def without_offsets(one: LoggedRequest) -> LoggedRequest:
    return replace(one, proofs=tuple((name, Proof(proof.line, 0)) for name, proof in one.proofs))


def told(facts: LogFacts) -> tuple[object, ...]:
    """All that a log tells but where in the file it does."""
    return (
        [without_offsets(one) for one in facts.requests],
        [(one.code, one.message) for one in facts.doubts],
        [(one.at, one.kind, one.values, one.proof.line) for one in facts.statistics],
        [(one.name, one.value, one.proof.line) for one in facts.settings],
        [(one.index, one.first_line, one.ready and one.ready.line) for one in facts.boots],
        counted(facts), facts.suspects, facts.counts_requests, facts.timeline, facts.resolution_ns,
    )  # fmt: skip


# ---- what SGLang wrote -----------------------------------------------------------------------------------------------

# label: tokens of the prompt, cached, new, decoded, finish
COUNTS = {
    "chatcmpl-a1": (8000, 6000, 2000, 50, "stop"),
    "chatcmpl-b1": (400, 0, 400, 55, "length"),
    "chatcmpl-c1": (32472, 32472, 0, 0, "cancelled"),  # 40,000 are said to be cached, which is doubted
    "part-0": (100, 64, 36, 10, "stop"),
    "part-1": (101, None, None, 11, "stop"),
}
# Arrival, begin and end of prefill, end of decode, end, in seconds after T0; by stamps of whole seconds in front of the
# line. a1 ended at 6, 6.25 s after its prefill began and 5 s after that ended; b1 at 8, 55 tokens at 11 tokens/s later.
BY_STAMPS = {
    "chatcmpl-a1": (0, -0.25, 1, 6, 6),
    "chatcmpl-b1": (2, None, 3, 8, 8),
    "chatcmpl-c1": (8, None, None, None, 9),
    "part-0": (10, None, None, None, 12),
    "part-1": (10, None, None, None, 13),
}
# The schedule itself, which is what the timestamps within the JSON tell.
BY_TIMESTAMPS = {
    "chatcmpl-a1": (0.25, 0.5, 1.75, 6.75, 6.75),
    "chatcmpl-b1": (2.5, None, 3, 8, 8),
    "chatcmpl-c1": (8.5, None, None, None, 9),
    "part-0": (10, None, None, None, 12),
    "part-1": (10, None, None, None, 13),
}


@pytest.mark.parametrize("piece", [1 << 20, 7])
@pytest.mark.parametrize(
    ("name", "counts", "times"),
    [
        ("requests_json", (12, 2, 0), BY_STAMPS),
        ("requests_text", (12, 2, 0), BY_STAMPS),
        ("requests_json_bare", (12, 1, 0), BY_TIMESTAMPS),
    ],
    ids=["json", "text", "json without stamps"],
)
def test_requests_that_sglang_wrote_are_those_of_its_schedule(
    name: str, counts: tuple[int, int, int], times: dict[str, tuple[float | None, ...]], piece: int
) -> None:
    data = (DATA / f"{name}.log").read_bytes()
    reader = FORMAT.reader()
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    assert reader.open_requests() == 0
    facts = reader.close()
    assert counted(facts) == counts
    assert facts.suspects == ()  # a prompt says "out of memory", and tells of no trouble
    assert [one.code for one in facts.doubts] == ["cached-beyond-prompt"]
    assert {
        one.label: (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens, one.finish)
        for one in facts.requests
    } == COUNTS
    seconds = {
        one.label: tuple(
            None if at is None else (at - T0) / S
            for at in (one.t_arrived, one.prefill_start, one.prefill_end, one.decode_end, one.t_end)
        )
        for one in facts.requests
    }
    assert seconds == times
    assert [one.server_id for one in facts.requests] == [one.label for one in facts.requests]


def test_the_lines_that_prove_a_request_are_where_they_stand() -> None:
    log = DATA / "requests_json.log"
    reader = FORMAT.reader()
    reader.feed(log.read_bytes())
    (one,) = [one for one in reader.close().requests if one.label == "chatcmpl-a1"]
    for name, event in (("t_arrived", b"request.received"), ("t_end", b"request.finished")):
        line = log.read_bytes()[dict(one.proofs)[name].offset :].partition(b"\n")[0]
        assert b'"event": "' + event + b'", "rid": "chatcmpl-a1"' in line


# ---- both forms, in any mix ------------------------------------------------------------------------------------------


def test_what_sglang_wrote_as_json_and_as_text_is_the_same() -> None:
    found = [FORMAT.reader(), FORMAT.reader()]
    for reader, name in zip(found, ("json", "text"), strict=True):
        reader.feed((DATA / f"requests_{name}.log").read_bytes())
    assert told(found[0].close()) == told(found[1].close())


COUNT = st.one_of(st.integers(0, 10_000), st.sampled_from([None, -1, True, 10**13, 10**40, 7.5, "7", [7]]))
SECONDS = st.one_of(st.floats(0, 20).map(lambda one: 1000 + one), st.sampled_from([None, 0, -1.0, 1e12, True, "1"]))
REASON: st.SearchStrategy[object] = st.sampled_from(
    [
        {"type": "stop", "matched": 2},
        {"type": "abort"},
        {"type": "length"},
        {"type": 7},
        {},
        None,
        "stop",
        "\x1b[1m",
        [],
    ]
)
INFOS = st.fixed_dictionaries(
    {},
    optional={
        "finish_reason": REASON, "prompt_tokens": COUNT, "cached_tokens": COUNT, "completion_tokens": COUNT,
        "e2e_latency": st.one_of(st.floats(0, 20), st.sampled_from([None, 1e9, "1"])), "queue_time": SECONDS,
        "request_received_ts": SECONDS, "request_finished_ts": SECONDS, "forward_entry_time": SECONDS,
        "prefill_finished_time": SECONDS, "response_sent_to_client_ts": SECONDS, "decode_throughput": COUNT,
    },
)  # fmt: skip
NAMES = st.sampled_from(["r1", "r2", "chatcmpl-3"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# (second of the hour, forms: is it JSON in the one and in the other log, names of a batch that came or (name, info))
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 59), st.booleans(), st.booleans(), TEXTS,
        st.one_of(NAMES, st.lists(NAMES, min_size=1, max_size=3), st.tuples(NAMES, INFOS)),
    ),
    max_size=12,
)  # fmt: skip


def rendered(event: tuple[int, bool, bool, str, Any], *, as_json: bool) -> str:
    second, _, _, text, what = event
    stamp = f"[2026-10-06 11:00:{second:02}] "
    if isinstance(what, tuple):
        rid, info = what
        return stamp + (finished if as_json else finished_text)({"id": rid, **info}, rid, text)
    return stamp + (received if as_json else received_text)(what, text=text)


@given(EVENTS, st.booleans())
def test_a_schedule_tells_the_same_as_json_as_text_and_as_any_mix_of_them(
    events: list[tuple[int, bool, bool, str, Any]], stamped: bool
) -> None:
    stamps = [T0 + n for n in range(len(events))] if stamped else None
    text = read(*(rendered(one, as_json=False) for one in events), stamps=stamps)
    assert counted(text) == (len(events), 0, 0)
    assert told(read(*(rendered(one, as_json=True) for one in events), stamps=stamps)) == told(text)
    assert told(read(*(rendered(one, as_json=one[1]) for one in events), stamps=stamps)) == told(text)


def test_a_request_that_came_as_text_may_end_as_json() -> None:
    (one,) = read(AT + received_text("r1"), "[2026-10-06 11:00:44] " + finished(INFO)).requests
    assert (one.t_arrived, one.t_end, one.prompt_tokens) == (T0, T0 + 6 * S, 100)


def test_requests_are_open_from_their_first_line_of_json_to_their_last() -> None:
    reader = FORMAT.reader()
    reader.feed(data_of([AT + received(["r1", "r2"]), AT + received("r3")]))
    assert reader.open_requests() == 3
    reader.feed(data_of([AT + finished(INFO)]))
    assert reader.open_requests() == 2


def test_with_receive_stamps_the_time_within_the_json_does_not_count() -> None:
    facts = read(received("r1"), finished(INFO), stamps=[1_790_000_000 * S, 1_790_000_006 * S])
    assert facts.timeline is Timeline.UNIX
    assert [(one.t_arrived, one.t_end) for one in facts.requests] == [(1_790_000_000 * S, 1_790_000_006 * S)]


# ---- what is known and not used --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        BEGIN + '"request.received.openai", "obj": {"messages": [{"content": "CUDA out of memory"}]}}',
        BEGIN + '"scheduler.status", "rank": 0, "running_rids": ["r1"], "queued_rids": []}',
        "Receive OpenAI: obj={'messages': [{'content': 'CUDA out of memory'}]}",
    ],
    ids=["openai", "status", "openai as text"],
)
@pytest.mark.parametrize("stamp", [AT, ""], ids=["stamp", "bare"])
def test_lines_that_tell_nothing_of_a_request_are_ignored(line: str, stamp: str) -> None:
    facts = read(AT + "The server is fired up and ready to roll!", stamp + line, AT + finished(INFO))
    assert (counted(facts), facts.suspects, len(facts.requests)) == ((2, 1, 0), (), 1)


# ---- torn, foreign, hostile ------------------------------------------------------------------------------------------

FINISHED = finished(INFO, text='é "quoted"')
HOSTILE = {
    "NaN": FINISHED.replace('"e2e_latency": 6.0', '"e2e_latency": NaN'),
    "infinity": FINISHED.replace('"decode_throughput": 10.0', '"decode_throughput": -Infinity'),
    "a number of 5,000 digits": FINISHED.replace('"prompt_tokens": 100', f'"prompt_tokens": {"9" * 5_000}'),
    "a name twice": FINISHED.replace('"prompt_tokens": 100', '"prompt_tokens": 100, "prompt_tokens": 1'),
    "an event twice": FINISHED[:-1] + ', "event": "request.received"}',
    "two ends": FINISHED[:-1] + ', "out": {"meta_info": {}}}',
    "two lines in one": FINISHED + FINISHED,
    "more behind it": FINISHED + " INFO: 200 OK",
    "deep lists": FINISHED.replace('"obj": {}', f'"obj": {"[" * 200_000}{"]" * 200_000}'),
    "deep objects": FINISHED.replace('"obj": {}', '"obj": ' + '{"a": ' * 100_000 + "1" + "}" * 100_000),
    "300,000 objects": FINISHED.replace('"obj": {}', f'"obj": [{", ".join(["{}"] * 300_000)}]'),
    "another's end": finished({**INFO, "id": "r9"}),
    "an end of several": finished(INFO, ["r1", "r2"]),
    "no name": finished(INFO, ""),
    "a name that is a number": finished(INFO, 7),
    "a name that is null": received(None),
    "a name that is an object": received({"r1": 1}),
    "a name that a terminal obeys": received("\x1b[31m"),
    "a name of 201": received("a" * 201),
    "no names": received([]),
    "4,097 names": received([f"r{n}" for n in range(4_097)]),
    "a name among names that is none": received(["r1", 2]),
    "no out": BEGIN + '"request.finished", "rid": "r1", "obj": {}}',
    "out that is a list": BEGIN + '"request.finished", "rid": "r1", "obj": {}, "out": []}',
    "meta_info that is a text": finished("stop"),
    "an event that is not known": FINISHED.replace("request.finished", "request.paused"),
    "another order": '{"timestamp": "2026-10-06T11:00:38", "rid": "r1", "event": "request.received"}',
    "a zone": FINISHED.replace(".250000", ".250000Z"),
    "a text that ends in it": FINISHED.replace('"text"', '"text\t"'),
    "trouble in one that is torn": FINISHED.replace("quoted", "CUDA out of memory")[:-3],
}  # fmt: skip


@pytest.mark.parametrize("line", [*HOSTILE.values()], ids=[*HOSTILE])
@pytest.mark.parametrize("stamp", [AT, ""], ids=["stamp", "bare"])
def test_a_line_that_is_no_whole_event_is_unknown_and_changes_nothing(line: str, stamp: str) -> None:
    ready = AT + "The server is fired up and ready to roll!"
    facts = read(ready, AT + received("r0"), stamp + line, AT + finished({**INFO, "id": "r0"}, "r0"))
    assert (counted(facts), facts.suspects, facts.doubts) == ((3, 0, 1), (), ())
    assert [(one.label, one.prompt_tokens) for one in facts.requests] == [("r0", 100)]


def test_a_time_of_day_that_is_none_makes_a_line_without_stamp_unknown() -> None:
    assert counted(read(FINISHED.replace("10-06T", "13-06T"))) == (0, 0, 1)
    assert counted(read(AT + FINISHED.replace("10-06T", "13-06T"))) == (1, 0, 0)


@given(st.integers(1, len(FINISHED.encode()) - 1))
def test_a_line_of_json_that_was_cut_off_anywhere_is_unknown(length: int) -> None:
    reader = FORMAT.reader()
    reader.feed(AT.encode() + FINISHED.encode()[:length] + b"\n")
    facts = reader.close()
    assert counted(facts) == (0, 0, 1)
    assert facts.requests == ()


def test_what_a_prompt_or_an_answer_says_is_no_request() -> None:
    said = f"\n{AT}{finished({**INFO, 'id': 'evil'}, 'evil')}\n, rid='evil', out={{'meta_info': {{}}}}"
    facts = read(AT + received("r1", text=said), AT + finished(INFO, text=said))
    assert [(one.label, one.prompt_tokens) for one in facts.requests] == [("r1", 100)]
    assert counted(facts) == (2, 0, 0)


def test_numbers_that_cannot_be_are_not_known() -> None:
    info = {**INFO, "prompt_tokens": 10**30, "cached_tokens": True, "completion_tokens": -1}
    line = finished(info).replace('"e2e_latency": 6.0', '"e2e_latency": 1e999')
    (one,) = read(AT + line).requests
    assert (one.prompt_tokens, one.cached_tokens, one.new_prefill_tokens, one.decoded_tokens) == (None,) * 4
    assert (one.t_arrived, one.t_end) == (T0 - 6 * S, T0)  # by its two stamps of the server's clock


@pytest.mark.parametrize("reason", ["\ud83d", "\x1b[31m", "a" * 41, "Stop it"], ids=["half", "escape", "long", "words"])
def test_a_reason_that_is_no_word_is_not_kept(reason: str) -> None:
    info = {**INFO, "finish_reason": {"type": reason}}
    as_json = finished(info).replace(reason, json.dumps(reason)[1:-1]) if reason.isascii() else None
    line = as_json or finished(INFO).replace('"stop"', json.dumps(reason))
    assert [one.finish for one in read(AT + line, AT + finished_text(info)).requests] == [None, None]


def test_a_name_of_half_an_emoji_is_kept_as_its_escape() -> None:
    facts = read(AT + received("\ud83d"), AT + finished(INFO).replace('"r1"', r'"\ud83d"'))
    assert counted(facts) == (2, 0, 0)
    assert [(one.server_id, one.prompt_tokens) for one in facts.requests] == [(r"\ud83d", 100)]


# ---- text that was not read alike ------------------------------------------------------------------------------------


def test_the_end_of_a_request_as_text_is_read_where_the_middle_of_its_answer_was_left_out() -> None:
    out = "{'text': 'it' ... \"don't\", 'output_ids': [1, 2] ... [8, 9], 'meta_info': " + repr(INFO) + "}"
    facts = read(AT + "Finish: obj=GenerateReqInput(rid='r1', text='a' ... 'b'), out=" + out)
    assert [(one.prompt_tokens, one.decoded_tokens) for one in facts.requests] == [(100, 50)]
    assert counted(facts) == (1, 0, 0)


def test_a_request_as_text_has_the_name_that_leads_and_not_one_of_its_prompt() -> None:
    said = "see, rid='evil', and, rid='worse')"
    came = f"Receive: obj=GenerateReqInput(rid='r1', text=\"{said}\", stream=True)"
    facts = read(AT + came, AT + finished_text(INFO, text=said))
    assert [(one.label, one.t_arrived) for one in facts.requests] == [("r1", T0)]


def test_a_batch_as_text_is_as_many_requests_as_it_names() -> None:
    reader = FORMAT.reader()
    reader.feed(data_of([AT + received_text(["r1", "r2"], text="see, rid='evil', rid=['worse']")]))
    assert reader.open_requests() == 2
    reader.feed(data_of([AT + finished({**INFO, "id": name}, name) for name in ("r1", "r2")]))
    assert [(one.label, one.t_arrived) for one in reader.close().requests] == [("r1", T0), ("r2", T0)]


# ---- detected --------------------------------------------------------------------------------------------------------


def test_a_log_of_json_alone_is_detected_and_another_programs_json_is_not() -> None:
    others = [
        b'{"timestamp": "2026-10-06T11:00:38", "event": "request.finished", "path": "/v1", "status": 200}',
        b'{"timestamp": "2026-10-06T11:00:38", "event": "request.received.openai", "body": {}}',
        b'{"levelname": "INFO", "message": "Application startup complete."}',
        b'it says {"timestamp": "2026-10-06T11:00:38", "event": "request.received", "rid": "r1"}',
    ]
    check_detected(FORMAT, [received("r1"), AT + received("r2"), FINISHED], 3, others)


def test_a_request_of_a_megabyte_is_detected_by_its_beginning() -> None:
    line = AT + received("r1", input_ids=list(range(200_000)))
    assert len(line) > 1_000_000
    assert formats.detect(line.encode()[: formats.HEAD_BYTES]) == "sglang"
    assert counted(read(line)) == (1, 0, 0)


def test_a_log_of_json_behind_a_prefix_is_said_to_be_of_sglang() -> None:
    said = wrapped.why_unknown(data_of([f"sglang-1  | {received('r1')}"] * 3), "s.log")
    assert said is not None
    assert said.startswith("3 of its first 3 lines are of sglang, behind what docker compose logs puts in front")
