"""Append-only files: what is kept through a kill, and what a reader says of a file that is not whole."""

import json
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.artifacts.jsonlines import JsonLinesWriter, dumps, is_torn, lines, read
from agentload.errors import ArtifactError
from tests.confined import UNCOMPILED

SCHEMA = "agentload.test/1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def write(path: Path, *lines: bytes) -> None:
    path.write_bytes(b'{"schema":"agentload.test/1"}\n' + b"".join(lines))


def test_the_first_line_names_the_schema_and_each_object_is_one_line(path: Path) -> None:
    with JsonLinesWriter(path, SCHEMA) as writer:
        writer.append({"b": 1, "a": "x\ny"})
        writer.append({"text": "größer ☃"})
    assert path.read_bytes() == (
        b'{"schema":"agentload.test/1"}\n{"b":1,"a":"x\\ny"}\n' + '{"text":"größer ☃"}\n'.encode()
    )
    assert list(read(path, SCHEMA)) == [(2, {"b": 1, "a": "x\ny"}), (3, {"text": "größer ☃"})]


def test_a_line_is_in_the_file_before_append_returns(path: Path) -> None:
    with JsonLinesWriter(path, SCHEMA) as writer:
        for number in range(3):
            writer.append({"n": number})
            assert [value["n"] for _, value in read(path, SCHEMA)] == list(range(number + 1))


KILLED = """
import os, signal, sys
from pathlib import Path
from agentload.artifacts.jsonlines import JsonLinesWriter
writer = JsonLinesWriter(Path(sys.argv[1]), "agentload.test/1")
for number in range(1000):
    writer.append({"n": number})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_no_line_that_was_appended(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [value["n"] for _, value in read(path, SCHEMA)] == list(range(1000))


def test_lines_of_several_threads_are_whole(path: Path) -> None:
    with JsonLinesWriter(path, SCHEMA) as writer:

        def append(name: int) -> None:
            for number in range(500):
                writer.append({"thread": name, "n": number, "text": "x" * number})

        threads = [threading.Thread(target=append, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: dict[int, list[int]] = {name: [] for name in range(4)}
    for _, value in read(path, SCHEMA):
        assert value["text"] == "x" * value["n"]
        found[value["thread"]].append(value["n"])
    assert found == {name: list(range(500)) for name in range(4)}


def test_a_torn_last_line_is_left_out(path: Path) -> None:
    write(path, b'{"n":1}\n', b'{"n":2')
    assert list(read(path, SCHEMA)) == [(2, {"n": 1})]


def test_a_last_line_without_newline_is_torn_even_when_it_is_json(path: Path) -> None:
    write(path, b'{"n":1}\n', b'{"n":2}')  # {"n":2} may have been the start of {"n":2}... no more than that is known
    assert list(read(path, SCHEMA)) == [(2, {"n": 1})]


@pytest.mark.parametrize(
    "bad", [b"", b'{"n":', b"{'n': 1}", b"\xff\xfe", b"[1]", b"1", b"null", b'{"n":1}{"n":2}'], ids=repr
)
def test_a_bad_line_in_the_middle_names_file_and_line(path: Path, bad: bytes) -> None:
    write(path, b'{"n":1}\n', bad + b"\n", b'{"n":3}\n')
    with pytest.raises(ArtifactError, match=rf"^{path}:3: expected (one|a) JSON object, got ") as caught:
        list(read(path, SCHEMA))
    assert len(str(caught.value).splitlines()) == 1


def test_lines_are_given_as_they_stand_once_the_schema_is_right(path: Path) -> None:
    write(path, b'{"n":1}\n', b"nonsense\n", b"\n", b'{"n"')
    assert list(lines(path, SCHEMA)) == [(2, b'{"n":1}'), (3, b"nonsense"), (4, b"")]
    with pytest.raises(ArtifactError, match=r":1: expected schema other/1, got 'agentload\.test/1'$"):
        list(lines(path, "other/1"))


@pytest.mark.parametrize(
    "first", [b"[" * 100_000, b'{"schema":[["x"]]}', b'{"schema":7}'], ids=["deep", "list", "number"]
)
def test_a_schema_line_that_is_none_is_one_short_line(path: Path, first: bytes) -> None:
    path.write_bytes(first + b"\n")
    with pytest.raises(ArtifactError, match=r":1: expected ") as caught:
        list(read(path, SCHEMA))
    assert len(str(caught.value)) < 300 + len(str(path))


def test_another_schema_is_named(path: Path) -> None:
    path.write_bytes(b'{"schema":"agentload.test/2"}\n{"n":1}\n')
    with pytest.raises(ArtifactError, match=r":1: expected schema agentload.test/1, got 'agentload.test/2'"):
        list(read(path, SCHEMA))


def test_a_file_without_schema_line_is_refused(path: Path) -> None:
    path.write_bytes(b'{"n":1}\n')
    with pytest.raises(ArtifactError, match=r":1: expected schema agentload.test/1, got None"):
        list(read(path, SCHEMA))


@pytest.mark.parametrize("data", [b"", b'{"schema":"agentload.te'])
def test_an_empty_file_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"expected a first line with schema agentload\.test/1"):
        list(read(path, SCHEMA))


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(ArtifactError, match=rf"^{path}: cannot be read: No such file or directory$"):
        list(read(path, SCHEMA))


def test_a_file_that_is_there_is_not_written_over(path: Path) -> None:
    path.write_bytes(b"raw\n")
    with pytest.raises(ArtifactError, match=rf"^{path}: cannot be created: File exists$"):
        JsonLinesWriter(path, SCHEMA)
    assert path.read_bytes() == b"raw\n"


def test_a_folder_that_is_missing_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be created: No such file or directory"):
        JsonLinesWriter(tmp_path / "none" / "events.jsonl", SCHEMA)


def test_a_closed_file_takes_nothing_and_may_be_closed_again(path: Path) -> None:
    writer = JsonLinesWriter(path, SCHEMA)
    writer.close()
    writer.close()
    with pytest.raises(ArtifactError, match="cannot be written: Bad file descriptor"):
        writer.append({"n": 1})
    assert list(read(path, SCHEMA)) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from agentload.artifacts.jsonlines import JsonLinesWriter
from agentload.errors import ArtifactError
writer = JsonLinesWriter(Path("events.jsonl"), "agentload.test/1")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for number in range(1000):
        writer.append({"n": number})
except ArtifactError as error:
    print(number, error)
"""


def test_a_full_disk_is_an_error_of_ours_and_the_rest_can_be_read(path: Path) -> None:
    done = subprocess.run([*UNCOMPILED, "-c", FULL_DISK], cwd=path.parent, capture_output=True, text=True, check=False)
    number, _, message = done.stdout.strip().partition(" ")
    assert message == "events.jsonl: cannot be written: File too large", done.stderr
    assert path.stat().st_size == 1000
    assert [value["n"] for _, value in read(path, SCHEMA)] == list(range(int(number)))


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps({"n": float("nan")})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)  # each example makes a file
@given(st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), max_size=5))
def test_what_was_written_is_read(values: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        with JsonLinesWriter(path, SCHEMA) as writer:
            for value in values:
                writer.append(value)
        assert [value for _, value in read(path, SCHEMA)] == values
        assert len(path.read_bytes().split(b"\n")) == len(values) + 2


def test_half_of_a_surrogate_pair_is_kept(path: Path) -> None:
    """A model's answer, cut between two JSON escapes, can hold one."""
    answer = json.loads(r'"\ud83d"')
    with JsonLinesWriter(path, SCHEMA) as writer:
        writer.append({"text": answer})
    assert list(read(path, SCHEMA)) == [(2, {"text": answer})]
    # As JSON's own escape: the file stays UTF-8 for every other reader.
    assert path.read_bytes().endswith(b'{"text":"\\ud83d"}\n')


@pytest.mark.parametrize(("end", "torn"), [(b"\n", False), (b'\n{"event":', True)])
def test_a_file_that_was_cut_off_is_told_from_a_whole_one(tmp_path: Path, end: bytes, torn: bool) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"schema":"s/1"}' + end)
    assert is_torn(path) is torn
