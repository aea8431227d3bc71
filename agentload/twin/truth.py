"""What does a file of ground truth hold, and which bytes and times does a log have?

JSON lines. The first names the schema, the options, profile, seed and boot; each other line is one event under its
kind: request, quantum, engine_call, decode_step, disk_work. Times are integer ns since the Unix epoch, counts tokens.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from agentload.errors import InputError
from agentload.twin.events import DecodeStep, DiskWork, EngineCall, Event, LogWrite, Quantum, Request, Truth
from agentload.twin.options import Options

SCHEMA: Final = "agentload.twin.truth/1"
_KINDS: Final[dict[str, Callable[..., Truth]]] = {
    "request": Request,
    "quantum": Quantum,
    "engine_call": EngineCall,
    "decode_step": DecodeStep,
    "disk_work": DiskWork,
}
_NAMES: Final = {of: name for name, of in _KINDS.items()}
_ROWS: Final = frozenset(("requests", "tool_call_ids"))  # tuples, which JSON has as lists


def header(options: Options, profile: str, seed: int, boot: int) -> str:
    """Return the first line, without its newline."""
    first = {
        "schema": SCHEMA,
        "simulated": True,
        "options": options.model_dump(),
        "profile": profile,
        "seed": seed,
        "boot": boot,
    }
    return json.dumps(first, separators=(",", ":"))


def lines(events: Iterable[Event]) -> Iterator[str]:
    """Yield a line, without its newline, for each event that is ground truth."""
    for event in events:
        if isinstance(event, Truth):
            yield json.dumps({"kind": _NAMES[type(event)], **asdict(event)}, separators=(",", ":"))


def read(text: Iterable[str]) -> tuple[dict[str, Any], list[Truth]]:
    """Return the first line and the events of a file's lines.

    Raises:
        InputError: a line is not what it should be; its number is named.
    """
    first: dict[str, Any] | None = None
    events: list[Truth] = []
    for number, line in enumerate(text, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"line {number} of the truth: expected JSON: {error}") from error
        if first is None:
            if not isinstance(row, dict) or row.get("schema") != SCHEMA:
                raise InputError(f'line 1 of the truth: expected "schema": "{SCHEMA}", got {line.strip()!r:.60}')
            first = row
            continue
        try:
            kind = _KINDS[row.pop("kind")]
            events.append(kind(**{key: tuple(value) if key in _ROWS else value for key, value in row.items()}))
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(f"line {number} of the truth: expected an event, got {line.strip()!r:.60}") from error
    if first is None:
        raise InputError("line 1 of the truth: expected its schema, the file is empty")
    return first, events


def log_bytes(events: Iterable[Event]) -> bytes:
    """Return the log's bytes."""
    return b"".join(event.data for event in events if isinstance(event, LogWrite))


def line_times(events: Iterable[Event]) -> list[int]:
    """Return when each line of the log was whole: the receive stamps of a pump without delay."""
    return [event.at_ns for event in events if isinstance(event, LogWrite) and event.data.endswith(b"\n")]
