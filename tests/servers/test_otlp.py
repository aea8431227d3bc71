"""Does the receiver take what an exporter of OpenTelemetry sends? Real sockets, real protobuf messages."""

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from agentload.errors import ArtifactError
from agentload.serverlogs import spans
from agentload.servers.otlp import MOST_BODY_BYTES, MOST_FILE_BYTES, Receiver, receiver
from tests.processes import WAIT_S

ATTRIBUTES: dict[str, Any] = {
    "gen_ai.request.id": "chatcmpl-agent7-turn3",
    "gen_ai.latency.time_to_first_token": 0.5,
    "gen_ai.latency.time_in_queue": 0.125,
    "gen_ai.latency.time_in_model_prefill": 0.25,
    "gen_ai.latency.time_in_model_decode": 1.5,
    "gen_ai.latency.e2e": 2.0,
    "gen_ai.usage.prompt_tokens": 692,
    "gen_ai.usage.completion_tokens": 24,
}
START, END = 1_795_962_196_000_000_000, 1_795_962_198_000_000_000
NOW = 1_795_962_199_000_000_000
FLAT = {
    "t": NOW,
    "service": "vllm-server",
    "scope": "vllm.tracing.otel",
    "name": "llm_request",
    "kind": 2,
    "start": START,
    "end": END,
    "trace_id": "0f" * 16,
    "span_id": "a1" * 8,
    "parent": "",
    "attrs": ATTRIBUTES,
}
PROTOBUF, JSON = "application/x-protobuf", "application/json"


class Stopped:
    """A clock that stands."""

    def now_ns(self) -> int:
        return NOW

    async def sleep_until(self, t_ns: int) -> None:
        raise NotImplementedError


@contextmanager
def receiving(most_bytes: int = MOST_FILE_BYTES) -> Iterator[tuple[Receiver, list[dict[str, Any]]]]:
    lines: list[dict[str, Any]] = []
    with receiver(lines.append, Stopped(), most_bytes) as made:
        yield made, lines


def value(one: Any) -> AnyValue:
    if isinstance(one, int):
        return AnyValue(int_value=one)
    return AnyValue(double_value=one) if isinstance(one, float) else AnyValue(string_value=one)


def message(number: int = 1) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=value("vllm-server")))
    scope = resource.scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    for _ in range(number):
        span = scope.spans.add()
        span.name, span.kind = "llm_request", Span.SPAN_KIND_SERVER
        span.trace_id, span.span_id = b"\x0f" * 16, b"\xa1" * 8
        span.start_time_unix_nano, span.end_time_unix_nano = START, END
        span.attributes.extend(KeyValue(key=key, value=value(one)) for key, one in ATTRIBUTES.items())
    return request


def as_json() -> bytes:
    def plain(one: Any) -> dict[str, Any]:
        if isinstance(one, int):
            return {"intValue": str(one)}
        return {"doubleValue": one} if isinstance(one, float) else {"stringValue": one}

    span = {
        "traceId": "0f" * 16,
        "spanId": "a1" * 8,
        "name": "llm_request",
        "kind": 2,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(END),
        "attributes": [{"key": key, "value": plain(one)} for key, one in ATTRIBUTES.items()],
    }
    about = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm-server"}}]}
    scopes = [{"scope": {"name": "vllm.tracing.otel"}, "spans": [span]}]
    return json.dumps({"resourceSpans": [{"resource": about, "scopeSpans": scopes}]}).encode()


def post(url: str, body: bytes | list[bytes], kind: str, path: str = "", **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=WAIT_S)
    try:
        chunked = isinstance(body, list)
        more = {name.replace("_", "-"): one for name, one in headers.items()}
        connection.request("POST", path or parts.path, body, {"Content-Type": kind, **more}, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_spans_of_a_protobuf_body_are_kept_as_they_were_received() -> None:
    with receiving() as (made, lines):
        status, answer = post(made.url, message().SerializeToString(), PROTOBUF)
        assert lines == [FLAT]
    assert status == 200
    assert ExportTraceServiceResponse.FromString(answer) == ExportTraceServiceResponse()
    assert lines == [FLAT, {"closed": {"received": 1, "dropped": 0, "refused": 0}}]


def test_spans_of_a_json_body_are_the_same_ones() -> None:
    with receiving() as (made, lines):
        assert post(made.url, as_json(), f"{JSON}; charset=utf-8") == (200, b"{}")
        assert lines == [FLAT]


def test_bodies_may_be_packed_or_in_chunks() -> None:
    body = message().SerializeToString()
    packed = gzip.compress(body)
    with receiving() as (made, lines):
        assert post(made.url, packed, PROTOBUF, Content_Encoding="gzip")[0] == 200
        assert post(made.url, [body[:100], body[100:]], PROTOBUF, Transfer_Encoding="chunked")[0] == 200
        assert lines == [FLAT, FLAT]


def test_one_connection_takes_several_exports() -> None:
    body = message().SerializeToString()
    with receiving() as (made, lines):
        parts = urlsplit(made.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=WAIT_S)
        for _ in range(3):
            connection.request("POST", parts.path, body, {"Content-Type": PROTOBUF})
            assert connection.getresponse().read() == b""
        assert len(lines) == 3
        connection.close()


def test_a_received_span_tells_when_its_request_was_prefilled() -> None:
    with receiving() as (made, lines):
        post(made.url, message().SerializeToString(), PROTOBUF)
        found = spans.request_of(lines[0])
    assert found is not None
    # first token 0.5 s behind the arrival, prefill 0.25 s before that
    assert (found.prefill_start, found.prefill_end) == (START + 250_000_000, START + 500_000_000)
    assert (found.decode_end, found.off_ns) == (START + 2_000_000_000, 0)


BOMB = gzip.compress(b"\0" * (MOST_BODY_BYTES + 1), mtime=0)


@pytest.mark.parametrize(
    ("body", "kind", "coding", "path", "status"),
    [
        (b"\xff\xff\xff", PROTOBUF, "", "", 400),
        (b"{}", JSON, "", "", 400),
        (b'{"resourceSpans": 1}', JSON, "", "", 400),
        (b"[" * 100_000, JSON, "", "", 400),
        (b"x", "text/plain", "", "", 415),
        (b"x", PROTOBUF, "br", "", 415),
        (b"x", PROTOBUF, "gzip", "", 400),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], PROTOBUF, "gzip", "", 400),
        (BOMB, PROTOBUF, "gzip", "", 413),
        (b"x", PROTOBUF, "", "/v1/logs", 404),
    ],
)
def test_a_body_that_is_none_is_refused_and_the_next_one_taken(
    body: bytes, kind: str, coding: str, path: str, status: int
) -> None:
    with receiving() as (made, lines):
        headers = {"Content_Encoding": coding} if coding else {}
        assert post(made.url, body, kind, path, **headers)[0] == status
        assert post(made.url, message().SerializeToString(), PROTOBUF)[0] == 200
        assert lines == [FLAT]
    assert lines[-1]["closed"]["refused"] == (0 if path else 1)


def test_a_body_of_unknown_length_is_refused() -> None:
    with receiving() as (made, _), socket.create_connection(("127.0.0.1", urlsplit(made.url).port or 0)) as one:
        one.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 411 ")


def test_what_is_above_the_room_for_spans_is_counted_only() -> None:
    room = 2 * len(json.dumps(FLAT)) + 100
    with receiving(room) as (made, lines):
        assert post(made.url, message(5).SerializeToString(), PROTOBUF)[0] == 200
    assert lines[-1] == {"closed": {"received": 2, "dropped": 3, "refused": 0}}
    assert len(lines) == 3


def test_a_full_disk_stops_the_file_and_nothing_else() -> None:
    def full(_: dict[str, Any]) -> None:
        raise ArtifactError("spans.jsonl: cannot be written: No space left on device")

    with receiver(full, Stopped()) as made:
        assert post(made.url, message(3).SerializeToString(), PROTOBUF)[0] == 200
    assert (made.received, made.dropped) == (0, 3)


def test_an_open_connection_does_not_hold_up_the_end() -> None:
    with receiving() as (made, lines):
        parts = urlsplit(made.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=WAIT_S)
        connection.request("POST", parts.path, message().SerializeToString(), {"Content-Type": PROTOBUF})
        assert connection.getresponse().read() == b""
    assert connection.sock.recv(1) == b""
    connection.close()
    assert lines == [FLAT, {"closed": {"received": 1, "dropped": 0, "refused": 0}}]


def test_values_that_json_has_not_become_text() -> None:
    request = message()
    (span,) = request.resource_spans[0].scope_spans[0].spans
    del span.attributes[:]
    span.attributes.append(KeyValue(key="nan", value=AnyValue(double_value=float("nan"))))
    span.attributes.append(KeyValue(key="raw", value=AnyValue(bytes_value=b"\x01\xff")))
    several = ArrayValue(values=[AnyValue(bool_value=True), AnyValue()])
    span.attributes.append(KeyValue(key="several", value=AnyValue(array_value=several)))
    with receiving() as (made, lines):
        post(made.url, request.SerializeToString(), PROTOBUF)
        assert lines[0]["attrs"] == {"nan": "nan", "raw": "01ff", "several": [True, None]}
