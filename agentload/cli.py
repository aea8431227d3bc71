"""Which subcommand is meant, and what does a failure look like?

Subcommands are entry points, imported only when they are called: `agentload --help` imports none of them. Every error
of our own tree, and every wrong option, is one line on stderr and its exit code; nothing else is caught.
"""

import sys
from typing import Annotated, Any, Final, NoReturn

import typer
from typer import core as typer_core
from typer.exceptions import TyperException

from agentload import __version__, plugins
from agentload.errors import AgentloadError

# What `agentload --help` says of a subcommand without importing it; tests hold it against the entry points.
SUMMARIES: Final = {
    "account": "Turn a run's raw evidence into its derived tables.",
    "corpus": "The pinned source trees that agents work on.",
    "report": "Show a run's account in the terminal.",
    "run": "Run coding agents against a server and account for their work.",
}

_HELP: Final = (
    "Real coding agents as the load on an LLM server you run yourself: what a launch flag did to their work, "
    "from the server's own log."
)


class _Lazy(typer_core.TyperGroup):
    """Lists the entry points; imports one when it is called."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - the base class gives it
        return plugins.names(plugins.COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> typer_core.TyperCommand | None:  # noqa: ARG002 - as above
        """Return a stand-in that has the summary: all that help asks for."""
        if cmd_name not in plugins.names(plugins.COMMANDS):
            return None
        return typer_core.TyperCommand(cmd_name, help=SUMMARIES.get(cmd_name, ""))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command itself, since this is asked when it is called."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None else _command(name), rest


def _command(name: str) -> typer_core.TyperCommand | typer_core.TyperGroup:
    target = plugins.load(plugins.COMMANDS, name)
    if isinstance(target, typer.Typer):
        group = typer.main.get_group(target)
        group.name = name
        return group
    app = typer.Typer(add_completion=False)
    app.command(name)(target)
    command = typer.main.get_command(app)
    assert isinstance(command, typer_core.TyperCommand)
    return command


app = typer.Typer(cls=_Lazy, help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(value: bool) -> None:  # noqa: FBT001 - typer's callback
    if value:
        typer.echo(f"agentload {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,  # noqa: FBT002 - typer's way
) -> None:
    """Nothing of its own: options of the program itself."""


def main() -> None:
    """Run the program; the exit code is 0 fine, 1 a negative finding, 2 an error."""
    try:
        code = app(standalone_mode=False)
    except AgentloadError as error:
        _fail(str(error), error.exit_code)
    except TyperException as error:  # an unknown option or command, a value that does not convert
        _fail(error.format_message(), error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, exit_code: int) -> NoReturn:
    line = " ".join(part.strip() for part in message.splitlines())
    if line:  # a bare `agentload` has had its help already
        typer.echo(f"agentload: {line}", err=True)
    sys.exit(exit_code)
