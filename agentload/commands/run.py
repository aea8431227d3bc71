"""`agentload run`: which scenario do its options and its file make? What is done with it is in `running`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from agentload import plugins
from agentload.commands import scenario_options
from agentload.commands.scenario_options import (
    DEFAULTS,
    PART,
    Agents,
    Context,
    MachineProfile,
    Quiet,
    ServerArgs,
    ServerKind,
    Stagger,
    ToolCalls,
    UnsafeNoSandbox,
    Wall,
    limit,
    option,
)
from agentload.run import scenario, toml_file


def run(
    scenario_file: Annotated[
        Path | None, typer.Argument(help="A scenario in TOML; options win over it.", show_default=False)
    ] = None,
    agents: Agents = None,
    stagger: Stagger = None,
    server: ServerKind = None,
    profile: MachineProfile = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Of the twin: an option, NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    boot: Annotated[int | None, option("Of the twin: the number of its start; each has its own noise.", "0")] = None,
    base_url: Annotated[str | None, option("The endpoint, http://HOST:PORT/v1 (or OPENAI_BASE_URL).")] = None,
    model: Annotated[str | None, option("Its model.", "the first of /v1/models")] = None,
    launch: Annotated[str | None, option("Start and own this server; {port} becomes a free port.")] = None,
    server_log: Annotated[str | None, option("The log file of the server behind --base-url.")] = None,
    log_format: Annotated[str | None, option("The log's format: ds4, llamacpp.", "detected")] = None,
    server_args: ServerArgs = None,
    corpus: Annotated[
        str | None,
        option(
            "A pinned corpus' name, or the path of a git checkout of yours (with a slash in it).",
            "standard; embedded server: tiny",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        option("A task by name, for the agents in turn; may be repeated.", "drawn by the seed"),
    ] = None,
    protocol: Annotated[
        str | None, option("native (tool calls) or json (actions in the text).", DEFAULTS["protocol"])
    ] = None,
    seed: Annotated[int | None, option("Seed of tasks and sampling.", DEFAULTS["seed"])] = None,
    name: Annotated[str | None, option("Part of the run directory's name.", DEFAULTS["name"])] = None,
    condition: Annotated[
        str | None, option("What is under test, as the markers say it.", DEFAULTS["condition"])
    ] = None,
    tool_calls: ToolCalls = None,
    wall: Wall = None,
    answer_tokens: Annotated[int | None, limit("Most tokens of one answer.", "answer_tokens", PART)] = None,
    final_tokens: Annotated[int | None, limit("Most tokens of the final answer.", "final_tokens", PART)] = None,
    context: Context = None,
    warmup: Annotated[
        bool, typer.Option("--warmup", help="Send requests before the measured ones: one alone, then all together.")
    ] = False,
    unsafe_no_sandbox: UnsafeNoSandbox = False,
    out: Annotated[Path, typer.Option(help="Where run directories are made.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print account.json alone on stdout.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run coding agents against a server and account for their work.

    With nothing configured, a real llama.cpp server with a small model is started (extra `local`), and three agents
    work on the tiny corpus. What is used, and why, is said first.
    """
    held = toml_file.read(scenario_file) if scenario_file else None
    text, verbatim, fields = (held.text, held.data, held.fields) if held is not None else ("", None, {})
    given = scenario_options.given_ones(
        {
            ("agents",): ("--agents", agents),
            ("stagger_s",): ("--stagger", stagger),
            (scenario_options.corpus_key(corpus),): ("--corpus", corpus),
            ("tasks",): ("--task", task or None),
            ("protocol",): ("--protocol", protocol),
            ("seed",): ("--seed", seed),
            ("name",): ("--name", name),
            ("condition",): ("--condition", condition),
            ("unsafe_no_sandbox",): ("--unsafe-no-sandbox", unsafe_no_sandbox or None),
            ("server", "kind"): ("--server", server),
            ("server", "profile"): ("--profile", profile),
            ("server", "set"): ("--set", scenario_options.pairs(set_)),
            ("server", "boot"): ("--boot", boot),
            ("server", "base_url"): ("--base-url", base_url),
            ("server", "model"): ("--model", model),
            ("server", "launch"): ("--launch", launch),
            ("server", "log"): ("--server-log", server_log),
            ("server", "log_format"): ("--log-format", log_format),
            ("server", "args"): ("--server-args", scenario_options.words(server_args)),
            ("limits", "tool_calls"): ("--tool-calls", tool_calls),
            ("limits", "wall_s"): ("--wall", wall),
            ("limits", "answer_tokens"): ("--answer-tokens", answer_tokens),
            ("limits", "final_tokens"): ("--final-tokens", final_tokens),
            ("limits", "context_tokens"): ("--context", context),
        }
    )
    if given:
        fields = scenario_options.changed_by(fields, {path: value for path, (_, value) in given.items()})
        verbatim = None  # what was run is no longer what the file says: the resolved scenario is kept instead
    chosen = scenario.from_fields(
        fields,
        str(scenario_file) if scenario_file else "",
        text=text,
        options={".".join(path): option for path, (option, _) in given.items()},
    )
    if warmup and chosen.warmup is None:
        chosen = chosen.model_copy(update={"warmup": chosen.usual_warmup})
        verbatim = None

    scenario_options.writable(out)
    # Loaded only now: the runner needs openai, git and polars, which take 1.5 to 4 s to import; --help does without.
    plugins.load(plugins.STAGES, "run")(chosen, out, dict(os.environ), verbatim, as_json=as_json, quiet=quiet)
