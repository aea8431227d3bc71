"""What does a server count while a segment lasts: its /metrics at the segment's begin, every 15 s, and at its end?

Each look is a GET on a connection of its own in a thread, so that no agent waits for it. Of the text only the lines
that are wanted are parsed: 1.8 ms, where all of vLLM's 57 kB take 47 ms, in which no other thread would run.
"""

import http.client
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from anyio import to_thread

from agentload.core.ports import Clock, EventSink
from agentload.core.records import Doubt
from agentload.errors import InputError
from agentload.servers import metrics
from agentload.servers.metrics import Snapshot
from agentload.servers.metrics_names import KNOWN

PATH: Final = "/metrics"
TIMEOUT_S: Final = 2.0  # of one look: measured 1 to 5 ms on loopback
_END_LOOKS: Final = 10  # at a segment's end, until no request is counted as running
_END_EVERY_NS: Final = 100_000_000
_MOST_BYTES: Final = 1 << 24
_PIECE: Final = 1 << 16
_PROCESS: Final = "process_start_time_seconds"
_WANTED: Final = frozenset(
    (_PROCESS, *(one.positions for one in KNOWN), *(each.sample for one in KNOWN for each in one.sources))
)
_HOW: Final[Mapping[str, str]] = {
    "vllm": "start vLLM without --disable-log-stats",
    "sglang": "start SGLang with --enable-metrics",
}


class _FailedError(Exception):
    """A look that told nothing; why."""


class _AbsentError(_FailedError):
    """The server has no such thing."""


def wanted(text: str) -> str:
    """Return the lines of a text in Prometheus' format that something here is made of.

    Where the process does not tell its start, the times at which its counters were made tell it.
    """
    created = f"\n{_PROCESS}" not in f"\n{text}"
    kept = [line for line in text.split("\n") if _name(line) in _WANTED or (created and _is_created(line))]
    return "\n".join((*kept, ""))


def _name(line: str) -> str:
    return line.partition(" ")[0].partition("{")[0]


def _is_created(line: str) -> bool:
    return line[:1] != "#" and _name(line).endswith("_created")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server's /metrics stand."""

    base_url: str  # up to and with /v1
    api_key: str | None = None
    tls: ssl.SSLContext | None = None


def look(at: Address, now_ns: Callable[[], int], timeout_s: float = TIMEOUT_S) -> str:
    """Return the text of one look; `now_ns` tells the time.

    Raises:
        _FailedError: there was no answer in time; _AbsentError: the answer was no 200.
    """
    parts = urlsplit(at.base_url)
    host, give_up = parts.hostname or "", now_ns() + int(timeout_s * 1e9)
    connection = (
        http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        if parts.scheme == "http"
        else http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=at.tls)
    )
    path = parts.path.rstrip("/").removesuffix("/v1") + PATH
    headers = {} if at.api_key is None else {"Authorization": f"Bearer {at.api_key}"}
    data = bytearray()
    try:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as answer:
            if answer.status != HTTPStatus.OK:
                raise _AbsentError(f"HTTP {answer.status}")
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > _MOST_BYTES:
                    raise _AbsentError(f"more than {_MOST_BYTES} bytes")
                if now_ns() > give_up:  # the connection's own timeout is of each read
                    raise _FailedError(f"not whole within {timeout_s:g} s")
    except (OSError, http.client.HTTPException) as error:
        raise _FailedError(f"{type(error).__name__}: {error}"[:200]) from error
    finally:
        connection.close()
    return data.decode("utf-8", "replace")


class MetricsSampler:
    """Looks at one server's /metrics, and keeps what it said as events `metrics`."""

    def __init__(
        self,
        at: Address,
        clock: Clock,
        events: EventSink,
        software: str | None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`software`: the server's profile, where it is known; `timeout_s`: of one look."""
        self._timeout_s = timeout_s
        self._at = at
        self._clock = clock
        self._events = events
        self._software = software
        self._absent: str | None = None  # why there is none
        self._looks = 0
        self._failed: list[str] = []
        self._told: set[str] = set()  # doubts

    async def begin(self, segment: str) -> None:
        """Look before the begin marker of `segment` is written."""
        await self._look(segment, "begin")

    async def until_cancelled(self, segment: str, period_s: float) -> None:
        """Look every `period_s`."""
        period_ns = int(period_s * 1e9)
        due = self._clock.now_ns()
        while self._absent is None:
            due = max(due + period_ns, self._clock.now_ns())  # what a machine that was asleep missed is not made up for
            await self._clock.sleep_until(due)
            await self._look(segment, "periodic")

    async def end(self, segment: str) -> None:
        """Look when the last request of `segment` has ended: once it is counted, which takes some ms, or after 1 s."""
        seen = await self._seen()
        for _ in range(_END_LOOKS):
            if seen is None or not seen[0].value("running"):
                break
            await self._clock.sleep_until(self._clock.now_ns() + _END_EVERY_NS)
            seen = await self._seen() or seen
        if seen is not None:
            self._emit(segment, "end", *seen)

    async def _look(self, segment: str, where: str) -> None:
        seen = await self._seen()
        if seen is not None:
            self._emit(segment, where, *seen)

    async def _seen(self) -> tuple[Snapshot, int] | None:
        """Return what it says, and how long that took (ns); None when it says nothing."""
        if self._absent is not None:
            return None
        self._looks += 1
        begun = self._clock.now_ns()
        try:
            found = await to_thread.run_sync(self._read, abandon_on_cancel=True)
        except _FailedError as error:
            # A server of an unknown kind that does not answer at once is not asked again.
            if self._looks == 1 and (isinstance(error, _AbsentError) or self._software is None):
                self._absent = str(error)
            else:
                self._failed.append(str(error))
            return None
        return found, self._clock.now_ns() - begun

    def _read(self) -> Snapshot:
        text = look(self._at, self._clock.now_ns, self._timeout_s)
        at_ns = self._clock.now_ns()
        try:
            found = metrics.parse(wanted(text), at_ns)
        except InputError as error:
            raise _AbsentError(str(error)) from error
        if found is None:
            raise _AbsentError("it has none of the quantities that are known of vLLM, SGLang, llama.cpp and ds4's fork")
        return found

    def _emit(self, segment: str, where: str, found: Snapshot, took_ns: int) -> None:
        self._events.emit(
            "metrics",
            found.at_ns,
            segment=segment,
            where=where,
            software=found.software,
            values=dict(found.values),
            accepted_at=list(found.accepted_at),
            began_s=found.began_s,
            took_ns=took_ns,
        )

    def doubts(self) -> tuple[Doubt, ...]:
        """Say what could not be seen, each thing once; nothing of a server whose log tells all that /metrics would."""
        found = []
        how = _HOW.get(self._software or "")
        if self._absent is not None and how is not None:
            found.append(
                Doubt(
                    "no-metrics",
                    f"GET {PATH}: {self._absent}: what the server counts is not known",
                    how,
                )
            )
        if self._failed:
            found.append(
                Doubt(
                    "metrics-failed",
                    f"GET {PATH}: {len(self._failed)} of {self._looks} looks told nothing, first: {self._failed[0]}",
                    "differences reach from the first look to the last one that told something",
                )
            )
        new = [one for one in found if one.code not in self._told]
        self._told |= {one.code for one in new}
        return tuple(new)
