"""Which events does a stream of bytes carry, and when was each one complete?

Server-sent events as the WHATWG HTML standard defines them (section "Server-sent events", parsing an event stream),
read from stamped pieces of any size. Pure and incremental: however the same bytes are cut into pieces, the same events
come out; only the stamps follow the cuts.

The stamp of an event is that of the piece in which its blank line became visible, because that is the first moment at
which any client could have acted on it. With CRLF the standard ends a line at the CR, so an LF that arrives in the
next piece does not make the event later.

JSON is not decoded here, so that a whole answer can be cut into events after its request is done.
"""

from dataclasses import dataclass
from typing import Final

MESSAGE: Final = "message"  # the standard's name for an event without an `event:` line
ERROR: Final = "error"

_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 0x0D
_LF: Final = 0x0A


@dataclass(frozen=True, slots=True)
class Event:
    """One event with data."""

    t_ns: int  # stamp of the piece that completed it
    name: str
    data: bytes  # the data lines, joined by newlines


class SseParser:
    """Takes stamped pieces, gives events.

    `comments` counts comment lines (`: keepalive`) of complete blocks. A block without data is no event. `id` and
    `retry` have no meaning for one answer and are skipped. Beside the standard, a line `error: DATA`, which older
    llama.cpp servers send, is an event named error.
    """

    __slots__ = ("_after_cr", "_first", "_pending", "comments")

    def __init__(self) -> None:
        self.comments = 0
        self._pending = bytearray()  # of the block that is not complete yet, with LF line ends
        self._after_cr = False  # the last byte was a CR: an LF that follows belongs to it
        self._first = True

    @property
    def rest(self) -> bytes:
        """Bytes of the block whose blank line has not come, line ends as LF; the standard drops them at the end."""
        return bytes(self._pending)

    def feed(self, t_ns: int, piece: bytes) -> list[Event]:
        """Take the next piece, received at `t_ns`; return the events that it completes."""
        if self._after_cr and piece:
            self._after_cr = False
            if piece[0] == _LF:
                piece = piece[1:]
        if b"\r" in piece:
            self._after_cr = piece[-1] == _CR
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pending = self._pending
        look_from = max(len(pending) - 1, 0)  # its last byte may be the first of the blank line's two newlines
        pending += piece
        events: list[Event] = []
        begin = 0
        while (end := pending.find(b"\n\n", look_from)) >= 0:
            event = self._event(t_ns, bytes(pending[begin:end]))
            if event is not None:
                events.append(event)
            begin = look_from = end + 2
        del pending[:begin]
        return events

    def _event(self, t_ns: int, block: bytes) -> Event | None:
        if self._first:
            self._first = False
            block = block.removeprefix(_BOM)
        if block.startswith(b"data: ") and b"\n" not in block:  # nearly every event of an answer
            return Event(t_ns, MESSAGE, block[6:])
        data: list[bytes] = []
        name = MESSAGE
        for line in block.split(b"\n"):
            if line.startswith(b":"):
                self.comments += 1
                continue
            label, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if label == b"data":
                data.append(value)
            elif label == b"event":
                name = value.decode("utf-8", "replace") or MESSAGE
            elif label == b"error":
                name = ERROR
                data.append(value)
        return Event(t_ns, name, b"\n".join(data)) if data else None
