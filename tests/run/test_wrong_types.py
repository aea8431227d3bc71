"""Is a value of another type than its key's refused, key by key, in one line that names file, line and key?"""

from pathlib import Path
from typing import Final

import pytest
from pydantic import BaseModel

from agentload.errors import UsageError
from agentload.run import scenario
from agentload.run.experiment_shape import Experiment, ProofTable, VariantTable
from agentload.run.scenario import Limits, Part, Scenario, Server
from agentload.run.workloads import Fixed, Probe, Warmup
from tests.program import program

# A literal of TOML, and how it is told.
WHOLE = ("1", "1")
FRACTION = ("1.0", "1.0")
TEXT = ('"1"', "'1'")
TRUE = ("true", "true")
FALSE = ("false", "false")
DATE = ("2026-11-30", "2026-11-30")
CLOCK = ("12:30:00", "12:30:00")
LIST = ("[1]", "[1]")
EMPTY = ("[]", "[]")
TABLE = ("{ a = 1 }", "{'a': 1}")

# Of each kind of key what is wrong, where in its value, and what was expected.
Wrong = tuple[tuple[str, str], str, str]


def wrong(said: str, *literals: tuple[str, str]) -> list[Wrong]:
    return [(one, "", f"{said}, got {one[1]}") for one in literals]


def inside(said: str, place: str, before: str, after: str, *literals: tuple[str, str]) -> list[Wrong]:
    """The same of what stands in a list or a table."""
    return [((f"{before}{one[0]}{after}", ""), f".{place}", f"{said}, got {one[1]}") for one in literals]


PLAIN = "expected text, a finite number, true or false"
A_WHOLE = wrong("expected a whole number", TRUE, FALSE, FRACTION, TEXT, LIST, TABLE, DATE)
A_NUMBER = wrong("expected a number", TRUE, TEXT, LIST, TABLE, CLOCK)
A_TEXT = wrong("expected text", WHOLE, FRACTION, TRUE, LIST, TABLE, DATE)
A_FLAG = wrong("expected true or false", WHOLE, ("0", "0"), FRACTION, TEXT, ('"true"', "'true'"), EMPTY, TABLE, DATE)
A_TABLE = wrong("expected a table", WHOLE, FRACTION, TRUE, TEXT, EMPTY, LIST, DATE)
NO_LIST = wrong("expected a list", WHOLE, TRUE, TEXT, TABLE, DATE)
WHOLES = NO_LIST + inside("expected a whole number", "0", "[", "]", TRUE, FRACTION, TEXT, LIST, DATE)
TEXTS = NO_LIST + inside("expected text", "0", "[", "]", WHOLE, TRUE, EMPTY)
TABLES = NO_LIST + inside("expected a table", "0", "[", "]", WHOLE, TRUE, TEXT, EMPTY)
TRACKS = NO_LIST + inside("expected a list", "0", "[", "]", TEXT) + inside("expected text", "0.0", "[[", "]]", TRUE)
ENV = A_TABLE + inside("expected text", "A", "{ A = ", " }", WHOLE, TRUE, LIST, DATE)
PLAINS = A_TABLE + inside(PLAIN, "A", "{ A = ", " }", LIST, EMPTY, ("nan", "nan"))
REQUEST = [*A_TABLE, (("{ a = 2026-11-30 }", ""), "", "expected request values that JSON has: ")]


def choice(*names: str) -> list[Wrong]:
    told = [f"'{name}'" for name in names]
    said = f"expected {', '.join(told[:-1])} or {told[-1]}" if told[1:] else f"expected {told[0]}"
    return wrong(said, WHOLE, TRUE, TEXT, EMPTY, DATE)


SCENARIO: Final[dict[str, list[Wrong]]] = {
    "schema": choice("agentload.scenario/1"),
    "name": A_TEXT,
    "condition": A_TEXT,
    "workload": choice("agents", "fixed", "probe"),
    "fixed": A_TABLE,
    "probe": A_TABLE,
    "warmup": A_TABLE,
    "parts": TABLES,
    "agents": A_WHOLE,
    "stagger_s": A_NUMBER,
    "seed": A_WHOLE,
    "corpus": A_TEXT,
    "corpus_path": A_TEXT,
    "tasks": TEXTS,
    "chain": A_WHOLE,
    "tracks": TRACKS,
    "parallel_tool_calls": A_FLAG,
    "protocol": choice("native", "json"),
    "server": A_TABLE,
    "limits": A_TABLE,
    "temperature": A_NUMBER,
    "request": REQUEST,
    "known_paths": A_FLAG,
    "command_chars": A_WHOLE,
    "unsafe_no_sandbox": A_FLAG,
    "sample_s": A_NUMBER,
    "server.kind": choice("embedded", "endpoint", "launch", "twin"),
    "server.base_url": A_TEXT,
    "server.model": A_TEXT,
    "server.launch": A_TEXT,
    "server.log": A_TEXT,
    "server.log_format": A_TEXT,
    "server.args": TEXTS,
    "server.env": ENV,
    "server.software": choice("ds4", "llamacpp", "vllm", "sglang"),
    "server.otlp": A_FLAG,
    "server.ready_s": A_NUMBER,
    "server.stop_s": A_NUMBER,
    "server.profile": A_TEXT,
    "server.set": PLAINS,
    "server.boot": A_WHOLE,
    **{
        f"limits.{name}": A_WHOLE
        for name in (
            *("turns", "tool_calls", "context_tokens", "answer_tokens", "final_tokens", "min_tool_calls"),
            *("min_growth_tokens", "nudges", "failures"),
        )
    },
    "limits.wall_s": A_NUMBER,
    **{f"limits.{name}": A_FLAG for name in ("resample", "final_without_tools", "stop_at_minimum")},
    "fixed.concurrency": WHOLES,
    "fixed.prompt_tokens": A_WHOLE,
    "fixed.output_tokens": A_WHOLE,
    "fixed.rounds": A_WHOLE,
    "warmup.concurrency": WHOLES,
    "warmup.prompt_tokens": WHOLES,
    "warmup.output_tokens": A_WHOLE,
    "probe.prompt_tokens": A_WHOLE,
    "probe.decoders": WHOLES,
    "probe.prompts": WHOLES,
    "probe.nearly_finished": A_WHOLE,
    "probe.at_context": A_WHOLE,
    "probe.decode_tokens": A_WHOLE,
    "probe.settle_tokens": A_WHOLE,
    "probe.repeats": A_WHOLE,
    "parts.0.segment": A_TEXT,
    "parts.0.condition": A_TEXT,
    "parts.0.request": REQUEST,
}

EXPERIMENT: Final[dict[str, list[Wrong]]] = {
    "schema": choice("agentload.experiment/1"),
    "name": A_TEXT,
    "seed": A_WHOLE,
    "repeats": A_WHOLE,
    "sets": A_WHOLE,
    "workload": choice("agents", "fixed", "probe"),
    "metric": A_TEXT,
    "cooldown_s": A_NUMBER,
    "scenario": A_TABLE,
    "vary": wrong("expected a table", WHOLE, TRUE, TEXT, EMPTY),
    "variant": TABLES,
    "expected": PLAINS,
    "proof": TABLES,
    "variant.0.name": A_TEXT,
    "variant.0.label": A_TEXT,
    "variant.0.launch": A_TEXT,
    "variant.0.env": PLAINS,
    "variant.0.args": TEXTS,
    "variant.0.set": PLAINS,
    "variant.0.request": REQUEST,
    "variant.0.expected": PLAINS,
    "proof.0.setting": A_TEXT,
    "proof.0.line": A_TEXT,
    # Of a scenario within an experiment one key of each kind.
    "scenario.agents": A_WHOLE,
    "scenario.stagger_s": A_NUMBER,
    "scenario.unsafe_no_sandbox": A_FLAG,
    "scenario.tasks": TEXTS,
}

# Without them another key of the table would be missed first; where all is well, what refuses the file: nothing starts.
BESIDE: Final = {"parts": {"segment": '"s"', "condition": '"c"'}, "proof": {"setting": '"s"', "line": '"(a)"'}}
NO_SERVER: Final = {"server": {"kind": '"endpoint"'}}


def keys(prefix: str, model: type[BaseModel]) -> set[str]:
    return {f"{prefix}{field.alias or name}" for name, field in model.model_fields.items()}


def test_the_tables_name_every_key() -> None:
    tables: dict[str, type[BaseModel]] = {
        "": Scenario,
        "server.": Server,
        "limits.": Limits,
        "fixed.": Fixed,
        "warmup.": Warmup,
        "probe.": Probe,
        "parts.0.": Part,
    }
    assert set(SCENARIO) == {key for prefix, model in tables.items() for key in keys(prefix, model)}
    tables = {"": Experiment, "variant.0.": VariantTable, "proof.0.": ProofTable}
    own = {key for key in EXPERIMENT if not key.startswith("scenario.")}
    assert own == {key for prefix, model in tables.items() for key in keys(prefix, model)}


def written(key: str, literal: str, always: dict[str, dict[str, str]]) -> tuple[str, int]:
    """A file with the key on a line of its own, and the number of that line."""
    *table, name = key.split(".")
    lines = []
    if table:
        lines.append(f"[[{table[0]}]]" if table[1:] else f"[{table[0]}]")
    lines.append(f"{name} = {literal}")
    number = len(lines)
    top = table[0] if table else name
    beside = {**always, **BESIDE}
    if table:
        lines += [f"{other} = {value}" for other, value in beside.get(top, {}).items() if other != name]
    for other, values in always.items():
        if other != top:
            lines += [f"[{other}]", *(f"{each} = {value}" for each, value in values.items())]
    return "\n".join(lines) + "\n", number


def check(command: str, key: str, faults: list[Wrong], always: dict[str, dict[str, str]], folder: Path) -> None:
    path = folder / "mine.toml"
    for (literal, _), place, said in faults:
        text, line = written(key, literal, always)
        path.write_text(text, encoding="utf-8")
        done = program(command, str(path), cwd=folder, env={"AGENTLOAD_CACHE": str(folder / "cache")})
        assert (done.returncode, done.stdout) == (2, ""), (literal, done)
        assert done.stderr.count("\n") == 1, (literal, done)
        assert done.stderr.removesuffix("\n").startswith(f"agentload: {path}:{line}: {key}{place}: {said}"), literal
    assert [one.name for one in folder.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("key", SCENARIO)
def test_a_value_of_a_scenario_that_is_of_another_type_is_refused_in_one_line(key: str, tmp_path: Path) -> None:
    check("run", key, SCENARIO[key], NO_SERVER, tmp_path)


@pytest.mark.parametrize("key", EXPERIMENT)
def test_a_value_of_an_experiment_that_is_of_another_type_is_refused_in_one_line(key: str, tmp_path: Path) -> None:
    check("ab", key, EXPERIMENT[key], {}, tmp_path)


def test_a_whole_number_is_a_number_too() -> None:
    made = scenario.from_fields({"stagger_s": 15, "temperature": 0, "limits": {"wall_s": 600}, "sample_s": 2})
    assert (made.stagger_s, made.temperature, made.sample_s) == (15.0, 0.0, 2.0)
    assert made.limits is not None
    assert [type(one) for one in (made.stagger_s, made.limits.wall_s)] == [float, float]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ctx": True}, "ctx: expected a whole number, got true"),
        ({"ctx": 5000.0}, "ctx: expected a whole number, got 5000.0"),
        ({"batch_log": 1}, "batch_log: expected true or false, got 1"),
        ({"kv_disk_dir": 1}, "kv_disk_dir: expected text, got 1"),
        ({"ctx": "many"}, "ctx: expected a whole number, got 'many'"),
    ],
)
def test_an_option_of_the_twin_is_of_its_own_type_or_a_text_that_reads_as_one(
    given: dict[str, object], said: str
) -> None:
    fields = {"server": {"kind": "twin", "set": given}}
    with pytest.raises(UsageError) as caught:
        scenario.resolve(scenario.from_fields(fields))
    assert str(caught.value) == f"server.set.{said}"
