"""Which corpus and which tasks does a scenario mean?"""

from collections.abc import Callable, Mapping
from pathlib import Path

from agentload.agents import corpora, tasks, workspace
from agentload.agents.tasks import Task
from agentload.errors import UsageError
from agentload.registry import IndexSettings, default_cache_dir, is_cached
from agentload.run.scenario import Scenario


def obtain_corpus(
    scenario: Scenario, folder: Path, env: Mapping[str, str], say: Callable[[str], None]
) -> workspace.Repository:
    """Return the scenario's corpus, fetched, imported and verified; a path's own checkout is imported into `folder`."""
    if scenario.corpus_path is not None:
        return workspace.import_checkout(Path(scenario.corpus_path), folder / "corpus.git")
    assert scenario.corpus is not None
    corpus = corpora.load(scenario.corpus)
    cache = default_cache_dir(env)
    if not workspace.is_imported(corpus, cache):
        here = is_cached(corpus.pin(), cache)
        say(f"corpus: importing {corpus.name}" if here else f"corpus: fetching {corpus.name} from the package index")
    return workspace.obtain(corpus, cache, IndexSettings.from_environment(env), say=say)


def choose_tasks(scenario: Scenario) -> tuple[Task, ...]:
    """Return one task for each agent: the named ones in their order, else different ones drawn by the seed.

    Raises:
        UsageError: a task is unknown or about another corpus.
    """
    corpus = scenario.corpus or tasks.ANY
    if scenario.tasks:
        chosen = [tasks.load(name) for name in scenario.tasks]
        for task in chosen:
            if task.corpus not in (corpus, tasks.ANY):
                raise UsageError(f"task {task.id} is about corpus {task.corpus}, the run's corpus is {corpus}")
        # Named tasks go to the agents in the order they are named.
        return tuple(chosen[index % len(chosen)] for index in range(scenario.agents))
    return tasks.assign(tasks.for_corpus(corpus), scenario.agents, scenario.seed)


def paths_of(checkout: Path) -> list[str]:
    """The files of a checkout, relative, sorted; .git left out."""
    files = (path.relative_to(checkout) for path in checkout.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if path.parts[0] != ".git")
