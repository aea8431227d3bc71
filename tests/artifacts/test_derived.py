"""Is there a whole folder at any moment, whoever fails, dies or does the same at once?"""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentload.artifacts.derived import replacing
from agentload.errors import ArtifactError
from tests import bound_by_modes


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "run" / "derived"


def fill(folder: Path, text: str) -> None:
    for name in ("a", "b"):
        (folder / name).write_text(text)


def content(folder: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in folder.iterdir()}


def beside(target: Path) -> list[str]:
    return sorted(one.name for one in target.parent.iterdir())


def test_a_new_folder_takes_the_place_of_the_old_one_and_nothing_is_left_beside_it(target: Path) -> None:
    target.mkdir(parents=True)
    (target / "stale").write_text("x")
    with replacing(target) as made:
        assert content(made) == {}
        fill(made, "new")
        assert content(target) == {"stale": "x"}  # until the new one is whole
    assert content(target) == {"a": "new", "b": "new"}
    assert beside(target) == ["derived"]


def test_a_failure_leaves_the_old_folder_and_nothing_beside_it(target: Path) -> None:
    target.mkdir(parents=True)
    fill(target, "old")

    def fail() -> None:
        with replacing(target) as made:
            fill(made, "half")
            raise ArtifactError("the disk is full")

    with pytest.raises(ArtifactError, match="the disk is full"):
        fail()
    assert content(target) == {"a": "old", "b": "old"}
    assert beside(target) == ["derived"]


@pytest.mark.parametrize("kind", ["a file", "a link", "a link to nothing"])
def test_what_stands_in_the_place_and_is_no_folder_gives_way(target: Path, kind: str) -> None:
    target.parent.mkdir()
    elsewhere = target.parent.parent / "elsewhere"
    if kind == "a file":
        target.write_text("x")
    else:
        target.symlink_to(elsewhere)
    if kind == "a link":
        elsewhere.mkdir()
        (elsewhere / "kept").write_text("x")
    with replacing(target) as made:
        fill(made, "new")
    assert not target.is_symlink()
    assert content(target) == {"a": "new", "b": "new"}
    assert beside(target) == ["derived"]
    assert not elsewhere.exists() or content(elsewhere) == {"kept": "x"}


KILLED = """
import os, signal, sys
from pathlib import Path
from agentload.artifacts.derived import replacing
with replacing(Path(sys.argv[1])) as made:
    (made / "a").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_the_old_folder_and_the_next_one_sweeps_up(target: Path) -> None:
    target.mkdir(parents=True)
    fill(target, "old")
    (target.parent / ".derived.notes").mkdir()  # not ours
    done = subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(target) == {"a": "old", "b": "old"}
    (target.parent / ".derived.tmp").mkdir()  # an earlier version's
    (target.parent / ".derived.1-0.old").mkdir()  # of a death between the two renames
    assert len(beside(target)) == 5
    with replacing(target) as made:
        fill(made, "new")
    assert content(target) == {"a": "new", "b": "new"}
    assert beside(target) == [".derived.notes", "derived"]


def test_a_folder_that_somebody_is_making_is_not_swept_up(target: Path) -> None:
    target.parent.mkdir()
    with replacing(target) as first:
        fill(first, "first")
        with replacing(target) as second:
            fill(second, "second")
        assert content(target) == {"a": "second", "b": "second"}
        assert content(first) == {"a": "first", "b": "first"}
    assert content(target) == {"a": "first", "b": "first"}
    assert beside(target) == ["derived"]


def test_many_at_once_leave_one_whole_folder(target: Path) -> None:
    target.parent.mkdir()
    failures: list[ArtifactError] = []

    def work(name: str) -> None:
        try:
            for _ in range(20):
                with replacing(target) as made:
                    fill(made, name)
        except ArtifactError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = content(target)
    assert found["a"] == found["b"]
    assert beside(target) == ["derived"]


def test_a_folder_above_that_is_missing_is_an_error_of_ours(target: Path) -> None:
    with (
        pytest.raises(ArtifactError, match=rf"^{target}: cannot be made: there is no {target.parent}$"),
        replacing(target),
    ):
        pass


BOUND = """
import sys
from pathlib import Path
from agentload.artifacts.derived import replacing
from agentload.errors import ArtifactError
try:
    with replacing(Path(sys.argv[1])) as made:
        (made / "a").write_text("new")
except ArtifactError as error:
    print(error)
"""


def bound(target: Path) -> str:
    done = subprocess.run(
        [*bound_by_modes.prefix(), sys.executable, "-c", BOUND, str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_a_folder_above_that_cannot_be_written_is_named_with_what_to_do(target: Path) -> None:
    target.mkdir(parents=True)
    fill(target, "old")
    target.parent.chmod(0o555)
    said = bound(target)
    target.parent.chmod(0o755)
    above = target.parent
    assert said == f"{target}: cannot be made: Permission denied; make {above} writable, or copy it and use the copy\n"
    assert content(target) == {"a": "old", "b": "old"}
    assert beside(target) == ["derived"]


def test_an_old_folder_that_cannot_be_looked_into_is_replaced(target: Path) -> None:
    target.mkdir(parents=True)
    fill(target, "old")
    target.chmod(0)
    assert bound(target) == ""
    assert target.stat().st_mode & 0o700 == 0o700
    assert content(target) == {"a": "new"}
    assert beside(target) == ["derived"]
