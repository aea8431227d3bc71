"""What does a ds4-server's log tell of single engine calls and decode steps?

The model does one thing at a time, so the time between two lines of one request's prefill is an engine call, and, while
others decode, one decode step before it where a quantum begins. What cannot be told apart is left out and counted: two
prompts at work at once, a change of who decodes meanwhile, the disk cache at work, two requests with the same integers.
Times are the lines' own durations, with a resolution of 1 ms; when others were at work is from the requests' phases.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from agentload.core.records import LogFacts, LoggedRequest
from agentload.serverlogs.ds4_grammar import BATCH, CHUNK, DECODE, DONE, SERVER, START

_MS_NS: Final = 1_000_000
_STAMP_BYTES: Final = 14  # and the space
_PREFILL: Final = b"prefill"
_FEWEST_TOKENS: Final = 32  # of a call: below, 1 ms of resolution is more than 2 % of it
_FEWEST_DECODED: Final = 20  # of an interval between two decode lines, likewise


@dataclass(frozen=True, slots=True)
class Call:
    """One engine call over new tokens, with a decode step of `rows` requests in it unless that is 0."""

    position_tokens: int
    tokens: int
    rows: int
    ms: float


@dataclass(frozen=True, slots=True)
class Step:
    """Decode steps of `rows` requests, `ms` each."""

    rows: int
    steps: int
    ms: float
    after_quantum: bool


@dataclass(slots=True)
class CostLines:
    """All that could be told, and how often what could not."""

    calls: list[Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)  # as the decode lines have them: what the server does beside, too
    batches: list[Step] = field(default_factory=list)  # as DS4_SERVER_BATCH_LOG=1 tells them
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Told:
    """The lines of one request: (tokens so far, ms since its start)."""

    key: tuple[int, int]
    chunks: list[tuple[int, int]] = field(default_factory=list)
    decoded: list[tuple[int, int]] = field(default_factory=list)


def read(lines: Iterable[bytes], facts: LogFacts, quantum: int, mixed_quantum: int, cap: int) -> CostLines:
    """Return the calls and steps of a log.

    Args:
        lines: of the log, without their newlines.
        facts: what the reader made of the same log.
        quantum: of prefill while nobody decodes.
        mixed_quantum: while somebody does.
        cap: most tokens of an engine call, which ends at its multiples.
    """
    found = CostLines()
    collector = _Collector(found)
    for line in lines:
        collector.take(line)
    phases = _Phases(facts.requests, [one.at for one in facts.cache_events if one.kind in ("stored", "hit")])
    by_key: dict[tuple[int, int], list[LoggedRequest]] = defaultdict(list)
    for one in facts.requests:
        if one.cached_tokens is not None and one.prompt_tokens is not None:
            by_key[one.cached_tokens, one.prompt_tokens].append(one)
    for lines_of in collector.told:
        same = by_key[lines_of.key]
        if len(same) != 1 or same[0].prefill_start is None:
            found.left_out["requests with the integers of another one"] += 1
            continue
        _calls(found, lines_of, same[0], phases, (quantum, mixed_quantum, cap))
        _steps(found, lines_of, same[0], phases)
    return found


class _Collector:
    """Sorts lines by the request that they are of, and batch lines by what came before them."""

    def __init__(self, found: CostLines) -> None:
        self._found = found
        self.told: list[_Told] = []
        self._by_head: dict[bytes, _Told] = {}
        self._by_prompt: dict[int, _Told] = {}
        self._silent: set[int] = set()  # cold prompts without a line yet: a quantum of theirs may end without one
        self._after_quantum = False

    def take(self, line: bytes) -> None:
        """Take the next line."""
        if match := CHUNK.fullmatch(line):
            one = self._by_head.get(match[2])
            if one is not None and match[3] == _PREFILL:
                # The first line of a request stands at a quantum's beginning, the others at the end of a call.
                self._after_quantum = self._after_quantum or bool(one.chunks)
                self._silent.discard(id(one))
                one.chunks.append((int(match[4]), int(match[6]) * 1000 + int(match[7])))
        elif match := DECODE.fullmatch(line):
            one = self._by_prompt.get(int(match[3]) - int(match[5]))
            if one is not None:
                one.decoded.append((int(match[5]), int(match[6]) * 1000 + int(match[7])))
        elif match := BATCH.fullmatch(line):
            self._batch(int(match[1]), int(match[2]) + int(match[3]) / 1000)
        elif line[_STAMP_BYTES:].startswith(SERVER):
            self._text(line[_STAMP_BYTES + len(SERVER) :])

    def _batch(self, rows: int, ms: float) -> None:
        if self._silent:
            self._found.left_out["batch lines while a cold prompt has no line yet"] += 1
        else:
            self._found.batches.append(Step(rows, 1, ms, self._after_quantum))
        self._after_quantum = False

    def _text(self, text: bytes) -> None:
        if match := START.fullmatch(text):
            cached, _, rest = match[1].partition(b"..")
            one = _Told((int(cached), int(rest.partition(b":")[0])))
            self.told.append(one)
            self._by_head[match[1]] = self._by_prompt[one.key[1]] = one
            if one.key[0] == 0:
                self._silent.add(id(one))
        elif match := DONE.fullmatch(text):
            self._after_quantum = True
            self._silent.discard(id(self._by_head.get(match[1])))


class _Phases:
    """Who was at work when?"""

    def __init__(self, requests: Iterable[LoggedRequest], disk_ns: Sequence[int]) -> None:
        self._prefills, self._decodes = [], []
        for one in requests:
            if one.prefill_start is not None and one.prefill_end is not None:
                self._prefills.append((one.prefill_start, one.prefill_end))
            if one.decode_start is not None and one.decode_end is not None:
                self._decodes.append((one.decode_start, one.decode_end))
        self._disk_ns = disk_ns

    def prefills(self, begin: int, end: int) -> int:
        """How many requests prefill at some time in between."""
        return sum(start < end and begin < stop for start, stop in self._prefills)

    def decoding(self, begin: int, end: int) -> int | None:
        """How many decode all the time; None when that changes in between."""
        touched = [(start, stop) for start, stop in self._decodes if start < end and begin < stop]
        return len(touched) if all(start <= begin and end <= stop for start, stop in touched) else None

    def disk(self, begin: int, end: int) -> bool:
        """Whether the disk cache was at work."""
        return any(begin <= at <= end for at in self._disk_ns)


def _calls(found: CostLines, told: _Told, request: LoggedRequest, phases: _Phases, sizes: tuple[int, int, int]) -> None:
    quantum, mixed_quantum, cap = sizes
    assert request.prefill_start is not None
    for number, (before, after) in enumerate(pairwise(told.chunks)):
        tokens, position = after[0] - before[0], told.key[0] + before[0]
        begin, end = (request.prefill_start + ms * _MS_NS for ms in (before[1], after[1]))
        rows = phases.decoding(begin, end)
        # The first line of all stands at a quantum's beginning; a call from a multiple of the cap may be the second of
        # its quantum: then no decode step came before it.
        rest = position % cap == 0 and tokens < (mixed_quantum if rows else quantum)
        if tokens < _FEWEST_TOKENS:
            found.left_out[f"calls of less than {_FEWEST_TOKENS} tokens"] += 1
        elif phases.prefills(begin, end) > 1:
            found.left_out["calls while two prompts or more prefill"] += 1
        elif rows is None:
            found.left_out["calls while the number that decode changes"] += 1
        elif phases.disk(begin, end):
            found.left_out["calls while the disk cache works"] += 1
        elif rows and rest and number > 0:
            found.left_out["calls that may or may not have a decode step before them"] += 1
        else:
            found.calls.append(Call(position, tokens, 0 if number == 0 else rows, float(after[1] - before[1])))


def _steps(found: CostLines, told: _Told, request: LoggedRequest, phases: _Phases) -> None:
    if request.decode_start is None:
        return
    for before, after in pairwise([(0, 0), *told.decoded]):
        steps = after[0] - before[0]
        begin, end = (request.decode_start + ms * _MS_NS for ms in (before[1], after[1]))
        rows = phases.decoding(begin, end)
        if steps < _FEWEST_DECODED:
            found.left_out[f"decode lines of less than {_FEWEST_DECODED} tokens"] += 1
        elif phases.prefills(begin, end):
            found.left_out["decode lines while somebody prefills"] += 1
        elif not rows:
            found.left_out["decode lines while the number that decode changes"] += 1
        else:
            found.steps.append(Step(rows, steps, (after[1] - before[1]) / steps, after_quantum=False))
