"""What does the page of one run say: how it ended, what it was, how fast, and every doubt?"""

from collections.abc import Mapping
from typing import Any, Final

from agentload.analysis.headline import number
from agentload.report.html.figure import Table
from agentload.report.html.said import MANY, Said, count, doubted, setting_value, tone
from agentload.report.html.said_experiment import shortened_to
from agentload.report.page import NONE, percent, seconds

_ENDED: Final = {"started": "killed before its end"}  # no end, and no living writer
_WHY: Final = 300  # characters: a server's last words may be long, and the answer is to be seen at once


def of_run(found: Mapping[str, Any]) -> Said:
    """Return what the page of account.json says."""
    server, corpus = found["server"], found["corpus"]
    state = "still running" if found.get("running") else _ENDED.get(found["status"], found["status"])
    at = f" at {corpus['commit'][:12]}" if corpus["commit"] else ""
    lines, requests, clock = found["lines"], found["requests"], found["clock"]
    proof = [f"{requests['matched']} of {requests['total']} requests matched with the log, {requests['exact']} exactly"]
    if lines["format"] is not None:
        proof.append(
            f"log ({lines['format']}): {lines['total']:,} lines, {lines['understood']:,} understood, "
            f"{lines['unknown']:,} unknown"
        )
    if clock["error_ns"] is not None:
        proof.append(f"log times stand on the client's clock within {clock['error_ns'] / 1e6:.1f} ms")
    return Said(
        title=f"run {found['run']}: {state}",
        what=f"run {found['run']}",
        outcome=state,
        badges=[state, "one run: no comparison"],
        tone=tone(state),
        sentence=_sentence(found, state),
        below=["One run does not tell a difference from noise: `agentload ab` repeats, and says how sure one may be."],
        compared_title="What was run",
        compared=[
            f"server {server['kind']} {server.get('base_url') or ''}, model {server.get('model') or NONE}",
            f"corpus {corpus['name']}{at}; sandbox {found['sandbox']}",
            f"{len(found['agents'])} agents" if found["agents"] else "no agents",
            *proof,
        ],
        fixes=[],
        doubts=doubted(found["doubts"]),
        settings=_run_settings(found),
        settings_left="",
        tables=[*_segments(found), *_loads(found), *_agents(found)],
        notes=[],
        forecast=[],
    )


def _sentence(found: Mapping[str, Any], state: str) -> str:
    why = f" ({shortened_to(found['why'], _WHY)})" if found["why"] else ""
    told = []
    segments = found["segments"]
    if (probe := found.get("probe")) is not None:
        told = [f"{one['load']} {number(one['prefill_tok_s'])} tok/s" for one in probe["loads"]]
    elif len(segments) == 1:
        whole = segments[0]["whole"]
        if whole["prefill_tok_s"] is not None:
            told.append(
                f"prefill {number(whole['prefill_tok_s'])} tok/s over {count(whole['new_prefill_tokens'])} new tokens"
            )
        if whole["decode_tok_s"] is not None:
            told.append(f"decode {number(whole['decode_tok_s'])} tok/s")
        if whole["overlap"] is not None and len(segments[0]["agents"]) > 1:
            told.append(f"{percent(whole['overlap'])} of the prefill time another request was decoding")
    return f"{state}{why}: {', '.join(told) or 'see the numbers below'}"


def _run_settings(found: Mapping[str, Any]) -> Table | None:
    rows = tuple(
        (
            one["name"],
            setting_value(one["requested"]),
            setting_value(one["applied"]),
            one["verdict"],
            one["source"] or "",
        )
        for one in found["settings"]
        if one["verdict"] != "defaulted"
    )
    columns = ("setting", "requested", "in force", "verdict", "what proves it")
    return Table(columns, rows[:MANY], 5, "Settings that were asked for") if rows else None


def _segments(found: Mapping[str, Any]) -> list[Table]:
    rows = []
    for segment in found["segments"] if found.get("probe") is None else ():
        named_rows = [("all", segment["whole"]), *segment["agents"].items()]
        if segment["no_agent"]:
            named_rows.append(("not ours", segment["no_agent"]))
        rows += [
            (
                segment["segment"],
                name,
                str(one["requests"]),
                *(count(one[f"{key}_tokens"]) for key in ("prompt", "cached", "new_prefill", "decoded")),
                seconds(one["prefill_union_ns"]),
                number(one["prefill_tok_s"]),
                percent(one["prefill_share"]),
                seconds(one["decode_union_ns"]),
                number(one["decode_tok_s"]),
                percent(one["decode_share"]),
            )
            for name, one in named_rows
        ]
    columns = (
        *("segment", "agent", "requests", "prompt", "cached", "new prefill", "decoded", "prefill busy s"),
        *("prefill tok/s", "prefill share", "decode busy s", "decode tok/s", "decode share"),
    )
    return [Table(columns, tuple(rows), 2, "Work and speed; a dash is not known, never 0")] if rows else []


def _loads(found: Mapping[str, Any]) -> list[Table]:
    if (probe := found.get("probe")) is None:
        return []
    rows = tuple(
        (
            one["load"],
            str(one["repeats"]),
            count(one["counted_tokens"]),
            number(one["prefill_tok_s"]),
            percent(one["share_of_ceiling"]),
            number(one["ttft_s"]),
            number(one["gap_s"]),
            number(one["neighbour_tok_s"]),
        )
        for one in probe["loads"]
    )
    columns = ("load", "repeats", "tokens", "prefill tok/s", "of ceiling", "ttft s", "gap s", "neighbours tok/s")
    return [Table(columns, rows, 1, "One cold prompt under each load: medians of the repeats")]


def _agents(found: Mapping[str, Any]) -> list[Table]:
    if found.get("probe") is not None or not found["agents"]:
        return []
    rows = tuple(
        (
            " ".join(filter(None, (one.get("segment"), one["agent"]))),
            one["task"],
            one["end"] + (" (too little work)" if one["too_little_work"] else ""),
            str(one["requests"]),
            str(one["tool_calls"]),
            str(one["repeated_calls"]),
            count(one["growth_tokens"]),
            f"{len(one['facts_found'])}/{len(one['facts'])}",
        )
        for one in found["agents"]
    )
    columns = ("agent", "task", "ended", "requests", "tool calls", "repeated calls", "context growth", "facts answered")
    return [Table(columns, rows, 3, "Agents: what they did")]
