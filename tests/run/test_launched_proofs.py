"""Does a run write down what proves the settings of the server that really ran, and leave nothing of its cache?"""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import tomli_w
from anyio import to_thread

from agentload.agents import workspace
from agentload.analysis import account as accounts
from agentload.core.records import Verdict
from agentload.run import runner, scenario
from agentload.serverlogs import formats
from agentload.servers.profiles import PROFILES
from tests.processes import gone
from tests.run.runs import AGENTLOAD, ROOT, Made, environment, fields_of, make, only_run

pytestmark = pytest.mark.anyio
MODEL = f"{sys.executable} -m tests.run.chat_model"
INTERPRETER = str(Path(sys.executable).resolve())
TWIN = " ".join((sys.executable, "-c", "'from agentload.cli import main; main()'", "twin", "serve", "--speed", "60"))
SHORT = {"min_tool_calls": 0, "min_growth_tokens": 0, "tool_calls": 1, "turns": 2, "context_tokens": 100_000}


def script(folder: Path, text: str) -> Path:
    path = folder / "start.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def settings(made: Made) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in accounts.account(made.run.path)["settings"]}


async def test_a_launched_server_gets_a_fresh_folder_and_variables_of_its_own(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """The script says what it finds, and stores something, as ds4-server does at its end."""
    start = script(
        tmp_path,
        f'echo "found: $(ls -A "$2"), told: $LLAMA_ARG_UBATCH $AT"; echo kv > "$2/a.kv"; exec {MODEL} --port $1',
    )
    server = {"launch": f"{start} {{port}} {{kv_dir}}", "env": {"LLAMA_ARG_UBATCH": "8", "AT": "{port}"}}
    runs = [await make(tmp_path / name, cache_dir, fields_of(server=server)) for name in ("one", "two")]
    folders = []
    for made in runs:
        told = made.run.read_manifest().server
        folder, port = told["kv_dir"], told["argv"][1]
        folders.append(folder)
        assert told["argv"][2] == folder
        assert f"found: , told: 8 {port}\n" in made.run.server_log.read_text()
        assert told["env"] == {"LLAMA_ARG_UBATCH": "8", "AT": port}
    assert folders[0] != folders[1]
    assert not any(map(os.path.exists, folders))
    # The variable asks, and no line of this server's log answers.
    assert settings(runs[0])["n_ubatch"]["verdict"] == Verdict.UNPROVEN


async def test_a_key_on_the_command_line_is_in_no_file_but_the_scenario(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    start = script(tmp_path, f"exec {MODEL} --port $1")
    said: list[str] = []
    chosen = scenario.from_fields(
        fields_of(server={"launch": f"{start} {{port}} --api-key sk-secret", "env": {"HF_TOKEN": "hf-secret"}})
    )
    env = environment(cache_dir) | {"OPENAI_API_KEY": "sk-secret"}
    run = await runner.run(chosen, tmp_path / "runs", env, said.append)
    assert run.read_manifest().server["argv"][2:] == ["--api-key", "***"]
    assert run.read_manifest().scenario["server"]["launch"].endswith(" {port} --api-key ***")
    files = [path for path in run.path.rglob("*") if path.is_file() and path != run.scenario_path]
    assert len(files) > 5
    assert not [path for path in files if b"secret" in path.read_bytes()]
    assert not [line for line in said if "secret" in line]


async def test_a_script_that_gives_a_flag_a_second_time_is_caught_with_both_values_and_the_line_in_force(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    """As it happened to the field report: 2048 was asked for, and a whole campaign ran at 128."""
    start = script(tmp_path, f'{TWIN} --port $1 "${{@:2}}" --mixed-prefill-quantum 128')
    command = f"{start} {{port}} --mixed-prefill-quantum 2048 --ctx 131072 --kv-disk-dir {{kv_dir}}"
    made = await make(
        tmp_path / "runs", cache_dir, fields_of(server={"launch": command}, agents=1, tasks=[], limits=SHORT)
    )
    told = made.run.read_manifest().server
    assert told["software"] == "twin"
    assert told["api"]["GET /v1/models"]["data[0].context_length"] == 131072
    serving = told["commands"][0]
    assert serving["serves"] is True
    assert told["identity"]["binary"]["path"] == INTERPRETER
    found = settings(made)
    one = found["mixed_prefill_quantum"]
    where = f"pid {serving['pid']} argv"
    number = re.fullmatch(rf"server\.log:(\d+), given 2048, 128 in {where}", one["source"])
    assert number is not None
    assert "mixed_prefill_quantum=128" in made.run.server_log.read_text().splitlines()[int(number[1]) - 1]
    assert (one["requested"], one["applied"], one["verdict"]) == (2048, 128, Verdict.DUPLICATE)
    assert (one["given"], one["where"]) == ((2048, 128), where)
    # Other flags went through the script as they were.
    for name, value in (("ctx", 131072), ("kv_disk_dir", told["kv_dir"])):
        assert (found[name]["applied"], found[name]["verdict"]) == (value, Verdict.APPLIED)


async def test_options_of_the_simulated_server_are_proven_by_its_log_also_those_that_are_no_flags(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    given = {"mixed_prefill_quantum": 2048, "prefill_quantum": 4096, "batched_session": 4, "ctx": 131072}
    fields = {"corpus": "tiny", "agents": 1, "limits": SHORT | {"context_tokens": 100_000}}
    made = await make(tmp_path, cache_dir, fields | {"server": {"kind": "twin", "set": given}})
    lines = made.run.server_log.read_text().splitlines()
    found = settings(made)
    for name, value in given.items():
        one = found["resident_sessions" if name == "batched_session" else name]
        assert (one["requested"], one["applied"], one["verdict"]) == (value, value, Verdict.APPLIED)
        line = lines[int(one["source"].removeprefix("server.log:")) - 1]
        assert f"={value}" in line
    assert found["decode_coalesce_us"]["verdict"] == Verdict.DEFAULTED


async def test_a_run_that_is_killed_leaves_no_folder_of_its_server(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    tell, temporary = tmp_path / "tell", tmp_path / "tmp"
    os.mkfifo(tell)
    temporary.mkdir()
    start = script(tmp_path, f'echo kv > "$2/a.kv"; {MODEL} --port $1 --hang-at 0 --tell {tell}')
    path = tmp_path / "scenario.toml"
    path.write_text(tomli_w.dumps(fields_of(server={"launch": f"{start} {{port}} {{kv_dir}}"})))
    env = environment(cache_dir) | {"TMPDIR": str(temporary)}
    process = await anyio.open_process(
        [*AGENTLOAD, "run", str(path), "--out", str(tmp_path / "runs")], cwd=ROOT, env=env, stderr=None, stdout=None
    )
    told = await to_thread.run_sync(tell.open)
    with told:
        pid = await to_thread.run_sync(lambda: next(int(one.split()[1]) for one in told if one[:7] == "hanging"))
        (folder,) = temporary.glob("agentload-kv-*")
        assert (folder / "a.kv").read_text() == "kv\n"
        server, watchdog = psutil.Process(pid), _watchdog_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert await to_thread.run_sync(gone, server, watchdog)
    assert not folder.exists()
    assert only_run(tmp_path / "runs").read_manifest().status == "started"


def _watchdog_of(pid: int) -> psutil.Process:
    (found,) = (one for one in psutil.Process(pid).children() if "agentload.servers.watchdog" in one.cmdline())
    return found


async def test_a_folder_that_holds_what_another_server_left_is_told_of(
    cache_dir: Path, tiny: workspace.Repository, tmp_path: Path
) -> None:
    used = tmp_path / "kv"
    used.mkdir()
    (used / "old.kv").write_text("x")
    start = script(tmp_path, f"exec {MODEL} --port $1")
    launch = f"{start} {{port}} --kv-disk-dir {used}"
    made = await make(tmp_path / "runs", cache_dir, fields_of(server={"launch": launch, "software": "ds4"}))
    (said,) = (line for line in made.said if "is not empty" in line)
    assert said.startswith(f"--kv-disk-dir {used} is not empty: the server starts with what another left there")
    assert said.endswith("{kv_dir} in its place is a fresh folder for each start")


def test_every_profile_with_a_log_format_has_a_reader_for_it() -> None:
    named = {one.log_format for one in PROFILES.values() if one.log_format is not None}
    assert named <= set(formats.installed())
    assert named == {"ds4", "llamacpp", "sglang", "vllm"}
