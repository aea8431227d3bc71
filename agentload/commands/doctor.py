"""`agentload doctor`: is this endpoint, with this machine beside it, worth a night?"""

import os
from typing import Annotated

import typer

from agentload import plugins
from agentload.commands import scenario_options as options
from agentload.errors import UsageError
from agentload.run import scenario


def doctor(
    base_url: options.BaseUrl = None,
    launch: options.Launch = None,
    server: options.ServerKind = None,
    server_args: options.ServerArgs = None,
    server_log: options.ServerLog = None,
    log_format: options.LogFormat = None,
    model: options.Model = None,
    agents: options.Agents = None,
    context: options.Context = None,
    protocol: options.Protocol = None,
    corpus: options.Corpus = None,
    timeout: Annotated[float, typer.Option(help="Most seconds for all questions to a server that is ready.")] = 60.0,
    out: options.Out = options.OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON on stdout.")] = False,
) -> None:
    """Look at a server and at this machine before a night is spent on them: one line each, with what to do.

    A few short requests are sent. Exit code 0: nothing is in the way (notes and warnings may be); 1: at least one line
    is FAIL, and a night would be wasted.
    """
    if not 1 <= timeout <= 3600:
        raise UsageError(f"--timeout: expected 1 to 3600 seconds, got {timeout:g}")
    given = options.given_ones(
        {
            ("agents",): ("--agents", agents),
            (options.corpus_key(corpus),): ("--corpus", corpus),
            ("protocol",): ("--protocol", protocol),
            **options.server_ones(
                server=server,
                base_url=base_url,
                model=model,
                launch=launch,
                server_log=server_log,
                log_format=log_format,
                server_args=server_args,
            ),
            ("limits", "context_tokens"): ("--context", context),
        }
    )
    fields = options.changed_by({}, {path: value for path, (_, value) in given.items()})
    chosen = scenario.from_fields(fields, options={".".join(path): name for path, (name, _) in given.items()})
    options.writable(out)
    plugins.load(plugins.STAGES, "doctor")(chosen, out, dict(os.environ), timeout_s=timeout, as_json=as_json)
