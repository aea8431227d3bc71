"""Is a mistake in a corpus or a task told with its file, its line, what was expected and what there is?"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agentload.agents import corpora, datafiles, tasks
from agentload.errors import InputError, UsageError
from tests.agents.data_files import CORPUS, TASK

Load = Callable[[str, Path], datafiles.DataModel]
KINDS: Final[dict[str, tuple[Load, str]]] = {"corpus": (corpora.load, CORPUS), "task": (tasks.load, TASK)}

each_kind = pytest.mark.parametrize("kind", KINDS)


def refusal(folder: Path, kind: str, content: bytes) -> str:
    """What is said of a file with this content, after its path and a colon."""
    path = folder / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        KINDS[kind][0]("mine", folder)
    text = str(caught.value)
    assert text.startswith(f"{path}:")
    assert "\n" not in text
    return text.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("kind", "old", "new", "told"),
    [
        ("corpus", "0" * 39 + "4", "xyz", "18: import.tree: expected that string should match pattern"),
        ("corpus", 'requirement = "mine==1.0"\n', "", "12: expected a key sdist.requirement, got none"),
        ("corpus", "mine==1.0", "mine>=1.0", "13: sdist.requirement: expected that string should match pattern"),
        ("corpus", "files = 2", "files = 2\nfiels = 3", "21: expected no key import.fiels: it is unknown, got 3"),
        ("corpus", "[import]", "[import", "16: expected TOML, got a mistake: Expected ']' at the end"),
        ("corpus", 'licence = "MIT"', "licence = 7", "4: licence: expected a valid string, got 7"),
        ("corpus", '["src/", "LICENSE"]', '["src/", 5]', "5: include.1: expected a valid string, got 5"),
        ("corpus", "rs_lines = 1\n", 'rs_lines = """', "22: expected TOML, got a mistake: Unterminated string"),
        ("task", "['red']", "['red', '(']", "21: facts.1.patterns: '(' is not a regular expression"),
        ("task", "line = 2", "line = 0", "22: facts.1.evidence.0.line: expected greater than 0, got 0"),
        ("task", 'kind = "trace"', 'kind = "song"', "4: kind: expected 'trace', 'audit' or 'inventory', got 'song'"),
        ("task", "lines = [20, 30]", "lines = [20]", "33: expected a key likely_reads.2.lines.1, got none"),
        ("task", "min_facts = 1", "min_facts = 3", "1: the file: expectations.min_facts is 3, there are 2 facts"),
        ("task", 'id = "two"', 'id = "one"', "1: the file: expected fact ids that differ, there are one, one"),
        ("task", "tool_calls = [2, 5]\n", "", "7: expected a key expectations.tool_calls, got none"),
        ("task", "[expectations]", "[expectation]", "1: expected a key expectations, got none"),
    ],
)
def test_a_mistake_is_told_with_line_expectation_and_value(
    tmp_path: Path, kind: str, old: str, new: str, told: str
) -> None:
    right = KINDS[kind][1]
    assert right.count(old) == 1
    assert refusal(tmp_path, kind, right.replace(old, new).encode()).startswith(told)


@each_kind
def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(tmp_path: Path, kind: str) -> None:
    load, right = KINDS[kind]
    (tmp_path / "mine.toml").write_bytes(right.encode())
    plain = load("mine", tmp_path)
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + right.replace("\n", "\r\n").encode())
    assert load("mine", tmp_path) == plain


@each_kind
def test_another_encoding_is_told_with_the_line_of_its_first_odd_byte(tmp_path: Path, kind: str) -> None:
    right = KINDS[kind][1]
    assert refusal(tmp_path, kind, right.encode("utf-16")) == "1: expected UTF-8, got UTF-16"
    latin = f"# one\n# caf\u00e9\n{right}".encode("latin-1")
    assert refusal(tmp_path, kind, latin) == "2: expected UTF-8, got the byte 0xe9"


@each_kind
def test_a_file_must_be_called_as_what_it_defines(tmp_path: Path, kind: str) -> None:
    key = {"corpus": "name", "task": "id"}[kind]
    renamed = KINDS[kind][1].replace(f'{key} = "mine"', f'{key} = "yours"', 1)
    assert refusal(tmp_path, kind, f"# a remark\n{renamed}".encode()) == (
        f"2: expected {key} = 'mine' as the file is called, got 'yours'"
    )


@each_kind
def test_values_that_nest_too_deep_are_told(tmp_path: Path, kind: str) -> None:
    assert refusal(tmp_path, kind, b"a = " + b"[" * 5000) == "1: expected TOML, its values are nested too deep"


@each_kind
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "mine.toml")
    with pytest.raises(InputError, match=r"mine\.toml: expected a regular file, got something else$"):
        KINDS[kind][0]("mine", tmp_path)


@each_kind
def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(InputError, match=r"mine\.toml: expected a readable file: Is a directory"):
        KINDS[kind][0]("mine", tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("corpus", "standart", "no corpus named 'standart': did you mean standard"),
        ("corpus", "zzz", "no corpus named 'zzz': there is large, standard, tiny"),
        ("task", "zone-lockup", "no task named 'zone-lockup': did you mean zone-lookup"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_ones(kind: str, name: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        KINDS[kind][0](name, datafiles.shipped({"corpus": "corpora", "task": "tasks"}[kind]))
    assert str(caught.value).startswith(told)
