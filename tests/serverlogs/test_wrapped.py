"""Is it said what stands in front of each line of a log, and does the command that is said take away just that?

The shapes are those that journalctl, rsyslog, docker, compose and kubectl write; the commands run in a shell.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentload.serverlogs import formats, wrapped

HERE = Path(__file__).parent
DS4 = (HERE / "ds4" / "truth_batched6_q128.log").read_bytes()
LLAMA = (HERE / "llamacpp" / "three_agents.log").read_bytes()
BARE = re.sub(rb"(?m)^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ", b"", LLAMA)  # --no-log-prefix
VLLM = (HERE / "vllm" / "queue.log").read_bytes()
SGLANG = (HERE / "sglang" / "batches.log").read_bytes()
SERVERS = {
    name: b"".join(data.splitlines(keepends=True)[:60])
    for name, data in (("ds4", DS4), ("llamacpp", LLAMA), ("llamacpp bare", BARE), ("vllm", VLLM), ("sglang", SGLANG))
}

PREFIXES = {
    "journalctl": "Nov 30 04:22:54 box server[812]: ",
    "journalctl -o short-precise": "Nov  3 04:22:54.123456 box server[812]: ",
    "journalctl --no-hostname": "Nov 30 04:22:54 server[812]: ",
    "journalctl -o short-full": "Mon 2026-11-30 04:22:54 UTC box server[812]: ",
    "journalctl -o with-unit": "Mon 2026-11-30 04:22:54 CET box llama@8080.service[812]: ",
    "journalctl -o short-iso": "2026-11-30T04:22:54+0100 box server[812]: ",
    "journalctl -o short-iso of today": "2026-11-30T04:22:54+01:00 box server[812]: ",
    "journalctl -o short-iso-precise": "2026-11-30T04:22:54.123456+01:00 box server[812]: ",
    "journalctl -o short-monotonic": "[   12.345678] box server[812]: ",
    "journalctl -o short-unix": "1795926174.123456 box server[812]: ",
    "rsyslog": "2026-11-30T04:22:54.123456+01:00 box server: ",
    "RFC 5424": "<30>1 2026-11-30T04:22:54.123456Z box server 812 - - ",
    "docker logs -t": "2026-11-30T04:22:54.123456789Z ",
    "podman logs -t": "2026-11-30T04:22:54+01:00 ",
    "docker compose logs": "server-1  | ",
    "docker compose logs -t": "server-1  | 2026-11-30T04:22:54.123456789Z ",
    "docker-compose logs": "chat_server_1  | ",
    "docker service logs": "server.1.zq4x@node-2    | ",
    "pm2 logs": "0|server  | ",
    "kubectl logs --timestamps": "2026-11-30T04:22:54.123456789Z ",
    "kubectl logs --prefix": "[pod/server-0/main] ",
    "kubectl logs --prefix --timestamps": "[pod/server-0/main] 2026-11-30T04:22:54.123456789Z ",
    "a node's log of a pod": "2026-11-30T04:22:54.123456789Z stderr F ",
    "ts": "Nov 30 04:22:54 ",
    "ts of ISO times": "2026-11-30 04:22:54 ",
}


def before_each(data: bytes, prefix: str) -> bytes:
    return b"".join(prefix.encode() + line + b"\n" for line in data.splitlines())


def behind(data: bytes) -> wrapped.Behind:
    assert formats.detect(data[: formats.HEAD_BYTES]) is None
    found = wrapped.behind(data)
    assert found is not None
    return found


def run_in_a_shell(found: wrapped.Behind, path: Path) -> bytes:
    """What the command that is said hands to `agentload account -`."""
    command = re.findall(r"`(.*?) \| agentload account -`", found.sentence(str(path)))[0]
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("kind", "server"),
    [
        *((kind, server) for kind in PREFIXES for server in ("ds4", "llamacpp bare")),
        *((kind, server) for kind in list(PREFIXES)[::4] for server in ("llamacpp", "vllm", "sglang")),
    ],
)
def test_the_command_that_is_said_gives_the_servers_own_bytes(kind: str, server: str, tmp_path: Path) -> None:
    path = tmp_path / "server log"  # a name that a shell would cut
    path.write_bytes(before_each(SERVERS[server], PREFIXES[kind]))
    found = behind(path.read_bytes())
    assert found.format == server.split(maxsplit=1)[0]
    assert run_in_a_shell(found, path) == SERVERS[server]


def test_as_many_lines_are_named_as_are_of_the_format_without_the_prefix() -> None:
    found = behind(before_each(DS4, "Nov 30 04:22:54 box ds4-server[812]: "))
    assert (found.format, found.lines, found.looked_at) == ("ds4", 667, 667)  # wc -l
    assert found.sentence("j.log") == (
        "667 of its first 667 lines are of ds4, behind what journalctl or syslog puts in front: "
        "`sed -E 's/^[A-Z][a-z]{2} [ 0-9][0-9] [0-9:.]+ ([^ :]+ )?[^ ]+: //' j.log | agentload account -`; "
        "or at the source: `journalctl -u UNIT -o cat`"
    )


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("docker logs -t", "leaving out the option for times"),
        ("docker compose logs", "`docker compose logs --no-log-prefix`"),
        ("docker compose logs -t", "`docker compose logs --no-log-prefix`, leaving out the option for times"),
        ("kubectl logs --prefix", "`kubectl logs` without --prefix"),
    ],
)
def test_how_to_get_the_log_without_it_is_said(kind: str, instead: str) -> None:
    found = behind(before_each(DS4, PREFIXES[kind]))
    assert found.sentence("x.log").endswith(f"; or at the source: {instead}")


def test_what_came_on_stdin_has_no_name_in_the_command() -> None:
    found = behind(before_each(LLAMA, "server-1  | "))
    assert "`... | sed -E 's/^([0-9]+\\|)?[^ |]+ +\\| //' | agentload account -`" in found.sentence(None)


def test_the_lines_of_systemd_and_of_journalctl_itself_may_stand_between(tmp_path: Path) -> None:
    path = tmp_path / "j.log"
    lines = before_each(DS4, "Nov 30 04:22:54 box ds4-server[812]: ").splitlines(keepends=True)
    first = [
        b"-- Boot 5c3b1d0f2a5e4c1f9d6f0a7b8c9d0e1f --\n",
        b"Nov 30 04:22:53 box systemd[1]: Started ds4.service - ds4.\n",
    ]
    path.write_bytes(b"".join(first + lines))
    found = behind(path.read_bytes())
    assert (found.lines, found.looked_at) == (667, 669)
    given = run_in_a_shell(found, path)
    assert given.endswith(DS4)
    assert given.count(b"\n") == 669


def test_colours_around_the_name_go_with_it(tmp_path: Path) -> None:
    """As compose writes on a terminal: the name has a colour, the text has none."""
    path = tmp_path / "c.log"
    path.write_bytes(before_each(VLLM, "\x1b[36mserver-1  | \x1b[0m"))
    assert run_in_a_shell(behind(path.read_bytes()), path) == VLLM


def _as_json(line: bytes) -> bytes:
    text = {"log": line.decode() + "\n", "stream": "stderr", "time": "2026-11-30T04:22:54.123456789Z"}
    return json.dumps(text, separators=(",", ":")).encode() + b"\n"


def test_dockers_own_file_is_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "c-json.log"
    path.write_bytes(b"".join(map(_as_json, LLAMA.splitlines())))
    found = behind(path.read_bytes())
    assert (found.format, found.steps) == ("llamacpp", ("jq -rj .log",))
    if shutil.which("jq") is not None:
        assert run_in_a_shell(found, path) == LLAMA


def _half(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(line if number % 3 else b"x: " + line for number, line in enumerate(lines))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"no log at all\n" * 40,
        before_each(b"GET / 200\nGET /x 404\n" * 20, "Nov 30 04:22:54 box nginx[7]: "),
        before_each(b"GET / 200\n" * 20, "server-1  | "),
        b'{"log":"torn\n{"log":5}\n{"log":"GET /"}\n',
        b"\xff\xfe\x00" * 400,
    ],
    ids=["nothing", "blank", "text", "another program's journal", "another's compose", "broken json", "binary"],
)
def test_behind_what_is_no_servers_log_nothing_is_found(data: bytes) -> None:
    assert wrapped.behind(data) is None


@pytest.mark.parametrize("make", [lambda one: one, _half], ids=["plain", "in part"])
def test_a_log_of_which_lines_are_known_as_they_stand_is_of_that_format(make: Callable[[bytes], bytes]) -> None:
    assert formats.detect(make(DS4)) == "ds4"


def test_a_log_that_grows_is_followed_into_a_file_without_the_prefix(tmp_path: Path) -> None:
    path = tmp_path / "server log"
    path.write_bytes(before_each(SERVERS["vllm"], PREFIXES["docker compose logs -t"]))
    said = wrapped.why_unknown(path.read_bytes(), str(path), grows=True)
    assert said is not None
    assert said.endswith("; or at the source: `docker compose logs --no-log-prefix`, leaving out the option for times")
    (command,) = re.findall(r"front: let `(.*?) >> FILE` run, and give FILE as the log;", said)
    assert command.startswith(f"tail -n +1 -F '{path}' | sed -u -E -e ")
    ends = command.replace(" -F ", " ", 1)  # what there is now, and no more
    done = subprocess.run(["/bin/sh", "-c", ends], capture_output=True, check=True)
    assert done.stdout == SERVERS["vllm"]


def test_of_a_server_that_is_ours_it_is_said_how_to_have_its_log_written_without_the_prefix() -> None:
    said = wrapped.why_unknown(before_each(DS4, "ds4-1  | "), None, grows=True)
    assert said == (
        "667 of its first 667 lines are of ds4, behind what docker compose logs puts in front: have it written "
        "without; or at the source: `docker compose logs --no-log-prefix`"
    )


def test_a_log_of_json_is_said_to_be_none_that_is_read() -> None:
    lines = b'{"asctime": "2026-11-30 04:22:54", "levelname": "INFO", "message": "Started server process [1]"}\n'
    said = wrapped.why_unknown(lines * 3 + b"Traceback (most recent call last):\n", "s.log")
    assert said == (
        "its lines are JSON, and none is of a request as SGLang itself writes it: start vLLM without a JSON formatter "
        "(--logging-config, VLLM_LOGGING_CONFIG_PATH), SGLang too (SGLANG_LOGGING_CONFIG_PATH)"
    )
    assert wrapped.why_unknown(lines + b"hello\n" * 2, "s.log") is None


def test_of_requests_that_sglang_writes_as_json_nothing_is_said() -> None:
    line = b'{"timestamp": "2026-11-30T04:22:54.123456", "event": "request.received", "rid": "a", "obj": {}}\n'
    assert wrapped.why_unknown(line * 3, "s.log") is None
    assert wrapped.why_unknown((b"[2026-11-30 04:22:54] " + line) * 3, "s.log") is None


def test_of_an_empty_log_and_of_any_other_text_nothing_is_said() -> None:
    assert wrapped.why_unknown(b"", "s.log") is None
    assert wrapped.why_unknown(b"hello\nworld\n{}, and more\n", "s.log") is None
