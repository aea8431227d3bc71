"""`agentload ab`: which experiment do its options and its file make, or go on? The work is in `ab_running`."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload import plugins
from agentload.commands import scenario_options
from agentload.commands.ab_status import show as show_status
from agentload.commands.scenario_options import (
    Agents,
    Context,
    KeyPath,
    MachineProfile,
    Quiet,
    ServerArgs,
    ServerKind,
    Stagger,
    ToolCalls,
    UnsafeNoSandbox,
    Wall,
    option,
)
from agentload.errors import InputError, UsageError
from agentload.run import experiment_file, toml_file, toml_values
from agentload.run.experiment_file import Experiment
from agentload.run.experiment_shape import RESTARTS
from agentload.run.kinds import PLAIN_NAME

_SCENARIO: Final = "scenario"
_STATUS: Final = "status"
_OUT: Final = "experiments"


def ab(
    what: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[EXPERIMENT.toml | DIR | status DIR]",
            help="An experiment in TOML, options win over it; a directory: it goes on; status DIR: how far it is.",
            show_default=False,
        ),
    ] = None,
    launch: Annotated[
        str | None, option("Start this server for each run; {port}, {kv_dir} and what --vary names are filled in.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        option("NAME=V1,V2,...: a {NAME} of the command, an option of the twin, env.NAME, or request.NAME."),
    ] = None,
    repeat: Annotated[
        int | None, option("Restarts of each value.", f"{RESTARTS}; of a request parameter: 1 start")
    ] = None,
    agents: Agents = None,
    stagger: Stagger = None,
    server: ServerKind = None,
    profile: MachineProfile = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Of the twin: an option of all runs, NAME=VALUE.", show_default=False),
    ] = None,
    server_args: ServerArgs = None,
    base_url: Annotated[str | None, option("A running server, for request parameters: it is not restarted.")] = None,
    model: Annotated[str | None, option("Its model.", "the first of /v1/models")] = None,
    workload: Annotated[
        str | None,
        option("agents; fixed: equal requests, 1, 4 and 8 at once; probe: cold prompts while others write.", "agents"),
    ] = None,
    metric: Annotated[
        str | None,
        option("The metric that decides.", "prefill_tok_s; embedded server: prefill_tokens_per_cpu_s"),
    ] = None,
    sets: Annotated[int | None, option("Of a request parameter: how often each value comes in one start.", "3")] = None,
    cooldown: Annotated[float | None, option("Seconds between two starts.", "0")] = None,
    corpus: Annotated[
        str | None,
        option("A pinned corpus' name, or the path of a git checkout of yours.", "standard; embedded server: tiny"),
    ] = None,
    task: Annotated[list[str] | None, option("A task by name; may be repeated.", "drawn by the seed")] = None,
    tool_calls: ToolCalls = None,
    wall: Wall = None,
    context: Context = None,
    seed: Annotated[int | None, option("Seed of the order, of tasks and of sampling.", "0")] = None,
    unsafe_no_sandbox: UnsafeNoSandbox = False,
    name: Annotated[str | None, option("The directory's name.", "the file's; else the time, and chance")] = None,
    out: Annotated[Path | None, option("Where experiments' directories are made.", _OUT)] = None,
    until: Annotated[str | None, option("HH:MM: begin no run that is not expected to end by then.")] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Do those again too that came to an end of their own but do not count.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json alone on stdout.")] = False,
    quiet: Quiet = False,
) -> None:
    """Compare values of one setting: runs in a balanced order, each on a fresh server, and a verdict.

    What will be done, and how long it takes, is said first. Exit code 0: the values are distinguished on the metric
    that decides; 1: they are not, or no run counts. An experiment that was broken off goes on where it was.
    """
    given = scenario_options.given_ones(
        {
            ("vary",): ("--vary", toml_values.varied(vary) if vary else None),
            ("repeats",): ("--repeat", repeat),
            ("sets",): ("--sets", sets),
            ("seed",): ("--seed", seed),
            ("workload",): ("--workload", workload),
            ("metric",): ("--metric", metric),
            ("cooldown_s",): ("--cooldown", cooldown),
            ("name",): ("--name", name),
            (_SCENARIO, "agents"): ("--agents", agents),
            (_SCENARIO, "stagger_s"): ("--stagger", stagger),
            (_SCENARIO, scenario_options.corpus_key(corpus)): ("--corpus", corpus),
            (_SCENARIO, "tasks"): ("--task", task or None),
            (_SCENARIO, "unsafe_no_sandbox"): ("--unsafe-no-sandbox", unsafe_no_sandbox or None),
            (_SCENARIO, "server", "kind"): ("--server", server),
            (_SCENARIO, "server", "profile"): ("--profile", profile),
            (_SCENARIO, "server", "set"): ("--set", scenario_options.pairs(set_)),
            (_SCENARIO, "server", "args"): ("--server-args", scenario_options.words(server_args)),
            (_SCENARIO, "server", "base_url"): ("--base-url", base_url),
            (_SCENARIO, "server", "model"): ("--model", model),
            (_SCENARIO, "server", "launch"): ("--launch", launch),
            (_SCENARIO, "limits", "tool_calls"): ("--tool-calls", tool_calls),
            (_SCENARIO, "limits", "wall_s"): ("--wall", wall),
            (_SCENARIO, "limits", "context_tokens"): ("--context", context),
        }
    )
    words = [str(one) for one in what or ()]
    if words[:1] == [_STATUS]:
        if len(words) != 2:
            raise UsageError(f"ab status: expected one experiment's directory, got {' '.join(words[1:]) or 'none'}")
        show_status(Path(words[1]), as_json=as_json)
        return
    if len(words) > 1:
        raise UsageError(f"expected one experiment's file or directory, got {' and '.join(words)}")
    until_ns = None if until is None else deadline_ns(until, datetime.now(UTC))
    target = Path(words[0]) if words else None
    if target is not None and target.is_dir():
        _refuse_changes(target, [named for named, _ in given.values()] + (["--out"] if out is not None else []))
        experiment, folder, verbatim = None, target, None
    else:
        folder = out or Path(_OUT)
        scenario_options.writable(folder)
        experiment, verbatim = _asked(target, given)
    # Loaded only now: what runs an experiment takes seconds to import; --help and a mistake do without.
    plugins.load(plugins.STAGES, "ab")(
        experiment,
        folder,
        verbatim,
        dict(os.environ),
        until_ns=until_ns,
        retry=retry,
        as_json=as_json,
        quiet=quiet,
    )


def deadline_ns(text: str, now: datetime) -> int:
    """Return the next time (Unix ns) at which a clock on the wall here shows HH:MM.

    Raises:
        UsageError: it is no time of day.
    """
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", text)
    if found is None:
        raise UsageError(f"--until: expected a time of day, HH:MM, got {text!r}")
    wall = now.astimezone().replace(tzinfo=None)  # a clock on the wall knows no zone, and changes for the summer
    then = wall.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    if then <= wall:
        then += timedelta(days=1)
    return int(then.timestamp()) * 1_000_000_000


def _refuse_changes(folder: Path, options: list[str]) -> None:
    if options:
        raise UsageError(
            f"{folder} has a design of its own, and goes on with it: expected no {', '.join(options)}; "
            "another experiment needs another directory (--name)"
        )


def _asked(file: Path | None, given: Mapping[KeyPath, tuple[str, Any]]) -> tuple[Experiment, bytes | None]:
    """Return the experiment of a file and options, and the file's bytes where no option changes what it says."""
    if file is None:
        return experiment_file.from_options(given, _merged({}, given)), None
    if not file.exists():
        raise InputError(f"{file}: expected an experiment's file or directory, there is nothing")
    held = toml_file.read(file)
    experiment = experiment_file.from_options(given, _merged(held.fields, given), str(file), text=held.text)
    if experiment.name is None and re.fullmatch(PLAIN_NAME, file.stem):
        experiment = experiment.model_copy(update={"name": file.stem})
    return experiment, None if given else held.data


def _merged(fields: dict[str, Any], given: Mapping[KeyPath, tuple[str, Any]]) -> dict[str, Any]:
    """The file's fields with what options gave; `--vary` takes the place of whatever varies there."""
    top = {path[0]: value for path, (_, value) in given.items() if len(path) == 1}
    inner = {path[1:]: value for path, (_, value) in given.items() if path[0] == _SCENARIO}
    merged = dict(fields)
    if "vary" in top:
        merged.pop("variant", None)
    merged |= top
    held = merged.get(_SCENARIO, {})
    if inner and isinstance(held, dict):
        merged[_SCENARIO] = scenario_options.changed_by(held, inner)
    return merged
