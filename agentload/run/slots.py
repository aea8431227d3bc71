"""Does the server take as many requests at once as a probe has open at one time?

With fewer slots than decoders, some of them always wait, and the prompt, which comes when all write, never would; with
one slot less than all need, the prompt waits for a decoder's turn to end. Looked at twice: before anything is started,
by what starts it, and before the first request, by what the server says of itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from agentload.errors import UsageError
from agentload.run import twin_settings
from agentload.run.doctor import advice
from agentload.run.scenario import Scenario, Server
from agentload.run.serving import Served
from agentload.run.workloads import Probe
from agentload.serverlogs import formats
from agentload.servers import embedded
from agentload.servers.commandline import asked, by_environment
from agentload.servers.process import split_command
from agentload.servers.profiles import PROFILES, Value, profile_for

_NAMES: Final = ("resident_sessions", "n_slots", "max_num_seqs", "max_running_requests")  # in the order of looking
_MOST_LOG_BYTES: Final = 6 << 20  # of a longer log the last start may stand anywhere, and that one counts


@dataclass(frozen=True, slots=True)
class Slots:
    """How many requests a server takes at once, and what says so."""

    count: int
    by: str
    software: str | None


def check(scenario: Scenario, env: Mapping[str, str]) -> None:
    """Refuse a probe for which the server that is to be started will have too few slots; `scenario` is resolved.

    Raises:
        UsageError: it has too few.
    """
    if scenario.workload == "probe":
        _enough(scenario, _to_be(scenario.server, env))


async def check_served(scenario: Scenario, served: Served) -> None:
    """Refuse a probe for which the server that answers has too few slots, as far as its API or its log tells.

    Raises:
        UsageError: it has too few.
    """
    if scenario.workload == "probe" and served.simulated is None:  # of which all is known before
        _enough(scenario, _by_api(served) or await to_thread.run_sync(_by_log, served))


def _enough(scenario: Scenario, slots: Slots | None) -> None:
    needed = scenario.at_once
    if slots is None or slots.count >= needed:
        return
    probe = scenario.probe or Probe()
    load = max(probe.loads, key=lambda one: one.decoders + one.prompts)
    decoders = f"{load.decoders} decoder{'s' * (load.decoders != 1)}"
    prompts = f"{load.prompts} cold prompt{'s' * (load.prompts != 1)}"
    at_least = "" if slots.software == "embedded" else f"{_more(slots.software, needed)}, or "
    raise UsageError(
        f"probe: expected a slot for each of {decoders} and {prompts}, {needed} in all, the server has {slots.count} "
        f"({slots.by}): {at_least}ask for fewer (--decoders, --prompts)"
    )


def _more(software: str | None, needed: int) -> str:
    """What gives a server so many slots."""
    if software == "simulated":
        return f"--set batched_session={needed}"
    if software == "twin":
        return f"start agentload twin serve with --batched-session {needed}"
    return advice.slots(software, needed) or "start it with more"


def _to_be(server: Server, env: Mapping[str, str]) -> Slots | None:
    if server.kind == "twin":
        return Slots(twin_settings.options(server.set or {}).batched_session, "batched_session", "simulated")
    if server.kind == "embedded":
        return Slots(embedded.MOST_SLOTS, "the most that the embedded one is given", "embedded")
    if server.launch is None:
        return None
    argv = split_command(server.launch)
    profile = profile_for(server.software, argv, server.log_format)
    given = {name: values[-1] for name, values in asked(profile, argv).items() if values}
    given = by_environment(profile, dict(env) | server.env) | given
    for name in _NAMES:
        option = profile.option(name)
        if option is None or given.get(name) in (None, *option.free):
            continue
        if (count := _count(given[name])) is not None:
            return Slots(count, f"--launch: {(*option.flags, name)[0]} {count}", profile.name)
    return None


def _by_api(served: Served) -> Slots | None:
    facts = served.facts
    if facts is None or facts.software is None or facts.software not in PROFILES:
        return None
    for name in _NAMES:
        option = PROFILES[facts.software].option(name)
        for field in () if option is None else option.fields:
            endpoint, _, key = field.rpartition(" ")
            if (count := _count(facts.api.get(endpoint, {}).get(key))) is not None:
                return Slots(count, field, facts.software)
    return None


def _by_log(served: Served) -> Slots | None:
    path = served.owned.log if served.owned is not None else served.attached.path if served.attached else None
    log_format = None if served.watch is None else served.watch.log_format
    if path is None:
        return None
    settings = _settings(path, log_format)
    software = None if served.facts is None else served.facts.software
    for name in _NAMES:
        if (count := _count(settings.get(name))) is not None:
            return Slots(count, f"its log: {name}", software)
    if settings.get("batched") is False:  # ds4 without slots takes one request at a time
        return Slots(1, "its log: not in batched mode", software)
    return None


def _settings(path: Path, log_format: str | None) -> dict[str, Value]:
    """Return what a log's last start states; nothing of a log that is too long to look for it, or cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_LOG_BYTES + 1)
    except OSError:  # whoever needs the log says so
        return {}
    if len(data) > _MOST_LOG_BYTES:
        return {}
    found = formats.read([data], log_format).facts.settings
    last = max((one.boot for one in found), default=0)
    return {one.name: one.value for one in found if one.boot == last}


def _count(value: Value | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
