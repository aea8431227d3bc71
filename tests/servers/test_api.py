"""Is of a server's answers only kept what its profile names, and is one that answers nothing no error?"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentload.servers.api import snapshot
from agentload.servers.profiles import PROFILES, UNKNOWN
from tests.agents.scripted_server import CLOSE, HANG, ScriptedServer, Seen, Step

pytestmark = pytest.mark.anyio

PROPS = {
    "total_slots": 3,
    "default_generation_settings": {"n_ctx": 2816, "params": {"seed": 1}},
    "model_path": "/models/small.gguf",
    "chat_template": "{% pages %}" * 1000,
    "build_info": {"not": "text"},
}
CACHE = (
    "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="32",cache_dtype="auto",enable_prefix_caching="True",'
    'gpu_memory_utilization="0.92",num_gpu_blocks="None"} 1.0\n'
)


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def serving(answers: dict[str, Any]) -> Callable[[Seen], Sequence[Step]]:
    """By path: a JSON value, text, or the script of a connection."""

    def play(seen: Seen) -> Sequence[Step]:
        given = answers.get(seen.line.split()[1])
        if given is None:
            return (answer(b"{}", "404 Not Found"), CLOSE)
        if isinstance(given, tuple):
            return given
        return (answer(given.encode() if isinstance(given, str) else json.dumps(given).encode()), CLOSE)

    return play


async def test_the_named_fields_are_kept_and_nothing_else() -> None:
    async with ScriptedServer(play=serving({"/props": PROPS})) as server:
        found = await snapshot(server.url, PROFILES["llamacpp"])
    assert found == {
        "GET /props": {
            "total_slots": 3,
            "default_generation_settings.n_ctx": 2816,
            "model_path": "/models/small.gguf",
        }
    }


async def test_vllm_is_asked_for_its_models_its_version_and_its_cache_and_tells_more_to_developers() -> None:
    answers: dict[str, Any] = {
        "/version": {"version": "0.33.0"},
        "/v1/models": {"data": [{"id": "m", "root": "/m", "max_model_len": 4096}]},
        "/metrics": CACHE,
    }
    async with ScriptedServer(play=serving(answers)) as server:
        found = await snapshot(server.url, PROFILES["vllm"])
    assert found == {
        "GET /version": {"version": "0.33.0"},
        "GET /v1/models": {"data[0].id": "m", "data[0].root": "/m", "data[0].max_model_len": 4096},
        "GET /metrics vllm:cache_config_info": {
            "block_size": 32,
            "enable_prefix_caching": True,
            "gpu_memory_utilization": 0.92,
        },
    }
    answers["/server_info?config_format=json"] = {"vllm_config": {"scheduler_config": {"max_num_seqs": 8}}}
    async with ScriptedServer(play=serving(answers)) as server:
        found = await snapshot(server.url, PROFILES["vllm"])
    assert found["GET /server_info"] == {"vllm_config.scheduler_config.max_num_seqs": 8}


async def test_sglangs_older_address_is_tried_and_its_launch_command_is_not_kept() -> None:
    told = {"max_running_requests": 16, "launch_command": "sglang --api-key sk-1", "api_key": "sk-1", "tp_size": 2}
    async with ScriptedServer(play=serving({"/get_server_info": told})) as server:
        found = await snapshot(server.url, PROFILES["sglang"])
    assert found == {"GET /server_info": {"max_running_requests": 16, "tp_size": 2}}
    assert not any("/health" in seen.line for seen in server.seen)  # it would generate a token


async def test_ds4_tells_its_context_size_and_the_key_is_sent() -> None:
    models = {"data": [{"id": "d", "context_length": 8192, "top_provider": {"max_completion_tokens": 4096}}]}
    async with ScriptedServer(play=serving({"/v1/models": models})) as server:
        found = await snapshot(server.url, PROFILES["ds4"], api_key="sk-1")
    assert found["GET /v1/models"]["data[0].context_length"] == 8192
    assert found["GET /v1/models"]["data[0].top_provider.max_completion_tokens"] == 4096
    assert server.seen[0].headers["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    "given",
    [
        "no JSON",
        "[]",
        "null",
        '{"total_slots": [3]}',
        '{"total_slots": NaN}',
        "[" * 100_000,
        (answer(b'{"total_slots": 3}')[:-4], CLOSE),
        (b"no HTTP\r\n\r\n", CLOSE),
        (answer(b'{"total_slots": 3}')[:-4], HANG),
        (answer(b'{"total_slots": 3, "x": "%s"}' % (b"y" * (1 << 22))), CLOSE),
        (answer(b'{"total_slots": 3}', "401 Unauthorized"), CLOSE),
    ],
    ids=["text", "list", "null", "no-number", "nan", "deep", "torn", "no-http", "hangs", "too-long", "no-entry"],
)
async def test_an_answer_that_tells_nothing_is_no_error(given: Any) -> None:
    async with ScriptedServer(play=serving({"/props": given})) as server:
        assert await snapshot(server.url, PROFILES["llamacpp"], timeout_s=0.3) == {}


async def test_nobody_is_asked_where_nothing_is_known_and_a_server_that_is_gone_told_nothing() -> None:
    async with ScriptedServer(play=serving({"/props": PROPS})) as server:
        assert await snapshot(server.url, UNKNOWN) == {}
        assert server.seen == []
    assert await snapshot(server.url, PROFILES["llamacpp"]) == {}
