"""Do the phases of a vLLM that agentload starts come from the best source there is, and is that said?

The server is a scripted one behind real sockets (tests/run/vllm_like.py), which writes down the phases that it claims.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agentload.analysis import account as accounts
from agentload.artifacts import jsonlines, schemas
from agentload.errors import UsageError
from agentload.report import terminal
from agentload.run import tracing
from agentload.run.scenario import Server
from tests.run.runs import Made, make
from tests.run.vllm_like import ACCEPTED, CACHED, DECODED, DRAFTS, PROMPT

pytestmark = pytest.mark.anyio
REQUESTS = 3  # one alone, then two at once
SLACK_NS = 1_000  # a span has seconds as floats


async def run_against(tmp_path: Path, cache_dir: Path, *flags: str, otlp: bool = False) -> tuple[Made, dict[str, Any]]:
    truth = tmp_path / "truth.jsonl"
    words = [sys.executable, "-m", "tests.run.vllm_like", "--port", "{port}", "--truth", str(truth), *flags]
    fields = {
        "workload": "fixed",
        "fixed": {"concurrency": [1, 2], "rounds": 1, "output_tokens": DECODED},
        "server": {"launch": shlex.join(words).replace("'{port}'", "{port}"), "software": "vllm", "otlp": otlp},
    }
    made = await make(tmp_path / "runs", cache_dir, fields)
    return made, accounts.account(made.run.path)


def truth_of(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]


def rows_of(made: Made) -> list[dict[str, Any]]:
    return pl.read_parquet(made.run.derived / "requests.parquet").sort("label").to_dicts()


async def test_phases_are_those_of_the_spans_that_the_server_sent(tmp_path: Path, cache_dir: Path) -> None:
    made, found = await run_against(tmp_path, cache_dir, otlp=True)
    rows, told = rows_of(made), sorted(truth_of(tmp_path), key=lambda one: one["id"])
    assert [row["label"] for row in rows] == [one["id"] for one in told]
    assert len(rows) == REQUESTS
    for row, one in zip(rows, told, strict=True):
        assert (row["prefill_source"], row["decode_source"], row["match"]) == ("spans", "spans", "exact")
        for phase in ("prefill", "decode"):
            start, end = one[phase]
            assert abs(row[f"{phase}_start"] - start) <= SLACK_NS
            assert abs(row[f"{phase}_end"] - end) <= SLACK_NS
        # the answer tells the cached tokens too, which a span does not
        assert (row["prompt_tokens"], row["cached_tokens"], row["new_prefill_tokens"]) == (PROMPT, CACHED, 604)
        assert row["decoded_tokens"] == DECODED
    (alone, two) = found["segments"]
    assert alone["phases"] == {"prefill": {"spans": 1}, "decode": {"spans": 1}, "said": "OTLP spans"}
    assert two["phases"]["prefill"] == {"spans": 2}
    assert not {"no-spans", "answers-without-span", "spans-differ"} & {one["code"] for one in found["doubts"]}
    assert "OTLP spans" in terminal.render(found)
    lines = [line for _, line in jsonlines.read(made.run.spans_path, schemas.SPANS)]
    assert lines[-1] == {"closed": {"received": REQUESTS, "dropped": 0, "refused": 0}}
    assert found["server"]["argv"][-2] == "--otlp-traces-endpoint"


async def test_phases_are_those_of_the_answers_where_these_tell_them(tmp_path: Path, cache_dir: Path) -> None:
    made, found = await run_against(tmp_path, cache_dir, "--answer-metrics")
    for row, one in zip(rows_of(made), sorted(truth_of(tmp_path), key=lambda one: one["id"]), strict=True):
        assert (row["prefill_source"], row["decode_source"]) == ("usage", "usage")
        assert row["prefill_end"] - row["prefill_start"] == pytest.approx(one["prefill"][1] - one["prefill"][0], abs=2)
        assert row["decode_end"] == row["t_done"]
        assert row["decode_end"] - row["decode_start"] == pytest.approx(one["decode"][1] - one["decode"][0], abs=2)
    assert found["segments"][0]["phases"]["said"] == "fields of the answers, sums of /metrics beside them"
    assert not made.run.spans_path.exists()


async def test_without_either_they_are_the_clients_with_the_servers_sums_beside_them(
    tmp_path: Path, cache_dir: Path
) -> None:
    made, found = await run_against(tmp_path, cache_dir)
    assert {row["prefill_source"] for row in rows_of(made)} == {"client"}
    said = "the client's clock, sums of /metrics beside them"
    assert [one["phases"]["said"] for one in found["segments"]] == [said, said]
    for part, requests in zip(found["segments"], (1, 2), strict=True):
        counted = part["metrics"]
        assert (counted["software"], counted["whole"], counted["restarted"]) == ("vllm", True, False)
        tokens = {"all": PROMPT, "computed": PROMPT - CACHED, "cached": CACHED, "transferred": 0}
        assert counted["prompt_tokens"] == {name: value * requests for name, value in tokens.items()}
        assert counted["generation_tokens"] == DECODED * requests
        assert (counted["queue_seconds"], counted["prefill_seconds"]) == (0.5 * requests, 2.0 * requests)
        assert (counted["decode_seconds"], counted["decode_requests"]) == (4.0 * requests, requests)
        # 16 of 24 drafted tokens in 8 drafts; of 25 tokens the first is the prefill's, the rest took 8 steps
        assert counted["speculation"]["nominal_length"] == 1 + sum(ACCEPTED) / DRAFTS
        assert counted["speculation"]["effective_length"] == 24 / DRAFTS
        assert counted["speculation"]["acceptance_by_position"] == [1.0, 0.75, 0.25]
        assert counted["sampled"]["tells_phases"] is False
    # Before the begin marker, and before the end marker.
    looks, marks = made.events("metrics"), made.markers()
    assert [one["where"] for one in looks] == ["begin", "end", "begin", "end"]
    assert looks[0]["t"] <= marks[0]["t"] <= looks[1]["t"] <= marks[1]["t"]


async def test_a_vllm_without_metrics_is_one_doubt(tmp_path: Path, cache_dir: Path) -> None:
    made, found = await run_against(tmp_path, cache_dir, "--no-metrics")
    assert [one["metrics"] for one in found["segments"]] == [None, None]
    assert [one["code"] for one in found["doubts"]].count("no-metrics") == 1
    assert made.events("metrics") == []


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server(base_url="http://127.0.0.1:1/v1", kind="endpoint"), "got kind 'endpoint'"),
        (Server(launch="ds4-server --port 8000", kind="launch"), "expected a command that starts vLLM"),
        (Server(launch="bash -c 'vllm serve m --port 8000'", kind="launch"), "got one for bash"),
        (Server(launch="vllm serve m --otlp_traces_endpoint=http://x", kind="launch"), "has --otlp-traces-endpoint"),
    ],
)
def test_a_server_that_cannot_be_asked_for_spans_is_refused(server: Server, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tracing.check(server)


def test_what_the_user_has_set_in_the_environment_stays() -> None:
    assert tracing.variables({}) == {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "500",
    }
    found = tracing.variables({"OTEL_BSP_SCHEDULE_DELAY": "100", "HTTP_PROXY": "http://p", "no_proxy": "a"})
    assert (found.get("OTEL_BSP_SCHEDULE_DELAY"), found["no_proxy"]) == (None, "a,127.0.0.1")
