"""What does a segment marker look like, and how is one read back?

One line, written in a single write, never inside another line (PROTOCOL 1.4):

    2026-11-29T13:12:04.123456789Z agentload: segment begin id=s1 run=RUN condition=default t_ns=1795958524123456789

Values are percent-encoded (RFC 3986 unreserved characters stay), so that a value can hold neither a space nor a
newline, and a line of a server or a model cannot be mistaken for a marker unless it matches the whole line.
"""

import re
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote

from agentload.core.records import Marker, Proof

BEGIN: Final = "begin"
END: Final = "end"
LATEST_NS: Final = 4_102_444_800_000_000_000  # 2100-01-01: a later stamp is damage, and sums must fit 64 bits

_LINE: Final = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z agentload: segment (begin|end)"
    rb" id=([!-~]+) run=([!-~]+) condition=([!-~]*) t_ns=(\d{1,19})"
)


def _iso_ns(at_ns: int) -> str:
    seconds, nanos = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"


def render(action: str, segment: str, run: str, condition: str, at_ns: int) -> bytes:
    """Return the marker's line without a newline; `at_ns` is Unix ns of the client's clock."""
    if action not in (BEGIN, END):
        raise ValueError(f"a marker's action is begin or end, not {action!r}")
    return (
        f"{_iso_ns(at_ns)} agentload: segment {action}"
        f" id={quote(segment, safe='')} run={quote(run, safe='')} condition={quote(condition, safe='')} t_ns={at_ns}"
    ).encode("ascii")


def parse(line: bytes, proof: Proof | None) -> Marker | None:
    """Read a whole line (no newline) as a marker; None when it is anything else, however alike."""
    found = _LINE.fullmatch(line)
    if found is None or int(found[5]) > LATEST_NS:
        return None
    action, segment, run, condition, at_ns = (part.decode("ascii") for part in found.groups())
    return Marker(action, unquote(segment), unquote(run), unquote(condition), int(at_ns), proof)
