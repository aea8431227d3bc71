"""What does the probe make of a server that does not do what it should, behind a real socket?"""

from pathlib import Path
from typing import Any

import pytest

from agentload.agents import workspace
from agentload.core.records import TEXTLESS
from agentload.errors import EndpointError, UsageError
from tests.run.probe_server import ProbeServer, words, writes
from tests.run.runs import Made, make, only_run

pytestmark = pytest.mark.anyio

PROBE = {"prompt_tokens": 300, "decoders": [0, 1], "decode_tokens": 40, "settle_tokens": 8, "repeats": 1}


async def probed(server: ProbeServer, out: Path, cache_dir: Path, **probe: Any) -> Made:
    endpoint = {"kind": "endpoint", "base_url": server.url}
    fields = {"workload": "probe", "corpus": "tiny", "server": endpoint, "probe": {**PROBE, **probe}}
    return await make(out, cache_dir, fields)


def codes(made: Made) -> list[str]:
    return [one["code"] for one in made.run.read_manifest().doubts]


async def test_a_plain_server_is_probed_with_the_asked_length_and_both_at_work(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer() as server:
        made = await probed(server, tmp_path, cache_dir, decoders=[0, 2])
    manifest = made.run.read_manifest()
    assert manifest.status == "success"
    assert "short-output" not in codes(made)
    cold = [one["messages"] for one in server.requests if not writes(one["messages"]) and one["max_tokens"] == 1]
    assert [words(messages) for messages in cold[-2:]] == [300, 300]  # the tries came before
    assert all(one["ignore_eos"] is True and one["seed"] is not None for one in server.requests[-3:])
    event = next(one for one in made.events("prompt_thrown") if one["load"] == "d2")
    begun = {one["agent"]: one["t"] for one in made.events("first_token") if one["request"].startswith("d2-r1-d")}
    assert set(begun) == {"d0", "d1"}
    assert max(begun.values()) <= event["settled_from"] < event["t"]
    assert min(event["decoders"].values()) >= 8


async def test_a_prompt_whose_length_cannot_be_tried_ends_the_run_with_the_servers_reason(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(deaf=True) as server:
        with pytest.raises(EndpointError) as caught:
            await probed(server, tmp_path, cache_dir)
    assert str(caught.value).startswith("probe: the length of a prompt could not be tried (prompt): broken answer")
    manifest = only_run(tmp_path).read_manifest()
    assert (manifest.status, manifest.why, manifest.segments) == ("error", str(caught.value), [])


async def test_a_decoder_that_fails_before_the_prompt_makes_the_run_partial_and_the_prompt_is_not_sent(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(torn=lambda number: number == 0) as server:
        made = await probed(server, tmp_path, cache_dir)
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why is not None
    assert "d1-r1-d0 failed: broken answer" in manifest.why
    assert "d1-r1-p0 failed: not sent: d0, which was to write meanwhile, failed: broken answer" in manifest.why
    assert not [one for one in made.events("request_sent") if one["request"] == "d1-r1-p0-t0"]


async def test_a_decoder_that_fails_meanwhile_makes_the_run_partial_and_the_prompt_is_answered_all_the_same(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(torn=lambda number: number == 1, waits=True) as server:
        made = await probed(server, tmp_path, cache_dir)
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.why is not None) == ("partial", True)
    assert str(manifest.why).startswith("d1-r1-d0 failed: broken answer")
    assert "p0" not in str(manifest.why)
    done = {one["request"]: one["error"] for one in made.events("request_done")}
    assert done["d1-r1-d0-t0"] is None
    assert done["d1-r1-p0-t0"] is None
    assert done["d1-r1-d0-t1"] is not None


async def test_answers_that_end_early_are_doubted_and_the_prompt_still_comes_when_it_is_quiet_enough(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(most=20) as server:
        made = await probed(server, tmp_path, cache_dir)
    assert made.run.read_manifest().status == "success"
    (doubt,) = [one for one in made.run.read_manifest().doubts if one["code"] == "short-output"]
    assert "1 of 1 decoders had an answer that ended before 40 tokens, after 20" in doubt["message"]


@pytest.mark.parametrize("server", [ProbeServer(most=5), ProbeServer(lump=True)], ids=["ends early", "in one lump"])
async def test_decoders_that_are_never_seen_to_write_enough_are_given_up_after_twenty_turns(
    server: ProbeServer, cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with server:
        made = await probed(server, tmp_path, cache_dir)
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why == (
        "d1-r1-p0 failed: not sent: the decoders never wrote 8 tokens each at one time, in 20 turns of d0: "
        "their answers end early, or do not come in as they are written"
    )
    assert sum(writes(one["messages"]) for one in server.requests) == 20


async def test_decoders_for_whom_the_server_has_no_slot_are_given_up_after_four_rounds_of_the_others(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(slots=2) as server:
        made = await probed(server, tmp_path, cache_dir, decoders=[0, 4])
    manifest = made.run.read_manifest()
    # Each gets its turn, two at a time: eight turns of two after the last of four has begun, and no 20 turns of d0.
    assert (manifest.status, manifest.why) == (
        "partial",
        (
            "d4-r1-p0 failed: not sent: never more than 2 of 4 decoders wrote at one time, in 8 turns of the others: "
            "does the server have fewer slots?"
        ),
    )
    assert sum(writes(one["messages"]) for one in server.requests) <= 2 + 8 + 4
    assert not [one for one in made.events("prompt_thrown") if one["load"] == "d4"]
    (said,) = [line for line in made.said if "the prompt waits" in line]
    assert said == (
        "d4-r1: 2 of 4 decoders write at one time: the prompt waits until all do, for at most 8 turns of them in "
        "which no further one begins"
    )


async def test_a_server_that_tells_that_it_has_too_few_slots_is_asked_for_nothing(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(props={"total_slots": 3}) as server:
        endpoint = {"kind": "endpoint", "base_url": server.url, "software": "llamacpp"}
        fields = {"workload": "probe", "corpus": "tiny", "server": endpoint, "probe": {**PROBE, "decoders": [0, 3]}}
        with pytest.raises(UsageError) as caught:
            await make(tmp_path, cache_dir, fields)
    assert str(caught.value) == (
        "probe: expected a slot for each of 3 decoders and 1 cold prompt, 4 in all, the server has 3 "
        "(GET /props total_slots): start llama-server with -np 4, and -c 4 times the context of one, "
        "or ask for fewer (--decoders, --prompts)"
    )
    assert server.requests == []
    assert only_run(tmp_path).read_manifest().status == "error"


async def test_a_log_that_states_too_few_slots_in_its_last_start_is_believed(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "".join(
            f"1130 02:0{minute}:00 ds4-server: context buffers 10.00 MiB (ctx=8192, backend=metal)\n"
            f"1130 02:0{minute}:01 ds4-server: batched mode enabled resident_sessions={slots} prefill_quantum=2048\n"
            for minute, slots in enumerate((6, 2))
        ),
        encoding="utf-8",
    )
    async with ProbeServer() as server:
        endpoint = {"kind": "endpoint", "base_url": server.url, "log": str(log), "log_format": "ds4"}
        fields = {"workload": "probe", "corpus": "tiny", "server": endpoint, "probe": {**PROBE, "decoders": [2]}}
        with pytest.raises(UsageError, match=r"3 in all, the server has 2 \(its log: resident_sessions\): start ds4"):
            await make(tmp_path / "runs", cache_dir, fields)
    assert server.requests == []


async def test_a_prompt_whose_only_token_has_no_text_has_a_first_token_all_the_same(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(textless=True) as server:
        made = await probed(server, tmp_path, cache_dir)
    cold = [one for one in made.events("request_done") if "-p" in one["request"]]
    assert len(cold) == 2
    for one in cold:
        # A role, a text without letters, the finish, the usage: it came with the third, if not in one piece with it.
        assert (one["t_first_token"], len(one["chunks_without_token"])) == (one["chunk_ns"][2], 3)
        assert one["notes"] == [TEXTLESS]


async def test_a_server_without_usage_is_probed_with_a_guessed_length_and_that_is_doubted(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(usage=False) as server:
        made = await probed(server, tmp_path, cache_dir)
    assert made.run.read_manifest().status == "success"
    (doubt,) = [one for one in made.run.read_manifest().doubts if one["code"] == "probe-length"]
    assert doubt["message"] == "the server tells no usage: the text of 300 tokens is guessed by its length"
    (sized,) = made.events("probe_sized")
    assert (sized["counted_tokens"], sized["tries"]) == (None, 1)
    # 3.6 characters a token, whole lines.
    assert 900 < sized["text_bytes"] <= 1080


async def test_a_server_that_tells_its_context_has_prompts_that_fit_it(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    model = {"id": "words", "object": "model", "max_model_len": 232}
    async with ProbeServer(models=model) as server:
        endpoint = {"kind": "endpoint", "base_url": server.url, "software": "vllm"}
        made = await make(
            tmp_path, cache_dir, {"workload": "probe", "corpus": "tiny", "server": endpoint, "probe": {**PROBE}}
        )
    (sized,) = made.events("probe_sized")
    assert (sized["tokens"], sized["context_tokens"]) == (200, 232)
    assert "probe-capped" in codes(made)


async def test_each_turn_of_a_decoder_says_what_the_assistant_is_to_have_said_whatever_it_wrote(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    async with ProbeServer(most=12) as server:  # its turns are over before the prompt is answered, or before it comes
        await probed(server, tmp_path, cache_dir, decoders=[1], settle_tokens=9)
    turns = [one["messages"] for one in server.requests if writes(one["messages"])]
    assert len({messages[0]["content"] for messages in turns}) == 1
    for number, messages in enumerate(turns):
        assert [one["role"] for one in messages] == ["system", "user", *["assistant", "user"] * number]
        assert messages[: len(turns[0])] == turns[0]
        assert all("word word" not in one["content"] for one in messages)
