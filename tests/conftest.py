"""Fixtures that every test may use; the pinned corpora are fetched once a session from the environment's index."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from agentload.agents import corpora, workspace
from agentload.registry import IndexSettings, fetch
from tests.package_index import Index

# A machine that has other work to do too is slow at times: that is no failure of a property.
settings.register_profile("suite", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
# Hundreds of tests start a Python of their own; without this each would compile our sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# With it each part of a `print` is a write of its own, and a server's log has half a line now and then.
os.environ.pop("PYTHONUNBUFFERED", None)
# Typer and Rich take these for a terminal, whatever they write to; some CI systems set them.
for _name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERMINAL_WIDTH"):
    os.environ.pop(_name, None)
# Ignored signals are inherited: under `nohup` SIGHUP is, and SIGINT in what a script starts with `&`.
for _signal, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agentload-cache")


@pytest.fixture(scope="session")
def release(cache_dir: Path) -> Path:
    """The release file of both shipped corpora (0.4 MB)."""
    return fetch(corpora.load("tiny").pin(), cache_dir, IndexSettings.from_environment(os.environ))


@pytest.fixture(scope="session")
def tiny(cache_dir: Path, release: Path) -> workspace.Repository:
    return workspace.import_corpus(corpora.load("tiny"), release, cache_dir)


@pytest.fixture(scope="session")
def standard(cache_dir: Path, release: Path) -> workspace.Repository:
    return workspace.import_corpus(corpora.load("standard"), release, cache_dir)


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
