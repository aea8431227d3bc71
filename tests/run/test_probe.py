"""Is a cold prompt of the probe as long as asked for, unknown to the server, and thrown in while all others write?

Server, model and time are simulated; what the server really did stands in its ground truth.
"""

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from agentload.agents import workspace
from agentload.analysis.truth import TRUTH
from agentload.cli import app
from agentload.errors import UsageError
from agentload.run import parts, scenario, slots
from agentload.run.runner import refuse, settled
from agentload.run.scenario import resolve
from agentload.twin import truth
from agentload.twin.events import Request
from tests.run.runs import Made, environment, make, only_run
from tests.twin.worlds import only

MS = 1_000_000
TOKENS, TURN, SETTLE, LEFT = 1500, 120, 10, 9
ORDER = ["d0-r1", "d2-r1", "n9-r1", "d2-r2", "n9-r2", "d0-r2"]
PROBE = {
    "prompt_tokens": TOKENS,
    "decoders": [0, 2],
    "nearly_finished": LEFT,
    "decode_tokens": TURN,
    "settle_tokens": SETTLE,
    "repeats": 2,
}


def fields(probe: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"workload": "probe", "corpus": "tiny", "seed": 3, "server": {"kind": "twin"}, "probe": probe, **more}


def probed(out: Path, cache_dir: Path, probe: dict[str, Any], **more: Any) -> Made:
    return anyio.run(make, out, cache_dir, fields(probe, **more))


@pytest.fixture(scope="module")
def made(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return probed(tmp_path_factory.mktemp("runs"), cache_dir, PROBE)


@pytest.fixture(scope="module")
def fair(cache_dir: Path, tiny: workspace.Repository, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Three cold prompts at once, beside two who write."""
    return probed(tmp_path_factory.mktemp("runs"), cache_dir, {**PROBE, "prompts": [3], "decoders": [2], "repeats": 1})


def true_requests(made: Made) -> dict[str, Request]:
    with (made.run.path / TRUTH).open(encoding="utf-8") as lines:
        return {one.request: one for one in only(Request, truth.read(lines)[1])}


def done(made: Made) -> dict[str, dict[str, Any]]:
    return {one["request"]: one for one in made.events("request_done")}


def thrown(made: Made) -> dict[str, dict[str, Any]]:
    return {one["segment"]: one for one in made.events("prompt_thrown")}


def span(made: Made, segment: str) -> tuple[int, int]:
    begin, end = (one["t"] for one in made.markers() if one["segment"] == segment)
    return begin, end


def prompt_of(made: Made, name: str) -> list[dict[str, Any]]:
    return [one["message"] for one in made.history(name) if one["event"] == "message"]


def test_each_load_comes_once_a_repeat_and_none_always_first(made: Made) -> None:
    assert [one["segment"] for one in made.markers() if one["action"] == "begin"] == ORDER
    assert (made.run.read_manifest().status, made.run.read_manifest().doubts) == ("success", [])


def test_loads_are_decoders_times_prompts_and_the_nearly_finished_one() -> None:
    chosen = resolve(scenario.from_fields(fields({**PROBE, "prompts": [1, 3]})))
    # d0k3 is a load too: three prompts on an idle server.
    want = ["d0-r1", "d0k3-r1", "d2-r1", "d2k3-r1", "n9-r1", "d0k3-r2", "d2-r2", "d2k3-r2", "n9-r2", "d0-r2"]
    assert [one.segment for one in parts.plan(chosen)] == want
    assert chosen.at_once == 5


def test_every_cold_prompt_has_the_asked_length_by_the_servers_count_and_nothing_of_it_is_cached(
    made: Made, fair: Made
) -> None:
    for one, prompts in ((made, 6), (fair, 3 + 1)):
        cold = [asked for name, asked in true_requests(one).items() if "-p" in name]
        assert len(cold) == prompts
        assert all(abs(asked.prompt_tokens - TOKENS) <= 8 for asked in cold)
        assert {(asked.cached_tokens, asked.decoded_tokens) for asked in cold} == {(0, 1)}
        told = [asked["usage"] for name, asked in done(one).items() if "-p" in name]
        assert {usage["cached_tokens"] for usage in told} == {0}


def test_the_length_is_found_before_the_first_marker_and_said(made: Made) -> None:
    (sized,) = made.events("probe_sized")
    assert (sized["asked_tokens"], sized["tokens"], sized["why_capped"]) == (TOKENS, TOKENS, None)
    assert abs(sized["counted_tokens"] - TOKENS) <= 2
    tries = made.events("probe_try")
    assert sized["tries"] == len(tries) == sum(name.startswith("size-") for name in true_requests(made))
    assert tries[-1]["usage"]["prompt_tokens"] == sized["counted_tokens"]
    assert sized["t"] <= made.markers()[0]["t"]
    assert sized["context_tokens"] == 262_144  # the twin's own
    assert any(f"the server counted {sized['counted_tokens']:,}" in line for line in made.said)


def test_the_prompt_comes_when_all_write_and_each_has_written_enough_alone(made: Made) -> None:
    for segment in ("d2-r1", "d2-r2"):
        event = thrown(made)[segment]
        prompt = done(made)[f"{segment}-p0-t0"]
        assert event["load"] == "d2"
        assert prompt["t_sent"] == event["t"]
        for name in ("d0", "d1"):
            asked = done(made)[f"{segment}-{name}-t0"]
            come = [t for t in asked["chunk_ns"][1:] if t <= event["t"]]
            assert asked["t_first_token"] <= event["settled_from"] < event["t"] < asked["t"]
            assert event["decoders"][name] == len(come)
            # At the look from which all write, each has what came by then: from there on it is alone.
            assert sum(t > event["settled_from"] for t in come) >= SETTLE
        # And not much later: a step of two takes about 60 ms, and the looks are 5 ms apart.
        assert min(event["decoders"].values()) <= SETTLE + 2


def test_without_load_the_prompt_comes_at_once(made: Made) -> None:
    begin, _ = span(made, "d0-r1")
    event = thrown(made)["d0-r1"]
    assert (event["decoders"], event["settled_from"], event["prompts"]) == ({}, None, ["p0"])
    assert event["t"] <= begin + 20 * MS


def test_those_who_write_go_on_until_the_prompt_is_answered_and_then_end_their_turn(made: Made) -> None:
    for segment in ("d2-r1", "d2-r2"):
        answered = done(made)[f"{segment}-p0-t0"]["t"]
        _, end = span(made, segment)
        for name in ("d0", "d1"):
            turns = [one for one in done(made).values() if one["request"].startswith(f"{segment}-{name}-")]
            assert [one["turn"] for one in turns] == list(range(len(turns)))
            assert all(one["error"] is None and one["usage"]["completion_tokens"] == TURN for one in turns)
            last = turns[-1]
            assert last["t_sent"] <= answered <= last["t"] <= end
            # Nobody is idle between two turns.
            assert all(0 <= later["t_sent"] - earlier["t"] <= MS for earlier, later in pairwise(turns))


def test_nothing_is_cut_off_or_cancelled(made: Made) -> None:
    assert {one.decoded_tokens for name, one in true_requests(made).items() if "-d" in name} == {TURN}
    assert {one["error"] for one in done(made).values()} == {None}
    assert {one["end"] for one in made.run.read_manifest().agents} == {"answered"}


def test_the_nearly_finished_one_has_as_many_tokens_left_and_takes_no_further_turn(made: Made) -> None:
    for segment in ("n9-r1", "n9-r2"):
        event = thrown(made)[segment]
        assert (event["load"], event["decoders"]) == (f"n{LEFT}", {"d0": TURN - LEFT})
        (turn,) = [one for one in done(made).values() if one["request"].startswith(f"{segment}-d")]
        pieces = turn["chunk_ns"][1:-2]  # without the role, the end and the usage
        assert len(pieces) == TURN
        assert sum(t > event["t"] for t in pieces) == LEFT


def test_several_prompts_come_at_the_same_instant_and_differ_at_the_very_front(fair: Made) -> None:
    names = [f"d2k3-r1-p{index}" for index in range(3)]
    assert len({done(fair)[f"{name}-t0"]["t_sent"] for name in names}) == 1
    assert thrown(fair)["d2k3-r1"]["prompts"] == ["p0", "p1", "p2"]
    systems = [prompt_of(fair, name)[0]["content"] for name in names]
    assert len({system.split()[0] for system in systems}) == 3
    bodies = [prompt_of(fair, name)[1]["content"] for name in names]
    assert len({body[:3000] for body in bodies}) == 1
    # A word longer each, so that a log which tells tokens alone can still be joined.
    lengths = [true_requests(fair)[f"{name}-t0"].prompt_tokens for name in names]
    assert lengths == [lengths[0], lengths[0] + 1, lengths[0] + 2]


def test_all_first_lines_of_a_run_are_different_and_as_long_as_each_other(made: Made) -> None:
    first = [prompt_of(made, f"{segment}-p0")[0]["content"] for segment in ("d0-r1", "d2-r1", "n9-r1", "d0-r2")]
    first += [prompt_of(made, f"d2-r1-{name}")[0]["content"] for name in ("d0", "d1")]
    assert len(set(first)) == 6
    assert {tuple(map(len, line.split())) for line in first} == {(3,) * 8}


def test_the_body_is_the_corpus_source_in_the_order_of_paths(
    made: Made, tiny: workspace.Repository, tmp_path: Path
) -> None:
    body = prompt_of(made, "d0-r1-p0")[1]["content"]
    src = workspace.checkout(tiny.path, tiny.commit, tmp_path / "tiny") / "src"
    # Cargo.toml and LICENSE are no source; of the ten .rs files src/lib.rs comes first, then src/py/.
    text = (src / "lib.rs").read_text(encoding="utf-8") + (src / "py" / "exc.rs").read_text(encoding="utf-8")
    assert body[:4000] == text[:4000]
    assert len((src / "lib.rs").read_text(encoding="utf-8")) < 4000
    assert body.endswith("Answer with its name alone.")


def test_the_same_scenario_gives_the_same_run_to_the_byte(made: Made, cache_dir: Path, tmp_path: Path) -> None:
    again = probed(tmp_path, cache_dir, PROBE)
    for file in ("events.jsonl", "server.log", "markers.jsonl", TRUTH, "agents/d2-r1-p0/messages.jsonl"):
        assert (again.run.path / file).read_bytes() == (made.run.path / file).read_bytes()


def test_a_prompt_after_a_context_has_all_of_it_from_the_cache_and_new_tokens_as_asked(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    probe = {**PROBE, "at_context": 4000, "decoders": [0, 2], "prompts": [2], "nearly_finished": None, "repeats": 1}
    made = probed(tmp_path, cache_dir, probe)
    true = true_requests(made)
    assert made.run.read_manifest().status == "success"
    for segment in ("d0k2-r1", "d2k2-r1"):
        begin, _ = span(made, segment)
        for index in range(2):
            left, asked = true[f"{segment}-h{index}-t0"], true[f"{segment}-p{index}-t0"]
            assert abs(left.prompt_tokens - 4000) <= 40 + 1
            assert asked.cached_tokens == left.prompt_tokens + left.decoded_tokens
            assert abs(asked.prompt_tokens - asked.cached_tokens - TOKENS) <= 8
            assert left.end_ns is not None
            assert left.end_ns <= begin
    # A slot was kept for each decoder: else the first of them would have taken the one with the context.
    primed = {one["request"]: one for one in made.events("probe_primed")}
    assert set(primed) == {f"d{n}k2-r1-h{index}-t0" for n in (0, 2) for index in (0, 1)} | {
        "d2k2-r1-d0-t0",
        "d2k2-r1-d1-t0",
    }
    assert {one["turn"] for one in done(made).values() if one["request"].startswith("d2k2-r1-d0")} == {1}
    (sized,) = made.events("probe_sized")
    assert (sized["at_context_tokens"], abs(sized["at_context_counted"] - 4000) <= 40) == (4000, True)


def test_a_prompt_that_does_not_fit_is_capped_and_said(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    server = {"kind": "twin", "set": {"ctx": 1232}}
    made = probed(tmp_path, cache_dir, {"decoders": [0], "repeats": 1, "prompt_tokens": TOKENS}, server=server)
    (sized,) = made.events("probe_sized")
    assert (sized["asked_tokens"], sized["tokens"], sized["context_tokens"]) == (TOKENS, 1200, 1232)
    assert abs(true_requests(made)["d0-r1-p0-t0"].prompt_tokens - 1200) <= 8
    (doubt,) = made.run.read_manifest().doubts
    assert doubt["code"] == "probe-capped"
    assert doubt["message"] == (
        "the cold prompt is capped at 1,200 tokens, not the 1,500 asked for: "
        "this is a server with 1,232 tokens of context"
    )


def test_a_model_that_may_end_by_itself_is_doubted_and_the_prompt_comes_all_the_same(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    probe = {"decoders": [1], "repeats": 1, "prompt_tokens": 200, "decode_tokens": 20_000}
    made = probed(tmp_path, cache_dir, probe, request={"ignore_eos": False})
    manifest = made.run.read_manifest()
    assert manifest.status == "success"
    (doubt,) = manifest.doubts
    decoded = true_requests(made)["d1-r1-d0-t0"].decoded_tokens
    assert decoded < 20_000
    assert (doubt["code"], f"before 20,000 tokens, after {decoded:,}" in doubt["message"]) == ("short-output", True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workload": "probe", "agents": 4}, "scenario: agents is of the workload agents: leave it out"),
        ({"probe": {}}, 'scenario: probe is of another workload: give workload = "probe" with it'),
        ({"workload": "probe", "fixed": {}}, 'scenario: fixed is of another workload: give workload = "fixed"'),
        ({"workload": "probe", "probe": {"prompt_tokens": 99}}, "probe.prompt_tokens: expected at least 100, got 99"),
        ({"workload": "probe", "probe": {"decoders": []}}, "probe.decoders: expected one number or more, each once"),
        ({"workload": "probe", "probe": {"prompts": [1, 1]}}, "probe.prompts: expected one number or more, each once"),
        (
            {"workload": "probe", "probe": {"settle_tokens": 512}},
            "probe: expected settle_tokens below one turn of a decoder (decode_tokens, 512), got 512",
        ),
        (
            {"workload": "probe", "probe": {"settle_tokens": 20, "nearly_finished": 30, "decode_tokens": 50}},
            "probe: expected settle_tokens with 30 left (nearly_finished) below one turn",
        ),
        ({"workload": "probe", "probe": {"repeat": 2}}, "probe.repeat: there is no such key: there are prompt_tokens"),
        ({"workload": "probe", "limits": {"turns": 3}}, "scenario: limits.turns is of the workload agents"),
    ],
)
def test_a_mistake_in_a_scenario_is_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        scenario.from_fields(given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_the_server_is_refused_in_one_line() -> None:
    small = {"kind": "twin", "set": {"ctx": 4096}}
    with pytest.raises(
        UsageError, match=r"probe\.at_context: expected room for a prompt behind it in the server's 4,096"
    ):
        resolve(scenario.from_fields(fields({"at_context": 4000}, server=small)))
    with pytest.raises(UsageError, match=r"one turn of a decoder \(decode_tokens\), 256 on this server, got 300 and 0"):
        resolve(scenario.from_fields({"workload": "probe", "probe": {"settle_tokens": 300}}))


@pytest.mark.parametrize(
    ("probe", "server", "message"),
    [
        ({"decoders": [0, 8]}, {"kind": "twin"}, ("8 decoders and 1 cold prompt, 9 in all, the server has 6 "
         "(batched_session): --set batched_session=9, or ask for fewer (--decoders, --prompts)")),
        ({"decoders": [1], "prompts": [1, 3]}, {"kind": "twin", "set": {"batched_session": 3}}, ("1 decoder and 3 cold "
         "prompts, 4 in all, the server has 3 (batched_session): --set batched_session=4, or ask for fewer "
         "(--decoders, --prompts)")),
        ({"decoders": [8]}, {}, ("8 decoders and 1 cold prompt, 9 in all, the server has 8 (the most that the embedded "
         "one is given): ask for fewer (--decoders, --prompts)")),
        ({"decoders": [3]}, {"launch": "llama-server --port {port} -np 2"}, ("3 decoders and 1 cold prompt, 4 in all, "
         "the server has 2 (--launch: -np 2): start llama-server with -np 4, and -c 4 times the context of one, or ask "
         "for fewer (--decoders, --prompts)")),
        ({"decoders": [3]}, {"launch": "llama-server --port {port}", "env": {"LLAMA_ARG_N_PARALLEL": "1"}},
         ("3 decoders and 1 cold prompt, 4 in all, the server has 1 (--launch: -np 1): start llama-server with -np 4, "
         "and -c 4 times the context of one, or ask for fewer (--decoders, --prompts)")),
    ],
)  # fmt: skip
def test_a_server_with_fewer_slots_than_are_needed_is_refused_before_anything_runs(
    probe: dict[str, Any], server: dict[str, Any], message: str
) -> None:
    given = scenario.from_fields({"workload": "probe", "server": server, "probe": probe})
    with pytest.raises(UsageError) as caught:
        refuse(given, {})
    assert str(caught.value) == f"probe: expected a slot for each of {message}"


def test_slots_that_are_enough_or_left_to_the_server_are_not_refused() -> None:
    for probe, server in (
        ({"decoders": [3], "prompts": [3]}, {"kind": "twin"}),
        ({"decoders": [3]}, {"launch": "llama-server --port {port} -np -1"}),
        ({"decoders": [3]}, {"launch": "llama-server --port {port} -np 4"}),
        ({"decoders": [99]}, {"launch": "./start.sh --port {port}"}),
    ):
        given = scenario.from_fields({"workload": "probe", "server": server, "probe": probe})
        chosen, _ = settled(given, {})
        slots.check(chosen, {})
        assert chosen.at_once >= 4


def test_defaults_are_those_of_the_report_and_of_a_small_server() -> None:
    twin = resolve(scenario.from_fields({"workload": "probe", "server": {"kind": "twin"}})).probe
    assert twin is not None
    assert (twin.prompt_tokens, twin.decoders, twin.prompts, twin.repeats) == (20_000, (0, 3), (1,), 3)
    assert (twin.decode_tokens, twin.settle_tokens, twin.at_context, twin.nearly_finished) == (512, 32, 0, None)
    embedded = resolve(scenario.from_fields({"workload": "probe"}))
    assert embedded.probe is not None
    assert (embedded.probe.decode_tokens, embedded.corpus, embedded.at_once) == (256, "tiny", 4)
    assert embedded.request == {"ignore_eos": True}


def test_the_command_makes_the_same_scenario_and_shows_the_run(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    options = ["--prompt-tokens", "300", "--decoders", "0,1", "--decode-tokens", "60", "--settle-tokens", "5"]
    more = ["--nearly-finished", "7", "--repeat", "1", "--server", "twin", "--corpus", "tiny", "--quiet"]
    env = environment(cache_dir)
    result = CliRunner().invoke(app, ["probe", *options, *more, "--out", str(tmp_path)], env=env)
    assert (result.exit_code, result.exception) == (0, None)
    run = only_run(tmp_path)
    assert result.stdout.splitlines()[-1] == str(run.path)
    held = tomllib.loads(run.scenario_path.read_text(encoding="utf-8"))
    assert (held["workload"], held["name"]) == ("probe", "probe")
    assert held["probe"] == {
        "prompt_tokens": 300,
        "decoders": [0, 1],
        "prompts": [1],
        "nearly_finished": 7,
        "at_context": 0,
        "decode_tokens": 60,
        "settle_tokens": 5,
        "repeats": 1,
    }
    assert json.loads((run.derived / "account.json").read_bytes())["requests"]["total"] == 3 + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--decoders", "0,x"], "--decoders: expected whole numbers such as 0,3, got '0,x'"),
        (["--decoders", "2,2"], "--decoders: expected one number or more, each once, got 2, 2"),
        (["--prompt-tokens", "5"], "--prompt-tokens: expected at least 100, got 5"),
        (["--at-context", "5"], "--at-context: expected 0, or 100 or more, got 5"),
        (["--set", "ctx"], "--set: expected NAME=VALUE, got 'ctx'"),
    ],
)
def test_a_mistake_in_an_option_is_one_line_that_names_it(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["probe", "--server", "twin", *options])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith(message)


def test_a_scenario_file_of_another_workload_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text('workload = "fixed"\n', encoding="utf-8")
    result = CliRunner().invoke(app, ["probe", str(path)])
    assert str(result.exception) == f"{path}: workload: expected 'probe', got 'fixed': agentload run does all"
