"""What does a run amount to? Raw files into derived/: the same bytes each time, nothing but the raw files read."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from agentload.analysis import evidence as raw
from agentload.analysis import tables
from agentload.artifacts import jsonlines, rundir, schemas
from agentload.artifacts.rundir import RunDir, write_atomically
from agentload.core import accounting, clocks
from agentload.core.attribution import Attribution, attribute
from agentload.core.records import Applied, Doubt, LogFacts, Match, Request, Timeline, Verdict
from agentload.core.segments import segments_of
from agentload.errors import ArtifactError
from agentload.serverlogs import formats
from agentload.servers.settings import compare


def account(path: Path) -> dict[str, Any]:
    """Make derived/ of the run at `path` anew and return account.json's content.

    Raises:
        InputError: it is no run directory, or its log cannot be read.
        ArtifactError: a raw file does not follow its schema, or derived/ cannot be written.
    """
    run = rundir.find(path)
    evidence = raw.read(run)
    doubts = [Doubt(**one) for one in evidence.manifest.doubts]
    if jsonlines.is_torn(run.events_path):
        doubts.append(
            Doubt(
                "torn-events", "the last event was cut off and is left out", "the run was killed, or its disk was full"
            )
        )
    facts = _facts(run, evidence, doubts)
    # Markers in the log are the same ones; markers.jsonl has them always, so it is the one that is read.
    segments, marker_doubts = segments_of(evidence.markers)
    joined = attribute(evidence.manifest.run, evidence.completions, facts, segments)
    doubts += [*marker_doubts, *joined.doubts]
    settings = compare(facts.format, evidence.manifest.server.get("argv") or (), facts.settings) if facts else ()
    doubts += _setting_doubts(settings)
    parts = [accounting.account_segment(joined.requests, segment) for segment in segments]
    found: dict[str, Any] = {
        "schema": schemas.ACCOUNT,
        "run": evidence.manifest.run,
        "status": evidence.manifest.status,
        "why": evidence.manifest.why,
        "simulated": evidence.manifest.simulated,
        "server": {
            name: evidence.manifest.server.get(name) for name in ("kind", "base_url", "model", "argv", "markers")
        },
        "corpus": evidence.manifest.corpus,
        "sandbox": evidence.manifest.sandbox,
        "lines": _lines(facts),
        "requests": _requests(joined),
        "usage_check": _usage_check(joined.requests),
        "work": _work(evidence),
        "agents": [_agent(one, evidence) for one in evidence.manifest.agents],
        "segments": [_segment(part, evidence) for part in parts],
        "settings": [asdict(one) for one in settings],
        "suspects": [] if facts is None else [_suspect(one) for one in facts.suspects],
        "clock": _clock(facts, evidence),
        "doubts": [asdict(one) for one in doubts],
    }
    _write(run, joined, evidence, found)
    return found


def load(path: Path) -> dict[str, Any]:
    """Return account.json of the run at `path`; the account is made first where it is missing.

    Raises:
        InputError, ArtifactError: as `account`.
    """
    run = rundir.find(path)
    target = run.derived / "account.json"
    if not target.is_file():
        return account(path)
    try:
        found = json.loads(target.read_bytes())
    except ValueError as error:
        raise ArtifactError(f"{target}: expected JSON: {error}; delete derived/ to have it made anew") from error
    if not isinstance(found, dict) or found.get("schema") != schemas.ACCOUNT:
        raise ArtifactError(f"{target}: expected schema {schemas.ACCOUNT}; delete derived/ to have it made anew")
    return found


def text(found: dict[str, Any]) -> str:
    """account.json as it stands on disk."""
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _facts(run: RunDir, evidence: raw.Evidence, doubts: list[Doubt]) -> LogFacts | None:
    if not run.server_log.is_file():
        doubts.append(
            Doubt(
                "no-server-log",
                "there is no server log: every time below is the client's, a window of network, queue and work",
                "give the server's log with --server-log, or let agentload start it with --launch",
            )
        )
        return None
    facts = raw.read_log(run.server_log, run.server_times, evidence.manifest.server.get("log_format"))
    if facts is None:
        doubts.append(
            Doubt(
                "log-format-unknown",
                f"no line of server.log ({run.server_log.stat().st_size} bytes) is of a known format: every time below "
                "is the client's, a window of network, queue and work",
                f"known are {', '.join(formats.installed())}; see that the server logs each request there",
            )
        )
        return None
    doubts += [*facts.doubts, *raw.check_markers(evidence, facts)]
    if facts.timeline is Timeline.PROCESS:
        before = len(facts.doubts)
        facts = clocks.align(facts, evidence.completions)
        doubts += facts.doubts[before:]
    return facts


def _setting_doubts(settings: tuple[Applied, ...]) -> list[Doubt]:
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


def _lines(facts: LogFacts | None) -> dict[str, Any]:
    if facts is None:
        return {"format": None, "understood": 0, "ignored": 0, "unknown": 0, "markers": 0, "total": 0, "examples": []}
    lines = facts.lines
    return {
        "format": facts.format,
        "understood": lines.understood,
        "ignored": lines.ignored,
        "unknown": lines.unknown,
        "markers": lines.markers,
        "total": lines.total,
        "examples": [{"line": proof.line, "offset": proof.offset, "text": what} for proof, what in lines.examples],
    }


def _requests(joined: Attribution) -> dict[str, Any]:
    counts = joined.counts
    exact, unique = counts.get(Match.EXACT, 0), counts.get(Match.UNIQUE, 0)
    return {
        "total": len(joined.requests),
        "matched": exact + unique,
        "exact": exact,
        "unique": unique,
        "ambiguous": counts.get(Match.AMBIGUOUS, 0),
        "client_only": counts.get(Match.CLIENT_ONLY, 0),
        "server_only": counts.get(Match.SERVER_ONLY, 0),
        "groups": [asdict(group) for group in joined.groups],
    }


def _usage_check(requests: tuple[Request, ...]) -> dict[str, Any]:
    """The log's totals beside the answers' usage, over the requests that have both; the remainder is never hidden."""
    pairs = {
        "prompt_tokens": [(one.prompt_tokens, one.usage_prompt_tokens) for one in requests],
        "cached_tokens": [(one.cached_tokens, one.usage_cached_tokens) for one in requests],
        "decoded_tokens": [(one.decoded_tokens, one.usage_completion_tokens) for one in requests],
    }
    check: dict[str, Any] = {}
    for name, both in pairs.items():
        known = [(log, usage) for log, usage in both if log is not None and usage is not None]
        check[name] = {
            "requests": len(known),
            "log": sum(log for log, _ in known),
            "usage": sum(usage for _, usage in known),
            "remainder": sum(log - usage for log, usage in known),
            "differing_requests": sum(log != usage for log, usage in known),
        }
    return check


_COUNTS: Final = (
    *("requests", "tool_calls", "answers", "nudges", "failed_requests", "calls_not_run", "failed_calls"),
    "repeated_calls",
)


def _work(evidence: raw.Evidence) -> dict[str, int | None]:
    """Requests, tool calls and answers: requests = tool calls + answers + failed + broken off + calls as an answer.

    A run that was killed has no outcomes: what its events count is taken, the rest is null.
    """
    broken_off = len(evidence.unanswered)
    if evidence.manifest.status == "started":
        sent = evidence.completions
        known = {
            "requests": len(sent),
            "tool_calls": len(evidence.tools),
            "failed_requests": sum(one.error is not None for one in sent) - broken_off,
        }
        return {name: known.get(name) for name in _COUNTS} | {"broken_off": broken_off}
    agents = evidence.manifest.agents
    counts: dict[str, int | None] = {name: sum(int(one.get(name) or 0) for one in agents) for name in _COUNTS}
    return counts | {"broken_off": broken_off}


def _agent(one: dict[str, Any], evidence: raw.Evidence) -> dict[str, Any]:
    kept = {name: value for name, value in one.items() if name != "answer"}
    planned, started = evidence.agents_started.get(one["agent"], (None, None))
    late = None if planned is None or started is None else started - planned
    limits = evidence.manifest.scenario.get("limits") or {}
    growth = one.get("growth_tokens")
    enough = one["tool_calls"] >= limits.get("min_tool_calls", 0) and (
        growth is None or growth >= limits.get("min_growth_tokens", 0)
    )
    first = [done.t_sent for done in evidence.completions if done.agent == one["agent"] and done.turn == 0]
    return kept | {
        "start_late_ns": late,
        "t_first_request": first[0] if first else None,
        "too_little_work": not enough,
    }


def _segment(part: accounting.SegmentAccount, evidence: raw.Evidence) -> dict[str, Any]:
    segment = part.segment
    inside = [one for one in evidence.samples if one["where"] in ("begin", "end")]
    cpu = inside[-1]["cpu_s"] - inside[0]["cpu_s"] if len(inside) > 1 else None
    others = inside[-1]["host_busy_s"] - inside[0]["host_busy_s"] - cpu if cpu is not None else None
    return {
        **asdict(segment),
        "whole": asdict(part.whole),
        "agents": {name: asdict(totals) for name, totals in part.agents.items()},
        "no_agent": None if part.no_agent is None else asdict(part.no_agent),
        "buckets": [asdict(bucket) for bucket in part.buckets],
        "unknown_context": part.unknown_context,
        "straddles_begin": list(part.straddles_begin),
        "straddles_end": list(part.straddles_end),
        "server_cpu_s": cpu,
        "host_other_cpu_s": others,
    }


def _suspect(one: tuple[int, Any, str]) -> dict[str, Any]:
    at, proof, why = one
    return {"t": at, "line": proof.line, "offset": proof.offset, "why": why}


def _clock(facts: LogFacts | None, evidence: raw.Evidence) -> dict[str, Any]:
    pause = evidence.manifest.server.get("pump_worst_pause_ns")
    error = None if facts is None else facts.clock_error_ns
    return {
        **evidence.manifest.clock,
        "log_timeline": None if facts is None else facts.timeline.value,
        "log_resolution_ns": None if facts is None else facts.resolution_ns,
        "log_alignment_error_ns": error,
        "pump_worst_pause_ns": pause,
        # A line may wait for one pause of the pump before it is stamped.
        "error_ns": None if error is None else error + (pause or 0),
    }


def _write(run: RunDir, joined: Attribution, evidence: raw.Evidence, found: dict[str, Any]) -> None:
    made = run.derived.with_name(".derived.tmp")
    try:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        tables.write(made, "requests", tables.requests_table(joined.requests))
        tables.write(made, "phases", tables.phases_table(joined.requests, evidence))
        tables.write(made, "segments", tables.segments_table(_segment_rows(found)))
        tables.write(made, "samples", tables.samples_table(evidence.samples))
        write_atomically(made / "account.json", text(found).encode())
        shutil.rmtree(run.derived, ignore_errors=True)
        made.rename(run.derived)
    except OSError as error:
        raise ArtifactError(f"{run.derived}: cannot be made: {error.strerror}") from error


def _segment_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for segment in found["segments"]:
        named = [("whole", "", segment["whole"]), *(("agent", name, one) for name, one in segment["agents"].items())]
        named += [("bucket", one["name"], one) for one in segment["buckets"]]
        rows += [
            {
                **{key: value for key, value in one.items() if key != "name"},
                "segment": segment["segment"],
                "scope": scope,
                "name": name,
            }
            for scope, name, one in named
        ]
    return rows
