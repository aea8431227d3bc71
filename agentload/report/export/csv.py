"""How is a table written as CSV? With a header, text in quotes, and nothing at all between commas for null."""

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import polars as pl

from agentload.artifacts.table_schemas import Table


@dataclass(frozen=True, slots=True)
class Csv:
    """A `report.export.Export`."""

    suffix: str = ".csv"

    def write(self, path: Path, parts: Iterable[pl.DataFrame], table: Table) -> None:
        """Write the rows; an empty text is `""`, null is empty."""
        names = [column.name for column in table.columns]
        with path.open("xb") as file:
            for number, rows in enumerate(parts):
                made = BytesIO()  # polars tells of a full disk in many ways, of which some are no OSError
                rows.select(names).write_csv(made, quote_style="non_numeric", include_header=number == 0)
                file.write(made.getbuffer())


EXPORT: Final = Csv()
