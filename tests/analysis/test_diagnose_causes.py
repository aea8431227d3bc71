"""Is each cause told from its lines, its messages or its settings, and is none made up? Hand-made runs on llama.cpp.

A first request has 1,000 tokens and writes 100; the next appends 200 and finds nothing (1,100 again), or something.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.analysis.diagnose import diagnose
from agentload.artifacts.rundir import RunDir
from tests.analysis.llama_runs import (
    BOOT_NS,
    READY,
    START,
    S,
    Served,
    answer,
    asked,
    grown,
    log_of,
    message,
    write,
)
from tests.program import program

FIRST = Served("a0", 0, 0, 0, 1.0, 1000, decoded=100)
AGAIN = Served("a0", 1, 0, 7, 60.0, 1300, decoded=10, decode_s=0.5)
OTHER = Served("a1", 0, 0, 3, 30.0, 900, decoded=20, decode_s=0.7)


def one(run: RunDir) -> dict[str, Any]:
    (listed,) = diagnose(run.path)["again"]["listed"]
    assert isinstance(listed, dict)
    return listed


def line_of(run: RunDir, number: int) -> str:
    return run.server_log.read_text().splitlines()[number - 1]


def flags(run: RunDir, code: str) -> list[tuple[str | None, str]]:
    return [(each["flag"], each["grade"]) for each in diagnose(run.path)["advice"] if each["code"] == code]


# ---- slots -----------------------------------------------------------------------------------------------------------


def test_another_request_in_the_slot_took_it_and_the_lines_of_its_choice_are_shown(tmp_path: Path) -> None:
    similar = "selected slot by LCP similarity, f_sim_best = 0.830 (> 0.100 thold), f_keep = 0.700"
    run = write(tmp_path, [FIRST, replace(OTHER, chosen=similar), AGAIN], talks={"a0": grown("a0")})
    found = one(run)
    assert (found["agent"], found["request"], found["cause"]) == ("a0", "a0-r1", "slot-taken")
    assert (found["by_agent"], found["by_request"], found["rests_on"]) == ("a1", "a1-r0", "log")
    assert (found["before_tokens"], found["appended_tokens"], found["again_tokens"]) == (1100, 200, 1100)
    chosen, launched = (line_of(run, proof["line"]) for proof in found["proofs"])
    assert similar in chosen
    assert launched.endswith("id  0 | task 3 | processing task, is_child = 0")
    assert [proof["text"] for proof in found["proofs"]] == [chosen, launched]
    assert flags(run, "slot-taken") == [
        ("-np", "judgement"),
        ("--slot-prompt-similarity (-sps)", "judgement"),
        ("--cache-ram", "judgement"),
    ]


def test_the_first_of_several_that_came_into_the_slot_took_it(tmp_path: Path) -> None:
    later = replace(OTHER, agent="a2", task=5, at_s=40.0, decode_s=0.9)
    assert one(write(tmp_path, [FIRST, OTHER, later, AGAIN]))["by_request"] == "a1-r0"


def test_who_was_in_the_slot_before_took_nothing(tmp_path: Path) -> None:
    """a1 had the slot before a0 came."""
    earlier = replace(OTHER, at_s=0.6, prefill_s=0.1, decode_s=0.1)
    found = one(write(tmp_path, [earlier, FIRST, AGAIN], talks={"a0": grown("a0")}))
    assert (found["cause"], found["by_request"]) == ("unknown", None)


def test_a_request_in_another_slot_took_nothing(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, replace(OTHER, slot=1), AGAIN], talks={"a0": grown("a0")})
    found = one(run)
    assert (found["cause"], found["by_agent"], found["rests_on"], found["proofs"]) == ("unknown", None, None, [])
    assert flags(run, "unknown") == [("-lv 4", "hypothesis")]


def test_another_slot_than_the_one_that_held_the_history_is_told_with_the_servers_reason(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, replace(AGAIN, slot=2)], talks={"a0": grown("a0")})
    found = one(run)
    assert (found["cause"], found["rests_on"]) == ("other-slot", "log")
    assert "selected slot by LRU" in found["proofs"][0]["text"]


def test_a_cache_that_the_server_could_not_use_is_told_by_its_own_line(tmp_path: Path) -> None:
    why = "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory)"
    run = write(tmp_path, [FIRST, replace(AGAIN, more=why)], talks={"a0": grown("a0")})
    found = one(run)
    assert (found["cause"], found["proofs"][0]["text"]) == ("cache-unusable", line_of(run, found["proofs"][0]["line"]))
    assert flags(run, "cache-unusable")[0] == ("--swa-full", "judgement")


# ---- starts and settings ---------------------------------------------------------------------------------------------


def test_a_start_of_the_server_in_between_is_told_with_its_line(tmp_path: Path) -> None:
    again = replace(AGAIN, task=0, at_s=1.0)
    log = log_of([FIRST]) + log_of([again])
    run = write(tmp_path, [FIRST, again], log=log, boots_ns=[BOOT_NS, BOOT_NS + 50 * S], talks={"a0": grown("a0")})
    found = one(run)
    (proof,) = found["proofs"]
    assert (found["cause"], line_of(run, proof["line"]) + "\n") == ("restart", START)
    assert log_of([FIRST]).count("\n") + 1 == proof["line"]
    assert READY in log


def test_caching_that_was_switched_off_is_told_by_its_setting(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, AGAIN], argv=("llama-server", "--no-cache-prompt"), talks={"a0": grown("a0")})
    found = one(run)
    assert (found["cause"], found["rests_on"]) == ("cache-off", "settings")
    assert flags(run, "cache-off") == [("--cache-prompt", "judgement")]


def test_without_any_hit_in_three_turns_or_more_caching_that_is_off_is_a_hypothesis(tmp_path: Path) -> None:
    turns = [replace(AGAIN, turn=at, task=at, at_s=60.0 * at, new=1000 + 300 * at) for at in (1, 2, 3)]
    run = write(tmp_path, [FIRST, *turns], talks={"a0": grown("a0", 4)})
    listed = diagnose(run.path)["again"]["listed"]
    assert {(each["cause"], each["rests_on"]) for each in listed} == {("cache-off", "counts")}
    assert flags(run, "cache-off") == [("--cache-prompt", "hypothesis")]


# ---- messages --------------------------------------------------------------------------------------------------------


def with_talk(out: Path, talk: list[dict[str, Any]], cached: int = 0, new: int = 1300) -> RunDir:
    return write(out, [FIRST, replace(AGAIN, cached=cached, new=new)], talks={"a0": talk})


def test_a_message_that_was_sent_otherwise_is_named_with_both_lines(tmp_path: Path) -> None:
    talk = grown("a0")
    talk[4:4] = [message(1, "system", content="s, at 12:01")]
    found = one(with_talk(tmp_path, talk))
    assert (found["cause"], found["rests_on"]) == ("history-changed", "messages")
    assert found["sentence"] == "message 1 of 2 (system) was sent with another content than before"
    assert (found["common_messages"], found["of_messages"], found["common_tokens"]) == (0, 2, 0)
    # The schema is line 1, then system, task, request, answer, and the system prompt again.
    assert [(proof["file"], proof["line"]) for proof in found["proofs"]] == [
        ("agents/a0/messages.jsonl", 2),
        ("agents/a0/messages.jsonl", 6),
    ]


def test_an_answer_sent_back_without_its_reasoning_is_told(tmp_path: Path) -> None:
    talk = grown("a0")
    talk[3] = answer("a0-r0", "said 0", reasoning="hm")
    found = one(with_talk(tmp_path, talk, cached=1000, new=260))
    assert (found["cause"], found["again_tokens"]) == ("history-changed", 100)
    assert found["sentence"] == "the answer of a0-r0 was sent back without its reasoning"


def test_an_answer_sent_back_with_fewer_calls_is_told(tmp_path: Path) -> None:
    talk = grown("a0")
    calls = [{"id": str(at), "name": "read", "arguments": f'{{"path": "{at}"}}'} for at in range(3)]
    talk[3] = answer("a0-r0", "said 0", tool_calls=calls)
    kept = [{"id": "0", "type": "function", "function": {"name": "read", "arguments": '{"path": "0"}'}}]
    talk[4] = message(3, "assistant", content="said 0", tool_calls=kept)
    assert one(with_talk(tmp_path, talk))["sentence"] == "the answer of a0-r0 was sent back with 1 of its 3 tool calls"


def test_another_tool_choice_is_told(tmp_path: Path) -> None:
    talk = [*grown("a0")[:6], asked("a0-r1", 4, "none")]
    found = one(with_talk(tmp_path, talk))
    assert found["sentence"] == 'tool_choice was changed from null to "none"'
    assert (found["common_messages"], found["of_messages"]) == (2, 2)


def test_a_history_that_only_grew_and_was_reused_up_to_the_answer_was_rendered_anew(tmp_path: Path) -> None:
    found = one(with_talk(tmp_path, grown("a0"), cached=1000, new=260))
    assert (found["cause"], found["rests_on"], found["again_tokens"]) == ("answer-rerendered", "counts", 100)


def test_an_answer_that_was_not_sent_back_is_no_context_before(tmp_path: Path) -> None:
    """The same two messages are asked again: of 1,000 tokens 999 were found."""
    talk = [*grown("a0")[:4], asked("a0-r1", 2)]
    again = diagnose(with_talk(tmp_path, talk, cached=999, new=1).path)["again"]
    assert (again["as_appended"], again["again_requests"]) == (1, 0)


def test_no_more_is_prefilled_again_than_the_prompt_is_long(tmp_path: Path) -> None:
    """The same 1,000 tokens without any messages kept: of 1,100 before at most 1,000 are asked for, 999 were found."""
    again = diagnose(write(tmp_path, [FIRST, replace(AGAIN, cached=999, new=1)]).path)["again"]
    assert (again["as_appended"], again["again_requests"]) == (1, 0)


def test_64_tokens_are_none_and_65_are_listed(tmp_path: Path) -> None:
    few = diagnose(with_talk(tmp_path / "few", grown("a0"), cached=1036, new=264).path)["again"]
    more = diagnose(with_talk(tmp_path / "more", grown("a0"), cached=1035, new=265).path)["again"]
    assert [(each["again_requests"], each["again_tokens"]) for each in (few, more)] == [(0, 0), (1, 65)]


def test_a_new_conversation_in_the_same_file_is_a_first_turn(tmp_path: Path) -> None:
    talk = [*grown("a0")[:4], message(1, "system", content="x"), message(2, "user", content="y"), asked("a0-r1", 2)]
    again = diagnose(with_talk(tmp_path, talk).path)["again"]
    assert (again["first_turns"], again["again_requests"]) == (2, 0)


# ---- what is not known -----------------------------------------------------------------------------------------------


def test_without_log_and_messages_the_cause_is_unknown_and_said_so(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, OTHER, AGAIN], log="")
    found = diagnose(run.path)
    (listed,) = found["again"]["listed"]
    assert (listed["cause"], listed["common_messages"], listed["by_agent"]) == ("unknown", None, None)
    assert listed["sentence"] == "neither the log nor the messages tell why (no messages of it are kept)"
    assert "no-log" in {doubt["code"] for doubt in found["doubts"]}


def test_without_token_stamps_only_the_time_beside_prefills_is_known(tmp_path: Path) -> None:
    """a0 decodes from 2 to 12 s; a1 prefills from 4 to 7 s."""
    slow = replace(FIRST, decode_s=10.0)
    beside = replace(OTHER, slot=1, at_s=4.0, prefill_s=3.0)
    stalls = diagnose(write(tmp_path, [slow, beside]).path)["stalls"]
    assert (stalls["by"], stalls["worst"], stalls["prefills"]) == ("phases", [], [])
    (pair,) = stalls["pairs"]
    assert (pair["agent"], pair["by_agent"], pair["stalled_s"]) == ("a0", "a1", None)
    assert pair["beside_prefill_s"] == pytest.approx(3.0)
    assert (pair["largest_request"], pair["largest_new_tokens"]) == ("a1-r0", 900)


def test_time_beside_two_prefills_counts_once_and_only_inside_the_decode(tmp_path: Path) -> None:
    """a0 decodes from 2 to 12 s; a1 prefills from 11 to 14 s, a2 from 10 to 13 s: 1 s, 2 s, and 2 s together."""
    slow = replace(FIRST, decode_s=10.0)
    a1 = replace(OTHER, slot=1, at_s=11.0, prefill_s=3.0)
    a2 = replace(OTHER, agent="a2", slot=2, task=4, at_s=10.0, prefill_s=3.0, decode_s=0.9)
    stalls = diagnose(write(tmp_path, [slow, a1, a2]).path)["stalls"]
    beside = {pair["by_agent"]: pair["beside_prefill_s"] for pair in stalls["pairs"] if pair["agent"] == "a0"}
    assert beside == pytest.approx({"a1": 1.0, "a2": 2.0})
    assert stalls["agents"][0]["beside_prefill_s"] == pytest.approx(2.0)


def test_events_that_were_cut_off_since_the_account_are_a_doubt(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, OTHER])
    assert "events-gone" not in {doubt["code"] for doubt in diagnose(run.path)["doubts"]}
    run.events_path.write_text(run.events_path.read_text().splitlines(keepends=True)[0])
    (doubt,) = [doubt for doubt in diagnose(run.path)["doubts"] if doubt["code"] == "events-gone"]
    assert doubt["message"].startswith("derived/ has 2 requests of the agents that events.jsonl has not")


def test_a_log_that_was_taken_away_since_the_account_is_a_doubt(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, OTHER])
    assert "log-gone" not in {doubt["code"] for doubt in diagnose(run.path)["doubts"]}
    run.server_log.unlink()
    assert "log-gone" in {doubt["code"] for doubt in diagnose(run.path)["doubts"]}


def test_events_with_a_torn_end_are_a_doubt(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, OTHER])
    with run.events_path.open("a") as file:
        file.write('{"ev')
    assert "torn-events" in {doubt["code"] for doubt in diagnose(run.path)["doubts"]}


def test_of_a_server_of_no_known_kind_the_diagnosis_says_so(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST, AGAIN], log="", argv=("my-server",), software=None)
    done = program("diagnose", str(run.path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{run.name}: diagnosis of a run on a server of an unknown kind\n")
    assert "unknown: neither the log nor the messages tell why" in " ".join(done.stdout.split())


def test_a_run_without_requests_has_nothing_to_diagnose(tmp_path: Path) -> None:
    run = write(tmp_path, [FIRST])
    run.events_path.write_text(run.events_path.read_text().splitlines(keepends=True)[0])
    run.server_log.write_text(START + READY)
    found = diagnose(run.path)
    assert (found["stalls"]["by"], found["stalls"]["agents"], found["again"]["requests"]) == (None, [], 0)
    assert "Prefilled again: not known" in program("diagnose", str(run.path)).stdout


def test_a_prefill_that_only_the_client_timed_is_left_out_where_the_log_tells_others(tmp_path: Path) -> None:
    """a1's request stands in no line of the log: what the client saw of it is a window with its queueing."""
    slow = replace(FIRST, decode_s=10.0)
    unseen = replace(OTHER, slot=1, at_s=4.0, prefill_s=3.0)
    run = write(tmp_path, [slow, unseen], log=log_of([slow]))
    events = [json.loads(line) for line in run.events_path.read_text().splitlines()]
    events[2]["timings"] = None
    run.events_path.write_text("".join(json.dumps(event) + "\n" for event in events))
    found = diagnose(run.path)
    assert found["stalls"]["pairs"] == []
    assert "prefills-left-out" in {doubt["code"] for doubt in found["doubts"]}
