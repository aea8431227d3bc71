"""What exactly is to be run? A scenario: read from TOML or options, checked once, and kept with the run."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from agentload.agents.outcome import AgentLimits
from agentload.errors import UsageError
from agentload.run import explaining, twin_settings
from agentload.run.kinds import LISTED, PLAIN_NAME, TABLE, Count, Plain, Positive, Seconds, Text, Variable, Word, Words
from agentload.run.request_fields import RequestFields
from agentload.run.workloads import EMBEDDED_DECODE_TOKENS, LEAST_PROMPT, Fixed, Probe, Warmup

# /1: first.
SCHEMA: Final = "agentload.scenario/1"

STANDARD_LIMITS: Final = AgentLimits()
_PROMPT_TOKENS: Final = 1100  # of the system prompt, the tools and a task: 1,041 to 1,055 measured with SmolLM2
_CALL_TOKENS: Final = 200  # of a short tool call and the least result that an agent is given (400 bytes)
ANSWER_PART: Final = 8  # an answer whose limit nobody gave has at most this part of the context


class _Model(BaseModel):
    model_config = TABLE


Track = Annotated[tuple[Word, ...], LISTED, Field(min_length=1, max_length=100)]
Tracks = Annotated[tuple[Track, ...], LISTED]


class Server(_Model):
    """Which server: the embedded one, one behind an endpoint, one that agentload starts, or a simulated one."""

    kind: Literal["embedded", "endpoint", "launch", "twin"] = "embedded"
    base_url: Text | None = None  # http://HOST:PORT/v1; with `launch` it may come from the command's port
    model: Text | None = None  # default: the first of /v1/models
    launch: Text | None = None  # a command, split as a shell splits words; {port} becomes a free port
    log: Text | None = None  # the log file of a running server
    log_format: Text | None = None  # default: detected
    args: Words = ()  # further flags for the embedded server
    env: dict[Variable, Word] = {}  # further environment of a server that agentload starts
    software: Literal["ds4", "llamacpp", "vllm", "sglang"] | None = None  # default: known by the command's words
    otlp: bool = False  # have a vLLM that agentload starts send the spans of its requests
    ready_s: Seconds = 600.0  # a large model takes minutes to load
    stop_s: Seconds = 600.0  # ds4 may store its KV cache for minutes
    # Of the twin, the simulated ds4-server:
    profile: Text | None = None  # what its machine takes for each kind of work
    set: dict[str, Plain] | None = None  # its options by name: twin.options
    boot: Count | None = None  # number of its start: each draws its own noise


class Limits(_Model):
    """An agent's limits: see agents.loop.AgentLimits."""

    turns: Positive = STANDARD_LIMITS.turns
    tool_calls: Positive = STANDARD_LIMITS.tool_calls
    wall_s: Seconds = STANDARD_LIMITS.wall_s
    context_tokens: Positive = STANDARD_LIMITS.context_tokens
    answer_tokens: Positive = STANDARD_LIMITS.answer_tokens
    final_tokens: Positive = STANDARD_LIMITS.final_tokens
    min_tool_calls: Count = STANDARD_LIMITS.min_tool_calls
    min_growth_tokens: Count = STANDARD_LIMITS.min_growth_tokens
    nudges: Count = STANDARD_LIMITS.nudges
    resample: bool = STANDARD_LIMITS.resample
    failures: Positive = STANDARD_LIMITS.failures
    final_without_tools: bool = STANDARD_LIMITS.final_without_tools
    stop_at_minimum: bool = STANDARD_LIMITS.stop_at_minimum

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
    final_without_tools=True,
    stop_at_minimum=True,
)

# The protocol's: a context of 262,144 tokens, and so much time that no agent is cut off at the slowest setting.
TWIN_LIMITS: Final = Limits(wall_s=14_400.0, context_tokens=250_000, tool_calls=30)

# The fixed workload's: a request has a wall time, and no more is asked of it than its answer.
FIXED_LIMITS: Final = Limits(min_tool_calls=0, min_growth_tokens=0)


class Part(_Model):
    """One segment of a run: all agents work between its two markers. A run without parts is one."""

    segment: Annotated[str, Field(pattern=PLAIN_NAME)]
    condition: Word
    request: RequestFields = {}  # of this part, over the scenario's


_OF_AGENTS: Final = (
    *("parts", "agents", "stagger_s", "tasks", "chain", "tracks", "parallel_tool_calls"),
    *("protocol", "known_paths", "command_chars"),
)


class Scenario(_Model):
    """One run, all of it. Defaults that depend on the server are filled in by `resolve`."""

    schema_: Literal["agentload.scenario/1"] = Field(SCHEMA, alias="schema")
    name: Annotated[str, Field(pattern=PLAIN_NAME)] = "run"
    condition: Word = "default"
    workload: Literal["agents", "fixed", "probe"] = "agents"
    fixed: Fixed | None = None  # of the fixed workload
    probe: Probe | None = None  # of the synthetic probe
    warmup: Warmup | None = None  # default: none in a single run
    parts: Annotated[tuple[Part, ...], LISTED] = ()  # several segments under one start of the server; default: one
    agents: Annotated[int, Field(ge=1, le=1024)] = 3  # each has a checkout and a connection of its own
    stagger_s: Seconds = 15.0
    seed: Annotated[int, Field(ge=0, le=2**53)] = 0
    corpus: Text | None = None  # a pinned corpus' name; default: tiny for the embedded server, else standard
    corpus_path: Text | None = None  # the user's own git checkout
    tasks: Words = ()  # default: all of the corpus
    chain: Annotated[int, Field(ge=1, le=100)] = 1  # so many tasks of each agent, one after the other
    tracks: Tracks = ()  # or by name all that one agent has one after the other, for the agents in turn
    parallel_tool_calls: bool = False  # several calls of one answer are run, at once
    protocol: Literal["native", "json"] = "native"
    server: Server = Server()
    limits: Limits | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    request: RequestFields = {}  # further request parameters, passed through
    known_paths: bool | None = None  # offer the corpus' paths as the only ones `read` takes; default: embedded only
    command_chars: Positive | None = None  # tell the server's grammar how long a bash command may get
    unsafe_no_sandbox: bool = False
    sample_s: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 15.0

    @model_validator(mode="after")
    def _one_corpus(self) -> "Scenario":
        if self.corpus is not None and self.corpus_path is not None:
            raise ValueError("expected corpus or corpus_path, got both")
        return self

    @model_validator(mode="after")
    def _one_way_to_name_tasks(self) -> "Scenario":
        if self.tracks and (self.tasks or self.chain > 1):
            raise ValueError(f"tracks name each agent's tasks: leave {'tasks' if self.tasks else 'chain'} out")
        if self.parallel_tool_calls and self.protocol != "native":
            raise ValueError(f'parallel_tool_calls: expected protocol = "native", got {self.protocol!r}')
        return self

    @model_validator(mode="after")
    def _one_workload(self) -> "Scenario":
        for name in ("fixed", "probe"):
            if self.workload != name and getattr(self, name) is not None:
                raise ValueError(f'{name} is of another workload: give workload = "{name}" with it, or leave it out')
        names = [part.segment for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"expected parts with different segments, got {', '.join(names)}")
        if self.workload != "agents" and (wrong := self._of_agents()):
            raise ValueError(
                f'{wrong[0]} is of the workload agents: leave it out, or leave workload = "{self.workload}" out'
            )
        return self

    def _of_agents(self) -> list[str]:
        """What was given that only agents have."""
        given = [name for name in _OF_AGENTS if getattr(self, name) != type(self).model_fields[name].default]
        if self.workload == "fixed":  # the probe's prompts are made of a corpus too
            given += [name for name in ("corpus", "corpus_path") if getattr(self, name) is not None]
        limits = self.limits or Limits()
        usual = (Limits(wall_s=limits.wall_s), FIXED_LIMITS.model_copy(update={"wall_s": limits.wall_s}))
        return given + [
            f"limits.{name}"
            for name in Limits.model_fields
            if getattr(limits, name) not in (getattr(one, name) for one in usual)
        ]

    @property
    def at_once(self) -> int:
        """Most requests that are open at one time."""
        if self.workload == "probe":
            return (self.probe or Probe()).at_once
        return self.agents if self.workload == "agents" else max((self.fixed or Fixed()).concurrency)

    @property
    def usual_warmup(self) -> Warmup:
        """A warm-up with what is to come first: one request alone, and so many together as there will be."""
        if self.workload == "agents":
            return Warmup(concurrency=tuple(sorted({1, self.agents})), prompt_tokens=(_PROMPT_TOKENS,))
        if self.workload == "probe":
            return (self.probe or Probe()).usual_warmup
        fixed = self.fixed or Fixed()
        return Warmup(concurrency=tuple(sorted({1, *fixed.concurrency})), prompt_tokens=(fixed.prompt_tokens,))

    def dump(self) -> dict[str, Any]:
        """As JSON and TOML values: fields that are null are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def resolve(scenario: Scenario) -> Scenario:
    """Fill in what depends on the server.

    Raises:
        UsageError: the server's fields contradict each other, or the workload does not fit the server.
    """
    server = scenario.server
    _check(server)
    embedded, twin = server.kind == "embedded", server.kind == "twin"
    changes: dict[str, Any] = {"server": _twin(scenario)} if twin else {}
    standard = EMBEDDED_LIMITS if embedded else TWIN_LIMITS if twin else Limits()
    if scenario.temperature is None and embedded:
        changes["temperature"] = 0.5
    if scenario.workload == "fixed":
        return scenario.model_copy(update=changes | _fixed(scenario, standard))
    if scenario.corpus is None and scenario.corpus_path is None:
        changes["corpus"] = "tiny" if embedded else "standard"
    if scenario.workload == "probe":
        return scenario.model_copy(update=changes | _probe(scenario, standard))
    changes["limits"] = _limits(scenario.limits, standard)
    if scenario.known_paths is None:
        changes["known_paths"] = embedded
    if scenario.command_chars is None and embedded:
        changes["command_chars"] = 100
    return scenario.model_copy(update=changes)


def _check(server: Server) -> None:
    """Refuse a server whose fields contradict each other."""
    if server.kind == "endpoint" and server.base_url is None:
        raise UsageError(
            "server.base_url: expected a URL such as http://127.0.0.1:8080/v1 for an endpoint, there is none"
        )
    if server.kind == "launch" and server.launch is None:
        raise UsageError("server.launch: expected a command, there is none")
    if server.log is not None and server.kind == "launch":
        raise UsageError("server.log: a server that is launched writes to RUN/server.log: leave --server-log out")
    if server.log is not None and server.kind == "embedded":
        raise UsageError("server.log: expected the server whose log it is: give --base-url with --server-log")
    if server.kind != "twin" and (server.profile, server.set, server.boot) != (None, None, None):
        raise UsageError("server.profile, server.set, server.boot: expected the twin for these: give --server twin")
    if server.env and server.kind in ("endpoint", "twin"):
        raise UsageError(f"server.env: expected a server that agentload starts, got kind {server.kind!r}: leave it out")
    if server.software is not None and server.kind in ("embedded", "twin"):
        raise UsageError(f"server.software: what the {server.kind} server is, is known: leave it out")


def _twin(scenario: Scenario) -> Server:
    """Return the simulated server with its defaults filled in, and each of its options as the type that it has.

    Raises:
        UsageError: it is asked for what it has not.
    """
    server = scenario.server
    for name in ("base_url", "launch", "log", "log_format"):
        if getattr(server, name) is not None:
            raise UsageError(f"server.{name}: the twin is simulated, and no server runs: leave it out")
    if scenario.protocol != "native":
        raise UsageError(f"protocol: the twin's model only makes native tool calls, got {scenario.protocol!r}")
    profile, model = server.profile or twin_settings.PROFILE, server.model or twin_settings.MODEL
    options = twin_settings.options(server.set or {})
    given = {name: getattr(options, name) for name in server.set or {}}
    return server.model_copy(update={"profile": profile, "model": model, "set": given, "boot": server.boot or 0})


def _fixed(scenario: Scenario, standard: Limits) -> dict[str, Any]:
    """Return what is filled in for the fixed workload: it has no corpus, and its only limit is the wall time.

    Raises:
        UsageError: a request does not fit the server's context, where that is known.
    """
    fixed = scenario.fixed or Fixed()
    twin = scenario.server.kind == "twin"
    context = twin_settings.options(scenario.server.set or {}).ctx if twin else standard.context_tokens
    if scenario.server.kind in ("embedded", "twin") and fixed.prompt_tokens + fixed.output_tokens > context:
        raise UsageError(
            f"fixed: expected a prompt and an output that fit the server's {context:,} tokens of context, got about "
            f"{fixed.prompt_tokens:,} and {fixed.output_tokens:,}"
        )
    # The twin's model ends when its answer does, as a real one; it knows ds4's word for going on.
    request = {"ignore_eos": True, **scenario.request} if twin else scenario.request
    return {"fixed": fixed, "limits": _wall_alone(scenario.limits, standard), "request": request}


def _wall_alone(given: Limits | None, standard: Limits) -> Limits:
    """Return the limits of a single request: its wall time."""
    wall_s = given.wall_s if given is not None and "wall_s" in given.model_fields_set else standard.wall_s
    return FIXED_LIMITS.model_copy(update={"wall_s": wall_s})


def _probe(scenario: Scenario, standard: Limits) -> dict[str, Any]:
    """Return what is filled in for the probe: a corpus gives its text, and its only limit is the wall time.

    A prompt that is too long for the server's context is no error: it is capped when the run knows that, and said.

    Raises:
        UsageError: what comes before the prompt leaves no room for one, or a decoder's turn is too short.
    """
    probe, twin = scenario.probe or Probe(), scenario.server.kind == "twin"
    if scenario.server.kind == "embedded" and probe.decode_tokens is None:
        # A batch takes up to 2,048 tokens of the prompt and one of each decoder: 3 or 4 in 6,000, and 94 with -b 64.
        probe = probe.model_copy(update={"decode_tokens": EMBEDDED_DECODE_TOKENS})
    probe = probe.model_copy(update={"decode_tokens": probe.turn_tokens})
    if probe.settle_tokens + (probe.nearly_finished or 0) >= probe.turn_tokens:
        raise UsageError(
            f"probe: expected settle_tokens and nearly_finished below one turn of a decoder (decode_tokens), "
            f"{probe.turn_tokens} on this server, got {probe.settle_tokens} and {probe.nearly_finished or 0}"
        )
    context = twin_settings.options(scenario.server.set or {}).ctx if twin else standard.context_tokens
    if scenario.server.kind in ("embedded", "twin") and probe.at_context + 2 * LEAST_PROMPT > context:
        raise UsageError(
            f"probe.at_context: expected room for a prompt behind it in the server's {context:,} tokens of context, "
            f"got {probe.at_context:,}"
        )
    # ds4 goes on from a context only when the answer before comes back whole, with what it thought: it must not think.
    request = {"ignore_eos": True, **({"thinking": {"type": "disabled"}} if twin else {}), **scenario.request}
    return {"probe": probe, "limits": _wall_alone(scenario.limits, standard), "request": request}


def _limits(given: Limits | None, standard: Limits) -> Limits:
    """Fill up limits that were given in part; for the embedded server the others must still fit its small context.

    The least work never asks for more than the limits allow: else a limit of the user's would spoil every run.

    Raises:
        UsageError: the context has no room for the tool calls of the least work.
    """
    told = {} if given is None else given.model_dump(exclude_unset=True)
    limits = standard.model_copy(update=told)
    most = max(1, limits.context_tokens // ANSWER_PART)
    answers = {name: min(getattr(limits, name), most) for name in ("answer_tokens", "final_tokens") if name not in told}
    limits = limits.model_copy(update=answers)
    calls = min(limits.min_tool_calls, limits.tool_calls, limits.turns)
    growth = limits.min_growth_tokens
    if calls < limits.min_tool_calls:  # fewer calls make a context grow less
        growth = growth * calls // limits.min_tool_calls
    room = limits.context_tokens - limits.answer_tokens - limits.final_tokens - _PROMPT_TOKENS
    if calls and room < calls * _CALL_TOKENS:
        raise UsageError(
            f"--context {limits.context_tokens}: leaves no room for {calls} tool call{'s' * (calls != 1)}: a first "
            f"prompt takes about {_PROMPT_TOKENS:,} tokens, a call with its result {_CALL_TOKENS}, an answer up to "
            f"{limits.answer_tokens:,} (--answer-tokens), the final one {limits.final_tokens:,} (--final-tokens)"
        )
    return limits.model_copy(update={"min_tool_calls": calls, "min_growth_tokens": min(growth, max(0, room))})


def from_fields(
    fields: dict[str, Any], where: str = "", *, text: str = "", options: Mapping[str, str] | None = None
) -> Scenario:
    """Check `fields`.

    Args:
        fields: as a scenario file or options give them.
        where: names their origin in an error, such as a file.
        text: the file's text, in which the line of a bad value is looked for.
        options: what an error names instead of the field, for those that options gave: {"agents": "--agents"}.

    Raises:
        UsageError: a field is unknown or its value is not acceptable.
    """
    try:
        chosen = Scenario.model_validate(fields)
        if chosen.server.kind == "twin":
            twin_settings.options(chosen.server.set or {})
    except ValidationError as error:
        first = error.errors()[0]
        parts, said = [str(part) for part in first["loc"] if part != "schema_"], explaining.explain(first, keys_of)
    except twin_settings.OptionError as error:
        parts, said = ["server", "set", error.option], error.said
    else:
        return chosen
    option = (options or {}).get(".".join(parts[:2])) or (options or {}).get(".".join(parts[:1]))
    if option is not None:
        raise UsageError(f"{option}: {said}")
    line = explaining.toml_line(text, parts)
    source = f"{where}:{line}: " if where and line else f"{where}: " if where else ""
    raise UsageError(f"{source}{'.'.join(parts) or 'scenario'}: {said}")


def keys_of(path: Sequence[str]) -> list[str]:
    """Return the keys that the table at `path` has, from the scenario's own on."""
    parts: dict[str, type[BaseModel]] = {
        "server": Server,
        "limits": Limits,
        "fixed": Fixed,
        "probe": Probe,
        "warmup": Warmup,
        "parts": Part,
    }
    model = parts.get(path[0], Scenario) if path else Scenario
    return [field.alias or name for name, field in model.model_fields.items()]
