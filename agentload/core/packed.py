"""How are the requests of a log of any size held in memory?

As objects one takes 2 KB, and a log of 1 GB has a million of them. Packed they are columns of numbers and texts, a
block of requests each: of numbers only the steps from one to the next, marshalled and compressed, 20 to 60 bytes a
request. Few come back as a tuple of objects. What is made of requests one by one (`Mapped`) is made when it is asked
for, so that of very many there is never more than one at a time.
"""

import marshal
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from itertools import accumulate, zip_longest
from operator import attrgetter, sub
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np

from agentload.core.records import LoggedRequest, Proof

BLOCK: Final = 512  # requests
FEW: Final = 20_000  # so many come back as objects: 40 MB
_CACHED: Final = 8  # unpacked blocks: those that ended together began at nearly the same time
NAMES: Final = tuple(one.name for one in fields(LoggedRequest))
_DEFAULTS: Final = tuple(None if one.default is MISSING else one.default for one in fields(LoggedRequest))
_VALUES: Final = attrgetter(*NAMES)
_PROOFS: Final = NAMES.index("proofs")
_BETWEEN: Final = _DEFAULTS[2:_PROOFS]  # of those behind boot and label
_ARRIVED: Final = NAMES.index("t_arrived")
_TIMES: Final = tuple(
    NAMES.index(name)
    for name in ("t_slot", "prefill_start", "prefill_end", "decode_start", "decode_end", "t_end", "t_arrived")
)

Where = tuple[int, int]  # line and byte offset of a proof
# Values in the order of LoggedRequest's fields, but proofs: names, and beside each its line, or None if there is none.
# The last ones may be left out: they have their defaults then.
Flat = tuple[Any, ...]
S = TypeVar("S")
T = TypeVar("T")


def flat(request: LoggedRequest) -> Flat:
    """Return a request's values."""
    values: Flat = _VALUES(request)
    names = tuple(name for name, _ in request.proofs)
    lines = tuple((proof.line, proof.offset) for _, proof in request.proofs)
    return (*values[:_PROOFS], (names, lines), *values[_PROOFS + 1 :])


def came(boot: int, rid: str, at: int | None, where: Where) -> Flat:
    """Return the values of a request of which nothing is known but its id and, mostly, when it came."""
    proofs = ((), ()) if at is None else (("t_arrived",), (where,))
    return (boot, rid, *_BETWEEN, proofs, None, rid, at, *_DEFAULTS[_ARRIVED + 1 :])  # None: group


def told(values: Flat, where: Where, fields: Mapping[str, object]) -> Flat:
    """Return the values with fields that the line there tells and proves; one that is None is not told."""
    changed = list(values)
    proofs = dict(zip(*values[_PROOFS], strict=True))
    for name, value in fields.items():
        if value is not None:
            changed[NAMES.index(name)] = value
            proofs.pop(name, None)  # what is told last stands last
            proofs[name] = where
    changed[_PROOFS] = tuple(proofs), tuple(proofs.values())
    return tuple(changed)


def whole(values: Flat) -> LoggedRequest:
    """Return the request of those values."""
    made: dict[Where, Proof] = {}  # one line proves several fields
    proofs = []
    for name, where in zip(*values[_PROOFS], strict=True):
        if where is not None:
            proof = made.get(where)
            if proof is None:
                proof = made[where] = Proof(*where)
            proofs.append((name, proof))
    return LoggedRequest(*(*values[:_PROOFS], tuple(proofs), *values[_PROOFS + 1 :]))


def shifted(values: Flat, by_ns: int) -> Flat:
    """Return the values with all times moved."""
    changed = list(values)
    for index in _TIMES:
        if index < len(changed) and changed[index] is not None:
            changed[index] += by_ns
    return tuple(changed)


# ---- blocks --------------------------------------------------------------------------------------------------------

_RAW, _STEPS, _SOME = range(3)  # how a column stands in a block: as it is; numbers; numbers, of which some are None
Column = tuple[int, list[Any]]


def thin(values: Sequence[Any]) -> Column:
    """Return a column as it is packed: of numbers the steps from one to the next."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return _STEPS, [values[0], *map(sub, values[1:], values)]
    if kinds != {int, type(None)}:
        return _RAW, list(values)
    last = 0
    steps: list[int | None] = []
    for value in values:
        if value is None:
            steps.append(None)
        else:
            steps.append(value - last)
            last = value
    return _SOME, steps


def thick(column: Column) -> list[Any]:
    """Return the values of a column that `thin` made."""
    kind, values = column
    if kind == _RAW:
        return values
    if kind == _STEPS:
        return list(accumulate(values))
    last = 0
    found: list[int | None] = []
    for value in values:
        if value is None:
            found.append(None)
        else:
            last += value
            found.append(last)
    return found


_Places = tuple[Column, Column]  # lines and offsets


def _pack(rows: Sequence[Flat]) -> bytes:
    if min(map(len, rows)) < len(NAMES):
        rows = [(*row, *_DEFAULTS[len(row) :]) for row in rows]
    columns = list(zip(*rows, strict=True))
    names, lines = zip(*columns[_PROOFS], strict=True)
    columns[_PROOFS] = names
    # The same line proves several fields, in nearly every request the same ones.
    which: dict[tuple[Where | None, ...], int] = {}
    numbers = [which.setdefault(column, len(which)) for column in zip_longest(*lines)]
    places = [
        (
            thin([None if where is None else where[0] for where in column]),
            thin([None if where is None else where[1] for where in column]),
        )
        for column in which
    ]
    return zlib.compress(marshal.dumps(([thin(column) for column in columns], places, numbers)), 1)


def _load(block: bytes) -> tuple[list[Column], list[_Places], list[int]]:
    found: tuple[list[Column], list[_Places], list[int]]
    found = marshal.loads(zlib.decompress(block))  # noqa: S302  # our own bytes, made by `_pack`
    return found


def _unpack(block: bytes) -> list[Flat]:
    thin, thin_places, numbers = _load(block)
    columns = [thick(column) for column in thin]
    places = [
        [None if line is None else (line, offset) for line, offset in zip(thick(lines), thick(offsets), strict=True)]
        for lines, offsets in thin_places
    ]
    names = columns[_PROOFS]
    wheres = zip(*(places[number] for number in numbers), strict=True) if numbers else ((),) * len(names)
    columns[_PROOFS] = [(each, where[: len(each)]) for each, where in zip(names, wheres, strict=True)]
    return list(zip(*columns, strict=True))


def _unpack_some(indices: Sequence[int], block: bytes) -> list[Flat]:
    thin, _, _ = _load(block)
    return list(zip(*(thick(thin[index]) for index in indices), strict=True))


class Blocks(Sequence[T]):
    """What stands in packed blocks, unpacked when it is asked for, best in order."""

    def __init__(
        self,
        blocks: Sequence[bytes],
        order: Sequence[int],
        unpack: Callable[[bytes], list[Flat]],
        make: Callable[[Flat], T],
    ) -> None:
        """`order[i]` is the place of item i in all blocks."""
        self._blocks = blocks
        self._order = order
        self._unpack = unpack
        self._make = make
        self._cache: dict[int, list[Flat]] = {}

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._at(place) for place in self._order[index]]
        return self._at(self._order[index])

    def __iter__(self) -> Iterator[T]:
        return (self._at(place) for place in self._order)

    def _at(self, place: int) -> T:
        number, at = divmod(place, BLOCK)
        block = self._cache.get(number)
        if block is None:
            if len(self._cache) == _CACHED:
                del self._cache[next(iter(self._cache))]
            block = self._cache[number] = self._unpack(self._blocks[number])
        return self._make(block[at])


class Packed(Blocks[LoggedRequest]):
    """Packed requests."""

    def __init__(self, blocks: Sequence[bytes], order: Sequence[int]) -> None:
        """`order[i]` is the place of request i in all blocks."""
        super().__init__(blocks, order, _unpack, whole)

    def values(self, *names: str) -> Sequence[Flat]:
        """Give some fields of each request, but proofs; nothing else is unpacked."""
        unpack = partial(_unpack_some, [NAMES.index(name) for name in names])
        return Blocks(self._blocks, self._order, unpack, lambda values: values)


class Packing(Generic[S]):
    """Takes rows, each with a key; of more than a few it packs whole blocks as they come."""

    def __init__(self, pack_rows: Callable[[Sequence[S]], bytes], few: int) -> None:
        """So `few` stay as they are."""
        self.keys = array("q")
        self.open: list[S] = []  # rows that are not packed; while they are few, all
        self._few = few
        self._pack_rows = pack_rows
        self._blocks: list[bytes] = []

    @property
    def are_few(self) -> bool:
        """Whether none was packed."""
        return len(self.keys) <= self._few

    def add(self, key: int, row: S) -> None:
        """Add one."""
        self.keys.append(key)
        self.open.append(row)
        if len(self.open) >= BLOCK and len(self.keys) > self._few:
            self._flush(len(self.open) // BLOCK * BLOCK)

    def _flush(self, count: int) -> None:
        for start in range(0, count, BLOCK):
            self._blocks.append(self._pack_rows(self.open[start : min(start + BLOCK, count)]))
        del self.open[:count]

    def packed(self) -> tuple[bytes, ...]:
        """Pack the rest, and return all blocks."""
        self._flush(len(self.open))
        return tuple(self._blocks)


class Packer(Packing[Flat]):
    """Takes requests as they end, and gives them back in the order of their keys; equal ones as they came."""

    def __init__(self, few: int = FEW) -> None:
        """So `few` come back as objects."""
        super().__init__(_pack, few)

    def close(self) -> Sequence[LoggedRequest]:
        """Return all of them."""
        places = np.argsort(np.array(self.keys, np.int64), kind="stable")
        order = array("q", places.tobytes())
        if self.are_few:  # to pack them first took as long as to read all of their lines
            return tuple(whole(self.open[place]) for place in order)
        return Packed(self.packed(), order)


def pack(requests: Iterable[LoggedRequest], few: int = FEW) -> Sequence[LoggedRequest]:
    """Return the requests in their order: as a tuple, or packed if they are more than `few`."""
    packer = Packer(few)
    for number, request in enumerate(requests):
        packer.add(number, flat(request))
    return packer.close()


# ---- what is made of them ------------------------------------------------------------------------------------------


class Mapped(Sequence[T], Generic[S, T]):
    """What a function makes of each of other things, made anew whenever it is asked for."""

    def __init__(self, of: Sequence[S], make: Callable[[S], T], order: Sequence[int] | None = None) -> None:
        """`order[i]` is the place in `of` of what item i is made of; by default all of them, in their order."""
        self._of = of
        self._make = make
        self._order = range(len(of)) if order is None else order

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._make(self._of[place]) for place in self._order[index]]
        return self._make(self._of[self._order[index]])

    def __iter__(self) -> Iterator[T]:
        return (self._make(self._of[place]) for place in self._order)


def mapped(of: Sequence[S], make: Callable[[S], T], order: Sequence[int] | None = None) -> Sequence[T]:
    """Return what `make` makes of each, as `Mapped` orders them: a tuple, or of very many `Mapped`."""
    found = Mapped(of, make, order)
    return found if isinstance(of, (Mapped, Packed)) else tuple(found)


def values(requests: Sequence[LoggedRequest], *names: str) -> Sequence[Flat]:
    """Give two fields or more of each request, but proofs: of packed ones nothing else is unpacked."""
    return requests.values(*names) if isinstance(requests, Packed) else Mapped(requests, attrgetter(*names))
