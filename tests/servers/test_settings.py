"""Are settings that were asked for told apart from those in force?"""

import pytest

from agentload.core.records import Applied, Proof, Setting, Verdict
from agentload.servers.settings import compare


def stated(name: str, value: str | int | bool, line: int = 7, boot: int = 0) -> Setting:
    return Setting(name, value, boot, Proof(line, 0))


def only(log_format: str | None, argv: list[str], settings: list[Setting]) -> Applied:
    (one,) = compare(log_format, argv, settings)
    return one


@pytest.mark.parametrize("flag", ["-ub", "--ubatch-size"])
def test_a_flag_whose_value_the_log_states_is_applied_and_its_line_is_named(flag: str) -> None:
    one = only("llamacpp", ["llama-server", flag, "64"], [stated("n_ubatch", 64, line=138)])
    assert one == Applied("n_ubatch", 64, 64, "server.log:138", Verdict.APPLIED)


def test_a_value_that_the_server_clamped_is_a_mismatch() -> None:
    # llama.cpp: -b 64 -ub 512 gives n_ubatch = 64, silently.
    found = compare("llamacpp", ["-b", "64", "-ub", "512"], [stated("n_batch", 64), stated("n_ubatch", 64)])
    assert [(one.name, one.requested, one.applied, one.verdict) for one in found] == [
        ("n_batch", 64, 64, Verdict.APPLIED),
        ("n_ubatch", 512, 64, Verdict.MISMATCH),
    ]


def test_two_spellings_of_one_flag_are_a_duplicate_although_the_last_one_is_in_force() -> None:
    one = only("llamacpp", ["-ub", "64", "--ubatch-size", "128"], [stated("n_ubatch", 128)])
    assert (one.requested, one.applied, one.verdict) == (128, 128, Verdict.DUPLICATE)


def test_a_flag_that_no_line_states_is_unproven() -> None:
    one = only("llamacpp", ["--no-cache-prompt"], [])
    assert one == Applied("cache_prompt", False, None, "", Verdict.UNPROVEN)


def test_what_was_not_asked_for_is_the_servers_default() -> None:
    one = only("llamacpp", [], [stated("n_batch", 2048, line=137)])
    assert one == Applied("n_batch", None, 2048, "server.log:137", Verdict.DEFAULTED)


def test_the_last_start_in_a_log_counts() -> None:
    one = only("llamacpp", ["-ub", "32"], [stated("n_ubatch", 64, 10, boot=0), stated("n_ubatch", 32, 99, boot=1)])
    assert (one.applied, one.source, one.verdict) == (32, "server.log:99", Verdict.APPLIED)


@pytest.mark.parametrize(("said", "logged"), [("on", "enabled"), ("off", "disabled"), ("auto", "auto")])
def test_flash_attention_is_stated_in_other_words(said: str, logged: str) -> None:
    assert only("llamacpp", ["-fa", said], [stated("flash_attn", logged)]).verdict is Verdict.APPLIED


def test_flags_of_a_server_that_is_not_known_are_not_guessed_at() -> None:
    one = only(None, ["serve", "-c", "1"], [stated("ctx", 2)])
    assert (one.name, one.requested, one.verdict) == ("ctx", None, Verdict.DEFAULTED)


def test_a_value_may_stand_behind_an_equals_sign() -> None:
    one = only("llamacpp", ["--ubatch-size=64"], [stated("n_ubatch", 64)])
    assert (one.requested, one.verdict) == (64, Verdict.APPLIED)


@pytest.mark.parametrize(
    ("argv", "name", "requested"),
    [
        (["-ngl", "99"], "n_gpu_layers", 99),
        (["--n-gpu-layers", "-1"], "n_gpu_layers", -1),
        (["-ts", "3,1"], "tensor_split", "3,1"),
        (["--mlock"], "mlock", True),
        (["--cache-reuse", "256"], "cache_reuse", 256),
    ],
)
def test_a_flag_that_no_log_states_is_said_to_be_unproven(argv: list[str], name: str, requested: object) -> None:
    one = only("llamacpp", argv, [])
    assert (one.name, one.requested, one.applied, one.source, one.verdict) == (
        *(name, requested, None, ""),
        Verdict.UNPROVEN,
    )


@pytest.mark.parametrize(("flag", "value"), [("-c", "0"), ("-t", "-1"), ("-np", "-1")])
def test_a_value_that_leaves_the_choice_to_the_server_asks_for_nothing(flag: str, value: str) -> None:
    name = {"-c": "n_ctx", "-t": "n_threads", "-np": "n_slots"}[flag]
    one = only("llamacpp", [flag, value], [stated(name, 4)])
    assert (one.requested, one.applied, one.verdict) == (None, 4, Verdict.DEFAULTED)


def test_a_switch_is_held_against_the_line_that_states_it() -> None:
    assert only("llamacpp", ["--kv-unified"], [stated("kv_unified", True)]).verdict is Verdict.APPLIED
    assert only("llamacpp", ["--kv-unified"], [stated("kv_unified", False)]).verdict is Verdict.MISMATCH


def test_flash_attention_as_a_switch_asks_for_it() -> None:
    found = {one.name: one for one in compare("llamacpp", ["-fa", "--mlock"], [stated("flash_attn", "enabled")])}
    assert (found["flash_attn"].requested, found["flash_attn"].verdict) == ("on", Verdict.APPLIED)


def test_what_the_environment_asks_for_counts_where_no_flag_does() -> None:
    # llama.cpp: LLAMA_ARG_UBATCH=96 LLAMA_ARG_BATCH=100 with `-b 200` gives n_batch 200, n_ubatch 96.
    env = {"LLAMA_ARG_UBATCH": "96", "LLAMA_ARG_BATCH": "100", "HOME": "/root"}
    found = compare("llamacpp", ["-b", "200"], [stated("n_batch", 200), stated("n_ubatch", 96)], env)
    assert [(one.name, one.requested, one.applied, one.verdict) for one in found] == [
        ("n_batch", 200, 200, Verdict.APPLIED),
        ("n_ubatch", 96, 96, Verdict.APPLIED),
    ]
