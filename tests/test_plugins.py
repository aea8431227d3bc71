"""Entry points: those of the installed distribution, and of one that a user adds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentload import plugins
from agentload.errors import UsageError


def test_the_names_of_a_group_are_sorted() -> None:
    names = plugins.names(plugins.COMMANDS)
    assert names == sorted(names)
    assert {"account", "corpus", "report", "run"} <= set(names)
    assert "llamacpp" in plugins.names(plugins.SERVERLOGS)


def test_a_group_that_nobody_offers_is_empty() -> None:
    assert plugins.names("agentload.nothing") == []


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"^no serverlogs named 'vlm': there is .*llamacpp"):
        plugins.load(plugins.SERVERLOGS, "vlm")
    with pytest.raises(UsageError, match=r"^no nothing named 'x': there is none$"):
        plugins.load("agentload.nothing", "x")


@pytest.mark.parametrize("group", [plugins.COMMANDS, plugins.SERVERLOGS])
def test_everything_that_is_offered_can_be_loaded(group: str) -> None:
    for name in plugins.names(group):
        assert plugins.load(group, name) is not None


def test_a_log_format_has_the_name_it_is_offered_by() -> None:
    names = plugins.names(plugins.SERVERLOGS)
    assert [plugins.load(plugins.SERVERLOGS, name).name for name in names] == names


LOOK = """
import sys
from agentload import plugins
print(plugins.names("agentload.serverlogs"))
print("mine_format" in sys.modules)
print(plugins.load("agentload.serverlogs", "mine"))
print("mine_format" in sys.modules)
"""


def test_a_users_own_distribution_adds_a_format_that_is_imported_when_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine_format.py").write_text("FORMAT = 'a format of my own'\n")
    metadata = tmp_path / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[agentload.serverlogs]\nmine = mine_format:FORMAT\n")
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    names, before, loaded, after = done.stdout.splitlines()
    assert "'mine'" in names
    assert "'llamacpp'" in names
    assert (before, loaded, after) == ("False", "a format of my own", "True"), done.stderr
