"""Which subcommand is meant, and what does a failure look like?

Subcommands are entry points, imported only when they are called: `agentload --help` imports none of them. Every error
of our own tree, and every wrong option, is one line on stderr and its exit code; nothing else is caught.

SIGTERM and SIGHUP (`kill`, `timeout`, a closed terminal) go the way of Ctrl-C: what a command tidies up then, it tidies
up at these, too. `run`, `ab`, `probe` and `doctor` hear all three by themselves once they are at work.

stdout carries the result: when it cannot be written that is an error, and when its reader has gone (`| head -1`) the
program ends without a word, as one that SIGPIPE ended. stderr is for people: when nobody reads it the work goes on.
"""

import errno
import io
import os
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, NoReturn, Self, get_args, get_type_hints

import typer
from typer import core as typer_core
from typer.exceptions import TyperException

from agentload import __version__, plugins
from agentload.errors import AgentloadError, InterruptionError, UsageError
from agentload.shown import shown

# What `agentload --help` says of a subcommand without importing it; tests hold it against the entry points.
SUMMARIES: Final = {
    "ab": "Compare values of one setting: runs in a balanced order, each on a fresh server, and a verdict.",
    "account": "Account for a run, or for any server log.",
    "compare": "Compare runs that were made by hand, by the settings that they prove; verdict and report as of ab.",
    "corpus": "The pinned source trees that agents work on.",
    "diagnose": "Say who stalled whom in a run, why what was prefilled again, and what to try.",
    "doctor": "Look at a server and at this machine before a night is spent on them.",
    "export": "Write a run's or a log's tables, each with its schema.",
    "probe": "Throw cold prompts at a server while sessions write, and account for what it cost both.",
    "quantum": "Say which prefill chunk keeps a mixture-of-experts model's experts busy, and who waits.",
    "report": "Show what a run or an experiment says; what is missing of its derived files is made first.",
    "run": "Run coding agents against a server and account for their work.",
    "tasks": "What agents are asked to do, and how an answer is told from noise.",
    "twin": "A simulated ds4-server, held against published measurements.",
}

_HELP: Final = (
    "Real coding agents as the load on an LLM server you run yourself: what a launch flag did to their work, "
    "from the server's own log."
)

_KINDS: Final = {"int": "a whole number", "float": "a number", "bool": "true or false"}  # pydantic's names for them
_BY_SIGNAL: Final = 128  # a shell shows this and the signal's number for a program that a signal ended
_READER_GONE: Final = _BY_SIGNAL + 13  # SIGPIPE
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class _ReaderGoneError(AgentloadError):
    """Whoever read our stdout has closed it."""

    exit_code = _READER_GONE


class _OutputError(AgentloadError):
    """stdout cannot be written."""


class _Signals:
    """SIGTERM and SIGHUP as KeyboardInterrupt, within the block; what was set for them before (nohup) stays.

    A second one is let pass, since the tidying has begun: `timeout` sends two, and a closed terminal and its shell one
    each. A third one ends the program at once.
    """

    def __init__(self) -> None:
        self._taken: list[signal.Signals] = []
        self._heard: list[int] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python runs handlers nowhere else
            self._taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
        for number in self._taken:
            signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    @property
    def exit_code(self) -> int:
        """What to end with after an interruption: by one of these signals, else by Ctrl-C."""
        return _BY_SIGNAL + self._heard[0] if self._heard else InterruptionError.exit_code

    def _hear(self, number: int, frame: object) -> None:  # noqa: ARG002 - as handlers are called
        self._heard.append(number)
        if len(self._heard) == 1:
            raise KeyboardInterrupt
        self._let_go()

    def _let_go(self) -> None:
        for number in self._taken:
            signal.signal(number, signal.SIG_DFL)


class _Out(io.FileIO):
    """A standard stream whose failure is one of our errors, once: what is left in the buffers then goes nowhere."""

    def __init__(self, fd: int, *, needed: bool) -> None:
        super().__init__(fd, "w", closefd=False)
        self._needed = needed
        self._failed = False

    def write(self, data: Any, /) -> int:
        """Write to the stream; say that all was taken when nothing is any more."""
        if not self._failed:
            try:
                return super().write(data)
            except OSError as error:
                self._failed = True
                if self._needed and error.errno == errno.EPIPE:
                    raise _ReaderGoneError("") from error
                if self._needed:
                    raise _OutputError(f"stdout: cannot be written: {error.strerror}") from error
        return memoryview(data).nbytes


def _guarded(stream: Any, fd: int, *, needed: bool) -> io.TextIOWrapper:
    """Return `stream` anew on its descriptor, guarded; text that it cannot encode becomes escapes."""
    buffer = io.BufferedWriter(_Out(fd, needed=needed))
    lines = not needed or stream.isatty()
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=lines)


def _guard_streams() -> None:
    """Put guards on stdout and stderr. A closed descriptor is opened on nothing, or the next file would get its number.

    Raises:
        AgentloadError: stdout is closed.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    if sys.stderr is not None and sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr, 2, needed=False)
    if sys.stdout is None:
        raise _OutputError("stdout is closed: give it somewhere to go, such as >/dev/null")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout, 1, needed=True)


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


class _Command(typer_core.TyperCommand):
    """Refuses an empty word where a path goes: `Path("")` is the present folder, and `--out "$DIR"` meant another."""

    paths: frozenset[str] = frozenset()  # names of its parameters that are paths

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words, after a look at those that are paths."""
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.get_params(ctx):
            told = given.get(param.name or "") if param.name in self.paths else None
            if told == "" or (isinstance(told, list | tuple) and "" in told):
                name = param.metavar or max(param.opts, key=len)
                raise UsageError(f"{name}: expected a path, got an empty one")
        return super().parse_args(ctx, args)


def _command(name: str) -> typer_core.TyperCommand | typer_core.TyperGroup:
    target = plugins.load(plugins.COMMANDS, name)
    if isinstance(target, typer.Typer):
        group = typer.main.get_group(target)
        group.name = name
        _unwrap(group)
        return group
    app = typer.Typer(add_completion=False)
    app.command(name, cls=_Command)(target)
    command = typer.main.get_command(app)
    assert isinstance(command, _Command)
    kinds = get_type_hints(target)
    command.paths = frozenset(one for one, kind in kinds.items() if kind is Path or Path in get_args(kind))
    _unwrap(command)
    return command


def _unwrap(command: typer_core.TyperCommand | typer_core.TyperGroup) -> None:
    """Make each paragraph of a help text one line: its line breaks would stay, whatever the terminal's width."""
    if command.help is not None:
        command.help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    if isinstance(command, typer_core.TyperGroup):
        for one in command.commands.values():
            assert isinstance(one, (typer_core.TyperCommand, typer_core.TyperGroup))
            _unwrap(one)


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
    """Run the program; the exit code is 0 fine, 1 a negative finding, 2 an error, 128 + N ended by signal N."""
    signals = _Signals()
    try:
        with signals:
            _main(signals)
    except KeyboardInterrupt:  # it came while the end was being told
        sys.exit(signals.exit_code)


def _main(signals: _Signals) -> NoReturn:
    try:
        _guard_streams()
        code = app(standalone_mode=False)
        if code == InterruptionError.exit_code:  # what typer makes of a Ctrl-C; no command ends with it otherwise
            raise KeyboardInterrupt
        sys.stdout.flush()
    except AgentloadError as error:
        _fail(str(error), signals.exit_code if isinstance(error, InterruptionError) else error.exit_code)
    except TyperException as error:  # an unknown option or command, a value that does not convert
        _fail(_said(error), error.exit_code)
    except OSError as error:  # wherever a path is only looked at: it stands for nothing that could be there
        if error.errno != errno.ENAMETOOLONG:
            raise
        _fail(f"{error.filename}: {error.strerror}", AgentloadError.exit_code)
    except (KeyboardInterrupt, typer.Abort):  # also while a command's parts were still being imported
        _fail("interrupted", signals.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _said(error: TyperException) -> str:
    """Return what is wrong with the command line; of a value that does not convert also which one it is.

    Such an error comes from a pydantic one, known by its method: --help does without importing pydantic.
    """
    errors, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if errors is None or param is None:
        return error.format_message()
    found = errors()[0]
    expected = _KINDS.get(found["type"].partition("_")[0], found["msg"].removeprefix("Input should be "))
    return f"{max(param.opts, key=len)}: expected {expected}, got {found['input']!r}"


def _fail(message: str, exit_code: int) -> NoReturn:
    line = " ".join(part.strip() for part in message.splitlines())
    if line:  # a bare `agentload` has had its help already
        typer.echo(f"agentload: {shown(line)}", err=True)
    sys.exit(exit_code)
