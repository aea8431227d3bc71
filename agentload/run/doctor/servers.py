"""Is the server, with its log, one that a night can be spent on? Facts in, findings out."""

from typing import Final

from agentload.core.records import Timeline
from agentload.run.doctor import advice
from agentload.run.doctor.facts import LogSays, ServerSays
from agentload.run.doctor.finding import Finding, Level

_DATE_S: Final = 2.0  # a Date header has whole seconds
_WALL_S: Final = 3.0  # a line's stamp too, and it may be written late
_HALF_HOUR_S: Final = 1800.0  # zones differ by multiples of 15 minutes, nearly all of 30
_LEAST_CONTEXT: Final = 4096  # a first prompt of 1,100 tokens, six calls with short results, two answers
_UNKNOWN_SHARE: Final = 0.05
# Settings as each server's log states them.
_SLOT_NAMES: Final = ("resident_sessions", "n_slots", "max_num_seqs", "max_running_requests")
_CONTEXT_NAMES: Final = ("ctx", "n_ctx_slot", "max_model_len", "context_length")


def software(says: ServerSays) -> Finding:
    """Which kind of server it is."""
    if says.simulated:
        return Finding("software", Level.NOTE, f"the simulated ds4-server ({says.by}): no machine is measured")
    if says.software is not None:
        return Finding("software", Level.OK, f"{says.software} ({says.by})")
    what = "its settings cannot be proven by its API: name it (a scenario's server.software), or give --server-log"
    return Finding("software", Level.NOTE, "of no known kind", what)


def log_format(log: LogSays | None) -> Finding:
    """Whether there is a log that can be read."""
    if log is None:
        what = "give --server-log FILE: then prefill and decode times are the server's own, and settings are proven"
        return Finding(
            "log", Level.WARN, "none is given: times would be the client's alone, queue and network included", what
        )
    lines = log.lines
    counts = f"{lines.understood} lines understood, {lines.ignored} known and not needed, {lines.unknown} unknown"
    if log.format is None:
        what = f"known formats are {', '.join(log.known)}; name one with --log-format, or leave --server-log out"
        what = log.why_unknown or what
        return Finding("log", Level.FAIL, f"{log.path}: of no known format, {lines.total} lines", what)
    named = f"{log.format}: {counts}"
    if lines.unknown > max(5.0, _UNKNOWN_SHARE * lines.total):
        example = f", such as {lines.examples[0][1][:80]!r}" if lines.examples else ""
        what = log.why_unknown or "is it the log of that server alone, and of a version that is known?"
        return Finding("log", Level.WARN, named + example, what)
    return Finding("log", Level.OK, named)


def log_follows(log: LogSays) -> Finding:
    """Whether it is the log of the server that answers."""
    if log.ours and not log.grew_bytes:
        found = f"{log.path} did not grow while {log.ours} requests of ours were answered"
        what = "give the file that this server writes now"
        if not log.counts:  # such a server may write nothing of a request
            return Finding("log-follows", Level.WARN, f"{found}: is it another server's?", what)
        return Finding("log-follows", Level.FAIL, f"{found}: it is another server's", what)
    if not log.ours:
        return Finding("log-follows", Level.NOTE, "no request of ours has counts to look for in it")
    if log.format is None or not log.shows_requests:
        found = f"grew by {log.grew_bytes:,} bytes with our requests"
        what = "such a log tells of no single request: tokens come from the answers"
        return Finding("log-follows", Level.NOTE, found, "" if log.format is None else what)
    by = "by their token counts" if log.counts else "by the ids of their answers"
    if log.found < log.ours:
        found = f"has {log.found} of our {log.ours} requests, {by}"
        if not log.found:
            return Finding("log-follows", Level.FAIL, found, "is it this server's log, and is --log-format right?")
        return Finding("log-follows", Level.WARN, found, "some requests would be counted from the client's side alone")
    return Finding("log-follows", Level.OK, f"has all {log.ours} requests of ours, {by}")


def markers(log: LogSays) -> Finding:
    """Whether segment markers may go into the log."""
    if log.owned:
        return Finding("markers", Level.OK, "the server's output comes through a pipe: markers stand between its lines")
    if log.refusal is None:
        return Finding("markers", Level.OK, "the server opened its log with O_APPEND: markers go into it")
    what = "nothing is lost: they stand in markers.jsonl, with the log's size at that moment"
    return Finding("markers", Level.NOTE, f"not in the log: {log.refusal}", what)


def clock(log: LogSays | None, says: ServerSays | None) -> Finding:
    """Whether the server's times can be laid over ours."""
    parts, level, what = [], Level.OK, ""
    if log is not None and log.timeline is Timeline.UNIX:
        parts.append("each log line is stamped when it comes")
    elif log is not None and log.clock_error_ns is not None:
        parts.append(f"the log's times are aligned by our requests to {log.clock_error_ns / 1e9:.2f} s")
    elif log is not None and log.format is not None:
        parts.append("the log's times could not be aligned with our requests")
        level, what = Level.WARN, "none of ours is in it by counts that no other request has: see `log-follows`"
    if log is not None and log.wall_ahead_s is not None:
        zone_s = round(log.wall_ahead_s / _HALF_HOUR_S) * _HALF_HOUR_S
        off_s = log.wall_ahead_s - zone_s
        parts.append(
            f"its stamps are UTC{zone_s / 3600:+g} h and {abs(off_s):.0f} s {_way(off_s)} this machine's clock"
        )
        if abs(off_s) > _WALL_S:
            level, what = (
                Level.WARN,
                "a steady difference is made good; set both clocks by NTP, so that it stays steady",
            )
        if zone_s:
            what = what or "TZ=UTC in the server's environment keeps summer time out of a night's log"
            level = Level.NOTE if level is Level.OK else level
    if says is not None and says.date_ahead_s is not None:
        parts.append(
            f"its Date header is {abs(says.date_ahead_s):.0f} s {_way(says.date_ahead_s)} this machine's clock"
        )
        if abs(says.date_ahead_s) > _DATE_S:
            level, what = Level.WARN, "set both clocks by NTP (timedatectl set-ntp true)"
    if not parts:
        return Finding("clock", Level.NOTE, "neither a log nor a Date header tells the server's clock")
    return Finding("clock", level, "; ".join(parts), what)


def _way(seconds: float) -> str:
    return "ahead of" if seconds > 0 else "behind"


def busy(says: ServerSays | None, log: LogSays | None) -> Finding:
    """Whether somebody else uses the server."""
    parts, other = [], False
    if says is not None and says.busy_by:
        counts = [(says.processing, "at work"), (says.waiting, "waiting")]
        told = [f"{count} {word}" for count, word in counts if count is not None]
        parts.append(f"{says.busy_by} before ours: {', '.join(told)}")
        other = bool(says.processing) or bool(says.waiting)
    if log is not None and log.silent_s:
        parts.append(f"log grew by {log.grew_silent_bytes:,} bytes in {log.silent_s:.1f} s in which we asked nothing")
        other = other or log.grew_silent_bytes > 0
    if log is not None and log.owned:
        parts.append("it was started for this visit")
    elif log is not None and log.format is not None and log.shows_requests:
        parts.append(f"log has {log.others} requests beside ours")
        other = other or log.others > 0
    if other:
        what = "other clients share the server: their work would be measured with ours; send them away for the night"
        return Finding("busy", Level.WARN, "; ".join(parts), what)
    if not parts:
        what = advice.metrics(None if says is None else says.software)
        return Finding("busy", Level.NOTE, "nothing tells whether others use it", what or "give --server-log")
    return Finding("busy", Level.OK, "; ".join(parts))


def slots(says: ServerSays, log: LogSays | None, agents: int) -> Finding:
    """Whether each agent has a place for its context."""
    count, by = says.slots, says.slots_by
    if count is None and log is not None:
        for name in _SLOT_NAMES:
            if isinstance(value := log.settings.get(name), int):
                count, by = value, f"log: {name}"
    if count is None:
        what = f"there should be {agents}: {advice.slots(says.software, agents)}"
        return Finding("slots", Level.NOTE, f"how many requests it takes at once is not told; {agents} agents", what)
    found = f"{count} for {agents} agents ({by})"
    if count < agents:
        theft = f"{found}: agents wait for a slot, and take each other's context out of it (slot theft)"
        return Finding("slots", Level.WARN, theft, f"{advice.slots(says.software, agents)}; or use --agents {count}")
    if says.software == "llamacpp":
        what = "look at cached tokens; --cache-ram above 0 brings back what was taken"
        theft = "an idle slot goes to whoever's prompt begins alike (-sps 0.1), as all agents' prompts do"
        return Finding("slots", Level.NOTE, f"{found}; {theft}", what)
    if says.software in ("ds4", "twin"):
        theft = "a new conversation takes the idle slot whose beginning it shares, before an empty one"
        return Finding(
            "slots",
            Level.NOTE,
            f"{found}; {theft}",
            "start agents close together (--stagger), or with a slot each busy",
        )
    return Finding("slots", Level.OK, found)


def context(says: ServerSays, log: LogSays | None, needed_tokens: int) -> Finding:
    """Whether an agent's context fits."""
    tokens, by = says.context_tokens, says.context_by
    if tokens is None and log is not None:
        for name in _CONTEXT_NAMES:
            if isinstance(value := log.settings.get(name), int):
                tokens, by = value, f"log: {name}"
    if tokens is None:
        what = "a request that does not fit ends its agent: know what the server has, and give --context"
        return Finding("context", Level.NOTE, f"not told; agents may use {needed_tokens:,} tokens", what)
    found = f"{tokens:,} tokens for a request ({by}), agents may use {needed_tokens:,}"
    if tokens >= needed_tokens:
        return Finding("context", Level.OK, found)
    what = advice.context(says.software, needed_tokens)
    if tokens < _LEAST_CONTEXT:
        return Finding("context", Level.FAIL, f"{found}: not even a short task fits", what)
    what += f"; or run with --context {tokens}"
    return Finding("context", Level.WARN, f"{found}: an agent that comes so far fails", what)
