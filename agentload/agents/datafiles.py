"""Which corpora and tasks ship with agentload, and on which line is one of them wrong?

Each is one TOML file in a folder of its kind, named as what it defines: `_data/KIND` inside an installed wheel, the
repository's top-level `KIND` folder in an editable install. A mistake is told as `FILE:LINE: expected ..., got ...`.
"""

import codecs
import difflib
import re
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from agentload.errors import InputError, UsageError

Loc = tuple[int | str, ...]
Text = Annotated[str, StringConstraints(min_length=1)]


class DataModel(BaseModel):
    """Base of what a data file holds: nothing unknown, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Model = TypeVar("Model", bound=DataModel)

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_TABLE: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY: Final = re.compile(r"\s*([\w.-]+)\s*=")
_LONGEST: Final = 60  # characters of a value that an error shows
_WIDE: Final = ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))


def shipped(kind: str) -> Path:
    """Return the folder of the shipped files of `kind` ("corpora" or "tasks").

    Raises:
        InputError: the installation is not whole.
    """
    for folder in (_PACKAGE / "_data" / kind, _PACKAGE.parent / kind):
        if folder.is_dir():
            return folder
    raise InputError(f"expected the shipped {kind} in {_PACKAGE / '_data' / kind}, there is no such folder: reinstall")


def names(folder: Path) -> list[str]:
    """Names of the TOML files of a folder, sorted, without their suffix."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def find(folder: Path, name: str, what: str) -> Path:
    """Return the file of `name`.

    Raises:
        UsageError: there is none; the nearest names are told.
    """
    known = names(folder)
    if name in known:
        return folder / f"{name}.toml"
    raise unknown(name, known, what)


def unknown(name: str, known: Sequence[str], what: str) -> UsageError:
    """Say that there is no such name among the `known`, and which are near."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    told = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known) or 'none'}"
    return UsageError(f"no {what} named {name!r}: {told}")


def load_named(folder: Path, name: str, model: type[Model], what: str, key: str) -> Model:
    """Load the file of `name`; its own `key` must say the same name.

    Raises:
        UsageError: there is none of that name.
        InputError: its file is not as it should be.
    """
    path = find(folder, name, what)
    found, text = _read(path, model)
    if (got := getattr(found, key)) != name:
        at = f"{path}:{line_of(text, (key,))}"
        raise InputError(f"{at}: expected {key} = {name!r} as the file is called, got {got!r}")
    return found


def _read(path: Path, model: type[Model]) -> tuple[Model, str]:
    """Return the model and the text of a TOML file; a byte order mark before UTF-8, as editors leave it, is no mistake.

    Raises:
        InputError: unreadable, not TOML, or a value is not what it should be; file and line are named.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InputError(f"{path}: expected a regular file, got something else")  # a pipe would be waited for
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: expected a readable file: {error.strerror or error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = next((name for mark, name in _WIDE if data.startswith(mark)), None)
        got = wide or f"the byte 0x{data[error.start]:02x}"
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: expected UTF-8, got {got}") from error
    try:
        return model.model_validate(tomllib.loads(text)), text
    except RecursionError as error:
        raise InputError(f"{path}:1: expected TOML, its values are nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = int(at[1]) if at and at[1] else len(text.splitlines())
        told = str(error).replace(at[0], "") if at else str(error)
        raise InputError(f"{path}:{line}: expected TOML, got a mistake: {told}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{path}:{line_of(text, first['loc'])}: {_told(first)}") from error


def _told(error: ErrorDetails) -> str:
    """Put one of pydantic's errors into the words of ours."""
    where = ".".join(str(part) for part in error["loc"]) or "the file"
    got = repr(error["input"])
    got = got if len(got) <= _LONGEST else f"{got[:_LONGEST]}..."
    message = error["msg"]
    if error["type"] == "missing":
        return f"expected a key {where}, got none"
    if error["type"] == "extra_forbidden":
        return f"expected no key {where}: it is unknown, got {got}"
    if error["type"] == "value_error":
        return f"{where}: {message.removeprefix('Value error, ')}"
    if message.startswith("Input should be "):
        return f"{where}: expected {message.removeprefix('Input should be ')}, got {got}"
    return f"{where}: expected that {message[0].lower()}{message[1:]}, got {got}"


def line_of(text: str, loc: Loc) -> int:
    """Return the 1-based line that holds the deepest part of `loc` (a pydantic location) that is written in `text`.

    For a missing key that is the header of its table, for an element of an inline array the array's key, and line 1
    when nothing of it is there.
    """
    table: Loc = ()
    counts: dict[Loc, int] = {}
    best_line, best_depth, inside = 1, 0, False
    for number, line in enumerate(text.splitlines(), 1):
        quotes = line.count('"""') + line.count("'''")
        if inside or line.lstrip().startswith("#"):
            inside ^= quotes % 2 == 1
            continue
        if header := _TABLE.fullmatch(line):
            table = _table(header[2], counts, array=header[1] == "[[")
            here = table
        elif key := _KEY.match(line):
            here = (*table, *key[1].split("."))
        else:
            continue
        inside = quotes % 2 == 1
        if len(here) > best_depth and loc[: len(here)] == here:
            best_line, best_depth = number, len(here)
    return best_line


def _table(name: str, counts: dict[Loc, int], *, array: bool) -> Loc:
    """Turn a table header's dotted name into a location, numbering the members of arrays of tables."""
    at: Loc = ()
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    for depth, part in enumerate(parts):
        at = (*at, part)
        if array and depth == len(parts) - 1:
            counts[at] = counts.get(at, -1) + 1
        if at in counts:
            at = (*at, counts[at])
    return at
