"""What does an account say, on a terminal? Plain text of a fixed width, every doubt with its advice."""

import io
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH: Final = 110
_NONE: Final = "-"  # the source did not say; never 0


def render(found: dict[str, Any]) -> str:
    """Return the report of account.json's content as text."""
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, highlight=False, emoji=False, markup=False)
    _head(console, found)
    for segment in found["segments"]:
        _segment(console, segment)
    _agents(console, found)
    _proof(console, found)
    for doubt in found["doubts"]:
        console.print(Text(f"doubt ({doubt['code']}): {doubt['message']}. {doubt['advice'].rstrip('.')}."))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def _head(console: Console, found: dict[str, Any]) -> None:
    simulated = "SIMULATED " if found["simulated"] else ""
    why = f": {found['why']}" if found["why"] else ""
    server, corpus = found["server"], found["corpus"]
    console.print(Text(f"{simulated}{found['run']}  {found['status']}{why}"))
    console.print(Text(f"server {server['kind']} {server.get('base_url') or ''} model {server.get('model') or _NONE}"))
    console.print(Text(f"corpus {corpus['name']} at {corpus['commit'][:12]}; sandbox {found['sandbox']}"))


def _segment(console: Console, segment: dict[str, Any]) -> None:
    whole = segment["whole"]
    wall = "its end marker is missing" if whole["wall_ns"] is None else f"{_s(whole['wall_ns'])} s between its markers"
    console.print()
    console.print(Text(f"segment {segment['segment']}, condition {segment['condition']}: {wall}"))
    rows = [("all", whole), *segment["agents"].items()]
    if segment["no_agent"]:
        rows.append(("not ours", segment["no_agent"]))
    tokens = _table(
        "Work, in tokens counted by the server",
        ("", "requests", "prompt", "= cached", "+ new prefill", "decoded", "without counts"),
        [
            (
                name,
                str(one["requests"]),
                _n(one["prompt_tokens"]),
                _n(one["cached_tokens"]),
                _n(one["new_prefill_tokens"]),
                _n(one["decoded_tokens"]),
                str(max(one["unknown"].values())),
            )
            for name, one in rows
        ],
    )
    console.print(tokens)
    for phase in ("prefill", "decode"):
        console.print(
            _table(
                f"{phase.capitalize()}: busy is the union of its intervals, summed counts overlapped time twice",
                ("", "busy s", "summed s", "summed/busy", "tok/s", "share of wall"),
                [
                    (
                        name,
                        _s(one[f"{phase}_union_ns"]),
                        _s(one[f"{phase}_sum_ns"]),
                        _f(one[f"{phase}_double_counting"], 2),
                        _f(one[f"{phase}_tok_s"], 1),
                        _percent(one[f"{phase}_share"]),
                    )
                    for name, one in rows
                ],
            )
        )
    console.print(
        Text(
            f"overlap: {_percent(whole['overlap'])} of the prefill time another request was decoding "
            f"(sampled in 15 s cells: {_percent(whole['sampled_overlap'])})"
        )
    )
    if segment["server_cpu_s"] is not None:
        console.print(
            Text(
                f"server process: {segment['server_cpu_s']:.1f} CPU-s; everything else on this machine: "
                f"{segment['host_other_cpu_s']:.1f} CPU-s"
            )
        )
    console.print(
        _table(
            "By context position at the prefill's start",
            ("context tokens", "requests", "new prefill", "median tok/s", "busy s", "tok/s over busy"),
            [
                (
                    one["name"],
                    str(one["requests"]),
                    _n(one["new_prefill_tokens"]),
                    _f(one["median_tok_s"], 1),
                    _s(one["prefill_union_ns"]),
                    _f(one["union_tok_s"], 1),
                )
                for one in segment["buckets"]
            ],
        )
    )
    for what, names in (("begin", segment["straddles_begin"]), ("end", segment["straddles_end"])):
        if names:
            console.print(Text(f"at work across the segment's {what}: {', '.join(names)}"))


def _agents(console: Console, found: dict[str, Any]) -> None:
    console.print(
        _table(
            "Agents",
            ("", "task", "ended", "requests", "calls", "repeated", "growth", "facts", "files", "late s"),
            [
                (
                    one["agent"],
                    one["task"],
                    one["end"] + (" (too little work)" if one["too_little_work"] else ""),
                    str(one["requests"]),
                    str(one["tool_calls"]),
                    str(one["repeated_calls"]),
                    _n(one["growth_tokens"]),
                    f"{len(one['facts_found'])}/{len(one['facts'])}",
                    f"{len(one['likely_opened'])}/{len(one['likely_opened']) + len(one['likely_missed'])}",
                    _s(one["start_late_ns"], 3),
                )
                for one in found["agents"]
            ],
        )
    )
    work = found["work"]
    if found["status"] == "started":
        console.print(
            Text(
                f"the run was killed, its agents' outcomes are not known: {work['requests']} requests "
                f"({work['failed_requests']} failed, {work['broken_off']} broken off), {work['tool_calls']} tool calls"
            )
        )
        return
    parts = ("tool_calls", "answers", "failed_requests", "broken_off")
    called = work["requests"] - sum(work[part] for part in parts)
    console.print(
        Text(
            f"requests {work['requests']} = tool calls {work['tool_calls']} + answers {work['answers']}"
            + (f" (sent back as too early: {work['nudges']})" if work["nudges"] else "")
            + f" + failed {work['failed_requests']}"
            + (f" + broken off {work['broken_off']}" if work["broken_off"] else "")
            + (f" + ended in a call instead of an answer {called}" if called else "")
        )
    )


def _proof(console: Console, found: dict[str, Any]) -> None:
    lines, requests, clock = found["lines"], found["requests"], found["clock"]
    if lines["format"] is not None:
        console.print(
            Text(
                f"log ({lines['format']}): {lines['total']} lines = {lines['understood']} understood + "
                f"{lines['ignored']} ignored on purpose + {lines['markers']} markers + {lines['unknown']} unknown"
            )
        )
    console.print(
        Text(
            f"requests matched {requests['matched']}/{requests['total']} (exact {requests['exact']}, "
            f"unique {requests['unique']}, ambiguous {requests['ambiguous']}, client only {requests['client_only']}, "
            f"server only {requests['server_only']})"
        )
    )
    if lines["format"] is not None:
        parts = [
            f"{name.removesuffix('_tokens')} {one['log']:,} / {one['usage']:,} (remainder {one['remainder']:,})"
            for name, one in found["usage_check"].items()
        ]
        console.print(Text(f"tokens by log / by usage: {'; '.join(parts)}"))
    for one in found["settings"]:
        if one["verdict"] != "defaulted":
            console.print(
                Text(
                    f"setting {one['name']}: requested {one['requested']}, in force {_or_none(one['applied'])}: "
                    f"{one['verdict']}{' by ' + one['source'] if one['source'] else ''}"
                )
            )
    if clock["error_ns"] is not None:
        console.print(Text(f"log times stand on the client's clock within {clock['error_ns'] / 1e6:.1f} ms"))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 or column in ("task", "ended") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _or_none(value: object) -> str:
    return _NONE if value is None else str(value)


def _n(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _s(value_ns: int | None, digits: int = 1) -> str:
    return _NONE if value_ns is None else f"{value_ns / 1e9:.{digits}f}"


def _f(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value * 100:.1f} %"
