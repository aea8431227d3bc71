"""Which corpora and tasks ship with agentload, and on which line is one of them wrong?

Each is one TOML file in a folder of its kind: `_data/KIND` inside an installed wheel, the repository's top-level
`KIND` folder in an editable install.
"""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from agentload.errors import InputError, UsageError

Model = TypeVar("Model", bound=BaseModel)
Loc = tuple[int | str, ...]

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_TABLE: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY: Final = re.compile(r"\s*([\w.-]+)\s*=")


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
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    told = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(known) or 'none'}"
    raise UsageError(f"no {what} named {name!r}: {told}")


def load(path: Path, model: type[Model]) -> Model:
    """Read a TOML file into `model`.

    Raises:
        InputError: unreadable, not TOML, or a value is not what it should be; file and line are named.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        return model.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        raise InputError(f"{path}:{line}: not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(f"{path}:{line_of(text, first['loc'])}: {where}: {first['msg']}") from error


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
