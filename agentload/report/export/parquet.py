"""How is a table written as Parquet? Its schema's id stands in the file's metadata, under `schema`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from agentload.artifacts import rowgroups
from agentload.artifacts.table_schemas import Table


@dataclass(frozen=True, slots=True)
class Parquet:
    """A `report.export.Export`."""

    suffix: str = ".parquet"

    def write(self, path: Path, parts: Iterable[pl.DataFrame], table: Table) -> None:
        """Write the rows; the same bytes for the same rows."""
        with path.open("xb") as file:
            rowgroups.write(file, parts, table.id)


EXPORT: Final = Parquet()
