"""What does a server's API tell, and is it read as each kind of server writes it?"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentload.clock import SystemClock
from agentload.run.doctor import ask_http
from agentload.run.doctor.ask_http import Got
from agentload.run.doctor.facts import ServerSays
from tests.agents.scripted_server import HANG, ScriptedServer, Seen, Step
from tests.doctor.chat_servers import reply

pytestmark = pytest.mark.anyio
SECOND = 1_000_000_000
AT = 1_800_000_000 * SECOND  # Fri, 15 Jan 2027 08:00:00 GMT


def of(answers: dict[str, Any]) -> ScriptedServer:
    """A server with these paths; a text is sent as it is, anything else as JSON."""

    def play(seen: Seen) -> Sequence[Step]:
        path = seen.line.split(" ")[1]
        if path not in answers:
            return reply("404 Not Found", b"{}")
        body = answers[path]
        return reply("200 OK", body.encode() if isinstance(body, str) else json.dumps(body).encode())

    return ScriptedServer(play=play)


async def asked(answers: dict[str, Any], software: str | None = None) -> ServerSays:
    async with of(answers) as server:
        return await ask_http.ask(server.url, "m", SystemClock(), software=software)


def models(**fields: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "other"}, {"id": "m", **fields}]}


async def test_llama_server_is_known_by_its_models_and_tells_slots_context_and_who_is_at_work() -> None:
    says = await asked(
        {
            "/v1/models": models(owned_by="llamacpp"),
            "/props": {"total_slots": 4, "default_generation_settings": {"n_ctx": 8192}},
            "/slots": [{"is_processing": True}, {"is_processing": False}, {"is_processing": True}],
            "/metrics": "llamacpp:requests_processing 1\nllamacpp:requests_deferred 3\n",
        }
    )
    assert says.software == "llamacpp"
    assert (says.slots, says.slots_by) == (4, "GET /props total_slots")
    assert (says.context_tokens, says.context_by) == (8192, "GET /props n_ctx")
    assert (says.processing, says.waiting, says.busy_by) == (2, 3, "/slots and /metrics")


async def test_vllms_metrics_are_summed_over_its_engines() -> None:
    metrics = (
        '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 1.0\nvllm:num_requests_waiting{engine="0"} 0.0\n'
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0\n'
    )
    info = {"vllm_config": {"scheduler_config": {"max_num_seqs": 2}}}
    says = await asked(
        {
            "/v1/models": models(owned_by="vllm", max_model_len=40_960),
            "/metrics": metrics,
            "/server_info?config_format=json": info,
        }
    )
    assert says.software == "vllm"
    assert (says.processing, says.waiting, says.busy_by) == (3, 0, "/metrics")
    assert (says.context_tokens, says.context_by) == (40_960, "GET /v1/models max_model_len")
    assert (says.slots, says.slots_by) == (2, "GET /server_info max_num_seqs")


@pytest.mark.parametrize(
    ("metrics", "at_work", "waiting"),
    [
        ("llamacpp:requests_processing 1\nllamacpp:requests_deferred 3\n", 1, 3),
        ('sglang:num_running_reqs{tp_rank="0"} 5.0\nsglang:num_running_reqs{tp_rank="1"} 5.0\n', 5, None),  # one work
        ('sglang:num_running_reqs{x="a b} c"} 2 1800000000000\nsglang:num_queue_reqs 1e0\n', 2, 1),
        ("# TYPE ds4_requests_inflight gauge\nds4_requests_inflight 2\n", 2, None),
        ("ds4_active_requests 3\nds4_requests_total 99\n", 3, None),  # another fork's name
        ('ds4_requests_inflight 4\nds4_phase_waiting{phase="prefill"} 2\n', 4, 2),
        ("vllm:num_requests_running 2\n<p>not of this format\n", 2, None),  # lines of other things are not read
        ("vllm:num_requests_running two\nvllm:num_requests_waiting 1\n", None, None),
        ('vllm:num_requests_running{engine="0\n', None, None),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n", None, None),
        ("vllm:num_requests_running -1\nvllm:num_requests_waiting 1e300\n", None, None),
        ("process_cpu_seconds_total 5\n", None, None),  # of no known server
        ("", None, None),
    ],
)
async def test_who_is_at_work_and_who_waits_is_read_as_each_server_counts_it(
    metrics: str, at_work: int | None, waiting: int | None
) -> None:
    says = await asked({"/v1/models": models(), "/metrics": metrics})
    told = at_work is not None or waiting is not None
    assert (says.processing, says.waiting, says.busy_by) == (at_work, waiting, "/metrics" if told else "")


async def test_sglang_tells_all_by_its_server_info() -> None:
    info = {"max_running_requests": 48, "context_length": 131_072}
    says = await asked({"/v1/models": models(owned_by="sglang"), "/server_info": info})
    assert (says.slots, says.context_tokens, says.busy_by) == (48, 131_072, "")


async def test_ds4_server_tells_its_context_alone_and_the_twin_that_it_is_simulated() -> None:
    real = await asked({"/v1/models": models(owned_by="ds4.c", context_length=32_768)})
    assert (real.software, real.context_tokens, real.slots) == ("ds4", 32_768, None)
    twin = await asked({"/v1/models": models(owned_by="ds4.c", simulated=True)})
    assert (twin.software, twin.simulated) == ("twin", True)


async def test_a_server_that_only_has_models_is_of_no_known_kind() -> None:
    assert await asked({"/v1/models": models()}) == ServerSays()


async def test_answers_that_are_not_what_they_should_be_tell_nothing() -> None:
    says = await asked(
        {"/v1/models": "<html>", "/slots": {"error": 1}, "/metrics": "llamacpp:requests_processing nan\n<p>"}
    )
    assert says == ServerSays()


async def test_an_endpoint_that_never_ends_is_left_after_its_time() -> None:
    async with ScriptedServer(play=lambda _seen: (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", HANG)) as server:
        says = await ask_http.ask(server.url, "m", SystemClock(), timeout_s=0.1)
    assert says == ServerSays()


def got(date: str, before: int, after: int) -> Got:
    return Got(b"", {"date": date}, before, after)


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        ("Fri, 15 Jan 2027 08:00:00 GMT", 0.0),
        ("Fri, 15 Jan 2027 08:00:07 GMT", 6.75),  # the answer came at 0.25 s
        ("Fri, 15 Jan 2027 07:59:50 GMT", -9.0),  # it was asked at 0.0 s, and that second lasted until 51
        ("yesterday", None),
        ("", None),
    ],
)
async def test_a_date_header_is_held_against_the_time_between_question_and_answer(
    date: str, ahead_s: float | None
) -> None:
    assert ask_http.date_ahead_s(got(date, AT, AT + SECOND // 4)) == pytest.approx(ahead_s, abs=1e-6)
