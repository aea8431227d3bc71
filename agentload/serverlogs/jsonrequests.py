"""What do files have in common that tell of one finished request, or several, on each line of JSON?

Each line stands by itself: a torn or strange one is counted as unknown, and nothing else is lost.
"""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from agentload.core.packed import came, told
from agentload.core.records import LogFacts, Timeline
from agentload.serverlogs.lines import Kind
from agentload.serverlogs.servedlog import ServedLog
from agentload.shown import encodable

_LEAST_ERROR_NS: Final = 1_000_000  # clocks of two kinds meet in these files: below 1 ms nothing is sure
_SLACK_NS: Final = 1_000_000_000  # clocks of several processes


class JsonRequests(ServedLog):
    """The part of a reader that takes lines; times are Unix ns of the server's wall clock."""

    def __init__(self) -> None:
        """The lines have times of their own: receive stamps are of no use."""
        super().__init__(None)
        self._seen: set[tuple[str, int | None]] = set()  # an exporter may send a batch twice
        self._off_ns = _LEAST_ERROR_NS

    def open_requests(self) -> int:
        """A request stands there when it has ended."""
        return 0

    def close(self) -> LogFacts:
        """Say that the file has ended, and return what it told."""
        return replace(self._facts(counts_requests=True), timeline=Timeline.UNIX, resolution_ns=self._off_ns)

    def _take(self, number: int, offset: int, raw: bytes) -> Kind:
        self._number, self._offset = number, offset
        if raw[:1] != b"{":
            return Kind.UNKNOWN
        value = decoded(raw)
        return Kind.UNKNOWN if value is None else self._line(value)

    def _line(self, value: dict[str, Any]) -> Kind:
        raise NotImplementedError

    def _told(self, rid: str, arrived: int | None, ended: int | None, **fields: Any) -> None:
        """Keep a request, each of whose times this line proves; one that was told before is not kept again."""
        if (rid, ended) in self._seen:
            self._say("told-twice", f"request {rid} stands there twice", "nothing: it counts once")
            return
        self._seen.add((rid, ended))
        self._start.served = True
        self._at = ended if ended is not None else self._at
        where = self._number, self._offset
        one = came(self._start.index, rid, None, where)
        self._end(told(one, where, {**fields, "t_arrived": arrived, "t_end": ended}))

    def _impossible(self, rid: str) -> None:
        """Say that times of a request are left out, since they are not `in_order`."""
        self._say(
            "impossible-times",
            f"request {rid}: its prefill and decode do not lie in order between its arrival and its end: not used",
            "nothing: its tokens count, these times do not",
        )


def in_order(arrived: int | None, ended: int | None, *times: int | None) -> bool:
    """Whether those times that are known follow each other, and lie within a request as far as clocks agree."""
    known = [one for one in times if one is not None]
    if not known:
        return True
    after = arrived is None or arrived - _SLACK_NS <= known[0]
    before = ended is None or known[-1] <= ended + _SLACK_NS
    return after and before and all(one <= other for one, other in pairwise(known))


def decoded(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line, its texts as a table can hold them; None when it is none."""
    try:
        value = json.loads(line)
        if b"\\u" in line:
            value = encodable(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
