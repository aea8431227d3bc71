"""Whatever is wrong with one value of one line: is it one line that names file and place, or a whole account?"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentload.analysis import account as accounts
from agentload.artifacts.rundir import RunDir
from agentload.core import markers
from agentload.errors import AgentloadError, ArtifactError
from agentload.report import terminal
from tests.analysis.test_account import AGENT, MS, answered, make, mark
from tests.analysis.test_evidence import FAILED, SAMPLE, done, events

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 2**63, -(2**70), 1.5, math.nan, math.inf, 1e308),
    *("", "x", "1", "\ud83d", "\x1b[2J", "request_done", "x" * 5000),
    *([], {}, [[1]], {"a": [1]}, [None], ["x"]),
)
FILES: Final = ("events.jsonl", "markers.jsonl", "manifest.json", "agents/a0/messages.jsonl", "derived/account.json")


def small(folder: Path) -> RunDir:
    """A run with an event of each kind, a log, and its derived/."""
    run = make(folder, agents=({**AGENT, "growth_tokens": 5, "paths_read": ["x.rs"]},))
    tool = {"agent": "a0", "turn": 0, "call": "c1", "tool": "bash"}
    who = {"request": "a0-r3", "agent": "a0", "turn": 3}
    first, last = ({**SAMPLE, "where": where} for where in ("begin", "end"))
    events(
        run,
        ("server_started", 1, {"pid": 7, "argv": ["llama-server", "-c", "64"]}),
        ("server_ready", 2, {"pid": 7}),
        ("marker_written", 3, {"action": "begin", "segment": "s1", "where": "log"}),
        ("sample", 4, first),
        ("agent_started", 57, {"agent": "a0", "task": "t", "planned": 50}),
        ("request_sent", 100 * MS, who),
        ("first_byte", 110 * MS, who),
        ("first_token", 600 * MS, who),
        answered(),
        ("tool_started", 1200 * MS, tool),
        ("tool_done", 1300 * MS, {**tool, "ok": True, "text_bytes": 5, "truncated": False, "detail": {"exit": 0}}),
        done(FAILED),
        ("agent_done", 1900 * MS, {"agent": "a0", "end": "answered"}),
        ("sample", 1950 * MS, last),
        ("server_stopped", 1960 * MS, {"pid": 7, "exit_code": 0}),
    )
    mark(run, ("begin", 0), ("end", 2000 * MS))
    marks = (markers.render(action, "s1", run.name, "c", at) for action, at in (("begin", 0), ("end", 2000 * MS)))
    run.server_log.write_bytes(b"hello\n" + b"\n".join(marks) + b"\n")
    run.server_times.write_text("1\n2\n3\n")
    messages = run.messages_path("a0")
    messages.parent.mkdir()
    messages.write_text('{"schema":"agentload.messages/1"}\n{"event":"message","t":5,"number":1}\n')
    accounts.account(run.path)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return small(tmp_path_factory.mktemp("damage"))


@pytest.fixture(scope="module")
def snapshot(run: RunDir) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in FILES}


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value inside `value`, itself left out."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*here, name)
        yield from places(part, (*here, name))


def damaged(value: Any, place: tuple[Any, ...], new: Any, *, how: str) -> Any:
    value = json.loads(json.dumps(value))
    *way, last = place
    inner = value
    for step in way:
        inner = inner[step]
    if how == "drop":
        del inner[last]
    elif how == "add" and isinstance(inner, dict):
        inner["unheard_of"] = new
    else:
        inner[last] = new
    return value


def shown(run: RunDir, *, load: bool) -> str | None:
    """What the commands say of the run; None when they show its account."""
    try:
        found = accounts.load(run.path) if load else accounts.account(run.path)
    except AgentloadError as error:
        return str(error)
    for text in (terminal.render(found), accounts.text(found)):
        assert text.encode()
        assert "\x1b" not in text
    return None


@pytest.mark.parametrize("name", ["", "x"])
def test_a_name_that_no_marker_has_is_the_manifests_fault_and_not_that_of_the_markers(
    run: RunDir, snapshot: dict[str, bytes], name: str
) -> None:
    path = run.path / "manifest.json"
    try:
        path.write_bytes(json.dumps(json.loads(snapshot["manifest.json"]) | {"run": name}).encode())
        said = shown(run, load=False)
    finally:
        path.write_bytes(snapshot["manifest.json"])
    assert said is not None
    assert said.startswith(f"{path}: run: expected ")


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_wrong_value_is_one_line_that_names_its_file(
    run: RunDir, snapshot: dict[str, bytes], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(FILES))
    path = run.path / name
    whole = snapshot[name]
    path.write_bytes(whole)  # an account of a damaged run may have been made since
    lines = whole.splitlines(keepends=True) if name.endswith(".jsonl") else [whole]
    number = data.draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[number])
    place = data.draw(st.sampled_from(list(places(value))))
    how = data.draw(st.sampled_from(["replace", "replace", "drop", "add"]))
    lines[number] = json.dumps(damaged(value, place, data.draw(st.sampled_from(VALUES)), how=how)).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    try:
        said = shown(run, load=name.startswith("derived"))
    finally:
        path.write_bytes(whole)
    if said is not None:
        assert len(said.splitlines()) == 1
        line = f":{number + 1}" if name.endswith(".jsonl") else ""
        # A duplicate is found at the later of two lines.
        assert re.match(rf"{re.escape(str(path))}(:\d+|{line}): (.*: )?expected ", said) or "64 bits" in said
    assert [one.name for one in run.path.iterdir() if one.name.startswith(".")] == []
    assert run.derived.is_dir()


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("events.jsonl", '{"event":"nap","t":1}', r"events\.jsonl:17: event: expected one of .*, got 'nap'"),
        ("events.jsonl", "[" * 100_000, r"events\.jsonl:17: expected values nested at most 60 deep"),
        ("events.jsonl", '{"event":"tool_done"}', r"events\.jsonl:17: expected a field tool_done\.t, there is none"),
        ("events.jsonl", "nonsense", r"events\.jsonl:17: expected JSON, got b'nonsense': .*"),
        (
            "markers.jsonl",
            '{"action":"end","segment":"s","run":"r","condition":"c","t":-5}',
            r"markers\.jsonl:4: t: expected .* equal to 0, got -5",
        ),
        ("server.log.times", "-5", r"server\.log\.times:4: expected one integer \(Unix ns\), .*, got b'-5'"),
        ("server.log.times", "2", r"server\.log\.times:4: expected .* not before the 3 of the line above, got b'2'"),
        ("server.log.times", "1_0", r"server\.log\.times:4: expected one integer .* got b'1_0'"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_the_tables_stay(name: str, line: str, said: str, tmp_path: Path) -> None:
    run = small(tmp_path)
    with (run.path / name).open("a") as file:
        file.write(line + "\n")
    before = {one.name: one.read_bytes() for one in run.derived.iterdir()}
    with pytest.raises(ArtifactError) as caught:
        accounts.account(run.path)
    assert re.fullmatch(rf"{re.escape(str(run.path))}/{said}", str(caught.value))
    assert {one.name: one.read_bytes() for one in run.derived.iterdir()} == before


def test_the_program_says_it_in_one_line_and_exits_with_2(tmp_path: Path) -> None:
    run = small(tmp_path)
    with run.events_path.open("a") as file:
        file.write('{"event":"nap","t":1}\n')
    words = [sys.executable, "-c", "from agentload.cli import main; main()", "account", str(run.path)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"agentload: .*/events\.jsonl:17: event: expected one of .*, got 'nap'\n", ended.stderr)
