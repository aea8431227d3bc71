"""Where does one request stand on its way through the server?"""

from dataclasses import dataclass, field
from enum import Enum, auto

from agentload.twin.events import Request
from agentload.twin.slots import Job, Run, Runs, Slot, cut, total


class Phase(Enum):
    """What a request is doing."""

    QUEUED = auto()
    OPENING = auto()  # has a slot; evict store, disk load
    PREFILL = auto()
    DECODE = auto()
    ENDING = auto()  # the last bytes are written
    OVER = auto()


@dataclass(slots=True, eq=False)
class Work:
    """One request. Positions are absolute tokens, times ns."""

    job: Job
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int  # what the context leaves of what the job wants
    finish: str
    phase: Phase = Phase.QUEUED
    slot: Slot | None = None
    slot_ns: int | None = None
    stop: str | None = None  # cancelled | shutdown requested
    cached: int = 0
    source: str = "none"  # memory | disk | none
    # prefill
    t0_ns: int = 0
    position: int = 0
    goals: list[int] = field(default_factory=list)  # a cold prompt is run to its anchor, then to its end
    trimmed: int = 0
    target: int = 0
    quantum_tokens: int = 0
    mixed: bool = False
    chosen_ns: int = 0
    quantum_begin_ns: int = 0
    quantum_start: int = 0
    stepwise: bool = False
    silent: bool = False
    chunk: tuple[int, int] | None = None  # tokens and time of the last chunk line
    quanta: int = 0
    calls: int = 0
    engine_ns: int = 0
    prefill_end_ns: int | None = None
    # decode
    gen: int = 0
    logged: tuple[int, int] = (0, 0)  # tokens and time of the last decode line
    decode_end_ns: int | None = None
    head: str = ""  # how its prefill lines begin

    @property
    def name(self) -> str:
        """The request's name."""
        return self.job.request

    @property
    def at(self) -> Slot:
        """Its slot."""
        assert self.slot is not None
        return self.slot

    @property
    def new_tokens(self) -> int:
        """Prompt tokens that are not reused."""
        return self.prompt_tokens - self.cached

    @property
    def span(self) -> str:
        """A..B:N as all its lines but those of decoding have it."""
        return f"{self.cached}..{self.prompt_tokens}:{self.new_tokens}"

    @property
    def flags(self) -> str:
        """Flags of its lines while it writes."""
        thinking = " THINKING" if self.gen <= self.job.reasoning_tokens and self.job.reasoning_tokens else ""
        return (" TOOLS" if self.job.tools else "") + thinking

    def begin(self, now_ns: int) -> None:
        """It begins (t0)."""
        self.t0_ns, self.position, self.phase = now_ns, self.cached, Phase.PREFILL
        self.head = f"{self.job.kind} ctx={self.span}{' TOOLS' if self.job.tools else ''}"

    def live(self) -> Runs:
        """What its slot holds now."""
        if self.position < self.prompt_tokens:
            return cut(self.job.prompt, self.position)
        written = (Run(self.job.written, self.gen),) if self.gen else ()
        return (*self.job.prompt, *written)

    def truth(self, now_ns: int, finish: str) -> Request:
        """Return all that is true of it, at its end."""
        began = self.phase in {Phase.PREFILL, Phase.DECODE, Phase.ENDING}
        return Request(
            request=self.name,
            slot=None if self.slot is None else self.slot.id,
            arrival_ns=self.arrival_ns,
            slot_ns=self.slot_ns,
            prefill_start_ns=self.t0_ns if began else None,
            prefill_end_ns=self.prefill_end_ns,
            decode_end_ns=self.decode_end_ns,
            end_ns=now_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached if began else None,
            new_prefill_tokens=self.new_tokens if began else None,
            prefilled_tokens=self.position - self.cached if began else 0,
            decoded_tokens=self.gen,
            quanta=self.quanta,
            engine_calls=self.calls,
            engine_ns=self.engine_ns,
            decode_steps=self.gen,
            cache_source=self.source if began else None,
            finish=finish,
            tool_call_ids=tuple(one for one, _ in self.job.tool_calls) if finish == "tool_calls" else (),
        )


def new(job: Job, arrival_ns: int, ctx: int) -> Work:
    """Return the work that a job makes; the context bounds what can be written."""
    prompt = total(job.prompt)
    room = max(0, ctx - prompt)
    cut_short = job.output_tokens > room
    return Work(job, arrival_ns, prompt, min(job.output_tokens, room), "length" if cut_short else job.finish)
