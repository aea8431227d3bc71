"""Is a scenario checked once, told clearly, and the same after it was written down?"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from agentload.agents.chat import encode_body
from agentload.agents.outcome import AgentLimits
from agentload.core.records import ChatCall
from agentload.errors import InputError, UsageError
from agentload.run import explaining, request_fields, scenario, toml_file
from agentload.run.scenario import EMBEDDED_LIMITS, TWIN_LIMITS, Limits, Scenario, resolve
from agentload.run.workloads import Fixed

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
    limits = resolve(of(limits={"tool_calls": 7})).limits
    assert limits is not None
    assert (limits.tool_calls, limits.context_tokens, limits.stop_at_minimum) == (7, 8192, True)
    assert limits == EMBEDDED_LIMITS.model_copy(update={"tool_calls": 7})


@pytest.mark.parametrize(
    ("given", "least"),
    [
        ({}, (6, 3000)),
        ({"tool_calls": 2}, (2, 1000)),  # 3000 * 2 / 6
        ({"turns": 4}, (4, 2000)),
        # 4096 - 160 - 200 - 1100 for the first prompt
        ({"context_tokens": 4096}, (6, 2636)),
        # 1900 - 160 - 200 - 1100: room for two calls of 200 tokens, and a growth of 440
        ({"tool_calls": 2, "context_tokens": 1900}, (2, 440)),
        ({"tool_calls": 3, "context_tokens": 4096}, (3, 1500)),
        ({"min_tool_calls": 0, "min_growth_tokens": 0}, (0, 0)),
    ],
)
def test_the_least_work_never_asks_for_more_than_the_limits_allow(
    given: dict[str, int], least: tuple[int, int]
) -> None:
    made = resolve(of(limits=given))
    assert made.limits is not None
    assert (made.limits.min_tool_calls, made.limits.min_growth_tokens) == least
    assert resolve(made) == made


@pytest.mark.parametrize(
    ("given", "answer", "final"),
    [
        ({}, 4096, 8192),
        ({"context_tokens": 131_072}, 4096, 8192),
        ({"context_tokens": 32_768}, 4096, 4096),
        ({"context_tokens": 8192}, 1024, 1024),
        ({"context_tokens": 8192, "final_tokens": 1500}, 1024, 1500),  # what was given stays
        ({"context_tokens": 8192, "answer_tokens": 2000}, 2000, 1024),
    ],
)
def test_answers_whose_limits_nobody_gave_take_at_most_an_eighth_of_the_context(
    given: dict[str, int], answer: int, final: int
) -> None:
    made = resolve(of(server={"kind": "endpoint", "base_url": URL}, limits=given))
    assert made.limits is not None
    assert (made.limits.answer_tokens, made.limits.final_tokens) == (answer, final)
    assert resolve(made) == made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"context_tokens": 2000},
            (
                "--context 2000: leaves no room for 6 tool calls: a first prompt takes about 1,100 tokens, a call with "
                "its result 200, an answer up to 250 (--answer-tokens), the final one 250 (--final-tokens)"
            ),
        ),
        ({"context_tokens": 8192, "final_tokens": 8192}, "--context 8192: leaves no room for 6 tool calls: "),
        ({"answer_tokens": 180_000, "tool_calls": 1}, "--context 180000: leaves no room for 1 tool call: "),
    ],
)
def test_limits_that_leave_no_room_for_the_least_work_are_refused_in_one_line(given: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(of(server={"kind": "endpoint", "base_url": URL}, limits=given))
    assert str(caught.value).startswith(said)
    # Who asks for no work at all may have it.
    resolve(of(server={"kind": "endpoint", "base_url": URL}, limits={**given, "min_tool_calls": 0}))


def test_a_path_of_the_users_own_gets_no_pinned_corpus_beside_it() -> None:
    made = resolve(of(corpus_path="../my"))
    assert (made.corpus, made.corpus_path) == (None, "../my")


def test_limits_reach_the_agents_under_their_names() -> None:
    assert Limits().for_agents() == AgentLimits()
    assert Limits(turns=2, wall_s=1.5).for_agents() == AgentLimits(turns=2, wall_s=1.5)


NAME = "expected 1 to 64 letters, digits, dots, dashes and underscores, with a letter or digit first"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agents": 0}, "agents: expected at least 1, got 0"),
        ({"agents": 1025}, "agents: expected at most 1024, got 1025"),
        ({"agents": 1.5}, "agents: expected a whole number, got 1.5"),
        ({"agents": "many"}, "agents: expected a whole number, got 'many'"),
        ({"agents": []}, "agents: expected a whole number, got []"),
        ({"stagger_s": -1.0}, "stagger_s: expected at least 0, got -1.0"),
        ({"stagger_s": "long"}, "stagger_s: expected a number, got 'long'"),
        ({"stagger_s": []}, "stagger_s: expected a number, got []"),
        ({"stagger_s": float("nan")}, "stagger_s: expected a finite number, got nan"),
        ({"temperature": float("inf")}, "temperature: expected a finite number, got inf"),
        (
            {"agnets": 3},
            "agnets: there is no such key: there are schema, name, condition, workload, fixed, probe, warmup, parts, ",
        ),
        ({"server": {"port": 1}}, "server.port: there is no such key: there are kind, base_url, "),
        ({"limits": {"calls": 1}}, "limits.calls: there is no such key: there are turns, tool_calls, "),
        ({"limits": {"turns": 0}}, "limits.turns: expected at least 1, got 0"),
        ({"limits": {"turns": 10**13}}, "limits.turns: expected at most 1000000000000, got 10000000000000"),
        ({"server": "here"}, "server: expected a table, got 'here'"),
        ({"request": 3}, "request: expected a table, got 3"),
        ({"server": {"log": ""}}, "server.log: expected some text, got ''"),
        ({"server": {"args": [1]}}, "server.args.0: expected text, got 1"),
        (
            {"server": {"env": {"A=B": "1"}}},
            "server.env.A=B.[key]: expected the name of an environment variable, got 'A=B'",
        ),
        ({"server": {"env": {"A": 1}}}, "server.env.A: expected text, got 1"),
        ({"tasks": "one"}, "tasks: expected a list, got 'one'"),
        ({"unsafe_no_sandbox": "maybe"}, "unsafe_no_sandbox: expected true or false, got 'maybe'"),
        ({"unsafe_no_sandbox": []}, "unsafe_no_sandbox: expected true or false, got []"),
        ({"name": "a/b"}, f"name: {NAME}, got 'a/b'"),
        ({"name": ""}, f"name: {NAME}, got ''"),
        ({"protocol": "xml"}, "protocol: expected 'native' or 'json', got 'xml'"),
        ({"sample_s": 0.5}, "sample_s: expected at least 1, got 0.5"),
        ({"workload": "replay"}, "workload: expected 'agents', 'fixed' or 'probe', got 'replay'"),
        ({"parts": [{"segment": "s1"}]}, "parts.0.condition: expected a value, there is none"),
        ({"parts": [{"segment": "a b", "condition": "A"}]}, f"parts.0.segment: {NAME}, got 'a b'"),
        (
            {"parts": [{"segment": "s1", "condition": "A", "x": 1}]},
            "parts.0.x: there is no such key: there are segment, ",
        ),
        (
            {"parts": [{"segment": "s1", "condition": "A", "request": {"model": "m"}}]},
            "parts.0.request: must not hold model: agentload sets it",
        ),
        ({"workload": "fixed", "fixed": {"tokens": 1}}, "fixed.tokens: there is no such key: there are concurrency, "),
        ({"warmup": {"at": 1}}, "warmup.at: there is no such key: there are concurrency, prompt_tokens, output_tokens"),
        ({"warmup": {"concurrency": []}}, "warmup.concurrency: expected one number or more, each once, got none"),
        (
            {"warmup": {"prompt_tokens": [9, 9]}},
            "warmup.prompt_tokens: expected one number or more, each once, got 9, 9",
        ),
        (
            {"workload": "fixed", "fixed": {"concurrency": [4, 1, 4]}},
            "fixed.concurrency: expected one number or more, each once, got 4, 1, 4",
        ),
        ({"workload": "fixed", "fixed": {"concurrency": [0]}}, "fixed.concurrency.0: expected at least 1, got 0"),
        ({"schema": "agentload.scenario/9"}, "schema: expected 'agentload.scenario/1', got"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_value_is_one_line_in_our_words_with_the_field_and_the_value(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        scenario.from_fields(fields, "my.toml")
    assert str(caught.value).startswith(f"my.toml: {message}")
    assert "\n" not in str(caught.value)


def test_a_value_that_an_option_gave_is_named_by_the_option() -> None:
    options = {"agents": "--agents", "server.args": "--server-args"}
    with pytest.raises(UsageError) as caught:
        scenario.from_fields({"agents": 0}, "my.toml", text="agents = 3\n", options=options)
    assert str(caught.value) == "--agents: expected at least 1, got 0"
    with pytest.raises(UsageError) as caught:
        scenario.from_fields({"server": {"args": ["--x", 1]}}, options=options)
    assert str(caught.value) == "--server-args: expected text, got 1"


FILE = """\
# agents = 0
name = "x"
stagger_s = -1
server = { kind = "endpoint" }
limits.turns = 0

[ request ]
turns = 0
[limits]
"tool_calls" = 0
tool_calls = 0
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["stagger_s"], 3),
        (["server", "kind"], 4),  # the nearest that is plain to see: its table's line
        (["limits", "turns"], 5),
        (["request", "turns"], 8),
        (["limits", "tool_calls"], 11),
        (["limits", "wall_s"], 9),
        (["agents"], None),
        ([], None),
    ],
)
def test_the_line_of_a_value_is_found_in_a_scenario_file(path: list[str], line: int | None) -> None:
    assert explaining.toml_line(FILE, path) == line


def test_a_list_that_is_too_short_is_told_in_our_words() -> None:
    with pytest.raises(UsageError, match=r"^s\.toml:1: tracks\.0: expected a list of at least 1, got \[\]$"):
        scenario.from_fields({"tracks": [[]]}, "s.toml", text="tracks = [[]]\n")


def test_a_bad_value_in_a_file_is_told_with_its_line() -> None:
    text = "agents = 2\n[limits]\nturns = 0\n"
    with pytest.raises(UsageError) as caught:
        scenario.from_fields({"agents": 2, "limits": {"turns": 0}}, "my.toml", text=text)
    assert str(caught.value) == "my.toml:3: limits.turns: expected at least 1, got 0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'name = "a"\n[server]\nkind = "twin"\n[server.set]\nctx = 5000\nquantum = 128\n',
            "t.toml:6: server.set.quantum: the simulated server has no option 'quantum': expected prefill_quantum",
        ),
        (
            '[server]\nkind = "twin"\nset.batched_session = true\n',
            "t.toml:3: server.set.batched_session: expected a whole number, got true",
        ),
        (
            '[server]\nkind = "twin"\nset = { ctx = "many" }\n',
            "t.toml:3: server.set.ctx: expected a whole number, got 'many'",
        ),
    ],
)
def test_a_wrong_option_of_the_twin_is_named_with_its_file_and_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        scenario.from_fields(tomllib.loads(text), "t.toml", text=text)
    assert str(raised.value).startswith(said)


def test_a_corpus_and_a_path_together_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        of(corpus="tiny", corpus_path=".")
    assert str(caught.value) == "scenario: expected corpus or corpus_path, got both"


PART = {"segment": "s1", "condition": "A"}
LEAVE_OUT = 'is of the workload agents: leave it out, or leave workload = "fixed" out'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fixed": {}}, 'fixed is of another workload: give workload = "fixed" with it, or leave it out'),
        ({"parts": [PART, PART]}, "expected parts with different segments, got s1, s1"),
        ({"workload": "fixed", "parts": [PART]}, f"parts {LEAVE_OUT}"),
        ({"workload": "fixed", "agents": 8}, f"agents {LEAVE_OUT}"),
        ({"workload": "fixed", "stagger_s": 0.0}, f"stagger_s {LEAVE_OUT}"),
        ({"workload": "fixed", "tasks": ["any-state"]}, f"tasks {LEAVE_OUT}"),
        ({"workload": "fixed", "protocol": "json"}, f"protocol {LEAVE_OUT}"),
        ({"workload": "fixed", "corpus": "tiny"}, f"corpus {LEAVE_OUT}"),
        ({"workload": "fixed", "corpus_path": "."}, f"corpus_path {LEAVE_OUT}"),
        ({"workload": "fixed", "limits": {"tool_calls": 3}}, f"limits.tool_calls {LEAVE_OUT}"),
    ],
)
def test_fields_that_do_not_fit_each_other_are_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        scenario.from_fields(fields, "my.toml")
    assert str(caught.value) == f"my.toml: scenario: {message}"


def test_the_fixed_workload_has_no_corpus_and_a_wall_time_as_its_only_limit() -> None:
    made = resolve(of(workload="fixed", limits={"wall_s": 60.0}))
    assert (made.corpus, made.corpus_path, made.known_paths, made.command_chars) == (None, None, None, None)
    assert made.fixed == Fixed(concurrency=(1, 4, 8), prompt_tokens=350, output_tokens=512, rounds=2)
    assert made.limits is not None
    assert (made.limits.wall_s, made.limits.min_tool_calls, made.limits.min_growth_tokens) == (60.0, 0, 0)
    assert made.at_once == 8
    # The server's own wall time where none is given; only the twin is asked to go on to the length.
    twin = resolve(of(workload="fixed", server={"kind": "twin"}))
    embedded = resolve(of(workload="fixed"))
    assert twin.limits is not None
    assert embedded.limits is not None
    assert (twin.limits.wall_s, embedded.limits.wall_s) == (TWIN_LIMITS.wall_s, EMBEDDED_LIMITS.wall_s)
    assert (twin.request, embedded.request) == ({"ignore_eos": True}, {})
    assert resolve(of(workload="fixed", server={"kind": "twin"}, request={"ignore_eos": False})).request == {
        "ignore_eos": False
    }


@pytest.mark.parametrize(
    ("server", "fixed"),
    [
        ({}, {"output_tokens": 7843}),  # 350 + 7,843 of 8,192
        ({"kind": "twin", "set": {"ctx": 861}}, {}),  # 350 + 512
    ],
)
def test_requests_that_do_not_fit_a_context_that_is_known_are_refused(
    server: dict[str, Any], fixed: dict[str, int]
) -> None:
    with pytest.raises(UsageError, match="fixed: expected a prompt and an output that fit the server's"):
        resolve(of(workload="fixed", server=server, fixed=fixed))


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (
            {"kind": "endpoint", "base_url": URL, "env": {"A": "1"}},
            "server.env: expected a server that agentload starts, got kind 'endpoint': leave it out",
        ),
        ({"kind": "twin", "env": {"A": "1"}}, "server.env: expected a server that agentload starts, got kind 'twin'"),
        ({"software": "ds4"}, "server.software: what the embedded server is, is known: leave it out"),
        ({"kind": "twin", "software": "ds4"}, "server.software: what the twin server is, is known: leave it out"),
        ({"kind": "endpoint"}, "server.base_url: expected a URL"),
        ({"kind": "launch"}, "server.launch: expected a command"),
        ({"log": "server.log"}, "server.log: expected the server whose log it is: give --base-url with --server-log"),
        (
            {"kind": "launch", "launch": "x", "log": "server.log"},
            "server.log: a server that is launched writes to RUN/server.log: leave --server-log out",
        ),
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
        {"server": {"kind": "launch", "launch": "serve --port {port}", "env": {"A": "1"}, "software": "vllm"}},
        {"parts": [PART, {**PART, "segment": "s2", "request": {"reasoning_effort": "max"}}], "warmup": {}},
        {"workload": "fixed"},
        {"workload": "fixed", "server": {"kind": "twin"}, "fixed": {"concurrency": [2]}, "limits": {"wall_s": 9.0}},
        {"workload": "fixed", "server": {"kind": "endpoint", "base_url": URL}, "warmup": {"prompt_tokens": [9, 99]}},
    ],
)
def test_a_scenario_written_as_toml_is_the_same_one_when_it_is_read(fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    for made in (of(**fields), resolve(of(**fields))):
        path.write_text(tomli_w.dumps(made.dump()), encoding="utf-8")
        again = scenario.from_fields(toml_file.read(path).fields, "")
        assert again == made
        assert again.dump()["schema"] == "agentload.scenario/1"
    # What was resolved stays as it is: the file that a run keeps gives the same run again.
    resolved = resolve(of(**fields))
    assert resolve(resolved) == resolved


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('agents = 3\nname = "x\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.toml: expected TOML: .*at line 2, column"):
        toml_file.read(path)


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(b'\xef\xbb\xbfagents = 2\r\nname = "x"\r\n')
    assert toml_file.read(path).fields == {"agents": 2, "name": "x"}


def test_a_number_too_long_to_read_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(f"agents = {'9' * 5000}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"long\.toml: expected TOML: Exceeds the limit"):
        toml_file.read(path)


def test_a_scenario_file_that_is_not_there_or_no_text_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        toml_file.read(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InputError, match=r"bytes\.toml: expected TOML in UTF-8: "):
        toml_file.read(tmp_path / "bytes.toml")


@pytest.mark.parametrize("server", [{"log": "a\0b"}, {"launch": "serve \0"}, {"args": ["-c", "\0"]}])
def test_nul_in_a_servers_text_is_refused(server: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"server\.\w+.*: must not hold NUL"):
        of(server=server)


def nested(levels: int) -> dict[str, Any]:
    made: Any = 1
    for _ in range(levels - 1):
        made = [made]
    return {"x": made}


def test_a_request_value_is_nested_32_deep_at_most() -> None:
    assert of(request=nested(32)).request == nested(32)
    with pytest.raises(UsageError, match="request: expected lists and tables at most 32 deep"):
        of(request=nested(33))
    with pytest.raises(UsageError, match="at most 32 deep"):
        of(request=nested(100_000))


def test_a_bad_request_value_is_told_with_the_line_of_its_table() -> None:
    with pytest.raises(UsageError, match=r"^s\.toml:3: request: expected request values that JSON has"):
        scenario.from_fields({"request": {"x": float("inf")}}, "s.toml", text='name = "a"\n\n[request]\nx = inf\n')


@pytest.mark.anyio
@pytest.mark.parametrize("name", request_fields.OURS)
async def test_a_request_parameter_that_the_transport_refuses_is_refused_before(name: str) -> None:
    with pytest.raises(UsageError, match=f"request: must not hold {name}: agentload sets it"):
        of(request={name: 1})
    with pytest.raises(UsageError, match="agentload sets them"):
        await encode_body("m", ChatCall("a0-t1-r1", "a0", 1, (), extra={name: 1}))
