"""What must a manifest hold, of all that may stand in it, so that a run can be accounted for?

Only what is read is checked, and read exactly: the rest of a scenario, a host or an agent's outcome is for people.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from agentload.artifacts.strict import Count, Ns, Open, Tokens


class DoubtShape(Open):
    """core.records.Doubt."""

    code: str
    message: str
    advice: str


class CommandShape(Open):
    """A command line of the process table, keys hidden."""

    pid: Count
    argv: list[str]
    serves: bool = False  # the process that listens


class FileShape(Open):
    """A program or a model, by which a later run can be told from this one."""

    path: str
    size: Annotated[int, Field(ge=0)]
    mtime_ns: int
    header_sha256: str


class ServerShape(Open):
    """The server, as it was found or started."""

    kind: str
    base_url: str | None = None
    model: str | None = None
    argv: list[str] | None = None
    env: dict[str, str] | None = None
    software: str | None = None  # name of its profile: servers.profiles
    identity: dict[str, FileShape | None] | None = None  # binary, script, model
    commands: list[CommandShape] | None = None
    api: dict[str, dict[str, bool | int | float | str]] | None = None  # "GET /props" -> field -> value
    kv_dir: str | None = None
    markers: str | None = None
    log_format: str | None = None
    log_owned: bool | None = None
    log_path: str | None = None
    log_bytes: Count | None = None
    pump_worst_pause_ns: Ns | None = None


class CorpusShape(Open):
    """What the agents worked on."""

    name: str
    commit: str


class TaskShape(Open):
    """What came of one of an agent's chained tasks."""

    task: str
    end: str | None  # None: it was not begun, or its run was killed
    first_turn: Count | None
    requests: Count
    tool_calls: Count
    facts_found: list[str]
    facts: list[str]
    likely_opened: list[str]
    likely_missed: list[str]


class AgentShape(Open):
    """One agent: its task, and what came of it."""

    agent: str
    segment: str | None = None  # where it worked, in a run with several
    task: str
    end: str
    requests: Count
    tool_calls: Count
    answers: Count
    nudges: Count
    failed_requests: Count
    cut_requests: Count = 0
    calls_not_run: Count
    failed_calls: Count
    repeated_calls: Count
    tool_turns: Count | None = None  # a manifest of before has none: a call was a turn
    tasks: list[TaskShape] = Field(default_factory=list)  # of chained ones
    growth_tokens: Annotated[int, Field(ge=-(10**12), le=10**12)] | None  # a context may have been cut
    facts_found: list[str]
    facts: list[str]
    likely_opened: list[str]
    likely_missed: list[str]
    first_prompt_tokens: Tokens | None = None
    last_context_tokens: Tokens | None = None


class LimitsShape(Open):
    """The least work that counts."""

    min_tool_calls: Count = 0
    min_growth_tokens: Tokens = 0


class AskedShape(Open):
    """The server as it was asked for."""

    set: dict[str, bool | int | float | str] | None = None  # of the twin: its options by name


class ProbeTableShape(Open):
    """What a probe was to be."""

    prompt_tokens: Tokens | None = None
    at_context: Tokens | None = None


class ScenarioShape(Open):
    """The scenario, as resolved."""

    workload: Literal["agents", "fixed", "probe"] | None = None
    server: AskedShape | None = None
    limits: LimitsShape | None = None
    probe: ProbeTableShape | None = None


class ManifestShape(Open):
    """The parts of manifest.json that are read."""

    server: ServerShape
    corpus: CorpusShape
    agents: list[AgentShape]
    scenario: ScenarioShape
    doubts: list[DoubtShape] = Field(default_factory=list)


SHAPE: TypeAdapter[ManifestShape] = TypeAdapter(ManifestShape)
