"""`agentload probe`: which cold prompts are thrown at which server, and who writes meanwhile? Done as `run` does."""

import os
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload import plugins
from agentload.commands import scenario_options
from agentload.commands.scenario_options import (
    OUT,
    AsJson,
    BaseUrl,
    Boot,
    Condition,
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
    Wall,
    option,
)
from agentload.errors import UsageError
from agentload.run import toml_file
from agentload.run.workloads import DECODE_TOKENS, EMBEDDED_DECODE_TOKENS, Probe

_PROBE: Final = "probe"
_DEFAULTS: Final = {
    name: ",".join(map(str, field.default)) if isinstance(field.default, tuple) else str(field.default)
    for name, field in Probe.model_fields.items()
}


def probe(
    scenario_file: Annotated[
        Path | None, typer.Argument(help="A scenario in TOML; options win over it.", show_default=False)
    ] = None,
    prompt_tokens: Annotated[
        int | None, option("New tokens of a cold prompt, by the server's own count.", _DEFAULTS["prompt_tokens"])
    ] = None,
    decoders: Annotated[
        str | None,
        option("How many sessions write meanwhile; with commas, one load each; 0: none.", _DEFAULTS["decoders"]),
    ] = None,
    prompts: Annotated[
        str | None, option("How many cold prompts come at once; with commas, one load each.", _DEFAULTS["prompts"])
    ] = None,
    nearly_finished: Annotated[
        int | None, option("One more load: a single session that has so many tokens left to write.")
    ] = None,
    at_context: Annotated[
        int | None,
        option("The new tokens come after so many that the server's cache has.", _DEFAULTS["at_context"]),
    ] = None,
    decode_tokens: Annotated[
        int | None,
        option(
            "Tokens of one answer of a session that writes.", f"{DECODE_TOKENS}; embedded: {EMBEDDED_DECODE_TOKENS}"
        ),
    ] = None,
    settle_tokens: Annotated[
        int | None, option("Tokens that each of them writes before the prompt comes.", _DEFAULTS["settle_tokens"])
    ] = None,
    repeat: Annotated[int | None, option("How often each load comes.", _DEFAULTS["repeats"])] = None,
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
    corpus: Corpus = None,
    seed: Annotated[int | None, option("Seed of sampling.", scenario_options.DEFAULTS["seed"])] = None,
    name: Name = None,
    condition: Condition = None,
    wall: Wall = None,
    warmup: Annotated[
        bool, typer.Option("--warmup", help="Send requests before the measured ones: one alone, then all together.")
    ] = False,
    out: Out = OUT,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Throw cold prompts at a server while sessions write, and account for what it cost both.

    The answer in minutes to what agents answer in hours, on work that is equal to the character: prompts are as long as
    asked for by the server's own count. A load is a number of sessions with a number of prompts; each is repeated.
    """
    held = toml_file.read(scenario_file) if scenario_file else None
    fields = held.fields if held is not None else {"name": _PROBE}
    given = scenario_options.given_ones(
        {
            (_PROBE, "prompt_tokens"): ("--prompt-tokens", prompt_tokens),
            (_PROBE, "decoders"): ("--decoders", scenario_options.numbers("--decoders", decoders)),
            (_PROBE, "prompts"): ("--prompts", scenario_options.numbers("--prompts", prompts)),
            (_PROBE, "nearly_finished"): ("--nearly-finished", nearly_finished),
            (_PROBE, "at_context"): ("--at-context", at_context),
            (_PROBE, "decode_tokens"): ("--decode-tokens", decode_tokens),
            (_PROBE, "settle_tokens"): ("--settle-tokens", settle_tokens),
            (_PROBE, "repeats"): ("--repeat", repeat),
            (scenario_options.corpus_key(corpus),): ("--corpus", corpus),
            ("seed",): ("--seed", seed),
            ("name",): ("--name", name),
            ("condition",): ("--condition", condition),
            ("limits", "wall_s"): ("--wall", wall),
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
        }
    )
    changes: dict[scenario_options.KeyPath, Any] = {path: value for path, (_, value) in given.items()}
    if "workload" not in fields:
        changes["workload",] = _PROBE
    elif fields["workload"] != _PROBE:
        raise UsageError(
            f"{scenario_file}: workload: expected {_PROBE!r}, got {fields['workload']!r:.80}: agentload run does all"
        )
    if changes:
        fields = scenario_options.changed_by(fields, changes)
    chosen, verbatim = scenario_options.settle(scenario_file, held, given, fields, changed=bool(changes), warmup=warmup)
    scenario_options.writable(out)
    # Loaded only now: the runner needs openai, git and polars, which take 1.5 to 4 s to import; --help does without.
    plugins.load(plugins.STAGES, "run")(chosen, out, dict(os.environ), verbatim, as_json=as_json, quiet=quiet)
