"""Does a diagnosis name the agent, the request and the cause that a test planted? Simulated runs, the truth beside."""

from pathlib import Path
from typing import Any

import pytest

from agentload.analysis.diagnose import diagnose
from tests.analysis.planted import EPOCH_NS, Planted, Talk, plant
from tests.twin.worlds import SECOND


def listed(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["request"]: one for one in found["again"]["listed"]}


# ---- fewer slots than agents -----------------------------------------------------------------------------------------


@pytest.fixture
def stolen(tmp_path: Path) -> Planted:
    """a0 and a1 overlap, so that each has a slot. Both are idle when a2 comes: it takes the lower one, a0's."""
    a0, a1, a2 = Talk("a0", 700), Talk("a1", 900), Talk("a2", 800)
    a0.ask(1, 50)
    a1.ask(2, 50)
    a2.ask(60, 50)
    a0.ask(100, 50, 300)
    return plant(tmp_path, [a0, a1, a2], batched_session=2)


def test_a_slot_that_another_agent_took_is_named_with_its_request_and_line(stolen: Planted) -> None:
    true = stolen.requests
    assert true["a0-r0"].slot == true["a2-r0"].slot != true["a1-r0"].slot  # as it was planted
    found = diagnose(stolen.run.path)
    (one,) = found["again"]["listed"]
    assert (one["agent"], one["request"], one["cause"]) == ("a0", "a0-r1", "slot-taken")
    assert (one["by_agent"], one["by_request"], one["rests_on"]) == ("a2", "a2-r0", "log")
    # 5000 + 700 + 50 tokens were there, 300 were appended, and nothing was found.
    assert (one["before_tokens"], one["appended_tokens"], one["cached_tokens"]) == (5750, 300, 0)
    assert one["again_tokens"] == 5750 == (true["a0-r1"].new_prefill_tokens or 0) - 300
    (proof,) = one["proofs"]
    assert stolen.line(proof["line"]).endswith(
        "live kv cache miss live=5750 prompt=5800 common=5000 vision=match reason=token-mismatch"
    )
    assert (proof["file"], proof["text"]) == ("server.log", stolen.line(proof["line"]))


def test_the_exact_messages_say_that_the_history_only_grew(stolen: Planted) -> None:
    (one,) = diagnose(stolen.run.path)["again"]["listed"]
    assert (one["common_messages"], one["of_messages"]) == (2, 2)
    assert (one["common_tokens"], one["common_estimated"]) == (5750, False)


def test_first_turns_are_counted_and_not_listed(stolen: Planted) -> None:
    again = diagnose(stolen.run.path)["again"]
    assert (again["requests"], again["first_turns"], again["as_appended"], again["again_requests"]) == (4, 3, 0, 1)
    assert again["causes"] == [
        {
            "cause": "slot-taken",
            "title": "its slot was taken by another request",
            "requests": 1,
            "again_tokens": 5750,
            "prefill_s": pytest.approx(6.05, abs=0.01),  # 6,050 tokens of 1 ms
        }
    ]


def test_more_sessions_are_a_judgement_and_name_the_value_in_force(stolen: Planted) -> None:
    (first, *_) = [one for one in diagnose(stolen.run.path)["advice"] if one["code"] == "slot-taken"]
    assert (first["flag"], first["now"], first["grade"]) == ("--batched-session", 2, "judgement")


def test_with_a_slot_for_each_agent_nothing_is_prefilled_again(tmp_path: Path) -> None:
    a0, a1, a2 = Talk("a0", 700), Talk("a1", 900), Talk("a2", 800)
    a0.ask(1, 50)
    a1.ask(2, 50)
    a2.ask(3, 50)
    a0.ask(100, 50, 300)
    made = plant(tmp_path, [a0, a1, a2], batched_session=3)
    again = diagnose(made.run.path)["again"]
    assert (again["as_appended"], again["again_requests"], again["again_tokens"], again["listed"]) == (1, 0, 0, [])


def test_two_agents_whose_slots_held_as_many_tokens_are_both_named(tmp_path: Path) -> None:
    """a0 and a1 have 5,750 tokens each: that a2 took a0's slot is known, by the log, of one of the two only."""
    a0, a1, a2 = Talk("a0", 700), Talk("a1", 700), Talk("a2", 800)
    a0.ask(1, 50)
    a1.ask(2, 50)
    a2.ask(60, 50)
    a0.ask(100, 50, 300)
    found = diagnose(plant(tmp_path, [a0, a1, a2], batched_session=2).run.path)
    (one,) = found["again"]["listed"]
    assert (one["cause"], one["by_request"], one["rests_on"]) == ("slot-taken", "a2-r0", "counts")
    assert "(or that of a1, which held as many: the log names no slots)" in one["sentence"]
    assert {each["grade"] for each in found["advice"] if each["code"] == "slot-taken"} == {"hypothesis"}


# ---- the disk cache --------------------------------------------------------------------------------------------------


def evicted(tmp_path: Path, room_mb: int) -> Planted:
    """a2 takes a0's slot, whose 5750 tokens go to disk (98.4 MiB); a3 takes a1's, whose tokens need room there too."""
    a0, a1, a2, a3 = Talk("a0", 700), Talk("a1", 900), Talk("a2", 800), Talk("a3", 600)
    a0.ask(1, 50)
    a1.ask(2, 50)
    a2.ask(60, 200)  # it is still at work when a3 comes
    a3.ask(65, 50)
    a0.ask(200, 50, 300)
    return plant(tmp_path, [a0, a1, a2, a3], batched_session=2, kv_disk_dir="/kv", kv_disk_space_mb=room_mb)


def test_what_was_dropped_from_disk_is_told_with_who_took_the_slot(tmp_path: Path) -> None:
    made = evicted(tmp_path, 200)
    assert made.requests["a2-r0"].slot == made.requests["a0-r0"].slot
    assert made.requests["a3-r0"].slot == made.requests["a1-r0"].slot
    one = listed(diagnose(made.run.path))["a0-r1"]
    assert (one["cause"], one["by_agent"], one["by_request"]) == ("evicted", "a2", "a2-r0")
    # The shared beginning is on disk: 5000 less 32, cut to a multiple of 2048.
    assert (made.requests["a0-r1"].cached_tokens, one["again_tokens"]) == (4096, 5750 - 4096)
    taken, stored, dropped = (made.line(proof["line"]) for proof in one["proofs"])
    assert "live kv cache miss live=5750 prompt=5800" in taken
    assert "kv cache stored tokens=5750 trimmed=0 reason=evict" in stored
    assert "kv cache evicted reason=disk-cache-full tokens=5750" in dropped


def test_what_was_stored_and_neither_dropped_nor_read_again_is_a_miss_of_the_disk_cache(tmp_path: Path) -> None:
    """The twin finds what it stored: here another line stands in the place of the one that it was dropped."""
    made = evicted(tmp_path, 200)
    log = [line if " kv cache evicted " not in line else "ds4: warming up" for line in made.log]
    made.run.server_log.write_text("\n".join(log) + "\n")
    one = listed(diagnose(made.run.path))["a0-r1"]
    assert (one["cause"], one["by_request"], len(one["proofs"])) == ("disk-miss", "a2-r0", 2)
    assert one["sentence"].endswith("; they were stored on disk, and not read again")


def test_with_room_on_disk_the_history_comes_back_and_nothing_is_listed(tmp_path: Path) -> None:
    made = evicted(tmp_path, 4096)
    assert made.requests["a0-r1"].cached_tokens == 5750
    assert "a0-r1" not in listed(diagnose(made.run.path))


# ---- a prefill of 60,000 tokens --------------------------------------------------------------------------------------


@pytest.fixture
def long(tmp_path: Path) -> Planted:
    """a0 and a1 write; at 40 s a2 comes back with 60,000 new tokens."""
    a0, a1, a2 = Talk("a0", 700), Talk("a1", 900), Talk("a2", 800)
    a0.ask(1, 2000)
    a1.ask(2, 2000)
    a2.ask(3, 20)
    a2.ask(40, 20, 60_000)
    return plant(tmp_path, [a0, a1, a2], batched_session=3, mixed_prefill_quantum=100)


def test_the_prefill_that_stalled_the_others_is_named_with_its_tokens_and_place(long: Planted) -> None:
    found = diagnose(long.run.path)
    first = found["stalls"]["prefills"][0]
    assert (first["agent"], first["request"], first["new_prefill_tokens"]) == ("a2", "a2-r1", 60_000)
    assert first["context_start"] == 5000 + 800 + 20
    assert "ctx=5820..65820:60000 TOOLS prompt start" in long.line(first["line"])
    assert [one["agent"] for one in first["victims"]] == ["a0", "a1"]


def test_what_each_agent_waited_is_what_the_quanta_cost_it(long: Planted) -> None:
    """600 quanta of 100 tokens: a gap is 0.1 s of prefill longer, and a decode step after a quantum takes 0.2 s
    instead of 0.1 s. So a0 and a1 waited 600 x 0.2 s = 120 s each."""
    quanta = [one for one in long.quanta if one.request == "a2-r1"]
    assert len(quanta) == 600
    assert all(one.mixed for one in quanta)
    first = diagnose(long.run.path)["stalls"]["prefills"][0]
    assert [one["stalled_s"] for one in first["victims"]] == pytest.approx([120, 120], rel=0.01)


def test_pairs_add_up_to_what_each_agent_waited(long: Planted) -> None:
    stalls = diagnose(long.run.path)["stalls"]
    for agent in stalls["agents"]:
        mine = [pair for pair in stalls["pairs"] if pair["agent"] == agent["agent"]]
        assert sum(pair["stalled_s"] for pair in mine) == pytest.approx(agent["stalled_s"])
        assert agent["stalled_s"] <= agent["beside_prefill_s"] <= agent["decode_s"]
    assert (stalls["by"], stalls["pairs"][0]["by_agent"]) == ("token stamps", "a2")


def test_the_worst_stalls_have_their_times(long: Planted) -> None:
    true = long.requests["a2-r1"]
    begins, ends = true.prefill_start_ns or 0, true.prefill_end_ns or 0
    for one in diagnose(long.run.path)["stalls"]["worst"]:
        assert one["usual_gap_s"] == pytest.approx(0.101, abs=0.002)  # a step, and 1 ms of the host
        assert one["at_s"] * SECOND == pytest.approx(one["begin_ns"] - EPOCH_NS - SECOND // 2)
        if one["by"][0]["request"] == "a2-r1":
            assert begins - SECOND < one["begin_ns"] < one["end_ns"] < ends + SECOND


def test_an_agent_alone_is_stalled_by_nobody(tmp_path: Path) -> None:
    a0 = Talk("a0", 700)
    a0.ask(1, 100)
    a0.ask(60, 100, 20_000)
    found = diagnose(plant(tmp_path, [a0], batched_session=2).run.path)
    (agent,) = found["stalls"]["agents"]
    assert (agent["stalled_s"], agent["stalls"], found["stalls"]["pairs"]) == (0, 0, [])
    assert found["advice"] == []


# ---- a history that changed ------------------------------------------------------------------------------------------


def one_agent(tmp_path: Path, **words: Any) -> Planted:
    a0 = Talk("a0", 700)
    a0.ask(1, 50)
    a0.ask(60, 50, 300, **words)
    return plant(tmp_path, [a0], batched_session=2)


def test_a_task_that_was_sent_with_other_words_is_told_by_the_log_and_the_messages(tmp_path: Path) -> None:
    made = one_agent(tmp_path, task="another task")
    (one,) = diagnose(made.run.path)["again"]["listed"]
    assert (one["request"], one["cause"], one["by_request"], one["rests_on"]) == (
        *("a0-r1", "history-changed", None, "messages"),
    )
    assert one["sentence"] == "message 2 of 2 (user) was sent with another content than before"
    assert (one["common_messages"], one["of_messages"]) == (1, 2)
    log, before, now = one["proofs"]
    assert "live kv cache miss live=5750 prompt=6050 common=5000" in made.line(log["line"])
    # The schema, system, task, request and answer are lines 1 to 5: the task again is line 6.
    assert [(proof["file"], proof["line"]) for proof in (before, now)] == [
        ("agents/a0/messages.jsonl", 3),
        ("agents/a0/messages.jsonl", 6),
    ]


def test_what_only_the_server_rendered_otherwise_is_told_as_that(tmp_path: Path) -> None:
    made = one_agent(tmp_path, task="another task", told=False)
    found = diagnose(made.run.path)
    (one,) = found["again"]["listed"]
    assert (one["cause"], one["rests_on"], one["by_request"]) == ("answer-rerendered", "log", None)
    assert one["sentence"].startswith("its slot still held its 5,750 tokens, of which 5,000 were the same")
    assert "--tool-memory-max-ids" in [each["flag"] for each in found["advice"]]


def test_a_tool_checkpoint_that_was_rebuilt_is_a_cause_of_its_own(tmp_path: Path) -> None:
    """The twin rebuilds none: three lines as ds4-server writes them stand before the first request's end."""
    made = one_agent(tmp_path)
    lines, stamps = list(made.log), made.run.server_times.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if " finish=" in line)
    head = f"{lines[at][:13]} ds4-server: "
    needs = "tool checkpoint canonicalization needs 5700 tokens rebuild ctx=0..5700:5700 request_ctx=0..5700:5700"
    why = "reason=canonical-tail-rewrite tail=1 discard=1 common=1 live=5750 target=5700 cached=0 source=full"
    done = "tool checkpoint rebuild done ctx=0..5700:5700 request_ctx=0..5700:5700"
    rebuilt = [f"{needs} {why}", f"{done} source=full cached=0 replay=5700 target=5700 5.700s"]
    lines[at:at] = [head + line for line in rebuilt]
    stamps[at:at] = [stamps[at]] * len(rebuilt)
    made.run.server_log.write_text("\n".join(lines) + "\n")
    made.run.server_times.write_text("\n".join(stamps) + "\n")
    found = diagnose(made.run.path)
    (cause,) = found["again"]["causes"]
    assert (cause["cause"], cause["requests"], cause["again_tokens"]) == ("rebuild", 1, 5700)
    assert (found["again"]["again_tokens"], found["again"]["rebuild_tokens"]) == (0, 5700)
    (one,) = found["again"]["listed"]
    assert (one["request"], [lines[proof["line"] - 1] for proof in one["proofs"]]) == ("a0-r0", [head + rebuilt[1]])
    assert [(one["flag"], one["grade"]) for one in found["advice"]] == [("--tool-memory-max-ids", "judgement")]
