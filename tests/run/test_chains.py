"""Do chained tasks and parallel calls work in a whole run, with the simulated server and with one over HTTP?"""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from agentload.agents import tasks, workspace
from agentload.analysis import account as accounts
from agentload.report import terminal
from tests.run.chat_model import SCRIPT, ChatModel
from tests.run.runs import Made, fields_of, make

TRACKS = [["tiny-module-life", "tiny-owned-references"], ["any-state", "tiny-clock-and-zones"]]


def twin(**fields: Any) -> dict[str, Any]:
    """Two agents on the tiny corpus whose tasks are chained, which make several calls at once."""
    server = {"kind": "twin", **fields.pop("server", {})}
    chained = {"agents": 2, "tracks": TRACKS, "parallel_tool_calls": True, "limits": {"tool_calls": 70}}
    return {"corpus": "tiny", "seed": 7, "server": server, **chained, **fields}


@pytest.fixture(scope="module")
def made(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Made:
    done = anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, twin())
    accounts.account(done.run.path)
    return done


def account(run: Made) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.run.derived / "account.json").read_bytes())
    return found


def test_each_agent_has_all_tasks_of_its_track_in_one_conversation(made: Made) -> None:
    first, second = made.run.read_manifest().agents
    assert (first["end"], second["end"]) == ("answered", "answered")
    for number, one in enumerate((first, second)):
        parts = one["tasks"]
        assert [part["task"] for part in parts] == TRACKS[number]
        assert [part["end"] for part in parts] == ["answered"] * len(parts)
        assert sum(part["requests"] for part in parts) == one["requests"]
        assert sum(part["tool_calls"] for part in parts) == one["tool_calls"]
        asked = [
            line["message"]["content"]
            for line in made.history(f"a{number}")
            if line["event"] == "message" and line["message"]["role"] == "user"
        ]
        assert asked == [tasks.load(name).prompt.strip() for name in TRACKS[number]]
    assert first["facts"][0] == "tiny-module-life/init-returns-definition"
    assert len(first["facts"]) == 10


def test_the_next_task_goes_on_from_what_the_server_holds(made: Made) -> None:
    rows = {
        (row["agent"], row["turn"]): row for row in pl.read_parquet(made.run.derived / "requests.parquet").to_dicts()
    }
    for one in made.run.read_manifest().agents:
        for part in one["tasks"][1:]:
            before, row = (rows[one["agent"], part["first_turn"] - step] for step in (1, 0))
            assert row["cached_tokens"] == before["prompt_tokens"] + before["decoded_tokens"]


def test_calls_of_one_answer_overlap_and_their_results_stand_in_the_order_of_the_calls(made: Made) -> None:
    started, done = (made.events(kind) for kind in ("tool_started", "tool_done"))
    whose: Callable[[dict[str, Any]], tuple[str, int]] = lambda one: (one["agent"], one["turn"])  # noqa: E731
    turns = [list(group) for _, group in groupby(sorted(started, key=whose), whose)]
    together = [group for group in turns if len(group) > 1]
    assert together
    ends = {one["call"]: one["t"] for one in done}
    for group in together:
        assert len({one["t"] for one in group}) == 1  # time stands while they are begun
        assert len({ends[one["call"]] for one in group}) == len(group)  # each takes a time of its own
    for number in range(2):
        messages = [line["message"] for line in made.history(f"a{number}") if line["event"] == "message"]
        for at, message in enumerate(messages):
            calls = [call["id"] for call in message.get("tool_calls") or ()]
            assert [one.get("tool_call_id") for one in messages[at + 1 : at + 1 + len(calls)]] == calls


def test_requests_are_turns_with_calls_and_answers_and_the_report_says_so(made: Made) -> None:
    found = account(made)
    work = found["work"]
    assert work["requests"] == work["tool_turns"] + work["answers"]
    assert work["tool_turns"] < work["tool_calls"] == len(made.events("tool_done"))
    assert work["answers"] == 4
    text = terminal.render(found)
    assert f"turns with tool calls {work['tool_turns']} ({work['tool_calls']} calls) + answers 4" in text
    assert "tiny-module-life + 1" in text
    assert "Chained tasks" in text
    assert all("answer" not in part for one in found["agents"] for part in one["tasks"])
    assert found["doubts"] == []
    assert found["lines"]["unknown"] == 0


def test_it_is_the_same_to_the_byte_each_time(made: Made, cache_dir: Path, tmp_path: Path) -> None:
    again = anyio.run(make, tmp_path, cache_dir, twin())
    for name in ("events.jsonl", "server.log", "truth.jsonl", "agents/a0/messages.jsonl", "agents/a1/messages.jsonl"):
        assert (again.run.path / name).read_bytes() == (made.run.path / name).read_bytes(), name


def test_a_track_that_its_limits_leave_unfinished_says_which_task_was_not_begun(
    cache_dir: Path, tmp_path: Path
) -> None:
    fields = twin(agents=1, limits={"tool_calls": 15}, parallel_tool_calls=False)
    made = anyio.run(make, tmp_path, cache_dir, fields)
    found = accounts.account(made.run.path)
    (one,) = found["agents"]
    assert (one["end"], one["why"]) == ("wrapped_up", "its limits were reached after 1 of 2 tasks")
    assert [part["end"] for part in one["tasks"]] == ["wrapped_up", None]
    assert (one["tasks"][1]["first_turn"], one["tasks"][1]["facts_found"]) == (None, [])
    assert "not begun" in terminal.render(found)
    assert any("which has the limits of one: 15 tool calls" in line for line in made.said)


@pytest.mark.anyio
async def test_tasks_are_chained_over_http_too(cache_dir: Path, tiny: workspace.Repository, tmp_path: Path) -> None:
    assert tiny.commit
    again = "On drop, Py_DECREF runs."
    async with ChatModel(script=(*SCRIPT, ("read", {"path": "src/py/refs.rs"}), again)) as model:
        fields = fields_of(model.url, agents=1, tasks=TRACKS[0], chain=2)
        made = await make(tmp_path, cache_dir, fields)
        manifest = made.run.read_manifest()
        (one,) = manifest.agents
        assert (one["end"], [part["requests"] for part in one["tasks"]]) == ("answered", [3, 2])
        sent = [seen.json()["messages"] for seen in model.requests]
        assert sent[3][: len(sent[2])] == sent[2]
        assert one["facts_found"] == [
            "tiny-module-life/init-returns-definition",
            "tiny-owned-references/drop-decrements",
        ]
        # One file is read, the other shown by `wc -l`, which shows nothing of it.
        assert (one["paths_read"], one["paths_shown"]) == (["Cargo.toml", "src/py/refs.rs"], [])
        assert one["tasks"][1]["likely_opened"] == ["src/py/refs.rs"]
