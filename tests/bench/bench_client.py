"""How late is the client's stamp of a chunk, and what does a chunk cost it?

`python tests/bench/bench_client.py` prints a table: for 50 and 200 streams at 20 chunks/s, the lateness of the stamp
(client's stamp minus the server's time just before the send) and the client's CPU time per chunk, requests included;
medians of three runs. Client on core 0, server (paced_server.py) on core 1, one process each. The client "raw" only
receives and stamps: what it shows is the machine's and the server's share, on a shared machine often the larger one.
"""

import argparse
import asyncio
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import openai

from agentload.agents.chat import OpenAITransport
from agentload.core.records import ChatCall

_CLIENTS: Final = ("raw", "ours", "sdk")
_MESSAGE: Final = {"role": "user", "content": "go"}


class _UnixClock:
    """The benchmark's clock: the same one as the server's."""

    def now_ns(self) -> int:
        return time.time_ns()

    async def sleep_until(self, t_ns: int) -> None:
        await asyncio.sleep(max(0, t_ns - time.time_ns()) / 1e9)


async def _ours(base_url: str, model: str, streams: int) -> list[int]:
    late: list[int] = []
    async with OpenAITransport(base_url, model, _UnixClock(), keepalive_s=0) as transport:
        calls = [ChatCall(f"r{i}", f"a{i}", 0, (_MESSAGE,)) for i in range(streams)]
        for done in await asyncio.gather(*map(transport.complete, calls)):
            assert done.error is None, done.error
            late += [stamp - sent for stamp, (_, sent) in zip(done.token_ns, _sent(done.raw_extra), strict=True)]
    return late


def _sent(extra: tuple[tuple[int, str, object], ...]) -> list[tuple[int, int]]:
    return [(stamp, value) for stamp, name, value in extra if name == "t" and isinstance(value, int)]


async def _sdk(base_url: str, model: str, streams: int) -> list[int]:
    """The SDK as its README shows it: typed chunks, its own HTTP client."""
    late: list[int] = []
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)

    async def one() -> None:
        stream = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "go"}], stream=True
        )
        async for chunk in stream:
            stamp = time.time_ns()
            extra = chunk.model_extra or {}
            if "t" in extra:
                late.append(stamp - extra["t"])

    async with client:
        await asyncio.gather(*(one() for _ in range(streams)))
    return late


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _raw(base_url: str, model: str, streams: int) -> list[int]:
    """Bare sockets and epoll: the floor of this machine."""
    host, port = base_url.split("/")[2].split(":")
    body = json.dumps({"model": model}).encode()
    request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    got: list[tuple[int, bytes]] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(streams):
            sock = socket.create_connection((host, int(port)))
            sock.sendall(request)
            selector.register(sock, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(65536)
                got.append((time.time_ns(), data))
                if not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return [stamp - int(sent) for stamp, data in got for sent in re.findall(rb'"t":(\d+)', data)]


def _client(options: argparse.Namespace) -> None:
    os.sched_setaffinity(0, {0})
    base_url = f"http://127.0.0.1:{options.port}/v1"
    model = f"{options.streams}:{options.ticks}:{options.rate}"
    before = time.process_time_ns()
    run = {"raw": _raw, "ours": _ours, "sdk": _sdk}[options.client]
    late = sorted(asyncio.run(run(base_url, model, options.streams)))
    cpu_ns = time.process_time_ns() - before
    json.dump(
        {
            "p50_ms": late[len(late) // 2] / 1e6,
            "p99_ms": late[int(len(late) * 0.99)] / 1e6,
            "max_ms": late[-1] / 1e6,
            "cpu_us": cpu_ns / 1e3 / len(late),
            "chunks": len(late),
        },
        sys.stdout,
    )


def _measure(
    server: "subprocess.Popen[str]", port: str, client: str, streams: int, ticks: int, rate: float
) -> tuple[dict[str, float], dict[str, float]]:
    arguments = [client, "--port", port, "--streams", str(streams), "--ticks", str(ticks), "--rate", str(rate)]
    done = subprocess.run(
        [sys.executable, __file__, "--client", *arguments], check=True, capture_output=True, text=True, timeout=600
    )
    assert server.stdout is not None
    return json.loads(done.stdout), json.loads(server.stdout.readline())


def main() -> None:
    """Run the benchmark, or one client of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=_CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--port", help=argparse.SUPPRESS)
    parser.add_argument("--clients", nargs="+", choices=_CLIENTS, default=_CLIENTS)
    parser.add_argument("--streams", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if options.client:
        (options.streams,) = options.streams
        _client(options)
        return
    paced = Path(__file__).with_name("paced_server.py")
    with subprocess.Popen([sys.executable, str(paced), "1"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        _say("| client | streams | p50 ms | p99 ms | max ms | CPU us/chunk | server: burst late p99, long p99 | load |")
        _say("|---|---|---|---|---|---|---|---|")
        for streams in options.streams:
            for client in options.clients:
                runs = [
                    _measure(server, port, client, streams, options.ticks, options.rate) for _ in range(options.runs)
                ]
                seen = {name: statistics.median(run[name] for run, _ in runs) for name in runs[0][0]}
                paced_by = {name: statistics.median(own[name] for _, own in runs) for name in runs[0][1]}
                assert all(own["full"] == 0 for _, own in runs), "a socket was full: the server could not keep pace"
                _say(
                    f"| {client} | {streams} | {seen['p50_ms']:.2f} | {seen['p99_ms']:.2f} | {seen['max_ms']:.1f} "
                    f"| {seen['cpu_us']:.0f} | {paced_by['begin_late_p99_ms']:.2f}, {paced_by['burst_p99_ms']:.2f} "
                    f"| {os.getloadavg()[0]:.1f} |",
                )
        server.kill()


if __name__ == "__main__":
    main()
