"""How is a table written as JSON Lines? One object a row, every column in it, null where a source did not say."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from agentload.artifacts.jsonlines import dumps
from agentload.artifacts.table_schemas import Table


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A `report.export.Export`."""

    suffix: str = ".jsonl"

    def write(self, path: Path, rows: pl.DataFrame, table: Table) -> None:
        """Write one JSON object a row."""
        with path.open("xb") as file:
            for row in rows.select(column.name for column in table.columns).iter_rows(named=True):
                file.write((dumps(row) + "\n").encode())


EXPORT: Final = JsonLines()
