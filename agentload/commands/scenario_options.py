"""How do options become a scenario's fields, and how are they laid over what a file says?"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload import plugins
from agentload.errors import UsageError
from agentload.run import scenario, toml_file

KeyPath = tuple[str, ...]  # of a scenario's key: ("limits", "wall_s")

# An option that was not given is None, so that a file's value stands: the defaults are the scenario's, only shown here.
DEFAULTS: Final = {name: str(field.default) for name, field in scenario.Scenario.model_fields.items()}
PART: Final = f"; at most 1/{scenario.ANSWER_PART} of the context"


def option(what: str, default: str | None = None) -> Any:
    """Return an option of `what` it does; `default` is only shown."""
    return typer.Option(help=what, show_default=default or False)


def limit(what: str, name: str, also: str = "") -> Any:
    """Return an option for a limit of the agents, with both its defaults shown."""
    standard, embedded = getattr(scenario.STANDARD_LIMITS, name), getattr(scenario.EMBEDDED_LIMITS, name)
    return option(what, f"{standard:.0f}; embedded server: {embedded:.0f}{also}")


# Options that mean the same to every command that has them.
ScenarioFile = Annotated[
    Path | None, typer.Argument(help="A scenario in TOML; options win over it.", show_default=False)
]
Agents = Annotated[int | None, option("How many agents.", DEFAULTS["agents"])]
Stagger = Annotated[float | None, option("Seconds between their starts.", DEFAULTS["stagger_s"])]
ServerKind = Annotated[
    str | None, option("twin: a simulated ds4-server, in virtual time; embedded: the small real one.", "embedded")
]
MachineProfile = Annotated[str | None, option("Of the twin: whose costs it has.", "m3-ultra")]
ServerArgs = Annotated[str | None, option("Further flags for the embedded server, as one string.")]
ToolCalls = Annotated[int | None, limit("Most tool calls of an agent.", "tool_calls")]
Wall = Annotated[float | None, limit("Most seconds an agent may work; then it is cut off.", "wall_s")]
Context = Annotated[int | None, limit("Most tokens of context of an agent.", "context_tokens")]
Protocol = Annotated[str | None, option("native (tool calls) or json (actions in the text).", DEFAULTS["protocol"])]
Warmup = Annotated[
    bool, typer.Option("--warmup", help="Send requests before the measured ones: one alone, then all together.")
]
UnsafeNoSandbox = Annotated[
    bool, typer.Option("--unsafe-no-sandbox", help="Run tools without a sandbox where none works.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Of the twin: an option, NAME=VALUE; may be repeated.", show_default=False),
]
Boot = Annotated[int | None, option("Of the twin: the number of its start; each has its own noise.", "0")]
BaseUrl = Annotated[str | None, option("The endpoint, http://HOST:PORT/v1 (or OPENAI_BASE_URL).")]
Model = Annotated[str | None, option("Its model.", "the first of /v1/models")]
Launch = Annotated[str | None, option("Start and own this server; {port} becomes a free port.")]
ServerLog = Annotated[str | None, option("The log file of the server behind --base-url.")]
LogFormat = Annotated[
    str | None, option(f"The log's format: {', '.join(plugins.names(plugins.SERVERLOGS))}.", "detected")
]
Corpus = Annotated[
    str | None,
    option(
        "A pinned corpus' name, or the path of a git checkout of yours (with a slash in it).",
        "standard; embedded server: tiny",
    ),
]
Name = Annotated[str | None, option("Part of the run directory's name.", DEFAULTS["name"])]
Condition = Annotated[str | None, option("What is under test, as the markers say it.", DEFAULTS["condition"])]
Out = Annotated[Path, typer.Option(help="Where run directories are made.")]
OUT: Final = Path("runs")
AsJson = Annotated[bool, typer.Option("--json", help="Print account.json alone on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")]


def settle(
    file: Path | None,
    held: toml_file.TomlFile | None,
    given: Mapping[KeyPath, tuple[str, Any]],
    fields: dict[str, Any],
    *,
    changed: bool,
    warmup: bool,
) -> tuple[scenario.Scenario, bytes | None]:
    """Return the scenario that a file's `fields` and options make, and the file's bytes where it says all of it.

    Args:
        file: the user's, None without one.
        held: its content.
        given: of each key the option that gave it, and its value.
        fields: the file's, already with these values in their places.
        changed: whether the fields are no longer the file's own.
        warmup: send the usual warm-up, where the file names none.

    Raises:
        UsageError: a value is not acceptable; its option, or file and line, are named.
    """
    verbatim = held.data if held is not None and not changed else None
    chosen = scenario.from_fields(
        fields,
        str(file) if file else "",
        text=held.text if held is not None else "",
        options={".".join(path): name for path, (name, _) in given.items()},
    )
    if warmup and chosen.warmup is None:
        return chosen.model_copy(update={"warmup": chosen.usual_warmup}), None
    return chosen, verbatim


def carry_out(chosen: scenario.Scenario, out: Path, verbatim: bytes | None, *, as_json: bool, quiet: bool) -> None:
    """Do a run, and make what it measured; the arguments are those of `running.carry_out`."""
    writable(out)
    # Loaded only now: the runner needs openai, git and polars, which take 1.5 to 4 s to import; --help does without.
    plugins.load(plugins.STAGES, "run")(chosen, out, dict(os.environ), verbatim, as_json=as_json, quiet=quiet)


def corpus_key(corpus: str | None) -> str:
    """Return which key of a scenario `--corpus` gives: a name, or the path of a checkout."""
    is_path = corpus is not None and (os.sep in corpus or corpus in (".", ".."))
    return "corpus_path" if is_path else "corpus"


def writable(out: Path) -> None:
    """Refuse a path that no JSON in the run directory could name."""
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--out: expected text in UTF-8, got {str(out)!r}") from error


def given_ones(options: Mapping[KeyPath, tuple[str, Any]]) -> dict[KeyPath, tuple[str, Any]]:
    """Return of each key the option that gave it and its value; those of options that were not given are left out."""
    return {path: given for path, given in options.items() if given[1] is not None}


def changed_by(fields: dict[str, Any], given: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """The file's fields with what options gave; an option also takes the place of what says the same in another way."""
    changed = dict(fields)
    if ("corpus",) in given or ("corpus_path",) in given:
        changed.pop("corpus", None)
        changed.pop("corpus_path", None)
    if ("tasks",) in given or ("chain",) in given:
        changed.pop("tracks", None)
    for path, value in given.items():
        if len(path) == 1:
            changed[path[0]] = value
            continue
        part, key = path
        held = changed.get(part, {})
        if isinstance(held, dict):  # what is no table there is refused later
            changed[part] = {**held, key: value}
    server = changed.get("server")
    if ("server", "launch") in given and isinstance(server, dict) and "launch" not in _table(fields, "server"):
        # The file's server is an endpoint, which is not used: nor are its address and its log.
        unused = {"kind", "base_url", "log"} - {path[1] for path in given if path[0] == "server"}
        changed["server"] = {name: value for name, value in server.items() if name not in unused}
    return changed


def _table(fields: dict[str, Any], name: str) -> dict[str, Any]:
    held = fields.get(name, {})
    return held if isinstance(held, dict) else {}


def pairs(texts: list[str] | None) -> dict[str, str] | None:
    """Read NAME=VALUE pairs; none at all is None.

    Raises:
        UsageError: one is no such pair, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {text!r}")
        if name in found:
            raise UsageError(f"--set: {name} is given twice: expected one value, got {found[name]!r} and {value!r}")
        found[name] = value
    return found or None


def server_ones(
    *,
    server: str | None,
    profile: str | None = None,
    set_: list[str] | None = None,
    boot: int | None = None,
    base_url: str | None,
    model: str | None,
    launch: str | None,
    server_log: str | None,
    log_format: str | None,
    server_args: str | None,
) -> dict[KeyPath, tuple[str, Any]]:
    """Return the keys of the options that say which server a run has, each with its option and its value."""
    return {
        ("server", "kind"): ("--server", server),
        ("server", "profile"): ("--profile", profile),
        ("server", "set"): ("--set", pairs(set_)),
        ("server", "boot"): ("--boot", boot),
        ("server", "base_url"): ("--base-url", base_url),
        ("server", "model"): ("--model", model),
        ("server", "launch"): ("--launch", launch),
        ("server", "log"): ("--server-log", server_log),
        ("server", "log_format"): ("--log-format", log_format),
        ("server", "args"): ("--server-args", words(server_args)),
    }


def numbers(option_name: str, text: str | None) -> list[int] | None:
    """Read whole numbers with commas between them.

    Raises:
        UsageError: there is something else.
    """
    if text is None:
        return None
    try:
        return [int(one) for one in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option_name}: expected whole numbers such as 0,3, got {text!r:.80}") from error


def words(text: str | None) -> list[str] | None:
    """Split `--server-args` as a shell would.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--server-args: {error}: {text!r}") from error
