"""Is what does not fit said, with its line, and nothing made of it?"""

from dataclasses import replace

import pytest

from agentload.analysis import checks
from agentload.analysis.evidence import Evidence
from agentload.core.records import TEXTLESS, LineCount, LogFacts, Marker, Proof, ServerTimings, Source, Timeline, Usage
from tests.analysis.test_evidence import FAILED, MANIFEST
from tests.analysis.test_evidence import WHOLE as ANSWER
from tests.analysis.test_tables import request

WHOLE = request(
    prefill_start=10,
    prefill_end=20,
    decode_start=20,
    decode_end=30,
    prefill_source=Source.LOG,
    decode_source=Source.LOG,
)


def test_phases_in_order_stay_as_they_are() -> None:
    same = replace(WHOLE, prefill_end=10)
    rows, doubts = checks.phases_in_order([WHOLE, same, request()])
    assert tuple(rows) == (WHOLE, same, request())
    assert doubts == []


def test_a_phase_that_ends_before_it_starts_loses_its_times_and_is_said_with_its_line() -> None:
    prefill = replace(WHOLE, request="a0-r1", prefill_end=9, prefill_proof=Proof(7, 70))
    decode = replace(WHOLE, request="a0-r2", decode_end=19)
    rows, (doubt,) = checks.phases_in_order([prefill, WHOLE, decode])
    assert rows == (
        replace(prefill, prefill_start=None, prefill_end=None, prefill_source=None),
        WHOLE,
        replace(decode, decode_start=None, decode_end=None, decode_source=None),
    )
    assert doubt.code == "phases-backwards"
    assert doubt.message == (
        "2 phases would end before starting, the first is the prefill of a0-r1 (server.log:7): such times are left out"
    )


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 markers"), (1, "1 marker"), (2, "2 markers"), (1200, "1,200 markers")]
)
def test_one_is_one(number: int, said: str) -> None:
    assert checks.counted(number, "marker") == said


@pytest.mark.parametrize(
    ("status", "code"),
    [("success", 0), ("partial", 1), ("invalid", 1), ("cancelled", 1), ("error", 1), ("started", 1)],
)
def test_only_a_run_that_ended_well_exits_with_0(status: str, code: int) -> None:
    assert checks.exit_code({"status": status}) == code


def test_markers_that_were_written_into_the_log_and_are_not_there_are_said() -> None:
    ours = (Marker("begin", "s1", "r", "c", 5, None), Marker("end", "s1", "r", "c", 9, None))
    evidence = Evidence(MANIFEST, (), (), (), (), {}, ours, markers_in_log=ours)
    both = facts(*(replace(one, proof=Proof(1, 0)) for one in ours))
    assert checks.markers_lost(evidence, both) == []
    (doubt,) = checks.markers_lost(evidence, facts(ours[0]))
    assert doubt.message == "1 of 2 markers that were written into the server's log cannot be found in it"
    (doubt,) = checks.markers_lost(replace(evidence, markers_in_log=ours[:1]), facts())
    assert doubt.message == "1 of 1 marker that was written into the server's log cannot be found in it"
    assert checks.markers_lost(replace(evidence, markers_in_log=()), facts()) == []  # all in the sidecar


def facts(*markers: Marker) -> LogFacts:
    return LogFacts("llamacpp", Timeline.UNIX, 1, 1, 0, LineCount(0, 0, 0), (), (), (), markers)


SILENT = replace(ANSWER, usage=None, timings=None)


def test_answers_without_usage_are_said_with_what_is_then_not_known() -> None:
    (doubt,) = checks.without_usage((SILENT, SILENT, FAILED), by_log=False)
    assert doubt.code == "no-usage"
    assert doubt.message == ("the server sent no usage with 2 answers: growth of context and tokens cannot be told")
    assert "stream_options.include_usage" in doubt.advice
    (doubt,) = checks.without_usage((SILENT,), by_log=True)  # the log counts the tokens
    assert doubt.message == "the server sent no usage with 1 answer: growth of context cannot be told"
    timed = replace(SILENT, timings=ServerTimings(0, 10, 1.0, 5, 1.0))
    (doubt,) = checks.without_usage((timed,), by_log=False)  # and so do the answer's timings
    assert doubt.message == "the server sent no usage with 1 answer: growth of context cannot be told"


def test_of_some_answers_without_usage_it_is_said_how_many() -> None:
    whole = replace(ANSWER, usage=Usage(100, 10))
    (doubt,) = checks.without_usage((whole, SILENT, whole), by_log=True)
    assert doubt.message == "the server sent no usage with 1 of 3 answers: growth of context cannot be told in full"
    assert checks.without_usage((whole, replace(FAILED, usage=None)), by_log=False) == []
    assert checks.without_usage((), by_log=False) == []


def test_what_was_odd_about_answers_is_said_once_each_with_how_many_and_the_first() -> None:
    no_end, twice = "the stream ended after its finish_reason, without [DONE]", "usage came more than once"
    odd = [replace(ANSWER, request=f"a0-r{turn}", notes=notes) for turn, notes in enumerate(((), (no_end,), (no_end,)))]
    (doubt,) = checks.odd_answers([*odd, replace(ANSWER, request="a1-r0", notes=(twice,))])
    assert doubt.code == "odd-answers"
    assert doubt.message == (
        f"answers were taken that are not as they should be: {no_end} (2 answers, first a0-r1); "
        f"{twice} (1 answer, first a1-r0)"
    )
    mended = "a tool call came without an id: one was made up"
    harmless = [replace(ANSWER, notes=notes) for notes in ((), (mended,), (TEXTLESS,))]
    assert checks.odd_answers(harmless) == []


def test_of_many_kinds_of_odd_answers_three_are_told() -> None:
    (doubt,) = checks.odd_answers([replace(ANSWER, notes=("one", "two", "three", "four", "five"))])
    assert "three (1 answer, first " in doubt.message
    assert "four" not in doubt.message
    assert doubt.message.endswith("; and 2 things more")


def left_out(**changed: object) -> dict[str, object]:
    whole = {
        "requests": 10,
        "prefill_left_out": 0,
        "prefill_tok_s": 100.0,
        "decode_left_out": 3,
        "decode_tok_s": 12.9,
        "decode_speed_tokens": 100,
        "decode_speed_ns": 7_750_000_000,
    }
    return {"segment": "s1", "whole": whole | changed}


def test_a_speed_that_leaves_requests_out_is_said_with_what_it_is_made_of() -> None:
    (doubt,) = checks.rates_left_out([left_out()])
    assert doubt.code == "rates-leave-out"
    assert doubt.message == (
        "segment s1: decode tok/s leaves out 3 of 10 requests (it is 100 tokens in 7.8 s): of those tokens or times "
        "are not known, or not which tokens the times are of"
    )
    assert checks.rates_left_out([left_out(decode_left_out=0)]) == []
    assert checks.rates_left_out([left_out(decode_tok_s=None)]) == []  # then there is no speed to be mistaken for one


@pytest.mark.parametrize(
    ("others_s", "cores", "doubted"),
    [(50.0, 2, False), (50.1, 2, True), (50.1, 3, False), (None, 2, False), (99.0, None, False)],
)
def test_a_machine_of_which_others_use_more_than_a_quarter_is_doubted(
    others_s: float | None, cores: int | None, *, doubted: bool
) -> None:
    sampled_ns = None if others_s is None else 100_000_000_000  # 2 cores: 200 CPU-s, of which a quarter is 50
    doubts = checks.busy_machine([{"segment": "s1", "host_other_cpu_s": others_s, "sampled_ns": sampled_ns}], cores)
    assert [one.code for one in doubts] == (["busy-machine"] if doubted else [])


def test_a_busy_machine_is_said_in_numbers() -> None:
    part = {"segment": "s1", "host_other_cpu_s": 150.0, "sampled_ns": 100_000_000_000}
    (doubt,) = checks.busy_machine([part], 2)
    assert doubt.message == (
        "segment s1: everything but the server's process (the agents' commands included) used 150.0 CPU-s in the "
        "100.0 s between its first and last sample on 2 cores, 75 % of this machine's CPU time"
    )
