"""When is a server taken to be ready, and what is said where it is not? Real child processes that answer as told."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentload.clock import SystemClock
from agentload.errors import ServerError
from agentload.servers.process import ServerProcess, free_port
from agentload.servers.ready import answers_plain_http, wait_ready
from tests.skipping_loop import SkippingLoop, skip

pytestmark = pytest.mark.anyio

READY_S = 120.0
LONG_S = 3600.0  # of a wait that is skipped when the server has said what the test is about

SERVER = '''
"""A server that plays statuses: statuses.py PORT PATH=STATUS,STATUS,... ...; the last status is played on and on."""
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

told = {path: [int(one) for one in statuses.split(",")] for path, statuses in (one.split("=") for one in sys.argv[2:])}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        statuses = told.get(self.path, [404])
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        if status == 200 and told.get("key") and self.headers["Authorization"] != "Bearer right":
            status = 401
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        if "gzip" in told:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if "gzip" in told:
            self.wfile.write(b"this is no gzip")

    def log_message(self, form, *args):
        sys.stdout.write(f"{self.path} {args[1]}\\n")  # one write: half a line may be read
        sys.stdout.flush()

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''


class Rig:
    """One server on a free port, and what is said while it is waited for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.said: list[str] = []
        self.process: ServerProcess | None = None

    def start(self, *argv: str) -> ServerProcess:
        times = self.folder / "server.log.times"
        self.process = ServerProcess(argv, self.folder / "server.log", times, SystemClock(), env=dict(os.environ))
        return self.process

    def play(self, *statuses: str) -> ServerProcess:
        script = self.folder / "statuses.py"
        script.write_text(SERVER)
        return self.start(sys.executable, str(script), str(self.port), *statuses)

    def answered(self) -> list[str]:
        return (self.folder / "server.log").read_text().splitlines()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    if made.process is not None:
        made.process.stop(0.0)


def refused(text: str) -> Callable[[ServerError], bool]:
    """The error is one line that matches."""
    return lambda error: re.search(text, str(error)) is not None and len(str(error).splitlines()) == 1


async def test_only_the_status_counts_whatever_the_body_is(rig: Rig) -> None:
    """A body that cannot be decoded ended the run with a traceback."""
    process = rig.play("/v1/models=503,200", "/health=200", "gzip=1")
    await wait_ready(process, rig.url, READY_S)
    process.stop(READY_S)
    assert len(rig.answered()) == 3


async def test_a_server_without_health_is_ready_when_it_lists_its_models(rig: Rig) -> None:
    process = rig.play("/v1/models=503,503,200")  # as ds4-server, which has no /health
    await wait_ready(process, rig.url, READY_S)
    process.stop(READY_S)
    assert rig.answered() == ["/v1/models 503", "/v1/models 503", "/v1/models 200", "/health 404"]


async def test_a_server_that_lists_its_model_while_it_loads_it_is_not_ready(rig: Rig) -> None:
    process = rig.play("/v1/models=200", "/health=503,503,200")  # as llama-server may
    await wait_ready(process, rig.url, READY_S)
    process.stop(READY_S)
    assert [line for line in rig.answered() if line.startswith("/health")] == ["/health 503"] * 2 + ["/health 200"]


async def test_a_server_without_a_list_of_models_is_ready_when_its_health_is_good(rig: Rig) -> None:
    process = rig.play("/health=200")
    await wait_ready(process, rig.url, READY_S)
    process.stop(READY_S)
    assert rig.answered() == ["/v1/models 404", "/health 200"]


async def test_a_server_that_hangs_up_on_the_health_question_is_ready_by_its_models(rig: Rig) -> None:
    await wait_ready(rig.play("/v1/models=200", "/health=0"), rig.url, READY_S)


async def test_what_a_server_answered_last_is_said_when_its_time_is_over(rig: Rig) -> None:
    process = rig.play("/v1/models=200")
    await wait_ready(process, rig.url, READY_S)
    text = (
        rf"\(pid {process.pid}\) was not ready within 3600 s: GET /v2/models answered 404, GET /health answered 404; "
        rf"expected 200 from one of them and 5xx from none, at http://127\.0\.0\.1:{rig.port}; its last lines: .*"
        rf"/health 404; all of them: {rig.folder}/server\.log$"
    )
    with pytest.raises(ServerError, check=refused(text)):
        await wait_until_it_says(process, rig.url.replace("v1", "v2"), "/health 404")


async def wait_until_it_says(process: ServerProcess, url: str, end: str) -> None:
    """Wait for the server until it was asked, and the last line of its log ends so."""

    def say(line: str) -> None:
        if line.endswith(end):
            skip(LONG_S)

    await wait_ready(process, url, LONG_S, say=say, say_every_s=0.0)


async def test_a_server_that_only_fails_is_named_with_its_status(rig: Rig) -> None:
    process = rig.play("/v1/models=404,500")
    await wait_ready_once(process, rig)
    with pytest.raises(ServerError, check=refused("GET /v1/models answered 500; expected 200")):
        await wait_until_it_says(process, rig.url, "/v1/models 500")


async def wait_ready_once(process: ServerProcess, rig: Rig) -> None:
    """Until it listens."""
    while not await answers_plain_http(rig.url.replace("http", "https")):
        assert process.exit_code() is None


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_wants_a_key_is_not_waited_for(rig: Rig, status: int) -> None:
    process = rig.play(f"/v1/models={status}")
    text = rf"wants a key \(GET /v1/models answered {status}\): set OPENAI_API_KEY to the key that the server"
    with pytest.raises(ServerError, check=refused(text)):
        await wait_ready(process, rig.url, READY_S)


async def test_the_key_is_sent_and_a_wrong_one_is_said_to_be_wrong(rig: Rig) -> None:
    process = rig.play("/v1/models=200", "key=1")
    await wait_ready(process, rig.url, READY_S, api_key="right")
    with pytest.raises(ServerError, check=refused("the key in OPENAI_API_KEY is not the one")) as caught:
        await wait_ready(process, rig.url, READY_S, api_key="sk-wrong")
    assert "sk-wrong" not in str(caught.value)


async def test_plain_http_behind_an_https_address_is_said_at_once(rig: Rig) -> None:
    process = rig.play("/v1/models=200")
    text = rf"https://127\.0\.0\.1:{rig.port}/v1: the server answers plain http: use http://127\.0\.0\.1:{rig.port}/v1$"
    with pytest.raises(ServerError, check=refused(text)):
        await wait_ready(process, rig.url.replace("http", "https"), READY_S)


async def test_a_server_that_never_listens_is_an_error_after_the_time_given(rig: Rig) -> None:
    process = rig.start("sh", "-c", "echo thinking; exec sleep 1000")
    with pytest.raises(ServerError, check=refused(r"was not ready within 3600 s: GET /v1/models failed: \S+")):
        await wait_until_it_says(process, rig.url, "thinking")


async def test_a_long_wait_is_accompanied_by_the_last_line_of_the_log(rig: Rig) -> None:
    process = rig.play("/v1/models=503")

    def say(line: str) -> None:
        rig.said.append(line)
        if line.endswith("/v1/models 503"):
            skip(LONG_S)

    with pytest.raises(ServerError, check=refused("GET /v1/models answered 503; expected 200")):
        await wait_ready(process, rig.url, LONG_S, say=say, say_every_s=0.0)
    assert re.fullmatch(r"still loading: \d+ s, last line of its log: /v1/models 503", rig.said[-1])
    assert all(line.endswith("last line of its log: none yet") for line in rig.said[:-1])


async def test_each_time_that_was_asked_for_a_line_is_said(rig: Rig) -> None:
    process = rig.play("/v1/models=503,503,503,200")
    await wait_ready_once(process, rig)  # it has the first
    await wait_ready(process, rig.url, READY_S, say=rig.said.append, say_every_s=0.0)
    assert len(rig.said) == 2


async def test_of_a_wait_of_less_than_fifteen_seconds_nothing_is_said(rig: Rig) -> None:
    await wait_ready(rig.play("/v1/models=503,200"), rig.url, READY_S, say=rig.said.append)
    assert rig.said == []


async def test_a_server_that_exits_at_once_is_an_error_with_its_code_and_last_lines(rig: Rig) -> None:
    program = "import sys; print('loading', flush=True); print('unknown flag --ubatch', file=sys.stderr); sys.exit(3)"
    process = rig.start(sys.executable, "-c", program)
    text = (
        rf"^not ready: the server \(pid {process.pid}\) exited with 3 after \d+\.\d s; "
        rf"its last lines: loading \| unknown flag --ubatch; all of them: {rig.folder}/server\.log$"
    )
    with pytest.raises(ServerError, check=refused(text)) as caught:
        await wait_ready(process, rig.url, READY_S)
    assert program not in str(caught.value)  # the command line can be very long, and is in the manifest
