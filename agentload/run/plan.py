"""Which corpus and which tasks does a scenario mean?"""

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from pathlib import Path

from agentload.agents import corpora, git_route, own_checkout, sources, tasks, workspace
from agentload.agents.tasks import Task
from agentload.errors import UsageError
from agentload.registry import IndexSettings, default_cache_dir, is_cached
from agentload.run.scenario import Scenario


def obtain_corpus(
    scenario: Scenario, folder: Path, env: Mapping[str, str], say: Callable[[str], None]
) -> workspace.Repository:
    """Return the scenario's corpus, fetched, imported and verified; a path's own checkout is imported into `folder`."""
    if scenario.corpus_path is not None:
        return own_checkout.import_checkout(Path(scenario.corpus_path), folder / "corpus.git")
    assert scenario.corpus is not None
    corpus = load_corpus(scenario.corpus, env)
    cache = default_cache_dir(env)
    if corpus.sdist is not None and not workspace.is_imported(corpus, cache):
        here = is_cached(corpus.pin(), cache)
        say(f"corpus: importing {corpus.name}" if here else f"corpus: fetching {corpus.name} from the package index")
    return sources.obtain(
        corpus,
        cache,
        IndexSettings.from_environment(env),
        network=git_route.network_of(env),
        say=lambda text: say(f"corpus: {text}"),
    )


def load_corpus(name: str, env: Mapping[str, str]) -> corpora.Corpus:
    """Load a shipped corpus, or one that the user has pinned.

    Raises:
        UsageError: there is none of that name; the nearest ones, and a folder of that name, are told.
        InputError: its file is not as it should be.
    """
    try:
        return corpora.load(name, *corpora.places(env))
    except UsageError as error:
        if not Path(name).is_dir():
            raise
        raise UsageError(f"{error}; the git checkout in the folder of that name is --corpus ./{name}") from error


def choose_tracks(scenario: Scenario) -> tuple[tuple[Task, ...], ...]:
    """Return for each agent the tasks of its conversation: named ones in their order, else ones drawn by the seed.

    Raises:
        UsageError: a task is unknown or about another corpus.
    """
    corpus = scenario.corpus or tasks.ANY
    if not tasks.for_corpus(corpus):  # one that nobody has written tasks about
        corpus = tasks.ANY
    if not scenario.tasks and not scenario.tracks:
        return tasks.assign_tracks(tasks.for_corpus(corpus), scenario.agents, scenario.chain, scenario.seed)
    named = scenario.tracks
    if scenario.tasks:  # go to the agents in the order they are named
        endless = cycle(scenario.tasks)
        named = tuple(tuple(islice(endless, scenario.chain)) for _ in range(scenario.agents))
    loaded = {name: tasks.load(name) for track in named for name in track}
    for task in loaded.values():
        if task.corpus not in (corpus, tasks.ANY):
            raise UsageError(f"task {task.id} is about corpus {task.corpus}, the run's corpus is {corpus}")
    tracks = [tuple(loaded[name] for name in track) for track in named]
    return tuple(tracks[index % len(tracks)] for index in range(scenario.agents))


def paths_of(checkout: Path) -> list[str]:
    """The files of a checkout, relative, sorted; .git left out."""
    files = (path.relative_to(checkout) for path in checkout.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if path.parts[0] != ".git")
