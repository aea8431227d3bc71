"""Do a file and options make the variants that they say, and is each mistake one line that names its place?"""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from agentload.errors import InputError, UsageError
from agentload.run import experiment_file, settings_asked, toml_values, variants
from agentload.run.experiment_file import Experiment
from agentload.run.variants import Made

HEAD = 'schema = "agentload.experiment/1"\n'
LAUNCH = "ds4-server -m model.gguf --port {port} --mixed-prefill-quantum {q}"


def read(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "night.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return experiment_file.read(path)


def made(fields: dict[str, Any]) -> tuple[Made, ...]:
    return variants.make(experiment_file.from_fields(fields))


def launched(launch: str, **vary: Any) -> dict[str, Any]:
    return {"scenario": {"server": {"launch": launch}}, "vary": vary}


def test_a_placeholder_of_the_command_takes_each_value_and_the_flags_setting_must_be_proven(tmp_path: Path) -> None:
    found = variants.make(read(tmp_path, f'[scenario.server]\nlaunch = "{LAUNCH}"\n[vary]\nq = [2048, 128]\n'))
    assert [(one.name, one.label) for one in found] == [("A", "q=2048"), ("B", "q=128")]
    assert [one.scenario.server.launch for one in found] == [
        "ds4-server -m model.gguf --port {port} --mixed-prefill-quantum 2048",
        "ds4-server -m model.gguf --port {port} --mixed-prefill-quantum 128",
    ]
    assert [one.expected for one in found] == [{"mixed_prefill_quantum": 2048}, {"mixed_prefill_quantum": 128}]
    assert [one.scenario.server.kind for one in found] == ["launch", "launch"]
    assert [one.scenario.condition for one in found] == ["A", "B"]
    assert variants.warnings(found) == []


def test_a_value_of_the_embedded_servers_flags_may_be_several_words_or_none() -> None:
    server = {"args": ["-lv", "4", "{cache}"]}
    found = made({"scenario": {"server": server}, "vary": {"cache": ["", "--no-cache-prompt -b 64"]}})
    assert [one.scenario.server.args for one in found] == [
        ("-lv", "4"),
        ("-lv", "4", "--no-cache-prompt", "-b", "64"),
    ]
    assert [one.label for one in found] == ["cache=(nothing)", "cache=--no-cache-prompt -b 64"]
    assert [one.expected for one in found] == [{}, {"cache_prompt": False, "n_batch": 64}]


def test_an_option_of_the_twin_is_read_as_its_type() -> None:
    fields = {"scenario": {"server": {"kind": "twin"}}, "vary": {"mixed_prefill_quantum": ["2048", 128]}}
    found = made(fields)
    assert [one.scenario.server.set for one in found] == [
        {"mixed_prefill_quantum": 2048},
        {"mixed_prefill_quantum": 128},
    ]
    assert [one.expected for one in found] == [{"mixed_prefill_quantum": 2048}, {"mixed_prefill_quantum": 128}]


def test_an_environment_variable_varies_and_is_named_as_the_setting_that_it_asks_for() -> None:
    fields = launched("llama-server --port {port}")
    found = made(fields | {"vary": {"env.LLAMA_ARG_UBATCH": [512, 8]}})
    assert [one.scenario.server.env for one in found] == [{"LLAMA_ARG_UBATCH": "512"}, {"LLAMA_ARG_UBATCH": "8"}]
    assert [one.expected for one in found] == [{"n_ubatch": 512}, {"n_ubatch": 8}]
    assert [one.label for one in found] == ["LLAMA_ARG_UBATCH=512", "LLAMA_ARG_UBATCH=8"]


@pytest.mark.parametrize(
    "text",
    [
        "[vary]\nrequest.chat_template_kwargs.enable_thinking = [true, false]\n",
        '[vary]\n"request.chat_template_kwargs.enable_thinking" = [true, false]\n',
        "[vary.request.chat_template_kwargs]\nenable_thinking = [true, false]\n",
    ],
)
def test_a_request_parameter_in_a_table_keeps_what_the_scenario_has_beside_it(text: str, tmp_path: Path) -> None:
    found = read(
        tmp_path, f"[scenario.request.chat_template_kwargs]\nkeep = 1\n[scenario.request]\ntop_p = 0.5\n{text}"
    )
    assert variants.kind(found) == "request"
    first, second = variants.make(found)
    assert first.request == {"chat_template_kwargs": {"keep": 1, "enable_thinking": True}}
    assert second.request == {"chat_template_kwargs": {"keep": 1, "enable_thinking": False}}
    assert first.scenario.request == second.scenario.request == {"chat_template_kwargs": {"keep": 1}, "top_p": 0.5}
    assert (first.label, first.expected) == ("enable_thinking=true", {})


def test_a_request_parameter_of_the_fixed_workload_needs_starts_of_its_own() -> None:
    fields = {"workload": "fixed", "scenario": {"server": {"kind": "twin"}}, "vary": {"request.seed": [1, 2]}}
    experiment = experiment_file.from_fields(fields)
    assert variants.kind(experiment) == "restart"
    assert [(one.scenario.request, one.request) for one in variants.make(experiment)] == [
        ({"seed": 1}, {}),
        ({"seed": 2}, {}),
    ]


def test_variants_that_are_tables_have_their_own_command_flags_and_proofs(tmp_path: Path) -> None:
    text = """
        metric = "decode_tok_s"
        [scenario.server]
        launch = "serve --port {port}"
        env = { A = "1" }
        [[variant]]
        name = "old"
        label = "build 1"
        expected = { build = 1 }
        [[variant]]
        label = "build 2"
        launch = "other/serve --port {port}"
        env = { A = 2 }
        request = { top_p = 0.9 }
        expected = { build = 2 }
        [[proof]]
        setting = "build"
        line = "build (\\\\d+)"
    """
    first, second = variants.make(read(tmp_path, text))
    assert (first.name, second.name) == ("old", "B")
    assert (first.scenario.server.launch, second.scenario.server.launch) == (
        "serve --port {port}",
        "other/serve --port {port}",
    )
    assert (first.scenario.server.env, second.scenario.server.env) == ({"A": "1"}, {"A": "2"})
    assert (first.scenario.request, second.scenario.request) == ({}, {"top_p": 0.9})
    assert (first.expected, second.expected) == ({"build": 1}, {"build": 2})
    assert variants.warnings((first, second)) == []


def test_equals_are_compared_when_their_labels_tell_them_apart() -> None:
    tables = [{"label": name, "set": {"mixed_prefill_quantum": 2048}} for name in ("one", "other")]
    first, second = made({"scenario": {"server": {"kind": "twin"}}, "variant": tables})
    assert first.scenario.server == second.scenario.server
    assert (first.label, second.label, first.name, second.name) == ("one", "other", "A", "B")


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("./serve.sh --port {port} --new-flag {q}", {"new_flag": 5}),
        ("./serve.sh --port {port} --new-flag={q}", {"new_flag": 5}),
        ("./serve.sh {port} {q} --port 1", {"q": 5}),
        ("builds/{q}/serve --port {port}", {}),
    ],
)
def test_a_setting_that_no_profile_knows_is_named_by_its_flag_and_warned_of(
    launch: str, expected: dict[str, Any]
) -> None:
    found = made(launched(launch, q=[5, 6]))
    assert found[0].expected == expected
    assert [line.partition(",")[0] for line in variants.warnings(found)] == [
        f"nothing is known to prove {name}" for name in expected
    ]


def test_a_setting_behind_a_script_is_known_by_the_name_that_the_log_has_for_it() -> None:
    found = made(launched("./serve.sh {port} {mixed_prefill_quantum} --port 1", mixed_prefill_quantum=[2048, 128]))
    assert [one.expected for one in found] == [{"mixed_prefill_quantum": 2048}, {"mixed_prefill_quantum": 128}]
    assert variants.warnings(found) == []


def test_a_flag_given_twice_is_said_before_a_night_is_spent_on_it() -> None:
    found = made(launched(f"{LAUNCH} --mixed-prefill-quantum 64", q=[2048, 128]))
    said = variants.warnings(found)
    assert said[0].startswith("q=2048: the command gives mixed_prefill_quantum 2 times (2048, 64): the last one wins")


def test_expected_settings_of_the_file_have_the_value_in_its_own_type() -> None:
    fields = launched("serve --port {port} --size {q}", q=[5, 6])
    found = made(fields | {"expected": {"size": "{q}", "name": "size-{q}", "other": 1}})
    assert found[0].expected == {"size": 5, "name": "size-5", "other": 1}


def test_a_server_that_compiles_is_warmed_up_and_the_twin_is_not() -> None:
    ds4 = made(launched(LAUNCH, q=[1, 2]))[0].scenario
    assert ds4.warmup is not None
    # One request, and as many as there are agents; the first prompt's length, and one that fills a quantum of 2048.
    assert (ds4.warmup.concurrency, ds4.warmup.prompt_tokens) == ((1, 3), (1100, 3000))
    embedded = made({"scenario": {"server": {"args": ["-ub", "{q}"]}}, "vary": {"q": [512, 8]}})[0].scenario
    assert embedded.warmup is not None
    assert (embedded.warmup.concurrency, embedded.warmup.prompt_tokens) == ((1,), (350,))
    twin = made({"scenario": {"server": {"kind": "twin"}}, "vary": {"ctx": [100_000, 200_000]}})[0].scenario
    assert twin.warmup is None
    given = {"server": {"launch": LAUNCH}, "warmup": {"concurrency": [2]}}
    own = made({"scenario": given, "vary": {"q": [1, 2]}})[0].scenario
    assert own.warmup is not None
    assert own.warmup.concurrency == (2,)


def test_limits_given_in_part_leave_the_others_to_the_server() -> None:
    """A dump of all limits would have told the embedded server those of a large one."""
    scenario = {"server": {"args": ["-ub", "{q}"]}, "limits": {"wall_s": 60.0}}
    found = made({"scenario": scenario, "vary": {"q": [512, 8]}})
    assert variants.dump(found[0].scenario)["limits"] == {"wall_s": 60.0}


@pytest.mark.parametrize(
    ("fields", "metric"),
    [
        ({"scenario": {"server": {"kind": "twin"}}, "vary": {"ctx": [100_000, 200_000]}}, "prefill_tok_s"),
        ({"scenario": {"server": {"args": ["{x}"]}}, "vary": {"x": ["-a", "-b"]}}, "prefill_tokens_per_cpu_s"),
        (launched(LAUNCH, q=[1, 2]) | {"metric": "ttft_s"}, "ttft_s"),
        (launched(LAUNCH, q=[1, 2]) | {"workload": "fixed"}, "decode_tok_s_c8"),
    ],
)
def test_the_deciding_metric_is_the_workloads_own_unless_the_file_names_one(
    fields: dict[str, Any], metric: str
) -> None:
    assert experiment_file.metric_of(experiment_file.from_fields(fields)) == metric


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[scenario.server]\nlaunch = "s --port {port} {k}"\n[vary]\nq = [1, 2]\n', 5, "vary.q: expected {q} in the"),
        ('[scenario.server]\nlaunch = "s {port} {q} {k}"\n[vary]\nq = [1, 2]\n', 3, "{k} has no values"),
        ('[scenario.server]\nlaunch = "s {port} {q}"\n', 3, "{q} has no values (--vary q=V1,V2): there are {port}"),
        ('[scenario.server]\nlaunch = "s {q}"\n[vary]\nq = [1]\n', 5, "expected two or more values, got one: 1"),
        ('[scenario.server]\nlaunch = "s {q}"\n[vary]\nq = []\n', 5, "expected two or more values, got none"),
        ('[scenario.server]\nlaunch = "s {q}"\n[vary]\nq = [1, 2, 1]\n', 5, "the same value twice: q=1"),
        ("[vary]\nq = [1, 2]\nr = [1, 2]\n", 2, "vary: expected one factor, got q and r"),
        ("[vary]\nport = [1, 2]\n", 3, "{port} is filled in by agentload"),
        ('[vary]\n"a-b" = [1, 2]\n', 2, "expected the name of a placeholder, env.NAME or request.NAME"),
        ("[vary]\nq = 3\n", 2, "vary: q: expected a list of values, got 3"),
        ("[vary]\nq = [[1], [2]]\n", 2, "lists and tables go into [[variant]] tables"),
        ("seed = 1\n", None, "vary: expected what varies"),
        ("[vary]\nq = [1, 2]\n[[variant]]\n", 4, "expected [vary] or [[variant]] tables, got both"),
        ("[[variant]]\n[[variant]]\n[[variant]]\nname = 'A'\n", 5, "variant.2.name: expected a name of its own"),
        ("[[variant]]\nargs=['-a']\n[[variant]]\nargs=['-a']\n", 4, "variant.1.label: the same value twice: -a"),
        ("[[variant]]\n[[variant]]\n", 3, "variant.1: the same as one before it; to compare equals, give each a label"),
        (f"[vary]\n{'a.' * 40}b = [1, 2]\n", 2, "expected a name of at most 32 parts, got a.a."),
        ("[vary]\nrequest.tools = [1, 2]\n", 3, "must not hold tools: agentload sets it"),
        ("[[variant]]\n", 2, "variant: expected 2 to 26 [[variant]] tables, got 1"),
        ("[[variant]]\nlaunch='a {q}'\n[[variant]]\nlaunch='b'\n", 3, "variant.0.launch: {q} has no values"),
        ("[[variant]]\nlaunch='a'\n[[variant]]\nlabel='b'\n", 4, "variant.1: expected a launch command"),
        ("[[variant]]\n[[variant]]\nfoo = 1\n", 4, "there is no such key: there are name, label, launch"),
        ("[vary]\nrequest.a.b = [1, 2]\n[scenario.request]\na = { b = 1 }\n", 3, "scenario.request.a.b has one too: 1"),
        ("[vary]\nrequest.a.b = [1, 2]\n[scenario.request]\na = 5\n", 3, "scenario.request.a has one too: 5"),
        ("[vary]\nrequest.messages = [1, 2]\n", 3, "must not hold messages: agentload sets it"),
        (
            "[scenario.server]\nkind='twin'\n[vary]\nquantum = [1, 2]\n",
            5,
            "no option 'quantum': expected prefill_quantum",
        ),
        (
            "[scenario.server]\nkind='twin'\n[scenario.server.set]\nquantum = 5\n[vary]\nctx = [1, 2]\n",
            5,
            "scenario.server.set.quantum: the simulated server has no option 'quantum': expected prefill_quantum",
        ),
        (
            "[scenario.server]\nkind='twin'\n[[variant]]\nset.ctx = 5\n[[variant]]\nset.batched_session = 'two'\n",
            7,
            "variant.1.set.batched_session: expected a whole number, got 'two'",
        ),
        ("[scenario.server]\nkind='twin'\n[vary]\nctx = [0, 2]\n", 5, "ctx: Input should be greater than 0, got 0"),
        (
            "[scenario.server]\nkind='twin'\nset.ctx=5\n[vary]\nctx = [1, 2]\n",
            6,
            "scenario.server.set.ctx (--set) is given",
        ),
        ("[scenario.server]\nkind='twin'\n[vary]\nenv.A = [1, 2]\n", 5, "for its environment; this is twin"),
        ("[scenario.server]\nenv.A='1'\n[vary]\nenv.A = [1, 2]\n", 5, "scenario.server.env.A is given too"),
        ("[scenario.server]\nbase_url='http://127.0.0.1:1/v1'\n[vary]\nq = [1, 2]\n", 3, "what varies needs restarts"),
        ("repeats = 0\n", 2, "repeats: expected at least 1, got 0"),
        ('name = "a/b"\n', 2, "name: expected 1 to 64 letters"),
        ('workload = "replay"\n', 2, "workload: expected 'agents', 'fixed' or 'probe', got 'replay'"),
        ("metric = 'speed'\n[vary]\nrequest.a = [1, 2]\n", 2, "metric: expected a metric: prefill_tok_s, "),
        ("nights = 3\n", 2, "nights: there is no such key: there are schema, name, seed, repeats"),
        ("[scenario]\nseed = 3\n", 2, "scenario: seed: expected it at the top"),
        (
            '[scenario]\nworkload = "fixed"\n',
            2,
            "workload: expected it at the top of the experiment, there it is 'agents'",
        ),
        ('[scenario]\ncondition = "x"\n', 2, "condition: must not be given"),
        ("[scenario.server]\nkind='twin'\nboot = 1\n", 2, "server.boot: must not be given"),
        ("[scenario]\n[scenario.limits]\nwall = 3\n", 4, "scenario.limits.wall: there is no such key: there are turns"),
        ("[scenario.server]\nargs=['{q}', '-c']\n[vary]\nq=['\"', 'b']\n", 5, "No closing quotation: '\"'"),
        ("[[proof]]\nsetting = 'a'\nline = 'a(b)(c)'\n", 4, "proof.0.line: expected one group, the value in force"),
        ("[[proof]]\nsetting = 'a'\nline = '('\n", 4, "proof.0.line: expected a regular expression"),
        ("[[proof]]\nline = '(a)'\n", 2, "proof.0.setting: expected a value, there is none"),
        ('schema = "agentload.experiment/1"\n', None, "expected TOML"),
    ],
)
def test_a_mistake_is_one_line_with_the_files_line(text: str, line: int | None, message: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, InputError)) as raised:
        read(tmp_path, text)
    said = str(raised.value)
    assert message in said
    assert "\n" not in said
    assert said.startswith(f"{tmp_path / 'night.toml'}:{line}: " if line else f"{tmp_path / 'night.toml'}: ")


def test_a_file_that_does_not_end_is_not_read_to_its_end() -> None:
    with pytest.raises(InputError, match=r"^/dev/zero: expected a file of at most 1 MiB, it is longer$"):
        experiment_file.read(Path("/dev/zero"))


def test_a_mistake_of_an_option_is_named_by_the_option() -> None:
    given = {("scenario", "agents"): ("--agents", 0), ("vary",): ("--vary", {"ctx": (1, 2)})}
    fields = {"scenario": {"agents": 0}, "vary": {"ctx": (1, 2)}}
    with pytest.raises(UsageError, match=r"^--agents: expected at least 1, got 0$"):
        experiment_file.from_options(given, fields)


def test_an_experiment_written_down_is_the_same_one_when_it_is_read(tmp_path: Path) -> None:
    fields = launched(LAUNCH, q=[2048, 128]) | {"repeats": 2, "workload": "fixed", "name": "x"}
    fields["scenario"]["fixed"] = {"concurrency": [1, 2], "output_tokens": 64}
    fields["scenario"]["limits"] = {"wall_s": 60.0}
    once = experiment_file.from_fields(fields)
    path = tmp_path / "experiment.toml"
    path.write_text(tomli_w.dumps(experiment_file.dump(once)), encoding="utf-8")
    again = experiment_file.read(path)
    assert variants.make(again) == variants.make(once)
    assert again == once


@pytest.mark.parametrize(
    ("text", "typed", "verbatim"),
    [
        ("2048", 2048, 2048),
        ("true", True, True),
        ("0.5", 0.5, 0.5),
        ("1.10", 1.1, "1.10"),
        ("1_000", 1000, "1_000"),
        ("high", "high", "high"),
        ("nan", "nan", "nan"),
        ("1979-05-27", "1979-05-27", "1979-05-27"),
        ("'a'", "'a'", "'a'"),
        ("", "", ""),
        ("1 # 2", 1, "1 # 2"),
        ("1\nother = 2", "1\nother = 2", "1\nother = 2"),
    ],
)
def test_a_value_of_an_option_keeps_the_spelling_where_it_goes_into_a_command(
    text: str, typed: Any, verbatim: Any
) -> None:
    found = (toml_values.typed(text), toml_values.verbatim(text))
    assert found == (typed, verbatim)
    assert [type(one) for one in found] == [type(typed), type(verbatim)]


def test_the_short_form_types_request_parameters_and_leaves_the_rest_as_it_is() -> None:
    assert toml_values.varied(["request.temperature=0.10, 1"]) == {"request.temperature": (0.1, 1)}
    assert toml_values.varied(["q=0.10,--a=b,"]) == {"q": ("0.10", "--a=b", "")}


@pytest.mark.parametrize("text", ["q", "=1,2", ""])
def test_a_vary_without_name_or_values_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--vary: expected NAME=V1,V2"):
        toml_values.varied([text])


def test_a_name_that_varies_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="--vary: expected q once"):
        toml_values.varied(["q=1,2", "q=3"])


def test_a_flag_of_a_known_server_can_be_proven_and_one_of_no_server_cannot() -> None:
    server = made(launched(LAUNCH, q=[1, 2]))[0].scenario.server
    assert settings_asked.profile_of(server).name == "ds4"
    assert settings_asked.provable(server, "mixed_prefill_quantum")
    assert not settings_asked.provable(server, "power")  # ds4 has it, and states it nowhere
    assert not settings_asked.provable(server, "nothing_of_the_kind")
