"""Does a table that is written in parts hold what a table written whole holds, whatever the parts?"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest

from agentload.artifacts import rowgroups
from agentload.artifacts.rundir import written_atomically
from agentload.errors import ArtifactError
from tests.artifacts.thrift import row_groups

ROWS = 2 * rowgroups.ROWS + 5
TABLE = pl.DataFrame({"n": range(ROWS), "text": [f"row {n % 97}" if n % 5 else None for n in range(ROWS)]})


def cut(sizes: Sequence[int]) -> Iterator[pl.DataFrame]:
    """The table in parts of those sizes, and what is left."""
    at = 0
    for size in sizes:
        yield TABLE[at : at + size]
        at += size
    yield TABLE[at:]


def written(sizes: Sequence[int]) -> bytes:
    file = io.BytesIO()
    rowgroups.write(file, cut(sizes), "agentload.test/1")
    return file.getvalue()


def test_a_table_of_many_rows_stands_in_several_row_groups_and_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(written([1_000] * 30))
    assert row_groups(path.read_bytes()) == [rowgroups.ROWS, rowgroups.ROWS, 5]
    assert pl.read_parquet(path).equals(TABLE)
    assert pl.read_parquet_metadata(path)["schema"] == "agentload.test/1"
    assert rowgroups.rows(path) == ROWS
    parts = list(rowgroups.read(path))
    assert [one.height for one in parts] == [rowgroups.ROWS, rowgroups.ROWS, 5]
    assert pl.concat(parts).equals(TABLE)


def test_the_bytes_depend_on_the_rows_and_not_on_the_parts_they_came_in() -> None:
    whole = io.BytesIO()
    TABLE.write_parquet(
        whole, compression="zstd", metadata={"schema": "agentload.test/1"}, row_group_size=rowgroups.ROWS
    )
    assert written([]) == written([0, 1, 20_000, 0, 7]) == written([4_000] * 8) == whole.getvalue()


def test_a_table_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with path.open("wb") as file:
        rowgroups.write(file, [TABLE[:0]], "agentload.test/1")
    (part,) = rowgroups.read(path)
    assert (part.columns, part.height, rowgroups.rows(path)) == (["n", "text"], 0, 0)
    with pytest.raises(ValueError, match=r"expected the frames of a table \(agentload.test/1\), got none"):
        rowgroups.write(io.BytesIO(), [], "agentload.test/1")


def test_an_error_of_a_part_comes_through_as_it_is() -> None:
    def broken() -> Iterator[pl.DataFrame]:
        yield TABLE
        raise ArtifactError("the second part is damaged")

    with pytest.raises(ArtifactError, match="the second part is damaged"):
        rowgroups.write(io.BytesIO(), broken(), "agentload.test/1")


class Full(io.BytesIO):
    """A disk with room for some bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: object) -> int:
        self._room -= len(bytes(data))  # type: ignore[call-overload]  # anything that has bytes
        if self._room < 0:
            raise OSError(28, "No space left on device")
        return 1


@pytest.mark.parametrize("room", [0, 4, 5_000])
def test_a_full_disk_is_an_os_error_wherever_it_is_met(room: int) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        rowgroups.write(Full(room), cut([]), "agentload.test/1")


def test_a_part_that_cannot_be_made_leaves_the_file_that_was_there_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"old")

    def write() -> None:
        with written_atomically(path) as file:
            file.write(b"new")
            raise ArtifactError("the second part is damaged")

    with pytest.raises(ArtifactError, match="the second part is damaged"):
        write()
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"old"]


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(written([])[:-9])
    with pytest.raises(ArtifactError, match=r"t\.parquet: cannot be read: .*make it anew with `agentload account`"):
        list(rowgroups.read(path))
