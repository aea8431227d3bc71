"""Small worlds for tests of the simulated server: servers with round costs, and what came out of them."""

from collections.abc import Iterable
from typing import TypeVar

from agentload.twin import profile as profiles
from agentload.twin.events import Event
from agentload.twin.options import Options
from agentload.twin.profile import Profile, Value
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run

SECOND = 1_000_000_000
MS = 1_000_000
Of = TypeVar("Of", bound=Event)


def value(number: float) -> Value:
    return Value(value=number, kind="assumed", source="a round number for a test")


def round_profile(reacquire_p: float = 0.0, switch_s: float = 0.0, token_ms: float = 1.0) -> Profile:
    """1 ms a token however many there are, a decode step of 0.1 s (0.2 s after a quantum), no context, no noise.

    Between two tokens of a request the host takes 1 ms, and the end of an answer 2 ms.
    """
    plain = profiles.load("m3-ultra")
    curve = plain.prefill.per_token_ms.model_copy(update={"value": (1.0,) * len(plain.prefill.per_token_ms.value)})
    return plain.model_copy(
        update={
            "prefill": plain.prefill.model_copy(
                update={
                    "per_token_ms": curve,
                    "context_ms_per_token2": value(0),
                    "switch_s": value(switch_s),
                }
            ),
            "decode": plain.decode.model_copy(
                update={
                    "idle_s": value(0.1),
                    "idle_row_s": value(0),
                    "after_quantum_s": value(0.2),
                    "after_quantum_row_s": value(0),
                    "reacquire_p": value(reacquire_p),
                }
            ),
            "host": plain.host.model_copy(update={"token_ms": value(token_ms), "answer_end_ms": value(2)}),
            "noise": plain.noise.model_copy(update={"boot_sd": value(0), "call_sd": value(0)}),
        }
    )


def server(
    mixed_prefill_quantum: int = 100,
    prefill_quantum: int = 1000,
    batched_session: int = 3,
    *,
    reacquire_p: float = 0.0,
    switch_s: float = 0.0,
    token_ms: float = 1.0,
    kv_disk_dir: str | None = None,
    prefill_chunk: int | None = None,
    ctx: int = 262_144,
    batch_log: bool = False,
    kv_disk_space_mb: int = 4096,
) -> Server:
    """A server with round costs, ready at time 0."""
    options = Options(
        mixed_prefill_quantum=mixed_prefill_quantum,
        prefill_quantum=prefill_quantum,
        batched_session=batched_session,
        kv_disk_dir=kv_disk_dir,
        prefill_chunk=prefill_chunk,
        ctx=ctx,
        batch_log=batch_log,
        kv_disk_space_mb=kv_disk_space_mb,
    )
    return Server(options, round_profile(reacquire_p, switch_s, token_ms), seed=0, start_ns=0)


def job(name: str, tokens: int, output_tokens: int = 1, anchor_tokens: int | None = None) -> Job:
    """A request whose prompt nobody else has."""
    return Job(name, (Run(f"text of {name}", tokens),), output_tokens, anchor_tokens=anchor_tokens)


def after(job_before: Job, name: str, new_tokens: int, output_tokens: int = 1) -> Job:
    """The next request of a conversation: all that was said, word for word, and new text."""
    said = (*job_before.prompt, Run(job_before.written, job_before.output_tokens))
    return Job(name, (*said, Run(f"new in {name}", new_tokens)), output_tokens)


def only(kind: type[Of], events: Iterable[Event]) -> list[Of]:
    """Events of one kind."""
    return [event for event in events if isinstance(event, kind)]
