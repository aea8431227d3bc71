"""Does each judgement of a server and its log say what its numbers mean, and what to do?"""

from dataclasses import replace

import pytest

from agentload.core.records import LineCount, Proof, Timeline
from agentload.run.doctor import servers
from agentload.run.doctor.facts import LogSays, ServerSays
from agentload.run.doctor.finding import Level

LOG = LogSays(
    path="server.log",
    owned=False,
    format="ds4",
    known=("ds4", "llamacpp"),
    lines=LineCount(understood=90, ignored=10, unknown=0),
    timeline=Timeline.WALL,
    silent_s=1.0,
    grew_bytes=4000,
    ours=6,
    found=6,
    clock_error_ns=1_000_000_000,
    wall_ahead_s=0.0,
)


def test_a_night_without_a_log_has_only_the_clients_times() -> None:
    found = servers.log_format(None)
    assert found.level is Level.WARN
    assert "--server-log" in found.advice


def test_the_lines_of_a_log_are_counted() -> None:
    found = servers.log_format(LOG)
    assert (found.level, found.found) == (Level.OK, "ds4: 90 lines understood, 10 known and not needed, 0 unknown")


def test_a_log_of_no_known_format_names_those_that_are() -> None:
    found = servers.log_format(replace(LOG, format=None))
    assert found.level is Level.FAIL
    assert "ds4, llamacpp" in found.advice


@pytest.mark.parametrize("log_format", [None, "ds4"])
def test_what_stands_in_front_of_the_lines_of_a_log_is_what_to_do_about_it(log_format: str | None) -> None:
    log = replace(LOG, format=log_format, lines=LineCount(0, 0, 100), why_unknown="behind what ts puts in front")
    assert servers.log_format(log).advice == "behind what ts puts in front"


def test_many_unknown_lines_are_a_warning_with_an_example() -> None:
    lines = LineCount(90, 0, 10, examples=((Proof(3, 80), "what is this"),))
    found = servers.log_format(replace(LOG, lines=lines))
    assert found.level is Level.WARN
    assert "'what is this'" in found.found


def test_a_log_that_does_not_grow_with_our_requests_is_another_servers() -> None:
    assert servers.log_follows(replace(LOG, grew_bytes=0, found=0)).level is Level.FAIL


@pytest.mark.parametrize(("found", "level"), [(6, Level.OK), (5, Level.WARN), (0, Level.FAIL)])
def test_our_requests_are_looked_for_in_the_log(found: int, level: Level) -> None:
    assert servers.log_follows(replace(LOG, found=found)).level is level


def test_a_log_in_which_nothing_of_ours_can_be_is_no_proof_of_anything() -> None:
    assert servers.log_follows(replace(LOG, ours=0, found=0)).level is Level.NOTE


def test_a_log_that_tells_of_no_request_is_only_seen_to_grow() -> None:
    log = replace(LOG, format="vllm", counts=False, shows_requests=False, found=0)
    found = servers.log_follows(log)
    assert (found.level, found.found) == (Level.NOTE, "grew by 4,000 bytes with our requests")
    assert servers.log_follows(replace(log, grew_bytes=0)).level is Level.WARN
    assert "requests beside ours" not in servers.busy(ServerSays(), log).found


def test_requests_without_counts_are_found_by_the_ids_of_their_answers() -> None:
    found = servers.log_follows(replace(LOG, format="vllm", counts=False))
    assert (found.level, found.found) == (Level.OK, "has all 6 requests of ours, by the ids of their answers")


def test_markers_that_may_not_go_into_the_log_are_no_loss() -> None:
    found = servers.markers(replace(LOG, refusal="process 7 opened it without O_APPEND"))
    assert found.level is Level.NOTE
    assert "markers.jsonl" in found.advice
    assert servers.markers(LOG).level is Level.OK


def test_a_log_in_local_time_says_its_zone() -> None:
    found = servers.clock(replace(LOG, wall_ahead_s=7200.4), None)
    assert found.level is Level.NOTE
    assert "UTC+2 h and 0 s ahead of" in found.found
    assert "TZ=UTC" in found.advice


def test_clocks_that_differ_by_seconds_are_a_warning() -> None:
    found = servers.clock(replace(LOG, wall_ahead_s=-12.0), ServerSays(date_ahead_s=-12.0))
    assert found.level is Level.WARN
    assert "its Date header is 12 s behind this machine's clock" in found.found
    assert "NTP" in found.advice


def test_a_log_that_could_not_be_aligned_is_a_warning() -> None:
    assert servers.clock(replace(LOG, clock_error_ns=None, wall_ahead_s=None), None).level is Level.WARN


def test_without_log_and_date_nothing_tells_the_servers_clock() -> None:
    assert servers.clock(None, ServerSays()).level is Level.NOTE


@pytest.mark.parametrize(
    ("says", "log"),
    [
        (ServerSays(processing=2, waiting=0, busy_by="/metrics"), None),
        (ServerSays(processing=0, waiting=1, busy_by="/metrics"), None),
        (ServerSays(), replace(LOG, grew_silent_bytes=120)),
        (ServerSays(), replace(LOG, others=3)),
    ],
)
def test_other_clients_are_seen_in_metrics_and_log(says: ServerSays, log: LogSays | None) -> None:
    assert servers.busy(says, log).level is Level.WARN


def test_a_quiet_server_is_shown_with_what_was_looked_at() -> None:
    found = servers.busy(ServerSays(processing=0, waiting=0, busy_by="/slots and /metrics"), LOG)
    assert found.level is Level.OK
    assert "/slots and /metrics before ours: 0 at work, 0 waiting" in found.found
    assert "grew by 0 bytes in 1.0 s" in found.found


def test_where_nothing_tells_of_others_the_flag_that_would_is_named() -> None:
    assert "--enable-metrics" in servers.busy(ServerSays(software="sglang"), None).advice


@pytest.mark.parametrize(
    ("software", "flag"),
    [
        ("ds4", "--batched-session 3"),
        ("twin", "--batched-session 3"),
        ("llamacpp", "-np 3"),
        ("vllm", "--max-num-seqs 3"),
        ("sglang", "--max-running-requests 3"),
    ],
)
def test_fewer_slots_than_agents_is_slot_theft_and_the_flag_is_named(software: str, flag: str) -> None:
    found = servers.slots(ServerSays(software=software, slots=2, slots_by="its API"), None, 3)
    assert found.level is Level.WARN
    assert "slot theft" in found.found
    assert flag in found.advice
    assert "--agents 2" in found.advice


def test_slots_are_taken_from_the_log_where_the_api_does_not_tell_them() -> None:
    log = replace(LOG, settings={"resident_sessions": 1})
    assert servers.slots(ServerSays(software="ds4"), log, 3).level is Level.WARN
    assert servers.slots(ServerSays(software="ds4"), LOG, 3).level is Level.NOTE


def test_llama_servers_choice_of_slots_is_told_also_where_there_are_enough() -> None:
    found = servers.slots(ServerSays(software="llamacpp", slots=4, slots_by="/props"), None, 3)
    assert found.level is Level.NOTE
    assert "-sps" in found.found


@pytest.mark.parametrize(
    ("tokens", "level"), [(262_144, Level.OK), (180_000, Level.OK), (65_536, Level.WARN), (2_048, Level.FAIL)]
)
def test_a_context_is_held_against_what_agents_may_use(tokens: int, level: Level) -> None:
    says = ServerSays(software="vllm", context_tokens=tokens, context_by="GET /v1/models max_model_len")
    found = servers.context(says, None, 180_000)
    assert found.level is level
    assert f"{tokens:,}" in found.found
    if level is not Level.OK:
        assert "--max-model-len 180000" in found.advice
    assert (f"--context {tokens}" in found.advice) == (level is Level.WARN)


def test_an_unknown_context_is_said_to_be_unknown() -> None:
    assert servers.context(ServerSays(), None, 180_000).level is Level.NOTE


def test_a_simulated_server_is_never_taken_for_a_machine() -> None:
    found = servers.software(ServerSays(software="twin", by="its model says so", simulated=True))
    assert "no machine is measured" in found.found
    assert servers.software(ServerSays()).level is Level.NOTE
