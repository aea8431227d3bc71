"""Does docs/doubts.md list every code that the program can say, and none that it cannot?

Codes are read from the source: the first argument of what makes a doubt, or hears of one.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentload.analysis import validity

ROOT = Path(__file__).resolve().parents[1]
LISTED = re.findall(r"(?m)^\| `([a-z-]+)` \| (.+) \| (.+) \|$", (ROOT / "docs" / "doubts.md").read_text("utf-8"))
# Calls that are given a code: of all but `Doubt` it may stand behind what it is about.
SAYING = {"Doubt": 0, "_say": 0, "say": 0, "add": 0, "_torn": 0, "_told": 1}
# Where the code is no literal, those that it can be: by the file's name and the expression.
WORKED_OUT = {
    ("sections.py", "f'setting-{one.verdict.value}'"): ("setting-mismatch", "setting-duplicate"),
    ("validity.py", "f'run-{status}'"): ("run-error", "run-cancelled", "run-invalid"),
    ("validity.py", "_SAID[one.verdict]"): ("setting-mismatch", "setting-duplicate", "setting-unreadable"),
    ("validity.py", "code"): ("simulated-mixed", "corpus-changed", "agentload-changed"),
    ("validity.py", "f'{what}-changed'"): ("binary-changed", "script-changed", "model-changed"),
    ("compare.py", "code"): (),  # those of the runs' accounts
    ("evidence.py", "code"): (),  # given to `_torn`
    ("probe_doubts.py", "code"): (),  # given to `_told`
    ("doubts.py", "code"): (),  # given to `add`
}
CALLS = [
    (path.name, [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)])
    for path in sorted((ROOT / "agentload").rglob("*.py"))
]


def sayings(names: Mapping[str, int] = SAYING) -> Iterator[tuple[str, ast.expr]]:
    """Each file's name with what stands where a code is given."""
    for file, calls in CALLS:
        for node in calls:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            at = names.get(name)
            if at is not None and len(node.args) > max(at, 0 if name in ("Doubt", "_torn") else 2):
                yield file, node.args[at]


def said() -> set[str]:
    codes = {str(given.value) for _, given in sayings({"Doubt": 0}) if isinstance(given, ast.Constant)}
    for file, given in sayings():
        if isinstance(given, ast.Constant) and isinstance(given.value, str) and "-" in given.value:
            codes.add(given.value)
        codes.update(WORKED_OUT.get((file, ast.unparse(given)), ()))
    return codes


def test_every_code_is_listed_once_and_none_that_nothing_says() -> None:
    codes = [code for code, _, _ in LISTED]
    assert sorted(codes) == sorted(said())
    assert len(said()) > 100  # what finds them is at work


def test_each_has_a_meaning_and_what_to_do() -> None:
    assert all(len(meaning) > 10 and todo.strip() for _, meaning, todo in LISTED)


def test_a_code_that_is_no_literal_is_known_here() -> None:
    """Else a new one could stay out of the list."""
    unknown = [
        (file, ast.unparse(given))
        for file, given in sayings({"Doubt": 0, "_say": 0})
        if not isinstance(given, ast.Constant) and (file, ast.unparse(given)) not in WORKED_OUT
    ]
    assert unknown == []


def test_what_is_worked_out_is_what_the_source_can_give() -> None:
    assert set(WORKED_OUT["validity.py", "_SAID[one.verdict]"]) == set(validity._SAID.values())
    assert set(WORKED_OUT["validity.py", "code"]) == {one[0] for one in validity._EQUAL}
