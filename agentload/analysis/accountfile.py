"""Is an account.json one that can be shown? What it must hold, checked when it is read back."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

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
    broken_off: int


class WorkedShape(AgentShape):
    """One agent."""

    start_late_ns: int | None
    too_little_work: bool


class FirstTokenShape(_Read):
    """How long the agents' requests waited for their first token."""

    whole: FirstTokens | None
    agents: dict[str, FirstTokens | None]


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
    settings: list[Applied]
    clock: ClockShape
    doubts: list[Doubt]


_SHAPE: TypeAdapter[AccountShape] = TypeAdapter(AccountShape)


def text(found: dict[str, Any]) -> str:
    """account.json as it stands on disk."""
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
