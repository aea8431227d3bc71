"""Which open requests of ds4-server, equal by the integers of a line, are looked at when it comes?

The oldest, and no more of them than any server has sessions: were each line held against all, 4,000 requests of one
prompt in one second would take 9 s.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice, takewhile
from operator import itemgetter
from typing import Final, Generic, TypeVar

from agentload.serverlogs.ds4_clock import SECOND_NS
from agentload.serverlogs.ds4_request import DECODE_PARTS, Open

_MOST_COMPARED: Final = 64
_NEAR_NS: Final = 4 * SECOND_NS  # what puts two beginnings so far apart is not of one request: more than twice over

_Key = TypeVar("_Key")


def first(found: Iterable[Open]) -> list[Open]:
    """Return the first `_MOST_COMPARED` that have not gone; where all have, the first of those."""
    here: list[Open] = []
    gone: list[Open] = []
    for one in found:
        (gone if one.gone else here).append(one)
        if len(here) == _MOST_COMPARED:
            break
    return here or gone[:_MOST_COMPARED]


def swapped(groups: dict[int, list[Open]], same: Iterable[Open], gen: int) -> list[Open]:
    """Decode lines name no cached tokens: give a member of a group those that another one was given; return both."""
    looked_through: set[tuple[int, int]] = set()  # groups, each for one beginning of decode
    for one in same:
        if one.group is None or (one.group, one.base) in looked_through:
            continue
        for other in groups.get(one.group, ()):
            if other.finish is None and (other.base, other.gen) == (one.base, gen):
                mine = one.parts(DECODE_PARTS)
                one.take_parts(DECODE_PARTS, other.parts(DECODE_PARTS))
                other.take_parts(DECODE_PARTS, mine)
                return [one, other]
        looked_through.add((one.group, one.base))
    return []


_State = tuple[bool, int, int]  # whether its prompt is done; tokens generated; if not done, those of its last chunk
Wanted = Callable[[Open], bool]  # by nothing but these


def _state(one: Open) -> _State | None:
    if one.first_decode is not None:  # in its second pass it is asked for by itself: another count matters too
        return None
    done = one.done_ns is not None
    return done, one.gen, 0 if done else -1 if one.chunked is None else one.chunk


def wanted_of(ones: Iterable[Open], wanted: Wanted) -> Iterator[Open]:
    """Return the wanted ones, in their order."""
    return filter(wanted, ones)


def is_done(one: Open) -> bool:
    """Whether it has its `prompt done`."""
    return one.done_ns is not None


def is_not_done(one: Open) -> bool:
    """Whether it has not."""
    return one.done_ns is None


def _least(place: tuple[int, Open]) -> int:
    return place[1].begin.least


class _Shelves:
    """Very many requests of one key by their states, each in the order in which they came."""

    def __init__(self, ones: Iterable[Open]) -> None:
        self._shelves: dict[_State | None, list[tuple[int, Open]]] = {}
        self._places: dict[int, tuple[int, _State | None]] = {}  # by its number: when it came, and where it stands
        self._came = 0
        for one in ones:
            self.add(one)

    def add(self, one: Open) -> None:
        self._came += 1
        self._put(one, self._came)

    def _put(self, one: Open, came: int) -> None:
        state = _state(one)
        self._places[one.number] = came, state
        insort(self._shelves.setdefault(state, []), (came, one), key=itemgetter(0))

    def take(self, one: Open) -> int:
        came, state = self._places.pop(one.number)
        shelf = self._shelves[state]
        del shelf[bisect_left(shelf, came, key=itemgetter(0))]
        if not shelf:
            del self._shelves[state]
        return came

    def moved(self, one: Open) -> None:
        if self._places[one.number][1] != _state(one):
            self._put(one, self.take(one))

    def those(self, wanted: Wanted) -> Iterator[Open]:
        found = [shelf for state, shelf in self._shelves.items() if state is None or wanted(shelf[0][1])]
        return (one for _, one in merge(*found, key=itemgetter(0)) if wanted(one))

    def near(self, wanted: Wanted, begun: int) -> Iterator[Open]:
        found = [
            takewhile(
                lambda place: _least(place) <= begun + _NEAR_NS,
                islice(shelf, bisect_left(shelf, begun - _NEAR_NS, key=_least), None),
            )
            for state, shelf in self._shelves.items()
            if state is None or wanted(shelf[0][1])
        ]
        return (one for _, one in merge(*found, key=itemgetter(0)) if wanted(one))


class Index(Generic[_Key]):
    """Open requests by a key that lines name."""

    def __init__(self) -> None:
        self.of: dict[_Key, list[Open]] = {}  # in the order in which they came; none is empty
        self._shelves: dict[_Key, _Shelves] = {}  # of keys of very many

    def add(self, key: _Key, one: Open) -> None:
        """Put a request in."""
        same = self.of.setdefault(key, [])
        same.append(one)
        if key in self._shelves:
            self._shelves[key].add(one)
        elif len(same) > _MOST_COMPARED:
            self._shelves[key] = _Shelves(same)

    def drop(self, key: _Key, one: Open) -> None:
        """Take a request out; a key without requests goes."""
        same = self.of[key]
        same.remove(one)
        if not same:
            del self.of[key]
        if key in self._shelves:
            self._shelves[key].take(one)
            if len(same) <= _MOST_COMPARED // 2:  # long before one is alone, of which nobody says that it moved
                del self._shelves[key]

    def moved(self, key: _Key, one: Open) -> None:
        """Say that a request has another state; of one that is alone under its key nobody need."""
        if key in self._shelves:
            self._shelves[key].moved(one)

    def those(self, key: _Key, wanted: Wanted) -> Iterator[Open]:
        """Return the wanted requests under a key, in the order in which they came.

        Of very many only those states are gone through that are: with all skipped that a line does not mean, 16,000 of
        one prompt in one second took 30 s.
        """
        shelves = self._shelves.get(key)
        return wanted_of(self.of.get(key, ()), wanted) if shelves is None else shelves.those(wanted)

    def near(self, key: _Key, wanted: Wanted, begun: int) -> Iterator[Open]:
        """Return the wanted ones, of very many only some: those whose beginnings are in order, and near a time."""
        shelves = self._shelves.get(key)
        return self.those(key, wanted) if shelves is None else shelves.near(wanted, begun)


class Indices:
    """Open requests by what lines name of them."""

    def __init__(self) -> None:
        self.base = Index[int]()  # where their decode began
        self.ctx = Index[bytes]()  # their span, where it is known
        self._passed = False  # one began its second pass: elsewhere than where its prompt ends

    def add(self, one: Open) -> None:
        """Put a request in."""
        self.base.add(one.base, one)
        if one.ctx is not None:
            self.ctx.add(one.ctx, one)

    def drop(self, one: Open) -> None:
        """Take a request out."""
        self.base.drop(one.base, one)
        if one.ctx is not None:
            self.ctx.drop(one.ctx, one)

    def moved(self, one: Open) -> None:
        """Say that a request has another state."""
        self.base.moved(one.base, one)
        if one.ctx is not None:
            self.ctx.moved(one.ctx, one)

    def passed(self, one: Open) -> None:
        """Say that a request, which was taken from where it was, begins its second pass at its new base."""
        self.base.add(one.base, one)
        self.moved(one)
        self._passed = True

    def swapped(self, groups: dict[int, list[Open]], same: Iterable[Open], base: int, gen: int) -> list[Open]:
        """Return what `swapped` does, of requests whose prompts end at `base`; none has those lines: none is asked."""
        if not self._passed and not any(self.base.those(base, lambda one: one.gen == gen)):
            return []
        both = swapped(groups, same, gen)
        for one in both:
            self.moved(one)
        return both[:1]
