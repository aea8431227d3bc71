"""Is a scenario checked once, told clearly, and the same after it was written down?"""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from agentload.agents.loop import AgentLimits
from agentload.errors import InputError, UsageError
from agentload.run import scenario
from agentload.run.scenario import EMBEDDED_LIMITS, Limits, Scenario, resolve

URL = "http://127.0.0.1:8080/v1"


def of(**fields: Any) -> Scenario:
    return scenario.from_fields(fields, "")


def test_nothing_given_means_three_agents_fifteen_seconds_apart_on_the_embedded_server() -> None:
    made = resolve(of())
    assert (made.name, made.condition, made.agents, made.stagger_s, made.seed) == ("run", "default", 3, 15.0, 0)
    assert (made.server.kind, made.corpus, made.protocol) == ("embedded", "tiny", "native")
    assert (made.limits, made.known_paths) == (EMBEDDED_LIMITS, True)
    assert made.temperature is not None
    assert made.command_chars is not None


@pytest.mark.parametrize(
    "server", [{"kind": "endpoint", "base_url": URL}, {"kind": "launch", "launch": "serve --port {port}"}]
)
def test_a_server_of_the_users_own_gets_the_standard_corpus_and_no_help_for_small_models(
    server: dict[str, str],
) -> None:
    made = resolve(of(server=server))
    assert (made.corpus, made.limits) == ("standard", Limits())
    assert (made.temperature, made.known_paths, made.command_chars) == (None, False, None)


def test_what_is_given_stays_as_it_is() -> None:
    made = resolve(of(corpus="standard", temperature=0.0, known_paths=False, command_chars=7))
    assert (made.corpus, made.temperature, made.known_paths, made.command_chars) == ("standard", 0.0, False, 7)


def test_one_limit_given_for_the_embedded_server_keeps_the_others_fit_for_its_small_model() -> None:
    limits = resolve(of(limits={"tool_calls": 5})).limits
    assert limits is not None
    assert (limits.tool_calls, limits.context_tokens, limits.stop_at_minimum) == (5, 8192, True)
    assert limits == EMBEDDED_LIMITS.model_copy(update={"tool_calls": 5})


def test_a_path_of_the_users_own_gets_no_pinned_corpus_beside_it() -> None:
    made = resolve(of(corpus_path="../my"))
    assert (made.corpus, made.corpus_path) == (None, "../my")


def test_limits_reach_the_agents_under_their_names() -> None:
    assert Limits().for_agents() == AgentLimits()
    assert Limits(turns=2, wall_s=1.5).for_agents() == AgentLimits(turns=2, wall_s=1.5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agents": 0}, "agents: Input should be greater than or equal to 1, got 0"),
        ({"stagger_s": -1.0}, "stagger_s: Input should be greater than or equal to 0, got -1.0"),
        ({"stagger_s": float("nan")}, "stagger_s: Input should be a finite number, got nan"),
        ({"temperature": float("inf")}, "temperature: Input should be a finite number, got inf"),
        ({"agnets": 3}, "agnets: Extra inputs are not permitted, got 3"),
        ({"server": {"port": 1}}, "server.port: Extra inputs are not permitted, got 1"),
        ({"limits": {"turns": 0}}, "limits.turns: Input should be greater than or equal to 1, got 0"),
        ({"server": "here"}, "server: Input should be a valid dictionary or instance of Server, got 'here'"),
        ({"name": "a/b"}, "name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', got 'a/b'"),
        ({"name": ""}, "name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', got ''"),
        ({"protocol": "xml"}, "protocol: Input should be 'native' or 'json', got 'xml'"),
        ({"sample_s": 0.5}, "sample_s: Input should be greater than or equal to 1, got 0.5"),
        ({"schema": "agentload.scenario/9"}, "schema: Input should be 'agentload.scenario/1', got"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_value_is_one_line_with_the_field_and_the_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        scenario.from_fields(fields, "my.toml: ")
    assert str(caught.value).startswith(f"my.toml: {message}")
    assert "\n" not in str(caught.value)


def test_a_corpus_and_a_path_together_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        of(corpus="tiny", corpus_path=".")
    assert str(caught.value).startswith("scenario: expected corpus or corpus_path, there are both, got {'corpus': ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"kind": "endpoint"}, "server.base_url: expected a URL"),
        ({"kind": "launch"}, "server.launch: expected a command"),
        ({"log": "server.log"}, "--server-log is the log of a server that runs already"),
        ({"kind": "launch", "launch": "x", "log": "server.log"}, "--server-log is the log of a server that runs"),
    ],
)
def test_a_server_whose_fields_contradict_each_other_is_refused(server: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(of(server=server))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"server": {"base_url": URL, "kind": "endpoint", "log": "a b.log"}, "tasks": ["any-state", "any-layout"]},
        {"request": {"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}}, "condition": 'a "b" é\n'},
        {"limits": {"turns": 9, "stop_at_minimum": True}, "stagger_s": 0.05, "seed": 2**40, "corpus_path": "./x"},
        {"server": {"args": ["--ctx-size", "4096"]}, "temperature": 0.0, "known_paths": False},
    ],
)
def test_a_scenario_written_as_toml_is_the_same_one_when_it_is_read(fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    for made in (of(**fields), resolve(of(**fields))):
        path.write_text(tomli_w.dumps(made.dump()), encoding="utf-8")
        again = scenario.from_fields(scenario.read_fields(path), "")
        assert again == made
        assert again.dump()["schema"] == "agentload.scenario/1"
    # What was resolved stays as it is: the file that a run keeps gives the same run again.
    resolved = resolve(of(**fields))
    assert resolve(resolved) == resolved


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('agents = 3\nname = "x\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.toml: expected TOML: .*at line 2, column"):
        scenario.read_fields(path)


def test_a_scenario_file_that_is_not_there_or_no_text_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        scenario.read_fields(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InputError, match=r"bytes\.toml: expected TOML: "):
        scenario.read_fields(tmp_path / "bytes.toml")
