"""What exactly is started for a run: which words, with which environment, and which folder of its own?"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from agentload import folders
from agentload.core.ports import Clock
from agentload.run import download, launching, tracing
from agentload.run.scenario import Server
from agentload.run.waiting import abandonable
from agentload.servers import embedded, settings
from agentload.servers.process import free_port
from agentload.servers.profiles import Profile
from agentload.servers.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Command:
    """What is started, and where it will answer."""

    argv: list[str]
    base_url: str
    env: dict[str, str]
    asking: dict[str, str]  # what of `env` asks for a setting
    log_format: str | None


async def command(
    server: Server,
    slots: int,
    environment: Mapping[str, str],
    clock: Clock,
    say: Callable[[str], None],
    kv_dir: Path | None = None,
    spans_to: str | None = None,
) -> Command:
    """Return what is to be started for a server that is launched or embedded.

    Args:
        server: it has passed `serving.check`.
        slots: requests at a time, of the embedded server.
        environment: agentload's own.
        clock: of the downloads.
        say: takes a line for the person who waits.
        kv_dir: what stands for {kv_dir}.
        spans_to: where a vLLM that is launched is to send its spans; None: nowhere.

    Raises:
        UsageError, ServerError, FetchError: the port is taken, the extra is not installed, the model cannot be had.
    """
    env = {name: value for name, value in environment.items() if name != "OPENAI_API_KEY"}
    if server.kind != "embedded":
        argv, base_url = launching.command(server, kv_dir)
        given = launching.environment(server, base_url, kv_dir)
        if spans_to is not None:
            argv += tracing.words(spans_to)
            given = tracing.variables(env | given) | given
        env |= given
        asking = {name: env[name] for name in settings.VARIABLES if name in env} | given
        return Command(argv, base_url, env, asking, server.log_format)
    embedded.require()
    model = await abandonable(partial(download.model, environment, clock, say))
    port = free_port()
    slots = min(slots, embedded.MOST_SLOTS)
    env |= server.env  # it reads no variable that asks for a setting, but libraries in it may
    # The launcher must find this very package, also from another working directory.
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_package_parent()), env.get("PYTHONPATH"))))
    argv = embedded.argv(model, port, slots, server.args)
    return Command(argv, f"http://127.0.0.1:{port}/v1", env, dict(server.env), server.log_format or "llamacpp")


@contextmanager
def kv_folder(watchdog: Watchdog, say: Callable[[str], None]) -> Iterator[Path]:
    """Make a fresh folder for the server's KV cache; it is gone when the server has ended, or agentload was killed."""
    with folders.temporary("agentload-kv-") as folder:
        watchdog.remove_on_death(folder)
        yield folder
    if folder.exists():  # a container's files belong to another user
        say(f"{folder}: the server's KV cache could not be removed: remove it")


def say_what_it_inherits(
    profile: Profile, argv: Sequence[str], kv_dir: Path | None, say: Callable[[str], None]
) -> None:
    """Say which folder given to the server holds what another one left there."""
    for flag, following in pairwise(argv):
        if flag in profile.state_flags and (kv_dir is None or str(kv_dir) not in following) and _filled(following):
            say(
                f"{flag} {following} is not empty: the server starts with what another left there ({profile.state}); "
                f"{{kv_dir}} in its place is a fresh folder for each start"
            )


def _filled(folder: str) -> bool:
    try:
        return any(Path(folder).iterdir())
    except OSError:
        return False


def _package_parent() -> Path:
    return Path(__file__).resolve().parents[2]
