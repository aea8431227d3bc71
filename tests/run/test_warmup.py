"""Is the server warm before the first marker, and does nothing of that count?"""

from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.analysis.truth import TRUTH
from agentload.artifacts.events import EVENT, WarmupRequest
from agentload.artifacts.strict import validated
from agentload.cli import app
from agentload.run import scenario, toml_file
from agentload.twin import truth
from agentload.twin.events import Request
from tests.run.chat_model import FINAL, ChatModel
from tests.run.runs import Made, environment, make, only_run
from tests.twin.worlds import only

PAIRS = [(1, 350), (1, 2000), (3, 350), (3, 2000)]


def fixed(server: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "workload": "fixed",
        "seed": 3,
        "server": server,
        "fixed": {"concurrency": [3], "rounds": 1, "output_tokens": 20},
        "warmup": {"concurrency": [1, 3], "prompt_tokens": [350, 2000], "output_tokens": 4},
        **fields,
    }


def warmups(made: Made) -> list[WarmupRequest]:
    lines = made.run.events_path.read_bytes().splitlines()[1:]
    return [one for line in lines if isinstance(one := validated(EVENT, line), WarmupRequest)]


@pytest.fixture(scope="module")
def made(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, fixed({"kind": "twin"}))


def test_each_number_at_once_is_tried_once_with_each_length_before_the_first_marker(made: Made) -> None:
    tried = warmups(made)
    assert sorted((one.concurrency, one.prompt_tokens) for one in tried) == sorted(
        pair for pair in PAIRS for _ in range(pair[0])
    )
    for pair in PAIRS:
        sent = {one.t_sent for one in tried if (one.concurrency, one.prompt_tokens) == pair}
        assert len(sent) == 1
    begin = made.markers()[0]
    assert max(one.t for one in tried) < begin["t"]
    for one in tried:
        assert one.error is None
        assert one.t_first_token is not None
        assert one.t_sent < one.t_first_token <= one.t
        assert one.usage is not None
        assert one.usage.completion_tokens == 4
        assert one.usage.prompt_tokens is not None
        assert abs(one.usage.prompt_tokens - one.prompt_tokens) < 20
    # The last lines of the log about them stand before the marker too.
    log = made.run.server_log.read_bytes()
    assert log[: begin["offset"]].count(b" gen=4 finish=") == len(tried) == 8
    assert b" gen=4 finish=" not in log[begin["offset"] :]


def test_nothing_of_the_warm_up_is_counted_or_found_in_a_cache(made: Made, cache_dir: Path, tmp_path: Path) -> None:
    account = accounts.account(made.run.path)
    (part,) = account["segments"]
    assert (part["whole"]["requests"], part["whole"]["decoded_tokens"]) == (3, 60)
    assert part["whole"]["cached_tokens"] == 0
    assert (account["requests"]["total"], account["requests"]["outside_segments"]) == (3, 8)
    assert account["work"]["requests"] == 3
    assert account["doubts"] == []
    cold = anyio.run(make, tmp_path, cache_dir, fixed({"kind": "twin"}, warmup=None))
    assert warmups(cold) == []

    def words(run: Made) -> list[list[Any]]:
        return [[one.get("message") for one in run.history(f"c3-r1-r{index}")] for index in range(3)]

    assert words(cold) == words(made)  # what is measured is the same, warm or cold


def test_each_warm_up_request_is_cold_itself(made: Made) -> None:
    with (made.run.path / TRUTH).open(encoding="utf-8") as lines:
        told = only(Request, truth.read(lines)[1])
    assert len(told) == 8 + 3
    assert {one.cached_tokens for one in told} == {0}


def test_agents_too_begin_their_work_on_a_warm_server(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    limits = {"tool_calls": 1, "min_tool_calls": 0, "min_growth_tokens": 0, "final_tokens": 50}
    fields = {"corpus": "tiny", "agents": 1, "server": {"kind": "twin"}, "limits": limits, "warmup": {}}
    made = anyio.run(make, tmp_path, cache_dir, fields)
    assert [(one.concurrency, one.prompt_tokens) for one in warmups(made)] == [(1, 350)]
    assert made.run.read_manifest().status == "success"
    account = accounts.account(made.run.path)
    assert account["requests"]["total"] == account["work"]["requests"] == 2


def test_a_warm_up_that_the_server_refuses_is_a_doubt_and_the_run_goes_on(cache_dir: Path, tmp_path: Path) -> None:
    server = {"kind": "twin", "set": {"ctx": 1000}}
    made = anyio.run(make, tmp_path, cache_dir, fixed(server))
    manifest = made.run.read_manifest()
    assert manifest.status == "success"
    doubts = [one for one in manifest.doubts if one["code"] == "warmup-failed"]
    assert [one["message"].partition(": context overflow: HTTP 400: ")[0] for one in doubts] == [
        "the warm-up with 1 at once and prompts of about 2,000 tokens: 1 of 1 requests failed",
        "the warm-up with 3 at once and prompts of about 2,000 tokens: 3 of 3 requests failed",
    ]
    failed = [one for one in warmups(made) if one.error is not None]
    assert len(failed) == 4
    assert all(one.t_first_token is None and one.usage is None for one in failed)


@pytest.mark.anyio
async def test_behind_a_real_socket_the_warm_up_takes_the_agents_way(cache_dir: Path, tmp_path: Path) -> None:
    async with ChatModel(script=(FINAL,)) as model:
        server = {"kind": "endpoint", "base_url": model.url}
        warm = {"concurrency": [2], "prompt_tokens": [350], "output_tokens": 4}
        made = await make(tmp_path, cache_dir, fixed(server, warmup=warm, request={"min_tokens": 2}))
    bodies = [one.json() for one in model.requests]
    assert [body["max_tokens"] for body in bodies] == [4, 4, 20, 20, 20]
    assert all(body["min_tokens"] == 2 for body in bodies)
    firsts = [body["messages"][0]["content"] for body in bodies]
    assert len(set(firsts)) == 5
    assert len(made.events("warmup_request")) == 2
    assert "warm-up: 2 at once, prompts of about 350 tokens" in made.said


def test_the_option_asks_for_the_usual_warm_up_and_leaves_a_files_own_alone(cache_dir: Path, tmp_path: Path) -> None:
    usual, own = tmp_path / "usual.toml", tmp_path / "own.toml"
    text = 'workload = "fixed"\nfixed = { concurrency = [2], rounds = 1, output_tokens = 4 }\nserver.kind = "twin"\n'
    usual.write_text(text, encoding="utf-8")
    own.write_text(f"{text}warmup.concurrency = [1]\nwarmup.prompt_tokens = [90]\n", encoding="utf-8")
    tried = []
    for path in (usual, own):
        out = tmp_path / path.stem
        done = CliRunner().invoke(
            app, ["run", str(path), "--warmup", "-q", "--out", str(out)], env=dict(environment(cache_dir))
        )
        assert (done.exit_code, done.exception) == (0, None)
        run = only_run(out)
        tried.append([(one.concurrency, one.prompt_tokens) for one in warmups(Made(run))])
        assert toml_file.read(run.scenario_path).fields["warmup"]["concurrency"] == ([1, 2] if path == usual else [1])
    assert tried == [[(1, 350), (2, 350), (2, 350)], [(1, 90)]]


def test_the_usual_warm_up_is_one_alone_and_then_as_many_as_there_will_be() -> None:
    agents = scenario.from_fields({"agents": 3}).usual_warmup
    assert (agents.concurrency, agents.prompt_tokens) == ((1, 3), (1100,))
    assert scenario.from_fields({"agents": 1}).usual_warmup.concurrency == (1,)
    many = scenario.from_fields({"workload": "fixed", "fixed": {"concurrency": [8, 4], "prompt_tokens": 500}})
    assert (many.usual_warmup.concurrency, many.usual_warmup.prompt_tokens) == ((1, 4, 8), (500,))
