"""Does the server's log show a request that has not ended?

Servers write a request's last lines after the client has its last byte, so the end marker waits for them. The watch
reads what was added to the log since it last looked, from where it was set up.
"""

from pathlib import Path

from agentload.core.ports import LogReader
from agentload.errors import InputError
from agentload.serverlogs import formats


class LogWatch:
    """Follows one log file with a reader of its format."""

    def __init__(self, path: Path, log_format: str | None, offset: int = 0) -> None:
        """Start at byte `offset`; `log_format` None: detected from the file's head at the first look."""
        self._path = path
        self._format = log_format
        self._offset = offset
        self._reader: LogReader | None = None

    @property
    def log_format(self) -> str | None:
        """The format's name, once it is known."""
        return self._format

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
            with self._path.open("rb") as file:
                self._format = formats.detect(file.read(formats.HEAD_BYTES))
        if self._format is None:
            return None
        if self._reader is None:
            self._reader = formats.by_name(self._format).reader()
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while data := file.read(1 << 20):
                self._offset += len(data)
                self._reader.feed(data)
        return self._reader.open_requests()
