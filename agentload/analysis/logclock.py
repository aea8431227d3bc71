"""On which clock do the times of a log stand that nobody laid on another one, and what is to be said of it?"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from agentload.analysis import sections
from agentload.core.records import Doubt, LogFacts, Timeline
from agentload.serverlogs.localtime import YEAR_NS

_TIMES_BY: Final = {
    "llamacpp": "leave out --no-log-prefix and --no-log-timestamps; an older llama-server has to be given --log-prefix "
    "--log-timestamps",
    "sglang": "start SGLang with --log-requests and --enable-metrics, and keep the stamp in front of each line",
    "ds4": "keep the stamp in front of each line: ds4-server always writes one",
}
"""Format -> how its server's log gets times."""


def lacks_times(facts: LogFacts, begins: Sequence[int]) -> bool:
    """Whether it has requests, and times of none; `begins`: the first time of each start that has any."""
    return bool(len(facts.requests)) and facts.counts_requests and not begins


def of(facts: LogFacts, begins: Sequence[int]) -> dict[str, Any]:
    """As a run's; where no request has times they stand on no timeline, and have no step."""
    none = {"log_timeline": None, "log_resolution_ns": None} if lacks_times(facts, begins) else {}
    return sections.clock(facts, {}, None) | none


def doubts(facts: LogFacts, begins: Sequence[int]) -> Iterator[Doubt]:
    """Say what the times are not."""
    if facts.timeline is Timeline.WALL and min(begins, default=YEAR_NS) < YEAR_NS:
        yield Doubt(
            "clock-without-year",
            "the log's stamps have neither year nor zone: times are ns since 1 January, 0:00 by the server's local "
            "clock, of the year in which the log begins",
            "durations, order, day and time of day hold; README, `Export`, says how to add the year",
        )
    if lacks_times(facts, begins):
        yield Doubt(
            "log-without-times",
            "no line tells when a request was at work: tokens and durations that stand in lines are counted, busy "
            "times and shares are not known",
            _TIMES_BY.get(facts.format, "let the server put times into its log"),
        )
