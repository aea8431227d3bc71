"""Does this run count? Every reason against it, with the line that proves it and what to fix.

A run counts when the server under it was the one that was asked for, from an empty state, at work for our agents alone,
and long enough (PROTOCOL sections 1 and 4). A reason is a doubt that bars: runs with one are left out and counted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentload.analysis import proofs, taints
from agentload.analysis.proofs import Proven, shortened
from agentload.analysis.steps import request_rows, segments_of
from agentload.artifacts.design import Design, ExperimentDir, Step
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.core.records import Doubt, Verdict
from agentload.serverlogs import formats
from agentload.servers.profiles import Profile

LEAST_EXPOSURE: Final = 0.05  # PROTOCOL section 1: under it the flag was not exercised
_LAST_LINES: Final = 3  # of the log of a server that died
_BAD_ENDS: Final = frozenset(("failed", "cancelled"))


def reasons(account: dict[str, Any], run: RunDir, design: Design, step: Step) -> list[Doubt]:
    """Return why what was measured in `step` does not count; empty: it is valid.

    Args:
        account: account.json of the run.
        run: its directory, with derived/ made.
        design: the experiment's.
        step: the run, or the segment of it.

    Raises:
        InputError: a proof of the design is no pattern.
        ArtifactError: a file of the run cannot be read.
    """
    if account["status"] in ("started", "error", "cancelled", "invalid"):
        return [_ended_badly(account, run)]
    manifest = run.read_manifest()
    segments = segments_of(account, step)
    rows = request_rows(run, step)
    profile = proofs.profile_of(account, manifest)
    found = _settings(proofs.settings_of(account, run, design, step))
    if not segments:
        return [*found, Doubt("no-segment", "no marker says what was measured", "run it again")]
    return [
        *found,
        *_unknown_log(account, manifest),
        *_restarted(account, run),
        *_too_little(account, step),
        *_state(account, run, segments, rows, manifest),
        *_foreign(segments),
        *_not_exercised(segments, design, step, profile),
        *taints.compilations(run, rows, account["suspects"]),
        *(taints.cold_first(_like_the_first(rows, segments)) if segments[0] is account["segments"][0] else ()),
    ]


# ---- how it ended ----------------------------------------------------------------------------------------------------


def _ended_badly(account: Mapping[str, Any], run: RunDir) -> Doubt:
    status, why = account["status"], account["why"]
    again = "`agentload ab DIR` runs it again" if _in_experiment(run) else "run it again, and take that run instead"
    if account.get("running"):
        return Doubt("run-not-ended", "it has not ended: it is at work", "wait for its end")
    if status == "started":
        return Doubt("run-not-ended", "it has not ended: its writer was killed, or had no room left", again)
    last = [line for _, line in proofs.lines_of(run.server_log)][-_LAST_LINES:] if status == "error" else []
    quoted = "; ".join(f'"{shortened(line)}"' for line in last if "agentload: segment" not in line)
    said = f"; the server's last lines: {quoted}" if quoted else ""
    return Doubt(
        f"run-{status}",
        f"it ended as {status}: {why or 'no reason is known'}{said}",
        ("mend what it says, then " if status == "error" else "") + again
        if status != "invalid"
        else "see its manifest, mend that, run it again",
    )


def _in_experiment(run: RunDir) -> bool:
    """Whether it stands where an experiment keeps its runs; else it was made by hand."""
    runs = run.path.resolve().parent
    folder = ExperimentDir(runs.parent)
    return folder.runs == runs and folder.design_path.is_file()


def _too_little(account: Mapping[str, Any], step: Step) -> list[Doubt]:
    """Agents below the minimum; of a run of several segments those of the step's."""
    agents = [one for one in account["agents"] if step.segment in (None, one.get("segment", step.segment))]
    bad = [one for one in agents if one["too_little_work"] or one["end"] in _BAD_ENDS]
    elsewhere = len(agents) < len(account["agents"]) and any(
        one["too_little_work"] or one["end"] in _BAD_ENDS for one in account["agents"]
    )
    if not bad and (account["status"] != "partial" or elsewhere):
        return []
    named = ", ".join(f"{one['agent']} ({one['tool_calls']} tool calls, {one['end']})" for one in bad)
    return [
        Doubt(
            "too-little-work",
            f"it is not whole: {account['why'] or named or 'too little work'}",
            "lower the limits' min_tool_calls and min_growth_tokens, or give tasks that the model works on for longer"
            if bad
            else "mend what it says, run it again",
        )
    ]


def _like_the_first(
    rows: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return the requests whose wait may be held against the first one's: of a probe those of its kind under its load.

    A prompt that came with two others waits longer than one alone, which shows no cold start.
    """
    loads = {one["segment"]: one["probe"]["load"] for one in segments if one.get("probe") is not None}
    kinds = [(loads.get(row["segment"]), (row["agent"] or "")[:1]) for row in rows]
    sent = [(row["t_sent"], kind) for row, kind in zip(rows, kinds, strict=True) if row["t_sent"] is not None]
    if not loads or not sent:
        return rows
    _, first = min(sent, key=lambda one: one[0])
    return [row for row, kind in zip(rows, kinds, strict=True) if kind == first]


# ---- the server ------------------------------------------------------------------------------------------------------

_FIX: Final[Mapping[Verdict, str]] = {
    Verdict.MISMATCH: "find what sets it (a wrapper script, a limit of the server), or ask for the value in force",
    Verdict.DUPLICATE: "give it once: the last one wins without a word",
    Verdict.UNPROVEN: (
        "name it as the server does, also a placeholder; or raise the log's level; or name the line of server.log that "
        "states it with [[proof]]"
    ),
}
_SAID: Final[Mapping[Verdict, str]] = {
    Verdict.MISMATCH: "setting-mismatch",
    Verdict.DUPLICATE: "setting-duplicate",
    Verdict.UNPROVEN: "setting-unreadable",
}


def _settings(settings: Sequence[Proven]) -> list[Doubt]:
    """Settings not in force as asked for, or given twice; of those under test also ones that nothing proves."""
    return [
        Doubt(_SAID[one.verdict], _about(one), _FIX[one.verdict])
        for one in settings
        if one.verdict in _SAID and (one.verdict is not Verdict.UNPROVEN or one.under_test)
    ]


def _about(one: Proven) -> str:
    said = {
        Verdict.MISMATCH: f"{one.name}: {one.requested} was asked for, in force is {one.applied}",
        Verdict.DUPLICATE: f"{one.name} was given more than once, in force is "
        f"{one.requested if one.applied is None else one.applied}",
        Verdict.UNPROVEN: f"{one.name}: {one.requested} was asked for, and neither log, API nor behaviour proves it",
    }[one.verdict]
    return said + cited(one)


def cited(one: Proven) -> str:
    """How a setting is proven, as a sentence goes on: the line of server.log word for word."""
    if one.quote is not None:
        return f' ({one.source}: "{one.quote}")'
    return f" ({one.source})" if one.source else ""


def _unknown_log(account: Mapping[str, Any], manifest: Manifest) -> list[Doubt]:
    """A log that is there and of which no line is known; that of a server for which there is no reader is no reason."""
    if account["lines"]["format"] != "unknown" or manifest.server.get("software") not in (None, *formats.installed()):
        return []
    return [
        Doubt(
            "log-unknown",
            f"no line of server.log ({account['lines']['total']:,} lines) is of a known format: nothing proves what "
            "the server did",
            f"known are {', '.join(formats.installed())}; name another server with server.software",
        )
    ]


def _restarted(account: Mapping[str, Any], run: RunDir) -> list[Doubt]:
    starts = account.get("server_starts") or []
    if not starts:
        return []
    quote = next((line for number, line in proofs.lines_of(run.server_log) if number == starts[0]), "")
    return [
        Doubt(
            "restart-in-mid-run",
            f'the server started again between the markers (server.log:{starts[0]}: "{shortened(quote)}")',
            "see in the log why it ended; switch off what restarts it",
        )
    ]


# ---- what it worked on -----------------------------------------------------------------------------------------------


def _state(
    account: Mapping[str, Any],
    run: RunDir,
    segments: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    manifest: Manifest,
) -> list[Doubt]:
    warmed = bool(manifest.scenario.get("warmup"))
    found: list[Doubt] = []
    for segment in segments:
        before = warmed or segment is not account["segments"][0]
        found += taints.inherited(run, [row for row in rows if row["segment"] == segment["segment"]], before=before)
    return found[:1]


def _foreign(segments: Sequence[Mapping[str, Any]]) -> list[Doubt]:
    """Requests of the log that are surely not ours: such as may be, and broke off, are said in the run's own doubts."""
    counted = sum(one["whole"]["matches"]["server_only"] - one.get("perhaps_ours", 0) for one in segments)
    if not counted:
        return []
    return [
        Doubt(
            "foreign-traffic",
            f"{counted} request{'s' * (counted != 1)} between the markers that none of our agents sent",
            "keep everybody else off the server while it is measured",
        )
    ]


def exposure(segments: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the part of the prefill time of segments in which another request decoded; None: not known."""
    known = [(one["whole"]["overlap"], one["whole"]["prefill_union_ns"]) for one in segments]
    known = [(share, union) for share, union in known if share is not None and union]
    total = sum(union for _, union in known)
    return sum(share * union for share, union in known) / total if total else None


def acts_beside_decode(design: Design, variant: str, profile: Profile) -> list[str]:
    """Return the settings under test that do nothing unless one request decodes while another prefills."""
    expected = design.variant(variant).expected
    return sorted(name for name in expected if profile.needs_decode_beside_prefill(name))


def _not_exercised(segments: Sequence[Mapping[str, Any]], design: Design, step: Step, profile: Profile) -> list[Doubt]:
    """A setting under test that does nothing unless one request decodes beside a prefill, where that hardly was."""
    only_beside = acts_beside_decode(design, step.variant, profile)
    share = exposure(segments)
    if not only_beside or share is None or share >= LEAST_EXPOSURE:
        return []
    return [
        Doubt(
            "flag-not-exercised",
            f"{', '.join(only_beside)} only works while one request prefills and another decodes: that was "
            f"{share:.1%} of the prefill time, under {LEAST_EXPOSURE:.0%}",
            "more agents, or starts further apart (--agents, --stagger), so that one prefills while others decode",
        )
    ]


# ---- between runs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """One run's manifest and the variants that it holds."""

    run: str
    variants: tuple[str, ...]
    manifest: Manifest
    simulated: bool = False  # by the manifest, or by what the server's own log says


def across(runs: Sequence[Seen]) -> dict[str, list[Doubt]]:
    """Return, by run, why it cannot be compared with the others: another model, binary, corpus, agentload or world.

    The largest group of equal runs counts, and every run outside it is named; without a largest one none counts. A
    binary or a model may differ between variants, where these are commands of their own with paths of their own: at one
    path there must be one file, and within a variant one path.
    """
    found: dict[str, list[Doubt]] = defaultdict(list)
    for code, what, told, fix in _EQUAL:
        for name, said in _odd(what, [(one.run, told(one)) for one in runs]):
            found[name].append(Doubt(code, said, fix))
    for what in ("binary", "script", "model"):
        for name, said in _changed_files(what, runs):
            found[name].append(Doubt(f"{what}-changed", said, "run the others again with the file that stays"))
    return dict(found)


def _odd(what: str, told: Iterable[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """Return (run, what is said) of each run outside the largest group of equal ones; None is not known."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, value in told:
        if value is not None:
            groups[value].append(name)
    if len(groups) < 2:
        return []
    said = f"{what} changed between runs: " + "; ".join(f"{', '.join(names)}: {v}" for v, names in groups.items())
    most = max(len(names) for names in groups.values())
    largest = [value for value, names in groups.items() if len(names) == most]
    return [(name, said) for value, names in groups.items() if largest != [value] for name in names]


def _version(one: Seen) -> str | None:
    return one.manifest.versions.get("agentload")


def _commit(one: Seen) -> str | None:
    commit = one.manifest.corpus.get("commit")
    return str(commit) if commit else None


_EQUAL: Final[tuple[tuple[str, str, Callable[[Seen], str | None], str], ...]] = (
    (
        "simulated-mixed",
        "the world",
        lambda one: "simulated" if one.simulated else "real",
        "a simulated run says nothing beside a real one: keep them in experiments of their own",
    ),
    ("corpus-changed", "the corpus' commit", _commit, "pin the corpus, and run the others again"),
    ("agentload-changed", "agentload's version", _version, "use one version for all runs, and run the others again"),
)


def _changed_files(what: str, runs: Sequence[Seen]) -> list[tuple[str, str]]:
    """Return (run, what is said) of each run whose binary or model is another one: at its path, then in its variant."""
    known = [
        (one, identity)
        for one in runs
        if (identity := (one.manifest.server.get("identity") or {}).get(what)) is not None
    ]
    by_path: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for one, identity in known:
        by_path[str(identity.get("path"))].append((one.run, _shown(identity)))
    found = [odd for told in by_path.values() for odd in _odd(f"the {what}", told)]
    barred = {name for name, _ in found}
    by_variant: dict[tuple[str, ...], list[tuple[str, str | None]]] = defaultdict(list)
    for one, identity in known:
        if one.run not in barred:
            by_variant[one.variants].append((one.run, _shown(identity)))
    return found + [odd for told in by_variant.values() for odd in _odd(f"the {what}", told)]


def _shown(identity: Mapping[str, Any]) -> str:
    digest = str(identity.get("header_sha256") or "?")[:12]
    return f"{identity.get('path')} ({identity.get('size')} bytes, mtime {identity.get('mtime_ns')}, header {digest})"
