"""What is to be written down of a server that has just got ready, to prove later what was in force?

Its kind, the command lines and files that really serve (servers.identity), and what its API says (servers.api). The
start-up log is the best proof of all, and stands in the run directory; these are what it does not tell.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread

from agentload.serverlogs import formats
from agentload.servers import api, identity
from agentload.servers.here import is_here
from agentload.servers.process import ServerProcess
from agentload.servers.profiles import UNKNOWN, Profile, first_known, profile_for


@dataclass(frozen=True, slots=True)
class Facts:
    """As the manifest has them; None where there was no process of ours to look at."""

    software: str | None  # the profile's name
    api: api.Snapshot
    identity: dict[str, Any] | None = None
    commands: list[dict[str, Any]] | None = None


async def of_process(
    process: ServerProcess,
    base_url: str,
    *,
    software: str | None = None,
    log_format: str | None = None,
    api_key: str | None = None,
) -> Facts:
    """Return the facts of a server that was started and is ready.

    Args:
        process: the server.
        base_url: its address.
        software: the profile's name, where the user says it.
        log_format: the same of its log.
        api_key: the bearer token, where there is one; it is in none of the facts.
    """
    port = urlsplit(base_url).port if is_here(base_url) else None
    keys = () if api_key is None else (api_key,)
    found = await to_thread.run_sync(lambda: identity.look(process.family(), port, keys))
    log_format = log_format or await to_thread.run_sync(_detect, process.pump.log)
    lines = [process.argv, *(one["argv"] for one in found.commands)]
    profile = first_known(software, lines, log_format)
    told = await api.snapshot(base_url, profile, api_key=api_key)
    return Facts(_name(profile), told, found.identity, found.commands)


async def of_endpoint(
    base_url: str, *, software: str | None = None, log_format: str | None = None, api_key: str | None = None
) -> Facts:
    """Return the facts of a server that somebody else started: what its API says."""
    profile = profile_for(software, (), log_format)
    return Facts(_name(profile), await api.snapshot(base_url, profile, api_key=api_key))


def _name(profile: Profile) -> str | None:
    return None if profile is UNKNOWN else profile.name


def _detect(log: Path) -> str | None:
    try:
        with log.open("rb") as file:
            return formats.detect(file.read(formats.HEAD_BYTES))
    except OSError:  # whoever needs the log says so
        return None
