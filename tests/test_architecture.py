"""The house rules that a tool can hold: who imports whom, what each file says of itself, what is installed."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

from agentload.agents import corpora, tasks

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "agentload").rglob("*.py"))
MOST_LINES = 420  # "about 400"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def of_package(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_file = pytest.mark.parametrize("path", FILES, ids=of_package)


def test_imports_point_down() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_stands_in_a_layer() -> None:
    """A new room that no layer names would be bound by no rule."""
    contract = next(one for one in PYPROJECT["tool"]["importlinter"]["contracts"] if one["id"] == "layers")
    named = {part.strip(" ()").split(".")[1] for layer in contract["layers"] for part in layer.split("|")}
    rooms = {path.relative_to(ROOT / "agentload").parts[0].removesuffix(".py") for path in FILES}
    assert rooms - {"__init__", "__main__"} <= named


@each_file
def test_a_module_says_what_it_answers(path: Path) -> None:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert told is not None
    assert len(told) > 20


@each_file
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{of_package(path)} has {lines} lines: split it"


def caught(handler: ast.ExceptHandler) -> set[str]:
    """Names of what the handler keeps; nothing when it ends by raising the same again."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return set()
    if handler.type is None:
        return {"everything"}
    parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(part) for part in parts}


# Handlers that hand on what they catch to whoever waits for it: nothing becomes a result there.
HANDED_ON = {"agentload/run/waiting.py": 1}


@each_file
def test_no_handler_catches_everything(path: Path) -> None:
    found = [
        f"{of_package(path)}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and caught(node) & {"everything", "Exception", "BaseException"}
    ]
    assert len(found) == HANDED_ON.get(of_package(path), 0), found


@each_file
def test_no_function_imports(path: Path) -> None:
    found = [
        f"{of_package(path)}:{inner.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert found == []


@each_file
def test_only_plugins_imports_by_name(path: Path) -> None:
    names = {
        ast.unparse(node.func).rpartition(".")[2]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    dynamic = names & {"import_module", "__import__", "entry_points"}
    assert dynamic == ({"entry_points"} if path.name == "plugins.py" else set())


@pytest.mark.parametrize("group", PYPROJECT["project"]["entry-points"])
def test_the_installed_entry_points_are_those_of_the_project(group: str) -> None:
    wanted = PYPROJECT["project"]["entry-points"][group]
    installed = {point.name: point.value for point in distribution("agentload").entry_points if point.group == group}
    assert installed == wanted, "the installed metadata is old; reinstall: pip install -e '.[local,dev]'"


def test_no_group_of_entry_points_is_forgotten() -> None:
    groups = {point.group for point in distribution("agentload").entry_points} - {"console_scripts"}
    assert groups == set(PYPROJECT["project"]["entry-points"]), "reinstall: pip install -e '.[local,dev]'"


def test_every_log_format_and_command_is_one_line_in_the_project() -> None:
    """A file that nobody offers would never be used."""
    groups = PYPROJECT["project"]["entry-points"]
    wanted = [*groups["agentload.commands"].values(), *groups["agentload.stages"].values()]
    # A stage may be a library that is slow to import: servers.otlp.
    ours = [value for value in wanted if value.startswith("agentload.commands.")]
    modules = {value.partition(":")[0].rpartition(".")[2] for value in ours}
    folder = ROOT / "agentload" / "commands"
    helpers = {
        node.module.removeprefix("agentload.commands.")
        for module in modules
        for node in ast.walk(ast.parse((folder / f"{module}.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("agentload.commands.")
    }
    modules |= helpers
    assert modules == {path.stem for path in (ROOT / "agentload" / "commands").glob("*.py")} - {"__init__"}


def test_every_shipped_corpus_is_found_and_reads() -> None:
    names = corpora.names()
    assert names == sorted(path.stem for path in (ROOT / "corpora").glob("*.toml"))
    assert [corpora.load(name).name for name in names] == names
    assert "tiny" in names


def test_every_shipped_task_is_found_and_reads() -> None:
    names = tasks.names()
    assert names == sorted(path.stem for path in (ROOT / "tasks").glob("*.toml"))
    assert [tasks.load(name).id for name in names] == names


def test_every_corpus_but_the_large_one_has_tasks_of_its_own() -> None:
    for name in corpora.names():
        assert tasks.for_corpus(name) or name == "large", name
    assert tasks.for_corpus(tasks.ANY)


def test_what_the_wheel_ships_is_there() -> None:
    shipped = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped == {"tasks": "agentload/_data/tasks", "corpora": "agentload/_data/corpora"}
    assert all((ROOT / folder).is_dir() for folder in shipped)
