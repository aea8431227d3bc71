"""What does the model see of a file?

Lines with their numbers, from a file of any size: it is streamed, and what is held never exceeds the output limit. A
long answer ends early and says where to read on, since the line after the last one shown is what the model wants next.
"""

import difflib
import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from agentload.agents.tools.output import OutputLimit, cap
from agentload.core.records import ToolResult
from agentload.errors import ToolError

_BLOCK_BYTES: Final = 1 << 20
_LINE_BYTES: Final = 2_000  # of one line are shown; the longest line of hand-written code is far shorter
_SNIFF_BYTES: Final = 8_192
_NOTE_BYTES: Final = 120  # room for the line that says where to read on
_LISTED: Final = 100
_WALKED: Final = 20_000  # files looked at for the same name
_COMPARED: Final = 2_000  # with more files than this, only those of the same folder are looked at for a name alike


class ReadTool:
    """The tool `read(path, start_line, end_line)`; `detail` has path, first_line, last_line, bytes_out."""

    def __init__(self, checkout: Path, output_limit: OutputLimit, *, known_paths: Sequence[str] | None = None) -> None:
        """`output_limit` is asked at each call for the most bytes that the result's text may have.

        With `known_paths` the schema lists them as the only values of `path`: a server that constrains arguments by
        grammar then makes even a tiny model name a file that is there.
        """
        self._checkout = checkout.resolve()
        self._output_limit = output_limit
        self._known_paths = None if known_paths is None else list(known_paths)

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return "read"

    def schema(self) -> dict[str, Any]:
        """Return the description and the arguments' JSON Schema."""
        path: dict[str, Any] = {"type": "string", "description": "The file, relative to the repository's top folder."}
        if self._known_paths:
            path["enum"] = list(self._known_paths)
        return {
            "description": "Read a text file of the repository, whole or some of its lines, with line numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": path,
                    "start_line": {"type": "integer", "minimum": 1, "description": "First line, from 1. Default: 1."},
                    "end_line": {"type": "integer", "minimum": 1, "description": "Last line. Default: the file's end."},
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        }

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Read it, in a worker thread."""
        limit_bytes = self._output_limit()
        try:
            return await anyio.to_thread.run_sync(self._read, dict(arguments), limit_bytes)
        except ToolError as error:
            return ToolResult(ok=False, text=cap(str(error), limit_bytes), detail={"path": _shown(arguments)})

    def _read(self, arguments: dict[str, Any], limit_bytes: int) -> ToolResult:
        if unknown := sorted(set(arguments) - {"path", "start_line", "end_line"}):
            raise ToolError(f"read: unknown argument {unknown[0]!r}; it takes path, start_line, end_line")
        start = _line_number(arguments, "start_line") or 1
        end = _line_number(arguments, "end_line")
        if end is not None and end < start:
            raise ToolError(f"read: expected end_line at or after start_line {start}, got {end}")
        path = self._inside(arguments.get("path"))
        name = str(path.relative_to(self._checkout))
        try:
            if path.is_dir():
                raise ToolError(_listing(name, path))
            # Opening a FIFO would block, a device may act: ask first.
            if not stat.S_ISREG(path.stat().st_mode):
                raise ToolError(f"read: {name} is no regular file")
            with path.open("rb") as file:
                return _numbered(file, name, start, end, limit_bytes)
        except FileNotFoundError:
            raise ToolError(self._missing(name, path)) from None
        except OSError as error:
            raise ToolError(f"read: {name}: {error.strerror or error}") from error

    def _inside(self, value: Any) -> Path:
        """Return the real path, which lies in the checkout whatever links lead to it."""
        if not isinstance(value, str) or not value or "\0" in value:
            got = "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
            raise ToolError(f"read: path: expected a file's path, got {got}")
        if Path(value).is_absolute():
            raise ToolError(f"read: path: expected a path relative to the repository's top folder, got {value}")
        try:
            path = (self._checkout / value).resolve()
        except (OSError, RuntimeError, UnicodeEncodeError) as error:  # a loop of links; a name that has no bytes
            raise ToolError(
                f"read: {_shown({'path': value})}: it cannot be followed ({type(error).__name__})"
            ) from error
        if not path.is_relative_to(self._checkout):
            raise ToolError(f"read: {value} is outside the repository")
        return path

    def _missing(self, name: str, path: Path) -> str:
        near = ", ".join(_similar(self._checkout, path))
        return f"read: there is no file {name}" + (f"; similar: {near}" if near else "")


def _shown(arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("path"))[:200].encode("utf-8", "replace").decode("utf-8")


def _line_number(arguments: Mapping[str, Any], key: str) -> int | None:
    """Return a line number; models write 10, 10.0 and "10", and null for what they leave out."""
    value = arguments.get(key)
    if value is None:
        return None
    number: int | None = None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value == int(value):
        number = int(value)
    if number is None or number < 1:
        raise ToolError(f"read: {key}: expected a whole number from 1, got {str(value)[:60]!r}")
    return number


def _numbered(file: BufferedReader, name: str, start: int, end: int | None, limit_bytes: int) -> ToolResult:
    """Return lines `start` to `end` (1-based, both included), as many as the limit holds."""
    if b"\0" in file.read(_SNIFF_BYTES):
        raise ToolError(f"read: {name} is a binary file of {os.fstat(file.fileno()).st_size} bytes")
    file.seek(0)
    there = _skip_lines(file, start - 1)
    shown, cut = _fit(islice(_lines(file), None if end is None else end - start + 1), start, limit_bytes - _NOTE_BYTES)
    last = start + len(shown) - 1
    if not shown and start == 1:
        shown.append(f"[{name} is empty]\n")
    elif not shown:
        raise ToolError(f"read: start_line {start}: {name} has {there} lines")
    elif cut:
        shown.append(f"[this answer holds no more: go on with start_line {last + 1}]\n")
    elif end is not None and last < end:
        shown.append(f"[end of file: it has {last} lines]\n")
    text = cap("".join(shown), limit_bytes)
    detail = {"path": name, "first_line": start, "last_line": last, "bytes_out": len(text.encode())}
    return ToolResult(ok=True, text=text, truncated=cut, detail=detail)


def _fit(lines: Iterator[str], first: int, room_bytes: int) -> tuple[list[str], bool]:
    """Number the lines; return as many as there is room for, and whether there was more."""
    shown: list[str] = []
    for number, raw in enumerate(lines, first):
        line = f"{number:6d}\t{raw}\n"
        if len(line.encode()) > room_bytes:
            if not shown:  # some of the line, or the model would be sent to the same one again
                shown.append(cap(line, max(0, room_bytes)))
            return shown, True
        room_bytes -= len(line.encode())
        shown.append(line)
    return shown, False


def _skip_lines(file: BufferedReader, count: int) -> int:
    """Move past `count` lines in blocks; return how many there were (a last line without newline is one)."""
    passed = 0
    torn = False
    block = bytearray(_BLOCK_BYTES)  # one for all: a new one each time costs more than the reading
    while passed < count and (size := file.readinto(block)):
        here = block.count(b"\n", 0, size)
        if passed + here < count:
            passed += here
            torn = block[size - 1] != ord("\n")
            continue
        position = -1
        for _ in range(count - passed):
            position = block.index(b"\n", position + 1)
        file.seek(position + 1 - size, os.SEEK_CUR)
        return count
    return passed + torn


def _lines(file: BufferedReader) -> Iterator[str]:
    """Yield each line without its end, the long ones cut; memory stays within one piece of a line."""
    while piece := file.readline(_BLOCK_BYTES):
        size = len(piece)
        line = piece[: _LINE_BYTES + 2]
        while not piece.endswith(b"\n") and (piece := file.readline(_BLOCK_BYTES)):
            size += len(piece)
        text = line.rstrip(b"\r\n") if size <= _LINE_BYTES + 2 else line[:_LINE_BYTES]
        note = f" [... {size - _LINE_BYTES} bytes of this line cut]" if size > _LINE_BYTES + 2 else ""
        yield text.decode("utf-8", "replace") + note


def _listing(name: str, folder: Path) -> str:
    entries = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in os.scandir(folder))
    more = f" and {len(entries) - _LISTED} more" if len(entries) > _LISTED else ""
    return f"read: {name} is a folder; it has {', '.join(entries[:_LISTED]) or 'no entries'}{more}"


def _similar(top: Path, path: Path) -> list[str]:
    """Return up to 5 files that may be meant: the same name elsewhere first, then names alike."""
    files = list(islice(_files(top), _WALKED))
    same = [file for file in files if Path(file).name == path.name]
    parent = str(path.parent.relative_to(top))
    near = files if len(files) < _COMPARED else [file for file in files if str(Path(file).parent) == parent]
    names = difflib.get_close_matches(path.name, sorted({Path(file).name for file in near}), n=5, cutoff=0.7)
    alike = [file for name in names for file in near if Path(file).name == name]
    return list(dict.fromkeys(same + alike))[:5]


def _files(top: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            yield str((Path(folder) / name).relative_to(top))
