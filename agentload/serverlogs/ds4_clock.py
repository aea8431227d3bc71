"""When was a line written, if its stamp has neither year nor zone, and a resolution of one second?

Stamps are made monotone, in ns since the Unix epoch as if local time were UTC when the year is given, else since
1 January of an unknown year (taken for a common one, until a stamp of 29 February says otherwise). Three things move
a local clock:

* New Year: the stamp goes back by more than half a year. A year is added, and said where it leaves more than a week
  without lines: a stray stamp does that too.
* The end of summer time, or a clock that was set: it goes back by less than three hours. What is up to ten minutes
  short of whole hours is taken for the end of summer time, with so much time between two lines; all else for a clock
  that was set, as if no time had passed. A request that spans it knows better (`ds4_requests`): by its own monotonic
  durations the stamps from there on are moved once more (`jumped`, `move`).
* The beginning of summer time cannot be told from an hour without lines. Only a request that spans it tells: its
  durations then disagree with the stamps by a multiple of half an hour, and all stamps after the gap are moved back.
"""

import calendar
from collections.abc import Callable
from datetime import date
from typing import Final

from agentload.serverlogs.ds4_grammar import STAMP

SECOND_NS: Final = 1_000_000_000
HALF_HOUR_S: Final = 1800
_DAY_S: Final = 86_400
_DAYS_BEFORE: Final = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_DAYS_IN: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SWAPPED_S: Final = 2  # stamps that go back by no more may be of two lines that changed places
_QUIET_S: Final = 600  # within which a line comes, when summer time ends
_SUMMER_S: Final = 3 * 3600
_NEAR_NS: Final = 2 * SECOND_NS + SECOND_NS // 10  # two stamps of 1 s, and a late line
_HALF_YEAR_S: Final = 180 * _DAY_S
_SILENT_S: Final = 7 * _DAY_S
_MOST_YEARS: Final = 100  # added: 64 bits of ns hold 292

Say = Callable[[str, str, str], None]  # code, what, advice


class WallClock:
    """Makes stamps monotone."""

    def __init__(self, year: int | None, say: Say) -> None:
        self._year = year
        self._say = say
        self._days = 0 if year is None else date(year, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
        self._leap = year is not None and calendar.isleap(year)
        self._years = 0  # added
        self._shift_s = 0
        self._minute = b""  # that of the last stamp, as it has it
        self._minute_s = 0  # from the year's beginning to it
        self._last_s: int | None = None
        # The last line before which nothing was written for half an hour or more, or the stamps went back.
        self.gap_line: int | None = None
        self.gap_ns = 0  # its time
        self._gap_s = 0  # since the line before
        self.back_s = 0  # what was added there, if the stamps went back

    def at(self, stamp: bytes, line: int) -> int | None:
        """Return the time of `MMDD HH:MM:SS` in ns, as a line has it; None when there is no such time."""
        minute, second, was_leap = stamp[:-2], stamp[-2:], self._leap
        if minute != self._minute or not second.isdigit():
            in_minute = self._of_minute(stamp)
            if in_minute is None:
                return None
            self._minute, self._minute_s = minute, in_minute
        now_s = self._days * _DAY_S + self._minute_s + int(second) + self._shift_s
        if self._last_s is not None:
            step_s = now_s - self._last_s
            if step_s < -_HALF_YEAR_S and self._years < _MOST_YEARS:
                now_s = self._next_year(stamp, self._last_s, 366 if was_leap else 365)
                step_s = now_s - self._last_s
            if step_s < 0:
                now_s = self._went_back(now_s, step_s, line)
            elif step_s >= HALF_HOUR_S:
                self._gap(line, now_s, step_s, 0)
        self._last_s = now_s
        return now_s * SECOND_NS

    @property
    def plain(self) -> bool:
        """Whether two stamps of a year are so far apart as in a common one."""
        return not self._leap

    def stand_at(self, at_ns: int) -> None:
        """Go on to a time: of a stamp less than `HALF_HOUR_S` after the last one."""
        self._last_s = at_ns // SECOND_NS

    def _of_minute(self, stamp: bytes) -> int | None:
        """Return the seconds from the year's beginning to the stamp's minute; None when it is no stamp."""
        if STAMP.fullmatch(stamp) is None:
            return None
        month, day, hour, minute = int(stamp[:2]), int(stamp[2:4]), int(stamp[5:7]), int(stamp[8:10])
        if not (1 <= month <= 12 and 1 <= day <= _DAYS_IN[month] and hour < 24 and minute < 60):
            return None
        if month == 2 and day == 29:
            if self._year is not None and not self._leap:
                return None
            self._leap = True
        of_year = _DAYS_BEFORE[month] + day - 1 + (self._leap and month > 2)
        return of_year * _DAY_S + hour * 3600 + minute * 60

    def _next_year(self, stamp: bytes, last_s: int, days: int) -> int:
        """Return the time of a stamp in the year after that of the last one, which had so many days."""
        self._days += days
        self._years += 1
        if self._year is not None:
            self._year += 1
        self._leap = self._year is not None and calendar.isleap(self._year)
        in_minute = self._of_minute(stamp)  # a leap day before it counts if this year has one, whatever the last had
        self._minute_s = self._minute_s if in_minute is None else in_minute
        now_s = self._days * _DAY_S + self._minute_s + int(stamp[-2:]) + self._shift_s
        if now_s - last_s > _SILENT_S:
            self._say(
                "new-year",
                f"a stamp of {stamp[:4].decode()} (month, day) comes after a later one of the year, so a year is "
                f"added from here on: nothing was written for {(now_s - last_s) // _DAY_S} days then",
                "if the log is not so long, a stamp is not the server's, or files were put together in the wrong order",
            )
        return now_s

    def _gap(self, line: int, now_s: int, gap_s: int, back_s: int) -> None:
        self.gap_line, self.gap_ns, self._gap_s, self.back_s = line, now_s * SECOND_NS, gap_s, back_s

    def _went_back(self, now_s: int, step_s: int, line: int) -> int:
        if step_s < -_SUMMER_S:
            self._say(
                "stamps-go-back",
                f"the stamp is {-step_s} s earlier than that of the line before",
                "logs of several servers may have been put together, which is to be accounted one by one; or files of "
                "one server in the wrong order: put the oldest first",
            )
            return now_s
        hours_s = -(step_s // 3600) * 3600
        moved_s = hours_s if hours_s + step_s <= _QUIET_S else -step_s
        if step_s < -_SWAPPED_S:
            self._gap(line, now_s + moved_s, step_s + moved_s, moved_s)
        self._shift_s += moved_s
        self._say(
            "clock-set-back",
            f"the stamp is {-step_s} s earlier than that of the line before: {moved_s} s are added from here on",
            "if files of one server were put together, put the oldest first; else run the server with TZ=UTC, and let "
            "agentload start it: then each line has a receive stamp",
        )
        return now_s + moved_s

    def jumped(self, off_ns: int, last_line: int) -> int:
        """Return by how many ns times since `gap_line` are too late, 0 for none.

        So says a request that was last read in `last_line` and that later lines put `off_ns` after what it says itself.
        """
        if self.gap_line is None or self.gap_line <= last_line:
            return 0
        if not self.back_s:
            return summer_time(off_ns) or 0
        added_ns = self.back_s * SECOND_NS
        right_ns = summer_time(added_ns - off_ns) or (added_ns - off_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS
        return min(added_ns - right_ns, self._gap_s * SECOND_NS) if abs(off_ns) <= _SUMMER_S * SECOND_NS else 0

    def move(self, by_s: int) -> None:
        """Add `by_s` to this and all further times."""
        self._shift_s += by_s
        if self._last_s is not None:
            self._last_s += by_s
        self.gap_line = None


def half_hours(ns: int) -> int:
    """Return the nearest whole number of half hours, in ns."""
    half_ns = HALF_HOUR_S * SECOND_NS
    return (ns + half_ns // 2) // half_ns * half_ns


def summer_time(ns: int) -> int | None:
    """Return by how many ns the wall clock jumped ahead, when a difference looks like that; else None."""
    jump_ns = half_hours(ns)
    return jump_ns if 0 < jump_ns <= _SUMMER_S * SECOND_NS and abs(ns - jump_ns) <= _NEAR_NS else None
