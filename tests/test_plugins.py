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


def offer(folder: Path, name: str, version: str, point: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(f"[agentload.serverlogs]\n{point}\n")


def run(script: str, folder: Path) -> str:
    env = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


REFUSED = """
from agentload import plugins
from agentload.errors import UsageError
print(plugins.names("agentload.serverlogs"))
try:
    plugins.load("agentload.serverlogs", "mine")
except UsageError as error:
    print(error)
"""


def test_a_name_that_two_distributions_offer_is_refused_with_both(tmp_path: Path) -> None:
    offer(tmp_path, "mine", "1.0", "mine = mine_format:FORMAT")
    offer(tmp_path, "other-logs", "2.1", "mine = other:FORMAT")
    names, told = run(REFUSED, tmp_path).splitlines()
    assert names.count("'mine'") == 1
    assert told == (
        "expected one distribution with serverlogs 'mine', got mine 1.0 (mine_format:FORMAT) and "
        "other-logs 2.1 (other:FORMAT): uninstall all but one"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No module named 'mine_format'"),
        ("import no_such_library", "No module named 'no_such_library'"),
        ("", "module 'mine_format' has no attribute 'FORMAT'"),
    ],
)
def test_a_plug_in_that_cannot_be_imported_is_told_with_its_distribution(
    tmp_path: Path, text: str | None, told: str
) -> None:
    offer(tmp_path, "mine", "1.0", "mine = mine_format:FORMAT")
    if text is not None:
        (tmp_path / "mine_format.py").write_text(text)
    said = run(REFUSED, tmp_path).splitlines()[1]
    assert said == f"serverlogs 'mine' of mine 1.0 (mine_format:FORMAT) cannot be loaded: {told}"


def test_a_users_own_distribution_adds_a_format_that_is_imported_when_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine_format.py").write_text("FORMAT = 'a format of my own'\n")
    offer(tmp_path, "mine", "1.0", "mine = mine_format:FORMAT")
    names, before, loaded, after = run(LOOK, tmp_path).splitlines()
    assert "'mine'" in names
    assert "'llamacpp'" in names
    assert (before, loaded, after) == ("False", "a format of my own", "True")
