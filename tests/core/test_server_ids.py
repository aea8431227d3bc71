"""An answer's id in the log: an exact key, and what lays the log's clock on the client's. Rows worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from agentload.core import clocks
from agentload.core.attribution import attribute
from agentload.core.evidence import exact_pairs
from agentload.core.records import LoggedRequest, Match, Proof, Source, Statistic, Timeline, Usage
from tests.core.test_attribution import T0, S, answer, facts_of, join, logged

NOTHING: dict[str, Any] = dict.fromkeys(
    ("t_slot", "prefill_start", "prefill_end", "decode_start", "decode_end", "t_end"), None
)


def came(rid: str, at_s: float, **fields: Any) -> LoggedRequest:
    """A request of which the log tells the id and when it came."""
    return logged(rid, 0, 1, **(NOTHING | {"server_id": rid, "t_arrived": T0 + round(at_s * S)} | fields))


def test_an_equal_id_is_an_exact_key_where_nothing_else_is_told() -> None:
    found = join(
        [answer("a0-t0", 0, 9, server_id="c-1"), answer("a1-t0", 0, 9, server_id="c-2")],
        came("c-2", 1),
        came("c-1", 1),
    )
    assert [(one.request, one.label, one.match) for one in found.requests] == [
        ("a0-t0", "c-1", Match.EXACT),
        ("a1-t0", "c-2", Match.EXACT),
    ]


def test_an_id_that_differs_speaks_against_a_pair_and_one_that_is_missing_does_not() -> None:
    counts = {"prompt_tokens": 100, "cached_tokens": 40, "new_prefill_tokens": 60, "decoded_tokens": 7}
    usage = Usage(100, 7, 40)
    other = join([answer("a0-t0", 0, 9, server_id="c-1", usage=usage)], logged("x", 1, 8, server_id="c-9", **counts))
    assert {one.match for one in other.requests} == {Match.CLIENT_ONLY, Match.SERVER_ONLY}
    silent = join([answer("a0-t0", 0, 9, usage=usage)], logged("x", 1, 8, server_id="c-9", **counts))
    assert [one.match for one in silent.requests] == [Match.UNIQUE]


def test_an_id_that_two_have_is_no_key() -> None:
    log = [came("c-1", 1), came("c-1", 2)]
    assert exact_pairs([answer("a0-t0", 0, 9, server_id="c-1")], log) == ()


def test_counts_are_the_answers_where_the_log_has_none_and_stay_the_logs_where_it_has() -> None:
    usage = Usage(100, 7, 40)
    (silent,) = join([answer("a0-t0", 0, 9, server_id="c-1", usage=usage)], came("c-1", 1)).requests
    assert (silent.prompt_tokens, silent.cached_tokens, silent.new_prefill_tokens, silent.decoded_tokens) == (
        100,
        40,
        60,
        7,
    )
    assert (silent.cached_source, silent.decode_source) == (Source.USAGE, Source.CLIENT)
    told = came("c-1", 1, prompt_tokens=101, decoded_tokens=8)
    (row,) = join([answer("a0-t0", 0, 9, server_id="c-1", usage=usage)], told).requests
    assert (row.prompt_tokens, row.cached_tokens, row.decoded_tokens, row.cached_source) == (101, None, 8, None)


def test_counts_that_the_answer_has_not_either_stay_unknown() -> None:
    (row,) = join([answer("a0-t0", 0, 9, server_id="c-1", usage=Usage(100, 7, None))], came("c-1", 1)).requests
    assert (row.prompt_tokens, row.cached_tokens, row.new_prefill_tokens) == (100, None, None)


@pytest.mark.parametrize(("counts", "codes"), [(True, ["answers-not-in-log"]), (False, [])])
def test_answers_are_not_missed_in_a_log_that_tells_of_no_request(counts: bool, codes: list[str]) -> None:
    facts = replace(facts_of(), counts_requests=counts)
    found = attribute("r1", [answer("a0-t0", 0, 9)], facts, ())
    assert [one.code for one in found.doubts] == codes


def test_a_clock_of_whole_seconds_is_laid_on_the_clients_by_when_requests_came() -> None:
    # The log's clock is 3,600.2 s ahead, and rounds down. It has the arrivals of two requests, and statistics.
    ahead = 3600.2
    sent = [answer("a0-t0", 1.0, 9, server_id="c-1"), answer("a0-t1", 20.5, 29, server_id="c-2")]
    log = [came("c-1", int(1.05 + ahead)), came("c-2", int(20.55 + ahead))]
    line = Statistic(0, T0 + int(25 + ahead) * S, "engine", "", (("running", 1.0),), Proof(9, 100))
    whole = facts_of(*log, timeline=Timeline.WALL, error_ns=None)
    facts = clocks.align(replace(whole, resolution_ns=S, statistics=(line,)), sent)
    assert facts.timeline is Timeline.UNIX
    error = facts.clock_error_ns
    assert error is not None
    assert error < 1.5 * S
    for one, true_s in zip(facts.requests, (1.05, 20.55), strict=True):
        assert one.t_arrived is not None
        assert abs(one.t_arrived - T0 - round(true_s * S)) <= error + S
    assert abs(facts.statistics[0].at - T0 - 25 * S) <= error + S
