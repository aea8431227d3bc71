"""When was a line written, by a stamp of local time without zone, and maybe without year?

A stamp with a year gives ns since the Unix epoch, one without gives ns since 1 January of the year in which the log
begins (a common one); both as if local time were UTC. Several processes write such a log, so that a line may be a
second older than the one before it: nothing is made monotone. Only a step back by more than half a year is New Year,
and one ahead by a year less up to an hour is a line of the old year that came late.
"""

import calendar
from datetime import date
from typing import Final

SECOND_NS: Final = 1_000_000_000
YEAR_NS: Final = 366 * 86_400 * SECOND_NS  # times of a log without year are below it, those of one with year are not
_DAY_S: Final = 86_400
_DAYS_BEFORE: Final = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_DAYS_IN: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_HALF_YEAR_S: Final = 180 * _DAY_S
_YEAR_S: Final = 365 * _DAY_S
_LATE_S: Final = 3_600  # by which one process's line may come after another's that is younger
_EPOCH: Final = date(1970, 1, 1).toordinal()


class LocalClock:
    """Turns the stamps of one log into times."""

    def __init__(self) -> None:
        self._base_s = 0
        self._last_s: int | None = None
        self._same: tuple[bytes, int] = (b"", 0)  # the last stamp and its time: many lines have the one before's

    def of_year(self, stamp: bytes) -> int | None:
        """Return the time of `YYYY-MM-DD HH:MM:SS` in ns; None when there is no such time."""
        if stamp == self._same[0]:
            return self._same[1]
        seconds = _in_day(stamp[11:19])
        year, month, day = int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10])
        if seconds is None or not 1970 <= year <= 2100 or not 1 <= month <= 12:
            return None
        if not 1 <= day <= calendar.monthrange(year, month)[1]:
            return None
        self._same = (stamp, ((date(year, month, day).toordinal() - _EPOCH) * _DAY_S + seconds) * SECOND_NS)
        return self._same[1]

    def without_year(self, stamp: bytes) -> int | None:
        """Return the time of `MM-DD HH:MM:SS` in ns; None when there is no such time."""
        if stamp == self._same[0]:
            return self._same[1]
        seconds = _in_day(stamp[6:14])
        month, day = int(stamp[:2]), int(stamp[3:5])
        if seconds is None or not 1 <= month <= 12 or not 1 <= day <= _DAYS_IN[month]:
            return None
        now_s = self._base_s + (_DAYS_BEFORE[month] + day - 1) * _DAY_S + seconds
        if self._last_s is not None:
            years = _years_off(now_s - self._last_s)
            self._base_s += years * _YEAR_S
            now_s += years * _YEAR_S
        self._last_s = now_s
        self._same = (stamp, now_s * SECOND_NS)
        return self._same[1]


def _years_off(step_s: int) -> int:
    """Return in which year a stamp is, counted from the last one's, by the step that both make within one year."""
    if step_s < -_HALF_YEAR_S:
        return 1
    return -1 if step_s >= _YEAR_S - _LATE_S else 0


def _in_day(clock: bytes) -> int | None:
    """Return the seconds of `HH:MM:SS`; None when there is no such time of day."""
    hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:8])
    return hour * 3600 + minute * 60 + second if hour < 24 and minute < 60 and second < 61 else None
