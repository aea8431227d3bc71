"""What is a server asked for, where no agents work: which tables has each kind of load, and what may stand in them?"""

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field, model_validator

from agentload.core.probe import Load, loads_of
from agentload.run.kinds import LISTED, TABLE, Positive

LEAST_PROMPT: Final = 100  # tokens of a cold prompt: its first line, what is asked and the marks of a template are 60
DECODE_TOKENS: Final = 512  # of one turn of a session that writes, where nobody says
EMBEDDED_DECODE_TOKENS: Final = 256
EMBEDDED_PROMPT: Final = 6_000  # of its 8,192; a 135M model on one thread takes two minutes for them
_DECODE_PROMPT: Final = 350  # about as long as the prompts that a warm-up for the probe sends


class Table(BaseModel):
    """A table of a scenario: nothing in it changes, and no key is unknown."""

    model_config = TABLE


def _each_once(values: tuple[int, ...]) -> tuple[int, ...]:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"expected one number or more, each once, got {', '.join(map(str, values)) or 'none'}")
    return values


def _none_or_enough(tokens: int) -> int:
    if 0 < tokens < LEAST_PROMPT:
        raise ValueError(f"expected 0, or {LEAST_PROMPT} or more, got {tokens}")
    return tokens


AtOnce = Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], LISTED, AfterValidator(_each_once)]
AtOnceOrNone = Annotated[tuple[Annotated[int, Field(ge=0, le=1024)], ...], LISTED, AfterValidator(_each_once)]


class Fixed(Table):
    """The fixed workload (report B): equal requests, so many at once, each with a short prompt and a long output."""

    concurrency: AtOnce = (1, 4, 8)
    prompt_tokens: Positive = 350  # about: the server's own count is what is reported
    output_tokens: Positive = 512
    rounds: Positive = 2  # of each concurrency; their median counts


class Warmup(Table):
    """Requests before the begin marker, so that kernels compile in start-up time: every pair of these, once."""

    concurrency: AtOnce = (1,)
    prompt_tokens: Annotated[tuple[Positive, ...], LISTED, AfterValidator(_each_once)] = (350,)
    output_tokens: Positive = 8


class Probe(Table):
    """The synthetic probe (report A): cold prompts thrown in while sessions write, work equal to the character."""

    prompt_tokens: Annotated[int, Field(ge=LEAST_PROMPT, le=10**8)] = 20_000  # new ones, by the server's own count
    decoders: AtOnceOrNone = (0, 3)  # sessions that write meanwhile; each is a load of its own
    prompts: AtOnce = (1,)  # cold prompts at once; each with each of `decoders`
    nearly_finished: Positive | None = None  # one more load: one decoder that has so many tokens left
    at_context: Annotated[int, Field(ge=0, le=10**8), AfterValidator(_none_or_enough)] = (
        0  # the new tokens come after so many that a cache has
    )
    decode_tokens: Positive | None = None  # of one turn of a decoder; default: 512, embedded server: 256
    settle_tokens: Positive = 32  # of each decoder before the prompt comes: what it writes alone
    repeats: Annotated[int, Field(ge=1, le=1000)] = 3

    @model_validator(mode="after")
    def _fits_into_a_turn(self) -> "Probe":
        turn, left = self.turn_tokens, self.nearly_finished or 0
        if self.settle_tokens + left >= turn:
            also = f" with {left} left (nearly_finished)" if left else ""
            raise ValueError(
                f"expected settle_tokens{also} below one turn of a decoder (decode_tokens, {turn}), "
                f"got {self.settle_tokens}"
            )
        return self

    @property
    def turn_tokens(self) -> int:
        """Tokens of one turn of a decoder."""
        return DECODE_TOKENS if self.decode_tokens is None else self.decode_tokens

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads, each once, in the order of the table."""
        return loads_of(self.model_dump())

    @property
    def at_once(self) -> int:
        """Most requests that are open at one time."""
        return max(load.decoders + load.prompts for load in self.loads)

    @property
    def usual_warmup(self) -> Warmup:
        """As many at once as there will be; what the long prompt compiles comes with the tries of its length."""
        return Warmup(concurrency=tuple(sorted({1, self.at_once})), prompt_tokens=(_DECODE_PROMPT,))
