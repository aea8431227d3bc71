"""Is the fixed workload so many equal requests at once, each as long as asked for and counted by itself?

Server, model and time are simulated, or the model is scripted behind a real socket. There are no tools and no corpus.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from agentload.analysis import account as accounts
from agentload.analysis import truth as truths
from agentload.analysis.truth import TRUTH
from agentload.artifacts.rundir import RunDir
from agentload.report import terminal
from agentload.servers.devices import Devices
from agentload.twin import truth
from agentload.twin.events import Request
from tests.run.chat_model import FINAL, ChatModel
from tests.run.runs import LeapingClock, Made, make
from tests.servers.nvml import FakeDriver, Told
from tests.twin.worlds import only

MS = 1_000_000
OUTPUT = 40
SEGMENTS = [("c1-r1", 1), ("c1-r2", 1), ("c4-r1", 4), ("c4-r2", 4)]


def fixed(server: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "workload": "fixed",
        "seed": 3,
        "condition": "B",
        "server": server,
        "fixed": {"concurrency": [1, 4], "output_tokens": OUTPUT},
        **fields,
    }


@pytest.fixture(scope="module")
def made(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    done = anyio.run(make, tmp_path_factory.mktemp("runs"), cache_dir, fixed({"kind": "twin"}))
    accounts.account(done.run.path)
    return done


def account_of(run: RunDir) -> dict[str, Any]:
    return dict(json.loads((run.derived / "account.json").read_bytes()))


def true_requests(made: Made) -> list[Request]:
    with (made.run.path / TRUTH).open(encoding="utf-8") as lines:
        return only(Request, truth.read(lines)[1])


def system_line(made: Made, name: str) -> str:
    first = next(one["message"] for one in made.history(name) if one["event"] == "message")
    return str(first["content"])


def test_each_concurrency_has_a_segment_for_each_round(made: Made) -> None:
    assert [(one["action"], one["segment"], one["condition"]) for one in made.markers()] == [
        (action, name, "B") for name, _ in SEGMENTS for action in ("begin", "end")
    ]
    assert made.run.read_manifest().status == "success"


def test_all_requests_of_a_segment_are_sent_together_and_are_the_only_ones_in_it(made: Made) -> None:
    begins = {one["segment"]: one["t"] for one in made.markers() if one["action"] == "begin"}
    ends = {one["segment"]: one["t"] for one in made.markers() if one["action"] == "end"}
    sent = {one["request"]: one["t"] for one in made.events("request_sent")}
    assert len(sent) == 1 + 1 + 4 + 4
    for segment, at_once in SEGMENTS:
        names = [f"{segment}-r{index}" for index in range(at_once)]
        assert {sent[name] for name in names} == {begins[segment] + 5 * MS}  # what a client needs to come to it
        done = {one["request"]: one["t"] for one in made.events("request_done")}
        assert all(begins[segment] < sent[name] < done[name] <= ends[segment] for name in names)


def test_every_answer_has_as_many_tokens_as_asked_for_and_prompts_are_about_350(made: Made) -> None:
    true = true_requests(made)
    assert [one.decoded_tokens for one in true] == [OUTPUT] * 10
    assert all(335 <= one.prompt_tokens <= 360 for one in true)
    assert all(one.cached_tokens == 0 for one in true)
    lengths = [sorted(one.prompt_tokens for one in true if one.request.startswith(segment)) for segment, _ in SEGMENTS]
    # The next one is a token longer, so that a log which tells no more of them can still be joined.
    assert lengths[0] == lengths[1] == lengths[2][:1]
    assert lengths[2] == lengths[3] == [lengths[0][0] + more for more in range(4)]
    assert "short-output" not in [one["code"] for one in made.run.read_manifest().doubts]


def test_no_two_prompts_begin_alike_and_the_seed_decides_them(made: Made, cache_dir: Path, tmp_path: Path) -> None:
    names = [f"{segment}-r{index}" for segment, at_once in SEGMENTS for index in range(at_once)]
    assert len({system_line(made, name) for name in names}) == len(names)
    again = anyio.run(make, tmp_path / "again", cache_dir, fixed({"kind": "twin"}))
    assert again.run.name == made.run.name
    for file in ("events.jsonl", "server.log", "markers.jsonl", *(f"agents/{name}/messages.jsonl" for name in names)):
        assert (again.run.path / file).read_bytes() == (made.run.path / file).read_bytes()
    other = anyio.run(make, tmp_path / "other", cache_dir, fixed({"kind": "twin"}, seed=4))
    assert not {system_line(other, name) for name in names} & {system_line(made, name) for name in names}


def test_every_request_is_joined_with_the_log_and_each_segment_counted_as_the_truth_has_it(made: Made) -> None:
    account = account_of(made.run)
    assert (account["requests"]["total"], account["requests"]["unique"]) == (10, 10)
    assert account["doubts"] == []
    for (name, at_once), part in zip(SEGMENTS, account["segments"], strict=True):
        assert (part["segment"], part["whole"]["requests"]) == (name, at_once)
        assert part["whole"]["decoded_tokens"] == at_once * OUTPUT
        assert list(part["agents"]) == [f"r{index}" for index in range(at_once)]
    assert truths.check(made.run.path).holds
    table = pl.read_parquet(made.run.derived / "requests.parquet")
    assert set(table["agent"]) == {"r0", "r1", "r2", "r3"}
    assert account["work"]["requests"] == account["work"]["answers"] == 10


def test_the_manifest_has_each_request_as_an_agent_of_its_segment_that_did_enough(made: Made) -> None:
    told = made.run.read_manifest().agents
    assert [(one["segment"], one["agent"]) for one in told] == [
        (segment, f"r{index}") for segment, at_once in SEGMENTS for index in range(at_once)
    ]
    assert {(one["task"], one["end"], one["requests"], one["tool_calls"]) for one in told} == {
        ("fixed", "answered", 1, 0)
    }
    assert [one["growth_tokens"] for one in told] == [OUTPUT] * 10
    assert not any(one["too_little_work"] for one in account_of(made.run)["agents"])


def test_there_is_no_corpus_and_no_sandbox_and_that_is_said(made: Made) -> None:
    manifest = made.run.read_manifest()
    assert (manifest.corpus["name"], manifest.sandbox) == ("none", "none: no tool is called")
    assert not any(line.startswith(("sandbox", "corpus")) for line in made.said)
    assert "corpus none; sandbox none: no tool is called\n" in terminal.render(account_of(made.run))
    assert "c4-r2: 4 at once, prompts of about 350 tokens, at most 40 tokens of output each" in made.said
    assert "c4-r2: 4 of 4 answered, 160 tokens of output" in made.said


def test_an_answer_that_ends_before_its_length_is_said_and_the_run_stands(cache_dir: Path, tmp_path: Path) -> None:
    # The simulated model's answers have 700 to 10,000 tokens where it may end them.
    fields = fixed(
        {"kind": "twin"},
        request={"ignore_eos": False},
        fixed={"concurrency": [2], "rounds": 1, "output_tokens": 10_000},
    )
    made = anyio.run(make, tmp_path, cache_dir, fields)
    manifest = made.run.read_manifest()
    lengths = [one.decoded_tokens for one in true_requests(made)]
    assert max(lengths) < 10_000
    (doubt,) = manifest.doubts
    assert (manifest.status, doubt["code"]) == ("success", "short-output")
    assert doubt["message"] == (
        f"segment c2-r1: 2 of 2 answers ended before 10,000 tokens, the first after {min(lengths):,}: fewer than 2 "
        "were open at once from there on"
    )


@pytest.mark.anyio
async def test_behind_a_real_socket_a_request_is_what_was_asked_for_and_no_more(
    cache_dir: Path, tmp_path: Path
) -> None:
    # The scripted model counts 20 tokens for its first conversation, 21 for the second, whatever it is asked.
    fields = {"concurrency": [2], "rounds": 1, "output_tokens": 21}
    async with ChatModel(script=(FINAL,)) as model:
        server = {"kind": "endpoint", "base_url": model.url}
        made = await make(tmp_path, cache_dir, fixed(server, fixed=fields, request={"min_tokens": 21}, temperature=0.0))
    first, second = (one.json() for one in model.requests)
    for body in (first, second):
        assert "tools" not in body
        assert (body["max_tokens"], body["min_tokens"], body["temperature"], body["stream"]) == (21, 21, 0.0, True)
        assert [one["role"] for one in body["messages"]] == ["system", "user"]
    assert first["seed"] != second["seed"]
    assert all(0 <= body["seed"] < 2**31 for body in (first, second))
    manifest = made.run.read_manifest()
    assert manifest.status == "success"
    (doubt,) = manifest.doubts
    assert doubt["message"].startswith("segment c2-r1: 1 of 2 answers ended before 21 tokens, the first after 20: ")


@pytest.mark.anyio
async def test_the_devices_driver_is_opened_once_before_the_first_marker_and_let_go_of_after_the_last(
    cache_dir: Path, tmp_path: Path
) -> None:
    runs: list[RunDir] = []

    @dataclass
    class Driver(FakeDriver):
        markers: list[tuple[str, int]] = field(default_factory=list)  # how many had been written

        def _note(self, what: str) -> None:
            found = Made(runs[0]).markers() if runs[0].markers_path.exists() else []
            self.markers.append((what, len(found)))

        def nvmlInit(self) -> None:  # noqa: N802 - its name
            self._note("opened")
            super().nvmlInit()

        def nvmlShutdown(self) -> None:  # noqa: N802
            self._note("let go of")
            super().nvmlShutdown()

    driver = Driver({0: ("card", Told(3 << 20, 9 << 20))})
    async with ChatModel(script=(FINAL,)) as model:
        fields = fixed({"kind": "endpoint", "base_url": model.url}, fixed={"concurrency": [1], "output_tokens": 20})
        made = await make(tmp_path, cache_dir, fields, opened=runs.append, open_devices=lambda: Devices(driver))
    assert [one["segment"] for one in made.markers()] == ["c1-r1", "c1-r1", "c1-r2", "c1-r2"]
    assert (driver.markers, driver.holders) == ([("opened", 0), ("let go of", 4)], 0)
    samples = made.events("sample")
    assert [one["where"] for one in samples] == ["begin", "end"] * 2
    assert [one["devices"] for one in samples] == [
        [{"index": 0, "name": "card", "free_bytes": 3 << 20, "total_bytes": 9 << 20}]
    ] * 4


@pytest.mark.anyio
async def test_requests_that_fail_are_named_with_their_segment_and_later_segments_are_left_out(
    cache_dir: Path, tmp_path: Path
) -> None:
    async with ChatModel(script=(FINAL,), die_at=2) as model:
        fields = fixed({"kind": "endpoint", "base_url": model.url}, fixed={"concurrency": [1, 2], "output_tokens": 8})
        made = await make(tmp_path, cache_dir, fields)
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why is not None
    assert manifest.why.startswith("c2-r1-r0 failed: ")
    assert "; c2-r1-r1 failed: " in manifest.why
    assert manifest.why.endswith("; no request of segment c2-r1 was answered: c2-r2 not begun")
    assert [one["segment"] for one in made.markers()] == ["c1-r1", "c1-r1", "c1-r2", "c1-r2", "c2-r1", "c2-r1"]
    assert accounts.account(made.run.path)["work"]["failed_requests"] == 2


@pytest.mark.anyio
async def test_a_request_that_hangs_is_cut_off_at_the_wall_time_and_the_run_is_not_whole(
    cache_dir: Path, tmp_path: Path
) -> None:
    clock = LeapingClock()
    async with ChatModel(script=(FINAL,), hang_at=1, on_hang=lambda: clock.leap(1000.0)) as model:
        fields = fixed(
            {"kind": "endpoint", "base_url": model.url},
            limits={"wall_s": 1000.0},
            fixed={"concurrency": [1], "output_tokens": 8},
        )
        made = await make(tmp_path, cache_dir, fields, clock=clock)
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why is not None
    assert manifest.why.startswith("c1-r2-r0 out_of_time: cut off: its time was over after ")
    assert accounts.account(made.run.path)["work"]["cut_requests"] == 1
