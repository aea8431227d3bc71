"""What must the statistics of an account.json hold, when it is read back?"""

from pydantic import BaseModel, ConfigDict


class _Read(BaseModel):
    """What we do not know is passed over, as in the rest of an account."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class QuantityShape(_Read):
    """One quantity of a log's statistics."""

    kind: str
    source: str
    name: str
    unit: str
    lines: int
    least: float
    median: float
    most: float
    sum: float | None


class SpeculationShape(_Read):
    """What a log tells of speculative decoding."""

    lines: int
    drafts: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    acceptance_by_position: list[float] | None
    nominal_length: float | None
    effective_length: float | None
    effective_error: float | None


class StatisticsPartShape(_Read):
    """Statistics of one segment, or of the whole log."""

    segment: str | None
    lines: int
    quantities: list[QuantityShape]
    speculation: SpeculationShape | None


class StepsShape(_Read):
    """Steps of the engine in one start of the server."""

    boot: int
    steps: int
    decode_steps: int
    prompt_tokens: int
    decode_tokens: int
    elapsed_ns: int


class StatisticsShape(_Read):
    """Statistics lines of a server's log."""

    lines: int
    repeated_by_ranks: int
    parts: list[StatisticsPartShape]
    steps: list[StepsShape]
