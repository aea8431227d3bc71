"""Is an account.json one that can be shown? What it must hold, checked when it is read back."""

import json
from io import StringIO
from pathlib import Path
from typing import Any, Final, Self, TextIO

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from agentload.analysis.statistics_shape import StatisticsShape
from agentload.artifacts import schemas, strict
from agentload.artifacts.manifest_shape import AgentShape, CorpusShape, ServerShape
from agentload.core.accounting import Bucket, Totals
from agentload.core.first_tokens import FirstTokens
from agentload.core.records import Applied, Doubt
from agentload.errors import ArtifactError


class _Read(BaseModel):
    """What we do not know is passed over: core's dataclasses, which stand in these models, have slots for no more."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class LinesShape(_Read):
    """How many lines the log has, by kind."""

    format: str | None
    understood: int
    ignored: int
    unknown: int
    markers: int
    total: int
    counts_requests: bool = True


class RequestsShape(_Read):
    """How many requests were joined in which way."""

    total: int
    matched: int
    exact: int
    unique: int
    ambiguous: int
    client_only: int
    server_only: int
    outside_segments: int
    perhaps_ours: int = 0  # an account of before has none


class CheckShape(_Read):
    """One count by the log and by the answers."""

    log: int | None
    usage: int | None
    remainder: int | None


class UsageCheckShape(_Read):
    """The counts of which both are known."""

    prompt_tokens: CheckShape
    cached_tokens: CheckShape
    decoded_tokens: CheckShape


class WorkShape(_Read):
    """What the agents did, all together."""

    requests: int | None
    tool_calls: int | None
    answers: int | None
    nudges: int | None
    failed_requests: int | None
    cut_requests: int | None
    calls_not_run: int | None
    tool_turns: int | None = None  # an account of before has none: a call was a turn
    broken_off: int


_COUNTED: Final = ("requests", "tool_calls", "answers", "nudges", "failed_requests", "cut_requests", "calls_not_run")


class WorkedShape(AgentShape):
    """One agent."""

    start_late_ns: int | None
    too_little_work: bool


class FirstTokenShape(_Read):
    """How long the agents' requests waited for their first token."""

    whole: FirstTokens | None
    agents: dict[str, FirstTokens | None]


class BesideShape(_Read):
    """One published number beside a simulated one."""

    table: str
    quantity: str
    published: float | list[float] | None
    simulated: float | list[float]
    off: float | None
    evidence: str


class MisfitShape(_Read):
    """A published number that contradicts others."""

    table: str
    quantity: str
    published: str
    simulated: str
    why: str


class PublishedShape(_Read):
    """Simulated numbers beside published ones."""

    source: str
    profile: str
    note: str
    rows: list[BesideShape]
    misfits: list[MisfitShape]


class _OfLoad(_Read):
    """What is said of one segment under a load, and of all its repeats together."""

    load: str
    decoders: int
    prompts: int
    nearly_finished: int | None
    asked_tokens: int | None
    counted_tokens: int | None
    cached_tokens: int | None
    cold: bool | None
    prefill_source: str | None
    prefill_tok_s: float | None
    ttft_s: float | None
    ends_spread_s: float | None
    gap_s: float | None
    gap_p99_s: float | None
    gap_longest_s: float | None
    neighbour_tokens: float | None
    neighbour_tok_s: float | None
    alone_tok_s: float | None
    utilisation: float | None
    covered: float | None
    throughout: bool | None
    cost_ms_per_token: float | None
    exposure: float | None


class ProbedShape(_OfLoad):
    """What one segment of a probe measured; its numbers are read by name."""

    repeat: int
    prefill_s: float | None
    each: list[dict[str, Any]]


class LoadShape(_OfLoad):
    """The repeats of a probe under one load, together."""

    repeats: int
    ends_s: list[float]
    spread: float | None
    share_of_ceiling: float | None
    expected_tok_s: float | None
    measured_to_expected: float | None
    gaps: int | None = None  # accounts from before these two have none
    expected_cached_tokens: int | None = None


class ProbeShape(_Read):
    """What a probe says, by load."""

    ceiling_tok_s: float | None
    ceiling_of: str | None
    loads: list[LoadShape]
    sized: dict[str, Any] | None
    published: PublishedShape | None


class DeviceShape(_Read):
    """The smallest free memory of one device."""

    index: int
    name: str
    free_min_bytes: int
    total_bytes: int


class MemoryShape(_Read):
    """The smallest free memory of a segment."""

    host_free_min_bytes: int
    host_total_bytes: int | None
    devices: list[DeviceShape]
    server_rss_max_bytes: int | None


class ContextShape(_Read):
    """The longest context that a segment filled."""

    filled_tokens: int
    request: str | None
    configured_tokens: int | None
    setting: str | None
    broken_off_prompt_tokens: int | None = None


class PromptTokensShape(_Read):
    """Prompt tokens of a segment by the server's own count."""

    all: int | None
    computed: int | None
    cached: int | None
    transferred: int | None


class CountedSpeculationShape(_Read):
    """Speculation of a segment by the server's own count."""

    acceptance_by_position: list[float] | None
    nominal_length: float | None
    effective_length: float | None


class SampledShape(_Read):
    """In how many looks what was the case."""

    busy: int | None
    several: int | None
    tells_phases: bool
    prefilling: int | None
    both: int | None
    overlap: float | None


class MetricsShape(_Read):
    """What a server counted in a segment."""

    software: str
    looks: int
    restarted: bool
    prompt_tokens: PromptTokensShape
    generation_tokens: int | None
    queue_seconds: float | None
    prefill_seconds: float | None
    decode_seconds: float | None
    running_peak: int | None
    waiting_peak: int | None
    speculation: CountedSpeculationShape | None
    sampled: SampledShape


class PhasesShape(_Read):
    """Where the times of a segment's phases are from."""

    said: str | None


class SegmentShape(_Read):
    """One segment."""

    segment: str
    condition: str
    whole: Totals
    agents: dict[str, Totals]
    no_agent: Totals | None
    buckets: list[Bucket]
    unknown_context: int
    straddles_begin: list[str]
    straddles_end: list[str]
    server_cpu_s: float | None
    host_other_cpu_s: float | None
    first_token: FirstTokenShape | None = None
    memory: MemoryShape | None = None
    context: ContextShape | None = None
    metrics: MetricsShape | None = None
    phases: PhasesShape | None = None
    probe: ProbedShape | None = None


class ClockShape(_Read):
    """On which clocks the times stand."""

    error_ns: int | None


class AccountShape(_Read):
    """What is read of account.json."""

    run: str
    status: str
    running: bool = False
    why: str | None
    simulated: bool
    server: ServerShape
    corpus: CorpusShape
    sandbox: str
    lines: LinesShape
    requests: RequestsShape
    usage_check: UsageCheckShape
    work: WorkShape
    agents: list[WorkedShape]
    segments: list[SegmentShape]
    probe: ProbeShape | None = None
    settings: list[Applied]
    statistics: StatisticsShape | None = None
    clock: ClockShape
    doubts: list[Doubt]

    @model_validator(mode="after")
    def _an_ended_run_has_its_counts(self) -> Self:
        unknown = [name for name in _COUNTED if getattr(self.work, name) is None] if self.status != "started" else []
        if unknown:
            raise ValueError(f"work.{unknown[0]}: expected a number in a run that has ended, got null")
        return self


_SHAPE: TypeAdapter[AccountShape] = TypeAdapter(AccountShape)


def text(found: dict[str, Any]) -> str:
    """account.json as it stands on disk."""
    made = StringIO()
    write(found, made)
    return made.getvalue()


def write(found: dict[str, Any], file: TextIO) -> None:
    """Write the same piece by piece: `json.dumps` keeps all of them until the end, four times the text's size."""
    json.dump(found, file, indent=2, ensure_ascii=False, allow_nan=False)
    file.write("\n")


def read(path: Path) -> dict[str, Any] | None:
    """Return the content of the account.json at `path`; None when there is none.

    Raises:
        ArtifactError: it cannot be read, or is no account.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be read: {error.strerror}; make it readable, or delete {path.parent} to have it made anew"
        ) from error
    try:
        found = strict.parse(data)
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != schemas.ACCOUNT:
            raise ValueError(f"expected schema {schemas.ACCOUNT}, got {str(schema)[:60]}")
        _SHAPE.validate_json(text(found))
    except ValidationError as error:
        raise _not_whole(path, strict.explain(error)) from error
    except ValueError as error:
        raise _not_whole(path, str(error)) from error
    account: dict[str, Any] = found
    return account


def _not_whole(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path}: {what}; delete {path.parent} to have it made anew")
