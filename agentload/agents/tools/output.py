"""How much of a tool's output does the model read, and what of it is kept?

The limit changes from call to call (min(50 KB, what the context still holds / turns left)), so a tool is given an
`OutputLimit` when it is made: a function without arguments, asked at the start of each call. The agent owns the number
behind it (`lambda: agent.output_limit_bytes`) and sets it before the call; the Tool protocol needs no further method.
"""

from collections.abc import Callable

OutputLimit = Callable[[], int]  # the most bytes (UTF-8) that the next result's text may have

DEFAULT_LIMIT_BYTES = 50_000
_NOTE_ROOM_BYTES = 64  # the longest note: "\n[... 20 digits bytes cut here ...]\n" is 46


class HeadTail:
    """Takes any number of bytes and keeps the first and the last, `limit_bytes` in all; memory stays within twice that.

    Of a log's head and tail both matter (the command's first error, its last word), the middle least.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes: expected 0 or more, got {limit_bytes}")
        self._limit = limit_bytes
        self._half = max(0, limit_bytes - _NOTE_ROOM_BYTES) // 2
        self._head = bytearray()  # up to the limit: all of it is shown when nothing more comes
        self._tail = bytearray()
        self.total = 0  # bytes taken

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if len(data) > room else b""
        if len(self._tail) > self._limit:
            del self._tail[: len(self._tail) - self._half]

    @property
    def truncated(self) -> bool:
        """Whether bytes were cut."""
        return self.total > self._limit

    def text(self) -> str:
        """Return what was kept, at most `limit_bytes` as UTF-8, with a line that says how many bytes were cut.

        Bytes that are no UTF-8 become "?", one for each faulty sequence, so that the text is never longer than they.
        """
        if not self.truncated:
            return _decode(bytes(self._head))
        # A character cut in two is left out whole; what was left out counts as cut.
        head = _without_torn_end(bytes(self._head[: self._half]))
        rest = bytes(self._head[self._half :] + self._tail)
        tail = _without_torn_start(rest[len(rest) - self._half :])
        note = f"\n[... {self.total - len(head) - len(tail)} bytes cut here ...]\n"
        return f"{_decode(head)}{note}{_decode(tail)}" if self._half else note.strip()[: self._limit]


def cap(text: str, limit_bytes: int) -> str:
    """Return `text` with its middle cut out where it has more than `limit_bytes` as UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return text
    kept = HeadTail(limit_bytes)
    kept.feed(data)
    return kept.text()


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\ufffd", "?")


def _without_torn_end(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return data
        if byte >= 0xC0:  # the first byte of a character of 2 to 4 bytes
            whole = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return data if back >= whole else data[:-back]
    return data


def _without_torn_start(data: bytes) -> bytes:
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
