"""Does the server's log show a request that has not ended?

Servers write a request's last lines after the client has its last byte, so the end marker waits for them. The watch
reads what was added to the log since it last looked, from where it was set up.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agentload.core.ports import LogReader
from agentload.errors import InputError
from agentload.serverlogs import formats, wrapped

_PIECE_BYTES: Final = 1 << 20


class LogWatch:
    """Follows one log file with a reader of its format."""

    def __init__(
        self,
        path: Path,
        log_format: str | None,
        offset: int = 0,
        pieces: Callable[[int], Iterator[bytes]] | None = None,
    ) -> None:
        """Start at byte `offset`; `log_format` None: detected from the file's head at the first look.

        `pieces` gives the log's bytes from an offset on, of one that `path` may not name for ever.
        """
        self._path = path
        self._pieces = self._of_path if pieces is None else pieces
        self._format = log_format
        self._offset = offset
        self._reader: LogReader | None = None

    @property
    def log_format(self) -> str | None:
        """The format's name, once it is known."""
        return self._format

    def why_unknown(self, *, attached: bool) -> str | None:
        """Say why no line so far is of a known format, and what helps; None when that cannot be told.

        Raises:
            InputError: the log was rotated away or cannot be read.
        """
        return wrapped.why_unknown(self._head(), str(self._path) if attached else None, grows=True)

    def _head(self) -> bytes:
        try:
            return next(self._pieces(0), b"")[: formats.HEAD_BYTES]
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from error

    def open_requests(self) -> int | None:
        """Return how many requests are open now; None when the log's format is not known. Blocks on the file.

        Raises:
            InputError: the log was rotated away or cannot be read.
        """
        try:
            return self._look()
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from error

    def _look(self) -> int | None:
        if self._format is None:
            self._format = formats.detect(self._head())
        if self._format is None:
            return None
        if self._reader is None:
            self._reader = formats.by_name(self._format).reader()
        for data in self._pieces(self._offset):
            self._offset += len(data)
            self._reader.feed(data)
        return self._reader.open_requests()

    def _of_path(self, offset: int) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(offset)
            while data := file.read(_PIECE_BYTES):
                yield data
