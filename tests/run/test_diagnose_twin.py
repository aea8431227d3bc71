"""Does a diagnosis of a whole simulated run say what truth.jsonl says? Three agents, two resident sessions, real tools.

Whose slot was taken by whom is worked out from the truth alone: which request came next into the slot of each.
"""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentload.agents import workspace
from agentload.analysis.diagnose import diagnose
from agentload.analysis.truth import TRUTH
from agentload.twin import truth
from agentload.twin.events import DecodeStep, Quantum, Request
from tests.program import program
from tests.run.runs import Made, make
from tests.twin.worlds import only

SECOND = 1_000_000_000
LEAST = 64


@pytest.fixture(scope="module")
def made(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Made:
    server = {"kind": "twin", "set": {"batched_session": 2, "mixed_prefill_quantum": 512}}
    fields = {"corpus": "tiny", "seed": 7, "server": server, "limits": {"tool_calls": 8}}
    return anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, fields)


@pytest.fixture(scope="module")
def found(made: Made) -> dict[str, Any]:
    return diagnose(made.run.path)


def events(made: Made) -> list[Any]:
    with (made.run.path / TRUTH).open(encoding="utf-8") as lines:
        return truth.read(lines)[1]


def thieves(requests: list[Request]) -> dict[str, str]:
    """Request -> the one that came into the slot of the request before it, where that was another agent's."""
    in_order = sorted(requests, key=lambda one: one.slot_ns or 0)
    stolen = {}
    for place, one in enumerate(in_order):
        agent = one.request.partition("-")[0]
        before = [other for other in in_order[:place] if other.request.partition("-")[0] == agent]
        if not before:
            continue
        since = [other for other in in_order if (other.slot_ns or 0) > (before[-1].slot_ns or 0)]
        next_in_slot = next(other for other in since if other.slot == before[-1].slot)
        if next_in_slot is not one and (next_in_slot.slot_ns or 0) < (one.slot_ns or 0):
            stolen[one.request] = next_in_slot.request
    return stolen


def test_every_slot_that_was_taken_is_told_with_the_request_that_took_it(made: Made, found: dict[str, Any]) -> None:
    planted = thieves(only(Request, events(made)))
    assert len(planted) >= 3
    told = {one["request"]: one["by_request"] for one in found["again"]["listed"] if one["cause"] == "slot-taken"}
    assert told == planted


def test_tokens_that_were_prefilled_again_are_those_of_the_truth(made: Made, found: dict[str, Any]) -> None:
    by_name = {one.request: one for one in only(Request, events(made))}
    for one in found["again"]["listed"]:
        agent, _, turn = one["request"].partition("-r")
        before = by_name[f"{agent}-r{int(turn) - 1}"]
        true = by_name[one["request"]]
        context = before.prompt_tokens + before.decoded_tokens
        assert one["before_tokens"] == context
        assert one["again_tokens"] == min(context, true.prompt_tokens) - (true.cached_tokens or 0) > LEAST


def test_proving_lines_are_lines_of_the_log(made: Made, found: dict[str, Any]) -> None:
    lines = made.run.server_log.read_text(encoding="utf-8").splitlines()
    proofs = [proof for one in found["again"]["listed"] for proof in one["proofs"] if proof["file"] == "server.log"]
    assert proofs
    assert all(lines[proof["line"] - 1].startswith(proof["text"]) for proof in proofs)


def true_stalls(made: Made) -> dict[str, int]:
    """By agent: of its gaps between two decode steps, the time in which the engine ran another's quantum, ns."""
    told = events(made)
    steps = only(DecodeStep, told)
    quanta = only(Quantum, told)
    stalled: dict[str, int] = {}
    last: dict[str, int] = {one.request: one.prefill_end_ns or 0 for one in only(Request, told)}
    for step in steps:
        for name in step.requests:
            inside = [one for one in quanta if last[name] <= one.begin_ns and one.end_ns <= step.begin_ns]
            took = sum(one.end_ns - one.begin_ns for one in inside if one.request != name)
            agent = name.partition("-")[0]
            stalled[agent] = stalled.get(agent, 0) + took
            last[name] = step.end_ns
    return stalled


def test_what_agents_waited_is_at_least_the_quanta_between_their_tokens(made: Made, found: dict[str, Any]) -> None:
    """And the slower decode steps after a quantum: published ones take up to 0.17 s instead of 0.06 s with two rows."""
    true = true_stalls(made)
    assert len(true) == 3
    for one in found["stalls"]["agents"]:
        quanta_s = true[one["agent"]] / SECOND
        slower_s = one["stalls"] * 0.15
        assert quanta_s * 0.98 <= one["stalled_s"] <= quanta_s + slower_s


def test_the_command_prints_the_same_and_names_the_flag(made: Made, found: dict[str, Any]) -> None:
    done = program("diagnose", str(made.run.path))
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert text.startswith(f"SIMULATED {made.run.name}: diagnosis of a run on ds4 Who waited")
    first = found["again"]["listed"][0]
    assert f"{first['again_tokens']:,} of {first['before_tokens']:,} tokens again" in text
    assert f"{first['by_request']} of {first['by_agent']} took the slot" in text
    assert "judgement: --batched-session (now 2): as many resident sessions" in text
    as_json = program("diagnose", str(made.run.path), "--json")
    assert json.loads(as_json.stdout) == found


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    done = program("diagnose", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"agentload: expected a run directory (with manifest.json), {tmp_path} is none\n"
