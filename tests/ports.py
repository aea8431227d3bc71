"""A port at which nobody listens, as long as the test needs that: one that was closed may soon be another test's."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody() -> Iterator[int]:
    """Hold a port of 127.0.0.1 without listening: who connects is refused, and no one else is given it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port
