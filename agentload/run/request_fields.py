"""Which parameters may be added to every chat request, beside those that agentload sets?"""

import json
from typing import Annotated, Any, Final

from pydantic import AfterValidator

# What agents.chat sets itself: another value would change what is measured, or what is known of it.
OURS: Final = ("messages", "model", "stream", "stream_options", "tools")
_DEEPEST: Final = 32  # of a parameter's lists and tables; a real one has about 10 (a JSON schema)


def _can_be_sent(request: dict[str, Any]) -> dict[str, Any]:
    ours = [name for name in OURS if name in request]
    if ours:
        raise ValueError(f"must not hold {', '.join(ours)}: agentload sets {'it' if len(ours) == 1 else 'them'}")
    if _deeper(request, _DEEPEST):
        raise ValueError(f"expected lists and tables at most {_DEEPEST} deep, there are deeper ones")
    try:
        json.dumps(request, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected request values that JSON has: {error}") from error
    return request


def _deeper(value: Any, levels: int) -> bool:
    """Whether lists and tables are nested more than `levels` deep; it looks no deeper than that."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(one, levels - 1) for one in inner)


RequestFields = Annotated[dict[str, Any], AfterValidator(_can_be_sent)]
