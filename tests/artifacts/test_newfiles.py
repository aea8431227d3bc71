"""Are files put into a folder all together, or not at all?"""

from pathlib import Path

import pytest

from agentload.artifacts.newfiles import new_files
from agentload.errors import ArtifactError

LONG = "a" * 300  # 255 bytes is the most that a name has on Linux and macOS


def test_all_files_come_at_the_end_and_the_hidden_place_goes(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with new_files(folder, ["a", "b"]) as place:
        (place / "a").write_text("1")
        (place / "b").write_text("2")
        assert [path.name for path in folder.iterdir()] == [place.name]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "1", "b": "2"}


def test_when_one_cannot_be_put_there_those_before_it_are_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.raises(ArtifactError, match="cannot be written: No such file"), new_files(folder, ["a", "b"]) as place:
        (place / "a").write_text("1")
    assert not folder.exists()


def test_a_name_that_no_folder_can_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written: File name too long"), new_files(tmp_path / LONG, ["a"]):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_was_in_the_folder_stays_when_nothing_is_put_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("1")

    def interrupted() -> None:
        with new_files(tmp_path, ["a"]) as place:
            (place / "a").write_text("2")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
