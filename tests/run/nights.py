"""How does a test make an experiment in the twin, carry it out, and read what came of it?"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentload.artifacts import journal
from agentload.artifacts.design import Design, ExperimentDir, Step, Variant
from agentload.artifacts.journal import AnyEvent
from agentload.clock import SystemClock
from agentload.core import crossover
from agentload.core.records import Doubt
from agentload.run import experiment
from agentload.run.experiment import Outcome
from tests.run.runs import TASKS, environment

LIMITS = {"tool_calls": 3, "min_tool_calls": 0, "min_growth_tokens": 0}


def scenario(server: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """One agent with three tool calls, on the tiny corpus."""
    return {"corpus": "tiny", "tasks": TASKS[:1], "agents": 1, "limits": LIMITS, "server": server, **fields}


def restarts(*servers: dict[str, Any], repeats: int = 1, seed: int = 3, **fields: Any) -> Design:
    """A design of kind restart with a variant for each server; variant B's first key is its label."""
    names = "ABCDE"[: len(servers)]
    simulated = all(server["kind"] == "twin" for server in servers)
    steps = tuple(
        Step(
            position=one.position,
            block=one.block,
            place=one.place,
            boot=one.boot,
            variant=one.variant,
            run=f"{one.position + 1:02d}-{one.variant}",
            segment=None,
        )
        for one in crossover.restart_order(names, repeats, seed)
    )
    return Design(
        **{
            "name": "night",
            "seed": seed,
            "repeats": repeats,
            "kind": "restart",
            "workload": "agents",
            "factor": "quantum",
            "metric": "prefill_tok_s",
            "variants": tuple(
                Variant(name=name, label=f"variant={name}", scenario=scenario(server), expected={})
                for name, server in zip(names, servers, strict=True)
            ),
            "steps": steps,
            "simulated": simulated,
            **fields,
        }
    )


def twin(quantum: int) -> dict[str, Any]:
    return {"kind": "twin", "set": {"mixed_prefill_quantum": quantum}}


def six() -> Design:
    """Six runs in the twin, which take about 1 s each."""
    return restarts(twin(2048), twin(128), repeats=3)


def names(design: Design) -> list[str]:
    return [step.run for step in design.steps]


def counts(*_: object) -> list[Doubt]:
    """Every run counts."""
    return []


async def night(design: Design, path: Path, cache_dir: Path, **options: Any) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    chosen = {"clock": SystemClock(), "reasons": counts, **options}
    return await experiment.carry_out(design, ExperimentDir(path), environment(cache_dir), said.append, **chosen), said


def events(path: Path, *kinds: str) -> list[AnyEvent]:
    return [one for one in journal.read(ExperimentDir(path).journal_path).events if not kinds or one.event in kinds]


def accounts(path: Path, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The account of each run, which has every number that a comparison is made of; not which sandbox there was."""
    found = {name: json.loads((path / "runs" / name / "derived" / "account.json").read_bytes()) for name in runs}
    for one in found.values():
        del one["sandbox"]
    return found


def raw(path: Path, runs: Sequence[str]) -> dict[str, bytes]:
    """Every raw file of these runs but what tells of the machine."""
    found: dict[str, bytes] = {}
    for name in runs:
        folder = path / "runs" / name
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            relative = file.relative_to(folder).as_posix()
            if not relative.startswith(("derived/", ".")) and relative != "manifest.json":
                found[f"{name}/{relative}"] = file.read_bytes()
        manifest = json.loads((folder / "manifest.json").read_bytes())
        for block in ("host", "versions", "sandbox"):
            del manifest[block]
        found[f"{name}/manifest.json"] = json.dumps(manifest).encode()
    return found
