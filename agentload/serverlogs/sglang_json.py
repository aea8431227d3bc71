"""What does a line say that SGLang writes of a request as JSON (--log-requests-format json, since 0.5.7)?

    [2026-10-06 11:00:38] {"timestamp": "2026-10-06T11:00:38.123456", "event": "request.finished", "rid": "r1", ...}

Only requests are JSON, all else stays text. Up to 0.5.10 no stamp stands in front, and `timestamp`, local time without
zone, is the only one. A line counts when it is one whole object of standard JSON: no name twice in any object, no NaN.
What a prompt or an answer says is a text inside of it, and is not looked at.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any, Final, NoReturn

from agentload.shown import encodable

BEGIN: Final = b'{"timestamp": "'  # json.dumps keeps the order in which SGLang gives the names
LINE: Final = re.compile(
    rb'\{"timestamp": "(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{6}))?", "event": "'
    rb'(?:(request\.received|request\.finished)", "rid": '
    rb'|request\.received\.openai", "obj": |scheduler\.status", "rank": ).*',
    re.DOTALL,
)
_MOST_BRACKETS: Final = 1 << 18  # each may be an object of 100 bytes; 130,000 tokens are one list, and source code text
_MOST_NAME: Final = 200  # characters of a request's name
MOST_NAMES: Final = 4_096  # of a batch that came as one


@dataclass(frozen=True, slots=True)
class Event:
    """What a line says."""

    stamp: bytes  # YYYY-MM-DDTHH:MM:SS
    micros: int  # after it
    names: tuple[str, ...] = ()  # requests that came, or the one that ended; none: nothing that is used
    info: Mapping[str, Any] | None = None  # of a request that ended


def event(text: bytes) -> Event | None:
    """Return what a line says; None when it is torn, fused with another, or not SGLang's."""
    found = LINE.fullmatch(text)
    value = None if found is None else _decoded(text)
    if found is None or value is None:
        return None
    stamp, micros = found[1], int(found[2] or 0)
    if found[3] is None:
        return Event(stamp, micros)
    names = _names(value["rid"])
    if names is None:
        return None
    if found[3] == b"request.received":
        return Event(stamp, micros, names)
    out = value.get("out")
    info = out.get("meta_info") if isinstance(out, dict) else None
    if not isinstance(info, dict) or isinstance(value["rid"], list) or info.get("id", names[0]) != names[0]:
        return None
    return Event(stamp, micros, names, info)


def _names(rid: object) -> tuple[str, ...] | None:
    """Return the names of one request, or of a batch; None when they are none."""
    names: list[Any] = rid if isinstance(rid, list) else [rid]
    return tuple(names) if 0 < len(names) <= MOST_NAMES and all(map(_is_name, names)) else None


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MOST_NAME and name.isprintable()


def _decoded(text: bytes) -> dict[str, Any] | None:
    if len(text) > _MOST_BRACKETS and text.count(b"{") + text.count(b"[") > _MOST_BRACKETS:
        return None
    try:
        value = _STRICT.decode(text.decode("utf-8", "replace"))
        if b"\\u" in text:
            value = encodable(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


_STRICT: Final = JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number)
