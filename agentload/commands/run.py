"""`agentload run`: which scenario do its options and its file make? What is done with it is in `running`."""

from typing import Annotated

import typer

from agentload.commands import scenario_options as options
from agentload.commands.scenario_options import limit, option
from agentload.run import toml_file


def run(
    scenario_file: options.ScenarioFile = None,
    agents: options.Agents = None,
    stagger: options.Stagger = None,
    server: options.ServerKind = None,
    profile: options.MachineProfile = None,
    set_: options.Set = None,
    boot: options.Boot = None,
    base_url: options.BaseUrl = None,
    model: options.Model = None,
    launch: options.Launch = None,
    server_log: options.ServerLog = None,
    log_format: options.LogFormat = None,
    server_args: options.ServerArgs = None,
    otlp: Annotated[
        bool, typer.Option("--otlp", help="Have a vLLM that is started here send the phases of its requests.")
    ] = False,
    corpus: options.Corpus = None,
    task: Annotated[
        list[str] | None,
        option("A task by name, for the agents in turn; may be repeated.", "drawn by the seed"),
    ] = None,
    chain: Annotated[
        int | None,
        option("So many tasks of each agent, one after the other in one conversation.", options.DEFAULTS["chain"]),
    ] = None,
    parallel_calls: Annotated[
        bool, typer.Option("--parallel-calls", help="Let an answer hold several tool calls, which run at once.")
    ] = False,
    protocol: options.Protocol = None,
    seed: Annotated[int | None, option("Seed of tasks and sampling.", options.DEFAULTS["seed"])] = None,
    name: options.Name = None,
    condition: options.Condition = None,
    tool_calls: options.ToolCalls = None,
    wall: options.Wall = None,
    answer_tokens: Annotated[int | None, limit("Most tokens of one answer.", "answer_tokens", options.PART)] = None,
    final_tokens: Annotated[int | None, limit("Most tokens of the final answer.", "final_tokens", options.PART)] = None,
    context: options.Context = None,
    warmup: options.Warmup = False,
    unsafe_no_sandbox: options.UnsafeNoSandbox = False,
    out: options.Out = options.OUT,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run coding agents against a server and account for their work.

    With nothing configured, a real llama.cpp server with a small model is started (extra `local`), and three agents
    work on the tiny corpus. What is used, and why, is said first.
    """
    held = toml_file.read(scenario_file) if scenario_file else None
    given = options.given_ones(
        {
            ("agents",): ("--agents", agents),
            ("stagger_s",): ("--stagger", stagger),
            (options.corpus_key(corpus),): ("--corpus", corpus),
            ("tasks",): ("--task", task or None),
            ("chain",): ("--chain", chain),
            ("parallel_tool_calls",): ("--parallel-calls", parallel_calls or None),
            ("protocol",): ("--protocol", protocol),
            ("seed",): ("--seed", seed),
            ("name",): ("--name", name),
            ("condition",): ("--condition", condition),
            ("unsafe_no_sandbox",): ("--unsafe-no-sandbox", unsafe_no_sandbox or None),
            ("server", "otlp"): ("--otlp", otlp or None),
            **options.server_ones(
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
        fields = options.changed_by(fields, {path: value for path, (_, value) in given.items()})
    chosen, verbatim = options.settle(scenario_file, held, given, fields, changed=bool(given), warmup=warmup)
    options.carry_out(chosen, out, verbatim, as_json=as_json, quiet=quiet)
