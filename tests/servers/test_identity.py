"""Is the process that really serves found, with its command line, its program and its model? Real processes."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentload.clock import SystemClock
from agentload.servers import facts
from agentload.servers.identity import HEADER_BYTES, NOBODY, look, model_path, out_of_sight
from agentload.servers.process import ServerProcess, free_port
from agentload.servers.ready import wait_ready
from tests.processes import WAIT_S, runs_as

pytestmark = pytest.mark.anyio

SERVER = '''
"""A server that answers GET /v1/models on the port behind --port, with one child that listens nowhere."""
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
'''
INTERPRETER = Path(sys.executable).resolve()
Start = Callable[[Sequence[str]], ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServerProcess] = []

    def start_one(argv: Sequence[str]) -> ServerProcess:
        place = tmp_path / f"log{len(started)}"
        place.mkdir()
        made = ServerProcess(argv, place / "server.log", place / "times", SystemClock(), env=dict(os.environ))
        started.append(made)
        return made

    yield start_one
    for process in started:
        process.stop(0.0)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The server, under the name of one that is known."""
    path = tmp_path / "ds4-server.py"
    path.write_text(SERVER)
    return path


def told(path: Path) -> dict[str, Any]:
    status = path.stat()
    header = path.read_bytes()[: 64 * 1024]
    return {
        "path": str(path),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "header_sha256": hashlib.sha256(header).hexdigest(),
    }


async def test_the_process_that_listens_is_told_apart_from_its_script_and_its_children(
    tmp_path: Path, script: Path, start: Start
) -> None:
    port = free_port()
    model = tmp_path / "model.gguf"
    model.write_bytes(os.urandom(HEADER_BYTES) + b"what follows is not hashed")
    wrapper = tmp_path / "start.sh"
    real = [sys.executable, str(script), "--port", str(port), "-m", "model.gguf", "--ctx", "1", "--ctx", "2"]
    wrapper.write_text(f"cd {tmp_path}\n{' '.join(real)} --api-key $1\n")
    process = start(["bash", str(wrapper), "sk-secret"])
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", WAIT_S)

    found = look(process.family(), port, ["sk-secret"])
    serving, *others = found.commands
    assert serving["argv"] == [*real, "--api-key", "***"]
    assert (serving["serves"], serving["pid"] == process.pid) == (True, False)
    assert {(one["pid"] == process.pid, one["serves"]) for one in others} == {(True, False), (False, False)}
    assert ["bash", str(wrapper), "***"] in [one["argv"] for one in others]
    assert found.identity == {"binary": told(INTERPRETER), "script": told(script), "model": told(model)}

    # Another file of the same name and size is seen.
    model.write_bytes(b"x" * model.stat().st_size)
    assert look(process.family(), port).identity["model"] != found.identity["model"]


async def test_a_server_whose_script_has_ended_is_found_in_its_session(
    tmp_path: Path, script: Path, start: Start
) -> None:
    port = free_port()
    process = start(["bash", "-c", f"{sys.executable} {script} --port {port} & exit 0"])
    await process.wait_exit()
    found = look(process.family(), port)
    tries = int(WAIT_S / 0.1)  # what it left behind, in its session, needs a moment to listen
    while found.identity["script"] is None and (tries := tries - 1):
        await anyio.sleep(0.1)
        found = look(process.family(), port)
    assert found.commands[0]["argv"] == [sys.executable, str(script), "--port", str(port)]
    assert found.commands[0]["serves"] is True


async def test_the_facts_of_a_server_name_its_kind_and_none_of_its_keys(script: Path, start: Start) -> None:
    port = free_port()
    process = start([sys.executable, str(script), "--port", str(port), "--api-key", "sk-secret"])
    base_url = f"http://127.0.0.1:{port}/v1"
    await wait_ready(process, base_url, WAIT_S)
    found = await facts.of_process(process, base_url, api_key="sk-secret")
    assert found.software == "ds4"
    assert found.commands is not None
    assert "sk-secret" not in str(found)
    other = await facts.of_process(process, base_url, software="vllm")
    assert (other.software, other.api) == ("vllm", {})


async def test_a_model_that_is_a_folder_is_told_by_its_files_and_its_configuration(
    tmp_path: Path, script: Path, start: Start
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "a.safetensors").write_bytes(b"123")
    port = free_port()
    process = start([sys.executable, str(script), "--port", str(port), "--model", str(model)])
    await wait_ready(process, f"http://127.0.0.1:{port}/v1", WAIT_S)
    first = look(process.family(), port).identity["model"]
    assert (first["path"], first["size"]) == (str(model), 5)
    (model / "config.json").write_text("[]")
    second = look(process.family(), port).identity["model"]
    assert (second["size"], second["header_sha256"] == first["header_sha256"]) == (5, False)
    shutil.rmtree(model)
    assert look(process.family(), port).identity["model"] is None


async def test_of_a_server_elsewhere_nothing_is_said_but_the_words_that_reach_it(tmp_path: Path, start: Start) -> None:
    ssh = tmp_path / "ssh"
    ssh.symlink_to(shutil.which("sleep") or "")
    process = start([str(ssh), "1000"])
    assert runs_as(process.pid, [str(ssh), "1000"])
    found = look(process.family(), 1)
    assert found.identity == NOBODY.identity
    assert [one["argv"] for one in found.commands] == [[str(ssh), "1000"]]


async def test_nobody_is_no_error(start: Start) -> None:
    assert look([], 8000) == NOBODY
    process = start([sys.executable, "-c", ""])
    family = process.family()
    process.stop(60.0)
    assert look(family, 8000).identity == NOBODY.identity


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        (["llama-server", "-m", "a.gguf", "--model=b.gguf"], "b.gguf"),
        (["vllm", "serve", "Qwen/Qwen3-8B", "--port", "1"], "Qwen/Qwen3-8B"),
        (["/venv/bin/python", "/venv/bin/vllm", "serve", "--port", "1"], None),
        (["python", "-m", "sglang.launch_server", "--model-path", "/m"], "/m"),
        (["python", "-m", "agentload.servers.llama_launcher", "-m", "x.gguf"], "x.gguf"),
        (["ds4-server"], None),
        (["ds4-server", "-m"], None),
    ],
)
def test_the_model_is_what_the_command_line_says_last(argv: list[str], path: str | None) -> None:
    assert model_path(argv) == path


@pytest.mark.parametrize(("argv", "away"), [(["/usr/bin/docker", "run"], True), (["ds4-server"], False), ([], False)])
def test_programs_that_only_reach_a_server_are_known(argv: list[str], *, away: bool) -> None:
    assert out_of_sight(argv) is away
