"""Which kinds of values may stand in the tables of a scenario and of an experiment?"""

import math
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict

from agentload.artifacts.design import Value

# Of each table: nothing in it changes, no key is unknown, and a value is of its key's own type. A whole number may
# stand for any number (15 for 15.0), and nothing else for anything else: not true, 1.0 or "1" for 1.
TABLE: Final = ConfigDict(frozen=True, extra="forbid", strict=True)
LISTED: Final = Strict(strict=False)  # a list of TOML is a tuple here; what is in it is of its own type all the same

PLAIN_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _passable(text: str) -> str:
    """A text that can be a program's argument, part of a path, and written down."""
    if "\0" in text:
        raise ValueError(f"must not hold NUL, got {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"expected text in UTF-8, got {text!r:.80}") from error
    return text


def _variable(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"expected the name of an environment variable, got {name!r:.80}")
    return _passable(name)


def is_plain(value: Any) -> bool:
    """Whether it is a text, a finite number, true or false."""
    return isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def _plain(value: Any) -> Any:
    if not is_plain(value):
        raise ValueError(f"expected text, a finite number, true or false, got {value!r:.80}")
    return value


Positive = Annotated[int, Field(ge=1, le=10**12)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Seconds = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]  # at most a year
Word = Annotated[str, AfterValidator(_passable)]
Words = Annotated[tuple[Word, ...], LISTED]
Variable = Annotated[str, AfterValidator(_variable)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_passable)]
Plain = Annotated[Value, BeforeValidator(_plain)]  # of an option, whatever its name
