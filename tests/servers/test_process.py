"""Starting and stopping: real child processes, the server a small one of the standard library."""

import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest

from agentload.clock import SystemClock
from agentload.errors import ArtifactError, ServerError, UsageError
from agentload.servers.process import ServerProcess, free_port, split_command
from agentload.servers.ready import wait_ready
from tests.processes import WAIT_S, line_of, runs

pytestmark = pytest.mark.anyio

READY_S = WAIT_S
Start = Callable[..., ServerProcess]

SERVER = '''
"""A server that answers GET /v1/models: server.py PORT [plain | deaf | slow | polite]"""
import os, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

port, manner = int(sys.argv[1]), sys.argv[2]

def at_term(*_):
    if manner == "slow":
        time.sleep(1.5)
    print("saved", flush=True)
    os._exit(0)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()

if manner == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner in ("slow", "polite"):
    signal.signal(signal.SIGTERM, at_term)
server = HTTPServer(("127.0.0.1", port), Handler)
print("pid", os.getpid(), flush=True)
server.serve_forever()
'''


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServerProcess] = []

    def start_one(argv: Sequence[str], env: dict[str, str] | None = None) -> ServerProcess:
        process = ServerProcess(
            argv,
            tmp_path / "server.log",
            tmp_path / "server.log.times",
            SystemClock(),
            env=dict(os.environ) if env is None else env,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.stop(0.0)


def server_argv(folder: Path, port: int, manner: str = "plain") -> list[str]:
    script = folder / "server.py"
    script.write_text(SERVER)
    return [sys.executable, str(script), str(port), manner]


def in_shell(argv: Sequence[str], then: str) -> list[str]:
    return ["sh", "-c", f'"$@" & {then}', "wrapper", *argv]


def logged_pid(folder: Path) -> int:
    """Wait for the line: the server may have answered before its output was read."""
    return int(line_of(folder / "server.log", "pid ").split()[1])


async def test_a_server_that_answers_is_ready_and_stopped_by_sigterm(tmp_path: Path, start: Start) -> None:
    port = free_port()
    process = start(server_argv(tmp_path, port))
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    assert process.exit_code() is None
    assert process.pid == logged_pid(tmp_path)
    assert process.ending() is None
    assert process.stop(READY_S) == -15
    assert (process.exit_code(), process.killed) == (-15, False)
    assert not runs(process.pid)
    assert process.stop(READY_S) == -15  # stopping twice is fine


async def test_the_exit_of_a_server_that_is_killed_is_noticed_with_its_signal_and_last_lines(start: Start) -> None:
    process = start(["sh", "-c", "echo one; echo; printf 'two\\nhalf'; echo $$ >&2; kill -9 $$"])
    said = await process.wait_exit()
    assert re.fullmatch(
        rf"the server \(pid {process.pid}\) was killed by signal 9 after \d+\.\d s; "
        rf"its last lines: one \| two \| half{process.pid}; all of them: {process.pump.log}",
        said,
    )
    assert process.ending() == said  # the time is that of the exit, however often it is asked for


async def test_an_exit_while_it_is_awaited_ends_the_wait(tmp_path: Path, start: Start) -> None:
    process = start(["sleep", "1000"])
    said: list[str] = []
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            said.append(await process.wait_exit())

        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        os.kill(process.pid, signal.SIGKILL)
    assert "was killed by signal 9 after" in said[0]
    assert "its last lines: none; all of them: " in said[0]


def test_a_missing_program_is_named(tmp_path: Path, start: Start) -> None:
    missing = str(tmp_path / "llama-server")
    with pytest.raises(ServerError, match=rf"cannot start '{missing}': No such file or directory"):
        start([missing, "-m", "x.gguf"])


def test_a_program_that_may_not_be_run_is_named(tmp_path: Path, start: Start) -> None:
    (tmp_path / "model.gguf").write_text("GGUF")
    with pytest.raises(ServerError, match=r"cannot start '.*model\.gguf': Permission denied"):
        start([str(tmp_path / "model.gguf")])


def test_nothing_is_started_when_the_log_cannot_be_made(tmp_path: Path, start: Start) -> None:
    (tmp_path / "server.log").write_bytes(b"of an earlier run\n")
    before = {child.pid for child in psutil.Process().children()}
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ArtifactError, match="File exists"):
        start(["sleep", "1000"])
    assert {child.pid for child in psutil.Process().children()} <= before
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_before


async def test_the_server_behind_a_wrapper_ends_with_it(tmp_path: Path, start: Start) -> None:
    port = free_port()
    process = start(in_shell(server_argv(tmp_path, port), "wait"))
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    server = logged_pid(tmp_path)
    assert server != process.pid
    assert runs(server)
    process.stop(READY_S)
    assert not runs(server)
    assert not runs(process.pid)


async def test_a_server_whose_wrapper_has_gone_is_ended_too(tmp_path: Path, start: Start) -> None:
    port = free_port()
    argv = server_argv(tmp_path, port)
    process = start(
        ["sh", "-c", '"$@" & while ! test -s "$0"; do sleep 0.01; done', str(tmp_path / "server.log"), *argv]
    )
    assert process._process.wait(READY_S) == 0
    server = logged_pid(tmp_path)
    assert runs(server)
    with pytest.raises(ServerError, match=r"not ready: .* exited with 0 after "):
        await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    assert process.stop(READY_S) == 0
    assert not runs(server)


async def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path, start: Start) -> None:
    port = free_port()
    process = start(server_argv(tmp_path, port, "deaf"))
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    assert process.stop(0.2) == -9
    assert process.killed
    assert not runs(process.pid)


async def test_a_deaf_server_behind_a_wrapper_is_killed(tmp_path: Path, start: Start) -> None:
    port = free_port()
    process = start(in_shell(server_argv(tmp_path, port, "deaf"), "wait"))
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    server = logged_pid(tmp_path)
    assert process.stop(0.2) in (-15, -9)  # the wrapper goes at SIGTERM, if it has its turn in that time
    assert process.killed
    assert not runs(server)


async def test_a_server_that_ends_in_its_own_way_has_its_own_exit_code(tmp_path: Path, start: Start) -> None:
    port = free_port()
    process = start(server_argv(tmp_path, port, "polite"))
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    assert process.stop(READY_S) == 0
    assert "saved" in (tmp_path / "server.log").read_text().splitlines()


async def test_a_server_behind_a_wrapper_has_the_same_time_to_end(tmp_path: Path, start: Start) -> None:
    """It takes 1.5 s; the wrapper is gone at once, and once only one more second was given then."""
    port = free_port()
    process = start(in_shell(server_argv(tmp_path, port, "slow"), "wait"))
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", READY_S)
    process.stop(READY_S)
    assert "saved" in (tmp_path / "server.log").read_text().splitlines()


async def test_a_child_with_a_session_of_its_own_ends_with_the_server(tmp_path: Path, start: Start) -> None:
    child = "import os, time; os.setsid(); print('pid', os.getpid(), flush=True); time.sleep(600)"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    process = start([sys.executable, "-c", parent, child])
    pid = logged_pid(tmp_path)
    assert os.getsid(pid) == pid
    process.stop(READY_S)
    assert not runs(pid)
    assert not process.killed


def test_stdout_and_stderr_are_one_log_and_only_the_environment_given_is_there(tmp_path: Path, start: Start) -> None:
    program = (
        "import os, sys\n"
        "print(sorted(set(os.environ) - {'LC_CTYPE'}), flush=True)\n"
        "print('error', file=sys.stderr, flush=True)\n"
        "print(sys.stdin.read() == '')"
    )
    process = start([sys.executable, "-c", program], {"ONLY": "this"})
    assert process.pump.join(READY_S)
    assert (tmp_path / "server.log").read_text() == "['ONLY']\nerror\nTrue\n"


def test_it_has_a_session_of_its_own(start: Start) -> None:
    process = start(["sleep", "1000"])
    assert os.getsid(process.pid) == process.pid
    assert os.getsid(process.pid) != os.getsid(0)


def test_a_free_port_can_be_listened_on() -> None:
    with socket.socket() as listener:
        port = free_port()
        listener.bind(("127.0.0.1", port))
        assert listener.getsockname() == ("127.0.0.1", port)


def test_a_free_port_is_none_that_others_are_given_who_ask_for_any() -> None:
    """Those are 32,768 and above on Linux (net.ipv4.ip_local_port_range), on macOS 49,152 and above."""
    assert all(1024 <= free_port() < 32_768 for _ in range(30))


def test_a_port_at_which_somebody_listens_is_not_free() -> None:
    with ExitStack() as stack:
        taken = {free_port() for _ in range(100)}
        for port in taken:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        assert not taken & {free_port() for _ in range(300)}


def test_a_command_is_split_as_a_shell_would() -> None:
    assert split_command("""llama-server -m 'my model.gguf' --alias "a b" -c 1""") == [
        *("llama-server", "-m", "my model.gguf", "--alias", "a b", "-c", "1")
    ]


@pytest.mark.parametrize(
    ("command", "message"),
    [("", "expected a command"), ("   ", "expected a command"), ("llama-server 'x", "No closing quotation")],
)
def test_a_command_that_cannot_be_split_is_refused(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"--launch: {message}"):
        split_command(command)
