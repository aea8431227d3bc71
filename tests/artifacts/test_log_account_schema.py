"""Do real accounts of logs of each format follow the schema, does it tell wrong ones, and does its page list it?"""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agentload.analysis import account as accounts
from agentload.analysis import logfile
from agentload.artifacts.log_account_schema import KEYS, Key, json_schema
from agentload.core.markers import render
from tests.serverlogs.test_sglang_export import ONE as EXPORTED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "log-account.md").read_text(encoding="utf-8")
LOGS = ROOT / "tests" / "serverlogs"
PATHS = [
    LOGS / "ds4" / "truth_batched6_q128.log",
    LOGS / "ds4" / "equal.log",
    LOGS / "ds4" / "disk.log",
    LOGS / "llamacpp" / "three_agents.log",
    LOGS / "vllm" / "ngram.log",
    LOGS / "vllm" / "compiling.log",
    LOGS / "sglang" / "ranks.log",
    LOGS / "otlp" / "three.jsonl",
]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def account(path: Path, only: str | None = None) -> Any:
    """account.json as it is written."""
    return json.loads(accounts.text(logfile.read_file(path, only=only).found))


def test_each_format_is_among_the_logs(tmp_path: Path) -> None:
    exported = tmp_path / "exported.log"  # no real file is at hand
    exported.write_text(json.dumps(EXPORTED) + "\n", encoding="utf-8")
    found = account(exported)
    assert [error.message for error in VALIDATOR.iter_errors(found)] == []
    formats = {found["log"]["format"], *(account(path)["log"]["format"] for path in PATHS)}
    assert formats == {"ds4", "llamacpp", "vllm", "sglang", "otlp", "sglang-export"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_real_account_follows_the_schema(path: Path) -> None:
    VALIDATOR.check_schema(json_schema())
    assert [error.message for error in VALIDATOR.iter_errors(account(path))] == []


def test_accounts_of_odd_logs_follow_it_too(tmp_path: Path) -> None:
    odd = {
        "empty": b"",
        "nginx": b"GET /\n",
        "begins": render("begin", "s1", "r1", "c", 1) + b"\n" + PATHS[0].read_bytes(),
        "undated": b"20:01:23 ds4-server: listening on http://127.0.0.1:8000\n",
        "no times": re.sub(rb"(?m)^\d+\.\d\d\.\d{3}\.\d{3} [IWED] ", b"", PATHS[3].read_bytes()),
    }
    for name, content in odd.items():
        path = tmp_path / f"{name}.log"
        path.write_bytes(content)
        assert [error.message for error in VALIDATOR.iter_errors(account(path))] == [], name
    assert VALIDATOR.is_valid(account(tmp_path / "begins.log", "s1"))


def test_the_schema_tells_an_account_that_breaks_it() -> None:
    whole = account(PATHS[0])
    for place, value in (
        ("schema", "agentload.account/1"),
        ("only", {"segment": "s1"}),
        ("new", 1),
        ("clock", {**whole["clock"], "log_timeline": "sundial"}),
        ("requests", {**whole["requests"], "total": -1}),
        ("requests", {**whole["requests"], "finish": {"stop": "six"}}),
        ("segments", [{**whole["segments"][0], "whole": {}}]),
        ("doubts", [{"code": "c", "message": None, "advice": ""}]),
    ):
        assert not VALIDATOR.is_valid({**whole, place: value}), place
    assert not VALIDATOR.is_valid({name: value for name, value in whole.items() if name != "listed"})


def test_keys_whose_names_have_a_unit_have_it() -> None:
    endings = {"_ns": "ns", "_tok_s": "tok/s", "offset": "bytes", "_s": "s"}
    for key in KEYS:
        ending = next((end for end in endings if key.path.endswith(end)), None)
        assert ending is None or key.unit == endings[ending], key.path
    assert len({key.path for key in KEYS}) == len(KEYS)


def cells(key: Key) -> list[str]:
    """What the page must say of a key."""
    meaning = key.meaning + (": " + ", ".join(f"`{value}`" for value in key.values) if key.values else "")
    kind = " or ".join(key.kinds)
    return [f"`{key.path}`", kind, key.unit or "-", meaning, key.null or "-", "yes" if key.promised else "no"]


def is_a_column(key: Key) -> bool:
    """Whether it stands in the README, as a column of the table segments."""
    return key.path.startswith("segments[].whole.") and not key.path.endswith("_left_out")


def test_the_page_lists_every_key_but_the_columns_of_segments() -> None:
    assert PAGE.startswith("# account.json of a log: agentload.log-account/1\n")
    listed = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in listed] == [
        cells(key) for key in KEYS if not is_a_column(key)
    ]
    assert "`segments[].whole` has the columns of the table segments" in " ".join(PAGE.split())
