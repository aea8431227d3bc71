"""Which published numbers does the twin give, which not, and why? All tables of all profiles, as values.

The synthetic probes are played under `m3-ultra` only; under `m3-ultra-agents` one of them shows that a single cost
model gives either the probe or the agents.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final

from agentload.twin import profile as profiles
from agentload.twin import published
from agentload.twin.options import Options
from agentload.twin.rows import Misfit, Row, all_hold
from agentload.twin.scenarios import probe
from agentload.twin.tables_agents import AgentTables
from agentload.twin.tables_probe import ProbeTables

SCHEMA: Final = "agentload.twin.tables/1"
PROBE_PROFILE: Final = "m3-ultra"
AGENTS_PROFILE: Final = "m3-ultra-agents"
SOURCE: Final = "report A: Apple M3 Ultra 512 GB, ds4-server, DeepSeek V4 Flash"


@dataclass(frozen=True, slots=True)
class Section:
    """The rows and misfits of one profile."""

    profile: str
    about: str
    rows: tuple[Row, ...]
    misfits: tuple[Misfit, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """All of them. `holds`: every limit holds."""

    sections: tuple[Section, ...]

    @property
    def holds(self) -> bool:
        """Whether every limit holds."""
        return all(all_hold(section.rows) for section in self.sections)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "schema": SCHEMA,
            "simulated": True,
            "published_source": SOURCE,
            "holds": self.holds,
            "sections": [asdict(section) for section in self.sections],
        }


def compare() -> Tables:
    """Play everything and compare; about ten seconds."""
    of = published.load()
    plain, fitted = profiles.load(PROBE_PROFILE), profiles.load(AGENTS_PROFILE)
    probes, agents, more = ProbeTables(plain, of), AgentTables(plain, of.agents), AgentTables(fitted, of.agents)
    first = Section(plain.name, plain.about, (*probes.rows(), *agents.rows()), (*probes.misfits(), *agents.misfits()))
    second = Section(fitted.name, fitted.about, tuple(more.rows()), (_either(fitted, of), *more.misfits()))
    return Tables((first, second))


def _either(fitted: profiles.Profile, of: published.Published) -> Misfit:
    got = {
        quantum: probe(
            fitted, Options(mixed_prefill_quantum=quantum), tokens=of.probe.prompt_tokens, decoders=of.probe.decoders
        ).tok_s
        for quantum in (2048, 128)
    }
    return Misfit(
        "3, 4",
        "the probe's 2048 and 128, tok/s",
        f"{of.probe.tok_s[2048]:g} and {of.probe.tok_s[128]:g}, agents {of.agents.speed_tok_s[2048]:g} and "
        f"{of.agents.speed_tok_s[128]:g}",
        f"{got[2048]:.0f} and {got[128]:.0f} under this profile",
        "one cost model gives the probe or the agents: agents' prefill is about 1.5 times dearer; no report says why",
    )
