"""Are a server's counters looked at when they should be, and is nobody held up where there are none?

Scripted HTTP servers on 127.0.0.1; the time between looks is a clock's that the test holds.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from agentload.clock import SystemClock
from agentload.servers.metrics import parse
from agentload.servers.metrics_sampling import Address, MetricsSampler, wanted
from tests.processes import WAIT_S

pytestmark = pytest.mark.anyio
DATA = Path(__file__).parent / "metrics"
Reply = tuple[int, str]


class Events:
    """An event sink in memory."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def emit(self, kind: str, t_ns: int, **fields: Any) -> None:
        self.found.append({"event": kind, "t": t_ns, **fields})


class Stepping(SystemClock):
    """This machine's clock, in which nobody waits: a sleep ends at once, and a list says until when it was."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[int] = []

    async def sleep_until(self, t_ns: int) -> None:
        self.slept.append(t_ns)
        await anyio.lowlevel.checkpoint()


@contextmanager
def serving(reply: Callable[[int], Reply]) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server whose n-th answer is `reply(n)`; gives its base URL, and each request's path and authorization."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            status, text = reply(len(asked))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def counted(computed: int, running: int = 0) -> str:
    return f"llamacpp:prompt_tokens_total {computed}\nllamacpp:requests_processing {running}\n"


def sampler(url: str, software: str | None = "llamacpp", timeout_s: float = WAIT_S) -> tuple[MetricsSampler, Events]:
    events = Events()
    return MetricsSampler(Address(url), Stepping(), events, software, timeout_s), events


@pytest.mark.parametrize("name", ["vllm_ngram", "vllm_queue", "vllm_dspark", "llamacpp"])
@pytest.mark.parametrize("more", ["", 'http:x_bucket{le="1"} 2\n# HELP http:x much\npython_info 1\n'])
def test_the_wanted_lines_alone_tell_what_the_whole_text_does(name: str, more: str) -> None:
    text = more + (DATA / f"{name}.txt").read_text()
    assert parse(wanted(text), 7) == parse(text, 7)
    assert "_bucket" not in wanted(text)
    assert "#" not in wanted(text)


def test_where_the_process_does_not_tell_its_start_its_counters_do() -> None:
    text = 'vllm:prompt_tokens_total{engine="0"} 3\nvllm:prompt_tokens_created{engine="0"} 1.5e+09\n'
    found = parse(wanted(text), 7)
    assert found is not None
    assert found.began_s == 1.5e9


async def test_a_segment_is_looked_at_at_its_begin_between_and_at_its_end() -> None:
    with serving(lambda number: (200, counted(100 * number))) as (url, asked):
        found, events = sampler(url)
        await found.begin("s")
        with anyio.move_on_after(WAIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(found.until_cancelled, "s", 15.0)
                while len(events.found) < 3:
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        looks = len(events.found)
        await found.end("s")
    wheres = [one["where"] for one in events.found]
    assert wheres == ["begin", *["periodic"] * (looks - 1), "end"]
    assert events.found[0]["values"] == {"prompt_tokens_computed": 100.0, "running": 0.0}
    assert (events.found[0]["segment"], events.found[0]["software"]) == ("s", "llamacpp")
    assert set(asked) == {("/metrics", None)}
    assert found.doubts() == ()


async def test_the_end_waits_until_the_last_request_is_counted() -> None:
    with serving(lambda number: (200, counted(100 * number, running=int(number < 3)))) as (url, _):
        found, events = sampler(url)
        await found.end("s")
    assert [one["values"]["prompt_tokens_computed"] for one in events.found] == [300.0]


async def test_an_end_at_which_a_stranger_still_works_comes_after_a_second() -> None:
    with serving(lambda _: (200, counted(100, running=1))) as (url, asked):
        found, events = sampler(url)
        await found.end("s")
    assert len(events.found) == 1
    assert len(asked) == 11  # ten times 100 ms


async def test_the_key_is_sent_where_there_is_one() -> None:
    with serving(lambda _: (200, counted(1))) as (url, asked):
        events = Events()
        found = MetricsSampler(replace(Address(url), api_key="secret"), Stepping(), events, None, WAIT_S)
        await found.begin("s")
    assert asked == [("/metrics", "Bearer secret")]
    assert "secret" not in str(events.found)


@pytest.mark.parametrize("reply", [(404, ""), (501, "{}"), (200, "<html>"), (200, "up 1\n")])
async def test_a_server_that_has_none_is_not_asked_again(reply: Reply) -> None:
    with serving(lambda _: reply) as (url, asked):
        found, events = sampler(url, None)
        await found.begin("s")
        await found.until_cancelled("s", 15.0)
        await found.end("s")
    assert (len(asked), events.found, found.doubts()) == (1, [], ())


@pytest.mark.parametrize(("software", "how"), [("vllm", "--disable-log-stats"), ("sglang", "--enable-metrics")])
async def test_a_server_whose_log_tells_no_phases_and_that_has_none_is_one_doubt(software: str, how: str) -> None:
    with serving(lambda _: (404, "")) as (url, _):
        found, _ = sampler(url, software)
        await found.begin("s")
        (doubt,) = found.doubts()
    assert (doubt.code, doubt.message) == ("no-metrics", "GET /metrics: HTTP 404: what the server counts is not known")
    assert how in doubt.advice
    assert found.doubts() == ()  # said once


async def test_looks_that_fail_later_are_one_doubt_and_the_others_count() -> None:
    with serving(lambda number: (200, counted(number)) if number != 2 else (503, "")) as (url, _):
        found, events = sampler(url)
        await found.begin("s")
        await found.end("s")
        await found.end("s")
    assert [one["where"] for one in events.found] == ["begin", "end"]
    (doubt,) = found.doubts()
    assert doubt.code == "metrics-failed"
    assert "1 of 3 looks told nothing, first: HTTP 503" in doubt.message


async def test_a_server_that_never_answers_holds_up_a_look_for_its_time_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found, events = sampler(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "vllm", timeout_s=0.05)
        await found.begin("s")
        await found.end("s")
    assert events.found == []
    assert [one.code for one in found.doubts()] == ["metrics-failed"]


async def test_a_look_that_is_under_way_does_not_hold_up_a_cancellation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found, _ = sampler(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", timeout_s=60.0)
        with anyio.move_on_after(0.05) as scope:
            await found.begin("s")
    assert scope.cancelled_caught
