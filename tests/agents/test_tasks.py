"""Are the facts of the tasks true of their corpora, and does a score tell work from noise?"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.agents import corpora, datafiles, tasks, workspace
from agentload.agents.tasks import Task
from agentload.errors import InputError, UsageError
from tests.agents.data_files import TASK
from tests.agents.right_answers import RIGHT

TINY = tasks.for_corpus("tiny")
VAGUE = "The code is well structured. It uses Rust and Python, handles errors properly and manages memory safely."


def load(folder: Path, text: str) -> Task:
    (folder / "mine.toml").write_text(text)
    return tasks.load("mine", folder)


@pytest.fixture
def mine(tmp_path: Path) -> Task:
    return load(tmp_path, TASK)


@pytest.fixture(scope="module")
def trees(
    tiny: workspace.Repository, standard: workspace.Repository, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trees")
    return {one.name: workspace.checkout(one.path, one.commit, folder / one.name) for one in (tiny, standard)}


# ---- the shipped tasks ---------------------------------------------------------------------------------------------


def test_every_shipped_corpus_has_tasks() -> None:
    corpora_of = Counter(tasks.load(name).corpus for name in tasks.names())
    assert set(corpora_of) == {*corpora.names(), tasks.ANY} - {"large"}  # which gets those that fit any
    assert (corpora_of["standard"], corpora_of["tiny"], corpora_of[tasks.ANY]) == (14, 3, 3)


@pytest.mark.parametrize("task", tasks.for_corpus("standard"), ids=lambda task: task.id)
def test_a_task_on_the_standard_corpus_has_five_facts_or_more_each_in_a_file_that_is_likely_to_be_read(
    task: Task,
) -> None:
    assert len(task.facts) >= 5
    likely = {read.path for read in task.likely_reads}
    for fact in task.facts:
        assert likely & {evidence.path for evidence in fact.evidence}, fact.id


@pytest.mark.parametrize("name", tasks.names())
def test_every_line_that_is_named_as_evidence_says_what_the_task_says(name: str, trees: dict[str, Path]) -> None:
    task = tasks.load(name)
    for fact in task.facts:
        for evidence in fact.evidence:
            line = (trees[task.corpus] / evidence.path).read_text().splitlines()[evidence.line - 1]
            assert evidence.text in line, f"{fact.id}: {evidence.path}:{evidence.line} is {line!r}"


@pytest.mark.parametrize("name", tasks.names())
def test_every_file_that_is_likely_to_be_read_is_there(name: str, trees: dict[str, Path]) -> None:
    task = tasks.load(name)
    for read in task.likely_reads:
        lines = (trees[task.corpus] / read.path).read_text().splitlines()
        assert read.lines is None or 1 <= read.lines[0] <= read.lines[1] <= len(lines)


@pytest.mark.parametrize("task", TINY, ids=lambda task: task.id)
def test_a_prompt_for_a_small_model_is_short_and_names_real_files(task: Task, trees: dict[str, Path]) -> None:
    assert len(task.prompt.split()) < 120
    named = {word.strip("().,;:") for word in task.prompt.split() if (trees["tiny"] / word.strip("().,;:")).is_file()}
    assert 3 <= len(named) <= 4
    assert {read.path for read in task.likely_reads} == named


@pytest.mark.parametrize("name", [name for name in tasks.names() if tasks.load(name).corpus != tasks.ANY])
def test_a_right_answer_has_every_fact_and_a_vague_one_none(name: str) -> None:
    task = tasks.load(name)
    assert tasks.score(task, RIGHT[name]) == tuple(fact.id for fact in task.facts)
    assert tasks.score(task, VAGUE) == ()


@pytest.mark.parametrize("name", tasks.names())
def test_an_answer_that_only_repeats_the_prompt_scores_nothing(name: str) -> None:
    task = tasks.load(name)
    assert tasks.score(task, task.prompt) == ()


def test_only_a_task_on_any_corpus_may_have_no_facts(tmp_path: Path) -> None:
    named = (datafiles.shipped("tasks") / "any-layout.toml").read_text().replace('corpus = "any"', 'corpus = "tiny"')
    (tmp_path / "any-layout.toml").write_text(named)
    with pytest.raises(InputError, match="expected facts and likely_reads"):
        tasks.load("any-layout", tmp_path)


# ---- scoring -------------------------------------------------------------------------------------------------------


def test_a_fact_counts_only_when_all_its_patterns_match_whatever_the_case(mine: Task) -> None:
    assert tasks.score(mine, "The LOCK guards\nEIGHT entries.") == ("one",)
    assert tasks.score(mine, "The lock guards 18 entries.") == ()
    assert tasks.score(mine, "Red; a lock of 8.") == ("one", "two")


def test_opened_files_are_compared_once_each_whatever_way_they_are_written(mine: Task) -> None:
    found = tasks.opened(mine, ["./src/a.rs", "/work/copy/src/a.rs", "other/b.rs"])
    assert (found.opened, found.missed, found.share) == (("src/a.rs",), ("src/b.rs",), 0.5)
    assert tasks.opened(mine, ["src/x/../b.rs", "src/a.rs"]).share == 1.0
    assert tasks.opened(mine, ["notsrc/a.rs"]).opened == ()


# ---- assignment ----------------------------------------------------------------------------------------------------


@given(agents=st.integers(1, 20), seed=st.integers(0, 2**32), turn=st.integers(0, 2))
def test_tasks_repeat_only_when_there_are_more_agents_than_tasks(agents: int, seed: int, turn: int) -> None:
    given_out = tasks.assign(TINY, agents, seed)
    counts = Counter(task.id for task in given_out)
    assert len(given_out) == agents
    assert len(counts) == min(agents, 3)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert tasks.assign(TINY[turn:] + TINY[:turn], agents, seed) == given_out


def test_another_seed_can_give_another_order() -> None:
    assert len({tasks.assign(TINY, 3, seed) for seed in range(100)}) == 6  # all orders of three


STANDARD = tasks.for_corpus("standard")


@given(agents=st.integers(1, 9), length=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_no_agent_gets_a_task_twice_while_there_are_others_and_a_longer_track_begins_as_a_shorter_one(
    agents: int, length: int, seed: int
) -> None:
    for known in (TINY, STANDARD):
        tracks = tasks.assign_tracks(known, agents, length, seed)
        assert tuple(track[0] for track in tracks) == tasks.assign(known, agents, seed)
        assert [len(track) for track in tracks] == [length] * agents
        for track in tracks:
            counts = Counter(task.id for task in track)
            assert len(counts) == min(length, len(known))
            assert max(counts.values()) <= -(-length // len(known))
        shorter = tasks.assign_tracks(known, agents, max(1, length - 1), seed)
        assert [track[: len(shorter[0])] for track in tracks] == list(shorter)


def test_three_agents_with_four_tasks_each_share_fourteen_tasks_evenly() -> None:
    counts = Counter(task.id for track in tasks.assign_tracks(STANDARD, 3, 4, 0) for task in track)
    assert sorted(counts.values()) == [1] * 12


def test_no_agent_or_no_task_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one agent and one task"):
        tasks.assign([], 2, 0)
    with pytest.raises(UsageError, match="there are 0 and 3"):
        tasks.assign(TINY, 0, 0)
