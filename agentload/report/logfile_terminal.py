"""What does the account of a log that agentload did not make say, on a terminal?

First what of the log was understood, so that every number below can be judged; then what the server is set to, each
with the line that proves it; then the same tables as a run has; then every doubt.
"""

from collections.abc import Sequence
from typing import Any, Final

from agentload.report import listed_lines, statistics_lines
from agentload.report.page import Page, percent, seconds, shortened
from agentload.report.terminal import segment_body

_MOST_SUSPECTS: Final = 5
_MOST_STARTS: Final = 10
_MOST_SETTINGS: Final = 60
_MOST_GROUPS: Final = 10
_MOST_SEGMENTS: Final = 50  # 14 lines each
_NOT_TOLD: Final = "not told"  # the account's word for requests whose end the log has, and not its reason


def render(found: dict[str, Any]) -> str:
    """Return the report of a log's account as text."""
    page = Page()
    log, lines = found["log"], found["lines"]
    if found["simulated"]:
        page.say("SIMULATED: the log says that a simulated server wrote it; no machine is measured")
    _lines(page, log, lines)
    if found["undated"] is not None:
        page.say(f"  {_undated(found['undated'], log['bytes'])}")
    if found["requests"]["total"] or found["statistics"]:
        _starts(page, found["starts"])
    _settings(page, found["settings"], several=len(found["starts"]) > 1)
    _requests(page, found["requests"])
    if found["only"] is not None:
        page.say(f"shown of {found['only']['of']} segments: {found['only']['segment']}")
    segments = found["segments"] if lines["counts_requests"] else ()
    for segment in segments[:_MOST_SEGMENTS]:
        _segment(page, segment, log["format"])
    if len(segments) > _MOST_SEGMENTS:
        page.say(f"  and {len(segments) - _MOST_SEGMENTS:,} more segments, in --json; one alone: --segment ID")
    if found["requests"]["total"] and not lines["counts_requests"]:
        page.say(f"  {log['format']} logs neither tokens nor times of a request, so there are no sums of them")
    listed_lines.say(page, found["listed"], found["clock"])
    statistics_lines.say(page, found["statistics"])
    _events(page, found)
    for doubt in found["doubts"]:
        page.say(f"doubt ({doubt['code']}): {doubt['message']}. {doubt['advice'].rstrip('.')}.")
    return page.text()


def nothing_found(found: dict[str, Any]) -> str:
    """Return the one line that says why there is no request; empty when there is one, or the log has statistics."""
    log, lines, looks = found["log"], found["lines"], found["looks"]
    if found["requests"]["total"] or found["statistics"]:
        return ""
    if log["bytes"] == 0:
        return f"no request found: {log['name']} is empty"
    if (undated := found["undated"]) is not None and not lines["understood"]:
        command = "" if undated["command"] is None else f"; with 1 January as their date: `{undated['command']}`"
        return f"no request found in {log['name']}: {_undated(undated, log['bytes'])}{command}"
    if found["behind"]:
        return f"no request found in {log['name']}: {found['behind']}"
    if log["format"] in looks["scores"]:
        of = f"{lines['understood'] + lines['ignored']:,} of {lines['total']:,} lines are of {log['format']}"
        return f"no request found in {log['name']}: {of}, none of them of a request"
    known = ", ".join(looks["scores"])
    if looks["lines"] < lines["total"] - 1:  # one may be torn
        return (
            f"no request found in {log['name']}: none of its first {looks['lines']:,} lines is of a known format "
            f"({known}), and the {lines['total'] - looks['lines']:,} behind them were not looked at: if they are of "
            "one, name it with --format"
        )
    return f"no request found in {log['name']}: none of its {lines['total']:,} lines is of a known format ({known})"


def _undated(undated: dict[str, Any], size: int) -> str:
    """Say how many lines lost their date."""
    within = "" if undated["of_bytes"] >= size else f" in its first {undated['of_bytes']:,} bytes"
    what = "1 line" if undated["lines"] == 1 else f"{undated['lines']:,} lines"
    return f"{what} of ds4 without the date of a stamp{within}, not used: a copy lost it"


def _lines(page: Page, log: dict[str, Any], lines: dict[str, Any]) -> None:
    how = "as said" if log["named"] else "detected"
    known = f"{log['format']} ({how})" if log["format"] != "unknown" else "of no known format"
    page.say(f"log {log['name']}: {known}, {log['bytes']:,} bytes")
    page.say(
        f"lines {lines['total']:,} = understood {lines['understood']:,} + ignored on purpose {lines['ignored']:,} + "
        f"markers {lines['markers']:,} + unknown {lines['unknown']:,}"
    )
    for one in lines["examples"]:
        page.say(f"  unknown, line {one['line']}: {one['text']}")
    if lines["unknown"] > len(lines["examples"]):
        page.say(f"  and {lines['unknown'] - len(lines['examples']):,} more")


def _starts(page: Page, starts: Sequence[dict[str, Any]]) -> None:
    for one in starts[:_MOST_STARTS]:
        ready = f"ready at line {one['ready']['line']}" if one["ready"] else "no line says that it was ready"
        page.say(f"server start {one['boot']}: from line {one['first_line']}, {ready}; requests {one['requests']:,}")
    if len(starts) > _MOST_STARTS:
        page.say(f"  and {len(starts) - _MOST_STARTS} more starts")


def _settings(page: Page, settings: Sequence[dict[str, Any]], *, several: bool) -> None:
    shown: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    asked = [one for one in settings if one["applied"] is None]
    for one in settings:  # of a further start only what it has otherwise
        if one["applied"] is None:
            continue
        if last.get(one["name"]) != (one["applied"],):
            shown.append(one)
        last[one["name"]] = (one["applied"],)
    if asked:
        _asked(page, asked)
    if not shown:
        return
    further = "; of further starts only those that differ" if several else ""
    page.table(
        f"Settings in force, each with the line that states it{further}",
        ("setting", "value", "proof", *(("start",) if several else ())),
        [
            (one["name"], shortened(one["applied"]), f"line {one['line']}", *((str(one["boot"]),) if several else ()))
            for one in shown[:_MOST_SETTINGS]
        ],
    )
    if len(shown) > _MOST_SETTINGS:
        page.say(f"  and {len(shown) - _MOST_SETTINGS:,} more, in --json")


def _asked(page: Page, asked: Sequence[dict[str, Any]]) -> None:
    page.say(
        "Asked for on the command line, and stated nowhere as in force: "
        + ", ".join(f"{one['name']}={shortened(one['requested'])}" for one in asked[:_MOST_SETTINGS])
        + f" (line {', '.join(dict.fromkeys(str(one['line']) for one in asked))})"
    )


def _requests(page: Page, requests: dict[str, Any]) -> None:
    if not requests["total"]:
        return
    ends = [f"{name} {count:,}" for name, count in requests["finish"].items() if name != _NOT_TOLD]
    ends += [f"no end in the log {requests['without_end']:,}"] if requests["without_end"] else []
    silent = requests["finish"].get(_NOT_TOLD, 0)
    page.say(
        f"requests {requests['total']:,}: told apart by the log {requests['matched']:,}, ambiguous "
        f"{requests['ambiguous']:,} (the log alone was read, so nothing is said about who sent them)"
    )
    if ends:
        page.say(f"  ended by: {', '.join(ends)}")
    if silent:
        rest = "the rest" if ends else "they"
        page.say(f"  the log does not tell how {rest} ended: {silent:,}")
    for group in requests["groups"][:_MOST_GROUPS]:
        page.say(f"  ambiguous group {group['name']}, only its sums are sure: {', '.join(group['requests'])}")
    if len(requests["groups"]) > _MOST_GROUPS:
        page.say(f"  and {len(requests['groups']) - _MOST_GROUPS:,} more groups, in --json")
    if requests["outside_segments"]:
        page.say(f"  outside every segment, and in no table below: {requests['outside_segments']:,}")


def _segment(page: Page, segment: dict[str, Any], log_format: str) -> None:
    whole = segment["whole"]
    wall_ns = whole["wall_ns"]
    page.gap()
    if segment["markers"]:
        wall = "its end marker is missing" if wall_ns is None else f"{seconds(wall_ns)} s between its markers"
        page.say(f"segment {segment['segment']} of run {segment['run']}, condition {segment['condition']}: {wall}")
    else:
        phases = [span for span in (whole["prefill_union_ns"], whole["decode_union_ns"]) if span is not None]
        wall = f"{seconds(wall_ns)} s from the first phase to the last" if phases else "no phase has both its times"
        if wall_ns is None:
            wall = "without times"
        page.say(f"segment {segment['segment']} (no markers: all that the log has): {wall}")
    segment_body(page, segment, log_format)


def _events(page: Page, found: dict[str, Any]) -> None:
    if found["cache_events"]:
        page.gap()
        kinds = [
            f"{one['kind']}{' (' + one['reason'] + ')' if one['reason'] else ''} {one['events']:,}"
            for one in found["cache_events"]
        ]
        page.say(f"cache events: {', '.join(kinds)}")
    batches = found["decode_batches"]
    if batches:
        steps, took_ns = sum(one["steps"] for one in batches), sum(one["elapsed_ns"] for one in batches)
        rows = sum(one["steps"] * one["rows"] for one in batches)
        alone = sum(one["steps"] for one in batches if one["rows"] == 1)
        page.say(
            f"decode batches: {steps:,} steps, {seconds(took_ns)} s of compute, {rows / steps:.2f} rows a step, alone "
            f"in {percent(alone / steps)}"
        )
    for one in found["suspects"][:_MOST_SUSPECTS]:
        page.say(f"suspect, line {one['line']}: {one['why']}")
    if len(found["suspects"]) > _MOST_SUSPECTS:
        page.say(f"  and {len(found['suspects']) - _MOST_SUSPECTS:,} more suspect lines")
    if found["requests"]["total"]:
        clock = found["clock"]
        error = "" if clock["error_ns"] is None else f", on the client's clock within {clock['error_ns'] / 1e6:.1f} ms"
        if clock["log_timeline"] is None:
            page.say("clock: none, no line tells when a request was at work")
            return
        since = (
            " (since the server's start: no time of day is in this log)" if clock["log_timeline"] == "process" else ""
        )
        step = f"the log's own times step by {clock['log_resolution_ns'] / 1e6:g} ms"
        page.say(f"clock: {clock['log_timeline']}{since}, {step}{error}")
