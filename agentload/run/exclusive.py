"""Is another agentload at work on this experiment's directory, or with a server at this address?"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from agentload import folders
from agentload.artifacts.alive import Hold
from agentload.errors import UsageError
from agentload.registry import default_cache_dir
from agentload.run import launching, serving
from agentload.run.scenario import Server
from agentload.servers.here import LOOPBACK, is_here


def address(server: Server, env: Mapping[str, str]) -> str | None:
    """Return HOST:PORT of a server whose address is known beforehand; None: it gets a free port, or is the twin."""
    chosen, _ = serving.choose(server, env)
    if chosen.base_url is not None:
        parts = urlsplit(chosen.base_url)
        host = LOOPBACK if is_here(chosen.base_url) else parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{host}:{port}"
    given = launching.fixed_address(chosen)
    return None if given is None else f"{LOOPBACK}:{given[1]}"


@contextmanager
def alone(folder: Path, servers: Iterable[Server], env: Mapping[str, str], hold: Hold | None = None) -> Iterator[None]:
    """Be the only agentload that works on the experiment in `folder`, and with servers at these addresses.

    With `hold` the caller is the only one in the folder already.

    Raises:
        ArtifactError: another one writes the directory.
        UsageError: another one's experiment has a server at one of the addresses.
        InputError: the cache folder, in which the addresses' locks are, cannot be used.
    """
    with ExitStack() as held:
        if hold is None:
            held.callback(Hold(folder, wait=False).release)
        for one in sorted({found for server in servers if (found := address(server, env)) is not None}):
            held.enter_context(_address_held(one, folder, default_cache_dir(env) / "addresses"))
        yield


@contextmanager
def _address_held(where: str, folder: Path, locks: Path) -> Iterator[None]:
    path = locks / where.replace(":", "-")
    with folders.usable(locks.parent):
        locks.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(file, 2000, 0).decode(errors="replace").strip()
            raise UsageError(
                f"{where}: another experiment has its server there ({holder or 'it does not say which'}): wait for its "
                "end, or give another port"
            ) from error
        with folders.usable(locks.parent):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{folder.absolute()}, pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
