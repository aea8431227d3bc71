"""Does the README list the columns of every table as the schemas have them?"""

from pathlib import Path

import pytest

from agentload.artifacts.table_schemas import PUBLIC, TABLES, Column, Table

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
HEADER = "| column | type | unit | meaning | null when |"


def cells(column: Column) -> list[str]:
    """What the README must say of a column."""
    meaning = column.meaning
    if column.values:
        meaning += ": " + ", ".join(f"`{value}`" for value in column.values)
    if column.formula:
        meaning += f"; *computed*: `{column.formula}`"
    if column.public:
        meaning += "; *public*"
    return [f"`{column.name}`", column.kind, column.unit or "-", meaning, column.null or "-"]


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_readme_lists_every_column_with_its_type_unit_meaning_and_when_it_is_null(table: Table) -> None:
    heading = f"### Table {table.name}: {table.id}\n"
    assert heading in README
    section = README.partition(heading)[2].partition("\n#")[0]
    assert f"A row is {table.row}." in section
    assert HEADER in section
    listed = [line for line in section.splitlines() if line.startswith("| `")]
    assert [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in listed] == [
        cells(column) for column in table.columns
    ]


def test_the_readme_says_how_to_walk_back_what_a_version_promises_and_whose_names_are_public() -> None:
    assert "tail -c +$((end_offset + 1)) server.log | head -n 1" in README
    assert "Within a version a column keeps its name, type, unit and meaning" in README
    assert f"`{PUBLIC}`" in README
