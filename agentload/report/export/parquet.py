"""How is a table written as Parquet? Its schema's id stands in the file's metadata, under `schema`."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import polars as pl

from agentload.artifacts.table_schemas import Table


@dataclass(frozen=True, slots=True)
class Parquet:
    """A `report.export.Export`."""

    suffix: str = ".parquet"

    def write(self, path: Path, rows: pl.DataFrame, table: Table) -> None:
        """Write the rows; the same bytes for the same rows."""
        made = BytesIO()  # polars tells of a full disk in many ways, of which some are no OSError
        rows.write_parquet(made, compression="zstd", statistics=True, metadata={"schema": table.id})
        path.write_bytes(made.getbuffer())


EXPORT: Final = Parquet()
