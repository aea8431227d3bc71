"""What comes out of the simulated server, and what is true of it?

Times are virtual, integer ns since the Unix epoch. `LogWrite` to `Stopped` are what the outside would see; the rest
is the ground truth, which no real server tells. Intervals are half-open.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogWrite:
    """One write(2) to stderr; a line of the server is three of them."""

    at_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SlotGiven:
    """A request left the queue for a slot; nothing is sent to the client."""

    at_ns: int
    request: str
    slot: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Prefill came to a position: the first one sends the HTTP headers, later ones may send a keepalive."""

    at_ns: int
    request: str
    position_tokens: int


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The role chunk is sent."""

    at_ns: int
    request: str


@dataclass(frozen=True, slots=True)
class TokenOut:
    """A token was decoded and goes to the client."""

    at_ns: int
    request: str
    index: int  # 1-based


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is over. `error` is None when it is whole."""

    at_ns: int
    request: str
    finish: str  # stop | length | tool_calls | error | cancelled
    prompt_tokens: int
    cached_tokens: int
    new_prefill_tokens: int
    decoded_tokens: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """An HTTP error instead of an answer; the log says nothing of it."""

    at_ns: int
    request: str
    reason: str  # context_length_exceeded | shutting_down
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The process is gone."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One run of the engine over new tokens of one prompt; `stepwise`: one decode step a token."""

    request: str
    position_tokens: int
    tokens: int
    begin_ns: int
    end_ns: int
    stepwise: bool


@dataclass(frozen=True, slots=True)
class Quantum:
    """One turn of a prompt on the model. `quantum_tokens` was chosen at `chosen_ns`, before it waited."""

    request: str
    slot: int
    start_tokens: int
    target_tokens: int
    done_tokens: int  # short of the target when it was cancelled
    quantum_tokens: int
    mixed: bool  # mixed_prefill_quantum applied: some request was decoding when it was chosen
    chosen_ns: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One decode batch; `requests` in order of their slots."""

    begin_ns: int
    end_ns: int
    requests: tuple[str, ...]
    after_quantum: bool


@dataclass(frozen=True, slots=True)
class DiskWork:
    """A store to or a load from the disk cache; it holds the engine's lock. `request`: on whose way, "" at the end."""

    operation: str  # store | load
    reason: str  # cold | continued | evict | shutdown | hit
    request: str
    tokens: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Request:
    """All that is true of one request, told when it ends. A time is None when it did not come so far."""

    request: str
    slot: int | None
    arrival_ns: int
    slot_ns: int | None
    prefill_start_ns: int | None  # t0: just before `prompt start`
    prefill_end_ns: int | None  # also the start of decode
    decode_end_ns: int | None
    end_ns: int
    prompt_tokens: int
    cached_tokens: int | None
    new_prefill_tokens: int | None
    prefilled_tokens: int  # of the new ones, those the engine ran over
    decoded_tokens: int
    quanta: int
    engine_calls: int
    engine_ns: int  # sum of them
    decode_steps: int
    cache_source: str | None  # memory | disk | none
    finish: str
    tool_call_ids: tuple[str, ...]


Truth = EngineCall | Quantum | DecodeStep | DiskWork | Request
Outside = LogWrite | SlotGiven | Progress | PrefillDone | TokenOut | Finished | Rejected | Stopped
Event = Outside | Truth
