"""How late does a token of `agentload twin serve` reach its client, against the time at which it was decoded?

    python tests/bench/bench_http_face.py [--streams 6] [--tokens 150] [--speed 1]

The server is a process of its own, the client stamps each receive (agents.transport). A token's own time is the end of
its decode step, from the ground truth; both processes carry the same wall clock on by the monotonic clock.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from agentload.agents.chat import OpenAITransport, list_models
from agentload.clock import SystemClock
from agentload.core.records import ChatCall, Completion
from agentload.errors import EndpointError
from agentload.servers.process import free_port

LIMIT_P50_MS, LIMIT_P99_MS = 2.0, 20.0


async def ask(port: int, streams: int, tokens: int) -> list[Completion]:
    clock = SystemClock()
    url = f"http://127.0.0.1:{port}/v1"
    while True:
        try:
            await list_models(url, clock)
            break
        except EndpointError:
            await asyncio.sleep(0.05)
    async with OpenAITransport(url, "deepseek-v4-flash", clock) as transport:
        return list(
            await asyncio.gather(
                *(
                    transport.complete(
                        ChatCall(
                            *(f"q{number}", f"a{number}", 0),
                            messages=({"role": "user", "content": f"Question {number} " * (50 + number)},),
                            max_tokens=tokens,
                            extra={"ignore_eos": True, "think": False},
                        )
                    )
                    for number in range(streams)
                )
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.jsonl"
        argv = [sys.executable, "-c", "from agentload.cli import main; main()", "twin", "serve", "--port", str(port)]
        argv += ["--speed", str(options.speed), "--truth", str(truth)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as server:
            answers = asyncio.run(ask(port, options.streams, options.tokens))
            server.terminate()
        events = [json.loads(line) for line in truth.read_text().splitlines()]
    ends: dict[str, list[int]] = {}
    for one in events:
        if one.get("kind") == "decode_step":
            for request in one["requests"]:
                ends.setdefault(request, []).append(one["end_ns"])
    # All prompts differ in length: that tells whose answer it is.
    names = {one["prompt_tokens"]: one["request"] for one in events if one.get("kind") == "request"}
    late: list[float] = []
    for answer in answers:
        assert answer.error is None, answer.error
        assert answer.usage is not None
        decoded = ends[names[answer.usage.prompt_tokens]]
        assert len(decoded) == options.tokens
        # Each token carries text, but for the end of thinking, which is none here.
        stamps = answer.token_ns[-len(decoded) :]
        assert len(stamps) == len(decoded), (len(stamps), len(decoded))
        late += [(stamp - end) / 1e6 for stamp, end in zip(stamps, decoded, strict=True)]
    p50, p99, worst = (float(np.quantile(late, at)) for at in (0.5, 0.99, 1.0))
    sys.stdout.write(
        f"{options.streams} streams, {len(late)} tokens, speed {options.speed:g}: late by p50 {p50:.2f} ms, "
        f"p99 {p99:.2f} ms, at most {worst:.2f} ms, at least {min(late):.2f} ms\n"
    )
    return 0 if p50 <= LIMIT_P50_MS and p99 <= LIMIT_P99_MS else 1


if __name__ == "__main__":
    sys.exit(main())
