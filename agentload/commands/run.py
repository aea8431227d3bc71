"""`agentload run`: which scenario do its options and its file make? What is done with it is in `running`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from agentload import plugins
from agentload.commands import scenario_options
from agentload.commands.scenario_options import (
    DEFAULTS,
    OUT,
    PART,
    Agents,
    AsJson,
    BaseUrl,
    Boot,
    Condition,
    Context,
    Corpus,
    Launch,
    LogFormat,
    MachineProfile,
    Model,
    Name,
    Out,
    Quiet,
    ServerArgs,
    ServerKind,
    ServerLog,
    Set,
    Stagger,
    ToolCalls,
    UnsafeNoSandbox,
    Wall,
    limit,
    option,
)
from agentload.run import toml_file


def run(
    scenario_file: Annotated[
        Path | None, typer.Argument(help="A scenario in TOML; options win over it.", show_default=False)
    ] = None,
    agents: Agents = None,
    stagger: Stagger = None,
    server: ServerKind = None,
    profile: MachineProfile = None,
    set_: Set = None,
    boot: Boot = None,
    base_url: BaseUrl = None,
    model: Model = None,
    launch: Launch = None,
    server_log: ServerLog = None,
    log_format: LogFormat = None,
    server_args: ServerArgs = None,
    otlp: Annotated[
        bool, typer.Option("--otlp", help="Have a vLLM that is started here send the phases of its requests.")
    ] = False,
    corpus: Corpus = None,
    task: Annotated[
        list[str] | None,
        option("A task by name, for the agents in turn; may be repeated.", "drawn by the seed"),
    ] = None,
    chain: Annotated[
        int | None, option("So many tasks of each agent, one after the other in one conversation.", DEFAULTS["chain"])
    ] = None,
    parallel_calls: Annotated[
        bool, typer.Option("--parallel-calls", help="Let an answer hold several tool calls, which run at once.")
    ] = False,
    protocol: Annotated[
        str | None, option("native (tool calls) or json (actions in the text).", DEFAULTS["protocol"])
    ] = None,
    seed: Annotated[int | None, option("Seed of tasks and sampling.", DEFAULTS["seed"])] = None,
    name: Name = None,
    condition: Condition = None,
    tool_calls: ToolCalls = None,
    wall: Wall = None,
    answer_tokens: Annotated[int | None, limit("Most tokens of one answer.", "answer_tokens", PART)] = None,
    final_tokens: Annotated[int | None, limit("Most tokens of the final answer.", "final_tokens", PART)] = None,
    context: Context = None,
    warmup: Annotated[
        bool, typer.Option("--warmup", help="Send requests before the measured ones: one alone, then all together.")
    ] = False,
    unsafe_no_sandbox: UnsafeNoSandbox = False,
    out: Out = OUT,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run coding agents against a server and account for their work.

    With nothing configured, a real llama.cpp server with a small model is started (extra `local`), and three agents
    work on the tiny corpus. What is used, and why, is said first.
    """
    held = toml_file.read(scenario_file) if scenario_file else None
    given = scenario_options.given_ones(
        {
            ("agents",): ("--agents", agents),
            ("stagger_s",): ("--stagger", stagger),
            (scenario_options.corpus_key(corpus),): ("--corpus", corpus),
            ("tasks",): ("--task", task or None),
            ("chain",): ("--chain", chain),
            ("parallel_tool_calls",): ("--parallel-calls", parallel_calls or None),
            ("protocol",): ("--protocol", protocol),
            ("seed",): ("--seed", seed),
            ("name",): ("--name", name),
            ("condition",): ("--condition", condition),
            ("unsafe_no_sandbox",): ("--unsafe-no-sandbox", unsafe_no_sandbox or None),
            ("server", "otlp"): ("--otlp", otlp or None),
            **scenario_options.server_ones(
                server=server,
                profile=profile,
                set_=set_,
                boot=boot,
                base_url=base_url,
                model=model,
                launch=launch,
                server_log=server_log,
                log_format=log_format,
                server_args=server_args,
            ),
            ("limits", "tool_calls"): ("--tool-calls", tool_calls),
            ("limits", "wall_s"): ("--wall", wall),
            ("limits", "answer_tokens"): ("--answer-tokens", answer_tokens),
            ("limits", "final_tokens"): ("--final-tokens", final_tokens),
            ("limits", "context_tokens"): ("--context", context),
        }
    )
    fields = held.fields if held is not None else {}
    if given:
        fields = scenario_options.changed_by(fields, {path: value for path, (_, value) in given.items()})
    chosen, verbatim = scenario_options.settle(scenario_file, held, given, fields, changed=bool(given), warmup=warmup)
    scenario_options.writable(out)
    # Loaded only now: the runner needs openai, git and polars, which take 1.5 to 4 s to import; --help does without.
    plugins.load(plugins.STAGES, "run")(chosen, out, dict(os.environ), verbatim, as_json=as_json, quiet=quiet)
