"""How are the requests of a log of any size held in memory?

As objects one takes 2 KB, and a log of 1 GB has a million of them. Packed they are plain tuples of numbers and texts,
marshalled and compressed in blocks: about 110 bytes each. Few come back as a tuple of objects.
"""

import marshal
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, overload

from agentload.core.records import LoggedRequest, Proof

_BLOCK: Final = 512  # requests
FEW: Final = 20_000  # so many come back as objects: 40 MB
_CACHED: Final = 8  # unpacked blocks: those that ended together began at nearly the same time
NAMES: Final = tuple(one.name for one in fields(LoggedRequest))
_VALUES: Final = attrgetter(*NAMES)
_PROOFS: Final = NAMES.index("proofs")
_TIMES: Final = tuple(
    NAMES.index(name) for name in ("t_slot", "prefill_start", "prefill_end", "decode_start", "decode_end", "t_end")
)

Where = tuple[int, int]  # line and byte offset of a proof
# Values in the order of LoggedRequest's fields, but proofs: names, and beside each its line, or None if there is none.
Flat = tuple[Any, ...]


def flat(request: LoggedRequest) -> Flat:
    """Return a request's values."""
    values: Flat = _VALUES(request)
    names = tuple(name for name, _ in request.proofs)
    lines = tuple((proof.line, proof.offset) for _, proof in request.proofs)
    return (*values[:_PROOFS], (names, lines), *values[_PROOFS + 1 :])


def whole(values: Flat) -> LoggedRequest:
    """Return the request of those values."""
    made: dict[Where, Proof] = {}
    names, lines = values[_PROOFS]
    proofs = tuple(
        (name, made.get(where) or made.setdefault(where, Proof(*where)))
        for name, where in zip(names, lines, strict=True)
        if where is not None
    )
    return LoggedRequest(*(*values[:_PROOFS], proofs, *values[_PROOFS + 1 :]))


def shifted(values: Flat, by_ns: int) -> Flat:
    """Return the values with all times moved."""
    changed = list(values)
    for index in _TIMES:
        if changed[index] is not None:
            changed[index] += by_ns
    return tuple(changed)


class Packed(Sequence[LoggedRequest]):
    """Requests that are unpacked when they are asked for, best in order."""

    def __init__(self, blocks: Sequence[bytes], order: Sequence[int]) -> None:
        """`order[i]` is the place of request i in all blocks."""
        self._blocks = blocks
        self._order = order
        self._cache: dict[int, list[Flat]] = {}

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> LoggedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LoggedRequest]: ...
    def __getitem__(self, index: int | slice) -> LoggedRequest | Sequence[LoggedRequest]:
        if isinstance(index, slice):
            return [self._at(place) for place in self._order[index]]
        return self._at(self._order[index])

    def __iter__(self) -> Iterator[LoggedRequest]:
        return (self._at(place) for place in self._order)

    def _at(self, place: int) -> LoggedRequest:
        number, at = divmod(place, _BLOCK)
        block = self._cache.get(number)
        if block is None:
            if len(self._cache) == _CACHED:
                del self._cache[next(iter(self._cache))]
            block = self._cache[number] = marshal.loads(zlib.decompress(self._blocks[number]))  # noqa: S302  # our own bytes, made by Packer
        return whole(block[at])


class Packer:
    """Takes requests as they end, and gives them back in the order of their keys."""

    def __init__(self, few: int = FEW) -> None:
        """So `few` come back as objects."""
        self._few = few
        self._blocks: list[bytes] = []
        self._open: list[Flat] = []
        self._keys = array("q")

    def add(self, key: int, values: Flat) -> None:
        """Add one; equal keys stay in the order in which they came."""
        self._keys.append(key)
        self._open.append(values)
        if len(self._open) == _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if self._open:
            self._blocks.append(zlib.compress(marshal.dumps(self._open), 1))
            self._open = []

    def close(self) -> Sequence[LoggedRequest]:
        """Return all of them."""
        order = array("q", sorted(range(len(self._keys)), key=self._keys.__getitem__))
        if not self._blocks and len(order) <= self._few:
            return tuple(whole(self._open[place]) for place in order)
        self._flush()
        packed = Packed(tuple(self._blocks), order)
        return tuple(packed) if len(packed) <= self._few else packed


def pack(requests: Iterable[LoggedRequest], few: int = FEW) -> Sequence[LoggedRequest]:
    """Return the requests in their order: as a tuple, or packed if they are more than `few`."""
    packer = Packer(few)
    for number, request in enumerate(requests):
        packer.add(number, flat(request))
    return packer.close()
