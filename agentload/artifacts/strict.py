"""How does text from disk become values that can be trusted, and what is said when it cannot?

What a run wrote may have been damaged since, edited by hand or written by a stranger: what it holds is checked where it
is read, and every complaint is `WHERE: expected ..., got ...`.
"""

import json
import math
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentload.shown import encodable

MAX_NS: Final = 4_102_444_800_000_000_000  # 2100-01-01: later is damage, and sums must fit 64 bits
_MAX_TOKENS: Final = 10**12
_MAX_MS: Final = 1e10  # 115 days
_MAX_DEPTH: Final = 60
_SHOWN: Final = 60

T = TypeVar("T")

Ns = Annotated[int, Field(ge=0, le=MAX_NS)]  # Unix ns
Tokens = Annotated[int, Field(ge=0, le=_MAX_TOKENS)]
Count = Annotated[int, Field(ge=0, le=_MAX_TOKENS)]
Millis = Annotated[float, Field(ge=0, le=_MAX_MS)]


class Ours(BaseModel):
    """Base of what only agentload writes: every field known, every type exact."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Open(BaseModel):
    """Base of what may hold more than we read: exact where we read, anything beside it."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)


def parse(data: bytes) -> Any:
    """Read JSON as the standard has it: no NaN, no infinity, no bottomless nesting.

    Half of a surrogate pair, out of a model's answer, becomes its escape as text: it has no UTF-8 and fits no table.

    Raises:
        ValueError: it is none; the text is one line.
    """
    try:
        value = json.loads(data, parse_constant=_no_constant)
        _check_depth(value, _MAX_DEPTH)
        if place := _infinite(value):
            raise ValueError(f"expected finite numbers, got a number beyond 1.8e308 in {'.'.join(place)}")
    except RecursionError:
        raise ValueError(_DEEP) from None
    except ValueError as error:
        told = str(error)
        raise ValueError(
            told if told.startswith("expected") else f"expected JSON, got {data[:_SHOWN]!r}: {told}"
        ) from error
    return encodable(value) if b"\\ud" in data.lower() else value


_DEEP: Final = f"expected values nested at most {_MAX_DEPTH} deep"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"expected numbers that JSON has, got {name}")


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict | list):
        if left == 0:
            raise ValueError(_DEEP)
        for one in value.values() if isinstance(value, dict) else value:
            _check_depth(one, left - 1)


def _infinite(value: Any) -> list[str]:
    """Return where in `value` a number is that no float can hold (1e400 is read as infinity); empty: nowhere."""
    if isinstance(value, float) and not math.isfinite(value):
        return ["it"]
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in parts:
        if isinstance(one, float):
            if not math.isfinite(one):
                return [str(name)]
        elif isinstance(one, dict | list) and (place := _infinite(one)):
            return [str(name), *place]
    return []


def validated(adapter: TypeAdapter[T], line: bytes) -> T:
    """Check one JSON value against `adapter`.

    Raises:
        ValueError: it is no JSON, or holds something else than what is expected; the text is one line.
    """
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise ValueError(explain(error)) from error
    # pydantic's own reader refuses half a surrogate pair, which a model's answer may hold: the slow way takes it.
    try:
        return adapter.validate_json(json.dumps(parse(line), allow_nan=False))
    except ValidationError as error:
        raise ValueError(explain(error)) from error


def explain(error: ValidationError) -> str:
    """Say the first thing that is wrong in one line: where, what was expected, what there is."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message, got = first["msg"], _shown(first["input"])
    if first["type"] == "missing":
        return f"expected a field {where}, there is none"
    if first["type"] == "extra_forbidden":
        return f"expected no field {where}, got {got}"
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        name = context["discriminator"].strip("'")
        return f"{name}: expected one of {context['expected_tags']}, got {_shown(context['tag'])}"
    if first["type"] == "union_tag_not_found":
        name = first["ctx"]["discriminator"].strip("'")
        return f"expected a field {name}, there is none"
    for start in ("Input should be ", "Value error, expected "):
        if message.startswith(start):
            what = message.removeprefix(start)
            break
    else:
        what = f"something else: {message[:200]}"
    what = " ".join(what.split())
    place = f"{where}: " if where else ""
    if first["type"] == "value_error":  # our own: it says what there is
        return f"{place}expected {what}"
    return f"{place}expected {what}, got {got}"


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
