"""What do a synthetic probe, three cold prompts at once and a chunked append take on the simulated server?

Each scenario is one of report A's, played on an otherwise idle server without noise: the profile's expected values.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from agentload.twin.agenda import SECOND_NS
from agentload.twin.events import EngineCall, Event, PrefillDone, Quantum, Request, TokenOut
from agentload.twin.options import Options
from agentload.twin.profile import Profile
from agentload.twin.server import Server
from agentload.twin.slots import Job, Run

_DECODER_PROMPT: Final = 100  # tokens of a session that only writes
_ENDLESS: Final = 100_000  # tokens it would write
_SETTLE_NS: Final = 2 * SECOND_NS  # the sessions write alone for so long, before the probe comes
_HOUR_NS: Final = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Probe:
    """What one or more probes took together."""

    tokens: int  # new ones of each
    took_s: tuple[float, ...]  # of each, from arrival to `prompt done`
    gap_s: float | None  # median time between two tokens of a neighbour meanwhile
    neighbour_tokens: int  # of all neighbours meanwhile
    calls: tuple[int, ...]  # engine calls of the first one, in order
    quanta: int  # of the first one
    exposed: float  # share of all quanta in which the mixed quantum applied

    @property
    def tok_s(self) -> float:
        """Speed of the first one."""
        return self.tokens / self.took_s[0]


def probe(
    profile: Profile,
    options: Options,
    *,
    tokens: int,
    start: int = 0,
    decoders: int = 0,
    prompts: int = 1,
) -> Probe:
    """Throw `prompts` of `tokens` new ones at a server where `decoders` sessions write.

    `start`: context position, left behind by an earlier request of the same conversation.
    """
    server = Server(options, profile, seed=0, start_ns=0, noise=False)
    for number in range(decoders):
        server.submit(Job(f"decoder{number}", (Run(f"decoder{number}", _DECODER_PROMPT),), _ENDLESS))
    waiting = {f"decoder{number}" for number in range(decoders)}
    _until(server, lambda event: isinstance(event, PrefillDone) and event.request in waiting, decoders)
    if start:  # after the sessions that write, which would else take its slot
        server.submit(Job("primer", (Run("history", start - 1),), 1))
        _until(server, lambda event: isinstance(event, Request) and event.request == "primer", 1)
    server.advance(server.now_ns + _SETTLE_NS)
    history = (Run("history", start - 1), Run("primer", 1)) if start else ()
    begin = server.now_ns
    for number in range(prompts):
        server.submit(Job(f"probe{number}", (*history, Run(f"new{number}", tokens)), 1))
    probes = {f"probe{number}" for number in range(prompts)}
    events = _until(server, lambda event: isinstance(event, PrefillDone) and event.request in probes, prompts)
    return _probe(events, tokens, begin)


def _until(server: Server, wanted: Callable[[Event], bool], times: int) -> list[Event]:
    """Let time pass until that has come out so often."""
    events: list[Event] = []
    left = times
    while left > 0:
        due = server.next_ns()
        assert due is not None
        assert due < _HOUR_NS * 24
        new = server.advance(due)
        left -= sum(map(wanted, new))
        events += new
    return events


def _probe(events: Iterable[Event], tokens: int, begin_ns: int) -> Probe:
    took: dict[str, float] = {}
    calls: list[int] = []
    quanta: list[Quantum] = []
    written: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, PrefillDone) and event.request.startswith("probe"):
            took[event.request] = (event.at_ns - begin_ns) / SECOND_NS
        elif isinstance(event, EngineCall) and event.request == "probe0":
            calls.append(event.tokens)
        elif isinstance(event, Quantum):
            quanta.append(event)
        elif isinstance(event, TokenOut) and not event.request.startswith("probe"):
            written.setdefault(event.request, []).append(event.at_ns)
    gaps = [after - before for stamps in written.values() for before, after in pairwise(stamps)]
    return Probe(
        tokens=tokens,
        took_s=tuple(took[name] for name in sorted(took)),
        gap_s=median(gaps) / SECOND_NS if gaps else None,
        neighbour_tokens=sum(map(len, written.values())),
        calls=tuple(calls),
        quanta=sum(one.request == "probe0" for one in quanta),
        exposed=sum(one.mixed for one in quanta) / len(quanta),
    )


def unloaded_decode_tok_s(profile: Profile, options: Options, rows: int, tokens: int = 400) -> float:
    """Return the decode speed of one of `rows` sessions while nothing prefills."""
    server = Server(options, profile, seed=0, start_ns=0, noise=False)
    for number in range(rows):
        server.submit(Job(f"d{number}", (Run(f"d{number}", _DECODER_PROMPT),), tokens))
    ended = [event for event in server.run() if isinstance(event, Request)]
    begin = max(one.prefill_end_ns or 0 for one in ended)
    last = max(ended, key=lambda one: one.decode_end_ns or 0)
    assert last.decode_end_ns is not None
    return tokens * SECOND_NS / (last.decode_end_ns - begin)
