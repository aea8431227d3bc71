"""What do the readers of vLLM's and SGLang's logs have in common?

Line by line, with the time of each, the starts of the server, what it states of its settings, its statistics, its
suspect lines and its requests by the id that their answers have. Neither log has a slot or a task of a request.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentload.core.packed import NAMES, Flat, Packer, came, told
from agentload.core.packed_statistics import StatisticsPacker
from agentload.core.records import (
    Boot,
    DecodeBatches,
    LogFacts,
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
from agentload.serverlogs.statistics import Ranks

_MS_NS: Final = 1_000_000
_WHY_BYTES: Final = 200
MOST_OPEN: Final = 20_000  # requests, 10 MB: where a log does not tell when they end, no more will come of the oldest
Value = str | int | float | bool
# Places of values in an open request.
LABEL, ARRIVED, ENDED, FINISH = (NAMES.index(name) for name in ("label", "t_arrived", "t_end", "finish"))


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
        self._statistics = StatisticsPacker()
        self._settings: list[Setting] = []
        self._asked: list[Setting] = []
        self._suspects: list[tuple[int, Proof, str]] = []
        self._done = Packer()
        # Not a dict: to find its first one it passes over all that were taken out before it, 14 us of a line's 49.
        self._open: OrderedDict[str, Flat] = OrderedDict()
        self._number, self._offset = 1, 0  # of the present line
        self._at: int | None = None  # time of the last line that has one
        self._start = Start(0, 1)
        self._starts = [self._start]

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        self._walker.feed(data)

    def _take(self, number: int, offset: int, raw: bytes) -> Kind:
        raise NotImplementedError

    def _facts(self, *, counts_requests: bool) -> LogFacts:
        """Say that the log has ended, and return what it told."""
        self._walker.close()
        self._end_requests()
        self._doubts.compare(self._walker.lines, self._stamps)
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
            statistics=self._statistics.close(),
            steps=tuple(Steps(one.index, *one.counts) for one in self._starts if one.counts[0]),
            repeated=self._ranks.repeated,
            counts_requests=counts_requests,
        )

    # ---- where and when --------------------------------------------------------------------------------------------

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
            self._start = Start(len(self._starts), self._number)
            self._starts.append(self._start)
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
            self._doubts.left_out(self._number, "suspect lines", MOST_SUSPECTS)
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
                self._end(self._open.popitem(last=False)[1])
            self._open[rid] = came(self._start.index, rid, at, (self._number, self._offset))

    def _tell(self, rid: str, fields: Mapping[str, object]) -> None:
        """The present line tells so much of a request that is open."""
        self._open[rid] = told(self._open[rid], (self._number, self._offset), fields)

    def _end(self, one: Flat) -> None:
        """A request that is open no more ended: what is known of it is told."""
        at = one[ENDED] if one[ARRIVED] is None else one[ARRIVED]
        self._done.add(self._at or 0 if at is None else at, one)

    def _end_requests(self) -> None:
        """No more will be told of those that are open."""
        for one in self._open.values():
            self._end(one)
        self._open.clear()
