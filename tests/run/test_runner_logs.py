"""Do markers get to the server's log in each of the ways there are, and is the log joined with the requests?

The server is a process of its own (tests.run.chat_model) whose log follows llama.cpp's.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import tomli_w
from anyio import to_thread

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.clock import SystemClock
from agentload.core.markers import parse
from agentload.errors import ServerError
from agentload.report import terminal
from agentload.run.interrupt import first_of_ours
from agentload.run.logwatch import LogWatch
from agentload.run.serving import Served, wait_for_open_requests, while_it_runs
from agentload.servers.process import ServerProcess
from tests.ports import nobody
from tests.processes import gone
from tests.run.chat_model import ChatModel
from tests.run.runs import AGENTLOAD, ROOT, Made, derived_bytes, environment, fields_of, make, only_run

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
    memory = found["segments"][0]["memory"]
    assert memory["host_free_min_bytes"] == min(one["host_free_bytes"] for one in samples)
    assert memory["server_rss_max_bytes"] == max(one["rss_bytes"] for one in samples)
    assert memory["host_total_bytes"] == psutil.virtual_memory().total
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


class Rotated:
    """A log that is renamed before its server's fourth request, `times` in one go, and opened anew by name or not."""

    def __init__(self, folder: Path, *, reopened: bool, times: int = 1) -> None:
        self.path = folder / "server.log"
        self.old = folder / f"server.log.{times}"
        self._reopened, self._times = reopened, times
        self._file = self.path.open("ab", buffering=0)

    def write(self, line: str) -> None:
        if "task 3 | processing" in line:
            for number in range(self._times, 0, -1):
                self.path.rename(self.path.with_name(f"server.log.{number}"))
                if self._reopened:
                    self._file.close()
                    self._file = self.path.open("ab", buffering=0)
                else:
                    self.path.touch()
        self._file.write(line.encode())

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("reopened", [False, True], ids=["renamed", "reopened"])
async def test_a_log_that_is_rotated_in_mid_run_is_had_whole(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path, reopened: bool
) -> None:
    log = Rotated(tmp_path, reopened=reopened)
    async with ChatModel(log=log.write) as model:
        fields = fields_of(server={"base_url": model.url, "log": str(log.path)})
        made = await make(tmp_path / "runs", cache_dir, fields)
    log.close()
    old, new = log.old.read_bytes(), log.path.read_bytes()
    assert (b"task 5 | processing" in new) == reopened
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.why) == ("success", None)
    assert made.run.server_log.read_bytes() == old + new
    assert manifest.server["log_bytes"] == len(old) + len(new)
    (doubt,) = manifest.doubts
    then = f", then the {len(new):,} that its server has written under the old name since then" if reopened else ""
    assert doubt["code"] == "log-rotated"
    assert doubt["message"] == (
        f"{log.path} was rotated: another file has its name now: server.log has the {len(old):,} bytes of the file "
        f"that it was at the start{then}"
    )
    assert [(one["action"], one["where"], one["offset"] is None) for one in made.markers()] == [
        ("begin", "log", False),
        ("end", "sidecar", True),
    ]
    assert [one["code"] for one in check_joined(made)["doubts"]] == ["log-rotated"]


async def test_what_may_be_missing_of_a_rotated_log_is_said_with_what_to_do(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    log = Rotated(tmp_path, reopened=True, times=2)
    async with ChatModel(log=log.write) as model:
        fields = fields_of(server={"base_url": model.url, "log": str(log.path)})
        made = await make(tmp_path / "runs", cache_dir, fields)
    log.close()
    manifest = made.run.read_manifest()
    assert made.run.server_log.read_bytes() == log.old.read_bytes()
    new = log.path.read_bytes()
    (doubt,) = (one for one in manifest.doubts if one["code"] == "log-rotated")
    assert (manifest.status, manifest.why) == ("partial", doubt["message"])
    assert str(manifest.why).endswith(
        f"at the start, not the {len(new):,} of the new one, which may be of its server too"
    )
    (command,) = re.findall(r"^if they are: (cat .*) && agentload account \S+$", doubt["advice"])
    await anyio.run_process(["sh", "-c", command])
    check_joined(made)


async def test_a_log_that_is_truncated_in_mid_run_costs_the_log_and_not_the_run(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """As logrotate's copytruncate; it has grown beyond its former size when the run ends."""
    log = tmp_path / "server.log"
    with log.open("ab", buffering=0) as file:

        def write(line: str) -> None:
            if "task 1 | processing" in line:
                os.truncate(log, 0)
            file.write(line.encode())

        async with ChatModel(log=write) as model:
            fields = fields_of(server={"base_url": model.url, "log": str(log)})
            made = await make(tmp_path / "runs", cache_dir, fields)
    manifest = made.run.read_manifest()
    assert manifest.status == "partial"
    assert str(manifest.why).startswith(f"--server-log cannot be copied: {log} was truncated: the bytes from ")
    assert log.stat().st_size > made.markers()[0]["offset"]
    assert [(one["action"], one["where"]) for one in made.markers()] == [("begin", "log"), ("end", "sidecar")]
    assert "log-gone" in [one["code"] for one in manifest.doubts]
    assert accounts.account(made.run.path)["segments"][0]["whole"]["decoded_tokens"] == 135


@asynccontextmanager
async def hung(fifo: Path) -> AsyncIterator[int]:
    """Wait until the server plays HANG; gives its process id. It must be able to tell more while the block lasts."""
    told = await to_thread.run_sync(fifo.open)
    with told:
        yield await to_thread.run_sync(lambda: next(int(line.split()[1]) for line in told if line[:7] == "hanging"))


def hanging(fifo: Path, at: int) -> str:
    """A command whose server hangs from request `at` on, and says so into `fifo`."""
    os.mkfifo(fifo)
    return f"{PROGRAM} --port {{port}} --hang-at {at} --tell {fifo}"


async def test_a_server_that_is_killed_in_mid_run_ends_the_run_at_once_with_how_it_died(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """Its agents would wait half an hour for an answer, and the end marker ten seconds for the dead."""
    # One agent: of two, one may be in the middle of an answer when the other one's second request hangs.
    fields = fields_of(server={"launch": hanging(tmp_path / "tell", 2)}, agents=1)

    over = anyio.Event()

    async def kill() -> None:
        async with hung(tmp_path / "tell") as pid:
            os.kill(pid, signal.SIGKILL)
            await over.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(kill)
        try:
            made = await make(tmp_path / "runs", cache_dir, fields)
        except ServerError as error:
            said = str(error)
        else:
            manifest = made.run.read_manifest()
            pytest.fail(f"the run ended as {manifest.status}: {manifest.why}; {made.said}")
        over.set()
    run = only_run(tmp_path / "runs")
    pid = Made(run).events("server_started")[0]["pid"]
    assert re.fullmatch(
        rf"the server \(pid {pid}\) was killed by signal 9 after \d+\.\d s; its last lines: .* \| .* \| .*; "
        rf"all of them: {run.server_log}",
        said,
    )
    manifest = run.read_manifest()
    assert (manifest.status, manifest.why) == ("error", said)
    assert (manifest.server["exit_code"], manifest.server["killed"]) == (-9, False)  # not by us
    # Nothing is said of other clients, whose requests might be open: there were none, and the log says no more.
    assert "open-requests" not in [one["code"] for one in manifest.doubts]
    assert [one["where"] for one in Made(run).markers()] == ["log", "log"]
    assert accounts.account(run.path)["requests"]["exact"] == 2


async def test_a_server_that_loses_its_connections_before_its_listener_still_ends_the_run_with_how_it_died(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """So does each that is killed: for some milliseconds, longer on a busy machine, it seemed to be there still."""
    fields = fields_of(server={"launch": f"{PROGRAM} --port {{port}} --break-at 1"}, agents=1)
    with pytest.raises(ServerError, match=r"^the server \(pid \d+\) was killed by signal 9 after "):
        await make(tmp_path / "runs", cache_dir, fields)
    manifest = only_run(tmp_path / "runs").read_manifest()
    assert (manifest.status, manifest.agents[0]["end"]) == ("error", "failed")
    assert manifest.agents[0]["why"].startswith("broken answer: ")


async def test_work_is_broken_off_when_its_server_ends(tmp_path: Path) -> None:
    clock = SystemClock()
    process = ServerProcess(["sleep", "1000"], tmp_path / "log", tmp_path / "times", clock, env=dict(os.environ))
    served = Served("launch", "", "http://127.0.0.1:1/v1", "m", "none", process=process)

    async def work() -> None:
        async with while_it_runs(served):
            os.kill(process.pid, signal.SIGKILL)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await work()
    ours = first_of_ours(caught.value)
    assert isinstance(ours, ServerError)
    assert "was killed by signal 9" in str(ours)
    process.stop(0.0)


async def test_a_server_behind_a_wrapper_that_is_gone_when_the_work_is_done_is_an_error(tmp_path: Path) -> None:
    """The wrapper runs, and nobody listens any more."""
    clock = SystemClock()
    process = ServerProcess(["sleep", "1000"], tmp_path / "log", tmp_path / "times", clock, env=dict(os.environ))
    with nobody() as port:
        served = Served("launch", "", f"http://127.0.0.1:{port}/v1", "m", "none", process=process)
        with pytest.raises(ServerError, match=rf"nobody listens at http://127\.0\.0\.1:{port}/v1 any more, though"):
            async with while_it_runs(served):
                pass
    process.stop(0.0)


async def test_requests_that_were_open_when_the_server_died_are_a_doubt_of_their_own(tmp_path: Path) -> None:
    """Three lines in its log: one request begins, and the server is gone."""
    line = b"0.01.000.000 I slot launch_slot_: id  0 | task 7 | processing task, is_child = 0\n"
    script = f"printf '%s\\n' '{line.decode().strip()}'; kill -9 $$"
    argv = ["sh", "-c", script]
    clock = SystemClock()
    process = ServerProcess(argv, tmp_path / "server.log", tmp_path / "times", clock, env=dict(os.environ))
    ending = await process.wait_exit()
    served = Served("launch", "", "http://127.0.0.1:1/v1", "m", "none", argv, process=process)
    served.watch = LogWatch(tmp_path / "server.log", "llamacpp")
    doubt = await wait_for_open_requests(served, clock)
    assert doubt is not None
    assert (doubt.code, doubt.message) == (
        "server-gone",
        f"the log shows 1 requests that were open when {ending}",
    )
    process.stop(0.0)


@pytest.mark.parametrize("deaf", [False, True], ids=["polite", "deaf"])
async def test_a_run_that_is_killed_leaves_neither_its_server_nor_its_folder(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path, deaf: bool
) -> None:
    launch = hanging(tmp_path / "tell", 2)
    if deaf:
        launch = f'sh -c \'trap "" TERM; "$@"; "$@"\' sh {launch}'
    scenario = tmp_path / "scenario.toml"
    server = {"launch": launch, "stop_s": 0.5}
    scenario.write_text(tomli_w.dumps(fields_of(server=server, stagger_s=0.0)), encoding="utf-8")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(*AGENTLOAD, "run", str(scenario), "--out", str(tmp_path / "runs")),
        env=environment(cache_dir) | {"TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
    )
    async with hung(tmp_path / "tell") as pid:
        family = psutil.Process(process.pid).children(recursive=True)
        assert pid in [one.pid for one in family]
        assert [one.name for one in temporary.iterdir() if one.name.startswith("agentload-")]
        process.kill()
        await process.wait()
    assert gone(*family)
    assert list(temporary.iterdir()) == []
    assert accounts.account(only_run(tmp_path / "runs").path)["status"] == "started"


async def test_a_server_that_had_to_be_killed_at_the_end_is_said_to_have_been(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    # The model sets a handler of its own for SIGTERM; its wrapper has none, and goes on.
    script = f"trap '' TERM; {PROGRAM} --port {{port}}; exec sleep 1000"
    fields = fields_of(server={"launch": f"sh -c {shlex.quote(script)}", "stop_s": 0.3})
    made = await make(tmp_path, cache_dir, fields)
    (stopped,) = made.events("server_stopped")
    assert f"the server (pid {stopped['pid']}) did not end within 0.3 s of SIGTERM: it was killed" in made.said
    manifest = made.run.read_manifest()
    assert (manifest.status, manifest.server["killed"], manifest.server["exit_code"]) == ("success", True, -9)


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


async def test_what_stands_in_front_of_each_line_of_a_log_is_said_at_once_and_again_with_the_account(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    log = tmp_path / "wrapped.log"
    log.write_text("server-1  | 0.00.999.507 I srv  llama_server: listening on http://127.0.0.1:18080\n" * 3)
    with running(tmp_path / "server.log", "ab", cache_dir) as url:
        made = await make(tmp_path / "runs", cache_dir, fields_of(server={"base_url": url, "log": str(log)}))
    why = "3 of its first 3 lines are of llamacpp, behind what docker compose logs puts in front: let `tail -n +1 -F "
    assert [line for line in made.said if line.startswith(f"{log}: of no known format: {why}{log} | sed -u -E ")]
    (doubt,) = (one for one in made.run.read_manifest().doubts if one["code"] == "unknown-log")
    assert doubt["advice"].startswith(why)
    (found,) = (one for one in accounts.account(made.run.path)["doubts"] if one["code"] == "log-format-unknown")
    assert found["advice"].startswith(why)


async def test_a_launched_server_that_ends_before_it_is_ready_is_an_error_with_its_last_lines(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    launch = f"{sys.executable} -c \"print('no such model'); raise SystemExit(3)\" --port {{port}}"
    with pytest.raises(
        ServerError, match=r"not ready: .* exited with 3 after .* its last lines: no such model; all of them: "
    ) as caught:
        await make(tmp_path, cache_dir, fields_of(server={"launch": launch}))
    run = only_run(tmp_path)
    manifest = run.read_manifest()
    assert (manifest.status, manifest.why) == ("error", str(caught.value))
    found = accounts.account(run.path)
    assert (found["segments"], found["requests"]["total"]) == ([], 0)
    assert f"{run.name}  error" in terminal.render(found)
