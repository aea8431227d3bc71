"""Does the README list every key of a scenario file, and the limits' defaults as they are?"""

from pathlib import Path

import pytest

from agentload.run.scenario import EMBEDDED_LIMITS, STANDARD_LIMITS, Limits, Scenario, Server

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Scenario files\n")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in SECTION.splitlines() if line[:3] == "| `"]


def test_the_readme_lists_every_key_of_a_scenario_file_and_no_other() -> None:
    keys = {field.alias or name for name, field in Scenario.model_fields.items()} - {"server", "limits"}
    keys |= {*Server.model_fields, *Limits.model_fields}
    assert {row[0].strip("`") for row in ROWS} == keys
    assert "| **`[server]`** |" in SECTION
    assert "| **`[limits]`** |" in SECTION


def shown(value: object) -> str:
    """A default as the table writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("name", Limits.model_fields)
def test_the_readme_states_both_defaults_of_each_limit(name: str) -> None:
    row = next(row for row in ROWS if row[0] == f"`{name}`")
    assert row[2] == f"{shown(getattr(STANDARD_LIMITS, name))}; {shown(getattr(EMBEDDED_LIMITS, name))}"
