"""Does a probe of a real llama.cpp server send a cold prompt of the asked length while another one writes?"""

from pathlib import Path

import anyio
import pytest

from agentload.analysis.account import account
from tests.run.runs import Made, make

pytestmark = pytest.mark.real_server


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Made:
    """A short prompt: a 135M model on one thread prefills about 85 tokens a second."""
    probe = {"prompt_tokens": 600, "decoders": [1], "decode_tokens": 64, "settle_tokens": 8, "repeats": 1}
    return anyio.run(make, tmp_path_factory.mktemp("embedded"), cache_dir, {"workload": "probe", "probe": probe})


def test_the_cold_prompt_has_the_asked_length_and_the_server_had_nothing_of_it(made: Made) -> None:
    (prompt,) = [one for one in made.events("request_done") if one["agent"] == "p0"]
    assert prompt["error"] is None
    assert abs(prompt["usage"]["prompt_tokens"] - 600) <= 8
    assert prompt["usage"]["cached_tokens"] == 0
    assert prompt["timings"]["cached_tokens"] == 0
    # Else llama.cpp would keep what every prompt of this model begins with, 3 tokens; only the cold prompt is asked so.
    extra = {name: next(one["extra"] for one in made.history(f"d1-r1-{name}") if one["event"] == "request")
             for name in ("p0", "d0")}  # fmt: skip
    assert extra == {"p0": {"cache_prompt": False, "ignore_eos": True}, "d0": {"ignore_eos": True}}
    assert made.run.read_manifest().scenario["request"] == {"ignore_eos": True}
    assert prompt["timings"]["prompt_tokens"] == prompt["usage"]["prompt_tokens"]


def test_the_decoder_wrote_before_it_and_while_it_came_and_as_much_as_it_was_forced_to(made: Made) -> None:
    (thrown,) = made.events("prompt_thrown")
    (prompt,) = [one for one in made.events("request_done") if one["agent"] == "p0"]
    turns = [one for one in made.events("request_done") if one["agent"] == "d0"]
    assert thrown["decoders"]["d0"] >= 8
    assert thrown["t"] <= prompt["t_sent"]
    assert {one["usage"]["completion_tokens"] for one in turns} == {64}
    assert turns[0]["t_first_token"] < prompt["t_sent"] < prompt["t"] <= turns[-1]["t"]


def test_the_tries_are_outside_and_every_request_of_the_segment_is_matched_exactly(made: Made) -> None:
    found = account(made.run.path)
    turns = sum(one["agent"] == "d0" for one in made.events("request_done"))
    assert (found["status"], found["lines"]["unknown"]) == ("success", 0)
    assert (found["requests"]["total"], found["requests"]["exact"]) == (1 + turns, 1 + turns)
    assert found["requests"]["outside_segments"] == len(made.events("probe_try"))
    # Tries that share their beginning are cheap on this server.
    assert made.events("probe_try")[-1]["usage"]["cached_tokens"] > 400
