"""How is one run done and shown: its report, and its path on the last line of stdout; or its account, as JSON alone?"""

import signal
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

import anyio
import typer
from rich.console import Console

from agentload.analysis import account as accounts
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.report import live, terminal
from agentload.report.page import plain
from agentload.run import progress, runner
from agentload.run.scenario import Scenario


def carry_out(
    chosen: Scenario, out: Path, env: Mapping[str, str], verbatim: bytes | None, *, as_json: bool, quiet: bool
) -> None:
    """Do the run and show it; `verbatim` is the user's own scenario file.

    Raises:
        AgentloadError: the run failed; where there is a run directory, it is named before.
        typer.Exit: 1 when the run is not whole, 2 when it failed in itself.
    """
    made: list[RunDir] = []
    shown = cancelled = False
    view = None if quiet else _view(env)

    def say(line: str) -> None:
        line = plain(line)  # names and errors come from servers
        if view is not None:
            with suppress(OSError):
                view.say(line)
        elif not quiet:
            _say(line)

    async def do() -> tuple[RunDir, Manifest]:
        nonlocal cancelled
        with view or nullcontext():
            period_s = progress.PERIOD_S if view is None else live.PERIOD_S
            show = None if view is None else view.show
            target = await runner.run(
                chosen, out, env, say, verbatim, opened=made.append, progress_s=period_s, show=show
            )
        manifest = target.read_manifest()
        if manifest.status == "cancelled":
            # Already here, since taking the event loop down takes a moment: an impatient Ctrl-C costs no account.
            cancelled = True
            _on_signals(signal.SIG_IGN)
        return target, manifest

    try:
        target, manifest = anyio.run(do)
        found = accounts.account(target.path)
        typer.echo(accounts.text(found) if as_json else terminal.render(found), nl=False)
        shown = True
    finally:
        if made:  # whatever went wrong: what there is of the run stays, and its path is the last line
            _name(made[0].path, say, shown=shown, as_json=as_json)
        if cancelled:
            # A download that was given up may still hold the program; another signal need not wait for it.
            _on_signals(signal.SIG_DFL)
    if manifest.status == "error":
        _say(f"agentload: {manifest.why}")
        raise typer.Exit(2)
    if manifest.status != "success":
        say(f"status: {manifest.status}: {manifest.why}")
        raise typer.Exit(1)


def _view(env: Mapping[str, str]) -> live.LiveView | None:
    """What draws how it stands, for somebody who can see it."""
    console = Console(stderr=True)
    return live.LiveView(console) if live.wanted(console, env) else None


def _on_signals(act: signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, act)


def _name(path: Path, say: Callable[[str], None], *, shown: bool, as_json: bool) -> None:
    """Print the run's path: last on stdout; with --json, of which stdout has one document or nothing, on stderr."""
    if not shown:
        _say(f"what there is: {path}")
    if not as_json:
        typer.echo(str(path))
    elif shown:
        say(str(path))


def _say(line: str) -> None:
    with suppress(OSError):  # the terminal may be gone: the run is finished all the same
        typer.echo(line, err=True)
