"""How is a value written in an option, and how is it shown?"""

import math
import tomllib

from agentload.artifacts.design import Value
from agentload.errors import UsageError


def shown(value: Value) -> str:
    """Return a value as a command line has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def typed(text: str) -> Value:
    """Return what TOML reads: true or false, a whole number, a finite number; else the text itself."""
    try:
        value = tomllib.loads(f"value = {text}").get("value")
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float):
        return value if math.isfinite(value) else text
    return value if isinstance(value, (bool, int)) and "\n" not in text else text


def verbatim(text: str) -> Value:
    """Return the same where it would be written as it was (2048, true), else the text: 1.10 is not to become 1.1."""
    value = typed(text)
    return value if shown(value) == text else text


def varied(texts: list[str]) -> dict[str, tuple[Value, ...]]:
    """Read `--vary NAME=V1,V2`. Values of request parameters are typed, all others go into a command as they are.

    Raises:
        UsageError: one has no name or no values, or a name comes twice.
    """
    found: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not name or not equals:
            raise UsageError(f"--vary: expected NAME=V1,V2,..., got {text!r}")
        if name in found:
            raise UsageError(f"--vary: expected {name} once with all its values, got it twice")
        read = typed if name.startswith("request.") else verbatim
        found[name] = tuple(read(one.strip()) for one in values.split(","))
    return found
