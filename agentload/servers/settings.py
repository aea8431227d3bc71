"""Is what was asked for on the command line what the server says is in force?

Servers take the last of two equal flags, clamp values and ignore what they do not know, all without a word. So each
setting that was asked for is held against the line of the start-up log that states the value in force, else against
the field of the API that does. What neither states is unproven, not applied: of some settings only behaviour tells
(`Profile.proof`).

Which command line? The one that agentload was given, and those that the process table shows of what it started: a
script may give a flag a second time, or another value. Of a server in a container or behind ssh the table shows only
the program that reaches it, and of a server that runs elsewhere nothing: then log and API decide alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentload.core.records import Applied, Setting, Verdict
from agentload.servers.commandline import asked, by_environment, same
from agentload.servers.profiles import PROFILES, Option, Profile, Value, first_known, names_a_server

VARIABLES: Final = tuple(sorted({name for one in PROFILES.values() for name in one.variables}))
"""Environment variables that ask for a setting of some server where no flag does."""
_OURS: Final = "argv"


@dataclass(frozen=True, slots=True)
class _Line:
    """A command line, and where it stands."""

    where: str
    asks: dict[str, list[Value]]
    serves: bool  # it is the serving process' own


@dataclass(frozen=True, slots=True)
class _Evidence:
    value: Value
    source: str


def compare(
    log_format: str | None,
    argv: Sequence[str],
    stated: Sequence[Setting],
    env: Mapping[str, str] | None = None,
    *,
    api: Mapping[str, Mapping[str, Value]] | None = None,
    commands: Sequence[Mapping[str, Any]] | None = None,
    requested: Mapping[str, Value] | None = None,
    software: str | None = None,
    repeated: Sequence[Setting] = (),
) -> tuple[Applied, ...]:
    """Return every setting that was asked for or is stated, by name: requested, applied, and what proves it.

    Of several starts in one log the last one counts.

    Args:
        log_format: whose log it is; None: there is none, or none that can be read.
        argv: the command line that was given.
        stated: what the log states.
        env: of the server's environment, what asks for a setting; a flag wins over it.
        api: what it answered after it was ready, as servers.api keeps it: {"GET /props": {"total_slots": 3}}.
        commands: command lines of the process table after it was ready, {"pid", "argv", "serves"}: servers.identity.
        requested: what must be in force, whoever asked for it, by name, alias or flag.
        software: the profile's name, where it is known.
        repeated: what the log repeats of its command line: it counts as asked for where no flag that is known does.
    """
    profile = first_known(software, [argv, *(one["argv"] for one in commands or ())], log_format)
    lines = [
        _Line(_OURS, asked(profile, argv), serves=False),
        *(
            _Line(f"pid {one['pid']} argv", asked(profile, one["argv"]), serves=bool(one.get("serves", False)))
            for one in commands or ()
            # A script may run other programs beside the server, whose flags are their own: tail -n 5.
            if one.get("serves", False) or names_a_server(one["argv"])
        ),
    ]
    wanted = {profile.setting_name(name): value for name, value in (requested or {}).items()}
    last = max((one.boot for one in (*stated, *repeated)), default=0)
    by_env = {one.name: one.value for one in repeated if one.boot == last and profile.option(one.name) is not None}
    by_env |= by_environment(profile, env or {})
    evidence = _evidence(profile, stated, api or {})
    names = {*wanted, *by_env, *evidence, *(name for line in lines for name in line.asks)}
    found = (_one(profile, name, wanted.get(name), lines, by_env.get(name), evidence.get(name, [])) for name in names)
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.name))


def _evidence(
    profile: Profile, stated: Sequence[Setting], api: Mapping[str, Mapping[str, Value]]
) -> dict[str, list[_Evidence]]:
    """What is stated of each setting, the log first."""
    found: dict[str, list[_Evidence]] = {}
    last = max((one.boot for one in stated), default=0)
    for name, one in {each.name: each for each in stated if each.boot == last}.items():
        found[name] = [_Evidence(one.value, f"server.log:{one.proof.line}")]
    for option in profile.settings:
        for field in option.fields:
            endpoint, _, name = field.rpartition(" ")
            if (value := api.get(endpoint, {}).get(name)) is not None:
                found.setdefault(option.name, []).append(_Evidence(value, field))
    return found


def _one(
    profile: Profile,
    name: str,
    expected: Value | None,
    lines: Sequence[_Line],
    by_env: Value | None,
    evidence: Sequence[_Evidence],
) -> Applied | None:
    option = profile.option(name)
    given = [(line, values) for line in lines if (values := line.asks.get(name))]
    wanted = _wanted(expected, given, by_env)
    if wanted is not None and option is not None and wanted in option.free and not isinstance(wanted, bool):
        wanted = None
    twice = next(((line, values) for line, values in given if len(values) > 1), None)
    best = evidence[0] if evidence else None
    applied = None if best is None else best.value
    source = "" if best is None else best.source
    if twice is not None:
        line, values = twice
        both = f"{', '.join(map(str, values))} in {line.where}"
        source = f"{source}, given {both}" if source else f"given {both}"
        return Applied(name, wanted, applied, source, Verdict.DUPLICATE, given=tuple(values), where=line.where)
    if wanted is None:
        return None if best is None else Applied(name, None, applied, source, Verdict.DEFAULTED)
    against = next((one for one in evidence if not same(option, wanted, one.value)), None)
    if against is not None:
        return Applied(name, wanted, against.value, against.source, Verdict.MISMATCH)
    if best is not None:
        return Applied(name, wanted, applied, source, Verdict.APPLIED)
    other = _otherwise(option, wanted, given)
    if other is not None:
        line, value = other
        return Applied(name, wanted, value, line.where, Verdict.MISMATCH, where=line.where)
    return Applied(name, wanted, None, "", Verdict.UNPROVEN)


def _wanted(expected: Value | None, given: Sequence[tuple[_Line, list[Value]]], by_env: Value | None) -> Value | None:
    """What was asked for: by who compares, on the given command line, by a script on the server's own, or outside."""
    if expected is not None:
        return expected
    ours = next((values for line, values in given if line.where == _OURS), None)
    serving = next((values for line, values in given if line.serves), None)
    rest = next((values for _, values in given), None)
    values = ours or serving or rest
    return by_env if values is None else values[-1]


def _otherwise(
    option: Option | None, wanted: Value, given: Sequence[tuple[_Line, list[Value]]]
) -> tuple[_Line, Value] | None:
    """What the serving process was really given, where nothing states a value, and it is another one."""
    for line, values in given:
        if line.serves and not same(option, wanted, values[-1]):
            return line, values[-1]
    return None
