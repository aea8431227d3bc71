"""What does this machine tell of itself, before a night of measuring?"""

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import psutil
from anyio import to_thread

from agentload import folders
from agentload.agents import sandbox
from agentload.errors import AgentloadError, SandboxError
from agentload.run import machine_state
from agentload.run.doctor import machines
from agentload.run.doctor.facts import MachineSays
from agentload.run.doctor.finding import Finding
from agentload.run.keep_awake import kept_awake
from agentload.run.plan import obtain_corpus
from agentload.run.scenario import Scenario
from agentload.run.waiting import abandonable

CPUS: Final = Path("/sys/devices/system/cpu")
_AWAKE_S: Final = 3.0
_CORPUS_S: Final = 30.0


async def look(scenario: Scenario, out: Path, env: Mapping[str, str]) -> list[Finding]:
    """Look at this machine; nothing of the server is asked.

    Args:
        scenario: resolved.
        out: where run directories are to be made.
        env: the environment.
    """
    says = await to_thread.run_sync(read, out, machine_state.sample())
    found = machines.judge(says, scenario.at_once)
    if scenario.workload == "agents":
        found.append(await to_thread.run_sync(_sandbox))
        found.append(await _corpus(scenario, env))
    found.append(await to_thread.run_sync(_awake))
    return found


def read(out: Path, state: Mapping[str, Any], cpus: Path = CPUS) -> MachineSays:
    """Read what this machine tells; `state` is a `machine_state.sample`."""
    governors, driver = _governors(cpus)
    sensors = state.get("hottest_c") or {}
    chip = max(sensors, key=lambda name: sensors[name], default="")
    throttled = [
        f"GPU {index}: {reason}"
        for index, gpu in enumerate(state.get("gpus", ()))
        for reason in gpu.get("throttled_by", ())
    ]
    swap = psutil.swap_memory()
    folder = _existing(out.absolute())
    free_bytes = None
    with suppress(OSError):
        free_bytes = shutil.disk_usage(folder).free if os.access(folder, os.W_OK) else None
    return MachineSays(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load_1m=state["load_1m"],
        free_bytes=state["free_bytes"],
        total_bytes=state["total_bytes"],
        swap_used_bytes=swap.used,
        swap_total_bytes=swap.total,
        on_battery=state.get("on_battery"),
        governors=governors,
        governor_driver=driver,
        hottest_c=sensors.get(chip),
        hottest_chip=chip,
        throttled=throttled,
        disk_free_bytes=free_bytes,
        disk_path=str(folder),
    )


def _governors(cpus: Path) -> tuple[dict[str, int], str]:
    """How many CPUs have which governor, and by which driver; nothing where the kernel tells nothing."""
    names: Counter[str] = Counter()
    driver = ""
    for path in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")):
        with suppress(OSError):
            names[path.read_text().strip()] += 1
            driver = (path.parent / "scaling_driver").read_text().strip()
    return dict(names), driver


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    while not path.is_dir() and path.parent != path:
        path = path.parent
    return path


def _sandbox() -> Finding:
    try:
        return machines.sandbox(sandbox.choose().describe(), None)
    except SandboxError as error:
        return machines.sandbox(None, str(error))


async def _corpus(scenario: Scenario, env: Mapping[str, str]) -> Finding:
    """Fetch and import it as a run would; what lies in the cache is checked."""
    name = scenario.corpus or scenario.corpus_path or "?"
    said: list[str] = []
    failed: str | None = f"could not be had in {_CORPUS_S:g} s"
    told: str | None = None
    with folders.temporary("agentload-doctor-") as folder, anyio.move_on_after(_CORPUS_S):
        try:
            repository = await abandonable(lambda: obtain_corpus(scenario, folder, env, said.append))
            told, failed = f"at {repository.commit[:12]}{', fetched now' * bool(said)}", None
        except AgentloadError as error:
            failed = str(error)
    return machines.corpus(name, told, failed)


def _awake() -> Finding:
    said: list[str] = []
    with kept_awake(said.append, answer_s=_AWAKE_S):
        return machines.awake(said[0].partition("; ")[0] if said else None)
