"""A server that counts, logs and sends spans as vLLM does; a program for --launch. No model, no waiting.

`python -m tests.run.vllm_like --port N [--truth FILE] [--otlp-traces-endpoint URL] [--answer-metrics] [--no-metrics]`

It writes to FILE one line a request: the phases that it claims, in whole ns. Its spans are made with the real protobuf
messages and sent, packed, over a real socket.
"""

import argparse
import gzip
import http.client
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.processes import WAIT_S

PROMPT, CACHED, DECODED = 700, 96, 25  # tokens of every request
DRAFTS, DRAFTED, ACCEPTED = 8, 24, (8, 6, 2)  # of every request: steps = drafts, 1 + 8 + 16 tokens
STAMP = "11-29 14:01:30"


class Model:
    """What the server counted."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.lock = Lock()
        self.requests = 0
        self.log(f"(APIServer pid=7) INFO {STAMP} [api_utils.py:286] non-default args: {{'port': {given.port}}}")

    def log(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def metrics(self) -> str:
        label, done = '{engine="0",model_name="m"}', self.requests
        accepted = "".join(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="{place}"}} '
            f"{float(tokens * done)}\n"
            for place, tokens in enumerate(ACCEPTED)
        )
        sources = (("local_compute", PROMPT - CACHED), ("local_cache_hit", CACHED), ("external_kv_transfer", 0))
        by_source = "".join(
            f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="{name}"}} {float(tokens * done)}\n'
            for name, tokens in sources
        )
        counters = {
            "prompt_tokens_total": PROMPT * done,
            "generation_tokens_total": DECODED * done,
            "request_prompt_tokens_sum": PROMPT * done,
            "request_generation_tokens_sum": DECODED * done,
            "num_preemptions_total": 0,
            "request_queue_time_seconds_sum": 0.5 * done,
            "request_queue_time_seconds_count": done,
            "request_prefill_time_seconds_sum": 2.0 * done,
            "request_prefill_time_seconds_count": done,
            "request_decode_time_seconds_sum": 4.0 * done,
            "request_decode_time_seconds_count": done,
            "time_to_first_token_seconds_sum": 2.5 * done,
            "time_to_first_token_seconds_count": done,
            "inter_token_latency_seconds_count": DRAFTS * done,
            "spec_decode_num_drafts_total": DRAFTS * done,
            "spec_decode_num_draft_tokens_total": DRAFTED * done,
            "spec_decode_num_accepted_tokens_total": sum(ACCEPTED) * done,
            "num_requests_running": 0,
            "num_requests_waiting": 0,
        }
        lines = "".join(f"vllm:{name}{label} {float(value)}\n" for name, value in counters.items())
        return f"process_start_time_seconds 1795961290.88\n{lines}{by_source}{accepted}"

    def send(self, span: dict[str, Any], arrived: int, ended: int) -> None:
        request = ExportTraceServiceRequest()
        scope = request.resource_spans.add().scope_spans.add()
        scope.scope.name = "vllm.tracing.otel"
        made = scope.spans.add()
        made.name, made.kind = "llm_request", 2
        made.trace_id, made.span_id = arrived.to_bytes(16, "big"), ended.to_bytes(8, "big")
        made.start_time_unix_nano, made.end_time_unix_nano = arrived, ended
        for key, one in span.items():
            kinds = {int: "int_value", float: "double_value", str: "string_value"}
            made.attributes.append(KeyValue(key=key, value=AnyValue(**{kinds[type(one)]: one})))
        url = urlsplit(self.given.otlp_traces_endpoint)
        connection = http.client.HTTPConnection(url.hostname or "", url.port or 0, timeout=WAIT_S)
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        connection.request("POST", url.path, gzip.compress(request.SerializeToString()), headers)
        assert connection.getresponse().status == 200
        connection.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def _answer(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._answer(json.dumps({"object": "list", "data": [{"id": "m", "max_model_len": 8192}]}).encode())
        elif self.path == "/metrics" and not self.model.given.no_metrics:
            self._answer(self.model.metrics().encode(), "text/plain; version=0.0.4")
        elif self.path == "/health":
            self._answer(b"")
        else:
            self._answer(b"{}", status=404)

    def do_POST(self) -> None:
        arrived = time.time_ns()
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.model.lock:
            self.model.requests += 1
            name = f"chatcmpl-{self.model.requests}"
        self.model.log(
            f"(APIServer pid=7) INFO {STAMP} [logger.py:44] Received request {name}: params: SamplingParams(n=1), "
            "lora_request: None."
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        first = time.time_ns()
        self._event(name, choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        self._event(name, choices=[{"index": 0, "delta": {"content": "a word"}, "finish_reason": None}])
        last = time.time_ns()
        self._event(name, choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])
        usage = {
            "prompt_tokens": PROMPT,
            "completion_tokens": DECODED,
            "prompt_tokens_details": {"cached_tokens": CACHED},
        }
        prefill_ns = (first - arrived) // 2
        extra = {}
        if self.model.given.answer_metrics:
            extra["metrics"] = {
                "time_to_first_token_ms": prefill_ns / 1e6,
                "generation_time_ms": (last - first) / 1e6,
                "queue_time_ms": 0.0,
            }
        self._event(name, choices=[], usage=usage, **extra)
        ended = time.time_ns()
        if self.model.given.truth:
            told = {"id": name, "prefill": [first - prefill_ns, first], "decode": [first, last]}
            with self.model.lock, Path(self.model.given.truth).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
        if self.model.given.otlp_traces_endpoint:
            span = {
                "gen_ai.request.id": name,
                "gen_ai.latency.time_to_first_token": (first - arrived) / 1e9,
                "gen_ai.latency.time_in_queue": 0.0,
                "gen_ai.latency.time_in_model_prefill": prefill_ns / 1e9,
                "gen_ai.latency.time_in_model_decode": (last - first) / 1e9,
                "gen_ai.latency.e2e": (last - arrived) / 1e9,
                "gen_ai.usage.prompt_tokens": PROMPT,
                "gen_ai.usage.completion_tokens": DECODED,
            }
            self.model.send(span, arrived, ended)
        # Last: with the answer's end the run may be over, and this server ended.
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, name: str, **fields: Any) -> None:
        self._chunk(b"data: " + json.dumps({"id": name, "model": "m", "created": 1, **fields}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--truth")
    parser.add_argument("--otlp-traces-endpoint")
    parser.add_argument("--answer-metrics", action="store_true")
    parser.add_argument("--no-metrics", action="store_true")
    Handler.model = Model(parser.parse_args())
    server = ThreadingHTTPServer(("127.0.0.1", Handler.model.given.port), Handler)
    server.daemon_threads = True
    Handler.model.log("INFO:     Application startup complete.")
    server.serve_forever()


if __name__ == "__main__":
    main()
