"""Which tasks are there, what does each ask, and which facts is an answer checked for?"""

import json
import os
import textwrap
from typing import Annotated, Any

import typer

from agentload.agents import corpora, tasks
from agentload.agents.tasks import Task

app = typer.Typer(help="What agents are asked to do, and how an answer is told from noise.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

_WIDTH = 100


@app.command("list")
def list_(
    *,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Only those on this corpus; where there are none, as of your own pins: those that fit every "
            "repository. `any`: these alone."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the tasks: name, corpus, kind, how many facts and files each is checked by."""
    if corpus is not None and corpus != tasks.ANY:
        corpora.load(corpus, *corpora.places(os.environ))
        if not tasks.for_corpus(corpus):  # one that nobody has written tasks about: a run takes the general ones
            corpus = tasks.ANY
    found = [task for task in map(tasks.load, tasks.names()) if corpus in (None, task.corpus)]
    found.sort(key=lambda task: (task.corpus, task.id))
    if as_json:
        typer.echo(json.dumps([_row(task) for task in found], indent=2, ensure_ascii=False))
        return
    name = max(len(task.id) for task in found)
    for task in found:
        row = _row(task)
        typer.echo(
            f"{task.id:<{name}}  {task.corpus:<8}  {task.kind:<9}  {row['facts']} facts, "
            f"{row['likely_files']:>2} files  {task.title}"
        )


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task, as `tasks list` names it.", show_default=False)],
    *,
    as_json: Json = False,
) -> None:
    """Show a task: its prompt, its facts with the lines that prove them, and the files that it is about."""
    task = tasks.load(name)
    if as_json:
        typer.echo(json.dumps(task.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False))
        return
    typer.echo("\n".join(_page(task)))


def _row(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "title": task.title,
        "corpus": task.corpus,
        "kind": task.kind,
        "facts": len(task.facts),
        "likely_files": len({read.path for read in task.likely_reads}),
        "tool_calls": list(task.expectations.tool_calls),
    }


def _page(task: Task) -> list[str]:
    low, high = task.expectations.tool_calls
    lines = [f"{task.id}: {task.title}", f"corpus {task.corpus}, {task.kind}, usually {low} to {high} tool calls", ""]
    for part in task.prompt.strip().split("\n\n"):
        lines += [*textwrap.wrap(part, _WIDTH), ""]
    if not task.facts:
        return [*lines, "No facts: it fits every repository, so nothing is known of a right answer."]
    lines.append(f"Facts ({task.expectations.min_facts} of {len(task.facts)} make a real attempt):")
    for fact in task.facts:
        lines += textwrap.wrap(f"{fact.id}: {fact.fact}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
        lines += [f"    {one.path}:{one.line}: {one.text}" for one in fact.evidence]
    lines += ["", f"Files likely to be opened ({task.expectations.min_opened:.0%} make a real attempt):"]
    lines += [
        f"  {read.path}" + (f", lines {read.lines[0]} to {read.lines[1]}" if read.lines else "")
        for read in task.likely_reads
    ]
    return lines
