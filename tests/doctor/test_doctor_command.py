"""Does `agentload doctor` say one clear line a thing, and end with 1 only where a night is lost? Real sockets."""

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentload.agents.workspace import Repository
from agentload.servers.process import free_port
from tests.agents.scripted_server import HANG, ScriptedServer
from tests.doctor.chat_servers import ChatServer, reply, serving
from tests.ports import nobody
from tests.program import PROGRAM, Done, program, started


@pytest.fixture
def here(cache_dir: Path, tiny: Repository, tmp_path: Path) -> dict[str, str]:
    """The environment: the tiny corpus is in its cache."""
    assert tiny.path.is_dir()
    return {"AGENTLOAD_CACHE": str(cache_dir), "TMPDIR": str(tmp_path)}


def doctor(here: dict[str, str], *arguments: str) -> Done:
    out = Path(here["TMPDIR"]) / "runs"
    return program("doctor", "--corpus", "tiny", "--out", str(out), *arguments, env=here)


def found(done: Done) -> dict[str, dict[str, Any]]:
    """The findings of --json by code."""
    told = json.loads(done.stdout)
    assert told["schema"] == "agentload.doctor/1"
    assert told["wasted"] == (done.returncode == 1)
    return {one["code"]: one for one in (*told["server"], *told["machine"])}


def levels(done: Done, *codes: str) -> list[str]:
    every = found(done)
    return [every[code]["level"] for code in codes]


@contextmanager
def chat_server(**habits: Any) -> Iterator[tuple[ChatServer, str]]:
    chat = ChatServer(**habits)
    with serving(ScriptedServer(play=chat.play)) as server:
        yield chat, server.url


def test_a_server_with_all_that_is_needed_has_nothing_in_its_way(here: dict[str, str]) -> None:
    with chat_server() as (chat, url):
        done = doctor(here, "--base-url", url, "--json")
    assert done.returncode == 0, done.stdout
    every = found(done)
    for code in ("endpoint", "software", "chat", "usage", "cached", "streaming", "speed", "tool-calls", "ignore-eos"):
        assert every[code]["level"] == "OK", every[code]
    assert every["busy"]["found"] == "/metrics before ours: 0 at work, 0 waiting"
    assert every["ignore-eos"]["found"] == "64 of 64 tokens; without it the model ended after 5"
    assert every["tool-calls"]["found"] == 'tool_choice "required": read {"path": "README.md"}'
    assert every["log"]["level"] == "warn"  # none is given
    first, again = chat.requests[:2]
    assert first["messages"] == again["messages"]
    assert (first["max_tokens"], again["max_tokens"]) == (48, 47)  # no two alike in a log
    assert not (Path(here["TMPDIR"]) / "runs").exists()


def test_a_server_without_cached_counts_wastes_a_night_and_its_flag_is_named(here: dict[str, str]) -> None:
    with chat_server(cached=False) as (_, url):
        done = doctor(here, "--base-url", url)
    assert done.returncode == 1
    line = next(one for one in done.stdout.splitlines() if " cached " in one)
    assert line.startswith("FAIL")
    assert "prompt_tokens_details: null" in line
    assert "--enable-prompt-tokens-details" in line
    assert done.stdout.splitlines()[-1].endswith("a night would be wasted")


def test_a_server_without_usage_wastes_a_night(here: dict[str, str]) -> None:
    with chat_server(usage=False) as (_, url):
        assert levels(doctor(here, "--base-url", url, "--json"), "usage", "cached") == ["FAIL", "FAIL"]


def test_a_stream_that_is_held_back_until_its_end_wastes_a_night(here: dict[str, str]) -> None:
    with chat_server(buffers=True) as (_, url):
        every = found(doctor(here, "--base-url", url, "--json"))
    assert every["streaming"]["level"] == "FAIL"
    assert "48 pieces with tokens for 48 tokens, all at once after" in every["streaming"]["found"]


def test_a_server_that_does_not_heed_ignore_eos_is_warned_of(here: dict[str, str]) -> None:
    with chat_server(heeds_ignore_eos=False) as (_, url):
        done = doctor(here, "--base-url", url, "--json")
    assert done.returncode == 0
    assert found(done)["ignore-eos"]["found"] == "not honoured: 5 of 64 tokens, then the model ended"


def test_a_model_without_tool_calls_fails_and_passes_with_json_actions_asked_for(here: dict[str, str]) -> None:
    with chat_server(tool_calls=False) as (_, url):
        native = doctor(here, "--base-url", url, "--json")
        other = doctor(here, "--base-url", url, "--json", "--protocol", "json")
    assert 'protocol = "json"' in found(native)["tool-calls"]["advice"]
    assert levels(native, "tool-calls") == ["FAIL"]
    assert levels(other, "tool-calls") == ["warn"]  # it wrote no action either


def test_other_clients_of_the_server_are_seen(here: dict[str, str]) -> None:
    with chat_server(busy=2) as (_, url):
        every = found(doctor(here, "--base-url", url, "--json"))
    assert every["busy"]["level"] == "warn"
    assert "2 at work" in every["busy"]["found"]


def test_a_log_that_another_server_writes_is_found_out(here: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "other.log"
    log.write_text("0817 14:01:04 ds4-server: listening on http://127.0.0.1:8000\n")
    with chat_server() as (_, url):
        every = found(doctor(here, "--base-url", url, "--server-log", str(log), "--json"))
    assert every["log"]["level"] == "OK"
    assert every["log-follows"]["level"] == "FAIL"
    assert "did not grow" in every["log-follows"]["found"]
    assert every["markers"]["level"] == "note"  # nobody has it open


def only_fail(done: Done) -> str:
    """The one line that says FAIL; the machine was looked at all the same."""
    assert done.returncode == 1
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "the server"
    assert lines[2] == "this machine"
    assert [one.split()[1] for one in lines if one.startswith("FAIL")] == ["endpoint"]
    assert {"governor", "memory", "disk", "sandbox", "corpus"} <= {one.split()[1] for one in lines[3:-1]}
    return lines[1]


def test_a_closed_port_is_one_line(here: dict[str, str]) -> None:
    with nobody() as port:
        line = only_fail(doctor(here, "--base-url", f"http://127.0.0.1:{port}/v1"))
    assert "connection failed" in line
    assert "start the server, or correct --base-url" in line


def test_a_plain_web_server_is_one_line(here: dict[str, str], tmp_path: Path) -> None:
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        line = only_fail(doctor(here, "--base-url", f"http://127.0.0.1:{server.server_address[1]}/v1"))
        server.shutdown()
        thread.join()
    assert "HTTP 404" in line
    assert "no OpenAI-compatible server" in line


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def replies(status: str, body: bytes, kind: str) -> ScriptedServer:
    return ScriptedServer(play=lambda _seen: reply(status, body, kind))


def test_a_page_in_place_of_models_is_one_line(here: dict[str, str]) -> None:
    with serving(replies("200 OK", b"<html><body>It works!</body></html>", "text/html")) as server:
        line = only_fail(doctor(here, "--base-url", server.url))
    assert "<html><body>It works!" in line
    assert "no OpenAI-compatible server" in line


def test_a_key_that_is_wanted_is_one_line(here: dict[str, str]) -> None:
    with serving(replies("401 Unauthorized", b'{"error":{"message":"no key"}}', "application/json")) as server:
        line = only_fail(doctor(here, "--base-url", server.url))
    assert "HTTP 401: no key" in line
    assert "set OPENAI_API_KEY" in line


def test_a_base_url_without_v1_is_set_right(here: dict[str, str]) -> None:
    with chat_server() as (_, url):
        line = only_fail(doctor(here, "--base-url", url.removesuffix("/v1")))
    assert f"--base-url {url}" in line


def test_a_model_that_is_not_there_is_one_line(here: dict[str, str]) -> None:
    with chat_server() as (_, url):
        line = only_fail(doctor(here, "--base-url", url, "--model", "large"))
    assert "'large' is not there" in line
    assert "--model m" in line


def test_a_chat_request_that_fails_leaves_out_what_hangs_on_it(here: dict[str, str]) -> None:
    def play(seen: Any) -> Any:
        if seen.line.startswith("POST "):
            return reply("503 Service Unavailable", b'{"error":{"message":"loading model"}}')
        return ChatServer().play(seen)

    with serving(ScriptedServer(play=play)) as server:
        every = found(doctor(here, "--base-url", server.url, "--json"))
    assert every["chat"]["level"] == "FAIL"
    assert "loading model" in every["chat"]["found"]
    assert "cached" not in every
    assert "context" in every


def test_a_server_that_never_answers_is_left_when_its_time_is_over(here: dict[str, str]) -> None:
    def play(seen: Any) -> Any:
        return (HANG,) if seen.line.startswith("POST ") else ChatServer().play(seen)

    with serving(ScriptedServer(play=play)) as server:
        every = found(doctor(here, "--base-url", server.url, "--timeout", "5", "--json"))
    assert every["chat"]["level"] == "FAIL"
    assert every["chat"]["found"].startswith("a chat request failed: cut off")
    assert every["context"]["level"] == "OK"


def test_a_launched_server_that_ends_at_once_is_one_line(here: dict[str, str]) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(\"no such model: {{port}}\")'"
    line = only_fail(doctor(here, "--launch", command))
    assert "no such model" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--timeout", "0"), "--timeout"),
        (("--base-url", "nothing"), "--base-url"),
        (("--base-url", "http://127.0.0.1:1/v1", "--server-log", "/no/such.log"), "--server-log"),
        (("--server", "embedded", "--context", "100"), "--context"),
    ],
)
def test_an_option_that_cannot_be_used_is_a_usage_error(
    here: dict[str, str], options: tuple[str, ...], said: str
) -> None:
    done = doctor(here, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_twin_is_visited_in_virtual_time(here: dict[str, str]) -> None:
    done = doctor(here, "--server", "twin", "--json")
    assert done.returncode == 0
    every = found(done)
    assert every["software"]["found"].endswith("no machine is measured")
    assert every["log-follows"]["found"] == "has all 6 requests of ours, by their token counts"
    assert (every["usage"]["level"], every["tool-calls"]["level"]) == ("OK", "OK")
    # ds4 finds a conversation that goes on, and not the same prompt again.
    assert "cached 0, then 0 of" in every["cached"]["found"]
    assert every["cached"]["level"] == "OK"


@contextmanager
def twin_over_http(log: Path, flags: int, *options: str) -> Iterator[str]:
    """`agentload twin serve` as a process whose stderr is `log`, opened with `flags`."""
    port = free_port()
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | flags)
    words = [str(PROGRAM), "twin", "serve", "--port", str(port), "--speed", "50", *options]
    with subprocess.Popen(words, stderr=fd, env={**os.environ, "TZ": "UTC"}) as process:
        os.close(fd)
        while b"listening on" not in log.read_bytes():
            assert process.poll() is None
        yield f"http://127.0.0.1:{port}/v1"
        process.terminate()


def test_the_twin_over_http_with_its_log(here: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "twin.log"
    with twin_over_http(log, os.O_APPEND, "--batched-session", "2", "--ctx", "32768") as url:
        done = doctor(here, "--base-url", url, "--server-log", str(log), "--json")
    every = found(done)
    assert done.returncode == 0, done.stdout
    assert every["log"]["found"].startswith("ds4: ")
    assert every["markers"]["found"] == "the server opened its log with O_APPEND: markers go into it"
    assert every["log-follows"]["level"] == "OK"
    assert every["clock"]["found"].startswith("the log's times are aligned by our requests to 1.00 s; ")
    assert "its stamps are UTC+0 h and 0 s" in every["clock"]["found"] or "UTC+0 h and 1 s" in every["clock"]["found"]
    assert "log has 0 requests beside ours" in every["busy"]["found"]
    assert every["slots"]["level"] == "warn"
    assert every["slots"]["found"].startswith("2 for 3 agents (log: resident_sessions)")
    assert "--batched-session 3" in every["slots"]["advice"]
    assert every["context"]["level"] == "warn"


def test_a_log_that_is_overwritten_takes_no_markers(here: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "twin.log"
    with twin_over_http(log, os.O_TRUNC) as url:
        every = found(doctor(here, "--base-url", url, "--server-log", str(log), "--json"))
    assert every["markers"]["level"] == "note"
    assert "without O_APPEND" in every["markers"]["found"]


def test_a_server_that_is_launched_for_the_visit_has_ended_after_it(here: dict[str, str], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = f"sh -c 'echo $$ >{pid}; exec {PROGRAM} twin serve --speed 50 --batched-session 3 --port {{port}}'"
    done = doctor(here, "--launch", command, "--json")
    every = found(done)
    assert done.returncode == 0, done.stdout
    assert every["clock"]["found"] == "each log line is stamped when it comes"
    assert every["busy"]["found"] == "it was started for this visit"
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_the_installed_program_does_the_same(here: dict[str, str]) -> None:
    done = started("doctor", "--corpus", "tiny", "--base-url", "http://127.0.0.1:1/v1", env=here)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].endswith("1 FAIL: a night would be wasted")


@pytest.mark.real_server
def test_the_embedded_server_is_fit_for_a_night(here: dict[str, str]) -> None:
    done = doctor(here, "--agents", "2", "--json", "--timeout", "300")
    every = found(done)
    assert done.returncode == 0, done.stdout
    for code in ("endpoint", "software", "chat", "usage", "cached", "streaming", "tool-calls", "ignore-eos", "log"):
        assert every[code]["level"] == "OK", every[code]
    assert every["log-follows"]["found"] == "has all 6 requests of ours, by their token counts"
    assert every["slots"]["found"].startswith("2 for 2 agents (GET /props total_slots)")
    assert every["context"]["found"].startswith("8,192 tokens for a request")
