"""`agentload run`: options into a scenario, one run, its account, and its path on the last line of stdout."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from agentload.analysis import account as accounts
from agentload.errors import UsageError
from agentload.report import terminal
from agentload.run import runner, scenario


def run(
    scenario_file: Annotated[
        Path | None, typer.Argument(help="A scenario in TOML; options win over it.", show_default=False)
    ] = None,
    agents: Annotated[int | None, typer.Option(help="How many agents.  [default: 3]", show_default=False)] = None,
    stagger: Annotated[
        float | None, typer.Option(help="Seconds between their starts.  [default: 15]", show_default=False)
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="The endpoint, http://HOST:PORT/v1 (or OPENAI_BASE_URL).", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Its model.  [default: the first of /v1/models]", show_default=False)
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(help="Start and own this server; {port} becomes a free port.", show_default=False),
    ] = None,
    server_log: Annotated[
        str | None, typer.Option(help="The log file of the server behind --base-url.", show_default=False)
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="The log's format.  [default: detected]", show_default=False)
    ] = None,
    server_args: Annotated[
        str | None, typer.Option(help="Further flags for the embedded server, as one string.", show_default=False)
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="A pinned corpus' name, or the path of a git checkout of yours (with a slash in it).",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="A task by name, for the agents in turn; may be repeated.", show_default=False),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="native (tool calls) or json (actions in the text).", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of tasks and sampling.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="Part of the run directory's name.", show_default=False)] = None,
    condition: Annotated[
        str | None, typer.Option(help="What is under test, as the markers say it.", show_default=False)
    ] = None,
    tool_calls: Annotated[int | None, typer.Option(help="Most tool calls of an agent.", show_default=False)] = None,
    wall: Annotated[float | None, typer.Option(help="Most seconds an agent may work.", show_default=False)] = None,
    context: Annotated[int | None, typer.Option(help="Most tokens of context of an agent.", show_default=False)] = None,
    unsafe_no_sandbox: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="Run tools without a sandbox where none works.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where run directories are made.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print account.json on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")] = False,
) -> None:
    """Run coding agents against a server and account for their work.

    With nothing configured, a real llama.cpp server with a small model is started (extra `local`), and three agents
    work on the tiny corpus. What is used, and why, is said first.
    """
    fields: dict[str, Any] = scenario.read_fields(scenario_file) if scenario_file else {}
    text = scenario_file.read_bytes() if scenario_file else None
    is_path = corpus is not None and (os.sep in corpus or corpus in (".", ".."))
    changed = {
        "agents": agents,
        "stagger_s": stagger,
        "corpus": None if is_path else corpus,
        "corpus_path": corpus if is_path else None,
        "tasks": task,
        "protocol": protocol,
        "seed": seed,
        "name": name,
        "condition": condition,
        "unsafe_no_sandbox": unsafe_no_sandbox or None,
    }
    server = {
        "base_url": base_url,
        "model": model,
        "launch": launch,
        "log": server_log,
        "log_format": log_format,
        "args": _words(server_args),
    }
    limits = {"tool_calls": tool_calls, "wall_s": wall, "context_tokens": context}
    given = _given(changed)
    for part, values in (("server", server), ("limits", limits)):
        held = fields.get(part, {})
        if _given(values) and isinstance(held, dict):  # what is no table there is refused below
            given[part] = {**held, **_given(values)}
    if corpus is not None:  # an option wins over the file's, whichever of the two ways it names the corpus
        fields = {name: value for name, value in fields.items() if name not in ("corpus", "corpus_path")}
    if launch and base_url is None and "server" in given:
        given["server"]["kind"] = "launch"
    if given:
        fields |= given
        text = None  # what was run is no longer what the file says: the resolved scenario is kept instead
    chosen = scenario.from_fields(fields, f"{scenario_file}: " if scenario_file else "")

    def say(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    target = anyio.run(runner.run, chosen, out, dict(os.environ), say, text)
    found = accounts.account(target.path)
    if as_json:
        typer.echo(accounts.text(found), nl=False)
    else:
        typer.echo(terminal.render(found), nl=False)
    typer.echo(str(target.path))
    manifest = target.read_manifest()
    if manifest.status != "success":
        say(f"status: {manifest.status}: {manifest.why}")
        raise typer.Exit(1)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}


def _words(text: str | None) -> list[str] | None:
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--server-args: {error}: {text!r}") from error
