"""Which requests of the log can an answer be, and how are all answers joined with them?

Of what the log tells apart it is asked one by one, of each group of requests that it does not as one thing
(`evidence.Together`); and only of what was at work near the answer's time. Answers that all fit the same and nothing
else can be joined in any way: no list of all their pairs is made, which of 4,000 equal requests would be 16 million.
"""

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from agentload.core.evidence import FINISH_SLACK_NS, Together, fit, told, work_times
from agentload.core.pairing import Group, Pairing, pair_up
from agentload.core.records import Completion, LoggedRequest

_Units = tuple[int, ...]


class _Times:
    """Which of many things began within a time?"""

    def __init__(self, begins: Iterable[tuple[int, int] | None]) -> None:
        """`begins` are, of each, the first and the last time at which a part of it did; None: not known."""
        self._always = array("q")
        known: list[tuple[int, int, int]] = []
        for index, each in enumerate(begins):
            if each is None:
                self._always.append(index)
            else:
                known.append((each[1], each[0], index))
        known.sort()
        self._last = array("q", (last for last, _, _ in known))
        self._first = array("q", (first for _, first, _ in known))
        self._index = array("q", (index for _, _, index in known))
        # The first of all that stand here or behind: where it is too late, so are they.
        self._least = array("q", accumulate(reversed(self._first), min))
        self._least.reverse()

    def near(self, from_ns: int, to_ns: int) -> list[int]:
        """Return those whose last part began at `from_ns` or after it and whose first one until `to_ns`, in order.

        Those whose times are not known are among them.
        """
        found = list(self._always)
        for at in range(bisect_left(self._last, from_ns), len(self._last)):
            if self._least[at] > to_ns:
                break
            if self._first[at] <= to_ns:
                found.append(self._index[at])
        return sorted(found)


class Candidates:
    """Requests of the log, and which of them an answer can be."""

    def __init__(self, requests: Sequence[LoggedRequest], error_ns: int | None) -> None:
        """`error_ns` of the log's clock beside the client's; None: its times tell nothing."""
        self.requests = requests
        self.groups: dict[str, list[int]] = {}  # of what the log does not tell apart, by its name there
        self._error_ns = error_ns
        self._alone: list[int] = []
        for index, one in enumerate(requests):
            if one.group is None:
                self._alone.append(index)
            else:
                self.groups.setdefault(one.group, []).append(index)
        # Units, by which all is numbered here: first those that stand alone, then the groups.
        self._members = list(self.groups.values())
        self._together = [Together([requests[index] for index in each]) for each in self._members]
        self._names = list(self.groups)
        self._times = _Times(self._begins())
        self._without_times: dict[object, _Units] = {}

    def _begins(self) -> Iterator[tuple[int, int] | None]:
        for index in self._alone:
            times = work_times(self.requests[index])
            yield (min(times), min(times)) if times else None
        for each in self._together:
            yield each.begins

    def _units(self, sent: Completion) -> _Units:
        """Return those that it fits."""
        error_ns = self._error_ns
        if error_ns is not None:
            near = self._times.near(sent.t_sent - error_ns, sent.t_done + error_ns + FINISH_SLACK_NS)
            return tuple(unit for unit in near if self._fits(sent, unit))
        calls = tuple(call.id for call in sent.tool_calls)
        asked = (sent.error is None, sent.timings, sent.server_id, calls, told(sent))  # all that `fit` looks at
        if asked not in self._without_times:
            every = range(len(self._alone) + len(self._together))
            self._without_times[asked] = tuple(unit for unit in every if self._fits(sent, unit))
        return self._without_times[asked]

    def _fits(self, sent: Completion, unit: int) -> bool:
        if unit < len(self._alone):
            return fit(sent, self.requests[self._alone[unit]], self._error_ns)
        return self._together[unit - len(self._alone)].fit(sent, self._error_ns)

    def _of(self, unit: int) -> Sequence[int]:
        return self._alone[unit : unit + 1] if unit < len(self._alone) else self._members[unit - len(self._alone)]

    def _likely(self, sent: Completion, right: int) -> bool:
        """Whether it fits that one by itself too; what stands alone was asked already."""
        one = self.requests[right]
        return one.group is None or fit(sent, one, self._error_ns)

    def alone(self, sent: Completion) -> list[int]:
        """Return the indices of those that it fits and that are in no group."""
        return [self._alone[unit] for unit in self._units(sent) if unit < len(self._alone)]

    def only_group(self, sent: Completion) -> str | None:
        """Return the name of the group that it fits; None when it fits none, or something else too."""
        units = self._units(sent)
        return self._names[units[0] - len(self._alone)] if len(units) == 1 and units[0] >= len(self._alone) else None

    def pair_up(self, sent: Sequence[Completion]) -> Pairing:
        """Join answers (left, in order of time) with requests (right); of a group the likeliest member first."""
        units = [self._units(one) for one in sent]
        wanted = Counter(unit for each in units for unit in each)
        alike: dict[_Units, list[int]] = defaultdict(list)
        for left, each in enumerate(units):
            alike[each].append(left)
        certain: list[tuple[int, int]] = []
        groups: list[Group] = []
        fits: list[list[int]] = [[] for _ in sent]
        for each, lefts in alike.items():
            if any(wanted[unit] > len(lefts) for unit in each):  # by others, that fit more or less
                for left in lefts:
                    fits[left] = self._in_order(sent[left], each)
            elif each:
                one = self._in_any_way(sent, lefts, each)
                if len(one.left) == len(one.right) == 1:
                    certain += one.pairs
                else:
                    groups.append(one)
        found = pair_up(fits, len(self.requests))
        return Pairing(
            tuple(sorted((*found.certain, *certain))),
            tuple(sorted((*found.groups, *groups), key=lambda group: group.left)),
        )

    def _in_order(self, sent: Completion, units: _Units) -> list[int]:
        found: list[int] = []
        for unit in units:
            found += sorted(self._of(unit), key=lambda right: not self._likely(sent, right))
        return found

    def _in_any_way(self, sent: Sequence[Completion], lefts: Sequence[int], units: _Units) -> Group:
        """Join answers that fit all of these units: each in turn has the first that is left in its order."""
        free = [list(self._of(unit)) for unit in reversed(units)]
        pairs = []
        for left in lefts:
            while free and not free[-1]:
                free.pop()
            if not free:
                break
            likely = (at for at, right in enumerate(free[-1]) if self._likely(sent[left], right))
            pairs.append((left, free[-1].pop(next(likely, 0))))
        rights = sorted(index for unit in units for index in self._of(unit))
        return Group(tuple(lefts), tuple(rights), tuple(pairs))
