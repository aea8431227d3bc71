"""How long was something going on, when many things went on at once?

Sets of half-open intervals [start, end) in integer nanoseconds. Everything rests on one sweep: sort the starts and the
ends independently of each other. At time t, (starts <= t) minus (ends <= t) intervals are open, whichever end belongs
to whichever start, so t is covered at least k times exactly when it lies in [S[i], E[i - k + 1]) for some i of the
sorted arrays. k = 1 is the union, k = 2 of two sets that are each disjoint is their intersection. Two plain sorts and
no argsort keep the union of 10 million intervals near the cost of sorting them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

_BLOCK = 1 << 16  # 512 KiB of each array; 2^13 to 2^17 measured, this was the quickest


def _exact_sum(values: npt.NDArray[np.uint64]) -> int:
    """Sum without wrapping: 10 million intervals of one hour are 3.6e19 ns, more than int64 holds."""
    high = int((values >> np.uint64(32)).sum())
    low = int((values & np.uint64(0xFFFF_FFFF)).sum())
    return (high << 32) + low


def _checked(values: Times, name: str) -> Times:
    """Return a read-only view; floats are refused because they cannot hold Unix nanoseconds exactly."""
    if values.ndim != 1 or values.dtype != np.int64:
        raise ValueError(
            f"expected {name} as a one-dimensional int64 array, got {values.dtype} of shape {values.shape}"
        )
    view = values.view()
    view.flags.writeable = False
    return view


def _join_in_place(starts: Times, ends: Times) -> int:
    """Join pairs of two sorted arrays that touch or overlap, leave out empty ones; return how many pieces are in front.

    Works through blocks that fit the cache and writes back into the arrays: at 10 million intervals, whole-array passes
    and fresh arrays cost as much as a third sort.
    """
    pieces = 0
    for low in range(0, starts.size, _BLOCK):
        begin, end = starts[low : low + _BLOCK], ends[low : low + _BLOCK]
        covered = begin < end
        if not covered.all():
            begin, end = begin[covered], end[covered]
        if begin.size == 0:
            continue
        opens = np.empty(begin.size, dtype=np.bool_)
        opens[0] = pieces == 0 or begin[0] > ends[pieces - 1]
        np.greater(begin[1:], end[:-1], out=opens[1:])  # equal means touching: no gap
        first = np.flatnonzero(opens)
        last = np.append(first, begin.size) - 1  # what closes just before each opening, and at the block's end
        if last[0] >= 0:  # the block begins inside the piece before it
            ends[pieces - 1] = end[last[0]]
        starts[pieces : pieces + first.size] = begin[first]
        ends[pieces : pieces + first.size] = end[last[1:]]
        pieces += first.size
    return pieces


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals [starts[i], ends[i]) in ns, in any order; they may overlap, and an empty one counts for nothing.

    Both arrays are int64 of shape (n,). They are not copied: do not write into them afterwards.
    The set operations (`union`, `at_least`, `intersection`, `difference`) return intervals that are sorted, non-empty,
    disjoint and do not touch.

    Raises:
        ValueError: shapes or dtypes differ from that, or an interval ends before it starts.
    """

    starts: Times
    ends: Times

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", _checked(self.starts, "starts"))
        object.__setattr__(self, "ends", _checked(self.ends, "ends"))
        if self.starts.shape != self.ends.shape:
            raise ValueError(
                f"expected as many ends as starts, got {self.starts.size} starts and {self.ends.size} ends"
            )
        wrong = self.starts > self.ends
        if wrong.any():
            at = int(wrong.argmax())
            raise ValueError(f"expected start <= end, got [{self.starts[at]}, {self.ends[at]}) at index {at}")

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "Intervals":
        """Make intervals from (start, end) pairs of ns."""
        table = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return self.starts.size

    def pairs(self) -> list[tuple[int, int]]:
        """Return them as (start, end) pairs of plain integers, in their present order."""
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))

    def summed_ns(self) -> int:
        """Sum of the durations: overlapped time counts once for each interval. Exact at any size."""
        # end - start of an extreme pair exceeds int64 but never uint64: the wrapped bits are the right ones.
        return _exact_sum((self.ends - self.starts).view(np.uint64))

    def measure_ns(self) -> int:
        """Length of the union: overlapped time counts once."""
        return self.union().summed_ns()

    def union(self) -> "Intervals":
        """Return the time that at least one interval covers; intervals that touch become one."""
        return self.at_least(1)

    def at_least(self, times: int) -> "Intervals":
        """Return the time that `times` or more intervals cover.

        Raises:
            ValueError: `times` is less than 1.
        """
        if times < 1:
            raise ValueError(f"expected a coverage of at least 1, got {times}")
        pairs = max(0, len(self) - times + 1)
        starts = np.sort(self.starts)[len(self) - pairs :]
        ends = np.sort(self.ends)[:pairs]
        pieces = _join_in_place(starts, ends)
        starts, ends = starts[:pieces], ends[:pieces]
        if 8 * pieces < len(self):  # a short result must not keep the long scratch arrays alive
            starts, ends = starts.copy(), ends.copy()
        return Intervals(starts, ends)

    def together(self, other: "Intervals") -> "Intervals":
        """Return the intervals of both, kept apart (no union is taken)."""
        return Intervals(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    def intersection(self, other: "Intervals") -> "Intervals":
        """Return the time that both cover."""
        return self.union().together(other.union()).at_least(2)

    def difference(self, other: "Intervals") -> "Intervals":
        """Return the time that these cover and `other` does not."""
        mine = self.union()
        if len(mine) == 0 or len(other) == 0:
            return mine
        low, high = mine.starts[:1], mine.ends[-1:]
        taken = other.clip(int(low[0]), int(high[0])).union()
        # What `taken` leaves free between low and high; a gap of no length at either side is harmless.
        free = Intervals(np.concatenate((low, taken.ends)), np.concatenate((taken.starts, high)))
        return mine.intersection(free)

    def clip(self, begin: int, end: int) -> "Intervals":
        """Cut every interval to the window [begin, end) and leave out what is empty then; the order stays.

        Raises:
            ValueError: the window ends before it begins.
        """
        if begin > end:
            raise ValueError(f"expected a window with begin <= end, got [{begin}, {end})")
        starts, ends = np.clip(self.starts, begin, end), np.clip(self.ends, begin, end)
        inside = starts < ends
        return Intervals(starts[inside], ends[inside])
