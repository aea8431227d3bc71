"""What exactly is to be run? A scenario: read from TOML or options, checked once, and kept with the run."""

import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentload.agents.loop import AgentLimits
from agentload.errors import InputError, UsageError

# /1: first.
SCHEMA: Final = "agentload.scenario/1"

_STANDARD: Final = AgentLimits()
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]  # at most a year


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Server(_Model):
    """Which server: the embedded one, one behind an endpoint, or one that agentload starts."""

    kind: Literal["embedded", "endpoint", "launch"] = "embedded"
    base_url: str | None = None  # http://HOST:PORT/v1; with `launch` it may come from the command's port
    model: str | None = None  # default: the first of /v1/models
    launch: str | None = None  # a command, split as a shell splits words; {port} becomes a free port
    log: str | None = None  # the log file of a running server
    log_format: str | None = None  # default: detected
    args: tuple[str, ...] = ()  # further flags for the embedded server
    ready_s: Seconds = 600.0  # a large model takes minutes to load
    stop_s: Seconds = 600.0  # ds4 may store its KV cache for minutes


class Limits(_Model):
    """An agent's limits: see agents.loop.AgentLimits."""

    turns: Positive = _STANDARD.turns
    tool_calls: Positive = _STANDARD.tool_calls
    wall_s: Seconds = _STANDARD.wall_s
    context_tokens: Positive = _STANDARD.context_tokens
    answer_tokens: Positive = _STANDARD.answer_tokens
    final_tokens: Positive = _STANDARD.final_tokens
    min_tool_calls: Count = _STANDARD.min_tool_calls
    min_growth_tokens: Count = _STANDARD.min_growth_tokens
    nudges: Count = _STANDARD.nudges
    resample: bool = _STANDARD.resample
    failures: Positive = _STANDARD.failures
    stop_at_minimum: bool = _STANDARD.stop_at_minimum

    def for_agents(self) -> AgentLimits:
        """As the agents take them."""
        return AgentLimits(**self.model_dump())


# A 135M model with 8,192 tokens of context: enough calls for 3,000 tokens of growth, then the final answer.
EMBEDDED_LIMITS: Final = Limits(
    turns=26,
    tool_calls=18,
    wall_s=900.0,
    context_tokens=8192,
    answer_tokens=160,
    final_tokens=200,
    min_tool_calls=6,
    min_growth_tokens=3000,
    nudges=12,
    resample=True,
    stop_at_minimum=True,
)


class Scenario(_Model):
    """One run, all of it. Defaults that depend on the server are filled in by `resolve`."""

    schema_: Literal["agentload.scenario/1"] = Field(SCHEMA, alias="schema")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "run"
    condition: str = "default"
    agents: Annotated[int, Field(ge=1, le=1024)] = 3  # each has a checkout and a connection of its own
    stagger_s: Seconds = 15.0
    seed: Count = 0
    corpus: str | None = None  # a pinned corpus' name; default: tiny for the embedded server, else standard
    corpus_path: str | None = None  # the user's own git checkout
    tasks: tuple[str, ...] = ()  # default: all of the corpus
    protocol: Literal["native", "json"] = "native"
    server: Server = Server()
    limits: Limits | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    request: dict[str, Any] = {}  # further request parameters, passed through
    known_paths: bool | None = None  # offer the corpus' paths as the only ones `read` takes; default: embedded only
    command_chars: Positive | None = None  # tell the server's grammar how long a bash command may get
    unsafe_no_sandbox: bool = False
    sample_s: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 15.0

    @model_validator(mode="after")
    def _one_corpus(self) -> "Scenario":
        if self.corpus is not None and self.corpus_path is not None:
            raise ValueError("expected corpus or corpus_path, there are both")
        return self

    @model_validator(mode="after")
    def _can_be_written_and_sent(self) -> "Scenario":
        try:
            json.dumps(self.request, allow_nan=False)
            self.condition.encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected request values that JSON has and a condition in UTF-8: {error}") from error
        return self

    def dump(self) -> dict[str, Any]:
        """As JSON and TOML values: fields that are null are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def resolve(scenario: Scenario) -> Scenario:
    """Fill in what depends on the server.

    Raises:
        UsageError: the server's fields contradict each other.
    """
    server = scenario.server
    if server.kind == "endpoint" and server.base_url is None:
        raise UsageError(
            "server.base_url: expected a URL such as http://127.0.0.1:8080/v1 for an endpoint, there is none"
        )
    if server.kind == "launch" and server.launch is None:
        raise UsageError("server.launch: expected a command, there is none")
    if server.log is not None and server.kind != "endpoint":
        raise UsageError("--server-log is the log of a server that runs already: give its --base-url, not --launch")
    embedded = server.kind == "embedded"
    changes: dict[str, Any] = {}
    if scenario.corpus is None and scenario.corpus_path is None:
        changes["corpus"] = "tiny" if embedded else "standard"
    changes["limits"] = _limits(scenario.limits, embedded=embedded)
    if scenario.temperature is None and embedded:
        changes["temperature"] = 0.5
    if scenario.known_paths is None:
        changes["known_paths"] = embedded
    if scenario.command_chars is None and embedded:
        changes["command_chars"] = 100
    return scenario.model_copy(update=changes)


def _limits(given: Limits | None, *, embedded: bool) -> Limits:
    """Fill up limits that were given in part; for the embedded server the others must still fit its small context."""
    standard = EMBEDDED_LIMITS if embedded else Limits()
    return standard if given is None else standard.model_copy(update=given.model_dump(exclude_unset=True))


def from_fields(fields: dict[str, Any], where: str) -> Scenario:
    """Check `fields`; `where` names their origin in an error.

    Raises:
        UsageError: a field is unknown or its value is not acceptable.
    """
    try:
        return Scenario.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "schema_")
        got = "" if first["type"] == "missing" else f", got {first['input']!r:.80}"
        message = re.sub(r"^Value error, ", "", first["msg"])
        raise UsageError(f"{where}{place or 'scenario'}: {message}{got}") from error


def read_fields(path: Path) -> dict[str, Any]:
    """Read a scenario file's fields.

    Raises:
        InputError: it is missing or no TOML; the line is named.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected TOML: {error}") from error
