"""Which numbers were published, and where? `published.toml`, read and checked."""

import tomllib
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

ByTokens = dict[int, float]  # quantum or chunk, in tokens -> number
Range = tuple[float, float]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Probe(_Data):
    """One cold prompt among sessions that write."""

    source: str
    prompt_tokens: int
    decoders: int
    stall_s: ByTokens
    neighbour_window_s: float
    neighbour_tokens: ByTokens
    decode_alone_tok_s: Range
    gap_s: ByTokens
    tok_s: ByTokens
    tok_s_8192: Range
    ceiling_tok_s: float
    share_of_ceiling: ByTokens
    below_interpolation_1536: Range


class Load(_Data):
    """Prefill under other loads."""

    source: str
    no_load_tok_s: tuple[float, ...]
    no_load_context_tokens: int
    no_load_span_tokens: int
    three_decoding_tok_s: ByTokens
    one_decoding_tok_s: ByTokens
    ratio_at_context: float


class Fairness(_Data):
    """Three cold prompts at once."""

    source: str
    took_s: dict[int, tuple[float, ...]]


class TimeSharing(_Data):
    """What time sharing alone would do."""

    source: str
    utilisation: ByTokens
    decode_tok_s: ByTokens
    expected_tok_s: ByTokens


class Boundary(_Data):
    """What the engine's chunk cap does to an append."""

    source: str
    start_tokens: int
    span_tokens: int
    calls: dict[int, int]
    mean_chunk_tokens: dict[int, int]
    tok_s: ByTokens
    loss: ByTokens
    sequence_start: int
    sequence: tuple[int, ...]


class AgentRun(_Data):
    """One run of three agents."""

    name: str
    quantum: int
    requests: int
    new_tokens: int
    tok_s: float


class Agents(_Data):
    """Real agents."""

    source: str
    stagger_s: float
    most_context_tokens: int
    speed_tok_s: ByTokens
    ratio: float
    double_counting: float
    decode_tok_s: ByTokens
    prefill_share: ByTokens
    decode_share: ByTokens
    overlap: dict[int, Range]
    equal_work_new_tokens: int
    equal_work_decoded_tokens: int
    equal_work_s: ByTokens
    equal_work_ratio: float
    bucket_tok_s: dict[int, tuple[float, ...]]
    bucket_ratio: tuple[float, ...]
    runs: tuple[AgentRun, ...]


class Published(_Data):
    """All of it."""

    schema_: Annotated[Literal["agentload.twin.published/1"], Field(alias="schema")]
    probe: Probe
    load: Load
    fairness: Fairness
    time_sharing: TimeSharing
    boundary: Boundary
    agents: Agents


def load() -> Published:
    """Return what was published."""
    text = (resources.files(__package__) / "published.toml").read_text(encoding="utf-8")
    return Published.model_validate(tomllib.loads(text))
