"""What does a run amount to? Raw files into derived/: the same bytes each time, nothing but the raw files read."""

import mmap
import stat
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentload.analysis import (
    accountfile,
    checks,
    endings,
    memory,
    metrics_deltas,
    probe,
    probe_doubts,
    probe_published,
    sections,
    spans,
    statistics,
    tables,
)
from agentload.analysis import evidence as raw
from agentload.artifacts import derived, rundir, schemas
from agentload.artifacts.rundir import RunDir
from agentload.artifacts.table_schemas import TABLES
from agentload.core import accounting, clocks
from agentload.core.attribution import Attribution, attribute
from agentload.core.records import Doubt, LogFacts, Segment
from agentload.core.segments import segments_of
from agentload.errors import ArtifactError
from agentload.serverlogs import formats, simulated, unknown, wrapped
from agentload.servers.settings import compare
from agentload.shown import in_shell

text = accountfile.text
write = accountfile.write
exit_code = checks.exit_code


def account(path: Path) -> dict[str, Any]:
    """Make derived/ of the run at `path` anew and return account.json's content.

    Raises:
        InputError: it is no run directory, or its log cannot be read.
        ArtifactError: a raw file does not follow its schema, or derived/ cannot be written.
    """
    run = rundir.find(path)
    evidence = raw.read(run)
    if not evidence.running:
        with suppress(OSError):  # of a run that may only be read
            run.reserve.unlink(missing_ok=True)  # its writer was killed
    manifest = evidence.manifest
    doubts = [*(Doubt(**one) for one in manifest.doubts), *evidence.doubts]
    read = _log(run, evidence, doubts)
    facts = None if read is None or read.format == unknown.NAME else read
    # Markers in the log are the same ones; markers.jsonl has them always, so it is the one that is read.
    markers = evidence.markers
    if not markers and read is not None:
        markers = tuple(one for one in read.markers if one.run == manifest.run)
    segments, marker_doubts = segments_of(markers)
    if evidence.running:
        marker_doubts = tuple(one for one in marker_doubts if one.code != "segment-without-end")
        doubts.append(checks.still_running())
    doubts += marker_doubts
    if not segments and evidence.completions:
        doubts.append(
            Doubt("no-segment", "no marker says what was measured: there are no sums below", "look at markers.jsonl")
        )
    running = evidence.running
    sent = spans.read(run.spans_path, running=running) or spans.exported(run.exports, running=running)
    timed = facts if sent is None else spans.laid_over(facts, sent, evidence.completions)
    joined = attribute(manifest.run, evidence.completions, timed, segments)
    of_spans = joined.requests if sent is None else spans.sourced(joined.requests, sent)
    rows, order_doubts = checks.phases_in_order(of_spans)
    if sent is not None:
        doubts += [*sent.doubts, *spans.doubts(rows, sent)]
    # That there is no log was said above, with what to do about it.
    doubts += [*(one for one in joined.doubts if one.code != "no-log"), *order_doubts]
    server = manifest.server
    settings = compare(
        facts.format if facts else None,
        server.get("argv") or (),
        facts.settings if facts else (),
        server.get("env"),
        api=server.get("api"),
        commands=server.get("commands"),
        requested=(manifest.scenario.get("server") or {}).get("set"),  # of the twin: not all of them are flags
        software=server.get("software"),
        repeated=facts.asked if facts else (),
    )
    doubts += sections.setting_doubts(settings)
    asked = probe.asked(evidence)
    answers = {one.request: one for one in evidence.completions}
    joined = replace(joined, requests=rows)
    clock = sections.clock(facts, manifest.clock, server.get("pump_worst_pause_ns"))
    counted = {one.segment: metrics_deltas.segment(evidence.metrics, one.segment) for one in segments}
    accounted = [
        sections.segment(accounting.account_segment(rows, one), sections.samples_of(one, segments, evidence.samples))
        | {
            "first_token": sections.waits(rows, one),
            "probe": None if asked is None else probe.segment(rows, one, answers, asked, clock["error_ns"]),
            "perhaps_ours": joined.perhaps_ours.get(one.segment, 0),
        }
        | {"context": memory.context(rows, one, settings), "metrics": counted[one.segment][0]}
        | {"phases": sections.phases(rows, one, counters=counted[one.segment][0] is not None)}
        for one in segments
    ]
    doubts += dict.fromkeys(doubt for _, said in counted.values() for doubt in said)
    probed = [one["probe"] for one in accounted if one["probe"] is not None]
    doubts += [
        *probe_doubts.doubts(probed),
        *checks.without_usage(evidence.completions, by_log=facts is not None and facts.counts_requests),
        *checks.odd_answers(evidence.completions),
        *checks.rates_left_out(accounted),
        *checks.busy_machine(accounted, manifest.host.get("cores")),
        *endings.last_waits(rows, segments, evidence.agents_done),
    ]
    status, why = endings.status(evidence, segments)
    found: dict[str, Any] = {
        "schema": schemas.ACCOUNT,
        "run": manifest.run,
        "status": status,
        "running": evidence.running,
        "why": why,
        "simulated": manifest.simulated or server.get("software") == "twin" or _says_simulated(run.server_log),
        "server": {name: server.get(name) for name in ("kind", "base_url", "model", "argv", "markers")},
        "corpus": manifest.corpus,
        "sandbox": manifest.sandbox,
        "lines": sections.lines(read),
        "requests": sections.requests(joined, segments),
        "usage_check": sections.usage_check(rows),
        "work": sections.work(evidence),
        "agents": [sections.agent(one, evidence) for one in manifest.agents],
        "segments": accounted,
        "probe": probe_published.with_published(probe.summary(probed), evidence.probe.sized, settings, server),
        "settings": [asdict(one) for one in settings],
        "statistics": statistics.of_run(facts, segments),
        "suspects": [] if facts is None else [sections.suspect(one) for one in facts.suspects],
        "server_starts": [] if facts is None else sections.starts_between(facts, markers, run.server_log),
        "clock": clock,
        "doubts": [asdict(one) for one in doubts],
    }
    with derived.replacing(run.derived) as made:
        _write(made, joined, evidence, segments, found)
    return found


def _says_simulated(log: Path) -> bool:
    """Whether the server's own log says so: one that was launched or attached to may be simulated too."""
    try:
        # All of it: whatever a script prints first stands before the server's first line. 1 GB takes 0.2 s.
        with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return simulated.says_so(mapped)
    except (OSError, ValueError):  # there is no log, it cannot be read, or it is empty: said where it is read
        return False


def load(path: Path) -> dict[str, Any]:
    """Return account.json of the run at `path`; made first where it or a table is missing, or the run was at work.

    Raises:
        InputError, ArtifactError: as `account`; or account.json is damaged.
    """
    run = rundir.find(path)
    found = accountfile.read(run.derived / "account.json")
    made_on_the_way = found is not None and found["status"] == "started" and found.get("running", True)
    whole = all((run.derived / f"{name}.parquet").is_file() for name in TABLES)
    return account(path) if found is None or made_on_the_way or not whole else found


def _log(run: RunDir, evidence: raw.Evidence, doubts: list[Doubt]) -> LogFacts | None:
    """Read the server's log and say what is wrong with it; None when there is none."""
    server = evidence.manifest.server
    path = run.server_log
    size = _size(path)
    if size is None and (source := _copied_at_the_end(evidence)) is not None:
        doubts.append(
            Doubt(
                "no-server-log",
                "server.log is copied at the run's end, which has not come: every time below is the client's, a window "
                "of network, queue and work",
                "wait for the end"
                if evidence.running
                else f"read the server's own log: agentload account {in_shell(source)}",
            )
        )
        return None
    if size is None:
        had = server.get("log_owned") or server.get("log_path")
        doubts.append(
            Doubt(
                "no-server-log",
                ("server.log is missing, though the run had one" if had else "there is no server log")
                + ": every time below is the client's, a window of network, queue and work",
                "the run directory is not whole: copy all of it"
                if had
                else "give the server's log with --server-log, or let agentload start it with --launch",
            )
        )
        return None
    if size == 0:
        doubts.append(
            Doubt(
                "log-empty",
                "server.log is empty: every time below is the client's, a window of network, queue and work",
                "see that the server logs each request there",
            )
        )
        return None
    facts = raw.read_log(path, run.server_times, server.get("log_format"))
    if facts.format == unknown.NAME:
        doubts.append(
            Doubt(
                "log-format-unknown",
                f"no line of server.log ({size:,} bytes) is of a known format: every time below is the client's, a "
                "window of network, queue and work",
                wrapped.why_unknown(raw.read_head(path), server.get("log_path"), grows=True)
                or f"known are {', '.join(formats.installed())}; see that the server logs each request there",
            )
        )
        return facts
    doubts += [*facts.doubts, *checks.markers_lost(evidence, facts)]
    aligned = clocks.align(facts, evidence.completions)
    doubts += aligned.doubts[len(facts.doubts) :]
    return aligned


def _copied_at_the_end(evidence: raw.Evidence) -> str | None:
    """Where the log of a server that was there before stands, while the run has no copy of it; None: it is no such run.

    Its manifest is the first one, which knows the scenario only.
    """
    server = evidence.manifest.scenario.get("server")
    log = server.get("log") if isinstance(server, dict) and evidence.manifest.status == "started" else None
    return log if isinstance(log, str) else None


def _size(path: Path) -> int | None:
    """Bytes of a file; None when there is none.

    Raises:
        ArtifactError: it is no file, or cannot be looked at.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "something else"
        raise ArtifactError(f"{path}: expected the server's log, a file, got {what}")
    return found.st_size


def _write(
    made: Path, joined: Attribution, evidence: raw.Evidence, segments: tuple[Segment, ...], found: dict[str, Any]
) -> None:
    run = evidence.manifest.run
    requests = tables.requests_table(joined.requests)
    tables.write(made, "requests", requests)
    tables.write(made, "phases", tables.phases_table(run, requests, evidence.tools, segments))
    tables.write(made, "segments", tables.segments_table(sections.segment_rows(found["segments"])))
    tables.write(made, "samples", tables.samples_table(evidence.samples))
    rundir.write_atomically(made / "account.json", text(found).encode())
