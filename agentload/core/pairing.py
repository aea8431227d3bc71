"""Which pairs are certain, when all that is known is what fits what?

Two sets, left and right, and a relation between them. The truth is taken to be a maximum matching: as many as can be
joined are joined. A pair is certain when it is in every maximum matching, and only then. What is left falls into
groups: the smallest sets of lefts and rights that every maximum matching joins among themselves, in more than one way.

This is the Dulmage-Mendelsohn decomposition (Dulmage and Mendelsohn 1958; Pothen and Fan 1990): with one maximum
matching at hand, whatever an alternating path reaches from an unmatched left or right can be exchanged, and of the
others exactly those that lie on an alternating cycle (a strongly connected set of pairs). Repeatedly taking away pairs
that have no other choice would not do: of two rights that fit the only left, it would join one and call it certain.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

Fits = Sequence[Sequence[int]]  # for each left, the rights that fit it, in the order of preference
_Step = Callable[[int], Iterable[int]]


@dataclass(frozen=True, slots=True)
class Group:
    """Lefts and rights that cannot be told apart; `pairs` is one way to join them, the first in order of preference."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Pairs (left, right) that are certain, and groups; whoever is in neither fits nobody."""

    certain: tuple[tuple[int, int], ...]
    groups: tuple[Group, ...]


class _Matching:
    """A matching that grows by augmenting paths; no recursion, so that its size is not limited by the stack."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self.right_of: dict[int, int] = {}
        self.left_of: dict[int, int] = {}

    def join(self, left: int, right: int) -> None:
        """Set one pair; neither may be in another."""
        self.right_of[left], self.left_of[right] = right, left

    def augment(self, left: int, allowed: AbstractSet[int], closed: set[int]) -> bool:
        """Match `left` too, through `allowed` rights, re-joining others if needed; False and no change if it cannot be.

        Breadth first: a free right that fits is taken before anyone is moved. No right in `closed` is gone through, and
        all that were gone through in vain are put there: as long as the same are allowed none of them leads to a free
        one ever again. Gone through by each of 1,800 lefts too many, 200 rights took 12 s.
        """
        came_from: dict[int, int] = {}
        todo = [left]
        for at in todo:
            for right in self._fits[at]:
                if right not in allowed or right in came_from or right in closed:
                    continue
                came_from[right] = at
                if right not in self.left_of:
                    self._flip(right, came_from)
                    return True
                todo.append(self.left_of[right])
        closed.update(came_from)
        return False

    def fill(self, lefts: Iterable[int], allowed: AbstractSet[int]) -> None:
        """Match each in turn that can be."""
        closed: set[int] = set()
        for left in lefts:
            self.augment(left, allowed, closed)

    def _flip(self, right: int, came_from: dict[int, int]) -> None:
        step: int | None = right
        while step is not None:
            left = came_from[step]
            before = self.right_of.get(left)
            self.join(left, step)
            step = before

    def prefer(self, left: int, right: int, allowed: AbstractSet[int], closed: set[int]) -> bool:
        """Move matched `left` to `right` if all stay matched, re-joining through `allowed` rights; else no change.

        What is in `closed` was gone through in vain for the same left: it leads to no right but those in there.
        """
        old, displaced = self.right_of[left], self.left_of.get(right)
        del self.left_of[old]
        self.join(left, right)
        if displaced is None:
            return True
        del self.right_of[displaced]
        closed.add(right)
        if self.augment(displaced, allowed, closed):
            return True
        self.join(displaced, right)
        self.join(left, old)
        return False


def _reach(start: Iterable[int], step: _Step, within: AbstractSet[int] | None = None) -> set[int]:
    seen = set(start)
    todo = list(seen)
    while todo:
        for found in step(todo.pop()):
            if found not in seen and (within is None or found in within):
                seen.add(found)
                todo.append(found)
    return seen


def _first_in_order(lefts: Sequence[int], rights: AbstractSet[int], fits: Fits) -> tuple[tuple[int, int], ...]:
    """Return the maximum matching in which each left in turn has the most preferred right that it can have.

    The lefts that go without are the last ones: augmenting never takes a left's place away.
    """
    matching = _Matching(fits)
    matching.fill(lefts, rights)
    allowed = set(rights)
    for left in sorted(matching.right_of):
        closed: set[int] = set()
        for right in fits[left]:
            if right == matching.right_of[left]:
                break
            if right in allowed and right not in closed and matching.prefer(left, right, allowed, closed):
                break
        allowed.discard(matching.right_of[left])
    return tuple(sorted(matching.right_of.items()))


def _components(members: set[int], out: Fits, back: Fits) -> list[tuple[set[int], set[int]]]:
    """Split `members` of one side by who shares a partner; return each part with its partners of the other side.

    A partner is walked through once, as the number -1 - index: two steps at a time took 2 s for 300 that all fit.
    """

    def step(at: int) -> Iterable[int]:
        return (-1 - other for other in out[at]) if at >= 0 else (one for one in back[-1 - at] if one in members)

    parts = []
    done: set[int] = set()
    for first in sorted(members):  # looking for the least of the rest each time took 22 s for 22,680 that fit nobody
        if first in done:
            continue
        reached = _reach([first], step)
        part = {at for at in reached if at >= 0}
        parts.append((part, {-1 - at for at in reached if at < 0}))
        done |= part
    return parts


def _cycles(members: AbstractSet[int], ahead: _Step) -> list[set[int]]:
    """Return the strongly connected sets among `members` (Tarjan 1972), without recursion.

    What a member reaches and is reached from, looked for member by member, took 7 s for 4,000 in a row.
    """
    number: dict[int, int] = {}  # in the order in which they were come to; of those in a set found: behind all others
    low: dict[int, int] = {}  # the least number that is reached, through what was come to from there
    stack: list[int] = []
    parts: list[set[int]] = []
    for root in members:
        path = [] if root in number else [(root, iter(ahead(root)))]
        while path:
            at, coming = path[-1]
            if at not in number:
                number[at] = low[at] = len(number)
                stack.append(at)
            for found in coming:
                if found in members and found not in number:
                    path.append((found, iter(ahead(found))))
                    break
                if found in members:
                    low[at] = min(low[at], number[found])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[at])
                if low[at] == number[at]:
                    part = {stack.pop()}
                    while at not in part:
                        part.add(stack.pop())
                    number |= dict.fromkeys(part, len(members))
                    parts.append(part)
    return parts


def pair_up(fits: Fits, rights: int) -> Pairing:
    """Decompose: `fits[i]` are the rights (0 .. rights - 1) that fit left i, the most preferred first."""
    whole = _Matching(fits)
    everyone = set(range(rights))
    whole.fill(range(len(fits)), everyone)
    back: list[list[int]] = [[] for _ in range(rights)]
    for left, found in enumerate(fits):
        for right in found:
            back[right].append(left)
    right_of, left_of = whole.right_of, whole.left_of

    # Who could give way to an unmatched left, or move to an unmatched right. Maximality: all reached are matched.
    short = _reach(set(range(len(fits))) - set(right_of), lambda at: (left_of[right] for right in fits[at]))
    spare = _reach(everyone - set(left_of), lambda at: (right_of[left] for left in back[at]))
    parts = _components(short, fits, back)
    parts += [(lefts, some) for some, lefts in _components(spare, back, fits)]

    # The others are all matched among themselves: those on a common alternating cycle can be exchanged.
    rest = {left for left, right in right_of.items() if left not in short and right not in spare}
    certain: list[tuple[int, int]] = []
    for cycle in _cycles(rest, lambda at: (left_of[k] for k in fits[at] if k in left_of)):
        if len(cycle) == 1:
            certain += [(left, right_of[left]) for left in cycle]
        else:
            parts.append((cycle, {right_of[left] for left in cycle}))
    groups = [
        Group(tuple(sorted(lefts)), tuple(sorted(some)), _first_in_order(sorted(lefts), some, fits))
        for lefts, some in parts
        if lefts and some
    ]
    return Pairing(tuple(sorted(certain)), tuple(sorted(groups, key=lambda group: group.left)))
