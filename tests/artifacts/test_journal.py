"""Does the journal tell what was done, also after a cut, and is nothing else taken for a cut?"""

import json
import resource
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.artifacts import journal
from agentload.artifacts.journal import Journal, RunDone, Told
from agentload.errors import ArtifactError
from tests.confined import UNCOMPILED

START = {"pid": 7, "version": "0.1.0"}


def done(run: str, status: str = "success", **more: object) -> dict[str, object]:
    return {"run": run, "attempt": 1, "status": status, "why": None, "files": {"server.log": "ab"}, **more}


def write(path: Path, *events: tuple[str, dict[str, object]]) -> Told:
    """Append events, one a ns apart."""
    told = journal.read(path)
    with Journal(path, told) as book:
        for kind, fields in events:
            book.append(kind, len(told.events) + 1, **fields)
    return told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


NIGHT = (
    ("experiment_started", START),
    ("run_started", {"run": "01-A", "attempt": 1}),
    ("run_done", done("01-A")),
    ("run_started", {"run": "02-B", "attempt": 1}),
)


def test_where_there_is_no_journal_nothing_has_happened(path: Path) -> None:
    told = journal.read(path)
    assert (told.events, told.torn, told.run("01-A").attempts, told.version) == ([], [], 0, None)


def test_what_was_appended_is_read_and_summed_up(path: Path) -> None:
    written = write(path, *NIGHT)
    told = journal.read(path)
    assert told == written
    assert told.version == "0.1.0"
    assert [(name, one.attempts, one.started_ns, one.done is not None) for name, one in told.runs.items()] == [
        ("01-A", 1, 2, True),
        ("02-B", 1, 4, False),
    ]
    assert told.durations_ns == {"01-A": 1}
    assert json.loads(path.read_text().splitlines()[0]) == {"schema": "agentload.journal/1"}
    assert not path.with_name(".reserve").exists()


def test_a_run_that_was_set_aside_or_begun_again_is_not_done(path: Path) -> None:
    write(path, *NIGHT, ("run_set_aside", {"run": "01-A", "to": "01-A.1", "why": "it was changed"}))
    told = journal.read(path)
    assert (told.run("01-A").done, told.run("01-A").attempts, told.durations_ns) == (None, 1, {})
    write(path, ("run_done", done("02-B", "error")), ("run_started", {"run": "02-B", "attempt": 2}))
    told = journal.read(path)
    assert (told.run("02-B").done, told.run("02-B").attempts, told.durations_ns) == (None, 2, {})


def test_the_last_line_cut_at_any_byte_is_read_over_and_stays_in_the_file(path: Path) -> None:
    write(path, *NIGHT)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        told = journal.read(path)
        assert (len(told.events), told.torn) == (3, [5])
        write(path, ("resumed", {**START, "torn": told.torn}))
        assert path.read_bytes().startswith(whole[:end] + b"\n{")
        told = journal.read(path)
        assert ([one.event for one in told.events][2:], told.torn) == (["run_done", "resumed"], [5])


def test_a_last_line_without_its_newline_alone_is_whole(path: Path) -> None:
    write(path, *NIGHT)
    path.write_bytes(path.read_bytes()[:-1])
    told = journal.read(path)
    assert (len(told.events), told.torn) == (4, [])
    write(path, ("resumed", START))
    assert [one.event for one in journal.read(path).events[3:]] == ["run_started", "resumed"]


def test_a_cut_in_the_very_first_line_is_no_journal_yet(path: Path) -> None:
    write(path, *NIGHT[:1])
    first = path.read_bytes().splitlines(keepends=True)[0]
    for end in range(len(first)):
        path.write_bytes(first[:end])
        assert journal.read(path) == Told()
        assert write(path, *NIGHT[:1]) == journal.read(path)
        assert path.read_bytes().startswith(first)


def test_zeros_that_a_power_cut_left_are_a_cut_line(path: Path) -> None:
    write(path, *NIGHT)
    path.write_bytes(path.read_bytes() + bytes(300))
    assert journal.read(path).torn == [6]
    write(path, ("resumed", START))
    assert journal.read(path).events[-1].event == "resumed"


@pytest.mark.parametrize(
    ("number", "line", "said"),
    [
        (1, '{"schema":"agentload.events/1"}', 'expected {"schema":"agentload.journal/1"}, got'),
        (3, '{"event":"run_st', "expected JSON, got"),
        (3, '{"event":"run_begun","t":2}', "expected one of 'experiment_started', 'resumed'"),
        (3, '{"event":"run_started","t":2,"run":"01-A"}', "expected a field run_started.attempt, there is none"),
        (3, '{"event":"run_started","t":-2,"run":"01-A","attempt":1}', "expected greater than or equal to 0, got -2"),
        (4, '{"event":"run_done","t":2,"run":"01-A","attempt":1,"status":"fine","why":null,"files":{}}', "got 'fine'"),
    ],
)
def test_damage_that_is_no_cut_is_one_error_that_names_the_line(path: Path, number: int, line: str, said: str) -> None:
    write(path, *NIGHT)
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ArtifactError) as caught:
        journal.read(path)
    assert str(caught.value).startswith(f"{path}:{number}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


FULL = """
import resource, sys
from pathlib import Path
from agentload.artifacts import journal
from agentload.errors import ArtifactError
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
told = journal.read(path)
with journal.Journal(path, told) as book:
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, resource.RLIM_INFINITY))
    try:
        book.append("stopped", 9, why="x" * 200)
    except ArtifactError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    book.append("stopped", 10, why="full")
"""


def test_what_finds_no_room_leaves_no_half_line_and_the_next_one_is_whole(path: Path) -> None:
    write(path, *NIGHT)
    run = subprocess.run([*UNCOMPILED, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"{path}: cannot be written: ")
    told = journal.read(path)
    assert (told.torn, told.events[-1]) == ([], journal.Stopped(event="stopped", t=10, why="full"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != path.stat().st_size + 50  # the limit was the child's


def test_the_reserve_is_there_while_the_journal_is_open_and_given_back_when_it_is_needed(path: Path) -> None:
    with Journal(path, journal.read(path)) as book:
        reserve = path.with_name(".reserve")
        assert reserve.stat().st_size == 65_536
        book.use_reserve()
        assert not reserve.exists()


@given(why=st.text(), paths=st.dictionaries(st.text(), st.text(alphabet="0123456789abcdef"), max_size=3))
def test_any_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, why: str, paths: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("any") / "journal.jsonl"
    write(path, NIGHT[0], ("run_done", {**done("01-A", "error"), "why": why, "files": paths}))
    (event,) = journal.read(path).events[1:]
    assert isinstance(event, RunDone)
    assert (event.why, event.files) == (why, paths)
