"""Whether every collection of the suite finds the same tests: workers that disagree end the run before it begins."""

import os
import subprocess
import sys

import pytest


def test_another_process_at_another_time_collects_these_very_tests(
    pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    """A name made from a clock, a process or a set's order differs between two workers, now and then or always."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", "tests"],
        cwd=pytestconfig.rootpath,
        env=environment | {"PYTHONHASHSEED": "4711"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    names = {line for line in found.stdout.splitlines() if "::" in line}
    here = {item.nodeid for item in request.session.items}
    assert request.node.nodeid in names
    assert sorted(here - names) == []
