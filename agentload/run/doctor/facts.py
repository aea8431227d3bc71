"""What did the probes find, apart from answers? Plain values; what could not be told is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentload.core.records import LineCount, Timeline


@dataclass(frozen=True, slots=True)
class ServerSays:
    """What the server's API tells of itself."""

    software: str | None = None  # the profile's name
    by: str = ""  # what told that
    simulated: bool = False
    slots: int | None = None
    slots_by: str = ""
    context_tokens: int | None = None  # of one request
    context_by: str = ""
    processing: int | None = None  # requests at work before ours
    waiting: int | None = None
    busy_by: str = ""
    date_ahead_s: float | None = None  # the Date header against this machine's clock, to 1 s


@dataclass(frozen=True, slots=True)
class LogSays:
    """What the server's log tells."""

    path: str
    owned: bool  # its lines come to us through a pipe
    format: str | None  # None: of no known format
    known: Sequence[str]  # formats
    lines: LineCount
    timeline: Timeline
    why_unknown: str | None = None  # why no line is of a known format, where that can be told
    refusal: str | None = None  # why markers may not go into it
    grew_silent_bytes: int = 0  # before anything of ours was sent
    silent_s: float = 0.0
    grew_bytes: int = 0  # since then
    ours: int = 0  # requests of ours
    found: int = 0  # of these, those that the log has, by their counts or their answers' ids
    counts: bool = True  # it tells the tokens of each request
    shows_requests: bool = True  # it tells of requests one by one
    others: int = 0  # requests in it since then that are none of ours
    settings: Mapping[str, object] = field(default_factory=dict)
    clock_error_ns: int | None = None  # once aligned by our requests
    wall_ahead_s: float | None = None  # its stamps against this machine's clock (UTC), to 1 s


@dataclass(frozen=True, slots=True)
class MachineSays:
    """What this machine tells."""

    cores: int
    load_1m: float
    free_bytes: int
    total_bytes: int
    swap_used_bytes: int = 0
    swap_total_bytes: int = 0
    on_battery: bool | None = None
    governors: Mapping[str, int] = field(default_factory=dict)  # name -> CPUs
    governor_driver: str = ""
    hottest_c: float | None = None
    hottest_chip: str = ""
    throttled: Sequence[str] = ()  # "GPU 0: hw_thermal_slowdown"
    disk_free_bytes: int | None = None
    disk_path: str = ""
