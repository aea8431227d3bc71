"""How many rows has each row group of a Parquet file? Its footer read without the library that wrote it.

The footer is a Thrift struct in the compact protocol (parquet-format, FileMetaData): field 4 is the list of row groups,
of each of which field 3 is the number of rows.
"""

from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


class _Compact:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._take(1)
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            (head,) = self._take(1)
            count = self._varint() if head >> 4 == 15 else head >> 4
            # In a list a boolean is a byte.
            return [self.value(_BYTE if head & 15 in (_TRUE, _FALSE) else head & 15) for _ in range(count)]
        return self.struct() if kind == _STRUCT else self._zigzag()

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self.value(head & 15)
        return found


def row_groups(file: bytes) -> list[int]:
    """Return the rows of each row group."""
    length = int.from_bytes(file[-8:-4], "little")
    assert file[-4:] == b"PAR1"
    footer = _Compact(file[-8 - length : -8]).struct()
    return [group[3] for group in footer[4]]
