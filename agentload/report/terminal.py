"""What does an account say, on a terminal? Plain text that fits 80 columns, every doubt with its advice."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from agentload.core.accounting import Unknown
from agentload.report import memory_lines, metrics_lines, probe_terminal, statistics_lines
from agentload.report.comparison_tables import published
from agentload.report.page import NONE, Page, percent, seconds, shortened

__all__ = ["Page", "percent", "render", "seconds", "segment_body", "shortened"]

_COUNTED: Final = tuple(one.name for one in fields(Unknown) if one.name.endswith("_tokens"))  # tables below have times


def render(found: dict[str, Any]) -> str:
    """Return the report of account.json's content as text."""
    page = Page()
    _head(page, found)
    log_format = None if found["lines"]["format"] == "unknown" else found["lines"]["format"]
    counts = found["lines"].get("counts_requests", True)
    running = found.get("running", False)
    probe = found.get("probe")
    if probe is not None:
        probe_terminal.run(page, probe, found["segments"])
        published(page, probe["published"])
    for segment in found["segments"] if probe is None else ():
        _segment(page, segment, log_format, running=running, counts=counts)
    if found["agents"] and probe is None:
        _agents(page, found["agents"])
    if found["work"] is not None:
        _work(page, found)
    statistics_lines.say(page, found.get("statistics"))
    _proof(page, found, by_log=log_format is not None and counts)
    if (
        probe is None
        and not running
        and any(segment["whole"]["prefill_tok_s"] is not None for segment in found["segments"])
    ):
        page.say(
            'to compare runs: prefill tok/s in row "all" (new prefill tokens / busy s); it holds for different amounts '
            "of work, but one run of each does not prove a difference"
        )
    for doubt in found["doubts"]:
        page.say(f"doubt ({doubt['code']}): {doubt['message']}. {doubt['advice'].rstrip('.')}.")
    return page.text()


def _head(page: Page, found: dict[str, Any]) -> None:
    simulated = "SIMULATED " if found["simulated"] else ""
    why = f": {found['why']}" if found["why"] else ""
    server, corpus = found["server"], found["corpus"]
    state = found["status"]
    if state == "started":
        state = "started, still running" if found.get("running") else "started, never ended"
    page.say(f"{simulated}{found['run']}  {state}{why}")
    page.say(f"server {server['kind']} {server.get('base_url') or ''} model {server.get('model') or NONE}")
    at = f" at {corpus['commit'][:12]}" if corpus["commit"] else ""
    page.say(f"corpus {corpus['name']}{at}; sandbox {found['sandbox']}")


def _segment(page: Page, segment: dict[str, Any], log_format: str | None, *, running: bool, counts: bool) -> None:
    whole = segment["whole"]
    missing = "it has not ended" if running else "its end marker is missing"
    wall = missing if whole["wall_ns"] is None else f"{seconds(whole['wall_ns'])} s between its markers"
    page.gap()
    page.say(f"segment {segment['segment']}, condition {segment['condition']}: {wall}")
    segment_body(page, segment, log_format, counts=counts)


def segment_body(page: Page, segment: dict[str, Any], log_format: str | None, *, counts: bool = True) -> None:
    """Add what a segment's account says, below its header.

    `log_format` None: there is no log of a server; `counts` false: it has one, which tells no tokens of a request.
    """
    whole = segment["whole"]
    by_answers = f"the answers: {'there is no log' if log_format is None else 'the log has none of a request'}"
    rows = [("all", whole), *segment["agents"].items()]
    if segment["no_agent"]:
        rows.append(("not ours", segment["no_agent"]))
    page.table(
        f"Work, in tokens counted by {'the server log' if log_format is not None and counts else by_answers}",
        ("", "requests", "prompt", "= cached", "+ new prefill", "decoded", "without counts"),
        [
            (
                name,
                str(one["requests"]),
                _n(one["prompt_tokens"]) + ("" if _adds_up(one) else "*"),
                _n(one["cached_tokens"]),
                _n(one["new_prefill_tokens"]),
                _n(one["decoded_tokens"]),
                str(max(one["unknown"][column] for column in _COUNTED)),
            )
            for name, one in rows
        ],
    )
    odd = [one for _, one in rows if not _adds_up(one)]
    if odd:
        why = "of some requests not all three are known, and a column adds up what is known"
        if all(_more_cached(one) for one in odd):  # ds4 names where its cache stood
            why = "by the log, more was cached of some requests than their prompts have"
        page.say(f"* not cached + new prefill: {why}")
    for phase, doing in (("prefill", "prefilling"), ("decode", "decoding")):
        page.table(
            f"{phase.capitalize()}: busy while any request is {doing}; summed counts each by itself",
            ("", "busy s", "summed s", "summed/busy", f"{phase} tok/s", "share"),
            [
                (
                    name,
                    seconds(one[f"{phase}_union_ns"]),
                    seconds(one[f"{phase}_sum_ns"]),
                    _f(one[f"{phase}_double_counting"], 2),
                    _f(one[f"{phase}_tok_s"], 1) + ("*" if _leaves_out(one, phase) else ""),
                    percent(one[f"{phase}_share"]),
                )
                for name, one in rows
            ],
        )
        _left_out(page, phase, rows)
    _overlap(page, segment, log_format)
    _first_tokens(page, segment.get("first_token"))
    if segment["server_cpu_s"] is not None:
        page.say(
            f"server process: {segment['server_cpu_s']:.1f} CPU-s; everything else on this machine: "
            f"{segment['host_other_cpu_s']:.1f} CPU-s"
        )
    for line in (*memory_lines.of_segment(segment), *metrics_lines.of_segment(segment)):
        page.say(line)
    _contexts(page, segment)
    for what, names in (("begin", segment["straddles_begin"]), ("end", segment["straddles_end"])):
        if names:
            page.say(f"at work across the segment's {what}: {', '.join(names)}")


def _adds_up(one: dict[str, Any]) -> bool:
    prompt, parts = one["prompt_tokens"], (one["cached_tokens"], one["new_prefill_tokens"])
    return prompt is None or parts == (None, None) or (None not in parts and prompt == sum(parts))


def _more_cached(one: dict[str, Any]) -> bool:
    """Whether more is cached than the prompts have, with nothing unknown."""
    parts = one["prompt_tokens"], one["cached_tokens"], one["new_prefill_tokens"]
    told = None not in parts and not any(one["unknown"][column] for column in _COUNTED if column != "decoded_tokens")
    return told and parts[0] < parts[1] + parts[2]


def _leaves_out(one: dict[str, Any], phase: str) -> bool:
    return one.get(f"{phase}_left_out", 0) > 0 and one[f"{phase}_tok_s"] is not None


def _left_out(page: Page, phase: str, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
    parts = [
        f"{name} leaves out {one[f'{phase}_left_out']} of {one['requests']}, {_n(one[f'{phase}_speed_tokens'])} tokens "
        f"in {seconds(one[f'{phase}_speed_ns'])} s"
        for name, one in rows
        if _leaves_out(one, phase)
    ]
    if parts:
        page.say(f"* of the requests whose tokens and times are both known: {'; '.join(parts)}")


def _first_tokens(page: Page, found: dict[str, Any] | None) -> None:
    if found is None or found["whole"] is None:
        return
    rows = [("all", found["whole"]), *found["agents"].items()]
    page.table(
        "Time to first token, by the client's clock: network, queue and prefill",
        ("", "requests", "median s", "worst s", "worst request"),
        [
            (
                name,
                str(one["requests"]),
                seconds(one["median_ns"], 2),
                seconds(one["worst_ns"], 2),
                one["worst_request"],
            )
            for name, one in rows
            if one is not None
        ],
    )


# Of both, a decode interval is wall time from a request's first token to its last, whoever had the model in between.
_DECODE_WAITS: Final = {"llamacpp": "llama.cpp", "ds4": "ds4-server"}


def _overlap(page: Page, segment: dict[str, Any], log_format: str | None) -> None:
    whole = segment["whole"]
    if len(segment["agents"]) + (segment["no_agent"] is not None) < 2 and not whole["overlap"]:
        return  # nobody else was there: 0, and what samples say of it is an artefact of their width
    sampled = whole["sampled_overlap"]
    page.say(
        f"overlap: {percent(whole['overlap'])} of the prefill time another request was decoding"
        + ("" if sampled is None else f" (looked at every 15 s it would seem {percent(sampled)})")
    )
    if log_format in _DECODE_WAITS:
        page.say(f"  decode intervals of {_DECODE_WAITS[log_format]} include waiting while another request prefills")


def _contexts(page: Page, segment: dict[str, Any]) -> None:
    used = [one for one in segment["buckets"] if one["requests"]]
    if used:
        page.table(
            "By context, the tokens that stand before the prefill (empty ranges left out)",
            ("context tokens", "requests", "new prefill", "median tok/s", "busy s", "tok/s over busy"),
            [
                (
                    one["name"],
                    str(one["requests"]),
                    _n(one["new_prefill_tokens"]),
                    _f(one["median_tok_s"], 1),
                    seconds(one["prefill_union_ns"]),
                    _f(one["union_tok_s"], 1),
                )
                for one in used
            ],
        )
    if segment["unknown_context"]:
        page.say(f"requests of unknown context: {segment['unknown_context']}")


def _agents(page: Page, agents: Sequence[dict[str, Any]]) -> None:
    page.gap()
    page.table(
        "Agents: what they did",
        ("", "task", "ended", "requests", "tool calls", "repeated calls"),
        [
            (
                _who(one),
                one["task"] + (f" + {len(one['tasks']) - 1}" if one.get("tasks") else ""),
                one["end"] + (" (too little work)" if one["too_little_work"] else ""),
                str(one["requests"]),
                str(one["tool_calls"]),
                str(one["repeated_calls"]),
            )
            for one in agents
        ],
    )
    page.table(
        "Agents: what came of it (facts and files: found / those that the task is about)",
        ("", "context growth", "facts answered", "files opened", "started late s"),
        [
            (
                _who(one),
                _n(one["growth_tokens"]),
                *_found(one),
                seconds(one["start_late_ns"], 3),
            )
            for one in agents
        ],
    )
    chained = [(_who(one), task) for one in agents for task in one.get("tasks") or ()]
    if chained:
        page.table(
            "Chained tasks: one conversation an agent, whose limits they share",
            ("", "task", "ended", "requests", "tool calls", "facts", "files"),
            [
                (
                    who,
                    task["task"],
                    task["end"] or "not begun",
                    str(task["requests"]),
                    str(task["tool_calls"]),
                    *_found(task),
                )
                for who, task in chained
            ],
        )


def _found(one: dict[str, Any]) -> tuple[str, str]:
    """Return facts answered and files opened, of those that a task, or an agent's tasks, are about."""
    files = len(one["likely_opened"])
    return f"{len(one['facts_found'])}/{len(one['facts'])}", f"{files}/{files + len(one['likely_missed'])}"


def _who(one: dict[str, Any]) -> str:
    """Return an agent's name, behind that of its segment where a run has several."""
    return " ".join(filter(None, (one.get("segment"), one["agent"])))


def _work(page: Page, found: dict[str, Any]) -> None:
    work = found["work"]
    if found["status"] == "started":
        running = found.get("running", False)
        page.say(
            ("still running, so far: " if running else "the run was killed, its agents' outcomes are not known: ")
            + f"{work['requests']} requests ({work['failed_requests']} failed, {work['cut_requests']} cut off at the "
            f"end of an agent's time, {work['broken_off']} {'without an answer yet' if running else 'broken off'}), "
            f"{work['tool_calls']} tool calls"
        )
        return
    turns = work.get("tool_turns")
    turns = work["tool_calls"] if turns is None else turns
    parts = ("answers", "failed_requests", "cut_requests", "broken_off")
    called = work["requests"] - turns - sum(work[part] for part in parts)
    several = turns != work["tool_calls"]
    page.say(
        f"requests {work['requests']} = "
        + (f"turns with tool calls {turns} ({work['tool_calls']} calls)" if several else f"tool calls {turns}")
        + f" + answers {work['answers']}"
        + (f" (sent back as too early: {work['nudges']})" if work["nudges"] else "")
        + f" + failed {work['failed_requests']}"
        + (f" + cut off at the end of an agent's time {work['cut_requests']}" if work["cut_requests"] else "")
        + (f" + broken off {work['broken_off']}" if work["broken_off"] else "")
        + (f" + ended in a call instead of an answer {called}" if called else "")
    )
    if work["calls_not_run"]:
        page.say(
            f"tool calls not run: {work['calls_not_run']} (further calls of one answer, or calls instead of the final "
            "answer)"
        )


def _perhaps_ours(requests: dict[str, Any]) -> str:
    count = requests.get("perhaps_ours")  # an account of before has none
    return f", of which {count} perhaps ours" if count else ""


def _proof(page: Page, found: dict[str, Any], *, by_log: bool) -> None:
    lines, requests, clock = found["lines"], found["requests"], found["clock"]
    page.gap()
    if lines["format"] is not None:
        markers = "1 marker" if lines["markers"] == 1 else f"{lines['markers']} markers"
        page.say(
            f"log ({lines['format']}): {lines['total']} lines = {lines['understood']} understood + "
            f"{lines['ignored']} ignored on purpose + {markers} + {lines['unknown']} unknown"
        )
    page.say(
        f"requests matched {requests['matched']}/{requests['total']} (exact {requests['exact']}, "
        f"unique {requests['unique']}, ambiguous {requests['ambiguous']}, client only {requests['client_only']}, "
        f"server only {requests['server_only']}{_perhaps_ours(requests)})"
    )
    if outside := requests["outside_segments"]:
        page.say(
            "1 further request in the log lies outside our markers"
            if outside == 1
            else f"{outside:,} further requests in the log lie outside our markers"
        )
    if by_log:
        parts = [
            f"{name.removesuffix('_tokens')} {one['log']:,} / {one['usage']:,} (remainder {one['remainder']:,})"
            for name, one in found["usage_check"].items()
            if one["log"] is not None
        ]
        page.say(f"tokens by log / by usage: {'; '.join(parts) or 'no request has both'}")
    for one in found["settings"]:
        if one["verdict"] != "defaulted":
            page.say(
                f"setting {one['name']}: requested {shortened(one['requested'])}, in force "
                f"{NONE if one['applied'] is None else shortened(one['applied'])}: "
                f"{one['verdict']}{' by ' + one['source'] if one['source'] else ''}"
            )
    if clock["error_ns"] is not None:
        page.say(f"log times stand on the client's clock within {clock['error_ns'] / 1e6:.1f} ms")


def _n(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _f(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"
