"""Is each part of a run a segment of its own, with agents that know nothing of the others, and is a plain run one part?

Real git, sandbox, tools and corpus. Server, model and time are simulated, or a scripted model is behind a real socket.
"""

import json
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from agentload.agents import workspace
from agentload.agents.loop import SYSTEM
from agentload.analysis import account as accounts
from agentload.analysis import truth as truths
from agentload.analysis.truth import TRUTH
from agentload.errors import ArtifactError, InputError
from agentload.report import terminal
from agentload.run import parts, runner, scenario
from agentload.run.scenario import resolve
from agentload.twin import truth
from agentload.twin.events import Request
from tests.run.chat_model import ChatModel
from tests.run.runs import Made, environment, fields_of, make, only_run
from tests.twin.worlds import only

THREE = [
    {"segment": "s1", "condition": "A"},
    {"segment": "s2", "condition": "B", "request": {"reasoning_effort": "none"}},
    {"segment": "s3", "condition": "A"},
]
FEW = {"tool_calls": 4, "min_tool_calls": 0, "min_growth_tokens": 0, "final_tokens": 200}


def twin(**fields: Any) -> dict[str, Any]:
    """Two agents on the tiny corpus, 15 s apart, with 4 tool calls each; one that stores prompts on its disk."""
    server = {"kind": "twin", "model": "scripted", "set": {"kv_disk_dir": "/kv", "kv_cache_min_tokens": 64}}
    return {"corpus": "tiny", "seed": 5, "agents": 2, "server": server, "limits": FEW, **fields}


@pytest.fixture(scope="module")
def made(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Made:
    done = anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, twin(parts=THREE, request={"top_k": 20}))
    accounts.account(done.run.path)
    return done


def rows(made: Made) -> list[dict[str, Any]]:
    return pl.read_parquet(made.run.derived / "requests.parquet").to_dicts()


def system_of(made: Made, agent: str) -> str:
    first = next(one["message"] for one in made.history(agent) if one["event"] == "message")
    assert first["role"] == "system"
    return str(first["content"])


def test_each_part_stands_between_markers_of_its_own_one_after_the_other(made: Made) -> None:
    marks = made.markers()
    assert [(one["action"], one["segment"], one["condition"]) for one in marks] == [
        ("begin", "s1", "A"),
        ("end", "s1", "A"),
        ("begin", "s2", "B"),
        ("end", "s2", "B"),
        ("begin", "s3", "A"),
        ("end", "s3", "A"),
    ]
    times = [one["t"] for one in marks]
    assert times == sorted(times)
    manifest = made.run.read_manifest()
    assert manifest.status == "success"
    assert manifest.segments == [
        {"segment": name, "condition": condition, "begin": times[2 * at], "end": times[2 * at + 1]}
        for at, (name, condition) in enumerate((("s1", "A"), ("s2", "B"), ("s3", "A")))
    ]


def test_agents_have_the_same_names_in_each_part_and_folders_and_requests_of_their_own(made: Made) -> None:
    folders = sorted(path.parent.name for path in made.run.path.glob("agents/*/messages.jsonl"))
    assert folders == ["s1-a0", "s1-a1", "s2-a0", "s2-a1", "s3-a0", "s3-a1"]
    told = [(one["segment"], one["agent"]) for one in made.run.read_manifest().agents]
    assert told == [(name, agent) for name in ("s1", "s2", "s3") for agent in ("a0", "a1")]
    done = made.events("request_done")
    assert len({one["request"] for one in done}) == len(done)
    assert {one["request"] for one in done if one["turn"] == 0} == {f"{name}-r0" for name in folders}
    assert {one["agent"] for one in done} == {"a0", "a1"}
    shown = terminal.render(accounts.load(made.run.path))
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("s2 a")] == [
        ["s2", "a0"],
        ["s2", "a1"],
    ] * 2
    # Each begins anew: its first request has nothing but the two messages that every agent begins with.
    for name in folders:
        sent = [one["messages"] for one in made.history(name) if one["event"] == "request"]
        assert (sent[0], len(sent)) == (2, 5)


def test_the_system_prompt_begins_with_a_line_that_only_its_part_has(made: Made) -> None:
    salts = []
    for part in ("s1", "s2", "s3"):
        salt, rest = system_of(made, f"{part}-a0").split("\n", 1)
        assert rest == SYSTEM
        assert system_of(made, f"{part}-a1") == f"{salt}\n{SYSTEM}"
        salts.append(salt)
    assert len({salt.split()[0] for salt in salts}) == len(salts)  # they differ from the first word on
    again = parts.plan(resolve(scenario.from_fields(twin(parts=THREE))))
    assert [one.salt for one in again] == salts
    other = parts.plan(resolve(scenario.from_fields(twin(parts=THREE, seed=6))))
    assert not {one.salt for one in other} & set(salts)


def test_no_first_request_of_a_part_finds_another_parts_prompt_in_memory_or_on_disk(made: Made) -> None:
    log = made.run.server_log.read_bytes()
    assert b"kv cache stored" in log  # there was something to find
    first = {one["request"]: one["cached_tokens"] for one in rows(made) if one["turn"] == 0}
    assert [first[f"{part}-a0-r0"] for part in ("s1", "s2", "s3")] == [0, 0, 0]
    # What the second agent finds is the system prompt that the first one of its own part has left.
    shared = {first[f"{part}-a1-r0"] for part in ("s1", "s2", "s3")}
    assert len(shared) == 1
    assert 0 < shared.pop() < 500


def test_a_parts_request_parameters_are_laid_over_those_of_the_run(made: Made) -> None:
    every = {"top_k": 20, "parallel_tool_calls": False}  # the second is the agents' own
    thought = []
    for part, own in (("s1", {}), ("s2", {"reasoning_effort": "none"}), ("s3", {})):
        said = [*made.history(f"{part}-a0"), *made.history(f"{part}-a1")]
        assert [one["extra"] for one in said if one["event"] == "request"] == [every | own] * 10
        thought.append(any(one["reasoning"] for one in said if one["event"] == "answer"))
    assert thought == [True, False, True]


def test_parts_of_one_condition_do_the_same_work_to_the_token(made: Made) -> None:
    account = json.loads((made.run.derived / "account.json").read_bytes())
    first, second, third = (one["whole"] for one in account["segments"])
    names = ("requests", "prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens")
    assert [first[name] for name in names] == [third[name] for name in names]
    assert second["decoded_tokens"] < first["decoded_tokens"]  # without its thinking


def test_each_segment_is_accounted_for_by_its_own_requests_as_the_truth_has_them(made: Made) -> None:
    with (made.run.path / TRUTH).open(encoding="utf-8") as lines:
        told = only(Request, truth.read(lines)[1])
    account = json.loads((made.run.derived / "account.json").read_bytes())
    for part in account["segments"]:
        true = [one for one in told if one.request.startswith(f"{part['segment']}-")]
        assert part["whole"]["requests"] == len(true) == 10
        for name in ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "decoded_tokens"):
            assert part["whole"][name] == sum(getattr(one, name) for one in true), (part["segment"], name)
    assert account["doubts"] == []
    assert truths.check(made.run.path).holds


def test_it_is_said_which_part_is_at_work_and_the_plan_once(made: Made) -> None:
    heads = [line for line in made.said if line.startswith("segment ")]
    assert heads == [
        "segment 1 of 3: s1, condition A",
        "segment 2 of 3: s2, condition B",
        "segment 3 of 3: s3, condition A",
    ]
    assert sum(line.startswith("agent a0 starts 0 s after") for line in made.said) == 1
    assert sum(line == "a0 started" for line in made.said) == 3


def test_a_single_part_is_a_plain_run_under_another_name(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    plain = anyio.run(make, tmp_path / "plain", cache_dir, twin(condition="A"))
    named = anyio.run(make, tmp_path / "named", cache_dir, twin(parts=[{"segment": "x", "condition": "A"}]))
    assert [one["segment"] for one in plain.markers()] == ["s1", "s1"]
    assert [one["segment"] for one in named.markers()] == ["x", "x"]
    for agent in ("a0", "a1"):
        assert plain.run.messages_path(agent).read_bytes() == named.run.messages_path(agent).read_bytes()
        assert system_of(plain, agent) == SYSTEM
    told = [[one for one in run.run.read_manifest().agents if "segment" in one] for run in (plain, named)]
    assert told == [[], []]


def test_a_run_that_is_cancelled_in_a_later_part_keeps_what_the_former_ones_did(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async def go() -> None:
        with anyio.CancelScope() as scope:

            def say(line: str) -> None:
                if line.startswith("segment 2 of 3"):
                    scope.cancel()

            await runner.run(scenario.from_fields(twin(parts=THREE)), tmp_path, environment(cache_dir), say)

    anyio.run(go)
    run = only_run(tmp_path)
    manifest = run.read_manifest()
    assert manifest.status == "cancelled"
    assert [(one["segment"], one["end"]) for one in manifest.agents] == [
        *(("s1", "wrapped_up"), ("s1", "wrapped_up")),
        *(("s2", "cancelled"), ("s2", "cancelled")),
    ]
    assert [one["segment"] for one in Made(run).markers()] == ["s1", "s1", "s2", "s2"]
    assert accounts.account(run.path)["segments"][0]["whole"]["requests"] == 10


@pytest.mark.anyio
async def test_when_no_request_of_a_part_is_answered_the_parts_after_it_are_not_begun(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    # Two agents of three requests each: the seventh is the first one of the second part.
    async with ChatModel(die_at=6) as model:
        made = await make(tmp_path, cache_dir, fields_of(model.url, stagger_s=0.0, parts=THREE))
    manifest = made.run.read_manifest()
    assert [one["segment"] for one in made.markers()] == ["s1", "s1", "s2", "s2"]
    assert manifest.status == "partial"
    assert manifest.why is not None
    assert manifest.why.startswith("s2-a0 failed: ")
    assert "; s2-a1 failed: " in manifest.why
    assert manifest.why.endswith("; no request of segment s2 was answered: s3 not begun")
    account = accounts.account(made.run.path)
    assert [one["whole"]["requests"] for one in account["segments"]] == [6, 2]
    assert account["work"]["failed_requests"] == 2


def test_the_run_directory_is_the_one_that_was_asked_for_and_the_run_has_its_name(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    place = tmp_path / "night" / "runs" / "01-A"
    fields = {"workload": "fixed", "server": {"kind": "twin"}, "fixed": {"concurrency": [1], "output_tokens": 4}}
    made = anyio.run(lambda: make(tmp_path / "unused", cache_dir, fields, directory=place))
    assert made.run.path == place
    assert made.run.read_manifest().run == "01-A"
    assert {one["run"] for one in made.markers()} == {"01-A"}
    assert not (tmp_path / "unused").exists()
    assert accounts.account(place)["run"] == "01-A"
    with pytest.raises(ArtifactError, match=r"01-A: run directory cannot be made: File exists"):
        anyio.run(lambda: make(tmp_path, cache_dir, fields, directory=place))
    with pytest.raises(InputError, match=r"expected a run name of letters.*got 'a b'"):
        anyio.run(lambda: make(tmp_path, cache_dir, fields, directory=tmp_path / "a b"))


@pytest.mark.anyio
async def test_a_run_with_a_real_server_goes_to_the_directory_too(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ChatModel() as model:
        made = await make(tmp_path / "unused", cache_dir, fields_of(model.url), directory=tmp_path / "02-B")
    assert (made.run.path, made.run.read_manifest().run) == (tmp_path / "02-B", "02-B")
    assert not (tmp_path / "unused").exists()
