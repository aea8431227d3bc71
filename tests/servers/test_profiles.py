"""Is a server's kind known from its command, and does each profile say of every setting what can prove it?"""

import pytest

from agentload.servers.profiles import PROFILES, UNKNOWN, ProofKind, first_known, profile_for, server_words


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("ds4-server --ctx 65536", "ds4"),
        ("/opt/ds4/ds4-server -m x.gguf", "ds4"),
        ("agentload twin serve --port 1", "twin"),
        ("python -m agentload twin serve", "twin"),
        ("/usr/bin/llama-server -m /models/vllm/x.gguf", "llamacpp"),
        ("python -P -m agentload.servers.llama_launcher -m x", "llamacpp"),
        ("docker run --rm ghcr.io/ggml-org/llama.cpp:server-cuda -m /x.gguf", "llamacpp"),
        ("vllm serve Qwen/Qwen3-8B --max-num-seqs 8", "vllm"),
        ("/venv/bin/python3.11 /venv/bin/vllm serve x", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model x", "vllm"),
        ("docker run --gpus all vllm/vllm-openai:v0.33.0 --model x", "vllm"),
        ("python -m sglang.launch_server --model-path x", "sglang"),
        ("podman run lmsysorg/sglang:latest python3 -m sglang.launch_server", "sglang"),
        ("ssh -tt gpu1 llama-server -ub 8", "llamacpp"),
        ("taskset -c 0,1 llama-server", "llamacpp"),
        ("./start.sh 2048", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_command_tells_the_kind_of_its_server(command: str, name: str) -> None:
    assert profile_for(None, command.split(), None).name == name


def test_what_a_shell_or_ssh_is_told_in_one_word_tells_it_too() -> None:
    for shell in ("bash", "/bin/sh", "ssh"):
        assert profile_for(None, [shell, "-c", "cd /srv && exec ds4-server --ctx 8192"], None).name == "ds4"
    # Of any other program such a word is an argument, and says nothing.
    assert profile_for(None, ["start", "--title", "my vllm server"], None) is UNKNOWN


def test_the_log_tells_the_kind_where_the_command_does_not_or_cannot_be_right() -> None:
    assert profile_for(None, ["./start.sh"], "ds4").name == "ds4"
    assert profile_for(None, ["./start.sh", "llama-server"], "ds4").name == "ds4"  # an argument of the script
    assert profile_for(None, ["agentload", "twin", "serve"], "ds4").name == "twin"  # it writes ds4's log
    assert profile_for("vllm", ["llama-server"], "llamacpp").name == "vllm"  # who says it, knows it


def test_of_several_command_lines_the_first_that_tells_counts_before_the_log() -> None:
    script, real = ["./start.sh"], ["agentload", "twin", "serve"]
    assert first_known(None, [script, real], "ds4").name == "twin"
    assert first_known(None, [script], "ds4").name == "ds4"
    assert first_known(None, [script], None) is UNKNOWN
    assert first_known("sglang", [real], None).name == "sglang"


def test_only_words_behind_the_servers_program_are_its_own() -> None:
    assert server_words(["docker", "run", "-t", "-m", "8g", "vllm/vllm-openai:v1", "--model", "x"]) == ["--model", "x"]
    assert server_words(["taskset", "-c", "0,1", "llama-server", "-c", "4096"]) == ["-c", "4096"]
    assert server_words(["./start.sh", "-c", "4096"]) == ["./start.sh", "-c", "4096"]


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_no_spelling_asks_for_two_settings_and_every_field_is_one_that_is_asked_for(name: str) -> None:
    profile = PROFILES[name]
    spellings = [flag for one in profile.settings for flag in (*one.flags, *dict(one.switches), *one.variables)]
    names = [each for one in profile.settings for each in (one.name, *one.aliases)]
    assert len(spellings) == len(set(spellings))
    assert len(names) == len(set(names))
    kept = {f"{one.name} {field}" for one in profile.api for field in one.fields}
    for one in profile.settings:
        assert set(one.fields) <= kept
        assert (one.proof is ProofKind.API) <= bool(one.fields)
        assert (one.proof is ProofKind.BEHAVIOUR) == bool(one.behaviour)


def test_a_setting_is_found_by_its_name_an_alias_a_flag_or_a_variable() -> None:
    ds4, llama, vllm = PROFILES["ds4"], PROFILES["llamacpp"], PROFILES["vllm"]
    assert ds4.setting_name("batched_session") == "resident_sessions"
    assert ds4.setting_name("--batched-session") == "resident_sessions"
    assert llama.setting_name("LLAMA_ARG_UBATCH") == "n_ubatch"
    assert vllm.setting_name("--max_num_seqs") == "max_num_seqs"
    assert ds4.setting_name("nothing_like_it") == "nothing_like_it"


def test_what_proves_a_setting_and_what_needs_decode_beside_prefill_is_known() -> None:
    ds4, llama = PROFILES["ds4"], PROFILES["llamacpp"]
    assert ds4.proof("mixed_prefill_quantum") is ProofKind.LOG
    assert ds4.proof("max_tokens") is ProofKind.API
    assert llama.proof("cache_prompt") is ProofKind.BEHAVIOUR
    assert llama.proof("mlock") is ProofKind.NONE
    assert PROFILES["vllm"].proof("max_num_seqs") is ProofKind.API
    assert ds4.proof("nothing_like_it") is ProofKind.NONE
    for profile in (ds4, PROFILES["twin"]):
        assert [one.name for one in profile.settings if one.exposed] == ["mixed_prefill_quantum"]
    assert not llama.needs_decode_beside_prefill("n_ubatch")
    assert PROFILES["vllm"].needs_decode_beside_prefill("enable_chunked_prefill")


def test_a_ds4_server_may_store_for_minutes_and_leaves_its_cache_folder_behind() -> None:
    ds4 = PROFILES["ds4"]
    assert (ds4.stop_s, ds4.state_flags, ds4.health) == (600.0, ("--kv-disk-dir",), None)
    assert "minutes" in ds4.ending
