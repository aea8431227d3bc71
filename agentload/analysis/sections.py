"""How does each part of account.json follow from facts and joined requests?

Plain functions, each one part; a part takes what it needs and no more, so that a log alone can be accounted for too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from agentload.analysis import memory
from agentload.analysis.evidence import Evidence
from agentload.core.accounting import Bucket, MatchCounts, SegmentAccount, Totals, Unknown
from agentload.core.attribution import Attribution
from agentload.core.first_tokens import first_tokens
from agentload.core.records import (
    CUT_OFF,
    Applied,
    Doubt,
    LogFacts,
    Marker,
    Match,
    Proof,
    Request,
    Segment,
    Source,
    Verdict,
)
from agentload.core.segments import lies_outside

_BLOCK: Final = 1 << 20


def setting_doubts(settings: Sequence[Applied]) -> list[Doubt]:
    """Settings that are not in force as they were asked for, or were given twice."""
    advice = {
        Verdict.MISMATCH: "nothing measured here is about the value that was asked for",
        Verdict.DUPLICATE: "give it once: the last one wins without a word",
    }
    return [
        Doubt(
            f"setting-{one.verdict.value}",
            f"{one.name}: {one.requested} was asked for, in force is {one.applied} ({one.source or 'not stated'})",
            advice[one.verdict],
        )
        for one in settings
        if one.verdict in advice
    ]


def lines(facts: LogFacts | None) -> dict[str, Any]:
    """How many lines the log has, and of which kinds; format null when there is no log, or none we can read."""
    if facts is None:
        return {"format": None, "understood": 0, "ignored": 0, "unknown": 0, "markers": 0, "total": 0, "examples": []}
    count = facts.lines
    return {
        "format": facts.format,
        "understood": count.understood,
        "ignored": count.ignored,
        "unknown": count.unknown,
        "markers": count.markers,
        "total": count.total,
        "counts_requests": facts.counts_requests,
        "examples": [{"line": proof.line, "offset": proof.offset, "text": what} for proof, what in count.examples],
    }


def requests(joined: Attribution, segments: Sequence[Segment]) -> dict[str, Any]:
    """How many requests were joined in which way: the run's own, and what others sent inside its `segments`.

    Requests of the log that lie outside every segment are nobody's concern here (an attached server's log may be weeks
    old): they are counted as `outside_segments` and nowhere else. `perhaps_ours`: so many of `server_only` may be ours.
    """
    kinds = Counter(one.match for one in joined.requests if not lies_outside(one, segments))
    total = kinds.total()
    return {
        "total": total,
        "matched": kinds[Match.EXACT] + kinds[Match.UNIQUE],
        **{match.value: kinds[match] for match in Match},
        "outside_segments": len(joined.requests) - total,
        "perhaps_ours": sum(joined.perhaps_ours.values()),
        "groups": [asdict(group) for group in joined.groups],
    }


def usage_check(rows: Sequence[Request]) -> dict[str, Any]:
    """The log's totals beside the answers' usage, over the requests that have both; the remainder is never hidden.

    Where none has both there is nothing to compare: `log` and what follows from it is null, `usage` is what the answers
    say all together. A row that the log does not have holds the answer's counts, which are not the log's.
    """
    logged = [one for one in rows if one.label is not None]
    # Where the log does not tell the cached tokens, they and the prompt may come from the answer's timings.
    whole = [one for one in logged if one.cached_source is not Source.USAGE]
    pairs = {
        "prompt_tokens": [(one.prompt_tokens, one.usage_prompt_tokens) for one in whole],
        "cached_tokens": [(one.cached_tokens, one.usage_cached_tokens) for one in whole],
        "decoded_tokens": [(one.decoded_tokens, one.usage_completion_tokens) for one in logged if not _by_answer(one)],
    }
    answered = {
        "prompt_tokens": [one.usage_prompt_tokens for one in rows],
        "cached_tokens": [one.usage_cached_tokens for one in rows],
        "decoded_tokens": [one.usage_completion_tokens for one in rows],
    }
    check: dict[str, Any] = {}
    for name, both in pairs.items():
        known = [(log, usage) for log, usage in both if log is not None and usage is not None]
        told = [usage for usage in answered[name] if usage is not None]
        check[name] = {"requests": len(known), "log": None, "usage": sum(told) if told else None} | {
            "remainder": None,
            "differing_requests": None,
        }
        if known:
            check[name] |= {
                "log": sum(log for log, _ in known),
                "usage": sum(usage for _, usage in known),
                "remainder": sum(log - usage for log, usage in known),
                "differing_requests": sum(log != usage for log, usage in known),
            }
    return check


def _by_answer(row: Request) -> bool:
    """Whether the log has the request and none of its counts, so that those of the row are the answer's."""
    sources = {row.prefill_source, row.decode_source}
    timed = bool(sources & {Source.CLIENT, Source.SPANS}) and Source.LOG not in sources
    return row.cached_source is Source.USAGE and timed


_COUNTS: Final = (
    *("requests", "tool_calls", "answers", "nudges", "failed_requests", "cut_requests"),
    *("calls_not_run", "failed_calls", "repeated_calls"),
)


def work(evidence: Evidence) -> dict[str, int | None]:
    """Requests, tool calls and answers: requests = tool turns + answers + failed + cut off + broken off + the others.

    In a tool turn one call is run, or several of one answer where that was asked for. The others ended in a tool call
    where an answer was asked for. Cut off is at the end of an agent's wall time, broken off at that of the run.
    A run that was killed has no outcomes: what its events count is taken, the rest is null.
    """
    broken_off = len(evidence.unanswered)
    if evidence.manifest.status == "started":
        errors = [one.error for one in evidence.completions if one.error is not None]
        cut = sum(one.startswith(CUT_OFF) for one in errors)
        known = {
            "requests": len(evidence.completions),
            "tool_calls": len(evidence.tools),
            "failed_requests": len(errors) - cut - broken_off,
            "cut_requests": cut,
        }
        return {name: known.get(name) for name in _COUNTS} | {"tool_turns": None, "broken_off": broken_off}
    agents = evidence.manifest.agents
    counts: dict[str, int | None] = {name: sum(int(one.get(name) or 0) for one in agents) for name in _COUNTS}
    turns = sum(int(one["tool_calls"] if one.get("tool_turns") is None else one["tool_turns"]) for one in agents)
    return counts | {"tool_turns": turns, "broken_off": broken_off}


def agent(one: dict[str, Any], evidence: Evidence) -> dict[str, Any]:
    """One agent of the manifest, with how late it started and whether it worked enough; its answers' texts stay out."""
    kept = {name: value for name, value in one.items() if name != "answer"}
    if "tasks" in kept:
        kept["tasks"] = [{name: value for name, value in task.items() if name != "answer"} for task in kept["tasks"]]
    planned, started = _planned_and_started(one, evidence)
    late = None if planned is None or started is None else started - planned
    limits = evidence.manifest.scenario.get("limits") or {}
    growth = one.get("growth_tokens")
    enough = one["tool_calls"] >= limits.get("min_tool_calls", 0) and (
        growth is None or growth >= limits.get("min_growth_tokens", 0)
    )
    first = [
        done.t_sent
        for done in evidence.completions
        if done.agent == one["agent"]
        and done.turn == 0
        and (planned is None or "segment" not in one or done.t_sent >= planned)
    ]
    return kept | {
        "start_late_ns": late,
        "t_first_request": first[0] if first else None,
        "too_little_work": not enough,
    }


def _planned_and_started(one: dict[str, Any], evidence: Evidence) -> tuple[int | None, int | None]:
    """When an agent was to start and did; in a run of several segments its name comes in each, with its times."""
    if "segment" in one:
        return one.get("planned"), one.get("started")
    return evidence.agents_started.get(one["agent"], (None, None))


_SAID: Final = {
    Source.LOG: "the server's log",
    Source.SPANS: "OTLP spans",
    Source.EXPORT: "SGLang's export file",
    Source.USAGE: "fields of the answers",
    Source.METRICS: "/metrics",
    Source.CLIENT: "the client's clock",
}


def phases(rows: Sequence[Request], segment: Segment, *, counters: bool) -> dict[str, Any]:
    """Where the times of prefill and decode in `segment` are from: requests by source, and in words.

    `counters`: the server's /metrics have sums beside them, of all requests together.
    """
    ours = [one for one in rows if (one.run, one.segment) == (segment.run, segment.segment)]
    found = {
        "prefill": Counter(one.prefill_source for one in ours if one.prefill_source is not None),
        "decode": Counter(one.decode_source for one in ours if one.decode_source is not None),
    }
    used = [source for source in Source if found["prefill"][source] or found["decode"][source]]
    words = [_SAID[source] for source in used]
    if counters and {Source.LOG, Source.SPANS, Source.EXPORT}.isdisjoint(used):
        words.append("sums of /metrics beside them")
    by_name = {
        name: {source.value: counts[source] for source in used if counts[source]} for name, counts in found.items()
    }
    return {**by_name, "said": ", ".join(words) or None}


def waits(rows: Sequence[Request], segment: Segment) -> dict[str, Any]:
    """Time to first token of the agents' requests in `segment`: of all, and of each agent; null where none got one."""
    ours = [one for one in rows if (one.run, one.segment) == (segment.run, segment.segment) and one.agent is not None]
    found = {
        "whole": first_tokens(ours),
        **{name: first_tokens(one for one in ours if one.agent == name) for name in _agents_of(ours)},
    }
    shown = {name: None if one is None else asdict(one) for name, one in found.items()}
    return {"whole": shown.pop("whole"), "agents": shown}


def _agents_of(rows: Sequence[Request]) -> list[str]:
    return sorted({one.agent for one in rows if one.agent is not None})


def segment(part: SegmentAccount, samples: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """One segment: its sums, and the CPU seconds between the samples at its begin and its end where there are such.

    `host_other_cpu_s` is what everything else on the machine used, `sampled_ns` the time between the two samples.
    """
    ends = [one for one in samples if one["where"] in ("begin", "end") and one["cpu_s"] is not None]
    cpu = ends[-1]["cpu_s"] - ends[0]["cpu_s"] if len(ends) > 1 else None
    others = None if cpu is None else ends[-1]["host_busy_s"] - ends[0]["host_busy_s"] - cpu
    return {
        **_fields(part.segment),
        "whole": _totals(part.whole),
        "agents": {name: _totals(totals) for name, totals in part.agents.items()},
        "no_agent": None if part.no_agent is None else _totals(part.no_agent),
        "buckets": [_fields(bucket) for bucket in part.buckets],
        "unknown_context": part.unknown_context,
        "straddles_begin": list(part.straddles_begin),
        "straddles_end": list(part.straddles_end),
        "server_cpu_s": cpu,
        "host_other_cpu_s": others,
        "sampled_ns": None if cpu is None else ends[-1]["t"] - ends[0]["t"],
        "memory": memory.segment(samples),
    }


def _totals(one: Totals) -> dict[str, Any]:
    return _fields(one) | {"matches": _fields(one.matches), "unknown": _fields(one.unknown)}


def _fields(one: Segment | Totals | Bucket | MatchCounts | Unknown) -> dict[str, Any]:
    """`asdict` of what holds plain values: that copies each of them, a quarter of the account of 12,000 segments."""
    return {each.name: getattr(one, each.name) for each in fields(one)}


def samples_of(
    part: Segment, segments: Sequence[Segment], samples: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return the samples that were taken between the markers of `part`; of a run's only segment all of them."""
    if len(segments) == 1:
        return samples
    return [one for one in samples if part.begin_ns <= one["t"] and (part.end_ns is None or one["t"] <= part.end_ns)]


def starts_between(facts: LogFacts, markers: Sequence[Marker], log: Path) -> list[int]:
    """Return the lines of the log at which a server starts between the first marker and the last one.

    A marker in the log has a line; of one beside it the bytes are known that stood in the log when it was written.
    """
    if len(facts.boots) < 2:
        return []
    in_log = {(one.action, one.segment, one.run, one.at_ns): one.proof for one in facts.markers}
    lines = []
    for one in markers:
        proof = one.proof or in_log.get((one.action, one.segment, one.run, one.at_ns))
        if proof is not None:
            lines.append(proof.line)
        elif one.log_offset is not None:
            lines.append(_lines_before(log, one.log_offset))
    if not lines:
        return []
    return [boot.first_line for boot in facts.boots if min(lines) < boot.first_line <= max(lines)]


def _lines_before(log: Path, offset: int) -> int:
    counted = 0
    with log.open("rb") as file:
        while offset > 0 and (data := file.read(min(offset, _BLOCK))):
            counted += data.count(b"\n")
            offset -= len(data)
    return counted


def suspect(one: tuple[int, Proof, str]) -> dict[str, Any]:
    """One suspect line of the log: when, where, why."""
    at, proof, why = one
    return {"t": at, "line": proof.line, "offset": proof.offset, "why": why}


def clock(facts: LogFacts | None, anchors: Mapping[str, Any], pause_ns: int | None) -> dict[str, Any]:
    """On which clocks the times stand. `anchors`: the client's; `pause_ns`: the pump's worst, null without a pump."""
    error = None if facts is None else facts.clock_error_ns
    return {
        **anchors,
        "log_timeline": None if facts is None else facts.timeline.value,
        "log_resolution_ns": None if facts is None else facts.resolution_ns,
        "log_alignment_error_ns": error,
        "pump_worst_pause_ns": pause_ns,
        # A line may wait for one pause of the pump before it is stamped.
        "error_ns": None if error is None else error + (pause_ns or 0),
    }


def segment_rows(segments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of segments.parquet: of each of account.json's segments its whole, its agents and its context buckets."""
    rows: list[dict[str, Any]] = []
    for part in segments:
        named = [("whole", "", part["whole"]), *(("agent", name, one) for name, one in part["agents"].items())]
        named += [("bucket", one["name"], one) for one in part["buckets"]]
        rows += [
            {
                **{key: value for key, value in one.items() if key != "name"},
                **{known: part[known] for known in ("run", "segment", "condition", "begin_ns", "end_ns")},
                "scope": scope,
                "name": name,
            }
            for scope, name, one in named
        ]
    return rows
