"""Do markers get to the server's log in each of the ways there are, and is the log joined with the requests?

The server is a process of its own (tests.run.chat_model) whose log follows llama.cpp's.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.core.markers import parse
from agentload.errors import ServerError
from agentload.report import terminal
from tests.run.chat_model import ChatModel
from tests.run.runs import ROOT, Made, derived_bytes, environment, fields_of, make, only_run

pytestmark = pytest.mark.anyio
PROGRAM = f"{sys.executable} -m tests.run.chat_model"


@contextmanager
def running(log: Path, how: str, cache_dir: Path) -> Iterator[str]:
    """A server that was started in a shell with `> log` ("wb") or `>> log` ("ab"); gives its base URL."""
    fifo = log.with_name("tell")
    os.mkfifo(fifo)
    with log.open(how) as output:
        argv = [*PROGRAM.split(), "--tell", str(fifo)]
        process = subprocess.Popen(argv, stdout=output, stderr=output, cwd=ROOT, env=environment(cache_dir))
    try:
        with fifo.open(encoding="utf-8") as told:
            port = told.readline().split()[1]
            yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def markers_in(log: bytes) -> list[tuple[str, int, int]]:
    """(action, time, offset) of each line of a log that is a marker."""
    found, offset = [], 0
    for line in log.split(b"\n"):
        marker = parse(line, None)
        if marker is not None:
            found.append((marker.action, marker.at_ns, offset))
        offset += len(line) + 1
    return found


def check_joined(made: Made) -> dict[str, Any]:
    """The account of a run of six requests whose log has all of them; sums by hand as in test_runner."""
    found = accounts.account(made.run.path)
    requests, lines = found["requests"], found["lines"]
    assert (requests["total"], requests["exact"], requests["server_only"]) == (6, 6, 0), requests
    log = made.run.server_log.read_bytes()
    assert lines["total"] == log.count(b"\n")
    assert lines["total"] == lines["understood"] + lines["ignored"] + lines["markers"] + lines["unknown"]
    whole = found["segments"][0]["whole"]
    assert [whole["new_prefill_tokens"], whole["decoded_tokens"]] == [3300, 135]
    assert found["usage_check"]["decoded_tokens"] == {
        "requests": 6,
        "log": 135,
        "usage": 135,
        "remainder": 0,
        "differing_requests": 0,
    }
    assert whole["matches"] == {"matched": 6, "ambiguous": 0, "client_only": 0, "server_only": 0}
    return found


async def test_a_launched_servers_log_holds_both_markers_and_proves_every_request(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    made = await make(tmp_path, cache_dir, fields_of(server={"launch": f"{PROGRAM} --port {{port}}"}))
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.why, manifest.doubts) == ("success", None, [])
    assert manifest.server["log_owned"] is True
    assert manifest.server["argv"][:3] == [sys.executable, "-m", "tests.run.chat_model"]
    assert str(manifest.server["base_url"]) == f"http://127.0.0.1:{manifest.server['argv'][-1]}/v1"
    log = made.run.server_log.read_bytes()
    told = made.markers()
    assert markers_in(log) == [(one["action"], one["t"], one["offset"]) for one in told]
    assert [one["where"] for one in told] == ["log", "log"]
    # The last request's last lines come before the end marker, although the client had its answer before them.
    end = markers_in(log)[1][2]
    assert log[:end].count(b"stop processing: n_tokens") == 6
    stamps = made.run.server_times.read_text(encoding="ascii").splitlines()
    assert len(stamps) == log.count(b"\n")
    found = check_joined(made)
    assert found["clock"]["log_timeline"] == "unix"
    assert found["lines"]["markers"] == 2
    # The server's process was sampled around the segment, and is gone.
    samples = made.events("sample")
    assert [samples[0]["where"], samples[-1]["where"]] == ["begin", "end"]
    assert found["segments"][0]["server_cpu_s"] == samples[-1]["cpu_s"] - samples[0]["cpu_s"]
    assert [one["exit_code"] for one in made.events("server_stopped")] == [0]
    assert not psutil.pid_exists(made.events("server_started")[0]["pid"])
    first = derived_bytes(made.run)
    accounts.account(made.run.path)
    assert derived_bytes(made.run) == first


async def test_markers_go_into_the_log_of_a_server_that_appends_and_its_log_is_copied(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    with running(log, "ab", cache_dir) as url:
        made = await make(tmp_path / "runs", cache_dir, fields_of(server={"base_url": url, "log": str(log)}))
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.doubts) == ("success", [])
    assert (manifest.server["markers"], manifest.server["log_path"]) == ("log", str(log))
    copy = made.run.server_log.read_bytes()
    assert log.read_bytes().startswith(copy)
    assert manifest.server["log_bytes"] == len(copy)
    assert markers_in(copy) == [(one["action"], one["t"], one["offset"]) for one in made.markers()]
    assert {one["inode"] for one in made.markers()} == {log.stat().st_ino}
    assert copy[: markers_in(copy)[1][2]].count(b"stop processing: n_tokens") == 6
    found = check_joined(made)
    assert found["lines"]["markers"] == 2
    assert "doubt" not in terminal.render(found)


async def test_a_log_that_its_server_would_overwrite_gets_no_marker_and_the_sidecar_has_the_places(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    with running(log, "wb", cache_dir) as url:
        made = await make(tmp_path / "runs", cache_dir, fields_of(server={"base_url": url, "log": str(log)}))
    manifest = made.run.read_manifest()
    assert manifest.status == "success"
    (doubt,) = manifest.doubts
    assert doubt["code"] == "sidecar-markers"
    assert "restart the server with `>>` instead of `>`" in doubt["message"]
    copy = made.run.server_log.read_bytes()
    assert copy == log.read_bytes()
    assert b"agentload" not in copy
    begin, end = made.markers()
    assert [begin["where"], end["where"], end["inode"]] == ["sidecar", "sidecar", log.stat().st_ino]
    # The begin stands after the start-up lines and before all requests, the end after all of them.
    assert copy[begin["offset"] :].count(b"processing task") == 6
    assert copy[: begin["offset"]].endswith(b"\n")
    assert end["offset"] == len(copy)
    found = check_joined(made)
    assert [one["code"] for one in found["doubts"]] == ["sidecar-markers"]
    assert "doubt (sidecar-markers)" in terminal.render(found)


async def test_a_log_that_is_rotated_away_in_mid_run_costs_the_log_and_not_the_run(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    with log.open("ab", buffering=0) as file:

        def write(line: str) -> None:
            file.write(line.encode())
            if "task 3 | processing" in line:
                log.rename(tmp_path / "server.log.1")

        async with ChatModel(log=write) as model:
            fields = fields_of(server={"base_url": model.url, "log": str(log)})
            made = await make(tmp_path / "runs", cache_dir, fields)
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.why) == (
        "partial",
        f"--server-log: {log} cannot be copied: No such file or directory",
    )
    assert [one["end"] for one in manifest.agents] == ["answered", "answered"]
    assert [(one["action"], one["where"]) for one in made.markers()] == [("begin", "log"), ("end", "sidecar")]
    assert "log-gone" in [one["code"] for one in manifest.doubts]
    found = accounts.account(made.run.path)
    assert found["segments"][0]["whole"]["decoded_tokens"] == 135


async def test_a_server_whose_log_has_no_known_format_is_accounted_for_by_its_answers(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    launch = f"{PROGRAM} --quiet --port {{port}}"
    made = await make(tmp_path, cache_dir, fields_of(server={"launch": launch}))
    manifest = made.run.read_manifest()
    assert (manifest.status, [one["code"] for one in manifest.doubts]) == ("success", ["unknown-log"])
    found = accounts.account(made.run.path)
    assert (found["requests"]["client_only"], found["segments"][0]["whole"]["decoded_tokens"]) == (6, 135)
    assert "log-format-unknown" in [one["code"] for one in found["doubts"]]


async def test_a_launched_server_that_ends_before_it_is_ready_is_an_error_with_its_last_lines(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    launch = f"{sys.executable} -c \"print('no such model'); raise SystemExit(3)\" --port {{port}}"
    with pytest.raises(
        ServerError, match=r"exited with 3 before it was ready: .* its last lines: no such model"
    ) as caught:
        await make(tmp_path, cache_dir, fields_of(server={"launch": launch}))
    run = only_run(tmp_path)
    manifest = run.read_manifest()
    assert (manifest.status, manifest.why) == ("error", str(caught.value))
    found = accounts.account(run.path)
    assert (found["segments"], found["requests"]["total"]) == ([], 0)
    assert f"{run.name}  error" in terminal.render(found)
