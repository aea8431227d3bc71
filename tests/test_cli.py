"""The program as a user starts it: a process, its two streams and its exit code."""

import itertools
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from agentload.cli import SUMMARIES
from tests.program import ENV as NARROW
from tests.program import PROGRAM, program, started

COMMANDS = sorted(point.name for point in entry_points(group="agentload.commands"))
ENV = {name: value for name, value in os.environ.items() if name not in ("OPENAI_BASE_URL", "OPENAI_API_KEY")} | NARROW


def test_each_command_has_a_summary_and_each_summary_a_command() -> None:
    assert sorted(SUMMARIES) == COMMANDS


def test_help_lists_exactly_the_commands_with_their_summaries() -> None:
    done = started("--help")
    assert (done.returncode, done.stderr) == (0, "")
    table = done.stdout[done.stdout.index("Commands") :]
    listed = dict(re.findall(r"^\W*([a-z]+)\s\s+(\S.*?)\W*$", table, re.MULTILINE))
    assert listed == {name: SUMMARIES[name].rstrip(".") for name in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_that_begins_with_its_summary(command: str) -> None:
    done = program(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: agentload {command}" in done.stdout
    assert SUMMARIES[command].rstrip(".") in " ".join(done.stdout.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fills_the_lines_of_a_narrow_terminal(command: str) -> None:
    """The line breaks of the source once stood in the middle of a sentence."""
    done = program(command, "--help", env={"COLUMNS": "80"})
    assert done.returncode == 0
    text = re.split(r"^╭", done.stdout, maxsplit=1, flags=re.MULTILINE)[0]
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        for line, following in itertools.pairwise(lines):
            assert len(f" {line} {following.split()[0]} ") > 80, paragraph


HELP_IN_PROCESS = """
import sys
from agentload.cli import main
sys.argv = ["agentload", "--help"]
try:
    main()
finally:
    print(sorted(set(sys.modules) & {HEAVY}), file=sys.stderr)
"""
HEAVY = {"openai", "polars", "numpy", "httpx2", "anyio", "git", "tiktoken", "psutil", "agentload.commands.run"}


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_IN_PROCESS.replace("{HEAVY}", repr(HEAVY))],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Commands" in done.stdout
    assert done.stderr == "[]\n"


def test_a_command_that_is_called_is_imported_and_no_other() -> None:
    script = HELP_IN_PROCESS.replace('"--help"', '"corpus", "list"').replace(
        "{HEAVY}", '{"agentload.commands.corpus", "agentload.commands.run", "openai"}'
    )
    done = subprocess.run([sys.executable, "-c", script], env=ENV, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("large ")
    assert done.stderr == "['agentload.commands.corpus']\n"


def test_the_version_is_that_of_the_distribution() -> None:
    done = started("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"agentload {version('agentload')}\n", "")


def test_without_a_command_the_help_is_shown() -> None:
    done = program()
    assert done.returncode == 2
    assert done.stderr == ""
    assert "Usage: agentload" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope",), "No such command 'nope'."),
        (("--nope",), "No such option: --nope"),
        (("run", "--nope"), "No such option: --nope"),
        (("--", "nope"), "No such command 'nope'."),
        (("account",), "Missing argument 'RUN_OR_LOG'."),
        (("report", "a", "b"), "Got unexpected extra argument"),
        (("run", "--agents", "three"), "agentload: --agents: expected a whole number, got 'three'"),
        (("run", "--stagger", "soon"), "agentload: --stagger: expected a number, got 'soon'"),
        (("run", "--stagger="), "agentload: --stagger: expected a number, got ''"),
        (("run", "--stagger=-1"), "agentload: --stagger: expected at least 0, got -1"),
        (("run", "--stagger=nan"), "agentload: --stagger: expected a finite number, got nan"),
        (("twin", "serve", "--port", "99999"), "agentload: --port: expected less than or equal to 65535, got '99999'"),
        (("run", "--agents"), "Option '--agents' requires an argument."),
        (("corpus", "nope"), "No such command 'nope'."),
        (("corpus", "path", "nope"), "no corpus named 'nope': there is "),
        (("account", "none"), "expected a run directory or a server's log, there is no none"),
        (("report", "none"), "expected a run directory, there is no none"),
        (("report", "."), "expected a run's directory (with manifest.json) or an experiment's (with design.json)"),
        (("run", "none.toml"), "none.toml"),
        (("run", "--agents", "0"), "agents"),
        (("run", "--server-args", "'"), "--server-args: No closing quotation"),
        (("run", "--launch", "llama-server"), "--launch: expected the server's address"),
        (("account", ""), "agentload: RUN_OR_LOG: expected a path, got an empty one"),
        (("export", "s.log", "--to", "csv", "--out", ""), "agentload: --out: expected a path, got an empty one"),
        (("compare", "a", ""), "expected a path, got an empty one"),
        (("run", "--out="), "agentload: --out: expected a path, got an empty one"),
        pytest.param(("report", "a" * 300), "a/design.json: File name too long", id="report of a name of 300"),
        pytest.param(("quantum", "a" * 300), "aaa: File name too long", id="quantum of a name of 300"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_a_user_gets_wrong_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = program(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("server: ", "sandbox: ", "corpus: "))]
    lines = [line for line in lines if not re.match(r"agent a\d starts at ", line)]  # what a run says before it fails
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("agentload: ")
    assert message in lines[0]


def test_a_double_dash_before_a_command_calls_it() -> None:
    """It once called a stand-in that did nothing, and said that all was well."""
    done = started("--", "report", "none")
    assert (done.returncode, done.stderr) == (2, "agentload: expected a run directory, there is no none\n")


FULL = Path("/dev/full")
full_device = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")
COMMAND = (sys.executable, "-c", "from agentload.cli import main; main()")


@full_device
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("corpus", "list"), ("report", "--help")], ids=str)
def test_a_full_disk_under_stdout_is_one_line_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], env=ENV, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "agentload: stdout: cannot be written: No space left on device\n")


@pytest.mark.parametrize("arguments", [("--help",), ("corpus", "list")], ids=str)
def test_a_reader_that_has_gone_ends_the_program_as_sigpipe_would_and_without_a_word(
    arguments: tuple[str, ...],
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [*COMMAND, *arguments], env=ENV, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@full_device
@pytest.mark.parametrize(("arguments", "code"), [(("corpus", "list"), 0), (("report", "none"), 2)], ids=str)
def test_a_stderr_that_takes_nothing_changes_neither_the_result_nor_the_exit_code(
    arguments: tuple[str, ...], code: int
) -> None:
    wanted = program(*arguments)
    reader, writer = os.pipe()
    os.close(reader)
    with FULL.open("w") as full, os.fdopen(writer, "w") as closed:
        for stderr in (full, closed):
            done = subprocess.run(
                [*COMMAND, *arguments], env=ENV, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
            )
            assert (done.returncode, done.stdout) == (code, wanted.stdout)


@pytest.mark.parametrize(
    ("closing", "code", "said"),
    [
        (">&-", 2, "agentload: stdout is closed: give it somewhere to go, such as >/dev/null\n"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("<&- 2>&-", 0, ""),
    ],
)
def test_a_closed_stream_is_nobodys_file(closing: str, code: int, said: str) -> None:
    """The next file that is opened gets the lowest free number: a print would have gone into it."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", *COMMAND, "--version"],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = f"agentload {version('agentload')}\n" if code == 0 else ""
    assert (done.returncode, done.stdout, done.stderr) == (code, shown, said)


def test_what_stdout_cannot_encode_becomes_an_escape() -> None:
    script = "import sys, typer, agentload.cli as c; c._guard_streams(); typer.echo('gr\u00f6\u00dfer \\u2603')"
    environment = ENV | {"PYTHONIOENCODING": "latin-1:strict"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"gr\xf6\xdfer \\u2603\n", b"")


FAILING = """
from agentload.errors import AgentloadError

class NegativeFinding(AgentloadError):
    exit_code = 1

def fail():
    raise NegativeFinding("not distinguished:\\n  too few runs\\n")
"""


def test_an_error_is_one_line_whatever_its_text_and_has_its_own_exit_code(tmp_path: Path) -> None:
    """The command that raises it comes from a distribution of its own, as a user's would."""
    (tmp_path / "failing.py").write_text(FAILING)
    metadata = tmp_path / "failing-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[agentload.commands]\nfail = failing:fail\n")
    done = subprocess.run(
        [sys.executable, "-c", "from agentload.cli import main; main()", "fail"],
        env=ENV | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "agentload: not distinguished: too few runs\n")


def test_account_of_a_closed_stdin_is_refused_in_one_line() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" account - <&-', PROGRAM],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (2, "agentload: -: expected a log on stdin, it is closed\n")


def test_a_folder_for_runs_whose_name_has_no_utf_8_is_refused() -> None:
    done = started("run", "--server", "twin", "--out", "runs\udcff")
    assert done.returncode == 2
    assert re.fullmatch(r"agentload: --out: expected text in UTF-8, got .*\n", done.stderr)


def test_an_interrupt_while_a_command_is_imported_is_one_line_and_exit_code_130() -> None:
    script = (
        "import signal, sys\n"
        "from agentload import cli, plugins\n"
        "real = plugins.load\n"
        "def load(group, name):\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    return real(group, name)\n"
        "plugins.load = load\n"
        "sys.argv = ['agentload', 'corpus', 'list']\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENV, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "agentload: interrupted")
