"""How is an experiment begun or taken up again, carried out, compared and shown?

Its report is printed, and its path on the last line of stdout; or comparison.json alone.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio
import tomli_w
import typer

from agentload import folders
from agentload.analysis import compare
from agentload.artifacts.alive import Hold
from agentload.artifacts.design import Design, ExperimentDir
from agentload.artifacts.rundir import write_atomically
from agentload.clock import SystemClock
from agentload.errors import ArtifactError, InputError, UsageError
from agentload.report import comparison_terminal
from agentload.run import designing, experiment, experiment_file, foretelling, runner, variants
from agentload.run.experiment_shape import Experiment
from agentload.run.world import stamp
from agentload.shown import in_shell

_SHOWN: Final = 3  # differences
Say = Callable[[str], None]


def carry_out(
    asked: Experiment | None,
    path: Path,
    verbatim: bytes | None,
    env: Mapping[str, str],
    *,
    until_ns: int | None,
    retry: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Do what is left of an experiment, compare, and show it.

    Args:
        asked: the experiment; None: the one in the directory `path` goes on.
        path: the folder in which its directory is made, or the directory.
        verbatim: the user's own file, where it says all of it.
        env: the environment.
        until_ns: a run that is not expected to end by then (Unix ns) is not begun.
        retry: do those again that came to an end of their own but do not count.
        as_json: print comparison.json alone.
        quiet: say nothing but errors.

    Raises:
        AgentloadError: it cannot be begun, or not go on; the disk is full.
        typer.Exit: 1 when the deciding metric is not distinguished, or the experiment is not complete.
    """

    def say(line: str) -> None:
        if not quiet:
            _say(line)

    clock = SystemClock()
    with ExitStack() as held:
        hold = None
        if asked is None:
            folder = ExperimentDir(path)
            planned = folder.read_design()
            _say_where_it_is(folder, say)
        else:
            asked = of_environment(asked, env)
            planned, folder, hold = _begin(asked, path, verbatim, env, say, clock.now_ns(), held)
        if until_ns is not None:
            end = datetime.fromtimestamp(until_ns / 1e9).astimezone()
            say(f"deadline: no run begins that is not expected to end by {end:%A %d %B, %H:%M}")
        shown = False
        try:
            night = partial(experiment.carry_out, planned, folder, env, say, until_ns=until_ns, retry=retry)
            outcome = anyio.run(partial(night, clock=clock, hold=hold))
            if outcome.stopped is not None and folders.says_full(outcome.stopped):
                say(_incomplete(outcome, folder))
                raise ArtifactError(outcome.stopped)  # a comparison would find no room either
            found = compare.compare(folder)
            typer.echo(compare.text(found) if as_json else comparison_terminal.render(found), nl=False)
            shown = True
        finally:
            _name(folder.path, say, shown=shown, as_json=as_json)
    if outcome.stopped is not None or outcome.done < outcome.total:
        say(_incomplete(outcome, folder))
        raise typer.Exit(1)
    if code := compare.exit_code(found):
        raise typer.Exit(code)


def of_environment(asked: Experiment, env: Mapping[str, str]) -> Experiment:
    """Return the experiment with its server settled: OPENAI_BASE_URL, where it counts, becomes part of the design.

    Raises:
        UsageError: it names a server that agentload cannot restart, as the experiment needs.
    """
    url = env.get("OPENAI_BASE_URL")
    if url is None or not url or variants.server_kind(asked) != "embedded":
        return asked
    if variants.kind(asked) == "restart":
        raise UsageError(
            f"OPENAI_BASE_URL is set ({url}), a server that agentload does not start, and what varies needs restarts: "
            "give the command that starts it (--launch), or unset OPENAI_BASE_URL"
        )
    server = asked.scenario.server.model_copy(update={"base_url": url, "kind": "endpoint"})
    return asked.model_copy(update={"scenario": asked.scenario.model_copy(update={"server": server})})


def _begin(
    asked: Experiment, out: Path, verbatim: bytes | None, env: Mapping[str, str], say: Say, now_ns: int, held: ExitStack
) -> tuple[Design, ExperimentDir, Hold | None]:
    """Write down the experiment, or find that it is there already; say what will be done before anything is.

    Who begins one holds its directory from before it is written, in `held`, until all is done: of two that begin one of
    a name at once the other must not put its design in the place of this one's.
    """
    planned = designing.design(asked, expected_s=None)
    told = foretelling.expected(planned)
    name = asked.name or designing.name_of(planned, stamp(now_ns), uuid4().hex[:4])
    planned = planned.model_copy(update={"expected_s": round(told.middle_s, 1), "name": name})
    folder = ExperimentDir(out / name)
    there, hold = _there(folder), None
    if there is None:
        made = variants.make(asked)
        for one in made:
            runner.refuse(one.scenario, env)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(f"{folder.path}: cannot be made: {error.strerror}") from error
        hold = Hold(folder.path, wait=False)
        held.callback(hold.release)
        there = _there(folder)  # by now
        if there is None:
            for line in foretelling.plan(planned, told, variants.warnings(made)):
                say(line)
            named = asked.model_copy(update={"name": name})
            text = verbatim if verbatim is not None else tomli_w.dumps(experiment_file.dump(named)).encode()
            write_atomically(folder.experiment_path, text)
            folder.write_design(planned)
            say(f"experiment directory: {folder.path}")
            return planned, folder, hold
    differences = designing.differences(there, planned)
    if differences:
        more = f", and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise UsageError(
            f"{folder.path} holds another experiment: {'; '.join(differences[:_SHOWN])}{more}; "
            "name another with --name or --out"
        )
    _say_where_it_is(folder, say)
    return there, folder, hold


def _there(folder: ExperimentDir) -> Design | None:
    """Return the design that the directory holds; None when there is none, nor anything else."""
    try:
        held = sorted(one.name for one in folder.path.iterdir())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{folder.path}: expected an experiment's directory or nothing: {error.strerror}") from error
    if folder.design_path.name in held:
        return folder.read_design()
    # A kill may have come between the two files.
    if foreign := [name for name in held if name != folder.experiment_path.name and not name.startswith(".")]:
        raise InputError(
            f"{folder.path}: expected an experiment's directory or nothing, there is {foreign[0]} and no design.json; "
            "name another with --name or --out"
        )
    return None


def _say_where_it_is(folder: ExperimentDir, say: Say) -> None:
    now = experiment.status(folder)
    if now.done == now.total:
        say(f"{folder.path} is complete, {now.total} runs: they are verified, and the comparison is made again")
    else:
        left = "" if now.left_s is None else f", about {foretelling.duration(now.left_s)} left"
        say(f"{folder.path} goes on: {now.done} of {now.total} runs are done{left}")


def _name(path: Path, say: Say, *, shown: bool, as_json: bool) -> None:
    """Print the experiment's path: last on stdout; with --json, where stdout has one document or nothing, on stderr."""
    if not shown:
        _say(f"what there is: {path}")
    if not as_json:
        typer.echo(str(path))
    elif shown:
        say(str(path))


def _incomplete(outcome: experiment.Outcome, folder: ExperimentDir) -> str:
    return (
        f"incomplete: {outcome.done} of {outcome.total} runs are done; `agentload ab {in_shell(folder.path)}` goes on"
    )


def _say(line: str) -> None:
    with suppress(OSError):  # the terminal may be gone: the experiment goes on all the same
        typer.echo(line, err=True)
