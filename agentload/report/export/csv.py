"""How is a table written as CSV? With a header, text in quotes, and nothing at all between commas for null."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from agentload.artifacts.table_schemas import Table


@dataclass(frozen=True, slots=True)
class Csv:
    """A `report.export.Export`."""

    suffix: str = ".csv"

    def write(self, path: Path, rows: pl.DataFrame, table: Table) -> None:
        """Write the rows; an empty text is `""`, null is empty."""
        rows.select(column.name for column in table.columns).write_csv(path, quote_style="non_numeric")


EXPORT: Final = Csv()
