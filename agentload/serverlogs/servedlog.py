"""What do the readers of vLLM's and SGLang's logs have in common?

Line by line, with the time of each, the starts of the server, what it states of its settings, its statistics, its
suspect lines and its requests by the id that their answers have. Neither log has a slot or a task of a request.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agentload.core.packed import Packer, flat
from agentload.core.records import (
    Boot,
    DecodeBatches,
    LogFacts,
    LoggedRequest,
    Proof,
    Setting,
    Statistic,
    Steps,
    Timeline,
)
from agentload.serverlogs.doubts import MOST_SUSPECTS, Doubts
from agentload.serverlogs.lines import Kind, LineWalker
from agentload.serverlogs.localtime import SECOND_NS
from agentload.serverlogs.marks import Neighbours
from agentload.serverlogs.stamps import MIN_ERROR_NS
from agentload.serverlogs.statistics import Ranks, Statistics

_MS_NS: Final = 1_000_000
_WHY_BYTES: Final = 200
MOST_OPEN: Final = 20_000  # requests, 40 MB: where a log does not tell when they end, no more will come of the oldest
Value = str | int | float | bool


@dataclass(slots=True)
class Start:
    """One start of the server."""

    index: int
    first_line: int
    opened: set[str] = field(default_factory=set)  # kinds of first lines it had
    ready: Proof | None = None
    served: bool = False  # it has shown a request or statistics
    stated: dict[str, Value] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])  # as Steps has them
    batches: dict[int, list[int]] = field(default_factory=dict)  # rows -> steps, elapsed ns


class ServedLog:
    """The part of a reader that keeps what lines say."""

    name = ""

    def __init__(self, stamps: Sequence[int] | None) -> None:
        """`stamps[i]`: receive time (Unix ns) of line i."""
        self._walker = LineWalker(self._take, None, self._mark)
        self._stamps = stamps
        self._neighbours = Neighbours()
        self._doubts = Doubts()
        self._ranks = Ranks()
        self._statistics = Statistics(self._doubts)
        self._settings: list[Setting] = []
        self._asked: list[Setting] = []
        self._suspects: list[tuple[int, Proof, str]] = []
        self._done = Packer()
        # Not a dict: to find its first one it passes over all that were taken out before it, 14 us of a line's 49.
        self._open: OrderedDict[str, LoggedRequest] = OrderedDict()
        self._number, self._offset = 1, 0  # of the present line
        self._at: int | None = None  # time of the last line that has one
        self._starts = [Start(0, 1)]

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        self._walker.feed(data)

    def _take(self, number: int, offset: int, raw: bytes) -> Kind:
        raise NotImplementedError

    def _facts(self, *, counts_requests: bool) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        self._walker.close()
        self._end_requests()
        lines = self._walker.lines
        if self._stamps is not None and abs(len(self._stamps) - lines) > 1:  # a kill may tear the last one off
            self._doubts.add(
                "stamps-do-not-fit",
                min(lines, len(self._stamps)),
                f"there are {lines} lines and {len(self._stamps)} receive stamps",
                "the log was changed after it was received, or its stamps are of another log: times may be wrong",
            )
        received = self._stamps is not None
        return LogFacts(
            format=self.name,
            timeline=Timeline.UNIX if received else Timeline.WALL,
            resolution_ns=_MS_NS if received else SECOND_NS,
            clock_error_ns=MIN_ERROR_NS if received else None,
            size=self._walker.size,
            lines=self._walker.tally.count(),
            boots=tuple(Boot(one.index, one.first_line, one.ready) for one in self._starts),
            settings=tuple(self._settings),
            requests=self._done.close(),
            markers=self._neighbours.placed(self._walker.markers),
            suspects=tuple(self._suspects),
            doubts=self._doubts.all(),
            decode_batches=tuple(
                DecodeBatches(one.index, rows, steps, 0, elapsed_ns)
                for one in self._starts
                for rows, (steps, elapsed_ns) in sorted(one.batches.items())
            ),
            asked=tuple(self._asked),
            statistics=self._statistics.all(),
            steps=tuple(Steps(one.index, *one.counts) for one in self._starts if one.counts[0]),
            repeated=self._ranks.repeated,
            counts_requests=counts_requests,
        )

    # ---- where and when --------------------------------------------------------------------------------------------

    @property
    def _start(self) -> Start:
        return self._starts[-1]

    def _proof(self) -> Proof:
        return Proof(self._number, self._offset)

    def _mark(self, index: int) -> None:
        if self._stamps is None:
            self._neighbours.mark(index, self._at)

    def _time(self, stamped_ns: int | None) -> int | None:
        """Return the time of the present line: when it was received, else that of its stamp, if it has one."""
        if self._stamps is not None:
            if self._number > len(self._stamps):
                return self._at
            self._at = int(self._stamps[self._number - 1])  # it may be a numpy integer
            return self._at
        if stamped_ns is not None:
            self._at = stamped_ns
            if self._neighbours.waiting:
                self._neighbours.line(stamped_ns)
        return stamped_ns

    def _opens(self, kind: str) -> None:
        """Take a first line of a server's start: a new one if this kind has come, or the server has served."""
        start = self._start
        if kind in start.opened or start.served or start.ready is not None:
            self._end_requests()
            self._starts.append(Start(len(self._starts), self._number))
        self._start.opened.add(kind)

    def _is_ready(self) -> Kind:
        if self._start.ready is None:
            self._start.ready = self._proof()
        return Kind.UNDERSTOOD

    # ---- what lines say --------------------------------------------------------------------------------------------

    def _say(self, code: str, what: str, advice: str) -> None:
        self._doubts.add(code, self._number, what, advice)

    def _state(self, name: str, value: Value) -> None:
        """Keep a setting that is in force; said again it is no other one, and of two values the later one counts."""
        if self._start.stated.get(name) != value or name not in self._start.stated:
            self._start.stated[name] = value
            self._settings.append(Setting(name, value, self._start.index, self._proof()))

    def _ask(self, name: str, value: Value) -> None:
        if name not in self._start.asked:
            self._start.asked.add(name)
            self._asked.append(Setting(name, value, self._start.index, self._proof()))

    def _suspect(self, text: bytes, rank: bytes = b"") -> Kind:
        at = self._at or 0
        if self._ranks.repeats(text, at, rank):
            return self._tell_ranks()
        if len(self._suspects) >= MOST_SUSPECTS:
            self._doubts.left_out(self._number, f"suspect lines after the first {MOST_SUSPECTS}")
        else:
            self._suspects.append((at, self._proof(), text[:_WHY_BYTES].decode("utf-8", "replace")))
        return Kind.UNDERSTOOD

    def _statistic(
        self, kind: str, source: str, values: Sequence[tuple[str, float]], positions: tuple[float, ...] = ()
    ) -> Kind:
        self._start.served = True
        self._statistics.add(
            Statistic(self._start.index, self._at or 0, kind, source, tuple(values), self._proof(), positions)
        )
        return Kind.UNDERSTOOD

    def _tell_ranks(self) -> Kind:
        self._say(
            "repeated-by-ranks",
            "another rank of the server wrote this too: what several ranks say of one thing counts once",
            "nothing: the ranks of one engine do the same work, each a part of it",
        )
        return Kind.UNDERSTOOD

    # ---- requests --------------------------------------------------------------------------------------------------

    def _begin(self, rid: str, at: int | None) -> None:
        """A request came, unless it has."""
        self._start.served = True
        if rid not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._end(next(iter(self._open.values())))
            self._open[rid] = LoggedRequest(
                boot=self._start.index,
                label=rid,
                slot=None,
                prompt_tokens=None,
                cached_tokens=None,
                new_prefill_tokens=None,
                decoded_tokens=None,
                t_slot=None,
                prefill_start=None,
                prefill_end=None,
                decode_start=None,
                decode_end=None,
                t_end=None,
                prefill_ms=None,
                decode_ms=None,
                finish=None,
                proofs=() if at is None else (("t_arrived", self._proof()),),
                server_id=rid,
                t_arrived=at,
            )

    def _end(self, one: LoggedRequest) -> None:
        """A request ended: what is known of it is told."""
        self._open.pop(one.label, None)
        known = (one.t_arrived, one.t_end)
        self._done.add(next((at for at in known if at is not None), self._at or 0), flat(one))

    def _end_requests(self) -> None:
        """No more will be told of those that are open."""
        for one in list(self._open.values()):
            self._end(one)


def proven(one: LoggedRequest, proof: Proof, **fields: object) -> LoggedRequest:
    """Return a request with fields, each of which that line proves."""
    told = {name: value for name, value in fields.items() if value is not None}
    kept = tuple(pair for pair in one.proofs if pair[0] not in told)
    changes: dict[str, object] = {**told, "proofs": (*kept, *((name, proof) for name in told))}
    return replace(one, **changes)  # type: ignore[arg-type]  # names and values are the caller's
