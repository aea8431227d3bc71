"""Is each setting held against what really proves it: the log, the API, or the command line that really ran?"""

from typing import Any

import pytest

from agentload.core.records import Applied, Proof, Setting, Verdict
from agentload.servers.profiles import Value
from agentload.servers.settings import compare

BATCHED = ("resident_sessions", "prefill_quantum", "mixed_prefill_quantum", "decode_coalesce_us")


def stated(name: str, value: Value, line: int = 7, boot: int = 0) -> Setting:
    return Setting(name, value, boot, Proof(line, 0))


def batched(mixed: int, line: int = 4) -> list[Setting]:
    """What ds4's line `batched mode enabled resident_sessions=6 prefill_quantum=2048 ...` states."""
    return [stated(name, value, line) for name, value in zip(BATCHED, (6, 2048, mixed, 2000), strict=True)]


def command(pid: int, text: str, *, serves: bool = False) -> dict[str, Any]:
    return {"pid": pid, "argv": text.split(), "serves": serves}


def one_of(found: tuple[Applied, ...], name: str) -> Applied:
    (one,) = (each for each in found if each.name == name)
    return one


def test_ds4s_flags_are_held_against_the_line_of_its_batched_mode() -> None:
    argv = ["ds4-server", "--batched-session", "6", "--mixed-prefill-quantum", "2048"]
    found = compare("ds4", argv, batched(2048))
    assert [(one.name, one.requested, one.applied, one.source, one.verdict) for one in found] == [
        ("decode_coalesce_us", None, 2000, "server.log:4", Verdict.DEFAULTED),
        ("mixed_prefill_quantum", 2048, 2048, "server.log:4", Verdict.APPLIED),
        ("prefill_quantum", None, 2048, "server.log:4", Verdict.DEFAULTED),
        ("resident_sessions", 6, 6, "server.log:4", Verdict.APPLIED),
    ]


def test_a_quantum_that_ds4_raised_is_a_mismatch() -> None:
    # GLM 5.3: the mixed quantum is floored at 1024, and the line states the floored value.
    one = one_of(compare("ds4", ["ds4-server", "--mixed-prefill-quantum", "128"], batched(1024)), BATCHED[2])
    assert (one.requested, one.applied, one.verdict) == (128, 1024, Verdict.MISMATCH)


def test_without_the_line_of_the_batched_mode_its_settings_are_unproven() -> None:
    one = one_of(compare("ds4", ["ds4-server", "--mixed-prefill-quantum", "128"], [stated("ctx", 8192)]), BATCHED[2])
    assert (one.applied, one.source, one.verdict) == (None, "", Verdict.UNPROVEN)


def test_the_flags_of_a_program_that_runs_beside_the_server_are_not_the_servers() -> None:
    commands = [command(71, "ds4-server --ctx 8192", serves=True), command(72, "tail -n 5 -f server.txt")]
    (one,) = compare("ds4", ["./start.sh"], [stated("ctx", 8192)], commands=commands)
    assert (one.name, one.requested, one.verdict) == ("ctx", 8192, Verdict.APPLIED)


def test_a_flag_that_a_script_gives_a_second_time_is_found_on_the_real_command_line() -> None:
    script = command(70, "/bin/bash ./start.sh --mixed-prefill-quantum 2048")
    real = command(71, "ds4-server --mixed-prefill-quantum 2048 --ctx 8192 --mixed-prefill-quantum 128", serves=True)
    found = compare("ds4", ["./start.sh", "--mixed-prefill-quantum", "2048"], batched(128), commands=[real, script])
    assert one_of(found, BATCHED[2]) == Applied(
        *(BATCHED[2], 2048, 128, "server.log:4, given 2048, 128 in pid 71 argv", Verdict.DUPLICATE),
        given=(2048, 128),
        where="pid 71 argv",
    )
    assert one_of(found, "ctx").verdict is Verdict.UNPROVEN


def test_a_flag_given_twice_to_us_is_a_duplicate_with_both_values_also_where_nothing_states_it() -> None:
    (one,) = compare(None, ["vllm", "serve", "m", "--max-num-seqs", "8", "--max_num_seqs=4"], [])
    assert one == Applied(
        *("max_num_seqs", 4, None, "given 8, 4 in argv", Verdict.DUPLICATE), given=(8, 4), where="argv"
    )


def test_one_flag_once_in_each_of_two_processes_is_no_duplicate() -> None:
    commands = [command(9, "ds4-server --ctx 8192", serves=True), command(8, "sudo ds4-server --ctx 8192")]
    (one,) = compare("ds4", ["sudo", "ds4-server", "--ctx", "8192"], [stated("ctx", 8192, 1)], commands=commands)
    assert (one.requested, one.source, one.verdict) == (8192, "server.log:1", Verdict.APPLIED)


def test_what_a_script_asks_for_counts_as_asked_for() -> None:
    commands = [command(9, "ds4-server --mixed-prefill-quantum 512", serves=True)]
    one = one_of(compare("ds4", ["./start.sh", "512"], batched(512), commands=commands), BATCHED[2])
    assert (one.requested, one.verdict) == (512, Verdict.APPLIED)


def test_another_value_on_the_real_command_line_is_a_mismatch_where_nothing_states_one() -> None:
    commands = [command(9, "llama-server -ngl 10", serves=True)]
    (one,) = compare("llamacpp", ["./start.sh", "-ngl", "99"], [], commands=commands)
    assert one == Applied("n_gpu_layers", 99, 10, "pid 9 argv", Verdict.MISMATCH, where="pid 9 argv")


def test_a_field_of_the_api_proves_a_setting_that_no_line_states() -> None:
    api: dict[str, dict[str, Value]] = {"GET /server_info": {"vllm_config.scheduler_config.max_num_seqs": 8}}
    (one,) = compare(None, ["vllm", "serve", "m", "--max-num-seqs", "8"], [], api=api)
    field = "GET /server_info vllm_config.scheduler_config.max_num_seqs"
    assert one == Applied("max_num_seqs", 8, 8, field, Verdict.APPLIED)
    (other,) = compare(None, ["vllm", "serve", "m", "--max-num-seqs", "16"], [], api=api)
    assert (other.applied, other.source, other.verdict) == (8, field, Verdict.MISMATCH)


def test_without_its_developers_mode_nothing_proves_vllms_max_num_seqs() -> None:
    api: dict[str, dict[str, Value]] = {
        "GET /v1/models": {"data[0].max_model_len": 32768},
        "GET /metrics vllm:cache_config_info": {"gpu_memory_utilization": 0.92, "enable_prefix_caching": True},
    }
    argv = ["vllm", "serve", "m", "--max-num-seqs", "8", "--max-model-len", "32K", "--gpu-memory-utilization", "0.9"]
    found = compare(None, argv, [], api=api)
    assert [(one.name, one.verdict) for one in found] == [
        ("enable_prefix_caching", Verdict.DEFAULTED),
        ("gpu_memory_utilization", Verdict.MISMATCH),
        ("max_model_len", Verdict.APPLIED),
        ("max_num_seqs", Verdict.UNPROVEN),
    ]


def test_log_and_api_must_both_say_what_was_asked_for() -> None:
    api: dict[str, dict[str, Value]] = {"GET /props": {"total_slots": 4}}
    found = compare("llamacpp", ["llama-server", "-np", "3"], [stated("n_slots", 3)], api=api)
    assert one_of(found, "n_slots") == Applied("n_slots", 3, 4, "GET /props total_slots", Verdict.MISMATCH)


def test_what_must_be_in_force_counts_whoever_asked_for_it_and_by_any_of_its_names() -> None:
    found = compare("ds4", ["./start.sh"], batched(128), requested={"mixed_prefill_quantum": 2048})
    assert one_of(found, BATCHED[2]).verdict is Verdict.MISMATCH
    for name in ("batched_session", "resident_sessions", "--batched-session"):
        one = one_of(compare("ds4", [], batched(128), requested={name: 6}), "resident_sessions")
        assert (one.requested, one.verdict) == (6, Verdict.APPLIED)
    (unknown,) = compare("ds4", [], [], requested={"nothing_like_it": 1})
    assert (unknown.name, unknown.verdict) == ("nothing_like_it", Verdict.UNPROVEN)


def test_a_prompt_cache_that_only_behaviour_shows_is_unproven_here() -> None:
    (one,) = compare("llamacpp", ["llama-server", "--no-cache-prompt"], [], api={"GET /props": {}})
    assert one == Applied("cache_prompt", False, None, "", Verdict.UNPROVEN)


def test_what_an_earlier_start_stated_is_not_in_force_any_more() -> None:
    before, now = [stated("kv_disk_dir", "/kv", 2, boot=0)], [stated("ctx", 8192, 9, boot=1)]
    found = compare("ds4", ["ds4-server", "--kv-disk-dir", "/kv"], [*before, *now])
    assert one_of(found, "kv_disk_dir").verdict is Verdict.UNPROVEN


@pytest.mark.parametrize(
    ("argv", "verdict"),
    [
        (["docker", "run", "-t", "-m", "8g", "vllm/vllm-openai", "--max-model-len", "4096"], Verdict.APPLIED),
        (["ssh", "-tt", "gpu1", "vllm serve m --max-model-len 4096"], Verdict.APPLIED),
        (["ssh", "-tt", "gpu1", "vllm serve m --max-model-len 4096 --max-model-len 8192"], Verdict.DUPLICATE),
    ],
)
def test_of_a_server_elsewhere_the_words_that_reach_it_and_its_api_tell(argv: list[str], verdict: Verdict) -> None:
    api: dict[str, dict[str, Value]] = {"GET /v1/models": {"data[0].max_model_len": 4096}}
    (one,) = compare(None, argv, [], api=api, commands=[{"pid": 5, "argv": argv, "serves": False}])
    assert one.verdict is verdict
