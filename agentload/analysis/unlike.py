"""In what do runs differ that makes a comparison of them say nothing?

Two runs that somebody made by hand may differ in more than the setting that is looked at: the work, the machine, the
model. Each such difference is named with the runs on both sides of it. A few can do no harm to the numbers; those may
be let pass, and are said with the result. What is not known of a run is not held against it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentload.artifacts.rundir import Manifest

_GIB: Final = 1 << 30
_SHOWN: Final = 12  # digits of a digest


@dataclass(frozen=True, slots=True)
class Compared:
    """One run, and what is known of it."""

    name: str
    manifest: Manifest
    account: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unlike:
    """One thing in which runs differ."""

    what: str
    values: tuple[tuple[str, tuple[str, ...]], ...]  # (value, its runs)
    harmless: bool

    @property
    def sentence(self) -> str:
        """In one line."""
        return f"{self.what}: " + "; ".join(f"{value} in {', '.join(runs)}" for value, runs in self.values)


Told = Callable[[Compared], str | None]


def unlike(runs: Sequence[Compared]) -> list[Unlike]:
    """Return all in which the runs differ, of what must be equal; harmless ones last."""
    limits = sorted({name for one in runs for name in one.manifest.scenario.get("limits") or {}})
    checks: list[tuple[str, Told]] = [*_MUST, *((f"limits.{name}", _of("limits", name)) for name in limits)]
    found = [_unlike(what, told, runs, harmless=False) for what, told in checks]
    found += [_unlike(what, told, runs, harmless=True) for what, told in _HARMLESS]
    return [one for one in found if one is not None]


def _unlike(what: str, told: Told, runs: Sequence[Compared], *, harmless: bool) -> Unlike | None:
    groups: dict[str, list[str]] = {}
    for one in runs:
        if (value := told(one)) is not None:
            groups.setdefault(value, []).append(one.name)
    if len(groups) < 2:
        return None
    return Unlike(what, tuple((value, tuple(names)) for value, names in groups.items()), harmless)


def _of(*path: str) -> Told:
    """A value of the scenario; what a scenario does not say has its default, of this version too."""

    def told(one: Compared) -> str | None:
        value: Any = one.manifest.scenario
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return None if value is None else str(value)

    return told


def _world(one: Compared) -> str:
    return "simulated" if one.account["simulated"] else "real"


def _corpus(one: Compared) -> str | None:
    corpus = one.manifest.corpus
    commit = str(corpus.get("commit") or "")
    return f"{corpus.get('name')} {commit[:_SHOWN]}{' with changes' if corpus.get('dirty') else ''}" if commit else None


def _tasks(one: Compared) -> str | None:
    """Of each agent its tasks: which of them has which plays no part."""
    each = [
        "+".join(str(part.get("task")) for part in agent["tasks"]) if agent.get("tasks") else str(agent.get("task"))
        for agent in one.manifest.agents
    ]
    return ", ".join(sorted(each)) or None


def _model(one: Compared) -> str | None:
    """As the server calls it: of a path its last part, since the same file may lie elsewhere."""
    name = one.manifest.server.get("model")
    return None if name is None else str(name).rstrip("/").rpartition("/")[2]


def _file(what: str) -> Told:
    """The program's or the model's file, wherever it lies."""

    def told(one: Compared) -> str | None:
        identity = (one.manifest.server.get("identity") or {}).get(what)
        if identity is None:
            return None
        name = str(identity["path"]).rpartition("/")[2]
        return f"{name} ({identity['size']} bytes, {str(identity.get('header_sha256') or '?')[:_SHOWN]})"

    return told


def _machine(one: Compared) -> str | None:
    host = one.manifest.host
    if one.account["simulated"]:  # a run that was killed has its first manifest, which knows the scenario only
        told = one.manifest.server.get("simulated") or one.manifest.scenario.get("server") or {}
        return str(told.get("profile") or "simulated")
    if host.get("machine") is None:
        return None
    memory = host.get("memory_bytes")
    gib = "" if memory is None else f", {round(memory / _GIB)} GiB"
    return f"{host['machine']}, {host.get('cores')} cores{gib}"


def _software(one: Compared) -> str | None:
    server = one.manifest.server
    name = server.get("software") or one.account["lines"]["format"]
    return None if name is None else str(name)


def _version(one: Compared) -> str | None:
    """What the server says of its build."""
    said = {row["name"]: row["applied"] for row in one.account["settings"]}
    return next((str(said[name]) for name in ("build_info", "build", "version") if said.get(name) is not None), None)


_MUST: Final[tuple[tuple[str, Told], ...]] = (
    ("world", _world),
    ("workload", _of("workload")),
    ("corpus commit", _corpus),
    ("tasks", _tasks),
    ("agents", _of("agents")),
    ("stagger_s", _of("stagger_s")),
    ("chain", _of("chain")),
    ("parallel_tool_calls", _of("parallel_tool_calls")),
    ("protocol", _of("protocol")),
    ("known_paths", _of("known_paths")),
    ("fixed", _of("fixed")),
    ("probe", _of("probe")),
    ("parts", _of("parts")),
    ("warm-up", _of("warmup")),
    ("model", _model),
    ("model file", _file("model")),
    ("machine", _machine),
    ("server software", _software),
    ("server version", _version),
    ("server program", _file("binary")),
)
"""What must be equal: the work, and what does it."""

_HARMLESS: Final[tuple[tuple[str, Told], ...]] = (
    ("seed", _of("seed")),
    ("sample_s", _of("sample_s")),
    ("agentload's version", lambda one: one.manifest.versions.get("agentload")),
    ("operating system", lambda one: None if one.account["simulated"] else one.manifest.host.get("system")),
)
"""What may differ when it is said: other words and moments of the same work, and a patch of the system below it."""
