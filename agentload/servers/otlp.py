"""What did a server tell of its requests while it ran, by OpenTelemetry?

An OTLP/HTTP receiver on loopback, in threads of its own: it is there until the server has ended, also when a run is
broken off, since spans come some 0.5 s after a request's end and at the latest when the server stops. Protobuf and
JSON bodies, packed by gzip or not. Each span becomes one line of a file, as it is received: nothing is made of it here.
"""

import json
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from agentload.core.ports import Clock
from agentload.errors import ArtifactError
from agentload.serverlogs import spans

PATH: Final = "/v1/traces"
MOST_BODY_BYTES: Final = 1 << 24  # of an export, unpacked: an exporter of OpenTelemetry's SDK sends 512 spans, 0.5 MB
MOST_FILE_BYTES: Final = 1 << 28  # of spans: 500,000 requests
Append = Callable[[dict[str, Any]], None]

_PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"
_IDLE_S: Final = 30.0  # a connection that says nothing for so long is closed
_DEPTH: Final = 20  # of lists and tables in an attribute


class _RefusedError(Exception):
    """A body that cannot be taken: the status, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Receiver:
    """Takes exports and writes their spans; `url` is where they are to be sent."""

    def __init__(self, append: Append, clock: Clock, most_bytes: int) -> None:
        """Listen; see `receiver`."""
        self._append = append
        self._clock = clock
        self._left = most_bytes
        self._lock = Lock()
        self.received = 0  # spans that stand in the file
        self.dropped = 0  # spans that do not, since there is no room
        self.refused = 0  # exports that could not be read
        self._server = _Server(("127.0.0.1", 0), _Handler, self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="otlp", daemon=True)
        self._thread.start()

    def take(self, body: bytes, kind: str, coding: str) -> bytes:
        """Write the spans of one export, and return the answer's body.

        Raises:
            _RefusedError: it cannot be read.
        """
        try:
            found = _decoded(_unpacked(body, coding), kind)
        except _RefusedError:
            with self._lock:
                self.refused += 1
            raise
        now_ns = self._clock.now_ns()
        with self._lock:
            for one in found:
                self._write({"t": now_ns, **one})
        return b"{}" if kind == _JSON else ExportTraceServiceResponse().SerializeToString()

    def _write(self, line: dict[str, Any]) -> None:
        size = len(json.dumps(line))
        if size > self._left:
            self.dropped += 1
            return
        try:
            self._append(line)
        except ArtifactError:  # the disk is full: the run goes on, and its events say so
            self._left = 0
            self.dropped += 1
            return
        self._left -= size
        self.received += 1

    def close(self) -> None:
        """Take no more, and say in the last line what came."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        counts = {"received": self.received, "dropped": self.dropped, "refused": self.refused}
        with suppress(ArtifactError):
            self._append({"closed": counts})


@contextmanager
def receiver(append: Append, clock: Clock, most_bytes: int = MOST_FILE_BYTES) -> Iterator[Receiver]:
    """Receive spans while the block lasts.

    Args:
        append: takes one line of the file, a JSON object; called from several threads, one at a time. It may raise
            ArtifactError: nothing more is written then, and the run goes on.
        clock: gives the time at which a span was received.
        most_bytes: of spans; further ones are counted only.
    """
    made = Receiver(append, clock, most_bytes)
    try:
        yield made
    finally:
        made.close()


# ---- bodies ----------------------------------------------------------------------------------------------------------


def _unpacked(body: bytes, coding: str) -> bytes:
    if coding in ("", "identity"):
        return body
    if coding != "gzip":
        raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected gzip or no coding, got {coding[:40]}")
    try:
        unpacker = zlib.decompressobj(wbits=31)
        data = unpacker.decompress(body, MOST_BODY_BYTES)
    except zlib.error as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"expected gzip: {error}") from error
    if unpacker.unconsumed_tail:
        raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BODY_BYTES} bytes unpacked")
    if not unpacker.eof:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected gzip, it is cut off")
    return data


def _decoded(data: bytes, kind: str) -> list[spans.Span]:
    if kind == _JSON:
        try:
            found = spans.flattened(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"expected OTLP as JSON: {error}") from error
        if found is None:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected OTLP as JSON, there is no resourceSpans")
        return found
    if kind != _PROTOBUF:
        raise _RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected {_PROTOBUF} or {_JSON}, got {kind[:40] or 'none'}"
        )
    try:
        return list(_flat(ExportTraceServiceRequest.FromString(data)))
    except DecodeError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"expected OTLP as protobuf: {error}") from error


def _flat(request: ExportTraceServiceRequest) -> Iterator[spans.Span]:
    """Give each span in the shape that `spans.flattened` has."""
    for resource in request.resource_spans:
        about = {one.key: _plain(one.value) for one in resource.resource.attributes}
        service = about.get("service.name")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "service": service if isinstance(service, str) else "",
                    "scope": scope.scope.name,
                    "name": span.name,
                    "kind": int(span.kind),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "attrs": {one.key: _plain(one.value) for one in span.attributes},
                }


def _plain(value: AnyValue, left: int = _DEPTH) -> Any:
    """Return a value as JSON has it: what JSON has not (bytes, no finite number) becomes text."""
    which = value.WhichOneof("value")
    if which is None or left == 0:
        return None
    if which == "array_value":
        return [_plain(one, left - 1) for one in value.array_value.values]
    if which == "kvlist_value":
        return {one.key: _plain(one.value, left - 1) for one in value.kvlist_value.values}
    if which == "bytes_value":
        return value.bytes_value.hex()
    found = getattr(value, which)
    return str(found) if isinstance(found, float) and not abs(found) < float("inf") else found


# ---- HTTP ------------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """Its connections end with it."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], into: Receiver) -> None:
        self.into = into
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is the exporter's to make anew."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: _Server

    def do_POST(self) -> None:
        try:
            body = self._body()
            if self.path.partition("?")[0] != PATH:
                raise _RefusedError(HTTPStatus.NOT_FOUND, f"expected {PATH}")
            kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            coding = self.headers.get("Content-Encoding", "").strip().lower()
            self._answer(HTTPStatus.OK, self.server.into.take(body, kind, coding), kind)
        except _RefusedError as error:
            self.close_connection = True
            self._answer(error.status, str(error).encode(), "text/plain")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunks()
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
        if len(length) > 12 or int(length) > MOST_BODY_BYTES:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BODY_BYTES} bytes")
        return self.rfile.read(int(length))

    def _chunks(self) -> bytes:
        data = b""
        while True:
            size = self.rfile.readline(1000).partition(b";")[0].strip()
            try:
                wanted = int(size, 16)
            except ValueError as error:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected the length of a chunk") from error
            if not 0 <= wanted <= MOST_BODY_BYTES - len(data):
                raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BODY_BYTES} bytes")
            data += self.rfile.read(wanted)
            while (line := self.rfile.readline(1000)) not in (b"\r\n", b"\n", b""):  # trailers, behind the last one
                if wanted:
                    raise _RefusedError(HTTPStatus.BAD_REQUEST, f"expected a chunk of {wanted} bytes, got {line!r:.40}")
            if wanted == 0:
                return data

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the library has
        """Nothing is printed."""
