"""How is a table written as JSON Lines? One object a row, every column in it, null where a source did not say."""

from collections.abc import Iterable
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

    def write(self, path: Path, parts: Iterable[pl.DataFrame], table: Table) -> None:
        """Write one JSON object a row."""
        names = [column.name for column in table.columns]
        with path.open("xb") as file:
            for rows in parts:
                for row in rows.select(names).iter_rows(named=True):
                    file.write((dumps(row) + "\n").encode())


EXPORT: Final = JsonLines()
