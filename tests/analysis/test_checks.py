"""Is what does not fit said, with its line, and nothing made of it?"""

from dataclasses import replace

import pytest

from agentload.analysis import checks
from agentload.analysis.evidence import Evidence
from agentload.core.records import LineCount, LogFacts, Marker, Proof, Source, Timeline
from tests.analysis.test_evidence import MANIFEST
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
    assert rows == (WHOLE, same, request())
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
    evidence = Evidence(MANIFEST, (), (), (), (), {}, ours, markers_in_log=2)
    both = facts(*(replace(one, proof=Proof(1, 0)) for one in ours))
    assert checks.markers_lost(evidence, both) == []
    (doubt,) = checks.markers_lost(evidence, facts(ours[0]))
    assert doubt.message == "1 of 2 markers that were written into the server's log cannot be found in it"
    (doubt,) = checks.markers_lost(replace(evidence, markers=ours[:1], markers_in_log=1), facts())
    assert doubt.message == "1 of 1 marker that was written into the server's log cannot be found in it"
    assert checks.markers_lost(replace(evidence, markers_in_log=0), facts()) == []  # all in the sidecar


def facts(*markers: Marker) -> LogFacts:
    return LogFacts("llamacpp", Timeline.UNIX, 1, 1, 0, LineCount(0, 0, 0), (), (), (), markers)
