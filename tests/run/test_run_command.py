"""Does `agentload run` end as it should: well, at a signal, killed; and do the other commands take what it left?

Each run is a process of its own (2 s to start); what needs none is called in this one. The model is scripted and,
where the test says so, never answers.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w
from typer.testing import CliRunner, Result

from agentload import plugins
from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.cli import app
from agentload.errors import AgentloadError, EndpointError, UsageError
from agentload.run.interrupt import AT_ONCE, INTERRUPTED
from tests.agents.scripted_server import HANG, ScriptedServer
from tests.confined import FULL, without
from tests.ports import nobody
from tests.processes import gone
from tests.run.chat_model import ChatModel, in_a_thread
from tests.run.runs import AGENTLOAD, Made, environment, fields_of, only_run


async def start(cache_dir: Path, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *AGENTLOAD, *arguments, stdout=PIPE, stderr=PIPE, env=environment(cache_dir)
    )


def here(cache_dir: Path, *arguments: str) -> Result:
    """The same in this process; an error of ours stands in `exception`."""
    return CliRunner().invoke(app, arguments, env={**environment(cache_dir), "OPENAI_BASE_URL": None})


def scenario_file(folder: Path, **fields: Any) -> str:
    """A scenario in TOML; a field that is None is left out."""
    path = folder / "scenario.toml"
    known = {name: value for name, value in fields_of(**fields).items() if value is not None}
    path.write_text(tomli_w.dumps(known), encoding="utf-8")
    return str(path)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A git checkout with one commit and a change that is not committed."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Cargo.toml").write_text("committed\n", encoding="utf-8")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        subprocess.run(["git", *who, "-C", folder, *arguments], check=True)
    (folder / "Cargo.toml").write_text("changed\n", encoding="utf-8")
    return folder


@pytest.mark.anyio
async def test_a_run_prints_its_report_and_its_path_last_and_is_done_with_exit_code_0(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    async with ChatModel() as model:
        path = scenario_file(tmp_path, base_url=model.url)
        process = await start(cache_dir, "run", path, "--out", str(out))
        stdout, stderr = [text.decode() for text in await process.communicate()]
    run = only_run(out)
    assert process.returncode == 0, stderr
    assert stdout.splitlines()[-1] == str(run.path)
    assert "requests 6 = tool calls 4 + answers 2 + failed 0" in stdout
    assert "a1 started" in stderr
    # The user's own file is kept verbatim: nothing was changed by options.
    kept = tomllib.loads(run.scenario_path.read_text(encoding="utf-8"))
    assert kept == fields_of(model.url)
    # The other commands say the same again.
    report = stdout[: stdout.rindex(str(run.path))]
    again = here(cache_dir, "report", str(run.path))
    assert (again.exit_code, again.stdout, again.stderr) == (0, report, "")
    again = here(cache_dir, "account", str(run.path))
    assert (again.exit_code, again.stdout, again.stderr) == (0, f"{report}{run.derived}\n", "")
    again = here(cache_dir, "account", str(run.path), "--json")
    on_disk = (run.derived / "account.json").read_text(encoding="utf-8")
    assert (again.exit_code, again.stdout, again.stderr) == (0, on_disk, f"{run.derived}\n")
    assert here(cache_dir, "report", str(run.path), "--json").stdout == on_disk
    assert json.loads(on_disk)["schema"] == "agentload.account/1"


def test_options_win_over_the_file_and_what_was_run_is_kept(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with in_a_thread(ChatModel()) as model:
        # The file's corpus_path would contradict --corpus.
        path = scenario_file(tmp_path, base_url="http://127.0.0.1:9/v1", corpus=None, corpus_path="/nowhere")
        options = (
            "--base-url",
            model.url,
            "--corpus",
            "tiny",
            "--agents",
            "1",
            "--tool-calls",
            "9",
            "--final-tokens",
            "99",
        )
        said = ("--name", "mine", "--condition", "--flag on", "--out", str(out), "--json", "--quiet")
        done = here(cache_dir, "run", path, *options, *said)
    assert (done.exit_code, done.stderr, done.exception) == (0, "", None)
    manifest = only_run(out).read_manifest()
    assert (manifest.scenario["agents"], manifest.scenario["limits"]["tool_calls"]) == (1, 9)
    assert manifest.scenario["limits"]["final_tokens"] == 99
    assert manifest.scenario["limits"]["failures"] == 1  # the file's other limits stay
    assert manifest.segments[0]["condition"] == "--flag on"
    assert "-mine-" in manifest.run
    # With --json stdout is one JSON document, which names the run.
    account = json.loads(done.stdout)
    assert (account["run"], account["work"]["requests"]) == (only_run(out).path.name, 3)


def test_with_json_the_path_is_the_last_line_of_stderr(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with in_a_thread(ChatModel()) as model:
        done = here(cache_dir, "run", scenario_file(tmp_path, base_url=model.url), "--out", str(out), "--json")
    run = only_run(out)
    assert (done.exit_code, done.exception) == (0, None)
    assert json.loads(done.stdout)["run"] == run.path.name
    assert done.stderr.splitlines()[-1] == str(run.path)


def test_with_json_a_run_without_an_account_prints_nothing_on_stdout_and_its_path_on_stderr(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    with nobody() as port:
        path = scenario_file(tmp_path, base_url=f"http://127.0.0.1:{port}/v1")
        done = here(cache_dir, "run", path, "--out", str(tmp_path / "runs"), "--json", "--quiet")
    assert isinstance(done.exception, EndpointError)
    run = only_run(tmp_path / "runs")
    assert (done.stdout, done.stderr) == ("", f"what there is: {run.path}\n")


def test_a_users_own_checkout_is_worked_on_as_it_was_committed(
    cache_dir: Path, tiny: workspace.Repository, mine: Path, tmp_path: Path
) -> None:
    with in_a_thread(ChatModel()) as model:
        options = ("--base-url", model.url, "--corpus", str(mine), "--task", "any-state", "--agents", "1")
        path = scenario_file(tmp_path, tasks=None)  # its corpus is tiny: --corpus with a path wins
        done = here(cache_dir, "run", path, *options, "--out", str(tmp_path / "runs"))
    assert (done.exit_code, done.exception) == (0, None)
    assert "changes in its work tree that are not committed are left out" in done.stderr
    manifest = only_run(tmp_path / "runs").read_manifest()
    assert manifest.corpus["dirty"] is True
    assert "committed" in model.requests[1].json()["messages"][3]["content"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--agents", "0"), "--agents: expected at least 1, got 0"),
        (("--stagger", "nan"), "--stagger: expected a finite number, got nan"),
        (("--answer-tokens", "0"), "--answer-tokens: expected at least 1, got 0"),
        (("--final-tokens", "0"), "--final-tokens: expected at least 1, got 0"),
        (("--context", "2000"), "--context 2000: leaves no room for 6 tool calls: a first prompt takes about 1,100 "),
        (("--wall", "-1"), "--wall: expected at least 0, got -1.0"),
        (("--server-log", ""), "--server-log: expected some text, got ''"),
        (("--base-url", ""), "--base-url: expected some text, got ''"),
        (("--launch", ""), "--launch: expected some text, got ''"),
        (("--launch", "serve"), "--launch: expected the server's address: put {port} or --port N into the command"),
        (("--launch", "serve {host} {port}"), "--launch: "),
        (("--launch", "serve {port}", "--base-url", "http://127.0.0.1:1/v1"), "--launch: "),
        (("--server-log", "x.log"), "server.log: expected the server whose log it is: give --base-url"),
        (
            ("--server-log", "x.log", "--launch", "serve {port}"),
            "server.log: a server that is launched writes to RUN/server.log",
        ),
        (("--server-args", "'"), "--server-args: No closing quotation"),
        (("nothing.toml",), "nothing.toml: cannot be read: No such file or directory"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_run_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    done = here(cache_dir, "run", *arguments, "--corpus", "tiny", "--quiet", "--out", str(tmp_path))
    assert isinstance(done.exception, AgentloadError), done.exception
    assert (done.exception.exit_code, done.stdout) == (2, "")
    assert str(done.exception).startswith(message)
    assert "\n" not in str(done.exception)


def test_a_server_in_the_file_that_is_no_table_is_told_also_beside_an_option(cache_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('server = "http://127.0.0.1:8080/v1"\n', encoding="utf-8")
    for options in ((), ("--base-url", "http://127.0.0.1:8080/v1"), ("--launch", "serve --port {port}")):
        done = here(cache_dir, "run", str(path), *options)
        assert isinstance(done.exception, UsageError), done.exception
        assert str(done.exception).startswith(f"{path}:1: server: expected a table, got 'http:")


def test_a_bad_value_in_the_file_is_told_with_its_line_also_beside_options(cache_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("\n[limits]\nturns = 0\n", encoding="utf-8")
    done = here(cache_dir, "run", str(path), "--tool-calls", "3")
    assert str(done.exception) == f"{path}:3: limits.turns: expected at least 1, got 0"


def test_launch_takes_the_place_of_the_files_endpoint_with_its_address_and_its_log(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    server = {"kind": "endpoint", "base_url": "http://127.0.0.1:9/v1", "log": "/nowhere", "model": "scripted"}
    path = scenario_file(tmp_path, server=server)
    launch = f"{sys.executable} -m tests.run.chat_model --port {{port}}"
    done = here(cache_dir, "run", path, "--launch", launch, "--agents", "1", "--out", str(tmp_path / "runs"))
    assert (done.exit_code, done.exception) == (0, None)
    manifest = only_run(tmp_path / "runs").read_manifest()
    assert manifest.server["kind"] == "launch"
    assert manifest.scenario["server"] == {
        "kind": "launch",
        "launch": launch,
        "model": "scripted",
        "args": [],
        "env": {},
        "otlp": False,
        "ready_s": 600.0,
        "stop_s": 600.0,
    }


def test_help_shows_every_default_and_the_installed_log_formats(cache_dir: Path) -> None:
    text = " ".join(CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).stdout.split())
    for default in (
        "How many agents. [default: (3)]",
        "Seed of tasks and sampling. [default: (0)]",
        "Part of the run directory's name. [default: (run)]",
        "as the markers say it. [default: (default)]",
        "Most tool calls of an agent. [default: (34; embedded server: 18)]",
        "then it is cut off. [default: (3600; embedded server: 900)]",
        "Most tokens of one answer. [default: (4096; embedded server: 160; at most 1/8 of the context)]",
        "Most tokens of the final answer. [default: (8192; embedded server: 200; at most 1/8 of the context)]",
        "Most tokens of context of an agent. [default: (180000; embedded server: 8192)]",
        "[default: (native)]",
        f"The log's format: {', '.join(plugins.names(plugins.SERVERLOGS))}. [default: (detected)]",
    ):
        assert default in text, default


def test_help_does_not_pay_for_what_a_run_needs(cache_dir: Path) -> None:
    program = """
import sys
from agentload.cli import main
sys.argv = ["agentload", "run", "--help"]
try:
    main()
finally:
    print(sorted({"openai", "polars", "git", "psutil"} & set(sys.modules)), file=sys.stderr)
"""
    env = environment(cache_dir)
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")


# ---- runs that fail: what there is stays, and is named -------------------------------------------------------------


@pytest.mark.anyio
async def test_a_server_that_ends_before_it_is_ready_leaves_a_run_directory_that_is_named(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    launch = f"{sys.executable} -c \"raise SystemExit('no such model')\" {{port}}"
    process = await start(cache_dir, "run", "--launch", launch, "--corpus", "tiny", "--out", str(out), "--quiet")
    stdout, stderr = [text.decode() for text in await process.communicate()]
    run = only_run(out)
    assert (process.returncode, stdout) == (2, f"{run.path}\n")
    there, error = stderr.splitlines()
    assert there == f"what there is: {run.path}"
    assert error.startswith("agentload: ")
    assert "no such model" in error
    assert run.read_manifest().status == "error"


@pytest.mark.anyio
async def test_an_endpoint_that_fails_every_completion_is_exit_code_2_with_its_first_failure_last(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    async with ChatModel(die_at=0) as model:
        path = scenario_file(tmp_path, base_url=model.url, stagger_s=0.0)
        process = await start(cache_dir, "run", path, "--out", str(out), "--quiet")
        stdout, stderr = [text.decode() for text in await process.communicate()]
    run = only_run(out)
    assert process.returncode == 2
    assert stdout.splitlines()[-1] == str(run.path)
    (line,) = stderr.splitlines()
    assert line.startswith("agentload: no request of any agent was answered: broken answer: ")
    assert (run.read_manifest().status, (run.derived / "account.json").is_file()) == ("error", True)


@pytest.mark.anyio
async def test_a_disk_that_fills_up_in_mid_run_still_has_room_for_the_last_manifest(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out, copy = tmp_path / "runs", tmp_path / "copy"
    out.mkdir()
    probe = await asyncio.create_subprocess_exec("unshare", "-Urm", "mount", "-t", "tmpfs", "t", str(out), stderr=PIPE)
    _, why = await probe.communicate()
    if probe.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {why.decode().strip()}")
    # An answer of 300 kB goes into the conversation twice; 600 kB are there, of which 296 kB are set aside.
    async with ChatModel(script=("x" * 300_000,)) as model:
        path = scenario_file(tmp_path, base_url=model.url, agents=1)
        shell = (
            f"mount -t tmpfs -o size=600k t {out} || exit 99\n" + '"$@"; code=$?; ' + f"cp -a {out} {copy}; exit $code"
        )
        process = await asyncio.create_subprocess_exec(
            *("unshare", "-Urm", "sh", "-c", shell, "sh", *AGENTLOAD, "run", path, "--out", str(out)),
            stdout=PIPE,
            stderr=PIPE,
            env=environment(cache_dir),
        )
        stdout, stderr = [text.decode() for text in await process.communicate()]
    run = only_run(copy)
    assert process.returncode == 2, stderr
    assert stdout.splitlines()[-1] == str(out / run.path.name)
    assert "Traceback" not in stderr
    messages = "agents/a0/messages.jsonl: cannot be written: No space left on device"
    assert stderr.splitlines()[-1] == f"agentload: {out / run.path.name}/{messages}"
    manifest = run.read_manifest()
    assert manifest.status == "partial"
    assert manifest.why is not None
    assert manifest.why.endswith(messages)
    assert accounts.account(run.path)["work"]["requests"] == 1


def test_a_disk_without_room_for_the_last_manifest_is_refused_before_any_request(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    out.mkdir()
    command = [*AGENTLOAD, "run", "--server", "twin", "--corpus", "tiny", "--agents", "2", "--out", str(out)]
    done = without(FULL, command, out, kib=120, env=environment(cache_dir))
    assert done.returncode == 2, done.stderr
    path = done.stdout.strip()
    expected = f"agentload: {path}: expected room for 344 kB at least, which a run sets aside: No space left on device"
    assert done.stderr.splitlines()[-1] == expected


@pytest.mark.anyio
async def test_a_run_directory_that_vanishes_is_one_line_and_exit_code_2(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    async with ChatModel(hang_at=0) as model:
        path = scenario_file(tmp_path, base_url=model.url, agents=1)
        process = await start(cache_dir, "run", path, "--out", str(out))
        await model.hanging.wait()
        run = only_run(out)
        shutil.rmtree(run.path)
        process.terminate()
        stdout, stderr = [text.decode() for text in await process.communicate()]
    assert (process.returncode, stdout) == (2, f"{run.path}\n")
    error = f"agentload: {run.manifest_path}: cannot be written: No such file or directory"
    assert stderr.splitlines()[-2:] == [f"what there is: {run.path}", error]


# ---- signals -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_ctrl_c_ends_the_run_as_cancelled_and_it_can_be_accounted_for(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    async with ChatModel(hang_at=3) as model:
        path = scenario_file(tmp_path, base_url=model.url, stagger_s=0.0)
        process = await start(cache_dir, "run", path, "--out", str(out))
        await model.hanging.wait()
        process.send_signal(signal.SIGINT)
        stdout, stderr = await process.communicate()
        await model.server.gone.wait()  # its connections are closed
    run = only_run(out)
    assert process.returncode == 1, stderr.decode()
    assert stdout.decode().splitlines()[-1] == str(run.path)
    assert b"Traceback" not in stderr
    assert stderr.decode().splitlines()[-1] == "status: cancelled: interrupted by a signal"
    assert stderr.decode().splitlines().count(INTERRUPTED) == 1
    manifest = run.read_manifest()
    assert (manifest.status, manifest.why) == ("cancelled", "interrupted by a signal")
    assert "cancelled" in {one["end"] for one in manifest.agents}
    made = Made(run)
    assert [one["action"] for one in made.markers()] == ["begin", "end"]
    assert manifest.segments[0]["end"] == made.markers()[1]["t"]
    found = accounts.account(run.path)
    assert found["status"] == "cancelled"
    # Requests sent and not done were broken off: at least the one that hung.
    broken_off = len(made.events("request_sent")) - len(made.events("request_done"))
    assert (found["work"]["broken_off"], broken_off >= 1) == (broken_off, True)
    assert f"+ broken off {broken_off}\n" in stdout.decode()
    assert "ended in a call" not in stdout.decode()


@pytest.mark.anyio
async def test_ctrl_c_while_a_cancelled_run_is_accounted_for_costs_no_account(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    program = (
        "import signal\n"
        "from agentload import cli\n"
        "from agentload.analysis import account as accounts\n"
        "real = accounts.account\n"
        "def account(path):\n"
        "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "        signal.raise_signal(number)\n"
        "    return real(path)\n"
        "accounts.account = account\n"
        "cli.main()\n"
    )
    async with ChatModel(hang_at=3) as model:
        path = scenario_file(tmp_path, base_url=model.url, stagger_s=0.0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, "run", path, "--out", str(out)),
            stdout=PIPE,
            stderr=PIPE,
            env=environment(cache_dir),
        )
        await model.hanging.wait()
        process.send_signal(signal.SIGINT)
        stdout, stderr = await process.communicate()
    run = only_run(out)
    assert process.returncode == 1, stderr.decode()
    assert stdout.decode().splitlines()[-1] == str(run.path)
    assert stderr.decode().splitlines()[-1] == "status: cancelled: interrupted by a signal"
    assert (run.path / "derived" / "account.json").is_file()


async def read_until(process: Process, wanted: str) -> list[str]:
    """The lines on stderr up to one that is `wanted`."""
    assert process.stderr is not None
    lines: list[str] = []
    while not lines or lines[-1] != wanted:
        line = await process.stderr.readline()
        assert line, lines
        lines.append(line.decode().rstrip("\n"))
    return lines


@contextmanager
def told(folder: Path) -> Iterator[tuple[Path, Callable[[str], int]]]:
    """A FIFO for a server's --tell, and a function that returns the number after a word that it tells."""
    fifo = folder / "tell"
    os.mkfifo(fifo)

    def wait_for(word: str) -> int:
        with fifo.open(encoding="utf-8") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(word))

    yield fifo, wait_for


@pytest.mark.anyio
@pytest.mark.parametrize(("option", "word"), [("--stubborn --hang-at 2", "hanging"), ("--never-ready", "loading")])
async def test_ctrl_c_twice_ends_a_server_that_does_not_want_to_and_leaves_whole_files(
    option: str, word: str, cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with told(tmp_path) as (fifo, wait_for):
        launch = f"{sys.executable} -m tests.run.chat_model {option} --tell {fifo} --port {{port}}"
        path = scenario_file(tmp_path, server={"launch": launch})
        process = await start(cache_dir, "run", path, "--out", str(out))
        pid = await asyncio.to_thread(wait_for, word)
    family = psutil.Process(process.pid).children(recursive=True)
    assert pid in {one.pid for one in family}
    process.send_signal(signal.SIGINT)
    before = await read_until(process, INTERRUPTED)
    process.send_signal(signal.SIGINT)
    stdout, rest = [text.decode() for text in await process.communicate()]
    run = only_run(out)
    assert f"run directory: {run.path}" in before
    assert process.returncode == 1, rest
    assert AT_ONCE in rest.splitlines()
    assert "Traceback" not in rest
    assert stdout.splitlines()[-1] == str(run.path)
    assert gone(*family)
    manifest = run.read_manifest()
    assert (manifest.status, manifest.why) == ("cancelled", "interrupted by a signal")
    assert [one["action"] for one in Made(run).markers()] == (["begin", "end"] if word == "hanging" else [])
    assert accounts.account(run.path)["status"] == "cancelled"


@pytest.mark.anyio
async def test_ctrl_c_before_there_is_a_run_directory_ends_at_once_and_leaves_none(tmp_path: Path) -> None:
    async with ScriptedServer([[HANG]]) as index:
        env = environment(tmp_path / "cache") | {"PIP_INDEX_URL": index.url, "UV_DEFAULT_INDEX": index.url}
        arguments = ("run", "--base-url", "http://127.0.0.1:9/v1", "--corpus", "tiny", "--out", str(tmp_path / "runs"))
        process = await asyncio.create_subprocess_exec(*AGENTLOAD, *arguments, stdout=PIPE, stderr=PIPE, env=env)
        await index.arrived.wait()
        process.send_signal(signal.SIGINT)
        stdout, stderr = [text.decode() for text in await process.communicate()]
    assert (process.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-2:] == [
        INTERRUPTED,
        "agentload: interrupted before anything ran: there is no run directory",
    ]
    assert not (tmp_path / "runs").exists()


@pytest.mark.anyio
async def test_sigterm_leaves_no_server_of_ours_behind(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with told(tmp_path) as (fifo, wait_for):
        launch = f"{sys.executable} -m tests.run.chat_model --hang-at 2 --tell {fifo} --port {{port}}"
        path = scenario_file(tmp_path, server={"launch": launch})
        process = await start(cache_dir, "run", path, "--out", str(out))
        pid = await asyncio.to_thread(wait_for, "hanging")
    family = psutil.Process(process.pid).children(recursive=True)
    assert pid in {one.pid for one in family}
    process.terminate()
    _, stderr = await process.communicate()
    assert process.returncode == 1, stderr.decode()
    assert gone(*family)
    run = only_run(out)
    assert run.read_manifest().status == "cancelled"
    assert run.server_log.read_bytes().count(b"agentload: segment end ") == 1
    assert accounts.account(run.path)["lines"]["markers"] == 2


@pytest.mark.anyio
async def test_a_run_that_was_killed_is_accounted_for_and_said_to_have_been_killed(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    async with ChatModel(hang_at=3) as model:
        path = scenario_file(tmp_path, base_url=model.url, agents=1, limits={"min_tool_calls": 4, "nudges": 2})
        process = await start(cache_dir, "run", path, "--out", str(out))
        await model.hanging.wait()
        process.kill()
        await process.communicate()
    run = only_run(out)
    assert process.returncode == -signal.SIGKILL
    assert (run.read_manifest().status, run.derived.exists()) == ("started", False)
    made = Made(run)
    assert [one["request"] for one in made.events("request_done")] == ["a0-r0", "a0-r1", "a0-r2"]
    assert [one["request"] for one in made.events("request_sent")] == ["a0-r0", "a0-r1", "a0-r2", "a0-r3"]
    assert [one["action"] for one in made.markers()] == ["begin"]
    # The conversation is there to the last message: two tool calls, an answer that came too early, and its nudge.
    assert [one["number"] for one in made.history("a0") if one["event"] == "message"] == list(range(1, 9))
    done = here(cache_dir, "account", str(run.path))
    assert (done.exit_code, done.stderr) == (1, "")
    stdout = done.stdout
    assert f"{run.path.name}  started" in stdout
    assert "its end marker is missing" in stdout
    assert "the run was killed, its agents' outcomes are not known: 4 requests" in stdout
    assert "1 broken off" in " ".join(stdout.split())
    assert "doubt (segment-without-end)" in stdout
    found = json.loads((run.derived / "account.json").read_bytes())
    work = {"requests": 4, "tool_calls": 2, "failed_requests": 0, "broken_off": 1, "answers": None, "nudges": None}
    assert {name: found["work"][name] for name in work} == work
    # Prompts of turns 0, 1 and 2, by the model's rules: 1000 + 1300 + 1600.
    assert found["segments"][0]["whole"]["prompt_tokens"] == 3900
