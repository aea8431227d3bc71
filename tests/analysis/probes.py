"""How does a test make a probe's segment: by hand, or with the times that the simulated server knows to be true?"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from agentload.core.records import Completion, Request, Segment, Source, Usage
from agentload.twin import profile
from agentload.twin.events import Event, PrefillDone, TokenOut
from agentload.twin.events import Request as Truth
from agentload.twin.options import Options
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run
from tests.analysis.test_tables import request

S: Final = 1_000_000_000
SETTLE_S: Final = 4
PUBLISHED_TOKENS: Final = 24_676
_TURN: Final = 1_000  # tokens of a decoder: more than it writes in the longest prefill


def part(name: str) -> Segment:
    """A segment of run r that holds everything."""
    return Segment(name, "r", "default", 0, 10**18)


def row(name: str, agent: str, segment: str, **known: Any) -> Request:
    """A joined request of a segment; the log has its times."""
    sources = {"prefill_source": Source.LOG, "decode_source": Source.LOG}
    return request(
        **{"request": f"{segment}-{name}", "agent": agent, "segment": segment, "turn": 0, **sources, **known}
    )


def completion(name: str, stamps: Sequence[int], tokens: int | None) -> Completion:
    """What the client saw of an answer: when its tokens came."""
    usage = Usage(None, tokens)
    first = stamps[0] if stamps else None
    done = stamps[-1] if stamps else 0
    return Completion(name, "", 0, 0, first, first, done, 200, usage=usage, token_ns=tuple(stamps))


def played(
    quantum: int, *, decoders: int, prompts: int = 1, tokens: int = PUBLISHED_TOKENS, repeat: int = 1
) -> tuple[list[Request], Segment, dict[str, Completion]]:
    """Throw cold prompts at the simulated server while sessions write (profile m3-ultra); all from its truth."""
    server = Server(Options(mixed_prefill_quantum=quantum), profile.load("m3-ultra"), seed=0, start_ns=0, noise=False)
    segment = part(f"d{decoders}" + (f"k{prompts}" if prompts > 1 else "") + f"-r{repeat}")
    writing = {f"d{number}": 0 for number in range(decoders)}
    for name in writing:
        server.submit(Job(name, (Run(name, 100),), _TURN))
    events = _until(server, lambda one: isinstance(one, PrefillDone) and one.request in writing, decoders)
    events += server.advance(server.now_ns + SETTLE_S * S)
    thrown = server.now_ns
    sent = {**writing, **{f"p{number}": thrown for number in range(prompts)}}
    for number in range(prompts):
        server.submit(Job(f"p{number}", (Run(f"new{number}", tokens),), 1))
    events += server.run()
    truths = {one.request: one for one in events if isinstance(one, Truth)}
    stamps: dict[str, list[int]] = {name: [] for name in sent}
    for one in events:
        if isinstance(one, TokenOut):
            stamps[one.request].append(one.at_ns)
    rows = [_row(name, truths[name], segment.segment, sent[name]) for name in sent]
    answers = {
        f"{segment.segment}-{name}": completion(f"{segment.segment}-{name}", stamps[name], truths[name].decoded_tokens)
        for name in sent
    }
    return rows, segment, answers


def _until(server: Server, wanted: Callable[[Event], bool], times: int) -> list[Event]:
    events: list[Event] = []
    while times > 0:
        due = server.next_ns()
        assert due is not None
        new = server.advance(due)
        times -= sum(map(wanted, new))
        events += new
    return events


def _row(name: str, truth: Truth, segment: str, sent_ns: int) -> Request:
    return row(
        name,
        name,
        segment,
        t_sent=sent_ns,
        t_first_token=truth.prefill_end_ns,
        prefill_start=truth.prefill_start_ns,
        prefill_end=truth.prefill_end_ns,
        decode_start=truth.prefill_end_ns,
        decode_end=truth.decode_end_ns,
        prompt_tokens=truth.prompt_tokens,
        cached_tokens=truth.cached_tokens,
        new_prefill_tokens=truth.new_prefill_tokens,
        decoded_tokens=truth.decoded_tokens,
        usage_prompt_tokens=truth.prompt_tokens,
        usage_completion_tokens=truth.decoded_tokens,
    )


def without_log(rows: Sequence[Request]) -> list[Request]:
    """The same requests where no log and no answer tells times: the client's own."""
    return [
        replace(
            one,
            prefill_start=one.t_sent,
            prefill_end=one.t_first_token,
            decode_start=one.t_first_token,
            prefill_source=Source.CLIENT,
            decode_source=Source.CLIENT,
        )
        for one in rows
    ]
