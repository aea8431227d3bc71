"""How is a table of any number of rows written as one Parquet file, and read again, a few thousand rows at a time?

Polars' own streaming sink takes the frames as they are made and writes a row group whenever it has `ROWS` rows: what
stands in the file depends on the rows alone, not on how they came.
"""

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, cast

import polars as pl
from polars.io.plugins import register_io_source

from agentload.errors import ArtifactError

ROWS: Final = 16_384  # of a row group: 9 MB of the widest table, requests; the sink holds a few of them


class _Told(io.RawIOBase):
    """A file that keeps the error of a write: polars tells of a full disk in many ways, some of them no OSError."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise


def write(file: IO[bytes], frames: Iterable[pl.DataFrame], schema: str) -> None:
    """Write frames of the same columns, one or more, as one table; the same bytes for the same rows.

    `schema` is the table's id, which the file's metadata have.

    Raises:
        OSError: the disk is full.
        ValueError: there is no frame, which would tell the columns.
        Exception: whatever making the frames raised.
    """
    made = iter(frames)
    first = next(made, None)
    if first is None:
        raise ValueError(f"expected the frames of a table ({schema}), got none, not even one without rows")

    def source(columns: list[str] | None, *_: object) -> Iterator[pl.DataFrame]:
        for frame in chain((first,), made):
            yield frame if columns is None else frame.select(columns)

    told = _Told(file)
    try:
        register_io_source(source, schema=first.schema).sink_parquet(
            cast("IO[bytes]", told),
            compression="zstd",
            statistics=True,
            metadata={"schema": schema},
            row_group_size=ROWS,
        )
    except pl.exceptions.PolarsError as error:
        raise told.error or error from error


def rows(path: Path) -> int:
    """Return how many rows a table has.

    Raises:
        ArtifactError: it cannot be read.
    """
    return int(_collected(path, pl.scan_parquet(path).select(pl.len())).item())


def read(path: Path) -> Iterator[pl.DataFrame]:
    """Yield a table's rows in their order, `ROWS` at a time; of a table without rows one frame that has its columns.

    Raises:
        ArtifactError: it cannot be read.
    """
    for at in range(0, max(rows(path), 1), ROWS):
        yield _collected(path, pl.scan_parquet(path).slice(at, ROWS))


def _collected(path: Path, query: pl.LazyFrame) -> pl.DataFrame:
    try:
        return query.collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ArtifactError(f"{path}: cannot be read: {error}; make it anew with `agentload account`") from error
