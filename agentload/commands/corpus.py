"""Which corpora are there, are they here, and are they what was pinned?"""

import json
import os
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from agentload import folders
from agentload.agents import corpora, git_route, pinning, sources, workspace
from agentload.errors import InputError, UsageError
from agentload.registry import IndexSettings, default_cache_dir, is_cached

app = typer.Typer(help="The pinned source trees that agents work on.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A corpus, as `corpus list` names it.", show_default=False)]
Names = Annotated[list[str] | None, typer.Argument(help="Corpora; all when none is named.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr.")]

_MIB = 1 << 20
_ROUTES = ("archive", "git")


@app.command("list")
def list_(*, as_json: Json = False) -> None:
    """List the corpora, and which of them are in the cache.

    A run fetches the corpus that it needs by itself; `corpus fetch` does it before, for instance for a machine without
    a network.
    """
    cache = default_cache_dir(os.environ)
    folders.look(cache)
    places = corpora.places(os.environ)
    rows = [_row(name, places, cache) for name in corpora.names(*places)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        what = f"{row['project']} {row['version']} ({row['licence']})" if row["own_pin"] is None else row["repository"]
        typer.echo(
            f"{row['name']:<10} {what}: {_count(row['files'], row['rs_files'])}"
            f"{' with {:,} lines'.format(row['rs_lines']) if row['rs_files'] else ''}, "
            f"commit {row['commit'][:12]}: {_meaning(row)}"
            + (f"; your pin: {row['own_pin']}" if row["own_pin"] else "")
        )
    typer.echo(f"cache: {cache} ({folders.CACHE_SETTING} sets it)")


@app.command()
def fetch(
    names: Names = None,
    *,
    route: Annotated[
        str | None,
        typer.Option(
            help="archive (the package index) or git (the project's repository): go this one, even when the corpus is "
            "here; the same commit must come out. Default: archive, and git when that fails.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Fetch from this git repository, a mirror; implies --route git.", show_default=False),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Fetch and import corpora into the cache, anew where damaged; print the path of each one's git repository.

    The index settings of pip and uv in the environment are used (PIP_INDEX_URL, UV_DEFAULT_INDEX, ...). Whatever the
    route, the content must be what was pinned.
    """
    if route not in (None, *_ROUTES):
        raise UsageError(f"--route: expected {' or '.join(_ROUTES)}, got {route!r}")
    if url is not None and (route == "archive" or len(set(names or [])) != 1):
        raise UsageError("--url: expected with one corpus and the git route, whose address it stands for")
    chosen_route = cast("sources.Route | None", "git" if url is not None else route)
    cache = default_cache_dir(os.environ)
    settings = IndexSettings.from_environment(os.environ)
    network = git_route.network_of(os.environ)
    for corpus in _chosen(names):
        meter = _Meter(corpus.name, quiet=quiet)
        # Each is fetched from its own pinned address where it has no release file.
        repository = sources.obtain(
            corpus, cache, settings, route=chosen_route, url=url, network=network, progress=meter, say=meter.say
        )
        meter.say(f"commit {repository.commit}, as pinned")
        typer.echo(str(repository.path))


@app.command()
def add(
    source: Annotated[str, typer.Argument(help="The address of a git repository, or the path of a checkout of yours.")],
    *,
    commit: Annotated[
        str | None,
        typer.Option(help="A full commit id, a tag or a branch. Default: HEAD.", show_default=False),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            help="What belongs to it: a path, a folder (src/) or a glob ('*.py', 'src/**/*.rs'); may be repeated. "
            "Default: everything.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call it. Default: as the repository is called.", show_default=False)
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help=f"The folder for the pin. Default: {corpora.OWN_SETTING}, else ~/.config/agentload/corpora.",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write a pin of that name anew.")] = False,
    quiet: Quiet = False,
) -> None:
    """Pin a commit of a repository of your own as a corpus, and import it; print the path of the pin.

    Then `agentload run --corpus NAME` works on it, with general tasks. A checkout is only read. Unlike
    `--corpus ./PATH`, a pinned corpus is the same on each machine that has the pin and reaches the repository.
    """
    own = corpora.own_folder(os.environ)
    folder = to.absolute() if to is not None else own
    if folder is None:
        raise UsageError(f"expected a folder for the pin: give --to, or set {corpora.OWN_SETTING} or HOME")
    wanted = pinning.Wanted(source, commit, tuple(include or ()), name)
    made = pinning.add(
        wanted,
        folder,
        corpora.places(os.environ),
        default_cache_dir(os.environ),
        git_route.network_of(os.environ),
        replacing=replace,
    )
    corpus = made.corpus
    say = _Meter(corpus.name, quiet=quiet).say
    for note in made.notes:
        say(note)
    count = corpus.imported
    say(f"{_count(count.files, count.rs_files)}, of commit {corpus.upstream.commit[:12]}, pinned")
    if folder != own:
        say(f"to find it there, a run needs {corpora.OWN_SETTING}={folder}")
    say(f"ready: agentload run --corpus {corpus.name}")
    typer.echo(str(made.file))


@app.command()
def verify(names: Names = None, *, as_json: Json = False) -> None:
    """Check corpora in the cache, object by object, against their pins (default: those that are in the cache)."""
    cache = default_cache_dir(os.environ)
    chosen = _chosen(names)
    if not names:
        chosen = [corpus for corpus in chosen if workspace.is_imported(corpus, cache)]
        if not chosen:
            raise InputError(f"expected a corpus in {cache}, there is none: run `agentload corpus fetch`")
    found = [workspace.verify(corpus, cache) for corpus in chosen]
    if as_json:
        rows = [{"name": one.name, "commit": one.commit, "tree": one.tree, "path": str(one.path)} for one in found]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one in found:
        typer.echo(f"{one.name:<10} sound: every object, commit {one.commit} and its tree, as pinned: {one.path}")


@app.command()
def path(name: Name) -> None:
    """Print the path of a corpus' git repository in the cache, after checking it."""
    typer.echo(str(workspace.verify(_load(name), default_cache_dir(os.environ)).path))


def _chosen(names: list[str] | None) -> list[corpora.Corpus]:
    """Load the named corpora, each once however often it is named; all when none is named."""
    return [_load(name) for name in dict.fromkeys(names or corpora.names(*corpora.places(os.environ)))]


def _load(name: str) -> corpora.Corpus:
    return corpora.load(name, *corpora.places(os.environ))


def _count(files: int, rs_files: int) -> str:
    """Say how many files there are, and how many are of Rust where there are any."""
    return f"{files:,} file{'' if files == 1 else 's'}" + (f", {rs_files:,} .rs" if rs_files else "")


def _meaning(row: dict[str, Any]) -> str:
    """Say what a corpus' state means, and what to do."""
    name = row["name"]
    return {
        "imported": "ready in the cache",
        "fetched": f"downloaded, not imported yet: a run or `agentload corpus fetch {name}` does it, offline",
        "not fetched": f"not on this machine: a run downloads it, or `agentload corpus fetch {name}`",
    }[row["state"]]


def _row(name: str, places: tuple[Path, ...], cache: Path) -> dict[str, Any]:
    file, corpus = corpora.find(name, *places), corpora.load(name, *places)
    repository = workspace.repository_path(corpus, cache)
    imported, is_imported = corpus.imported, workspace.is_imported(corpus, cache)
    is_fetched = corpus.sdist is not None and is_cached(corpus.pin(), cache)
    state = "imported" if is_imported else "fetched" if is_fetched else "not fetched"
    return {
        "name": corpus.name,
        "project": corpus.project,
        "version": corpus.version,
        "licence": corpus.licence,
        "commit": imported.commit,
        "tree": imported.tree,
        "files": imported.files,
        "rs_files": imported.rs_files,
        "rs_lines": imported.rs_lines,
        "repository": corpus.upstream.repository,
        "own_pin": str(file) if file.parent != places[0] else None,
        "state": state,
        "path": str(repository) if is_imported else None,
    }


class _Meter:
    """Tells on stderr that a download goes on: once, and of a long one each tenth."""

    def __init__(self, name: str, *, quiet: bool) -> None:
        self._name, self._quiet, self._tenths = name, quiet, -1

    def __call__(self, done: int, total: int | None) -> None:
        tenths = done * 10 // total if total and total > 8 * _MIB else done // (8 * _MIB)
        if tenths != self._tenths:
            self._tenths = tenths
            self.say(f"fetching, {done / _MIB:.1f} of {total / _MIB:.1f} MiB" if total else "fetching")

    def say(self, text: str) -> None:
        if not self._quiet:
            typer.echo(f"{self._name}: {text}", err=True)
