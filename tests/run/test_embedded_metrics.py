"""Do a real llama-server's own counters agree with what its log tells of each request?"""

from pathlib import Path

import pytest

from agentload.analysis import account as accounts
from agentload.report import terminal
from tests.run.runs import make

pytestmark = [pytest.mark.real_server, pytest.mark.anyio]


async def test_the_counters_of_a_real_server_are_the_sums_of_its_log(tmp_path: Path, cache_dir: Path) -> None:
    fields = {
        "workload": "fixed",
        "fixed": {"concurrency": [2], "rounds": 1, "prompt_tokens": 150, "output_tokens": 24},
        "request": {"ignore_eos": True},
        "sample_s": 1.0,
    }
    made = await make(tmp_path / "runs", cache_dir, fields)
    found = accounts.account(made.run.path)
    (part,) = found["segments"]
    counted, whole = part["metrics"], part["whole"]
    assert (counted["software"], counted["whole"], counted["restarted"]) == ("llamacpp", True, False)
    assert counted["prompt_tokens"]["computed"] == whole["new_prefill_tokens"]
    assert counted["prompt_tokens"]["cached"] == whole["cached_tokens"]
    # llama-server's log counts the first token, which comes with the prompt; so do its counters
    assert counted["generation_tokens"] == whole["decoded_tokens"] == 2 * 24
    # two prompts in one batch count once, two decodes at once twice
    assert counted["prefill_seconds"] == pytest.approx(whole["prefill_union_ns"] / 1e9, rel=0.02)
    assert counted["decode_seconds"] == pytest.approx(whole["decode_sum_ns"] / 1e9, rel=0.02)
    assert (counted["queue_seconds"], counted["speculation"]) == (None, None)  # it has no such thing
    assert 0 <= counted["running_peak"] <= 2  # 0: all was over within the second before the first look between
    assert counted["sampled"]["tells_phases"] is False
    assert part["phases"]["said"] == "the server's log"
    said = " ".join(terminal.render(found).split())
    assert "/metrics of llama.cpp" in said
    assert f"summed prefill {counted['prefill_seconds']:.1f} s (a batch once), decode" in said
    assert [one["where"] for one in made.events("metrics")][:: len(made.events("metrics")) - 1] == ["begin", "end"]
