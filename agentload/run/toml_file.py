"""What does a TOML file of the user's hold? It is read once: a pipe has nothing for a second time."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentload.errors import InputError

_MOST_BYTES: Final = 2**20  # a device may never end


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file as it stands, and what is in it."""

    data: bytes  # verbatim
    text: str  # without a byte order mark
    fields: dict[str, Any]


def read(path: Path) -> TomlFile:
    """Read a file, with or without a byte order mark.

    Raises:
        InputError: it is missing, no text, too long, or no TOML; the line is named.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(f"{path}: expected a file of at most {_MOST_BYTES // 2**20} MiB, it is longer")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected TOML in UTF-8: {error}") from error
    try:
        # TOML allows CR LF; read as text, not bytes, it takes a byte order mark too, which many editors write.
        return TomlFile(data, text, tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected TOML: {error}") from error
