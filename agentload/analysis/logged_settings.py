"""Which settings does a log state by itself, and was what it repeats of the command line put in force?

vLLM writes its arguments first: the request, which proves nothing. What the log states of the same name later does.
"""

from collections.abc import Iterator
from typing import Any

from agentload.core.records import Doubt, LogFacts, Proof, Setting, Verdict
from agentload.servers.commandline import same
from agentload.servers.profiles import Profile, profile_for


def rows(facts: LogFacts, name: str) -> list[dict[str, Any]]:
    """Return account.json's settings of the log `name`: those in force, then those that were asked for only."""
    profile = profile_for(None, (), facts.format)
    asked = {(one.boot, one.name): one for one in facts.asked if not _free(profile, one)}
    stated = [_row(profile, one, asked.get((one.boot, one.name)), name) for one in facts.settings]
    told = {(one.boot, one.name) for one in facts.settings}
    return stated + [_only_asked(one, name) for key, one in asked.items() if key not in told]


def doubts(settings: list[dict[str, Any]]) -> Iterator[Doubt]:
    """Say what was asked for and is not in force, where the log tells both."""
    for one in settings:
        if one["verdict"] == Verdict.MISMATCH:
            yield Doubt(
                "setting-mismatch",
                f"{one['name']}: {one['requested']} was asked for, in force is {one['applied']} ({one['source']})",
                "nothing measured here is about the value that was asked for",
            )


def _free(profile: Profile, one: Setting) -> bool:
    option = profile.option(one.name)
    return option is not None and one.value in option.free and not isinstance(one.value, bool)


def _row(profile: Profile, one: Setting, asked: Setting | None, name: str) -> dict[str, Any]:
    verdict = None
    if asked is not None:
        verdict = Verdict.APPLIED if same(profile.option(one.name), asked.value, one.value) else Verdict.MISMATCH
    return {
        "name": one.name,
        "requested": None if asked is None else asked.value,
        "applied": one.value,
        "verdict": None if verdict is None else verdict.value,
        "boot": one.boot,
        **_place(one.proof, name),
    }


def _only_asked(one: Setting, name: str) -> dict[str, Any]:
    return {
        "name": one.name,
        "requested": one.value,
        "applied": None,
        "verdict": Verdict.UNPROVEN.value,
        "boot": one.boot,
        **_place(one.proof, name),
    }


def _place(proof: Proof, name: str) -> dict[str, Any]:
    return {"source": f"{name}:{proof.line}", "line": proof.line, "offset": proof.offset}
