"""A chat endpoint that streams on the beat, for measuring how late a client's stamps are.

`python paced_server.py CORE` prints its port. A request's `model` field is "STREAMS:TICKS:RATE": when that many
requests have come, all of them get one chunk at each tick, in one burst as a batching server sends it. Every chunk
carries the time (Unix ns) taken just before its own send. When the streams are done, one line goes to stdout: how late
the bursts began, how long they took, and how many sends found a full socket.

One loop of sends over prebuilt bytes: the server must cost less than any client it is used to measure.
"""

import json
import os
import re
import socket
import sys
import time
from typing import Final

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_BEFORE: Final = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1795963586,"model":"bench",'
    b'"system_fingerprint":"b0","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}],"t":'
)
_AFTER: Final = b"}\n\n"
_STAMP_DIGITS: Final = 19
_EVENT_BYTES: Final = len(_BEFORE) + _STAMP_DIGITS + len(_AFTER)
_FRAMED_BEFORE: Final = b"%x\r\n" % _EVENT_BYTES + _BEFORE
_FRAMED_AFTER: Final = _AFTER + b"\r\n"
_LAST: Final = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1795963586,"model":"bench",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_TAIL: Final = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_LAST), _LAST)


def _read_request(sock: socket.socket) -> bytes:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += sock.recv(65536)
    found = re.search(rb"content-length: *(\d+)", data[:end], re.IGNORECASE)
    length = int(found[1]) if found is not None else 0
    while len(data) < end + 4 + length:
        data += sock.recv(65536)
    return data[end + 4 :]


def _percentile(values: list[int], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] / 1e6


def _serve_batch(server: socket.socket) -> dict[str, float]:
    streams: list[socket.socket] = []
    wanted, ticks, rate = 1, 0, 1.0
    while len(streams) < wanted:
        sock, _ = server.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wanted_text, ticks_text, rate_text = json.loads(_read_request(sock))["model"].split(":")
        wanted, ticks, rate = int(wanted_text), int(ticks_text), float(rate_text)
        sock.sendall(_HEAD)
        sock.setblocking(False)
        streams.append(sock)
    begin_late, burst = [], []
    full = 0
    sends = [sock.send for sock in streams]
    start = time.monotonic_ns() + 500_000_000
    for tick in range(ticks):
        due = start + int(tick * 1e9 / rate)
        while (ahead := due - time.monotonic_ns()) > 0:
            time.sleep(ahead / 1e9)
        begun = time.monotonic_ns()
        for send in sends:
            try:
                send(b"%b%d%b" % (_FRAMED_BEFORE, time.time_ns(), _FRAMED_AFTER))
            except BlockingIOError:
                full += 1
        begin_late.append(begun - due)
        burst.append(time.monotonic_ns() - begun)
    for sock in streams:
        sock.setblocking(True)
        sock.sendall(_TAIL)
    for sock in streams:
        sock.close()
    return {
        "begin_late_p50_ms": _percentile(begin_late, 0.5),
        "begin_late_p99_ms": _percentile(begin_late, 0.99),
        "burst_p50_ms": _percentile(burst, 0.5),
        "burst_p99_ms": _percentile(burst, 0.99),
        "full": full,
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve batches until killed."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        _say(str(server.getsockname()[1]))
        while True:
            _say(json.dumps(_serve_batch(server)))


if __name__ == "__main__":
    main()
