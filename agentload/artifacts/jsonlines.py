"""How is an append-only JSON Lines file written so that a kill loses no whole line, and read as far as it is whole?

The first line names the schema. Only the last line can be torn, by a kill or a full disk in the middle of a write.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from agentload.errors import ArtifactError


def dumps(value: Any) -> str:
    """One line of JSON: compact, keys in the order given, text as UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class JsonLinesWriter:
    """Appends JSON objects, one a line, each with the kernel before `append` returns.

    A line is one write, so that lines of several threads stay whole; only where the kernel takes a part (a disk that is
    nearly full) the rest follows in another. A kill of this process loses no line whose `append` has returned; nothing
    is synced, so a crash of the machine may lose the last seconds.
    """

    def __init__(self, path: Path, schema: str) -> None:
        """Create `path` (it must not exist) with a first line that names the schema."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be created: {error.strerror}") from error
        self.append({"schema": schema})

    def append(self, value: dict[str, Any]) -> None:
        """Write one object.

        Raises:
            ArtifactError: the disk is full or the file cannot be written.
        """
        # Half an emoji, out of a model's JSON, has no UTF-8: it is kept as the escape that JSON has for it.
        data = (dumps(value) + "\n").encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise ArtifactError(f"{self.path}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lines(path: Path, schema: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line without its newline) of each line after the schema line, once that has been checked.

    What stands after the last newline was torn off by a kill or a full disk and is left out; `is_torn` tells of it.

    Raises:
        ArtifactError: the file is missing, empty, of another schema or cannot be read.
    """
    empty = True
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                if empty:
                    _check_schema(path, line, schema)
                    empty = False
                else:
                    yield number, line[:-1]
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    if empty:
        raise ArtifactError(f"{path}:1: expected a first line with schema {schema}, the file is empty")


def read(path: Path, schema: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each of `lines`, as they were written.

    Raises:
        ArtifactError: as `lines`; or a line is no JSON object.
    """
    for number, line in lines(path, schema):
        yield number, _object(path, number, line)


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}:{number}: expected one JSON object, got {line[:60]!r}: {error}") from error
    if not isinstance(value, dict):
        raise ArtifactError(f"{path}:{number}: expected a JSON object, got {line[:60]!r}")
    return value


def _check_schema(path: Path, line: bytes, schema: str) -> None:
    found = _object(path, 1, line).get("schema")
    if found != schema:
        got = repr(found) if isinstance(found, str | None) else f"a value of type {type(found).__name__}"
        raise ArtifactError(f"{path}:1: expected schema {schema}, got {got[:60]}")


def is_torn(path: Path) -> bool:
    """Tell whether the file's last line was cut off, by a kill or a full disk; `lines` and `read` leave it out.

    Raises:
        ArtifactError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            return file.read(1) != b"\n"
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
