"""Does the fixed workload hold on a real llama.cpp server, warm-up included?"""

from pathlib import Path

import anyio
import polars as pl
import pytest

from agentload.analysis.account import account
from tests.run.runs import Made, make

pytestmark = pytest.mark.real_server

OUTPUT = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Made:
    """Short prompts: a 135M model on one thread prefills about 85 tokens a second."""
    fields = {
        "workload": "fixed",
        "seed": 3,
        "request": {"ignore_eos": True},
        "fixed": {"concurrency": [1, 2], "rounds": 1, "prompt_tokens": 90, "output_tokens": OUTPUT},
        "warmup": {"concurrency": [2], "prompt_tokens": [90], "output_tokens": 2},
    }
    return anyio.run(make, tmp_path_factory.mktemp("embedded"), cache_dir, fields)


def test_the_fixed_workload_on_the_embedded_server_is_matched_exactly_and_as_long_as_asked_for(made: Made) -> None:
    found = account(made.run.path)
    assert (found["status"], found["lines"]["unknown"]) == ("success", 0)
    assert [(one["segment"], one["whole"]["requests"]) for one in found["segments"]] == [("c1-r1", 1), ("c2-r1", 2)]
    assert [one["whole"]["decoded_tokens"] for one in found["segments"]] == [OUTPUT, 2 * OUTPUT]
    assert (found["requests"]["total"], found["requests"]["exact"]) == (3, 3)
    assert found["requests"]["outside_segments"] == 2  # the warm-up
    assert "short-output" not in [one["code"] for one in found["doubts"]]
    table = pl.read_parquet(made.run.derived / "requests.parquet")
    table = table.filter(pl.col("segment").is_not_null())
    assert table["prompt_tokens"].is_between(80, 105).all()
    # What every prompt of this model begins with: `<|im_start|>system` and a line's end.
    assert table["cached_tokens"].is_between(0, 3).all()
    begin = {one["segment"]: one["begin_ns"] for one in found["segments"]}
    two = table.filter(pl.col("segment") == "c2-r1")
    assert (two["t_sent"] - begin["c2-r1"]).max() < two["t_first_token"].min() - begin["c2-r1"]


def test_the_warm_up_ends_before_the_first_marker_in_the_servers_own_log(made: Made) -> None:
    begin = made.markers()[0]
    log = made.run.server_log.read_bytes()
    assert log[: begin["offset"]].count(b"stop processing") == 2
    assert log.count(b"stop processing") == 5
    assert [(one["concurrency"], one["error"]) for one in made.events("warmup_request")] == [(2, None)] * 2


def test_each_segment_has_cpu_seconds_of_its_own(made: Made) -> None:
    samples = made.events("sample")
    assert [one["where"] for one in samples if one["where"] != "periodic"] == ["begin", "end"] * 2
    ends = [one["cpu_s"] for one in samples if one["where"] != "periodic"]
    found = [one["server_cpu_s"] for one in account(made.run.path)["segments"]]
    assert found == [ends[1] - ends[0], ends[3] - ends[2]]
