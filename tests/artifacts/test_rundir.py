"""A run directory on a real disk: its manifest is whole at any moment, and every trouble is an error of ours."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agentload.artifacts import rundir, schemas
from agentload.artifacts.jsonlines import read
from agentload.artifacts.rundir import EventLog, Manifest, RunDir
from agentload.errors import ArtifactError, InputError
from tests import bound_by_modes
from tests.confined import UNCOMPILED

COUNTS = ("requests", "failed_requests", "answers", "nudges", "tool_calls")
AGENT: dict[str, Any] = {
    "agent": "a0",
    "task": "t",
    "end": "answered",
    **dict.fromkeys((*COUNTS, "calls_not_run", "failed_calls", "repeated_calls"), 0),
    "growth_tokens": None,
    **{name: [] for name in ("facts_found", "facts", "likely_opened", "likely_missed")},
}


def manifest(**changed: Any) -> Manifest:
    fields: dict[str, Any] = {
        "run": "r",
        "status": "started",
        "scenario": {"agents": 3, "stagger_s": 15.0},
        "server": {"kind": "launch", "argv": ["llama-server", "-ub", "512"]},
        "sandbox": "bubblewrap",
        "corpus": {"name": "tiny", "commit": "c" * 40},
        "agents": [AGENT],
        "segments": [],
        "host": {"cores": 2},
        "versions": {"python": "3.11"},
        "clock": {"anchor_unix_ns": 1_795_958_524_123_456_789},
    }
    return Manifest(**(fields | changed))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return rundir.create(tmp_path / "runs", "night", "2026-11-29T131204Z", "3f2a")


def test_a_run_directory_is_named_by_time_name_and_suffix(tmp_path: Path, run: RunDir) -> None:
    assert run.path == tmp_path / "runs" / "2026-11-29T131204Z-night-3f2a"
    assert run.name == "2026-11-29T131204Z-night-3f2a"
    assert sorted(path.name for path in run.path.iterdir()) == ["agents"]
    assert run.messages_path("a0") == run.path / "agents" / "a0" / "messages.jsonl"


def test_each_file_has_the_place_that_the_documents_promise(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert [
        path.relative_to(tmp_path).as_posix()
        for path in (
            run.manifest_path,
            run.scenario_path,
            run.events_path,
            run.server_log,
            run.server_times,
            run.markers_path,
            run.derived,
        )
    ] == [
        "manifest.json",
        "scenario.toml",
        "events.jsonl",
        "server.log",
        "server.log.times",
        "markers.jsonl",
        "derived",
    ]


@pytest.mark.parametrize("left", [(), ("server.log",)], ids=["as it was made", "without its agents folder"])
def test_a_run_directory_is_never_used_twice(tmp_path: Path, left: tuple[str, ...]) -> None:
    first = rundir.create(tmp_path, "n", "t", "s")
    if left:
        (first.path / "agents").rmdir()
        (first.path / left[0]).write_bytes(b"of an earlier run\n")
    with pytest.raises(ArtifactError, match="t-n-s: run directory cannot be made: File exists"):
        rundir.create(tmp_path, "n", "t", "s")


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-o", "a/b", "../up", "a b", "a\n", "ü", "x" * 65, "nul\x00"], ids=repr
)
def test_a_name_that_is_no_plain_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="expected a run name of letters, digits") as caught:
        rundir.create(tmp_path, name, "t", "s")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 64])
def test_a_plain_name_is_taken(tmp_path: Path, name: str) -> None:
    assert rundir.create(tmp_path, name, "t", "s").path.name == f"t-{name}-s"


def test_a_place_where_nothing_can_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtifactError, match="run directory cannot be made: Not a directory"):
        rundir.create(tmp_path / "file", "n", "t", "s")


def test_a_manifest_is_read_as_it_was_written(run: RunDir) -> None:
    written = manifest(
        status="partial", why="a1 failed", simulated=True, doubts=[{"code": "c", "message": "m ☃", "advice": "a"}]
    )
    run.write_manifest(written)
    assert run.read_manifest() == written
    raw = json.loads(run.manifest_path.read_bytes())
    assert next(iter(raw.items())) == ("schema", "agentload.run/1")
    assert raw["clock"]["anchor_unix_ns"] == 1_795_958_524_123_456_789  # every digit: no float on the way
    assert raw["status"] == "partial"
    assert "schema_" not in raw


def test_a_manifest_is_replaced_and_nothing_is_left_beside_it(run: RunDir) -> None:
    run.write_manifest(manifest())
    run.write_manifest(manifest(status="success"))
    assert run.read_manifest().status == "success"
    assert sorted(path.name for path in run.path.iterdir()) == ["agents", "manifest.json"]


def test_a_reader_sees_the_old_or_the_new_manifest_and_never_half_of_one(run: RunDir) -> None:
    run.write_manifest(manifest(why="0"))
    looked, stop = threading.Event(), threading.Event()
    seen: set[str | None] = set()

    def look() -> None:
        while not stop.is_set():
            seen.add(run.read_manifest().why)
            looked.set()

    reader = threading.Thread(target=look)
    reader.start()
    assert looked.wait(120)
    for number in range(1, 101):
        run.write_manifest(manifest(why=str(number), host={"filler": "x" * 50_000}))
    stop.set()
    reader.join()
    assert seen <= {str(number) for number in range(101)}


KILLED = """
import os, resource, signal, sys
from pathlib import Path
from agentload.artifacts.rundir import write_atomically
from agentload.errors import ArtifactError
path = Path(sys.argv[1])
write_atomically(path, b"old")
# The limit ends the next write in its middle, as a full disk would.
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
if sys.argv[2] == "kill":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    write_atomically(path, b"n" * 100)
except ArtifactError as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_leaves_the_old_file_and_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    done = subprocess.run([*UNCOMPILED, "-c", KILLED, str(path), "report"], capture_output=True, text=True, check=False)
    assert done.stdout == f"ArtifactError {path}: cannot be written: File too large\n", done.stderr
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["manifest.json"]


def test_a_kill_in_mid_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    done = subprocess.run([*UNCOMPILED, "-c", KILLED, str(path), "kill"], capture_output=True, check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert path.read_bytes() == b"old"


def test_a_folder_that_has_become_a_file_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"manifest\.json: cannot be written: Not a directory"):
        rundir.write_atomically(tmp_path / "run" / "manifest.json", b"x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected JSON"),
        (b'{"schema": "agentload.run/1", ', "expected JSON"),
        (b"\xff", "expected JSON"),
        (b"[" * 100_000, "expected values nested at most 60 deep"),
        (b'{"clock": NaN}', "expected numbers that JSON has, got NaN"),
        (b"[]", "expected schema agentload.run/1, got None"),
        (b"{}", "expected schema agentload.run/1, got None"),
        (b'{"schema": "agentload.run/2"}', "expected schema agentload.run/1, got agentload.run/2"),
        (b'{"schema": "agentload.run/1", "run": "r"}', "expected a field status, there is none"),
    ],
)
def test_a_manifest_that_is_none_is_named(run: RunDir, data: bytes, message: str) -> None:
    run.manifest_path.write_bytes(data)
    with pytest.raises(ArtifactError, match=rf"^{run.manifest_path}: {message}"):
        run.read_manifest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "fine"}, "status: expected 'started', .*, got 'fine'"),
        ({"agents": 3}, "agents: expected a valid list, got 3"),
        ({"agents": [3]}, r"agents\.0: expected a valid dictionary, got 3"),
        ({"extra": 1}, "expected no field extra, got 1"),
        ({"agents": [AGENT | {"tool_calls": "5"}]}, r"agents\.0\.tool_calls: expected a valid integer, got '5'"),
        ({"agents": [AGENT | {"requests": -1}]}, r"agents\.0\.requests: expected greater than or equal to 0, got -1"),
        ({"corpus": {"name": "tiny"}}, r"expected a field corpus\.commit, there is none"),
        ({"server": {"kind": "launch", "argv": "x"}}, r"server\.argv: expected a valid list, got 'x'"),
        ({"scenario": {"limits": {"min_tool_calls": None}}}, r"scenario\.limits\.min_tool_calls: expected a valid int"),
        ({"scenario": {"workload": 5}}, r"scenario\.workload: expected 'agents', 'fixed' or 'probe', got 5"),
        ({"scenario": {"probe": [1]}}, r"scenario\.probe: expected .*, got \[1\]"),
        ({"scenario": {"probe": {"at_context": "x"}}}, r"scenario\.probe\.at_context: expected a valid int"),
        ({"doubts": [{"code": "c", "message": "m"}]}, r"expected a field doubts\.0\.advice, there is none"),
    ],
)
def test_a_wrong_value_in_a_manifest_is_named(run: RunDir, change: dict[str, Any], message: str) -> None:
    run.manifest_path.write_text(json.dumps(manifest().dump() | change))
    with pytest.raises(ArtifactError, match=rf"^{run.manifest_path}: {message}"):
        run.read_manifest()


def test_a_missing_manifest_is_named(run: RunDir) -> None:
    with pytest.raises(ArtifactError, match=rf"^{run.manifest_path}: cannot be read: No such file or directory"):
        run.read_manifest()


def test_a_run_directory_is_found_by_its_manifest(run: RunDir, tmp_path: Path) -> None:
    run.write_manifest(manifest())
    assert rundir.find(run.path).path == run.path
    with pytest.raises(InputError, match=rf"there is no {tmp_path / 'none'}$"):
        rundir.find(tmp_path / "none")
    with pytest.raises(InputError, match=rf"\(with manifest\.json\), {tmp_path} is none$"):
        rundir.find(tmp_path)
    with pytest.raises(InputError, match=r"manifest\.json is none$"):
        rundir.find(run.manifest_path)


def test_a_run_that_cannot_be_looked_into_is_an_error_of_ours(run: RunDir) -> None:
    run.write_manifest(manifest())
    run.path.chmod(0)
    program = (
        "import sys; from pathlib import Path; from agentload.artifacts import rundir; rundir.find(Path(sys.argv[1]))"
    )
    words = [*bound_by_modes.prefix(), sys.executable, "-c", program, str(run.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    run.path.chmod(0o755)
    assert done.stderr.endswith(f"InputError: {run.path}: cannot be looked into: Permission denied\n")


def test_events_are_read_back_in_their_order(run: RunDir) -> None:
    log = EventLog(run.events_path)
    log.emit("request_sent", 1_795_958_524_123_456_789, agent="a0", turn=1)
    log.emit("agent_done", 5)
    log.close()
    assert list(read(run.events_path, schemas.EVENTS)) == [
        (2, {"event": "request_sent", "t": 1_795_958_524_123_456_789, "agent": "a0", "turn": 1}),
        (3, {"event": "agent_done", "t": 5}),
    ]


def test_an_agents_conversation_has_a_schema_of_its_own(run: RunDir) -> None:
    path = run.messages_path("a0")
    path.parent.mkdir()
    EventLog(path, schemas.MESSAGES).close()
    assert path.read_bytes() == b'{"schema":"agentload.messages/1"}\n'
    assert [one.name for one in path.parent.iterdir()] == ["messages.jsonl"]


def test_every_schema_is_named_once() -> None:
    values = [value for name, value in vars(schemas).items() if name.isupper()]
    assert len(values) == len(set(values)) >= 9
    assert all(re.fullmatch(r"agentload\.[a-z-]+/[1-9]", value) for value in values)
