"""`agentload probe`: which cold prompts are thrown at which server, and who writes meanwhile? Done as `run` does."""

from typing import Annotated, Any, Final

from agentload.commands import scenario_options as options
from agentload.commands.scenario_options import option
from agentload.errors import UsageError
from agentload.run import toml_file
from agentload.run.workloads import DECODE_TOKENS, EMBEDDED_DECODE_TOKENS, Probe

_PROBE: Final = "probe"
_DEFAULTS: Final = {
    name: ",".join(map(str, field.default)) if isinstance(field.default, tuple) else str(field.default)
    for name, field in Probe.model_fields.items()
}


def probe(
    scenario_file: options.ScenarioFile = None,
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
    corpus: options.Corpus = None,
    seed: Annotated[int | None, option("Seed of sampling.", options.DEFAULTS["seed"])] = None,
    name: options.Name = None,
    condition: options.Condition = None,
    wall: options.Wall = None,
    warmup: options.Warmup = False,
    out: options.Out = options.OUT,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Throw cold prompts at a server while sessions write, and account for what it cost both.

    The answer in minutes to what agents answer in hours, on work that is equal to the character: prompts are as long as
    asked for by the server's own count. A load is a number of sessions with a number of prompts; each is repeated.
    """
    held = toml_file.read(scenario_file) if scenario_file else None
    fields = held.fields if held is not None else {"name": _PROBE}
    given = options.given_ones(
        {
            (_PROBE, "prompt_tokens"): ("--prompt-tokens", prompt_tokens),
            (_PROBE, "decoders"): ("--decoders", options.numbers("--decoders", decoders)),
            (_PROBE, "prompts"): ("--prompts", options.numbers("--prompts", prompts)),
            (_PROBE, "nearly_finished"): ("--nearly-finished", nearly_finished),
            (_PROBE, "at_context"): ("--at-context", at_context),
            (_PROBE, "decode_tokens"): ("--decode-tokens", decode_tokens),
            (_PROBE, "settle_tokens"): ("--settle-tokens", settle_tokens),
            (_PROBE, "repeats"): ("--repeat", repeat),
            (options.corpus_key(corpus),): ("--corpus", corpus),
            ("seed",): ("--seed", seed),
            ("name",): ("--name", name),
            ("condition",): ("--condition", condition),
            ("limits", "wall_s"): ("--wall", wall),
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
        }
    )
    changes: dict[options.KeyPath, Any] = {path: value for path, (_, value) in given.items()}
    if "workload" not in fields:
        changes["workload",] = _PROBE
    elif fields["workload"] != _PROBE:
        raise UsageError(
            f"{scenario_file}: workload: expected {_PROBE!r}, got {fields['workload']!r:.80}: agentload run does all"
        )
    if changes:
        fields = options.changed_by(fields, changes)
    chosen, verbatim = options.settle(scenario_file, held, given, fields, changed=bool(changes), warmup=warmup)
    options.carry_out(chosen, out, verbatim, as_json=as_json, quiet=quiet)
