"""How is an append-only JSON Lines file written so that a kill loses nothing, and read so that a torn end is said?"""

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
    """Appends JSON objects, one a line, each handed to the kernel in a single write before `append` returns.

    A kill of this process loses no line that was appended; a crash of the machine may lose the last seconds.
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


def read(path: Path, schema: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) after checking the schema line; a torn last line is left out.

    Raises:
        ArtifactError: the file is missing, of another schema, or a line other than a torn last one is not JSON.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    lines = data.split(b"\n")
    torn = lines.pop()  # empty when the file ends with a newline
    del torn
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ArtifactError(f"{path}:{number}: expected one JSON object, got {line[:60]!r}: {error}") from error
        if not isinstance(value, dict):
            raise ArtifactError(f"{path}:{number}: expected a JSON object, got {line[:60]!r}")
        if number == 1:
            if value.get("schema") != schema:
                raise ArtifactError(f"{path}:1: expected schema {schema}, got {value.get('schema')!r}")
            continue
        yield number, value
    if not lines:
        raise ArtifactError(f"{path}: expected a first line with schema {schema}, the file is empty")


def is_torn(path: Path) -> bool:
    """Tell whether the file's last line was cut off, by a kill or a full disk; `read` leaves such a line out."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return not data.endswith(b"\n")
