"""Is every value of a command line seen, in order, and no key?"""

import pytest

from agentload.servers.commandline import (
    asked,
    environment_without_keys,
    same,
    text_without_keys,
    value_of,
    without_keys,
)
from agentload.servers.profiles import PROFILES, Value

DS4, LLAMA, VLLM, SGLANG, TWIN = (PROFILES[name] for name in ("ds4", "llamacpp", "vllm", "sglang", "twin"))


def test_each_value_of_a_flag_is_kept_in_order_whatever_its_spelling() -> None:
    found = asked(LLAMA, ["llama-server", "-ub", "64", "--ubatch-size", "128", "-ub=32", "-b", "2048"])
    assert found == {"n_ubatch": [64, 128, 32], "n_batch": [2048]}


def test_a_flags_value_is_never_taken_for_a_flag() -> None:
    assert asked(LLAMA, ["llama-server", "-t", "-1", "-c", "-b"]) == {"n_threads": [-1], "n_ctx": ["-b"]}
    assert asked(LLAMA, ["llama-server", "-fa", "-c", "8"]) == {"flash_attn": ["on"], "n_ctx": [8]}
    assert asked(LLAMA, ["llama-server", "-c"]) == {"n_ctx": [""]}


def test_ds4_takes_no_value_behind_an_equals_sign_and_its_twin_does() -> None:
    assert asked(DS4, ["ds4-server", "--ctx=8192"]) == {}
    assert asked(TWIN, ["agentload", "twin", "serve", "--ctx=8192"]) == {"ctx": [8192]}


def test_flags_that_share_a_field_are_one_setting() -> None:
    # ds4: --metal, --cuda, --cpu and --backend set one field, the last one wins.
    assert asked(DS4, ["ds4-server", "--metal", "--backend", "cuda"]) == {"backend": ["metal", "cuda"]}


def test_vllm_takes_underscores_and_switches_that_say_no() -> None:
    found = asked(
        VLLM, ["vllm", "serve", "x", "--max_num_seqs", "8", "--max-num-seqs=16", "--no-enable-prefix-caching"]
    )
    assert found == {"max_num_seqs": [8, 16], "enable_prefix_caching": [False]}
    assert asked(SGLANG, ["python", "-m", "sglang.launch_server", "--tp_size", "2"]) == {}


def test_flags_of_what_starts_the_server_are_not_the_servers() -> None:
    assert asked(LLAMA, ["taskset", "-c", "0,1", "llama-server", "-c", "4096"]) == {"n_ctx": [4096]}
    assert asked(LLAMA, ["docker", "run", "-t", "-m", "8g", "llama.cpp:server", "-t", "4"]) == {"n_threads": [4]}
    assert asked(LLAMA, ["bash", "-c", "sleep 1; exec llama-server -ub 8 -ub 16"]) == {"n_ubatch": [8, 16]}
    assert asked(LLAMA, ["ssh", "gpu1", "llama-server -ub '8'"]) == {"n_ubatch": [8]}


def test_variables_that_a_command_sets_ask_where_no_flag_does() -> None:
    words = ["env", "LLAMA_ARG_UBATCH=96", "LLAMA_ARG_BATCH=100", "llama-server", "-b", "200"]
    assert asked(LLAMA, words) == {"n_ubatch": [96], "n_batch": [200]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-1", -1),
        ("0.92", 0.92),
        ("1e5", "1e5"),
        ("f16", "f16"),
        ("", ""),
        ("-", "-"),
        ("1" * 19, "1" * 19),
    ],
)
def test_numbers_are_numbers_and_all_else_is_text(text: str, value: Value) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("wanted", "stated", "equal"),
    [
        (2048, 2048, True),
        (2048, "2048", True),
        (2048, 128, False),
        ("32k", 32_000, True),
        ("32K", 32_768, True),
        ("1.5k", 1_500, True),
        (0.9, 0.90, True),
        (True, "True", True),
        ("false", False, True),
        (True, 1, False),
        ("q8_0", "q8_0", True),
        ("F16", "f16", False),
    ],
)
def test_values_are_compared_in_whatever_words_they_come(wanted: Value, stated: Value, *, equal: bool) -> None:
    assert same(None, wanted, stated) is equal


def test_a_setting_may_be_stated_in_other_words_than_it_is_asked_for() -> None:
    flash, cross = LLAMA.option("flash_attn"), DS4.option("kv_cache_cross_quant")
    assert (same(flash, "on", "enabled"), same(flash, "off", "enabled")) == (True, False)
    assert (same(cross, True, "reject"), same(cross, True, "accept")) == (True, False)


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        (["s", "--api-key", "sk-1", "--port", "8"], ["s", "--api-key", "***", "--port", "8"]),
        (["s", "--api-key=sk-1"], ["s", "--api-key=***"]),
        (["s", "--api-key", "sk-1", "sk-2", "--port", "8"], ["s", "--api-key", "***", "***", "--port", "8"]),
        (["s", "--hf-token", "hf_x"], ["s", "--hf-token", "***"]),
        (["docker", "run", "-e", "HF_TOKEN=hf_x", "-e", "A=b"], ["docker", "run", "-e", "HF_TOKEN=***", "-e", "A=b"]),
        (["bash", "-c", "exec s --api-key sk-1 --port '8'"], ["bash", "-c", "exec s --api-key *** --port '8'"]),
        (["s", "--ssl-keyfile-password", "x"], ["s", "--ssl-keyfile-password", "***"]),
    ],
)
def test_no_key_is_shown(words: list[str], hidden: list[str]) -> None:
    assert without_keys(words) == hidden


@pytest.mark.parametrize(
    "words",
    [
        ["ds4-server", "--tokens", "100", "--tool-memory-max-ids", "8"],
        ["s", "--ssl-keyfile", "/etc/key.pem", "--api-key-file", "/etc/key"],
        ["s", "--chat-template-kwargs", '{"enable_thinking": false}'],
        ["s", "--override-kv", "a.b=int:1"],
    ],
)
def test_what_is_no_key_stays_as_it_is(words: list[str]) -> None:
    assert without_keys(words) == words


def test_a_known_key_is_hidden_wherever_it_stands_unless_it_is_so_short_that_words_have_it() -> None:
    assert without_keys(["s", "--header", "Bearer sk-12"], ["sk-12"]) == ["s", "--header", "Bearer ***"]
    assert without_keys(["server"], ["ser"]) == ["server"]


def test_a_typed_command_keeps_its_blanks_and_quotes() -> None:
    assert text_without_keys("s  --api-key 'sk-1'  --x '{\"a\": 1}'") == "s  --api-key ***  --x '{\"a\": 1}'"


def test_an_environment_shows_no_key() -> None:
    env = {"LLAMA_ARG_UBATCH": "8", "HF_TOKEN": "hf_x", "URL": "http://sk-12@h"}
    assert environment_without_keys(env, ["sk-12"]) == {"LLAMA_ARG_UBATCH": "8", "HF_TOKEN": "***", "URL": "***"}
