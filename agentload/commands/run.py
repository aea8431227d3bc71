"""`agentload run`: which scenario do its options and its file make? What is done with it is in `running`."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload import plugins
from agentload.errors import UsageError
from agentload.run import scenario

_Path = tuple[str, ...]  # of a scenario's key: ("limits", "wall_s")

# An option that was not given is None, so that a file's value stands: the defaults are the scenario's, only shown here.
_DEFAULTS: Final = {name: str(field.default) for name, field in scenario.Scenario.model_fields.items()}

_PART: Final = f"; at most 1/{scenario.ANSWER_PART} of the context"


def _option(what: str, default: str | None = None) -> Any:
    return typer.Option(help=what, show_default=default or False)


def _limit(what: str, name: str, also: str = "") -> Any:
    standard, embedded = getattr(scenario.STANDARD_LIMITS, name), getattr(scenario.EMBEDDED_LIMITS, name)
    return _option(what, f"{standard:.0f}; embedded server: {embedded:.0f}{also}")


def run(
    scenario_file: Annotated[
        Path | None, typer.Argument(help="A scenario in TOML; options win over it.", show_default=False)
    ] = None,
    agents: Annotated[int | None, _option("How many agents.", _DEFAULTS["agents"])] = None,
    stagger: Annotated[float | None, _option("Seconds between their starts.", _DEFAULTS["stagger_s"])] = None,
    server: Annotated[
        str | None, _option("twin: a simulated ds4-server, in virtual time; embedded: the small real one.", "embedded")
    ] = None,
    profile: Annotated[str | None, _option("Of the twin: whose costs it has.", "m3-ultra")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Of the twin: an option, NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    boot: Annotated[int | None, _option("Of the twin: the number of its start; each has its own noise.", "0")] = None,
    base_url: Annotated[str | None, _option("The endpoint, http://HOST:PORT/v1 (or OPENAI_BASE_URL).")] = None,
    model: Annotated[str | None, _option("Its model.", "the first of /v1/models")] = None,
    launch: Annotated[str | None, _option("Start and own this server; {port} becomes a free port.")] = None,
    server_log: Annotated[str | None, _option("The log file of the server behind --base-url.")] = None,
    log_format: Annotated[str | None, _option("The log's format: ds4, llamacpp.", "detected")] = None,
    server_args: Annotated[str | None, _option("Further flags for the embedded server, as one string.")] = None,
    corpus: Annotated[
        str | None,
        _option(
            "A pinned corpus' name, or the path of a git checkout of yours (with a slash in it).",
            "standard; embedded server: tiny",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        _option("A task by name, for the agents in turn; may be repeated.", "drawn by the seed"),
    ] = None,
    protocol: Annotated[
        str | None, _option("native (tool calls) or json (actions in the text).", _DEFAULTS["protocol"])
    ] = None,
    seed: Annotated[int | None, _option("Seed of tasks and sampling.", _DEFAULTS["seed"])] = None,
    name: Annotated[str | None, _option("Part of the run directory's name.", _DEFAULTS["name"])] = None,
    condition: Annotated[
        str | None, _option("What is under test, as the markers say it.", _DEFAULTS["condition"])
    ] = None,
    tool_calls: Annotated[int | None, _limit("Most tool calls of an agent.", "tool_calls")] = None,
    wall: Annotated[float | None, _limit("Most seconds an agent may work; then it is cut off.", "wall_s")] = None,
    answer_tokens: Annotated[int | None, _limit("Most tokens of one answer.", "answer_tokens", _PART)] = None,
    final_tokens: Annotated[int | None, _limit("Most tokens of the final answer.", "final_tokens", _PART)] = None,
    context: Annotated[int | None, _limit("Most tokens of context of an agent.", "context_tokens")] = None,
    unsafe_no_sandbox: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="Run tools without a sandbox where none works.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where run directories are made.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print account.json alone on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")] = False,
) -> None:
    """Run coding agents against a server and account for their work.

    With nothing configured, a real llama.cpp server with a small model is started (extra `local`), and three agents
    work on the tiny corpus. What is used, and why, is said first.
    """
    text = scenario.read_text(scenario_file) if scenario_file else ""
    verbatim = scenario_file.read_bytes() if scenario_file else None
    fields: dict[str, Any] = scenario.read_fields(scenario_file) if scenario_file else {}
    is_path = corpus is not None and (os.sep in corpus or corpus in (".", ".."))
    given = _given(
        {
            ("agents",): ("--agents", agents),
            ("stagger_s",): ("--stagger", stagger),
            ("corpus_path" if is_path else "corpus",): ("--corpus", corpus),
            ("tasks",): ("--task", task or None),
            ("protocol",): ("--protocol", protocol),
            ("seed",): ("--seed", seed),
            ("name",): ("--name", name),
            ("condition",): ("--condition", condition),
            ("unsafe_no_sandbox",): ("--unsafe-no-sandbox", unsafe_no_sandbox or None),
            ("server", "kind"): ("--server", server),
            ("server", "profile"): ("--profile", profile),
            ("server", "set"): ("--set", _pairs(set_)),
            ("server", "boot"): ("--boot", boot),
            ("server", "base_url"): ("--base-url", base_url),
            ("server", "model"): ("--model", model),
            ("server", "launch"): ("--launch", launch),
            ("server", "log"): ("--server-log", server_log),
            ("server", "log_format"): ("--log-format", log_format),
            ("server", "args"): ("--server-args", _words(server_args)),
            ("limits", "tool_calls"): ("--tool-calls", tool_calls),
            ("limits", "wall_s"): ("--wall", wall),
            ("limits", "answer_tokens"): ("--answer-tokens", answer_tokens),
            ("limits", "final_tokens"): ("--final-tokens", final_tokens),
            ("limits", "context_tokens"): ("--context", context),
        }
    )
    if given:
        fields = _changed(fields, {path: value for path, (_, value) in given.items()})
        verbatim = None  # what was run is no longer what the file says: the resolved scenario is kept instead
    chosen = scenario.from_fields(
        fields,
        str(scenario_file) if scenario_file else "",
        text=text,
        options={".".join(path): option for path, (option, _) in given.items()},
    )

    _writable(out)
    # Loaded only now: the runner needs openai, git and polars, which take 1.5 to 4 s to import; --help does without.
    plugins.load(plugins.STAGES, "run")(chosen, out, dict(os.environ), verbatim, as_json=as_json, quiet=quiet)


def _writable(out: Path) -> None:
    """Refuse a path that no JSON in the run directory could name."""
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--out: expected text in UTF-8, got {str(out)!r}") from error


def _given(options: Mapping[_Path, tuple[str, Any]]) -> dict[_Path, tuple[str, Any]]:
    return {path: given for path, given in options.items() if given[1] is not None}


def _changed(fields: dict[str, Any], given: Mapping[_Path, Any]) -> dict[str, Any]:
    """The file's fields with what options gave; an option also takes the place of what says the same in another way."""
    changed = dict(fields)
    if ("corpus",) in given or ("corpus_path",) in given:
        changed.pop("corpus", None)
        changed.pop("corpus_path", None)
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


def _pairs(texts: list[str] | None) -> dict[str, str] | None:
    """Read NAME=VALUE pairs; none at all is None.

    Raises:
        UsageError: one is no such pair, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {text!r}")
        if name in pairs:
            raise UsageError(f"--set: {name} is given twice: expected one value, got {pairs[name]!r} and {value!r}")
        pairs[name] = value
    return pairs or None


def _words(text: str | None) -> list[str] | None:
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--server-args: {error}: {text!r}") from error
