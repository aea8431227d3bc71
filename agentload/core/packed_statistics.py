"""How are the statistics lines of a log of any size held in memory?

As requests are (`core.packed`): few as objects of 600 bytes, many as blocks of columns. All of them are there, for a
sum over a part of the log can be of no fewer, and which parts there are is known when the log has been read.
"""

import marshal
import zlib
from array import array
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, overload

from agentload.core.packed import Blocks, Flat, Mapped, Packing, thick, thin
from agentload.core.records import Proof, Statistic

FEW: Final = 20_000  # so many come back as objects: 12 MB

_LINE: Final = attrgetter("proof.line")
_NUMBERS: Final = attrgetter("boot", "at", "proof.line", "proof.offset")


class PackedStatistics(Blocks[Statistic]):
    """Packed statistics, in the order of the log. A slice of them is packed, too."""

    def __init__(self, blocks: Sequence[bytes], lines: "array[int]", order: range) -> None:
        """`lines[i]` is the line of item i; it stands at `order[i]` of all blocks."""
        super().__init__(blocks, order, _unpack, _whole)
        self.lines = lines
        self._places = order

    @overload
    def __getitem__(self, index: int) -> Statistic: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Statistic]: ...
    def __getitem__(self, index: int | slice) -> Statistic | Sequence[Statistic]:
        if isinstance(index, slice):
            return PackedStatistics(self._blocks, self.lines[index], self._places[index])
        return super().__getitem__(index)


class StatisticsPacker:
    """Takes statistics in the order of the log."""

    def __init__(self, few: int = FEW) -> None:
        """So `few` come back as objects."""
        self._rows = Packing(_pack, few)  # by their lines

    def add(self, one: Statistic) -> None:
        """Add one."""
        self._rows.add(one.proof.line, one)

    def close(self) -> Sequence[Statistic]:
        """Return all of them: a tuple, or packed."""
        rows = self._rows
        if rows.are_few:
            return tuple(rows.open)
        return PackedStatistics(rows.packed(), rows.keys, range(len(rows.keys)))


def pack(statistics: Iterable[Statistic], few: int = FEW) -> Sequence[Statistic]:
    """Return them in their order: as a tuple, or packed if they are more than `few`."""
    packer = StatisticsPacker(few)
    for one in statistics:
        packer.add(one)
    return packer.close()


def lines_of(statistics: Sequence[Statistic]) -> Sequence[int]:
    """Return the line of each; of packed ones nothing is unpacked."""
    return statistics.lines if isinstance(statistics, PackedStatistics) else Mapped(statistics, _LINE)


# ---- blocks --------------------------------------------------------------------------------------------------------

_Shape = tuple[str, str, tuple[str, ...]]  # kind, source and the names of the values: a log has a dozen


def _pack(rows: Sequence[Statistic]) -> bytes:
    shapes: dict[_Shape, list[tuple[float, ...]]] = {}
    which = []
    for one in rows:
        names, told = zip(*one.values, strict=True) if one.values else ((), ())
        shape = one.kind, one.source, names
        shapes.setdefault(shape, []).append(told)
        which.append(shape)
    numbers = {shape: number for number, shape in enumerate(shapes)}
    columns = [thin(column) for column in zip(*map(_NUMBERS, rows), strict=True)]
    values = [(shape, len(told), list(zip(*told, strict=True))) for shape, told in shapes.items()]
    positions = [one.positions for one in rows]
    return zlib.compress(marshal.dumps((columns, [numbers[one] for one in which], values, positions)), 1)


def _unpack(block: bytes) -> list[Flat]:
    columns, which, values, positions = marshal.loads(zlib.decompress(block))  # noqa: S302  # our own bytes, of `_pack`
    told = [(shape, iter(list(zip(*each, strict=True)) or [()] * count)) for shape, count, each in values]
    rows = zip(*map(thick, columns), which, positions, strict=True)
    return [(*row, told[number][0], next(told[number][1]), places) for *row, number, places in rows]


def _whole(values: Flat) -> Statistic:
    boot, at, line, offset, (kind, source, names), told, positions = values
    return Statistic(boot, at, kind, source, tuple(zip(names, told, strict=True)), Proof(line, offset), positions)
