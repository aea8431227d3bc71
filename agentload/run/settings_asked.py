"""Which settings do a server's command line and environment ask for, what could prove them, and how is it warmed up?"""

import shlex

from agentload.artifacts.design import Value
from agentload.errors import UsageError
from agentload.run import twin_settings
from agentload.run.scenario import Scenario, Server
from agentload.run.workloads import Warmup
from agentload.servers import commandline, profiles
from agentload.servers.profiles import Profile, ProofKind


def profile_of(server: Server) -> Profile:
    """Return what is known of this kind of server."""
    if server.kind == "twin":
        return profiles.PROFILES["twin"]
    if server.kind == "embedded":
        return profiles.PROFILES["llamacpp"]
    return profiles.profile_for(server.software, _argv(server), server.log_format)


def asked(server: Server) -> dict[str, Value]:
    """Return the settings that are asked for, by the profile's names; of a flag given twice the last value.

    Of the twin all its options: those that nobody gives have their defaults.
    """
    if server.kind == "twin":
        try:
            options = twin_settings.options(server.set or {})
        except UsageError:  # refused where the scenario is resolved
            return {}
        return options.model_dump(exclude_none=True)
    profile = profile_of(server)
    lines = commandline.asked(profile, _argv(server))
    return commandline.by_environment(profile, server.env) | {name: values[-1] for name, values in lines.items()}


def twice(server: Server) -> dict[str, list[Value]]:
    """Return the settings that the command line gives more than once, each with all its values."""
    if server.kind == "twin":
        return {}
    found = commandline.asked(profile_of(server), _argv(server))
    return {name: values for name, values in found.items() if len(values) > 1}


def provable(server: Server, setting: str) -> bool:
    """Whether anything is known to prove a setting: a line of the log, a field of the API, or how requests behave.

    Of a server that nothing tells the kind of, such as one behind a script, a setting of any known kind counts.
    """
    known = profile_of(server)
    kinds = (known,) if known.settings else tuple(profiles.PROFILES.values())
    return any(one.proof(one.setting_name(setting)) is not ProofKind.NONE for one in kinds)


def warmup(scenario: Scenario) -> Warmup | None:
    """Return the warm-up of a scenario that names none.

    The twin compiles nothing and needs none. Nor does the embedded server, whose first request only brings the model
    into memory: its profile's one is enough, where the usual one takes a minute. For others the usual one; of agents
    also with the longer prompts at which this kind of server does something else (PROTOCOL section 4: each concurrency
    x prompt length that will be used).
    """
    if scenario.warmup is not None or scenario.server.kind == "twin":
        return scenario.warmup
    known = profile_of(scenario.server).warmup
    if scenario.server.kind == "embedded":
        return Warmup(concurrency=known.concurrency, prompt_tokens=known.prompt_tokens)
    usual = scenario.usual_warmup
    if scenario.workload != "agents":
        return usual
    longer = [one for one in known.prompt_tokens if one > max(usual.prompt_tokens)]
    return usual.model_copy(update={"prompt_tokens": (*usual.prompt_tokens, *longer)})


def _argv(server: Server) -> list[str]:
    """Return the words of a server's command; one that cannot be split is refused elsewhere."""
    if server.launch is None:
        return list(server.args)
    try:
        return shlex.split(server.launch)
    except ValueError:
        return server.launch.split()
