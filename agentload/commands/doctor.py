"""`agentload doctor`: is this endpoint, with this machine beside it, worth a night?"""

import os
from typing import Annotated

import typer

from agentload import plugins
from agentload.commands import scenario_options
from agentload.commands.scenario_options import (
    DEFAULTS,
    OUT,
    Agents,
    BaseUrl,
    Context,
    Corpus,
    Launch,
    LogFormat,
    Model,
    Out,
    ServerArgs,
    ServerKind,
    ServerLog,
    option,
)
from agentload.errors import UsageError
from agentload.run import scenario


def doctor(
    base_url: BaseUrl = None,
    launch: Launch = None,
    server: ServerKind = None,
    server_args: ServerArgs = None,
    server_log: ServerLog = None,
    log_format: LogFormat = None,
    model: Model = None,
    agents: Agents = None,
    context: Context = None,
    protocol: Annotated[
        str | None, option("native (tool calls) or json (actions in the text).", DEFAULTS["protocol"])
    ] = None,
    corpus: Corpus = None,
    timeout: Annotated[float, typer.Option(help="Most seconds for all questions to a server that is ready.")] = 60.0,
    out: Out = OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON on stdout.")] = False,
) -> None:
    """Look at a server and at this machine before a night is spent on them: one line each, with what to do.

    A few short requests are sent. Exit code 0: nothing is in the way (notes and warnings may be); 1: at least one line
    is FAIL, and a night would be wasted.
    """
    if not 1 <= timeout <= 3600:
        raise UsageError(f"--timeout: expected 1 to 3600 seconds, got {timeout:g}")
    given = scenario_options.given_ones(
        {
            ("agents",): ("--agents", agents),
            (scenario_options.corpus_key(corpus),): ("--corpus", corpus),
            ("protocol",): ("--protocol", protocol),
            ("server", "kind"): ("--server", server),
            ("server", "base_url"): ("--base-url", base_url),
            ("server", "model"): ("--model", model),
            ("server", "launch"): ("--launch", launch),
            ("server", "log"): ("--server-log", server_log),
            ("server", "log_format"): ("--log-format", log_format),
            ("server", "args"): ("--server-args", scenario_options.words(server_args)),
            ("limits", "context_tokens"): ("--context", context),
        }
    )
    fields = scenario_options.changed_by({}, {path: value for path, (_, value) in given.items()})
    chosen = scenario.from_fields(fields, options={".".join(path): name for path, (name, _) in given.items()})
    scenario_options.writable(out)
    plugins.load(plugins.STAGES, "doctor")(chosen, out, dict(os.environ), timeout_s=timeout, as_json=as_json)
