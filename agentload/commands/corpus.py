"""Which corpora are there, are they here, and are they what was pinned?"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from agentload import folders
from agentload.agents import corpora, workspace
from agentload.errors import InputError
from agentload.registry import IndexSettings, default_cache_dir, is_cached

app = typer.Typer(help="The pinned source trees that agents work on.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A corpus, as `corpus list` names it.", show_default=False)]
Names = Annotated[list[str] | None, typer.Argument(help="Corpora; all when none is named.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr.")]

_MIB = 1 << 20


@app.command("list")
def list_(*, as_json: Json = False) -> None:
    """List the corpora, and which of them are in the cache.

    A run fetches the corpus that it needs by itself; `corpus fetch` does it before, for instance for a machine without
    a network.
    """
    cache = default_cache_dir(os.environ)
    folders.look(cache)
    rows = [_row(corpora.load(name), cache) for name in corpora.names()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(
            f"{row['name']:<10} {row['project']} {row['version']} ({row['licence']}): {row['files']} files, "
            f"{row['rs_files']} .rs with {row['rs_lines']:,} lines, commit {row['commit'][:12]}: {_meaning(row)}"
        )
    typer.echo(f"cache: {cache} ({folders.CACHE_SETTING} sets it)")


@app.command()
def fetch(names: Names = None, *, quiet: Quiet = False) -> None:
    """Fetch and import corpora into the cache, anew where damaged; print the path of each one's git repository.

    The index settings of pip and uv in the environment are used (PIP_INDEX_URL, UV_DEFAULT_INDEX, ...).
    """
    cache = default_cache_dir(os.environ)
    settings = IndexSettings.from_environment(os.environ)
    for corpus in _chosen(names):
        meter = _Meter(corpus.name, quiet=quiet)
        repository = workspace.obtain(corpus, cache, settings, progress=meter, say=meter.say)
        meter.say(f"commit {repository.commit}, as pinned")
        typer.echo(str(repository.path))


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
    typer.echo(str(workspace.verify(corpora.load(name), default_cache_dir(os.environ)).path))


def _chosen(names: list[str] | None) -> list[corpora.Corpus]:
    """Load the named corpora, each once however often it is named; all when none is named."""
    return [corpora.load(name) for name in dict.fromkeys(names or corpora.names())]


def _meaning(row: dict[str, Any]) -> str:
    """Say what a corpus' state means, and what to do."""
    name = row["name"]
    return {
        "imported": "ready in the cache",
        "fetched": f"downloaded, not imported yet: a run or `agentload corpus fetch {name}` does it, offline",
        "not fetched": f"not on this machine: a run downloads it, or `agentload corpus fetch {name}`",
    }[row["state"]]


def _row(corpus: corpora.Corpus, cache: Path) -> dict[str, Any]:
    repository = workspace.repository_path(corpus, cache)
    imported, is_imported = corpus.imported, workspace.is_imported(corpus, cache)
    state = "imported" if is_imported else "fetched" if is_cached(corpus.pin(), cache) else "not fetched"
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
