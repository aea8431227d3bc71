"""`agentload report RUN_OR_EXPERIMENT`: what an account or a comparison says, for a person."""

from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.analysis import account as accounts
from agentload.analysis import compare
from agentload.artifacts import rundir
from agentload.artifacts.design import ExperimentDir
from agentload.errors import ArtifactError, InputError, UsageError
from agentload.report import comparison_terminal, markdown, terminal
from agentload.report.html import render, said_experiment, said_run

_OURS: Final = b'<meta name="generator" content="agentload '  # stands in the first 500 bytes of a page


def report(
    path: Annotated[
        Path, typer.Argument(metavar="RUN_OR_EXPERIMENT", readable=False, help="A run's or an experiment's directory.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same content as JSON.")] = False,
    as_html: Annotated[
        bool, typer.Option("--html", help="Write one page with figures that opens without a network.")
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown for an issue or a pull request.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The page's file (default: report.html in the directory).", show_default=False)
    ] = None,
) -> None:
    """Show what a run or an experiment says; what is missing of its derived files is made first.

    Exits with 1 when a run failed, was cut short or has not ended, and when an experiment's values are not
    distinguished.
    """
    if as_json + as_html + as_markdown > 1:
        raise UsageError("expected one of --json, --html and --markdown")
    if out is not None and not as_html:
        raise UsageError("--out names the page's file: expected --html beside it")
    target = out or path / rundir.PAGE
    if as_html and path.is_dir():
        _may_be_written(target)
    if (path / "design.json").is_file():
        folder = ExperimentDir(path)
        found = compare.compare(folder)
        code = compare.exit_code(found)
        if as_html:
            _write(target, render.experiment_page(found, folder.runs.joinpath))
        elif as_markdown:
            _say(markdown.render(said_experiment.of_experiment(found), simulated=found["simulated"]))
        else:
            _say(compare.text(found) if as_json else comparison_terminal.render(found))
    else:
        _is_a_run(path)
        found = accounts.load(path)
        code = accounts.exit_code(found)
        if as_html:
            _write(target, render.run_page(path, found))
        elif as_markdown:
            _say(markdown.render(said_run.of_run(found), simulated=found["simulated"]))
        else:
            _say(accounts.text(found) if as_json else terminal.render(found))
    if code:
        raise typer.Exit(code)


def _say(text: str) -> None:
    typer.echo(text, nl=False)


def _is_a_run(path: Path) -> None:
    if path.is_dir() and not (path / "manifest.json").is_file():
        raise InputError(
            f"expected a run's directory (with manifest.json) or an experiment's (with design.json), {path} is neither"
        )


def _may_be_written(target: Path) -> None:
    """Refuse to take the place of a file that is no page of ours."""
    try:
        with target.open("rb") as file:
            ours = _OURS in file.read(1_000)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArtifactError(f"{target}: cannot be written: {error.strerror}") from error
    if not ours:
        raise UsageError(f"--out: {target} is there already, and is no page of agentload's: name another file")


def _write(target: Path, page: str) -> None:
    rundir.write_atomically(target, page.encode())
    typer.echo(str(target))
