"""How do the requests of a log that cost the most stand on a terminal? By the lines that prove them, never by a name.

A name that is cut to fit reads like another number; a line number is short, and leads to the log.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

from agentload.report.page import NONE, Page

_S: Final = 1_000_000_000
_MS: Final = 1_000_000
_UNSURE: Final = "*"  # behind the lines of a request that the log does not tell apart
_BY: Final = {"time": "took longest, prefill and decode added up", "tokens": "have the most tokens, new and decoded"}
_CLOCKS: Final = {"unix": "UTC", "wall": "the log's own clock"}

_Row = Mapping[str, Any]


def say(page: Page, listed: Mapping[str, Any], clock: Mapping[str, Any]) -> None:
    """Add the list: what each request cost. `clock` is the account's."""
    rows: Sequence[_Row] = listed["rows"]
    if not rows:
        return
    when, start = _starts(rows, clock)
    columns = {
        when: [start(one) for one in rows],
        "cached": [_count(one["cached_tokens"]) for one in rows],
        "new": [_count(one["new_prefill_tokens"]) for one in rows],
        "decoded": [_count(one["decoded_tokens"]) for one in rows],
        "prefill s": [_seconds(one["prefill_ns"]) for one in rows],
        "decode s": [_seconds(one["decode_ns"]) for one in rows],
        "finish": [one["finish"] or NONE for one in rows],
    }
    told = {name: cells for name, cells in columns.items() if set(cells) != {NONE}}
    page.gap()
    page.table(
        _title(listed, rows, clock),
        ("lines", *told),
        list(zip(map(_lines, rows), *told.values(), strict=True)),
    )
    if silent := [name for name in columns if name not in told]:
        page.say(f"the log tells of none of them: {', '.join(silent)}")
    if any(one["group"] for one in rows):
        page.say(
            f"{_UNSURE} in an ambiguous group: which of its requests a decode belongs to is not sure, its sums are"
        )
    if listed["left_out"]:
        page.say(f"left out: {listed['left_out']:,}; all stand in the tables: agentload export LOG --to csv")


def _title(listed: Mapping[str, Any], rows: Sequence[_Row], clock: Mapping[str, Any]) -> str:
    what = "Requests"
    if listed["left_out"]:
        total = len(rows) + listed["left_out"]
        which = f"the {len(rows)} of {total:,} that {_BY[listed['by']]}" if listed["by"] in _BY else "the first"
        what = f"{what}: {which}; in order of their starts"
    days = _days(rows)
    by = _CLOCKS.get(clock["log_timeline"])
    if by is not None and days:
        year = clock["log_timeline"] == "unix"  # of a wall clock it may not be known
        day = f" on {min(days):{'%Y-' if year else ''}%m-%d}" if len(days) == 1 else ""
        return f"{what}, with the lines that prove them; start: {by}{day}"
    if any(one["start"] is not None for one in rows):
        return f"{what}, with the lines that prove them; start: from that of the server"
    return f"{what}, with the lines that prove them"


def _starts(rows: Sequence[_Row], clock: Mapping[str, Any]) -> tuple[str, Callable[[_Row], str]]:
    """Return the column of the starts: its name, and what stands there for a row."""
    if clock["log_timeline"] not in _CLOCKS:
        return "start s", lambda one: _seconds(one["start"])
    one_day, whole = len(_days(rows)) == 1, clock["log_resolution_ns"] >= _S

    def start(one: _Row) -> str:
        if one["start"] is None:
            return NONE
        at_ms = one["start"] // _S * 1000 if whole else round(one["start"] / _MS)
        at = _at(at_ms * _MS)
        day = "" if one_day else f"{at:%m-%d} "
        return f"{day}{at:%H:%M:%S}" + ("" if whole else f".{at_ms % 1000:03}")

    return "start", start


def _days(rows: Sequence[_Row]) -> set[date]:
    return {_at(one["start"]).date() for one in rows if one["start"] is not None}


def _at(at_ns: int) -> datetime:
    """The time of day; of a wall clock without a year the ns are from 1 January, of one that is no leap year."""
    return datetime.fromtimestamp(at_ns // _S, UTC)


def _lines(one: _Row) -> str:
    first, last = one["first_line"], one["last_line"]
    if first is None:
        return NONE
    return (f"{first}" if first == last else f"{first}-{last}") + (_UNSURE if one["group"] else "")


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _seconds(value_ns: int | None) -> str:
    return NONE if value_ns is None else f"{value_ns / _S:.3f}"
