"""Which value of each setting was in force in a run, and which line, field or behaviour proves it?

What account.json says of settings (flags against log, API and process table) is held against what the design expects of
the variant; a setting that no server profile knows may be proven by the design's own line pattern, and one that stands
nowhere by what the server did. The proving line is quoted from server.log itself.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from agentload.analysis.steps import messages_of, request_rows
from agentload.artifacts import jsonlines, schemas
from agentload.artifacts.design import Design, Proof, Step, Value
from agentload.artifacts.rundir import Manifest, RunDir
from agentload.core.records import Verdict
from agentload.errors import ArtifactError, InputError
from agentload.servers.commandline import same
from agentload.servers.profiles import Profile, first_known

_LINE: Final = re.compile(r"server\.log:(\d+)")
_SHOWN: Final = 160  # characters of a quoted line: ds4's are about 150, vLLM's up to 5,000


@dataclass(frozen=True, slots=True)
class Proven:
    """One setting of one run."""

    name: str
    requested: Value | None  # None: nobody asked for it
    applied: Value | None  # None: nothing tells
    verdict: Verdict
    source: str  # where it is proven; empty when it is not
    quote: str | None  # the proving line of server.log; None where the proof is another
    under_test: bool  # variants differ in it, or the design expects it


def profile_of(account: Mapping[str, Any], manifest: Manifest) -> Profile:
    """Return what is known of the kind of server that a run had."""
    server = manifest.server
    software = "twin" if server.get("kind") == "twin" else server.get("software")
    log_format = account["lines"]["format"]
    command_lines = [server.get("argv") or [], *(one.get("argv") or [] for one in server.get("commands") or ())]
    return first_known(software, command_lines, log_format)


def lines_of(log: Path) -> Iterable[tuple[int, str]]:
    """Yield (number from 1, line) of server.log; nothing where there is none.

    Raises:
        ArtifactError: it cannot be read.
    """
    try:
        with log.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip(b"\r\n").decode("utf-8", "replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArtifactError(f"{log}: cannot be read: {error.strerror}") from error


def shortened(line: str, around: str = "") -> str:
    """A line of at most 160 characters: of a longer one, what stands around `around`."""
    if len(line) <= _SHOWN:
        return line
    start = max(0, min(line.find(around) - _SHOWN // 2 if around in line else 0, len(line) - _SHOWN))
    return f"{'...' if start else ''}{line[start : start + _SHOWN]}{'...' if start + _SHOWN < len(line) else ''}"


def settings_of(account: Mapping[str, Any], run: RunDir, design: Design, step: Step) -> tuple[Proven, ...]:
    """Return every setting that was asked for, is expected or is stated, by name.

    Raises:
        InputError: a pattern of the design is no regular expression with one group.
        ArtifactError: server.log cannot be read.
    """
    profile = profile_of(account, run.read_manifest())
    expected = {profile.setting_name(name): value for name, value in design.variant(step.variant).expected.items()}
    stated = {one["name"]: one for one in account["settings"]}
    quoted = {int(at[1]) for one in stated.values() if (at := _LINE.search(one["source"]))}
    lines, matched = _scan(run.server_log, quoted, {profile.setting_name(one.setting): one for one in design.proofs})
    behaves = _behaviours(run, step)
    found: list[Proven] = []
    for name in sorted({*stated, *expected, *matched}):
        one = _stated(name, stated.get(name), lines)
        if name in matched:
            number, told, line = matched[name]
            one = replace(one, applied=told, source=f"server.log:{number}", quote=shortened(line, told))
        elif one.applied is None and name in behaves:
            value, source = behaves[name]
            one = replace(one, applied=value, source=source)
        found.append(_held_against(one, expected.get(name), profile, under_test=name in expected))
    return (*found, *_sent(run, step, design.variant(step.variant).request))


def _stated(name: str, row: Mapping[str, Any] | None, lines: Mapping[int, str]) -> Proven:
    if row is None:
        return Proven(name, None, None, Verdict.UNPROVEN, "", None, under_test=False)
    number = _LINE.search(row["source"])
    quote = lines.get(int(number[1])) if number else None
    return Proven(
        name,
        row["requested"],
        row["applied"],
        Verdict(row["verdict"]),
        row["source"],
        None if quote is None else shortened(quote, name),
        under_test=False,
    )


def _held_against(one: Proven, expected: Value | None, profile: Profile, *, under_test: bool) -> Proven:
    """Judge a setting anew where the design expects a value, or its own pattern or the behaviour told one."""
    requested = one.requested if expected is None else expected
    if one.verdict is Verdict.DUPLICATE or (expected is None and one.applied is None):
        verdict = one.verdict
    elif requested is None:
        verdict = Verdict.DEFAULTED
    elif one.applied is None:
        verdict = Verdict.UNPROVEN
    elif expected is None and one.verdict is not Verdict.UNPROVEN:
        verdict = one.verdict  # servers' own words for a value are known where the account was made
    else:
        verdict = Verdict.APPLIED if same(profile.option(one.name), requested, one.applied) else Verdict.MISMATCH
    return replace(one, requested=requested, verdict=verdict, under_test=under_test)


def _scan(
    log: Path, wanted: set[int], proofs: Mapping[str, Proof]
) -> tuple[dict[int, str], dict[str, tuple[int, str, str]]]:
    """Return (the wanted lines, of each pattern its last match: line number, value, line)."""
    patterns = [(setting, _compiled(one)) for setting, one in proofs.items()]
    lines: dict[int, str] = {}
    matched: dict[str, tuple[int, str, str]] = {}
    if wanted or patterns:
        for number, line in lines_of(log):
            if number in wanted:
                lines[number] = line
            for setting, pattern in patterns:
                if (found := pattern.search(line)) is not None and found[1] is not None:
                    matched[setting] = (number, found[1], line)
    return lines, matched


def _compiled(proof: Proof) -> re.Pattern[str]:
    try:
        pattern = re.compile(proof.line)
    except re.error as error:
        raise InputError(
            f"proof of {proof.setting}: expected a regular expression, got {proof.line!r}: {error}"
        ) from error
    if pattern.groups != 1:
        raise InputError(
            f"proof of {proof.setting}: expected one group, the value; {proof.line!r} has {pattern.groups}"
        )
    return pattern


def as_json(found: Iterable[Proven]) -> list[dict[str, Any]]:
    """As JSON values."""
    return [asdict(one) for one in found]


# ---- what was sent ---------------------------------------------------------------------------------------------------


def _sent(run: RunDir, step: Step, asked: Mapping[str, Any]) -> list[Proven]:
    """Request parameters of the variant, and what each request of the step carried; none tells what came of it."""
    if not asked:
        return []
    carried = [
        (path.relative_to(run.path).as_posix(), event.get("extra") or {})
        for path in messages_of(run, step)
        for _, event in jsonlines.read(path, schemas.MESSAGES)
        if event.get("event") == "request"
    ]
    found = []
    for name, wanted in asked.items():
        other = next(((where, extra.get(name)) for where, extra in carried if extra.get(name) != wanted), None)
        where, value = other if other is not None else (carried[0][0], wanted) if carried else ("", None)
        verdict = Verdict.UNPROVEN if not carried else Verdict.APPLIED if other is None else Verdict.MISMATCH
        told = None if value is None else _as_text(value)
        source = f"{where}, as sent: what the server made of it is not stated" if where else ""
        found.append(Proven(f"request.{name}", _as_text(wanted), told, verdict, source, None, under_test=True))
    return found


def _as_text(value: Any) -> Value:
    return value if isinstance(value, (bool, int, float, str)) else json.dumps(value, sort_keys=True)


# ---- what the server did ---------------------------------------------------------------------------------------------


def _prompt_cache(rows: Sequence[Mapping[str, Any]]) -> tuple[Value, str] | None:
    """Whether prompts are reused: nothing at start-up says so, cached tokens of later turns do."""
    later = [row["cached_tokens"] for row in rows if (row["turn"] or 0) > 0 and row["cached_tokens"] is not None]
    if not later:
        return None
    used = sum(tokens > 0 for tokens in later)
    return used > 0, f"behaviour: {used} of {len(later)} later turns reused cached tokens"


_BEHAVIOURS: Final[Mapping[str, Callable[[Sequence[Mapping[str, Any]]], tuple[Value, str] | None]]] = {
    "cache_prompt": _prompt_cache,
}
"""Settings that what the server did can prove; a profile of servers.profiles says which of them need it."""


def _behaviours(run: RunDir, step: Step) -> dict[str, tuple[Value, str]]:
    rows = request_rows(run, step)
    return {name: found for name, told in _BEHAVIOURS.items() if (found := told(rows)) is not None}
