"""Does `agentload tasks` tell what agents are asked and what their answers are checked for?"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentload.agents import datafiles, tasks
from agentload.commands.tasks import app
from agentload.errors import UsageError
from tests.program import program

runner = CliRunner()


def test_the_list_has_each_task_once_with_the_size_of_what_it_is_checked_by() -> None:
    rows = json.loads(runner.invoke(app, ["list", "--json"]).stdout)
    assert sorted(row["id"] for row in rows) == tasks.names()
    # Counted in the file: five facts; seven files, one of them named twice.
    row = next(row for row in rows if row["id"] == "zone-lookup")
    assert (row["corpus"], row["kind"], row["facts"], row["likely_files"]) == ("standard", "trace", 5, 7)
    lines = runner.invoke(app, ["list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [row["id"] for row in rows]


def test_the_list_of_one_corpus_has_its_tasks_and_an_unknown_corpus_is_refused() -> None:
    rows = json.loads(runner.invoke(app, ["list", "--corpus", "tiny", "--json"]).stdout)
    assert {row["corpus"] for row in rows} == {"tiny"}
    assert len(json.loads(runner.invoke(app, ["list", "--corpus", "any", "--json"]).stdout)) == 3
    refused = runner.invoke(app, ["list", "--corpus", "tinny"])
    assert isinstance(refused.exception, UsageError)
    assert "tiny" in str(refused.exception)


def test_a_corpus_of_the_users_own_has_the_tasks_that_a_run_takes_for_it(tmp_path: Path) -> None:
    pins = tmp_path / "pins"
    pins.mkdir()
    shipped = (datafiles.shipped("corpora") / "tiny.toml").read_text(encoding="utf-8")
    (pins / "mine.toml").write_text(shipped.replace('name = "tiny"', 'name = "mine"'), encoding="utf-8")
    env = {"AGENTLOAD_CORPORA": str(pins)}
    listed = runner.invoke(app, ["list", "--corpus", "mine", "--json"], env=env)
    assert (listed.exit_code, {row["corpus"] for row in json.loads(listed.stdout)}) == (0, {"any"})
    assert len(json.loads(listed.stdout)) == 3
    refused = runner.invoke(app, ["list", "--corpus", "nosuch"], env=env)
    assert isinstance(refused.exception, UsageError)
    assert "mine" in str(refused.exception)


@pytest.mark.parametrize("name", tasks.names())
def test_a_shown_task_has_its_whole_prompt_and_each_fact_with_its_lines(name: str) -> None:
    task = tasks.load(name)
    shown = runner.invoke(app, ["show", name]).stdout
    assert " ".join(task.prompt.split()) in " ".join(shown.split())
    for fact in task.facts:
        assert f"  {fact.id}: " in shown
        for one in fact.evidence:
            assert f"    {one.path}:{one.line}: {one.text}\n" in shown
    assert max(map(len, shown.splitlines())) <= 120
    assert tasks.Task.model_validate(json.loads(runner.invoke(app, ["show", name, "--json"]).stdout)) == task


def test_an_unknown_task_is_one_line_with_the_nearest_names_and_exit_code_2() -> None:
    done = program("tasks", "show", "zone-lockup", env={})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agentload: no task named 'zone-lockup': did you mean zone-lookup?\n"
